"""Time and memory of the commands that read a results folder of many made-up records."""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ilkd_bench.records.folders import run_folder
from ilkd_bench.settings import groups
from ilkd_bench.settings.identity import run_id
from ilkd_bench.settings.schema import SCHEMA

HERE = Path(__file__).parent.parent
TASKS = ("cola", "mnli", "mrpc", "qnli", "qqp", "rte", "sst2", "stsb")
STUDENTS = ("bert_3", "bert_4", "bert_6", "distilbert")
RATES = (1e-5, 2e-5, 3e-5, 5e-5)
BATCHES = (8, 16, 32)
MEASURED = """
import resource, runpy, sys
sys.argv = ["ilkd-bench", *sys.argv[1:]]
try:
    runpy.run_module("ilkd_bench", run_name="__main__")
finally:
    used = resource.getrusage(resource.RUSAGE_SELF)
    print("USED", used.ru_maxrss, used.ru_utime + used.ru_stime, file=sys.stderr)
"""


def settings(task: str, student: str, method: str) -> dict[str, Any]:
    """Return the settings of a made-up run, as full as those of a real one."""
    essential = {
        group: {k: v for k, v in groups.defaults(group, name).items() if k not in left_out}
        for group, name, left_out in (
            ("teacher", "bert_base", ("_target_", "allow_weak", "defaults")),
            ("student", student, ("_target_", "recommended", "defaults")),
            ("method", method, ("_target_", "defaults")),
            ("task", task, ("defaults",)),
        )
    }
    essential["task"] = {**essential["task"], "ood": {}}
    return essential | {
        "data": {split: f"nyu-mll/glue:{task}@bcdcba79d07bc864" for split in ("train", "dev")},
        "schema": SCHEMA,
        "epochs": 4,
        "max_length": 128,
        "patience": 10,
        "warmup_ratio": 0.1,
        "weight_decay": 0.01,
        "gradient_clip": 1.0,
        "precision": "32-true",
        "limit_train": None,
        "limit_eval": None,
    }


def fill(folder: Path, number: int) -> None:
    """Write so many records: every task, student and method in a grid of seeds and settings."""
    draw = random.Random(0)
    methods = groups.names("method")
    cells = [(t, s, m) for t in TASKS for s in STUDENTS for m in methods]
    made = 0
    for seed in range(number):
        for task, student, method in cells:
            lr, batch = RATES[seed % len(RATES)], BATCHES[seed // len(RATES) % len(BATCHES)]
            config = settings(task, student, method)
            config |= {"seed": seed // 12, "lr": lr, "batch_size": batch}
            _write(folder, config, draw)
            made += 1
            if made == number:
                return


def _write(folder: Path, config: dict[str, Any], draw: random.Random) -> None:
    identity, metric = run_id(config), config["task"]["metric"]
    task, student, method = (config[key]["name"] for key in ("task", "student", "method"))
    record = {
        "schema": SCHEMA,
        "id": identity,
        "status": "done",
        "reason": None,
        "argv": [
            f"task={task}",
            f"student={student}",
            f"method={method}",
            *(f"{key}={config[key]}" for key in ("seed", "lr", "batch_size")),
        ],
        "config": config,
        "limited": False,
        "scores": {"dev": {metric: draw.uniform(0.5, 0.9), "n": 872}},
        "monitor": f"dev/{metric}",
        "best_epoch": draw.randint(1, 4),
        "teacher": {
            "key": f"bert_base-{task}-0123456789",
            "best_epoch": 3,
            "dev": {metric: 0.92, "n": 872},
            "seconds": 812.5,
            "outputs": "bank, float16",
        },
        "data": {"train": 67349, "dev": 872, "fingerprint": config["data"]},
        "parameters": {"teacher": 109483778, "student": 66955010},
        "seconds": {
            part: draw.uniform(1, 900) for part in ("setup", "teacher", "train", "evaluate")
        },
        "examples_per_second": draw.uniform(100, 900),
        "device": "cuda: NVIDIA A100, 8 threads",
        "precision": "32-true",
        "versions": {"python": "3.11.7", "torch": "2.13.0", "transformers": "5.24.0"},
        "git": {"sha": "0123456789abcdef0123456789abcdef01234567", "dirty": False},
    }
    run = run_folder(folder, config, identity)
    run.mkdir(parents=True, exist_ok=True)
    (run / "record.json").write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


def measure(folder: Path, verb: str) -> dict[str, Any]:
    """Run a verb in a process of its own; return its seconds, of the processor too, and its MB."""
    words = [sys.executable, "-c", MEASURED, verb, "--results-dir", str(folder)]
    started = time.perf_counter()
    ended = subprocess.run(words, cwd=HERE, capture_output=True, text=True, check=False)
    took = time.perf_counter() - started
    if ended.returncode:
        raise RuntimeError(ended.stderr)
    memory, busy = map(float, ended.stderr.rpartition("USED")[2].split())
    return {"verb": verb, "seconds": took, "busy": busy, "mb": memory / 1e3}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.records", description=__doc__)
    parser.add_argument("folder", type=Path, help="is filled first, unless it has runs")
    parser.add_argument("--records", type=int, default=10_000)
    parser.add_argument("--verbs", nargs="+", default=["runs", "tables", "report"])
    args = parser.parse_args()
    if not (args.folder / "runs").is_dir():
        fill(args.folder, args.records)
    for verb in args.verbs:
        result = measure(args.folder, verb)
        print(
            f"{verb:<8} {result['seconds']:6.1f} s ({result['busy']:.1f} s of the processor) "
            f"{result['mb']:6.0f} MB",
            flush=True,
        )


if __name__ == "__main__":
    main()
