"""A sweep of 3 methods and 5 seeds, the teacher's bank included, against the same runs live."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from benchmarks.job import PAIR, checkpoint
from ilkd_bench.jobs import plan
from ilkd_bench.training import train

METHODS = ("rail_l", "pkd", "alp")
SEEDS = range(5)


def measure(data_dir: Path, folder: Path, *, rows: int, epochs: int) -> list[dict[str, Any]]:
    """Do each run with the bank and live, one after the other; the first builds the bank.

    Returns:
        A dict per run: method, seed, bank (on or off), seconds of the whole run and of
        its training steps.
    """
    shared = [
        *PAIR,
        "task=mrpc",
        f"data_dir={data_dir}",
        f"limit_train={rows}",
        "limit_eval=64",
        f"epochs={epochs}",
        checkpoint(folder / "teacher", ["not_equivalent", "equivalent"]),
        "teacher.allow_weak=true",
        "trainer.accelerator=cpu",
        f"cache_dir={folder / 'cache'}",
    ]
    found = []
    for seed in SEEDS:
        for turn, method in enumerate(METHODS):
            for bank in ("on", "off") if (seed + turn) % 2 == 0 else ("off", "on"):
                words = [f"method={method}", f"seed={seed}", f"bank={bank}"]
                key = {"method": method, "seed": seed, "bank": bank}
                found.append(key | _run(folder, [*shared, *words]))
    return found


def _run(folder: Path, words: list[str]) -> dict[str, float]:
    (job,) = plan.plan([*words, f"results_dir={folder / 'results'}"])
    job.folder.mkdir(parents=True, exist_ok=True)
    started = time.perf_counter()
    measured = train.train(job.run, job.folder)
    return {"seconds": time.perf_counter() - started, "train": measured.seconds["train"]}
