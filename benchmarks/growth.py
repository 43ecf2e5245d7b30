"""How time and memory grow with the number of rows and with the number of runs."""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks.job import PAIR, checkpoint, config, model, split
from ilkd_bench.data.tasks import Task
from ilkd_bench.jobs import plan
from ilkd_bench.jobs.job import execute
from ilkd_bench.teachers.banked import banked
from ilkd_bench.teachers.live import LiveTeacher
from ilkd_bench.types import Phase

FULL = Phase("full", 1, frozenset({"logits", "cls", "mean"}))


def measure(
    data_dir: Path, folder: Path, *, rows: list[int], bank_rows: list[int], runs: list[int]
) -> list[dict[str, Any]]:
    """Do each size in a process of its own, so that its peak memory is its own.

    Returns:
        A dict per size: what (`rows`: the bank and one epoch of rail_l; `bank`: building a
        bank; `runs`: shrunken demo runs), size, seconds, peak resident memory in MB, and memory of
        the work alone: what the peak grew by after models and rows were loaded.
    """
    found = []
    for what, sizes, work in (
        ("bank", bank_rows, _bank),
        ("rows", rows, _rows),
        ("runs", runs, _runs),
    ):
        for size in sizes:
            result = _alone(work, data_dir, folder / f"{what}-{size}", size)
            found.append({"what": what, "size": size} | result)
    return found


def _alone(work: Callable[..., Any], *arguments: Any) -> dict[str, float]:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        return pool.apply(work, arguments)


def _memory() -> float:
    """Return the peak so far in MB; `ru_maxrss` would begin with that of the parent process."""
    status = Path("/proc/self/status").read_text()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1e3


def _measured(before: float, started: float) -> dict[str, float]:
    took, peak = time.perf_counter() - started, _memory()
    return {"seconds": took, "peak_mb": peak, "work_mb": peak - before}


def _bank(data_dir: Path, folder: Path, size: int) -> dict[str, float]:
    about = config(*PAIR, "task=sst2", f"data_dir={data_dir}")
    task = Task(**about["task"])
    teacher = model(about["teacher"], task.labels)
    part = split(task, size, teacher, data_dir, folder)
    warm = split(task, 64, teacher, data_dir, folder)
    build = {
        "about": {"teacher": "minilm_l6", "task": "sst2", "split": "train"},
        "dtype": "float16",
        "batch_size": 64,
        "device": torch.device("cpu"),
        "cache_dir": folder,
    }
    live = LiveTeacher(teacher)
    banked(live, warm, [FULL], **build)  # what the first batches allocate is no growth
    before, started = _memory(), time.perf_counter()
    banked(live, part, [FULL], **build)
    return _measured(before, started)


def _rows(data_dir: Path, folder: Path, size: int) -> dict[str, float]:
    shared = [
        *PAIR,
        "task=sst2",
        "task.ood=null",
        f"data_dir={data_dir}",
        f"limit_train={size}",
        "limit_eval=64",
        "method=rail_l",
        "epochs=1",
        checkpoint(folder / "teacher", ["negative", "positive"]),
        "teacher.allow_weak=true",
        "trainer.accelerator=cpu",
        f"cache_dir={folder / 'cache'}",
        f"results_dir={folder / 'results'}",
    ]
    return _do(["-m", *shared, "seed=0"])


def _runs(data_dir: Path, folder: Path, size: int) -> dict[str, float]:
    words = [
        "-m",
        "method=rail_l",
        "seed=" + ",".join(map(str, range(size))),
        "limit_train=64",
        "limit_eval=64",
        "epochs=1",
        "teacher.recipe.epochs=1",
        "teacher.allow_weak=true",
        "trainer.accelerator=cpu",
        f"cache_dir={folder / 'cache'}",
        f"results_dir={folder / 'results'}",
    ]
    return _do(words)


def _do(words: list[str]) -> dict[str, float]:
    started = time.perf_counter()
    for job in plan.plan(words):
        record = execute(job)
        if record is None or record.status != "done":
            raise RuntimeError(f"{job.folder}: {record and record.reason}")
    return _measured(0.0, started)
