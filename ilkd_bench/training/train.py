"""One run, from a resolved configuration to a record. Callable without Hydra."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pandas as pd

from ilkd_bench.data.tasks import Task
from ilkd_bench.models.build import seeded
from ilkd_bench.models.layers import check_copy, copy_layers
from ilkd_bench.models.model import Model
from ilkd_bench.plumbing.files import write_text
from ilkd_bench.plumbing.hardware import device_here, environment, precision_here
from ilkd_bench.records.card import write_card
from ilkd_bench.records.cells import place
from ilkd_bench.settings import groups
from ilkd_bench.teachers.live import LOGITS
from ilkd_bench.training.evaluation import evaluate, measure_teacher, save_student, scorer
from ilkd_bench.training.inputs import (
    NO_ARGUMENTS,
    answering,
    build_method,
    build_teacher,
    check_bank,
    check_compile,
    check_tokens,
    fit_settings,
    read_splits,
)
from ilkd_bench.training.loop import check_terms, fit
from ilkd_bench.training.make_teacher import ready_teacher, taught
from ilkd_bench.training.wandb_logger import tracker
from ilkd_bench.types import Phase


def run(config: dict[str, Any], science: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Fine-tune or load the teacher, distil the student, evaluate, and leave files in `folder`.

    Args:
        config: resolved and checked (`settings.check`).
        science: its identity (`settings.science`).
        folder: of the run; takes the history, the predictions and the student.

    Returns:
        The measured part of the record.

    Raises:
        BadInput: something given is wrong, found before the first student step.
        Incompatible: the method cannot work for this pair.
    """
    task = Task(**config["task"])
    precision_here(config["precision"], config["trainer"]["accelerator"])  # BadInput now
    student: Model = groups.construct(
        config["student"], drop=NO_ARGUMENTS, labels=task.labels, seed=config["seed"]
    )
    started = time.perf_counter()
    teacher_model, order = build_teacher(config, task)
    method = build_method(config, student, teacher_model)
    phases = method.phases(config["epochs"])
    check_bank(config, phases)
    check_compile(config, phases)
    if config["student"]["teacher_layers"] is not None:
        check_copy(student.hf, teacher_model.hf, config["student"]["teacher_layers"])
    splits = read_splits(config, task, student, teacher_model)
    check_tokens(config["method"]["name"], method, splits["train"])
    live, facts = ready_teacher(config, science, task, teacher_model, order, phases, splits)
    if config["student"]["teacher_layers"] is not None:
        copy_layers(student.hf, live.model.hf, config["student"]["teacher_layers"])
    where: dict[str, Any] = {
        "device": device_here(config["trainer"]["accelerator"]),
        "batch_size": config["trainer"]["eval_batch_size"],
    }
    measured = answering(config, live, splits, "dev", [Phase("measure", 1, LOGITS)], **where)
    teacher_dev = measure_teacher(
        measured, task, splits["dev"], allow_weak=config["teacher"]["allow_weak"], **where
    )
    teacher = answering(config, live, splits, "train", phases, **where)
    with seeded(2**31 + config["seed"]):  # not the numbers that its projections were drawn from
        method.prepare(splits["train"].labels, splits["train"].index)
    weights = config["method"]["weights"]
    check_terms(student, method, weights, teacher, splits["train"], phases, where["device"])
    if method.assistants:
        live, facts["assistants"] = taught(config, science, task, method, live, **where)
        splits = read_splits(config, task, student, live.model)
        teacher = answering(config, live, splits, "train", phases, **where)
    if config["compile"]:
        student.hf.compile(dynamic=True)  # lengths differ from batch to batch
    teacher_seconds = time.perf_counter() - started

    with tracker(config, folder, place(science)) as logger:
        fitted = fit(
            student,
            method,
            weights,
            teacher,
            splits,
            phases=phases,
            settings=fit_settings(config, config["seed"]),
            score=scorer(task),
            monitor=task.metric,
            folder=folder,
            title=f"{config['method']['name']} seed {config['seed']}",
            logger=logger,
        )
        started = time.perf_counter()
        scores = evaluate(student, task, splits, folder=folder, **where)
        evaluate_seconds = time.perf_counter() - started
        write_text(folder / "history.csv", pd.DataFrame(fitted.history).to_csv(index=False))
        save_student(folder, student, method)
        record = {
            "limited": config["limit_train"] is not None or config["limit_eval"] is not None,
            "scores": scores,
            "monitor": f"dev/{task.metric}",
            "best_epoch": fitted.best_epoch,
            "teacher": facts
            | {
                "dev": teacher_dev,
                "outputs": teacher.source if any(phase.needs for phase in phases) else None,
            },
            "data": {"fingerprint": science["data"]} | {k: len(v) for k, v in splits.items()},
            "parameters": {"teacher": _parameters(teacher_model), "student": _parameters(student)},
            "seconds": {
                "train": fitted.seconds,
                "teacher": teacher_seconds,
                "evaluate": evaluate_seconds,
            },
            "examples_per_second": fitted.examples / fitted.seconds,
        } | environment(config["precision"], config["trainer"]["accelerator"])
        write_card(folder, science, record)
        if logger:
            logger.finish(record, fitted.history)
    return record


def _parameters(model: Model) -> int:
    return sum(p.numel() for p in model.parameters())
