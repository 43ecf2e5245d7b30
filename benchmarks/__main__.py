"""Measure the speed of ilkd_bench, beside its peers, and put the tables into benchmarks/README.md.

    python -m benchmarks --data-dir DIR [--only methods peers ...] [--quick]

All ratios of a table come from one run, in which the things compared took turns.
"""

from __future__ import annotations

import argparse
import datetime
import json
import platform
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from benchmarks import growth, job, methods, peak, peers, report, step, sweep
from ilkd_bench.plumbing.hardware import environment

HERE = Path(__file__).parent
TASKS = ["mrpc", "sst2"]


def parts(
    data_dir: Path, folder: Path, *, quick: bool, device: str
) -> dict[str, Callable[[], list[dict[str, Any]]]]:
    """Return what can be measured, by name."""
    times = 2 if quick else 5

    def beside_peers() -> list[dict[str, Any]]:
        rows = 64 if quick else 480
        jobs = {task: peers.prepare(folder / task, data_dir, task, rows, 0) for task in TASKS}
        return peers.measure(jobs, peers.CONTENDERS, times)

    return {
        "peak": lambda: peak.measure(times),
        "operators": peak.operators,
        "step": lambda: step.measure(
            data_dir, folder / "step", steps=2 if quick else 8, repetitions=times
        ),
        "methods": lambda: methods.measure(
            data_dir,
            folder / "methods",
            tasks=TASKS,
            steps=3 if quick else 10,
            repetitions=times,
            device=device,
        ),
        "sweep": lambda: sweep.measure(
            data_dir, folder / "sweep", rows=32 if quick else 64, epochs=1 if quick else 3
        ),
        "peers": beside_peers,
        "growth": lambda: growth.measure(
            data_dir,
            folder / "growth",
            rows=[100, 400] if quick else [1_000, 4_000, 16_000],
            bank_rows=[100, 400] if quick else [1_000, 10_000, 67_000],
            runs=[1, 2] if quick else [1, 10, 100],
        ),
    }


def processor() -> str:
    """Return the name of the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def main() -> None:
    names = list(parts(Path(), Path(), quick=True, device="cpu"))
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--data-dir", type=Path, help="has mrpc/ and sst2/, each train.jsonl and validation.jsonl"
    )
    parser.add_argument("--only", nargs="+", choices=names, default=names, help="some parts")
    parser.add_argument("--quick", action="store_true", help="small sizes, to see that it works")
    parser.add_argument("--device", default="cpu", help="of the methods' steps: cpu or cuda")
    parser.add_argument("--results", type=Path, default=HERE / "results.json")
    parser.add_argument("--report", type=Path, default=HERE / "README.md")
    parser.add_argument("--render", action="store_true", help="only the tables, from --results")
    a = parser.parse_args()
    if not a.render:
        text = "real" if a.data_dir else "demo sentences in place of real ones"
        data_dir = a.data_dir or job.stand_in(Path(tempfile.mkdtemp()))
        if not (data_dir / "mrpc/train.jsonl").is_file():
            parser.error(f"--data-dir: {data_dir} has no mrpc/train.jsonl")
        for name in a.only:
            print(f"{name} ...", flush=True)
            started = time.perf_counter()
            with tempfile.TemporaryDirectory() as folder:
                measured = parts(data_dir.resolve(), Path(folder), quick=a.quick, device=a.device)[
                    name
                ]()
            about = environment("auto", "auto" if a.device == "cuda" else "cpu")
            key = name if a.device == "cpu" else f"{name}_{a.device}"
            job.save(
                a.results,
                key,
                {
                    "date": datetime.date.today().isoformat(),
                    "device": about["device"],
                    "processor": processor(),
                    "threads": torch.get_num_threads(),
                    "versions": about["versions"],
                    "quick": a.quick,
                    "text": text,
                    "minutes": (time.perf_counter() - started) / 60,
                    "rows": measured,
                },
            )
    tables = report.tables(json.loads(a.results.read_text()))
    for name, text in tables.items():
        print(f"\n## {name}\n\n{text}")
    if a.report.is_file():
        a.report.write_text(report.filled(a.report.read_text(), tables))


if __name__ == "__main__":
    main()
