"""What a run needs before its first step: models, method, rows, and a teacher that answers."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from ilkd_bench import settings, tasks
from ilkd_bench.checkpoints import load_weights, obtain, require_snapshots, snapshot_paths
from ilkd_bench.data import Split, encode, tokenizer_fingerprint
from ilkd_bench.evaluate import scorer
from ilkd_bench.fit import Fitted, Settings, fit
from ilkd_bench.layers import PROJECTIONS
from ilkd_bench.methods.base import Method
from ilkd_bench.methods.finetune import Finetune
from ilkd_bench.models import Model, checkpoint, seeded
from ilkd_bench.module import Optimisation, Teacher
from ilkd_bench.tasks import Task
from ilkd_bench.teacher import BANKED, LiveTeacher, banked, can_bank
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
    return settings.construct(teacher, drop=NO_ARGUMENTS, labels=task.labels, seed=seed), None


def build_method(config: dict[str, Any], student: Model, teacher: Model) -> Method:
    """Return the method, its projections drawn from the run's seed.

    Raises:
        Incompatible: it cannot work for this pair.
    """
    with seeded(config["seed"]):
        method: Method = settings.construct(
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


def ready_teacher(
    config: dict[str, Any],
    science: dict[str, Any],
    task: Task,
    model: Model,
    order: list[int] | None,
    phases: Sequence[Phase],
    splits: dict[str, Split],
) -> tuple[LiveTeacher, dict[str, Any]]:
    """Bring the teacher to its best epoch, fine-tuning it if no run has done so yet."""
    snapshots = any(phase.teacher_at is not None for phase in phases)
    require_snapshots(config["teacher"]["checkpoint"], snapshots)
    if config["teacher"]["checkpoint"] is not None:
        key = science["teacher"]["checkpoint"]
        return LiveTeacher(model, label_order=order, name=config["teacher"]["name"]), {"key": key}
    cache_dir = Path(config["cache_dir"])
    folder = cache_dir / "teachers" / settings.teacher_key(science)
    recipe = config["teacher"]["recipe"]

    def make(aside: Path, snapshots: bool) -> dict[str, Any]:
        log.info(
            "fine-tuning the teacher %s on %s, once for all runs",
            config["teacher"]["name"],
            task.name,
        )
        fitted = fit(
            model,
            Finetune(model.spec, model.spec),
            {"ce": 1.0},
            None,
            {
                "train": as_teacher(splits.get("teacher", splits["train"])),
                "dev": as_teacher(splits["dev"]),
            },
            phases=[Phase("finetune", recipe["epochs"], frozenset())],
            settings=fit_settings(config, **recipe, patience=None),
            score=scorer(task),
            monitor=task.metric,
            folder=aside,
            title=f"teacher {config['teacher']['name']}",
            snapshots=aside / "snapshots" if snapshots else None,
        )
        model.hf.save_pretrained(aside)
        model.tokenizer.save_pretrained(aside)
        return teacher_facts(fitted, snapshots)

    facts = obtain(folder, make, snapshots=snapshots, cache_dir=cache_dir)
    load_weights(model, folder / "model.safetensors")
    paths = snapshot_paths(folder) if snapshots else []
    live = LiveTeacher(model, snapshots=paths, name=config["teacher"]["name"])
    return live, {"key": folder.name} | {name: facts[name] for name in ("best_epoch", "seconds")}


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


def teacher_facts(fitted: Fitted, snapshots: bool) -> dict[str, Any]:
    """Return what `teacher.json` keeps of a training."""
    (best,) = [row for row in fitted.history if row["epoch"] == fitted.best_epoch]
    return {
        "best_epoch": fitted.best_epoch,
        "dev": {k.removeprefix("dev/"): v for k, v in best.items() if k.startswith("dev/")},
        "seconds": fitted.seconds,
        "snapshots": snapshots,
        "history": fitted.history,
    }


def as_teacher(split: Split) -> Split:
    """Return the split with the teacher's reading in the student's place."""
    return Split(split.labels, split.index, split.teacher, split.teacher)
