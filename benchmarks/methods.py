"""The step of each method against the step of plain fine-tuning, on the same batches."""

from __future__ import annotations

import copy
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.job import PAIR, config, model, rotated, seconds, split
from ilkd_bench.data.batches import batch_order, to_device
from ilkd_bench.data.tasks import Task
from ilkd_bench.methods.base import Method
from ilkd_bench.models.model import Model
from ilkd_bench.plumbing.hardware import precision_here
from ilkd_bench.settings import groups
from ilkd_bench.settings.run import MethodSettings
from ilkd_bench.teachers.banked import banked, can_bank
from ilkd_bench.teachers.finetuned import save_weights
from ilkd_bench.teachers.live import LiveTeacher
from ilkd_bench.training.loop import only_words_of
from ilkd_bench.training.module import both_outputs, weighted_sum
from ilkd_bench.types import Clock, Incompatible

METHODS = sorted(path.stem for path in (groups.ROOT / "conf/method").glob("*.yaml"))
BASE = "finetune"


def measure(
    data_dir: Path, folder: Path, *, tasks: list[str], steps: int, repetitions: int, device: str
) -> list[dict[str, Any]]:
    """Time `steps` batches of each task, `repetitions` times, each batch with every method in turn.

    Returns:
        A dict per step: task, method, teacher (bank or live), batch, repetition, tokens, seconds.
    """
    rows = []
    for task in tasks:
        rows += _task(data_dir, folder / task, task, steps, repetitions, torch.device(device))
    return rows


def _task(
    data_dir: Path, folder: Path, name: str, steps: int, repetitions: int, device: torch.device
) -> list[dict[str, Any]]:
    base = config(*PAIR, f"task={name}", f"data_dir={data_dir}")
    task = Task(**base["task"])
    teacher, student = (model(base[role], task.labels) for role in ("teacher", "student"))
    snapshot = folder / "epoch-001.safetensors"
    save_weights(teacher, snapshot)
    rows = split(task, 3200, teacher, data_dir, folder)
    live = LiveTeacher(teacher, snapshots=[snapshot])
    works, kinds, as_in_fit = {}, {}, ExitStack()
    for method in METHODS:
        own = copy.deepcopy(student)
        as_in_fit.enter_context(only_words_of(own, {"train": rows, "dev": rows}))
        try:
            works[method], kinds[method] = _step(method, live, own, rows, folder, device)
        except Incompatible:
            continue
    order = batch_order(rows.lengths, 32, seed=0, epoch=0)[:steps]
    batches = [to_device(rows[chosen], device) for chosen in order]
    for work in works.values():
        work(batches[0])
    with as_in_fit:
        return [
            {
                "task": name,
                "method": method,
                "teacher": kinds[method],
                "batch": number,
                "repetition": repetition,
                "tokens": batch["student"]["input_ids"].numel(),
                "seconds": seconds(lambda m=method, b=batch: works[m](b), device),
            }
            for repetition in range(repetitions)
            for number, batch in enumerate(batches)
            for method in rotated(list(works), number + repetition)
        ]


def _step(
    name: str, live: LiveTeacher, student: Model, rows: Any, folder: Path, device: torch.device
) -> tuple[Callable[[dict[str, Any]], None], str]:
    """Return a whole training step of a method, with an optimiser of its own."""
    about = MethodSettings(**config(*PAIR, f"method={name}")["method"])
    student.train().to(device)
    method: Method = about.build(student=student.spec, teacher=live.spec)
    method.prepare(rows.labels, rows.index)
    method.to(device)
    phases = method.phases(10)
    phase = max(phases, key=lambda p: (len(p.needs), p.teacher_at is not None))
    answering: Any = live
    if can_bank([phase]):
        answering = banked(
            live,
            rows,
            [phase],
            about={"teacher": "minilm_l6", "task": "rows", "split": "train"},
            dtype="float16",
            batch_size=64,
            device=device,
            cache_dir=folder,
        )
    answering.to(device)
    clock = Clock(phase=phase, epoch=0, step=1, steps=100, seed=0)
    parameters = [*student.parameters(), *method.parameters()]
    optimizer = torch.optim.AdamW(parameters, lr=1e-5, fused=True)
    mixed = precision_here("auto", "auto" if device.type == "cuda" else "cpu") == "16-mixed"

    def loss(batch: dict[str, Any]) -> Tensor:
        with torch.autocast(device.type, torch.float16, enabled=mixed):
            s, t, b = both_outputs(student, answering, batch, clock)
            with torch.autocast(device.type, enabled=False):
                total = weighted_sum(method.loss(s, t, b, clock), about.weights)
                with torch.no_grad():
                    method.remember(s, t, b, clock)
        return total

    def step(batch: dict[str, Any]) -> None:
        loss(batch).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        optimizer.zero_grad()

    kind = "-" if not phase.needs else "live" if answering is live else "bank"
    return step, kind
