"""Teaching assistants: the models that stand between a teacher and a student.

An assistant is distilled once and stored like a teacher, under a name made of all that it depends
on; it then teaches in the teacher's place.
"""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import torch

from ilkd_bench import settings
from ilkd_bench.checkpoints import load_weights, obtain
from ilkd_bench.data import Split
from ilkd_bench.evaluate import measure_teacher, scorer
from ilkd_bench.fit import fit
from ilkd_bench.layermaps import uniform
from ilkd_bench.layers import copy_layers, keep
from ilkd_bench.methods.base import Method
from ilkd_bench.models import Model, relabel
from ilkd_bench.ready import NO_ARGUMENTS, answering, fit_settings, read_splits, teacher_facts
from ilkd_bench.tasks import Task
from ilkd_bench.teacher import LOGITS, LiveTeacher
from ilkd_bench.types import Phase

log = logging.getLogger(__name__)


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
        folder = cache_dir / "teachers" / settings.assistant_key(science, name, number)
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
    student = settings.student_settings(which)
    seed = config["teacher"]["recipe"]["seed"]
    pupil = settings.construct(student, drop=NO_ARGUMENTS, labels=task.labels, seed=seed)
    if student["teacher_layers"] is not None:
        copy_layers(pupil.hf, teacher.model.hf, student["teacher_layers"])
    return pupil, which
