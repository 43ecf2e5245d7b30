"""Time one distillation job in two public toolkits and in a plain loop, in one interleaved run.

The toolkits need an environment of their own: benchmarks/peers.txt. A contender is a script that
follows benchmarks/contenders/protocol.py; to add one, add a line to `CONTENDERS`.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import numpy as np
import yaml

from ilkd_bench.models import build

ROOT = Path(__file__).parent.parent
SCRIPTS = Path(__file__).parent / "contenders"
PEERS = ROOT / ".venv-peers/bin/python"
LOG_TAIL = 2000  # characters


@dataclass(frozen=True)
class Contender:
    """A script that trains the job, and the Python that runs it."""

    name: str
    python: Path
    script: Path
    extra: dict[str, Any] = field(default_factory=dict)  # further keys of its job


def _ours(
    name: str, teacher_outputs: str, order: str, padding: str, *, bf16: bool = False
) -> Contender:
    extra = {
        "teacher_outputs": teacher_outputs,
        "order": order,
        "padding": padding,
        "bf16": bf16,
    }
    return Contender(name, Path(sys.executable), SCRIPTS / "ours.py", extra)


CONTENDERS = [
    Contender("textbrewer", PEERS, SCRIPTS / "with_textbrewer.py"),
    Contender("textbrewer_bf16", PEERS, SCRIPTS / "with_textbrewer.py", {"bf16": True}),
    Contender("torchdistill", PEERS, SCRIPTS / "with_torchdistill.py"),
    Contender("torchdistill_bf16", PEERS, SCRIPTS / "with_torchdistill.py", {"bf16": True}),
    _ours("ours_live_padded", "live", "random", "max"),
    _ours("ours_live_random", "live", "random", "dynamic"),
    _ours("ours_live", "live", "length", "dynamic"),
    _ours("ours_random", "bank", "random", "dynamic"),
    _ours("ours", "bank", "length", "dynamic"),
    _ours("ours_bf16", "bank", "length", "dynamic", bf16=True),
]


class Worker:
    """The running process of one contender."""

    def __init__(self, contender: Contender, job: dict[str, Any], folder: Path) -> None:
        if not contender.python.exists():
            raise FileNotFoundError(
                f"{contender.python}, which {contender.name} needs, does not exist; "
                "the first lines of benchmarks/peers.txt make it"
            )
        job_file = folder / f"{contender.name}.json"
        job_file.write_text(json.dumps(job | contender.extra))
        self.name = contender.name
        self.log: IO[str] = (folder / f"{contender.name}.log").open("w+")
        self.process = subprocess.Popen(
            [contender.python, contender.script, job_file],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
            env=os.environ
            | {
                "OMP_NUM_THREADS": str(job["threads"]),
                "OMP_WAIT_POLICY": "passive",  # those that wait must not spin
                "HF_HUB_OFFLINE": "1",
                "TOKENIZERS_PARALLELISM": "false",
            },
        )

    def answer(self) -> dict[str, Any]:
        line = self.process.stdout.readline()
        if line:
            return json.loads(line)
        self.process.wait()
        self.log.seek(0)
        raise RuntimeError(
            f"{self.name} ended with exit code {self.process.returncode}; the end of its log:\n"
            f"{self.log.read()[-LOG_TAIL:]}"
        )

    def epoch(self) -> dict[str, Any]:
        with contextlib.suppress(BrokenPipeError):  # a dead process: `answer` says why it died
            self.process.stdin.write("go\n")
            self.process.stdin.flush()
        result = self.answer()
        if not math.isfinite(result["loss"]):
            raise RuntimeError(f"the loss of {self.name} is {result['loss']}")
        return result

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.log.close()


def measure(
    jobs: dict[str, dict[str, Any]], contenders: Sequence[Contender], repetitions: int
) -> list[dict[str, Any]]:
    """Time one epoch of each job with each contender, `repetitions` times.

    The contenders of a task run side by side but train one at a time, in an order that rotates, so
    that a change in the machine's speed meets all of them.

    Returns:
        One dict per epoch: task, contender, repetition, seconds, rows, steps, loss.

    Raises:
        FileNotFoundError: the Python of a contender is missing.
        RuntimeError: a contender died or its loss is not finite.
    """
    rows = []
    for task, job in jobs.items():
        with contextlib.ExitStack() as stack:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
            workers = [
                stack.enter_context(contextlib.closing(Worker(contender, job, folder)))
                for contender in contenders
            ]
            for worker in workers:
                worker.answer()
            for repetition in range(repetitions):
                first = repetition % len(workers)
                for worker in workers[first:] + workers[:first]:
                    key = {"task": task, "contender": worker.name, "repetition": repetition}
                    rows.append(key | worker.epoch())
    return rows


def prepare(
    folder: Path, data_dir: Path, task: str, rows: int, seed: int, threads: int = 2
) -> dict[str, Any]:
    """Write the models and `rows` random training rows of a task to a folder; return the job."""
    about = _settings(f"task/{task}")
    with (data_dir / task / "train.jsonl").open(encoding="utf-8") as file:
        lines = file.readlines()
    drawn = np.random.default_rng(seed).choice(len(lines), rows, replace=False)
    folder.mkdir(parents=True, exist_ok=True)
    text = "\n".join(lines[i].rstrip("\n") for i in drawn)
    (folder / "rows.jsonl").write_text(text, encoding="utf-8")
    for role, preset in (("teacher", "minilm_l6"), ("student", "minilm_l3_cut")):
        settings = _settings(f"{role}/{preset}")
        model = build.pretrained(
            labels=about["labels"],
            seed=seed,
            path=settings["path"],
            revision=settings["revision"],
            keep_layers=settings.get("keep_layers"),
        )
        model.hf.save_pretrained(folder / role)
        model.tokenizer.save_pretrained(folder / role)
    return {
        "teacher": str(folder / "teacher"),
        "student": str(folder / "student"),
        "rows": str(folder / "rows.jsonl"),
        "columns": about["text_columns"],
        "classes": len(about["labels"]),
        "batch_size": 32,
        "max_length": 128,
        "lr": 5e-5,
        "threads": threads,
        "seed": seed,
        "bf16": False,
    }


def _settings(name: str) -> dict[str, Any]:
    return yaml.safe_load((ROOT / "conf" / f"{name}.yaml").read_text())
