"""The student's step as a share of what the machine's matrix multiplication reaches."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile

from benchmarks.job import PAIR, config, median, model, seconds
from ilkd_bench.models.model import Model

BATCH, LENGTH = 32, 128
SIZE = 2048  # of the square matrices that give the peak


def operations(student: Model, batch: int, length: int) -> float:
    """Return the floating-point operations of the matrix products of a training step.

    Forward: 2 operations per weight of the encoder and token, and two products of [T, H] per token
    in attention. Backward: twice as many.
    """
    hf = student.hf.config
    width, inner = hf.hidden_size, hf.intermediate_size
    weights = hf.num_hidden_layers * (4 * width * width + 2 * width * inner)
    attention = hf.num_hidden_layers * 2 * length * width
    return 3 * 2 * batch * length * (weights + attention)


def step() -> tuple[Callable[[], None], Callable[[], None]]:
    """Return the two halves of a training step at full length: the passes and the update."""
    student = model(config(*PAIR)["student"], ["no", "yes"]).train()
    optimizer = torch.optim.AdamW(student.parameters(), lr=1e-5, fused=True)
    ids = torch.randint(1000, 20000, (BATCH, LENGTH), generator=torch.Generator().manual_seed(0))
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}

    def passes() -> None:
        student.outputs(inputs, frozenset()).logits.square().mean().backward()

    def update() -> None:
        torch.nn.utils.clip_grad_norm_(student.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return passes, update


def measure(repetitions: int) -> list[dict[str, Any]]:
    """Time a matrix product and a step in turn.

    Returns:
        A dict per repetition: peak and the step's rate, with and without the optimiser, in GFLOP/s.
    """
    cpu = torch.device("cpu")
    work = operations(model(config(*PAIR)["student"], ["no", "yes"]), BATCH, LENGTH)
    passes, update = step()
    a = torch.randn(SIZE, SIZE)
    rows = []
    for repetition in range(repetitions + 1):
        peak = 2 * SIZE**3 / median([seconds(lambda: a @ a, cpu) for _ in range(5)])
        both = seconds(passes, cpu)
        whole = both + seconds(update, cpu)
        if repetition > 0:  # the first one warms up
            rates = {"peak": peak, "passes": work / both, "step": work / whole}
            rows.append({name: rate / 1e9 for name, rate in rates.items()})
    return rows


def operators() -> list[dict[str, Any]]:
    """Profile two steps; return each operator's share of their time."""
    passes, update = step()
    passes()
    update()
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        for _ in range(2):
            passes()
            update()
    found = profiler.key_averages()
    total = sum(event.self_cpu_time_total for event in found)
    return [{"operator": e.key, "share": e.self_cpu_time_total / total} for e in found]
