"""What is made once for all runs: the fine-tuned teacher and the assistants below it."""

from __future__ import annotations

import copy
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from ilkd_bench.data.batches import Split
from ilkd_bench.data.tasks import Task
from ilkd_bench.functional.layermaps import uniform
from ilkd_bench.methods.base import Method
from ilkd_bench.methods.finetune import Finetune
from ilkd_bench.models.build import relabel
from ilkd_bench.models.layers import copy_layers, keep
from ilkd_bench.models.model import Model
from ilkd_bench.settings import groups, identity
from ilkd_bench.teachers.finetuned import load_weights, obtain, require_snapshots, snapshot_paths
from ilkd_bench.teachers.live import LOGITS, LiveTeacher
from ilkd_bench.training.evaluation import measure_teacher, scorer
from ilkd_bench.training.inputs import NO_ARGUMENTS, answering, fit_settings, read_splits
from ilkd_bench.training.loop import Fitted, fit
from ilkd_bench.types import Phase

log = logging.getLogger(__name__)


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
    folder = cache_dir / "teachers" / identity.teacher_key(science)
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


def taught(
    config: dict[str, Any],
    science: dict[str, Any],
    task: Task,
    method: Method,
    first: LiveTeacher,
    *,
    device: torch.device,
    batch_size: int,
) -> tuple[LiveTeacher, list[dict[str, Any]]]:
    """Return the last of the method's assistants, and what is known of each.

    Each is distilled by the one before with the method's own loss, which has no parameters.

    Args:
        first: the teacher at the head of the chain, from whose layers the others may start.
        device, batch_size: where and how a teacher answers.

    Raises:
        BadInput: an assistant is no better than a constant answer (`teacher.allow_weak`).
    """
    cache_dir, recipe = Path(config["cache_dir"]), config["teacher"]["recipe"]
    where: dict[str, Any] = {"device": device, "batch_size": batch_size}
    phases = method.phases(recipe["epochs"])
    teacher, found = first, []
    for number, which in enumerate(method.assistants, 1):
        pupil, name = _build(which, config, task, first)
        folder = cache_dir / "teachers" / identity.assistant_key(science, name, number)
        splits = read_splits(config, task, pupil, teacher.model)

        def make(
            aside: Path,
            snapshots: bool,
            *,
            pupil: Model = pupil,
            above: LiveTeacher = teacher,
            splits: dict[str, Split] = splits,
            name: str = name,
        ) -> dict[str, Any]:
            log.info("distilling the assistant %s on %s, once for all runs", name, task.name)
            fitted = fit(
                pupil,
                method,
                config["method"]["weights"],
                answering(config, above, splits, "train", phases, **where),
                splits,
                phases=phases,
                settings=fit_settings(config, **recipe, patience=None),
                score=scorer(task),
                monitor=task.metric,
                folder=aside,
                title=f"assistant {name}",
            )
            pupil.hf.save_pretrained(aside)
            pupil.tokenizer.save_pretrained(aside)
            return teacher_facts(fitted, snapshots)

        facts = obtain(folder, make, snapshots=False, cache_dir=cache_dir)
        load_weights(pupil, folder / "model.safetensors")
        teacher.to(torch.device("cpu"))
        teacher = LiveTeacher(pupil.cpu(), name=name)
        _refuse_weak(config, task, teacher, **where)
        found.append(
            {"name": name, "key": folder.name}
            | {fact: facts[fact] for fact in ("best_epoch", "dev", "seconds")}
        )
    return teacher, found


def _refuse_weak(config: dict[str, Any], task: Task, one: LiveTeacher, **where: Any) -> None:
    splits = read_splits(config, task, one.model, one.model)
    answers = answering(config, one, splits, "dev", [Phase("measure", 1, LOGITS)], **where)
    how = {"allow_weak": config["teacher"]["allow_weak"], "whose": f"the assistant {one.name}"}
    measure_teacher(answers, task, splits["dev"], **how, **where)


def _build(
    which: int | str, config: dict[str, Any], task: Task, teacher: LiveTeacher
) -> tuple[Model, str]:
    """Return an assistant before its training, and its name."""
    if isinstance(which, int):
        pupil = copy.deepcopy(teacher.model).requires_grad_(True)
        keep(pupil.hf, uniform(teacher.spec.layers, which)[1:])
        if teacher.label_order is not None and task.labels is not None:
            relabel(pupil.hf, teacher.label_order, task.labels)
        return pupil, f"{config['teacher']['name']}-{which}"
    student = groups.student_settings(which)
    seed = config["teacher"]["recipe"]["seed"]
    pupil = groups.construct(student, drop=NO_ARGUMENTS, labels=task.labels, seed=seed)
    if student["teacher_layers"] is not None:
        copy_layers(pupil.hf, teacher.model.hf, student["teacher_layers"])
    return pupil, which
