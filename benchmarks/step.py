"""The student's step with each of its gains, against the step as torch alone would take it."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from benchmarks.job import config, model, rotated, seconds, split
from ilkd_bench.data.batches import batch_order
from ilkd_bench.data.tasks import Task
from ilkd_bench.models.model import Model
from ilkd_bench.models.seen_words import seen_words

STUDENTS = ("minilm_l3_cut", "bert_tiny")
BATCH, LENGTH = 32, 128
ROWS = 3200
PLAIN = "torch alone"
VARIANTS = {
    PLAIN: frozenset[str](),
    "fast masks": frozenset({"masks"}),
    "words that occur": frozenset({"words"}),
    "both": frozenset({"masks", "words"}),
    "torch alone, bf16": frozenset({"bf16"}),
    "both, bf16": frozenset({"masks", "words", "bf16"}),
}
"""What a step has of: masks of dropout drawn 16 bits at a time, an embedding of the words of the
task alone, bfloat16."""

Step = Callable[[dict[str, Tensor]], None]


def measure(data_dir: Path, folder: Path, *, steps: int, repetitions: int) -> list[dict[str, Any]]:
    """Time steps on rows of SST-2 and MRPC, and on full ones, each batch with all in turn.

    Returns:
        A dict per step: student, rows, variant, batch, repetition, seconds.
    """
    found = []
    for student in STUDENTS:
        for name in ("sst2", "mrpc"):
            task = Task(**config(f"task={name}")["task"])
            built = model(config(f"student={student}")["student"], task.labels)
            rows = split(task, ROWS, built, data_dir, folder / name)
            order = batch_order(rows.lengths, BATCH, seed=0, epoch=0)[:steps]
            words = torch.from_numpy(rows.words).long()
            batches = {name: [rows[numbers]["student"] for numbers in order]}
            if name == "mrpc":
                batches[f"{BATCH} x {LENGTH}"] = [_full(words, number) for number in range(steps)]
            for kind, of_kind in batches.items():
                key = {"student": student, "rows": kind}
                found += [key | row for row in _in_turn(built, words, of_kind, repetitions)]
    return found


def _full(words: Tensor, seed: int) -> dict[str, Tensor]:
    """Return a batch without padding, of words of a task."""
    drawn = torch.Generator().manual_seed(seed)
    ids = words[torch.randint(len(words), (BATCH, LENGTH), generator=drawn)]
    return {"input_ids": ids, "attention_mask": torch.ones_like(ids)}


def _in_turn(
    built: Model, words: Tensor, batches: list[dict[str, Tensor]], repetitions: int
) -> list[dict[str, Any]]:
    with ExitStack() as stack:
        steps = {name: _step(built, words, gains, stack) for name, gains in VARIANTS.items()}
        for step in steps.values():
            step(batches[0])
        return [
            {
                "variant": name,
                "batch": number,
                "repetition": repetition,
                "seconds": seconds(lambda s=steps[name], b=batch: s(b), torch.device("cpu")),
            }
            for repetition in range(repetitions)
            for number, batch in enumerate(batches)
            for name in rotated(list(steps), number + repetition)
        ]


def _step(built: Model, words: Tensor, gains: frozenset[str], stack: ExitStack) -> Step:
    """Return a whole training step, of a student and an optimiser of its own."""
    student = copy.deepcopy(built).train()
    if "words" in gains:
        stack.enter_context(seen_words(student.hf, words))
    parameters = list(student.parameters())
    optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=True)

    def logits(batch: dict[str, Tensor]) -> Tensor:
        if "masks" in gains:
            return student.outputs(batch, frozenset()).logits
        return student.hf(**batch).logits.float()

    def step(batch: dict[str, Tensor]) -> None:
        with torch.autocast("cpu", torch.bfloat16, enabled="bf16" in gains):
            answers = logits(batch)
        F.cross_entropy(answers, torch.zeros(len(answers), dtype=torch.long)).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return step
