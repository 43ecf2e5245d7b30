"""What stored students show beside their teachers: `python -m ilkd_bench.analyse [RUN_ID ...]`.

For every done run whose folder has a `student/`, the folder gets `analysis/` with

    similarity.csv  per pair of layers: cosine, linear CKA, distance; first token and mean pooling
    pca.csv         the intermediate vectors on their first two principal components
    attention.csv   how much student layers look at teacher layers, if the method attends to layers
    about.json      what was analysed; written last, so a folder that has it is whole

The figures need nothing else of a model. The teacher answers from its bank. A record is data: what
it says of code and of places is not followed.
"""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from safetensors.torch import load_file

from ilkd_bench.data import tasks
from ilkd_bench.data.batches import Split, sorted_batches, to_device
from ilkd_bench.data.tasks import Task
from ilkd_bench.jobs import plan
from ilkd_bench.methods.base import Method
from ilkd_bench.models.build import checkpoint
from ilkd_bench.models.model import Model
from ilkd_bench.plumbing import files, own_files
from ilkd_bench.plumbing.command import reason, run_line
from ilkd_bench.plumbing.hardware import device_here
from ilkd_bench.plumbing.logs import hush, terminal_lines
from ilkd_bench.plumbing.shared import Damaged
from ilkd_bench.plumbing.terminal import track
from ilkd_bench.plumbing.text import plain
from ilkd_bench.records.record import Done, Record
from ilkd_bench.settings import groups
from ilkd_bench.settings.identity import model_fingerprint, reference
from ilkd_bench.settings.run import Run
from ilkd_bench.students import load
from ilkd_bench.students.similarity import POOLINGS, Pooled, pca, similarity
from ilkd_bench.teachers import finetuned
from ilkd_bench.teachers.banked import BANKED
from ilkd_bench.teachers.live import LiveTeacher, Teacher
from ilkd_bench.training import inputs
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


@dataclass(frozen=True)
class Places:
    """Where things lie on this machine; of the record nothing of that is taken.

    Attributes:
        data_dir: of the text; None: the hub, or the demo grammar.
        cache: of teachers and banks.
        teachers: folders or hub ids of teachers that runs were given.
    """

    data_dir: Path | None
    cache: Path
    teachers: Sequence[str] = ()


def analyse(
    record: Done, folder: Path, places: Places, rows: int, seed: int
) -> dict[str, pd.DataFrame]:
    """Load student and teacher of a run, read its rows again, and return its tables by name.

    Nothing is trained, and no code is run but that of this machine's configuration.

    Args:
        folder: of the run, with its stored student.
        rows, seed: how many rows of dev to compare the models on, and which.

    Raises:
        BadInput: something that the run was made of is gone, or is another now.
    """
    run = run_of(record, places)
    student = load.load(folder, run.task.labels)
    teacher = _teacher(record, run, places)
    splits = inputs.read_splits(run, student, teacher.model)
    device = device_here(run.trainer.accelerator)
    batch_size = run.trainer.eval_batch_size
    student.eval().to(device)

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
    if groups.resolve(run.method.constructor).attends:
        method = inputs.build_method(run, student, teacher)
        if own_files.has_file(folder, "method.safetensors"):
            method.load_state_dict(load_file(folder / "method.safetensors"))
        method.eval().to(device)
        answers = answering("train", method.needs)
        tables["attention"] = attention(
            method, student, answers, splits["train"], batch_size, device
        )
    return tables


def run_of(record: Done, places: Places) -> Run:
    """Return the settings that an analysis needs: the run's own numbers, this machine's places.

    Raises:
        BadInput: one of them is not allowed, its method is none of this machine's, or its rows
            are others today.
    """
    (usual,) = plan.plan([])
    config = record.config
    target = groups.defaults("method", record.method).get("_target_")
    if target is None:
        raise BadInput(
            f"there is no method named {record.method} here; {groups.PLUGINS} names the folder of "
            "plugins"
        )
    settings = usual.run.model_dump(by_alias=True)
    settings |= {key: config[key] for key in usual.run.plain if key in config}
    settings |= {
        "method": config["method"] | {"_target_": target},
        "task": config["task"] | {"ood": {}},  # no other domain is looked at
        "data_dir": None if places.data_dir is None else str(places.data_dir),
        "cache_dir": str(places.cache),
    }
    run = Run.of(settings)
    _require_known(run.task, places.data_dir)
    data = tasks.fingerprints(run.task, places.data_dir, run.cache)
    if data != {key: value for key, value in config["data"].items() if not key.startswith("ood/")}:
        raise BadInput("its rows are others today, or lie elsewhere: give --data-dir as it was")
    return run.but(data=data)


def _require_known(task: Task, data_dir: Path | None) -> None:
    """Refuse rows from places that only a record names.

    Raises:
        BadInput: that is so.
    """
    odd = [name for name in task.splits.values() if groups.NAME.fullmatch(name) is None]
    if odd:
        raise BadInput(f"its task has a split in {odd[0]!r}, which is no name of a file")
    known = groups.defaults("task", task.name).get("hub")
    if data_dir is None and task.hub is not None and task.hub != known:
        raise BadInput(
            f"its rows come from the hub's {task.hub.get('path')!r}, which conf/task does not name "
            f"for {task.name}: give --data-dir"
        )


def _teacher(record: Done, run: Run, places: Places) -> LiveTeacher:
    """Return the teacher of a run, as it is stored in the cache or where the user says.

    Raises:
        BadInput: it is not there, or is damaged.
    """
    given = record.config["teacher"].get("checkpoint")
    if given is None:
        path = str(_stored_teacher(record, places.cache))
    else:
        found = (typed for typed in places.teachers if _fingerprint(typed, places) == given)
        path = next(found, "")
        if not path:
            raise BadInput(
                "its teacher was given (teacher.checkpoint), and none of those that --teacher "
                "names here is the same"
            )
    model, order = checkpoint(path, labels=run.task.labels)
    return LiveTeacher(model, label_order=order, name=record.teacher_name)


def _fingerprint(typed: str, places: Places) -> str:
    return model_fingerprint(*reference(typed), places.cache)


def _stored_teacher(record: Done, cache: Path) -> Path:
    """Return the folder of a fine-tuned teacher.

    Raises:
        BadInput: there is none, or its weights are not those that were stored.
    """
    key = str(record.teacher.get("key"))
    folder = cache / "teachers" / key
    try:
        stored = finetuned.stored_facts(folder) if groups.NAME.fullmatch(key) else None
    except Damaged as error:
        raise BadInput(
            f"its teacher in {folder} is damaged: the next run makes it again"
        ) from error
    if stored is None:
        raise BadInput(
            f"its teacher {plain(key)} is not in {cache / 'teachers'}: give --cache-dir, or type "
            f"{run_line(record.words, 'force=true', 'keep_student=all')}"
        )
    return folder


# ------------------------------------------------------------------------------------- the command


def analyse_all(
    records: Sequence[Record],
    results_dir: Path,
    *,
    rows: int,
    seed: int,
    data_dir: Path | None,
    cache_dir: Path | None,
    force: bool,
    teachers: Sequence[str] = (),
) -> list[str]:
    """Analyse some runs, and return the word that each is counted under.

    Args:
        records: with their `folder`.
        rows, seed: how many rows of dev to compare the models on, and which.
        data_dir, cache_dir, teachers: see `Places`; None: the hub or the grammar, and `.cache`.
        force: also what is analysed already.
    """
    places = Places(data_dir, cache_dir or Path(".cache"), teachers)

    def outcome(record: Record) -> str:
        folder = results_dir / record.folder
        if not isinstance(record, Done):
            log.info("%s: left out, it is %s", record.folder, record.status)
            return "left out"
        if not own_files.has_file(folder, "student/model.safetensors"):
            again = run_line(record.words, "keep_student=all", "force=true")
            log.info(
                "%s: left out, its student was not kept. To have it, type %s",
                *(record.folder, again),
            )
            return "left out"
        try:
            own_files.require_own(folder)
            wanted = about(folder, rows, seed)
            if not force and is_analysed(folder, wanted):
                log.info("%s: analysed before", record.folder)
                return "analysed before"
            write(folder, analyse(record, folder, places, rows, seed), wanted)
        except (BadInput, OSError) as error:
            log.error("%s: failed, %s", record.folder, reason(error))
            return "failed"
        except Exception as error:  # what a record says of its method may fail in any way
            log.error("%s: failed, %s: %s", record.folder, type(error).__name__, error)
            return "failed"
        log.info("%s: analysed", record.folder)
        return "analysed"

    hush()
    with terminal_lines():
        return [outcome(record) for record in records]


def about(folder: Path, rows: int, seed: int) -> dict[str, Any]:
    """Return what identifies an analysis: which student, and on which rows."""
    with own_files.open_file(folder, "student/model.safetensors") as file:
        student = hashlib.file_digest(file, "sha256").hexdigest()
    return {"format": FORMAT, "rows": rows, "seed": seed, "student": student}


def is_analysed(folder: Path, wanted: dict[str, Any]) -> bool:
    """Tell whether a run's folder has this very analysis, whole."""
    try:
        analysed: Any = json.loads(own_files.read_file(folder, "analysis/about.json"))
    except (FileNotFoundError, ValueError, RecursionError):
        return False
    return bool(analysed == wanted)


def write(folder: Path, tables: dict[str, pd.DataFrame], wanted: dict[str, Any]) -> None:
    """Write the tables of a run, and last what they are about."""
    (folder / "analysis" / "about.json").unlink(missing_ok=True)
    for name, table in tables.items():
        text = table.to_csv(index=False, float_format="%.9g", lineterminator="\n")
        files.write_text(folder / "analysis" / f"{name}.csv", text)
    files.write_json(folder / "analysis" / "about.json", wanted)
