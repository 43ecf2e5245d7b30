"""What a run needs before its first step: models, method, rows, and who answers as teacher."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

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
from ilkd_bench.settings import groups
from ilkd_bench.teachers.banked import BANKED, banked, can_bank
from ilkd_bench.teachers.live import LiveTeacher, Teacher
from ilkd_bench.training.loop import Settings
from ilkd_bench.training.module import Optimisation
from ilkd_bench.types import BadInput, Incompatible, Phase

log = logging.getLogger(__name__)

NO_ARGUMENTS = ("recommended", "teacher_layers", "recipe", "checkpoint", "allow_weak")
"""What the settings of a teacher or student say besides the arguments of its `_target_`."""


def fit_settings(config: dict[str, Any], seed: int, **changes: Any) -> Settings:
    """Return the training settings of a configuration, or of a teacher's recipe on top of it."""
    c = config | changes
    return Settings(
        seed=seed,
        batch_size=c["batch_size"],
        patience=c["patience"],
        gradient_clip=c["gradient_clip"],
        precision=c["precision"],
        optimisation=Optimisation(c["lr"], c["weight_decay"], c["warmup_ratio"]),
        accelerator=c["trainer"]["accelerator"],
        workers=c["trainer"]["workers"],
        eval_batch_size=c["trainer"]["eval_batch_size"],
    )


def build_teacher(config: dict[str, Any], task: Task) -> tuple[Model, list[int] | None]:
    """Return the teacher before its fine-tuning, or the given checkpoint and its label order."""
    teacher = config["teacher"]
    if teacher["checkpoint"] is not None:
        return checkpoint(teacher["checkpoint"], labels=task.labels)
    seed = teacher["recipe"]["seed"]
    return groups.construct(teacher, drop=NO_ARGUMENTS, labels=task.labels, seed=seed), None


def build_method(config: dict[str, Any], student: Model, teacher: Model) -> Method:
    """Return the method, its projections drawn from the run's seed.

    Raises:
        Incompatible: it cannot work for this pair.
    """
    with seeded(config["seed"]):
        method: Method = groups.construct(
            config["method"], drop=("weights",), student=student.spec, teacher=teacher.spec
        )
    return method


def read_splits(
    config: dict[str, Any], task: Task, student: Model, teacher: Model
) -> dict[str, Split]:
    """Read and tokenise train, dev and every set that is scored at the end.

    Raises:
        BadInput: see `tasks.read`; or `max_length` is beyond a model's positions.
    """
    for whose, model in (("student", student), ("teacher", teacher)):
        if config["max_length"] > model.max_tokens:
            raise BadInput(
                f"max_length={config['max_length']} is beyond the {whose}'s {model.max_tokens} "
                f"positions: allowed is max_length={model.max_tokens} or less"
            )
    data_dir = None if config["data_dir"] is None else Path(config["data_dir"])
    same = tokenizer_fingerprint(student.tokenizer) == tokenizer_fingerprint(teacher.tokenizer)
    how = {"max_length": config["max_length"], "cache_dir": Path(config["cache_dir"])}

    def split(part: Task, name: str) -> Split:
        trains = name in ("teacher", "train")
        limit = config["limit_train"] if trains else config["limit_eval"]
        rows = tasks.read(part, name, data_dir=data_dir, limit=limit)
        own = encode(rows, student.tokenizer, **how)
        other = own if same else encode(rows, teacher.tokenizer, **how)
        return Split(torch.from_numpy(rows.labels), torch.from_numpy(rows.index), own, other)

    splits = {
        name: split(task, name)
        for name in tasks.available(task, data_dir)
        if name not in task.hidden
    }
    for name in task.ood:
        part = tasks.ood_task(task, name)
        splits[f"ood/{name}"] = split(part, tasks.available(part, data_dir)[0])
    return {n: s for n, s in splits.items() if not tasks.is_hidden(task, s.labels.numpy())}


def check_bank(config: dict[str, Any], phases: Sequence[Phase]) -> None:
    """Refuse `bank=on` for a method that needs what no bank holds.

    Raises:
        BadInput: that is so.
    """
    if config["bank"] == "on" and not can_bank(phases):
        needs = frozenset().union(*(phase.needs for phase in phases))
        raise BadInput(
            f"bank=on: method={config['method']['name']} needs {', '.join(sorted(needs))} of the "
            f"teacher; banks hold {', '.join(sorted(BANKED))}, of its snapshots only logits. "
            "Type bank=auto"
        )


def check_compile(config: dict[str, Any], phases: Sequence[Phase]) -> None:
    """Refuse `compile=true` for a method that looks inside the layers.

    Raises:
        BadInput: that is so.
    """
    inside = frozenset().union(*(phase.needs for phase in phases)) & PROJECTIONS.keys()
    if config["compile"] and inside:
        raise BadInput(
            f"compile=true: method={config['method']['name']} needs {', '.join(sorted(inside))} "
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
    config: dict[str, Any],
    live: LiveTeacher,
    splits: dict[str, Split],
    name: str,
    phases: Sequence[Phase],
    *,
    device: torch.device,
    batch_size: int,
) -> Teacher:
    """Return who answers for the teacher on a split: its bank where that holds what is needed."""
    if config["bank"] == "off" or not can_bank(phases):
        return live
    return banked(
        live,
        splits[name],
        phases,
        about={"teacher": live.name, "task": config["task"]["name"], "split": name},
        dtype=config["bank_dtype"],
        batch_size=batch_size,
        device=device,
        cache_dir=Path(config["cache_dir"]),
    )
