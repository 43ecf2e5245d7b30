"""What a run needs before its first step: models, method, rows, and who answers as teacher."""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from ilkd_bench.data import tasks
from ilkd_bench.data.batches import Split
from ilkd_bench.data.tasks import Task, TextRows
from ilkd_bench.data.tokens import encode, tokenizer_fingerprint
from ilkd_bench.methods.base import Method
from ilkd_bench.models.build import checkpoint, seeded
from ilkd_bench.models.layers import PROJECTIONS, check_copy
from ilkd_bench.models.model import Model
from ilkd_bench.models.support import check_needs
from ilkd_bench.models.tokenizer_check import check_texts
from ilkd_bench.plumbing.hardware import device_here
from ilkd_bench.settings.identity import teacher_precision
from ilkd_bench.settings.run import Run
from ilkd_bench.teachers.bank import NoRoom
from ilkd_bench.teachers.banked import KEPT, banked, can_bank, has_tokens
from ilkd_bench.teachers.live import LiveTeacher, Teacher
from ilkd_bench.training.loop import FitSettings, check_terms
from ilkd_bench.training.module import Optimisation
from ilkd_bench.types import BadInput, Incompatible, Phase, Rows, Spec

log = logging.getLogger(__name__)

SHARE = 0.5
"""The share of the free disk that a bank of tokens may take unasked."""

SETTING = re.compile(r"[a-z_]+=")
"""How an error about a setting of a group begins."""


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
        precision=teacher_precision(run.precision),
        optimisation=Optimisation(
            recipe.lr, recipe.weight_decay, recipe.warmup_ratio, "teacher.recipe.lr"
        ),
    )


def build_student(run: Run) -> Model:
    """Return the student before its training.

    Raises:
        BadInput: it cannot be built.
    """
    with _about("student"):
        student: Model = run.student.build_model(run.cache, labels=run.task.labels, seed=run.seed)
    return student


def build_teacher(run: Run) -> LiveTeacher:
    """Return the teacher before its fine-tuning, or the given checkpoint.

    Raises:
        BadInput: it cannot be built.
    """
    with _about("teacher"):
        if run.teacher.checkpoint is not None:
            model, order = checkpoint(run.teacher.checkpoint, labels=run.task.labels)
            return LiveTeacher(model, label_order=order, name=run.teacher.name)
        model = run.teacher.build_model(
            run.cache, labels=run.task.labels, seed=run.teacher.recipe.seed
        )
    return LiveTeacher(model, name=run.teacher.name)


@contextmanager
def _about(whose: str) -> Iterator[None]:
    """Say in an error whose it is; what begins with a setting gets the group's name before it."""
    try:
        yield
    except BadInput as error:
        text = str(error)
        if text.startswith(f"{whose}."):
            raise
        between = "." if SETTING.match(text) else ": "
        raise BadInput(f"{whose}{between}{text}") from error


def build_method(run: Run, student: Model, teacher: LiveTeacher) -> Method:
    """Return the method, its projections drawn from the run's seed.

    Raises:
        Incompatible: it cannot work for this pair.
    """
    with seeded(run.seed):
        method: Method = run.method.build(student=student.spec, teacher=teacher.spec)
    return method


def matched(run: Run, student: Model, teacher: LiveTeacher) -> tuple[Method, list[Phase]]:
    """Return the method for a pair of models, and its phases.

    Raises:
        BadInput: a setting is not possible for the method or for the models.
        Incompatible: the method cannot work for this pair.
    """
    for whose, model in (("student", student), ("teacher", teacher.model)):
        if run.max_length > model.max_tokens:
            raise BadInput(
                f"max_length={run.max_length} is beyond the {whose}'s {model.max_tokens} "
                f"positions: allowed is max_length={model.max_tokens} or less"
            )
    if run.student.teacher_layers is not None:
        check_copy(student.hf, teacher.model.hf, run.student.teacher_layers)
    method = build_method(run, student, teacher)
    phases = method.phases(run.epochs)
    for whose, model in (("the student", student), ("the teacher", teacher.model)):
        if inside := _inside(phases):
            with seeded(run.seed):  # nothing is drawn that a training would miss
                check_needs(model, inside, whose)
    check_bank(run, phases)
    check_compile(run, phases)
    return method, phases


def _inside(phases: Sequence[Phase]) -> frozenset[str]:
    """Return what phases need that not every architecture shows."""
    return frozenset().union(*(phase.needs for phase in phases)) & {"attention", *PROJECTIONS}


def meet_rows(
    run: Run, method: Method, phases: Sequence[Phase], student: Spec, teacher: Spec, rows: Rows
) -> None:
    """Show all training rows to the method, and ask it once for every phase's loss.

    Raises:
        BadInput: it cannot learn from these rows, or its weights are not those of its terms.
    """
    with seeded(2**31 + run.seed):  # not the numbers that its projections were drawn from
        method.prepare(rows.labels, rows.index)
    two = Rows(rows.labels[:2], rows.index[:2])
    check_terms(method, run.method.weights, phases, student, teacher, two)


def read_texts(run: Run) -> dict[str, TextRows]:
    """Read train, dev and every set that is scored at the end.

    Raises:
        BadInput: see `tasks.read`.
    """
    task = run.task
    data_dir = None if run.data_dir is None else Path(run.data_dir)

    def read(part: Task, name: str) -> TextRows:
        limit = run.limit_train if name in ("teacher", "train") else run.limit_eval
        return tasks.read(part, name, data_dir=data_dir, limit=limit)

    texts = {n: read(task, n) for n in tasks.available(task, data_dir) if n not in task.hidden}
    for name in task.ood:
        part = tasks.ood_task(task, name)
        texts[f"ood/{name}"] = read(part, tasks.available(part, data_dir)[0])
    return {name: rows for name, rows in texts.items() if not tasks.is_hidden(task, rows.labels)}


def read_splits(run: Run, student: Model, teacher: Model) -> dict[str, Split]:
    """Read and tokenise train, dev and every set that is scored at the end.

    Raises:
        BadInput: see `tasks.read`; or the tokenizers do not know the words.
    """
    same = tokenizer_fingerprint(student.tokenizer) == tokenizer_fingerprint(teacher.tokenizer)

    def split(rows: TextRows) -> Split:
        s = encode(rows, student.tokenizer, max_length=run.max_length, cache_dir=run.cache)
        t = s
        if not same:
            t = encode(rows, teacher.tokenizer, max_length=run.max_length, cache_dir=run.cache)
        return Split(torch.from_numpy(rows.labels), torch.from_numpy(rows.index), s, t)

    texts = read_texts(run)
    check_tokenizers(texts["train"], student, teacher)
    return {name: split(rows) for name, rows in texts.items()}


def check_tokenizers(rows: TextRows, student: Model, teacher: Model) -> None:
    """Refuse tokenizers that lose the words of the first rows.

    Raises:
        BadInput: that is so.
    """
    check_texts(rows.texts, student.tokenizer, "the student")
    check_texts(rows.texts, teacher.tokenizer, "the teacher")


def check_bank(run: Run, phases: Sequence[Phase]) -> None:
    """Refuse `bank=on` for a method that needs what no bank holds.

    Raises:
        BadInput: that is so.
    """
    if run.bank == "on" and not can_bank(phases):
        needs = frozenset().union(*(phase.needs for phase in phases))
        raise BadInput(
            f"bank=on: method={run.method.name} needs {', '.join(sorted(needs))} of the "
            f"teacher; banks hold {', '.join(sorted(KEPT))}, of its snapshots only logits. "
            "Type bank=auto"
        )


def check_compile(run: Run, phases: Sequence[Phase]) -> None:
    """Refuse `compile=true` for a method that looks inside the layers.

    Raises:
        BadInput: that is so.
    """
    inside = _inside(phases) & PROJECTIONS.keys()
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
    """Return who answers for the teacher on a split: its bank where that holds what is needed.

    With `bank=auto` a bank of tokens is made only where it takes at most half of the free disk.

    Raises:
        BadInput: see `banked`.
    """
    if run.bank == "off" or not can_bank(phases):
        return teacher
    try:
        return banked(
            teacher,
            splits[name],
            phases,
            about={"teacher": teacher.name, "task": run.task.name, "split": name},
            dtype=run.bank_dtype,
            batch_size=run.trainer.eval_batch_size,
            device=device_here(run.trainer.accelerator),
            cache_dir=run.cache,
            share=SHARE if run.bank == "auto" else 1,
        )
    except NoRoom as reason:
        if run.bank == "on" or not has_tokens(phases):
            raise
        log.warning("the teacher is run at every step: %s", reason)
        return teacher
