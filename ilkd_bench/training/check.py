"""What would end a run before its first step, asked of many runs without training anything."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

import torch

from ilkd_bench.data.batches import Split
from ilkd_bench.data.tasks import TextRows
from ilkd_bench.data.tokens import tokenised
from ilkd_bench.models.model import Model
from ilkd_bench.models.support import check_finite
from ilkd_bench.plumbing.files import digest
from ilkd_bench.plumbing.hardware import precision_here
from ilkd_bench.settings.run import Run
from ilkd_bench.teachers.live import LiveTeacher
from ilkd_bench.training import general
from ilkd_bench.training.inputs import (
    build_student,
    build_teacher,
    check_tokenizers,
    check_tokens,
    matched,
    meet_rows,
    read_texts,
)
from ilkd_bench.training.make_teacher import build_assistant
from ilkd_bench.types import Rows

FIRST = 50
"""Rows of a split that the tokenizers are tried on."""

Made = TypeVar("Made")


@dataclass(frozen=True)
class Glance:
    """What is kept of a task's rows."""

    train: Rows  # all of them
    first: dict[str, TextRows]  # the first rows of every split


class Checks:
    """Asks one run after the other; what several of them share is built and read once."""

    def __init__(self) -> None:
        self._known: dict[str, Any] = {}

    def check(self, run: Run, *, here: bool) -> int:
        """Build models and method, look at the rows, and return the models' parameters.

        Args:
            here: the run takes place on this machine.

        Raises:
            BadInput: something given is wrong.
            Incompatible: the method cannot work for this pair.
        """
        if here:
            precision_here(run.precision, run.trainer.accelerator)
        labels = run.task.labels
        pair = {name: run.identity[name] for name in ("student", "teacher")}
        student = self._once(
            ["student", pair["student"], labels], partial(_sizes, build_student, run)
        )
        teacher = self._once(
            ["teacher", pair["teacher"], labels], partial(_sizes, build_teacher, run)
        )
        for whose, build in (("student", build_student), ("teacher", build_teacher)):
            self._once([whose, pair[whose]], partial(_whole, build, run, f"the {whose}"))
        self._once(["general", pair["student"]], partial(general.check, run))
        method, phases = matched(run, student, teacher)
        seen = [run.identity["task"], run.data, run.limit_train, run.limit_eval]
        glance = self._once(seen, partial(_look, run))
        read = self._once(
            [pair, seen, run.max_length], partial(_read, run, student, teacher.model, glance.first)
        )
        check_tokens(run.method.name, method, read)
        meet_rows(run, method, phases, student.spec, teacher.spec, glance.train)
        for which in method.assistants:
            self._once([pair, labels, which], partial(_sizes, build_assistant, which, run, teacher))
        return student.size + teacher.model.size

    def _once(self, about: Any, make: partial[Made]) -> Made:
        """Return what was made before of the same settings, or make it."""
        key = digest([make.func.__name__, about])
        if key not in self._known:
            self._known[key] = make()
        made: Made = self._known[key]
        return made


def _whole(build: Callable[[Run], Model | LiveTeacher], run: Run, whose: str) -> None:
    """Build a model with its weights, which must be finite and its own, and let it go."""
    made = build(run)
    check_finite(made.model if isinstance(made, LiveTeacher) else made, whose)


def _sizes(build: Callable[..., Made], *arguments: Any) -> Made:
    """Build a model that has no weights and takes no room."""
    with torch.device("meta"):
        return build(*arguments)


def _look(run: Run) -> Glance:
    texts = read_texts(run)
    first = {
        name: TextRows([c[:FIRST] for c in rows.texts], rows.labels[:FIRST], rows.index[:FIRST])
        for name, rows in texts.items()
    }
    return Glance(_rows(texts["train"]), first)


def _read(run: Run, student: Model, teacher: Model, first: dict[str, TextRows]) -> Split:
    """Return the first training rows as both models read them.

    Raises:
        BadInput: one of them cannot read the rows of a split.
    """
    check_tokenizers(first["train"], student, teacher)
    both = {
        name: [tokenised(rows, m.tokenizer, max_length=run.max_length) for m in (student, teacher)]
        for name, rows in first.items()
    }
    rows = _rows(first["train"])
    return Split(rows.labels, rows.index, *both["train"])


def _rows(rows: TextRows) -> Rows:
    return Rows(torch.from_numpy(rows.labels), torch.from_numpy(rows.index))
