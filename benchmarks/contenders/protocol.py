"""What every contender is told and answers, and the parts of the job that all of them share.

A contender is started as `python FILE JOB.json`. It loads everything, trains one step that is not
timed, and says `{"ready": true, ...}`. For each line `go` on stdin it trains one epoch and answers
`{"seconds": ..., "rows": ..., "steps": ..., "loss": ...}`. It ends when stdin does.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

Job = dict[str, Any]
"""`teacher student rows columns classes batch_size max_length lr threads seed bf16`, and extra
keys. With `bf16` the passes run under torch's autocast to bfloat16."""

Row = dict[str, Any]

Train = Callable[[int | None], list[float]]
"""Trains that many steps, or an epoch when given None; returns the loss of each step."""

TEMPERATURE = 4.0
MATCHES = ((1, 2), (2, 4))  # (student layer, teacher layer) of PKD's map "skip", 3 from 6 layers
GRADIENT_CLIP = 1.0
WEIGHT_DECAY = 0.0


def serve(build: Callable[[Job, list[Row]], Train], packages: Sequence[str]) -> None:
    """Follow the protocol with what `build` makes of the job; `packages` are those to report."""
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)  # libraries print to stdout, which belongs to the answers
    job: Job = json.loads(Path(sys.argv[1]).read_text())
    with Path(job["rows"]).open(encoding="utf-8") as lines:
        rows = [json.loads(line) for line in lines]
    torch.set_num_threads(job["threads"])
    torch.manual_seed(job["seed"])

    def answer(content: dict[str, Any]) -> None:
        answers.write(json.dumps(content) + "\n")

    train = build(job, rows)
    train(1)
    versions = {name: version(name) for name in ("torch", "transformers", *packages)}
    answer({"ready": True, "threads": torch.get_num_threads(), "versions": versions})
    for line in sys.stdin:
        if line.strip() != "go":
            raise ValueError(f"the line {line.strip()!r} came in; the only command is go")
        start = time.perf_counter()
        losses = train(None)
        seconds = time.perf_counter() - start
        answer(
            {
                "seconds": seconds,
                "rows": len(rows),
                "steps": len(losses),
                "loss": sum(losses) / len(losses),
            }
        )
