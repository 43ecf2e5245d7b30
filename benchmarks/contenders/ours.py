"""The job as ilkd_bench trains it: Lightning, `DistillModule`, the method `pkd`.

The job's key `teacher_outputs` says who answers for the teacher (`bank` or `live`), `order` how
rows are put together (`length` or `random`), `padding` how far they are padded (`dynamic` or
`max`). With `bank`, `length`, `dynamic` it is the product; each other value takes one gain away.
"""

from __future__ import annotations

import atexit
import tempfile
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from protocol import GRADIENT_CLIP, TEMPERATURE, WEIGHT_DECAY, Job, Row, Train, serve

from ilkd_bench.data.batches import Split
from ilkd_bench.data.tasks import TextRows
from ilkd_bench.data.tokens import Encoded, encode
from ilkd_bench.methods.pkd import PKD
from ilkd_bench.models.build import pretrained
from ilkd_bench.models.model import Model
from ilkd_bench.teachers.banked import banked
from ilkd_bench.teachers.live import LiveTeacher, Teacher
from ilkd_bench.training.loop import FitSettings, loaders, only_words_of, trainer
from ilkd_bench.training.module import DistillModule, Optimisation

LABELS = ["0", "1"]


@dataclass(frozen=True)
class Padded(Encoded):
    """Rows that are padded to a length of their own, not to the longest of their batch."""

    length: int

    def batch(self, rows: np.ndarray) -> dict[str, torch.Tensor]:
        short = super().batch(rows)
        more = self.length - short["input_ids"].shape[1]
        return {
            name: torch.nn.functional.pad(
                values, (0, more), value=self.pad_id if name == "input_ids" else 0
            )
            for name, values in short.items()
        }


class Onward(DistillModule):
    """A phase that goes on with the optimiser of the first one, as the epochs of a run do."""

    optimizers_so_far: list[Any] = []  # noqa: RUF012 - shared on purpose

    def configure_optimizers(self) -> Any:
        if not self.optimizers_so_far:
            self.optimizers_so_far.append(super().configure_optimizers()["optimizer"])
        return self.optimizers_so_far[0]


class Unsorted(Split):
    """Rows that are taken in a random order, whatever their lengths."""

    @property
    def lengths(self) -> np.ndarray:
        return np.zeros(len(self), np.int64)


def split_of(job: Job, rows: list[Row], model: Model, cache_dir: Path) -> Split:
    labels = np.array([row["label"] for row in rows])
    index = np.arange(len(rows))
    texts = [[row[column] for row in rows] for column in job["columns"]]
    tokens = encode(
        TextRows(texts, labels, index),
        model.tokenizer,
        max_length=job["max_length"],
        cache_dir=cache_dir,
    )
    if job["padding"] == "max":
        tokens = Padded(tokens.ids, tokens.types, tokens.offsets, tokens.pad_id, job["max_length"])
    kind = Split if job["order"] == "length" else Unsorted
    return kind(torch.from_numpy(labels), torch.from_numpy(index), tokens, tokens)


def build(job: Job, rows: list[Row]) -> Train:
    teacher, student = (
        pretrained(labels=LABELS, seed=job["seed"], path=job[role], revision=None)
        for role in ("teacher", "student")
    )
    method = PKD(
        student=student.spec,
        teacher=teacher.spec,
        temperature=TEMPERATURE,
        layer_map="skip",
        target="own",
        normalize=True,
        projection_width="auto",
    )
    (phase,) = method.phases(1)
    folder = Path(tempfile.mkdtemp())
    split = split_of(job, rows, teacher, folder)
    dev = split_of(
        job, rows[:1], teacher, folder
    )  # Lightning wants one; a single row costs nothing
    answering: Teacher = LiveTeacher(teacher)
    if job["teacher_outputs"] == "bank":
        answering = banked(
            answering,
            split,
            [phase],
            about={"teacher": "minilm_l6", "task": "rows", "split": "train"},
            dtype="float16",
            batch_size=64,
            device=torch.device("cpu"),
            cache_dir=folder,
        )
    settings = FitSettings(
        seed=job["seed"],
        batch_size=job["batch_size"],
        patience=None,
        gradient_clip=GRADIENT_CLIP,
        precision="bf16-mixed" if job["bf16"] else "32-true",
        optimisation=Optimisation(job["lr"], WEIGHT_DECAY, warmup_ratio=0.0),
        accelerator="cpu",
        workers=0,
        eval_batch_size=1,
    )

    splits = {"train": split, "dev": dev}
    as_in_fit = ExitStack()  # which is around all epochs; the process ends with them
    as_in_fit.enter_context(only_words_of(student, splits))
    atexit.register(as_in_fit.close)

    def train(steps: int | None) -> list[float]:
        module = Onward(
            student,
            method,
            {"kd": 1.0, "ce": 0.0, "pkd": 1.0},
            answering,
            phase=phase,
            first_epoch=0,
            seed=job["seed"],
            optimisation=settings.optimisation,
            score=lambda logits, labels: {"n": len(labels)},
            monitor="n",
        ).train()
        loop = trainer(settings, phase, [], False, folder)
        if steps is not None:
            loop.limit_train_batches = steps
        loop.fit(module, *loaders(splits, settings, 0))
        (epoch,) = module.history
        return [epoch["loss/total"]] * module.global_step

    return train


if __name__ == "__main__":
    serve(build, ["pytorch-lightning"])
