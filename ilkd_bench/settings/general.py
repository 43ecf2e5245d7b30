"""The general stage of a student: how it is distilled on plain text, before any task."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

from pydantic import AfterValidator, field_validator
from pydantic_core import PydanticCustomError

from ilkd_bench.data.corpus import Corpus
from ilkd_bench.data.tasks import Task
from ilkd_bench.settings.checks import (
    Clip,
    Count,
    FolderOrNone,
    FromZero,
    Length,
    Limit,
    Name,
    Positive,
    Ratio,
    Seed,
    Text,
    TextOrNone,
    some_weight,
)
from ilkd_bench.settings.groups import defaults, names
from ilkd_bench.settings.task import Frozen, task_of
from ilkd_bench.types import BadInput


class HubTexts(Frozen):
    """A data set of the hub, read as a stream."""

    path: Text
    config: TextOrNone
    revision: Text
    split: Text


class CorpusSettings(Frozen):
    """What is read; of several sources all."""

    tasks: list[Name]  # their training rows, without labels, from data_dir
    folder: FolderOrNone  # with *.txt and *.jsonl
    hub: HubTexts | None
    columns: list[Text]  # of jsonl files and of the hub: one text, or the two of a pair

    @field_validator("columns")
    @classmethod
    def _one_or_two(cls, columns: list[str]) -> list[str]:
        if not 1 <= len(columns) <= 2:
            what = "a list of one or two columns, e.g. [text]"
            raise PydanticCustomError("allowed", "allowed is {what}", {"what": what})
        return columns

    def corpus(self, data_dir: str | None) -> Corpus:
        """Return what yields the texts.

        Raises:
            BadInput: there is nothing to read, or a task is unknown or has no training rows.
        """
        if not self.tasks and self.folder is None and self.hub is None:
            raise BadInput(
                "student.general.corpus is empty: give student.general.corpus.folder=DIR with "
                "*.txt or *.jsonl, or student.general.corpus.tasks=[NAME,NAME]"
            )
        return Corpus(
            tasks=[_task(name) for name in self.tasks],
            data_dir=None if data_dir is None else Path(data_dir),
            folder=None if self.folder is None else Path(self.folder),
            hub=None if self.hub is None else self.hub.model_dump(),
            columns=self.columns,
        )


def _task(name: str) -> Task:
    """Return a task of which all splits are read, and no other domain."""
    known = names("task")
    if name not in known:
        raise BadInput(
            f"student.general.corpus.tasks: no task is called {name}: allowed are "
            f"{', '.join(known)}"
        )
    settings = defaults("task", name)
    task = task_of(settings | {"ood": None})
    if "train" not in task.splits:
        raise BadInput(f"student.general.corpus.tasks: task {name} has no training rows")
    return replace(task, hidden=())


class GeneralSettings(Frozen):
    """A student's `general`: who teaches it, by which method, on what, and how long."""

    teacher: Name  # of conf/teacher, as it is before any task
    method: Name  # of conf/method; one that needs no labels (`Method.general`)
    weights: Annotated[dict[str, FromZero], AfterValidator(some_weight)]  # by loss term
    corpus: CorpusSettings
    seed: Seed
    lr: Positive
    batch_size: Count
    epochs: Count  # over the corpus
    limit_steps: Limit  # null: as many as the epochs have
    every: Count  # steps between two looks at the texts that are held out, and checkpoints
    held_out: Count  # texts
    max_length: Length  # tokens
    warmup_ratio: Ratio
    weight_decay: FromZero
    gradient_clip: Clip

    def group(self, kind: str) -> dict[str, Any]:
        """Return the settings of the YAML of its teacher or its method.

        Raises:
            BadInput: there is none of that name.
        """
        name = getattr(self, kind)
        known = names(kind)
        if name not in known:
            raise BadInput(f"student.general.{kind}={name}: allowed are {', '.join(known)}")
        return defaults(kind, name)
