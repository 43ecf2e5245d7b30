"""What is made once for all runs: the fine-tuned teacher and the assistants below it."""

from __future__ import annotations

import copy
import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch

from ilkd_bench.data.batches import Split
from ilkd_bench.functional.layermaps import uniform
from ilkd_bench.methods.base import Method
from ilkd_bench.methods.finetune import Finetune
from ilkd_bench.models.build import relabel
from ilkd_bench.models.layers import copy_layers, keep
from ilkd_bench.models.model import Model
from ilkd_bench.plumbing.cores import all_cores
from ilkd_bench.plumbing.hardware import auto_before, device_here
from ilkd_bench.settings.identity import assistant_key, former, teacher_key, teacher_precision
from ilkd_bench.settings.run import Run
from ilkd_bench.teachers.finetuned import load_weights, obtain, require_snapshots, snapshot_paths
from ilkd_bench.teachers.live import LOGITS, LiveTeacher
from ilkd_bench.training.evaluation import measure_teacher, scorer
from ilkd_bench.training.inputs import answering, read_splits, recipe_settings
from ilkd_bench.training.loop import Fitted, fit
from ilkd_bench.types import Phase

log = logging.getLogger(__name__)


def fine_tune(
    run: Run, teacher: LiveTeacher, phases: Sequence[Phase], splits: dict[str, Split]
) -> dict[str, Any]:
    """Bring the teacher to its best epoch, which takes a training where no run has done it yet.

    Returns:
        What the record says of it: its key, and how it was trained.
    """
    snapshots = any(phase.teacher_at is not None for phase in phases)
    require_snapshots(run.teacher.checkpoint, snapshots)
    if run.teacher.checkpoint is not None:
        return {"key": run.identity["teacher"]["checkpoint"]}
    folder = _folder(run, teacher_key)

    def make(aside: Path, snapshots: bool) -> dict[str, Any]:
        log.info("fine-tuning the teacher %s on %s, once for all runs", teacher.name, run.task.name)
        with all_cores(teacher.model.size):
            fitted = fit(
                teacher.model.requires_grad_(True),
                Finetune(teacher.spec, teacher.spec),
                {"ce": 1.0},
                None,
                {
                    "train": as_teacher(splits.get("teacher", splits["train"])),
                    "dev": as_teacher(splits["dev"]),
                },
                phases=[Phase("finetune", run.teacher.recipe.epochs, frozenset())],
                settings=recipe_settings(run),
                score=scorer(run.task),
                monitor=run.task.metric,
                folder=aside,
                title=f"teacher {teacher.name}",
                snapshots=aside / "snapshots" if snapshots else None,
            )
        return _leave(aside, teacher.model, fitted, snapshots)

    facts = obtain(folder, make, snapshots=snapshots)
    load_weights(teacher.model, folder / "model.safetensors")
    teacher.settle(snapshot_paths(folder) if snapshots else [])
    return {"key": folder.name} | {name: facts[name] for name in ("best_epoch", "seconds")}


def _folder(run: Run, key: Callable[[dict[str, Any]], str]) -> Path:
    """Return where a teacher is or will be; one that schema 1 named stays where it is.

    Of one made with `auto` nothing says which precision that was: it is taken to be what `auto`
    was on this machine.
    """
    root = run.cache / "teachers"
    precision = teacher_precision(run.precision)
    precisions = {precision}
    if precision == auto_before(run.trainer.accelerator):
        precisions.add("auto")
    old_ones = former(run.but(precision=precision))
    names = [key(old) for old in old_ones if old["precision"] in precisions]
    folders = [root / name for name in (key(run.identity), *names)]
    return next((folder for folder in folders if folder.is_dir()), folders[0])


def _leave(folder: Path, model: Model, fitted: Fitted, snapshots: bool) -> dict[str, Any]:
    """Write a model at its best epoch, and return what `teacher.json` keeps of its training."""
    model.hf.save_pretrained(folder)
    model.tokenizer.save_pretrained(folder)
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


def assistants(
    run: Run, method: Method, teacher: LiveTeacher
) -> tuple[LiveTeacher, list[dict[str, Any]]]:
    """Return the last of the method's assistants, and what is known of each.

    Each is distilled by the one before with the method's own loss, which has no parameters.

    Args:
        teacher: at the head of the chain, from whose layers the others may start.

    Raises:
        BadInput: an assistant is no better than a constant answer (`teacher.allow_weak`).
    """
    phases = method.phases(run.teacher.recipe.epochs)
    above, facts_of_all = teacher, []
    for number, which in enumerate(method.assistants, 1):
        assistant = build_assistant(which, run, teacher)
        key = partial(assistant_key, name=assistant.name, number=number)
        folder = _folder(run, key)
        splits = read_splits(run, assistant.model, above.model)
        make = partial(_distil, run, method, assistant, above, splits, phases)
        facts = obtain(folder, make, snapshots=False)
        load_weights(assistant.model, folder / "model.safetensors")
        assistant.settle([])
        above.to(torch.device("cpu"))
        assistant.to(torch.device("cpu"))
        above = assistant
        _refuse_weak(run, assistant)
        facts_of_all.append(
            {"name": assistant.name, "key": folder.name}
            | {fact: facts[fact] for fact in ("best_epoch", "dev", "seconds")}
        )
    return above, facts_of_all


def _distil(
    run: Run,
    method: Method,
    assistant: LiveTeacher,
    above: LiveTeacher,
    splits: dict[str, Split],
    phases: Sequence[Phase],
    aside: Path,
    snapshots: bool,
) -> dict[str, Any]:
    log.info("distilling the assistant %s on %s, once for all runs", assistant.name, run.task.name)
    answers = answering(run, above, splits, "train", phases)
    with all_cores(above.model.size + assistant.model.size):
        fitted = fit(
            assistant.model.requires_grad_(True),
            method,
            run.method.weights,
            answers,
            splits,
            phases=phases,
            settings=recipe_settings(run),
            score=scorer(run.task),
            monitor=run.task.metric,
            folder=aside,
            title=f"assistant {assistant.name}",
        )
    return _leave(aside, assistant.model, fitted, snapshots)


def _refuse_weak(run: Run, assistant: LiveTeacher) -> None:
    splits = read_splits(run, assistant.model, assistant.model)
    answers = answering(run, assistant, splits, "dev", [Phase("measure", 1, LOGITS)])
    measure_teacher(
        answers,
        run.task,
        splits["dev"],
        allow_weak=run.teacher.allow_weak,
        whose=f"the assistant {assistant.name}",
        device=device_here(run.trainer.accelerator),
        batch_size=run.trainer.eval_batch_size,
    )


def build_assistant(which: int | str, run: Run, teacher: LiveTeacher) -> LiveTeacher:
    """Return an assistant before its training: some layers of the teacher, or a student."""
    labels = run.task.labels
    if isinstance(which, int):
        model = copy.deepcopy(teacher.model)
        keep(model.hf, uniform(teacher.spec.layers, which)[1:])
        if teacher.label_order is not None and labels is not None:
            relabel(model.hf, teacher.label_order, labels)
        return LiveTeacher(model, name=f"{teacher.name}-{which}")
    student = run.other_student(which)
    model = student.build_model(run.cache, labels=labels, seed=run.teacher.recipe.seed)
    if student.teacher_layers is not None:
        copy_layers(model.hf, teacher.model.hf, student.teacher_layers)
    return LiveTeacher(model, name=which)
