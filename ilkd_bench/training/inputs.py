"""What a run needs before its first step: models, method, rows, and who answers as teacher."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from ilkd_bench.data import tasks
from ilkd_bench.data.batches import Split
from ilkd_bench.data.tasks import Task
from ilkd_bench.data.tokens import encode, tokenizer_fingerprint
from ilkd_bench.methods.base import Method
from ilkd_bench.models.build import checkpoint, seeded
from ilkd_bench.models.layers import PROJECTIONS
from ilkd_bench.models.model import Model
from ilkd_bench.plumbing.hardware import device_here
from ilkd_bench.settings.run import Run
from ilkd_bench.teachers.banked import BANKED, banked, can_bank
from ilkd_bench.teachers.live import LiveTeacher, Teacher
from ilkd_bench.training.loop import FitSettings
from ilkd_bench.training.module import Optimisation
from ilkd_bench.types import BadInput, Incompatible, Phase

log = logging.getLogger(__name__)


def fit_settings(run: Run) -> FitSettings:
    """Return how a student is trained."""
    return FitSettings(
        seed=run.seed,
        batch_size=run.batch_size,
        patience=run.patience,
        gradient_clip=run.gradient_clip,
        precision=run.precision,
        optimisation=Optimisation(run.lr, run.weight_decay, run.warmup_ratio),
        accelerator=run.trainer.accelerator,
        workers=run.trainer.workers,
        eval_batch_size=run.trainer.eval_batch_size,
    )


def recipe_settings(run: Run) -> FitSettings:
    """Return how a teacher, or an assistant, is trained: for all epochs of the teacher's recipe."""
    recipe = run.teacher.recipe
    return replace(
        fit_settings(run),
        seed=recipe.seed,
        batch_size=recipe.batch_size,
        patience=None,
        optimisation=Optimisation(
            recipe.lr, recipe.weight_decay, recipe.warmup_ratio, "teacher.recipe.lr"
        ),
    )


def build_student(run: Run) -> Model:
    """Return the student before its training."""
    student: Model = run.student.build(labels=run.task.labels, seed=run.seed)
    return student


def build_teacher(run: Run) -> LiveTeacher:
    """Return the teacher before its fine-tuning, or the given checkpoint."""
    if run.teacher.checkpoint is not None:
        model, order = checkpoint(run.teacher.checkpoint, labels=run.task.labels)
        return LiveTeacher(model, label_order=order, name=run.teacher.name)
    model = run.teacher.build(labels=run.task.labels, seed=run.teacher.recipe.seed)
    return LiveTeacher(model, name=run.teacher.name)


def build_method(run: Run, student: Model, teacher: LiveTeacher) -> Method:
    """Return the method, its projections drawn from the run's seed.

    Raises:
        Incompatible: it cannot work for this pair.
    """
    with seeded(run.seed):
        method: Method = run.method.build(student=student.spec, teacher=teacher.spec)
    return method


def read_splits(run: Run, student: Model, teacher: Model) -> dict[str, Split]:
    """Read and tokenise train, dev and every set that is scored at the end.

    Raises:
        BadInput: see `tasks.read`; or `max_length` is beyond a model's positions.
    """
    for whose, model in (("student", student), ("teacher", teacher)):
        if run.max_length > model.max_tokens:
            raise BadInput(
                f"max_length={run.max_length} is beyond the {whose}'s {model.max_tokens} "
                f"positions: allowed is max_length={model.max_tokens} or less"
            )
    task = run.task
    data_dir = None if run.data_dir is None else Path(run.data_dir)
    same = tokenizer_fingerprint(student.tokenizer) == tokenizer_fingerprint(teacher.tokenizer)

    def split(part: Task, name: str) -> Split:
        trains = name in ("teacher", "train")
        limit = run.limit_train if trains else run.limit_eval
        rows = tasks.read(part, name, data_dir=data_dir, limit=limit)
        s = encode(rows, student.tokenizer, max_length=run.max_length, cache_dir=run.cache)
        t = s
        if not same:
            t = encode(rows, teacher.tokenizer, max_length=run.max_length, cache_dir=run.cache)
        return Split(torch.from_numpy(rows.labels), torch.from_numpy(rows.index), s, t)

    splits = {
        name: split(task, name)
        for name in tasks.available(task, data_dir)
        if name not in task.hidden
    }
    for name in task.ood:
        part = tasks.ood_task(task, name)
        splits[f"ood/{name}"] = split(part, tasks.available(part, data_dir)[0])
    return {n: s for n, s in splits.items() if not tasks.is_hidden(task, s.labels.numpy())}


def check_bank(run: Run, phases: Sequence[Phase]) -> None:
    """Refuse `bank=on` for a method that needs what no bank holds.

    Raises:
        BadInput: that is so.
    """
    if run.bank == "on" and not can_bank(phases):
        needs = frozenset().union(*(phase.needs for phase in phases))
        raise BadInput(
            f"bank=on: method={run.method.name} needs {', '.join(sorted(needs))} of the "
            f"teacher; banks hold {', '.join(sorted(BANKED))}, of its snapshots only logits. "
            "Type bank=auto"
        )


def check_compile(run: Run, phases: Sequence[Phase]) -> None:
    """Refuse `compile=true` for a method that looks inside the layers.

    Raises:
        BadInput: that is so.
    """
    inside = frozenset().union(*(phase.needs for phase in phases)) & PROJECTIONS.keys()
    if run.compile and inside:
        raise BadInput(
            f"compile=true: method={run.method.name} needs {', '.join(sorted(inside))} "
            "of the student, which compiled code does not show. Type compile=false"
        )


def check_tokens(name: str, method: Method, split: Split) -> None:
    """Refuse a method that compares tokens where the models read other ones.

    What counts is what the tokenizers make of these rows, not how they are described.

    Args:
        name: of the method, for the message.

    Raises:
        Incompatible: the tokens of a row differ.
    """
    s, t = split.student, split.teacher
    same = np.array_equal(s.offsets, t.offsets) and np.array_equal(s.ids, t.ids)
    if method.same_tokens and not same:
        raise Incompatible(
            f"{name} compares the models token by token, and the tokenizers of student and teacher "
            "make different tokens of the same text"
        )


def answering(
    run: Run, teacher: LiveTeacher, splits: dict[str, Split], name: str, phases: Sequence[Phase]
) -> Teacher:
    """Return who answers for the teacher on a split: its bank where that holds what is needed."""
    if run.bank == "off" or not can_bank(phases):
        return teacher
    return banked(
        teacher,
        splits[name],
        phases,
        about={"teacher": teacher.name, "task": run.task.name, "split": name},
        dtype=run.bank_dtype,
        batch_size=run.trainer.eval_batch_size,
        device=device_here(run.trainer.accelerator),
        cache_dir=run.cache,
    )
