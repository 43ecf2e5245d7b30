"""What stored students show beside their teachers: `python -m ilkd_bench.analyse [RUN_ID ...]`.

For every done run whose folder has a `student/`, the folder gets `analysis/` with

    similarity.csv  per pair of layers: cosine, linear CKA, distance; first token and mean pooling
    pca.csv         the intermediate vectors on their first two principal components
    attention.csv   how much student layers look at teacher layers, if the method attends to layers
    about.json      what was analysed; written last, so a folder that has it is whole

The figures need nothing else of a model. The teacher answers from its bank.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file

from ilkd_bench.data.batches import Split, sorted_batches, to_device
from ilkd_bench.jobs import plan
from ilkd_bench.jobs.job import Job
from ilkd_bench.methods.base import Method
from ilkd_bench.models.build import checkpoint
from ilkd_bench.models.model import Model
from ilkd_bench.plumbing import files
from ilkd_bench.plumbing.command import reason, run_line, setting
from ilkd_bench.plumbing.hardware import device_here
from ilkd_bench.plumbing.logs import hush, terminal_lines
from ilkd_bench.plumbing.terminal import track
from ilkd_bench.records.record import Done, Record
from ilkd_bench.settings.identity import run_id
from ilkd_bench.students.similarity import POOLINGS, Pooled, pca, similarity
from ilkd_bench.teachers.banked import BANKED
from ilkd_bench.teachers.live import Teacher
from ilkd_bench.training import inputs
from ilkd_bench.training.make_teacher import fine_tune
from ilkd_bench.types import BadInput, Outputs, Phase

log = logging.getLogger("ilkd_bench")

FORMAT = 1
"""Version of the files' layout: an analysis of another one is made anew."""


def pooled(
    student: Model, teacher: Teacher, split: Split, rows: np.ndarray, batch_size: int, device: Any
) -> tuple[Pooled, Pooled]:
    """Return the vectors of student and teacher for some rows, in that order."""
    pairs: list[tuple[Outputs, Outputs]] = []
    with torch.inference_mode():
        for start in range(0, len(rows), batch_size):
            batch = to_device(split[rows[start : start + batch_size]], device)
            pairs.append(
                (student.outputs(batch["student"], BANKED), teacher.outputs(batch, BANKED))
            )
    s, t = (
        {p: torch.cat([getattr(o, p).cpu() for o in side]).double().numpy() for p in POOLINGS}
        for side in zip(*pairs, strict=True)
    )
    return s, t


def attention(
    method: Method, student: Model, teacher: Teacher, split: Split, batch_size: int, device: Any
) -> pd.DataFrame:
    """Return the mean weights over a whole split, one row per pair of layers that attend."""
    total: Any = 0
    with torch.inference_mode():
        for rows in track(sorted_batches(split.lengths, batch_size), "attention over layers"):
            batch = to_device(split[rows], device)
            s = student.outputs(batch["student"], method.needs)
            weights = method.layer_attention(s, teacher.outputs(batch, method.needs))
            total = total + weights.double().sum(dim=0).cpu()
    mean = (total / len(split)).numpy()  # [L_s+1, L_t+1]
    pairs = [(int(i), int(j)) for i, j in np.argwhere(~np.isnan(mean))]
    return pd.DataFrame(
        [
            {"student_layer": i, "teacher_layer": j, "rows": len(split), "weight": mean[i, j]}
            for i, j in pairs
        ]
    )


def sample(size: int, rows: int, seed: int) -> np.ndarray:
    """Draw `rows` of `size` rows, all where there are fewer; in their order."""
    drawn = np.random.default_rng(seed).permutation(size)[:rows]
    return np.sort(drawn)


def analyse(job: Job, folder: Path, rows: int, seed: int) -> dict[str, pd.DataFrame]:
    """Build student, teacher, method and data of a run again, and return its tables by name.

    Args:
        folder: of the run, with its stored student.
        rows, seed: how many rows of dev to compare the models on, and which.

    Raises:
        BadInput: something that the run was made of is gone, or is another now.
    """
    run = job.run
    student, _ = checkpoint(str(folder / "student"), labels=run.task.labels)
    teacher = inputs.build_teacher(run)
    method = inputs.build_method(run, student, teacher)
    if (folder / "method.safetensors").is_file():
        method.load_state_dict(load_file(folder / "method.safetensors"))
    splits = inputs.read_splits(run, student, teacher.model)
    plain = [Phase("analyse", 1, BANKED)]  # the teacher at its best epoch
    fine_tune(run, teacher, plain, splits)
    device = device_here(run.trainer.accelerator)
    batch_size = run.trainer.eval_batch_size
    student.eval().to(device)
    method.eval().to(device)

    def answering(split: str, needs: frozenset[str]) -> Teacher:
        answers = inputs.answering(run, teacher, splits, split, [Phase("analyse", 1, needs)])
        answers.to(device)
        return answers

    dev = splits["dev"]
    chosen = sample(len(dev), rows, seed)
    s, t = pooled(student, answering("dev", BANKED), dev, chosen, batch_size, device)
    tables = {
        "similarity": similarity(s, t),
        "pca": pca(s, t, dev.index.numpy()[chosen], dev.labels.numpy()[chosen]),
    }
    if method.attends:
        answers = answering("train", method.needs)
        tables["attention"] = attention(
            method, student, answers, splits["train"], batch_size, device
        )
    return tables


# ------------------------------------------------------------------------------------- the command


def analyse_all(
    records: Sequence[Record],
    results_dir: Path,
    *,
    rows: int,
    seed: int,
    data_dir: str | None,
    cache_dir: str | None,
    force: bool,
) -> list[str]:
    """Analyse some runs, and return the word that each is counted under.

    Args:
        records: with their `folder`.
        rows, seed: how many rows of dev to compare the models on, and which.
        data_dir, cache_dir: where data and caches lie now; None: where the run found them.
        force: also what is analysed already.
    """

    def outcome(record: Record) -> str:
        folder = results_dir / record.folder
        if not isinstance(record, Done):
            log.info("%s: left out, it is %s", record.folder, record.status)
            return "left out"
        if not (folder / "student" / "model.safetensors").is_file():
            again = run_line(record.words, "keep_student=all", "force=true")
            log.info(
                "%s: left out, its student was not kept. To have it, type %s",
                *(record.folder, again),
            )
            return "left out"
        wanted = about(folder, rows, seed)
        if not force and is_analysed(folder, wanted):
            log.info("%s: analysed before", record.folder)
            return "analysed before"
        try:
            job = job_of(record, data_dir, cache_dir)
            write(folder, analyse(job, folder, rows, seed), wanted)
        except (BadInput, OSError) as error:
            log.error("%s: failed, %s", record.folder, reason(error))
            return "failed"
        log.info("%s: analysed", record.folder)
        return "analysed"

    hush()
    with terminal_lines():
        return [outcome(record) for record in records]


def job_of(record: Record, data_dir: str | None, cache_dir: str | None) -> Job:
    """Return the run of a record as its command line gives it today.

    Args:
        data_dir, cache_dir: where data and caches lie now; None: where the run found them.

    Raises:
        BadInput: what the command line gives is another run by now.
    """
    folders = {"data_dir": data_dir, "cache_dir": cache_dir}
    changes = {key: value for key, value in folders.items() if value is not None}
    changes["precision"] = record.config["precision"]  # that of the run, wherever this is
    words = [word for word in record.words if word.partition("=")[0] not in changes]
    (job,) = plan.plan([*words, *(f"{key}={setting(value)}" for key, value in changes.items())])
    if job.id != run_id(record.config):
        raise BadInput(
            "its command line gives another run today: data, models or settings have changed. "
            "Give --data-dir and --cache-dir as they were, or run it again"
        )
    return job


def about(folder: Path, rows: int, seed: int) -> dict[str, Any]:
    """Return what identifies an analysis: which student, and on which rows."""
    with (folder / "student" / "model.safetensors").open("rb") as file:
        student = hashlib.file_digest(file, "sha256").hexdigest()
    return {"format": FORMAT, "rows": rows, "seed": seed, "student": student}


def is_analysed(folder: Path, wanted: dict[str, Any]) -> bool:
    """Tell whether a run's folder has this very analysis, whole."""
    path = folder / "analysis" / "about.json"
    try:
        analysed: Any = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, ValueError):
        return False
    return bool(analysed == wanted)


def write(folder: Path, tables: dict[str, pd.DataFrame], wanted: dict[str, Any]) -> None:
    """Write the tables of a run, and last what they are about."""
    (folder / "analysis" / "about.json").unlink(missing_ok=True)
    for name, table in tables.items():
        text = table.to_csv(index=False, float_format="%.9g", lineterminator="\n")
        files.write_text(folder / "analysis" / f"{name}.csv", text)
    files.write_json(folder / "analysis" / "about.json", wanted)
