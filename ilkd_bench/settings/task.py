"""The settings of a task: a group of conf/task, checked before its rows are read."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, ValidationError

from ilkd_bench.data.tasks import Task
from ilkd_bench.settings.checks import (
    LabelMap,
    ListOrText,
    Name,
    Text,
    TextOrNone,
    refusal,
)


class Frozen(BaseModel):
    """Settings that nothing changes once they are checked."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Hub(Frozen):
    """A data set of the hub."""

    path: Text
    config: TextOrNone
    revision: Text


class TaskSettings(Frozen):
    """A group of conf/task; `Task` checks the rest."""

    name: Name
    text_columns: ListOrText
    label_column: Text
    labels: ListOrText
    score_range: ListOrText
    metric: Text
    also: list[Text]
    splits: dict[Name, Text]  # their names become files
    hidden: list[Text]
    hub: Hub | None
    ood: dict[Name, OtherSettings] | None  # None: no other domain is scored


class OtherSettings(TaskSettings):
    """A set of another domain: a task, and what its labels are in those of the task."""

    label_map: LabelMap
    collapse: Text


def task_of(settings: Any) -> Task:
    """Return a task from its settings.

    Raises:
        BadInput: they are not those of a task.
    """
    try:
        task = TaskSettings.model_validate(settings).model_dump()
    except ValidationError as error:
        raise refusal(error, "task") from error
    return Task(**task | {"ood": task["ood"] or {}})
