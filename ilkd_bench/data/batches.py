"""Batches whose order depends on (seed, epoch) alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from ilkd_bench.data.tokens import Encoded
from ilkd_bench.plumbing.full_disk import full_disk_told
from ilkd_bench.types import TrainingBatch

BUCKET = 50
"""Batches that are sorted by length together; more pads less and mixes rows less."""


class Split(Dataset):
    """A split as both models read it; an item is a whole batch."""

    def __init__(
        self, labels: torch.Tensor, index: torch.Tensor, student: Encoded, teacher: Encoded
    ) -> None:
        self.labels = labels
        self.index = index
        self.student = student
        self.teacher = teacher

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: np.ndarray) -> TrainingBatch:
        """Return the batch of these rows; the models' inputs are one object if they are equal."""
        student = self.student.batch(rows)
        shared = self.teacher is self.student
        return {
            "student": student,
            "teacher": student if shared else self.teacher.batch(rows),
            "labels": self.labels[rows],
            "index": self.index[rows],
        }

    @property
    def lengths(self) -> np.ndarray:
        """The length that decides the padding of each row, [N]."""
        return np.maximum(self.student.lengths, self.teacher.lengths)

    @property
    def words(self) -> np.ndarray | None:
        """The tokens that the student may meet, each once; None: any of its vocabulary."""
        return np.unique(np.append(self.student.ids, self.student.pad_id))


class PlainText(Split):
    """Some rows of a text without labels, which stays where it is; both models read the same.

    Args:
        encoded: the whole text.
        rows: numbers of the rows that are taken, [N].
    """

    def __init__(self, encoded: Encoded, rows: np.ndarray) -> None:
        nothing = torch.zeros(len(rows), dtype=torch.long)
        super().__init__(nothing, torch.from_numpy(rows), encoded, encoded)

    def __getitem__(self, rows: np.ndarray) -> TrainingBatch:
        """Return the batch of these rows, counted among those that are taken."""
        index = self.index[rows]
        inputs = self.student.batch(index.numpy())
        return {
            "student": inputs,
            "teacher": inputs,
            "labels": self.labels[rows],
            "index": index,
        }

    @property
    def lengths(self) -> np.ndarray:
        """The length of each row, [N]."""
        return self.student.lengths[self.index.numpy()]

    @property
    def words(self) -> None:
        """Any: a text of general use has nearly all."""
        return None


def batch_order(lengths: np.ndarray, batch_size: int, *, seed: int, epoch: int) -> list[np.ndarray]:
    """Return the batches of an epoch as row numbers: each row once, lengths alike in a batch.

    Rows are shuffled, sorted by length within buckets of `BUCKET` batches, cut into batches, and
    the batches are shuffled. A pure function of its arguments.
    """
    generator = np.random.default_rng((seed, epoch))
    shuffled = generator.permutation(len(lengths))
    batches = []
    for start in range(0, len(shuffled), BUCKET * batch_size):
        bucket = shuffled[start : start + BUCKET * batch_size]
        bucket = bucket[np.argsort(lengths[bucket], kind="stable")]
        batches += [bucket[i : i + batch_size] for i in range(0, len(bucket), batch_size)]
    return [batches[i] for i in generator.permutation(len(batches))]


class EpochBatches(Sampler):
    """The batches of the current epoch; Lightning calls `set_epoch` before each.

    Args:
        steps: batches that make an epoch, where the rows are so many that they take several, or so
            few that they are gone through more than once; None: an epoch has each row once.
    """

    def __init__(
        self,
        lengths: np.ndarray,
        batch_size: int,
        *,
        seed: int,
        first_epoch: int,
        steps: int | None = None,
    ) -> None:
        self.lengths, self.batch_size, self.seed = lengths, batch_size, seed
        self._passage = -(-len(lengths) // batch_size)  # batches that have each row once
        self.steps = self._passage if steps is None else steps
        self.first_epoch = self.epoch = first_epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, counted from this phase's first."""
        self.epoch = self.first_epoch + epoch

    def __len__(self) -> int:
        return self.steps

    def __iter__(self) -> Iterator[np.ndarray]:
        number, end = self.epoch * self.steps, (self.epoch + 1) * self.steps
        while number < end:
            passage, start = divmod(number, self._passage)
            order = batch_order(self.lengths, self.batch_size, seed=self.seed, epoch=passage)
            stretch = order[start : start + end - number]
            yield from stretch
            number += len(stretch)


def sorted_batches(lengths: np.ndarray, batch_size: int) -> list[np.ndarray]:
    """Return the batches of an evaluation, longest rows first."""
    order = np.argsort(-lengths, kind="stable")
    return [order[i : i + batch_size] for i in range(0, len(order), batch_size)]


def loader(
    split: Split, batches: Sampler | Sequence[np.ndarray], *, workers: int, pin: bool
) -> DataLoader:
    """Return a loader that yields the given batches.

    Workers change nothing but the speed. The generator keeps the loader away from the global
    random state.

    Args:
        pin: put batches into page-locked memory, from where a GPU copies while it computes; those
            of workers are not.
    """
    return Loader(
        split,
        sampler=batches,
        batch_size=None,
        num_workers=workers,
        persistent_workers=workers > 0,  # those of the next epoch would hold what these hold
        collate_fn=_arrays if workers else _unchanged,
        pin_memory=pin and not workers,
        generator=torch.Generator().manual_seed(0),
    )


SHARED_MEMORY = Path("/dev/shm")


class Loader(DataLoader):
    """Has its workers send batches through pipes, as arrays.

    Tensors would go through `/dev/shm`: where that is full, a worker dies or is never heard of.
    """

    def __iter__(self) -> Any:
        with full_disk_told(SHARED_MEMORY, "type trainer.workers=0, or give it more room"):
            batches = super().__iter__()
        return map(_tensors, batches) if self.num_workers else batches


def _unchanged(batch: Any) -> Any:
    return batch


def _arrays(batch: Any) -> Any:
    return _each(batch, torch.Tensor.numpy)


def _tensors(batch: Any) -> TrainingBatch:
    return _each(batch, torch.from_numpy)


def _each(batch: Any, change: Callable[[Any], Any]) -> Any:
    """Change every tensor of a batch, what both models share once."""

    def changed(inputs: Any) -> Any:
        return {name: change(x) for name, x in inputs.items()}

    student = changed(batch["student"])
    shared = batch["teacher"] is batch["student"]
    return {
        "student": student,
        "teacher": student if shared else changed(batch["teacher"]),
        "labels": change(batch["labels"]),
        "index": change(batch["index"]),
    }


def to_device(batch: TrainingBatch, device: torch.device) -> TrainingBatch:
    """Move the tensors of a batch; what both models share is moved once."""
    moved: TrainingBatch = _each(batch, lambda x: x.to(device, non_blocking=True))
    return moved
