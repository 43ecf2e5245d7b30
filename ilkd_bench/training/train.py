"""One run, from its settings to a record: prepare, fit, evaluate, leave."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

from ilkd_bench.data.batches import Split
from ilkd_bench.data.labels import is_unnamed
from ilkd_bench.methods.base import Method
from ilkd_bench.models.layers import copy_layers
from ilkd_bench.models.model import Model
from ilkd_bench.plumbing import cores
from ilkd_bench.plumbing.files import write_text
from ilkd_bench.plumbing.full_disk import full_disk_told
from ilkd_bench.plumbing.hardware import (
    device_here,
    environment,
    precision_here,
    warn_of_slow_bfloat16,
)
from ilkd_bench.plumbing.shared import kept_until_the_end
from ilkd_bench.records.card import write_card
from ilkd_bench.records.record import Measured
from ilkd_bench.settings.identity import require_unchanged
from ilkd_bench.settings.run import Run
from ilkd_bench.teachers.live import LOGITS, LiveTeacher, Teacher
from ilkd_bench.training import general
from ilkd_bench.training.evaluation import evaluate, measure_teacher, save_student, scorer
from ilkd_bench.training.inputs import (
    answering,
    build_student,
    build_teacher,
    check_tokens,
    fit_settings,
    matched,
    meet_rows,
    read_splits,
)
from ilkd_bench.training.loop import Fitted, fit
from ilkd_bench.training.make_teacher import assistants, fine_tune
from ilkd_bench.training.wandb_logger import tracker
from ilkd_bench.types import Phase, Rows

log = logging.getLogger(__name__)


def train(run: Run, folder: Path) -> Measured:
    """Bring the teacher to the student, distil, evaluate, and leave files in `folder`.

    Args:
        folder: of the run; takes the history, the predictions and the student.

    Returns:
        The measured part of the record.

    Raises:
        BadInput: something given is wrong, found before the first student step.
        Incompatible: the method cannot work for this pair.
    """
    with full_disk_told(folder, MORE_ROOM), kept_until_the_end(), cores.as_before():
        parts = prepare(run)
        with tracker(run, folder) as logger:
            fitted = _fit(run, parts, folder, logger)
            scores = _evaluate(run, parts, folder)
            measured = leave(run, parts, fitted, scores, folder)
            if logger:
                logger.finish(measured.model_dump(), fitted.history)
    return measured


MORE_ROOM = "remove what is not needed there, or give a larger disk (results_dir=DIR)"
"""What to do where the disk of the results is full."""


@dataclass
class Parts:
    """What a run is made of once every refusal has had its chance.

    Attributes:
        teacher: who answers for it on the training rows.
        facts: what the record says of the teacher.
        parameters: of teacher and student.
        seconds: by what they were spent on.
    """

    student: Model
    method: Method
    phases: Sequence[Phase]
    splits: dict[str, Split]
    teacher: Teacher
    facts: dict[str, Any]
    parameters: dict[str, int]
    seconds: Seconds


@dataclass
class Seconds:
    """How long the parts of a run took."""

    spent: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def on(self, part: str) -> Iterator[None]:
        """Add the time that is spent inside."""
        started = time.perf_counter()
        yield
        self.spent[part] = self.spent.get(part, 0.0) + time.perf_counter() - started


def prepare(run: Run) -> Parts:
    """Build models and method, read the rows, and bring the teacher to its best epoch.

    Raises:
        BadInput, Incompatible: see `train`.
    """
    seconds = Seconds()
    with seconds.on("setup"):
        precision_here(run.precision, run.trainer.accelerator)  # BadInput now
        warn_of_slow_bfloat16(run.precision, run.trainer.accelerator)
        require_unchanged(run)
        student, teacher = build_student(run), build_teacher(run)
        parameters = {"teacher": teacher.model.size, "student": student.size}
        cores.share(sum(parameters.values()))
        method, phases = matched(run, student, teacher)
        splits = read_splits(run, student, teacher.model)
        check_tokens(run.method.name, method, splits["train"])
        rows = Rows(splits["train"].labels, splits["train"].index)
        meet_rows(run, method, phases, student.spec, teacher.spec, rows)
    stage = None
    if run.student.general is not None:
        with seconds.on("general"):
            stage = general.start(student, run)
    with seconds.on("teacher"):
        facts = fine_tune(run, teacher, phases, splits)
        facts |= _measure(run, teacher, splits)
        answers = answering(run, teacher, splits, "train", phases)
    with seconds.on("setup"):
        layers = run.student.teacher_layers
        if layers is not None:
            copy_layers(student.hf, teacher.model.hf, layers)
    if method.assistants:
        with seconds.on("teacher"):
            teacher, facts["assistants"] = assistants(run, method, teacher)
            splits = read_splits(run, student, teacher.model)
            answers = answering(run, teacher, splits, "train", phases)
    if any(phase.needs for phase in phases):
        facts["outputs"] = answers.source
    else:
        facts["outputs"] = None
    if stage is not None:
        facts["general"] = stage
    if run.compile:
        student.hf.compile(dynamic=True)  # lengths differ from batch to batch
    return Parts(student, method, phases, splits, answers, facts, parameters, seconds)


def _measure(run: Run, teacher: LiveTeacher, splits: dict[str, Split]) -> dict[str, Any]:
    """Return what the record says of the teacher on dev, and of the order of its outputs."""
    labels, given = run.task.labels, None
    id2label: Any = teacher.model.hf.config.id2label
    if run.teacher.checkpoint is not None:
        given = teacher.label_order or range(teacher.spec.classes)
    scores = measure_teacher(
        answering(run, teacher, splits, "dev", [Phase("measure", 1, LOGITS)]),
        run.task,
        splits["dev"],
        allow_weak=run.teacher.allow_weak,
        given=given,
        device=device_here(run.trainer.accelerator),
        batch_size=run.trainer.eval_batch_size,
    )
    if given is None or labels is None or not is_unnamed(id2label):
        return {"dev": scores}
    log.warning(
        "the outputs of %s have no names (LABEL_0, ...): they are taken to be %s, in this order, "
        "and no other order is clearly better on dev",
        run.teacher.checkpoint,
        ", ".join(labels),
    )
    return {"dev": scores, "label_order": "assumed"}


def _fit(run: Run, parts: Parts, folder: Path, logger: Any) -> Fitted:
    return fit(
        parts.student,
        parts.method,
        run.method.weights,
        parts.teacher,
        parts.splits,
        phases=parts.phases,
        settings=fit_settings(run),
        score=scorer(run.task),
        monitor=run.task.metric,
        folder=folder,
        title=f"{run.method.name} seed {run.seed}",
        logger=logger,
    )


def _evaluate(run: Run, parts: Parts, folder: Path) -> dict[str, dict[str, float]]:
    with parts.seconds.on("evaluate"):
        return evaluate(
            parts.student,
            run.task,
            parts.splits,
            folder=folder,
            device=device_here(run.trainer.accelerator),
            batch_size=run.trainer.eval_batch_size,
        )


def leave(
    run: Run, parts: Parts, fitted: Fitted, scores: dict[str, dict[str, float]], folder: Path
) -> Measured:
    """Write the history and the student, and return the measured part of the record."""
    write_text(folder / "history.csv", pd.DataFrame(fitted.history).to_csv(index=False))
    save_student(folder, parts.student, parts.method)
    sizes = {name: len(split) for name, split in parts.splits.items()}
    facts: dict[str, Any] = {
        "limited": run.limited,
        "scores": scores,
        "monitor": f"dev/{run.task.metric}",
        "best_epoch": fitted.best_epoch,
        "teacher": parts.facts,
        "data": {"fingerprint": run.data} | sizes,
        "parameters": parts.parameters,
        "seconds": parts.seconds.spent | {"train": fitted.seconds},
        "examples_per_second": fitted.examples / fitted.seconds,
    } | environment(run.precision, run.trainer.accelerator)
    measured = Measured.model_validate(facts)
    write_card(folder, run.identity, measured.model_dump())
    return measured
