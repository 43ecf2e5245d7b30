"""Rows as token numbers, and batches whose order depends on (seed, epoch) alone."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset, Sampler

from ilkd_bench.store import digest, write_json
from ilkd_bench.tasks import Rows
from ilkd_bench.types import BadInput

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

BUCKET = 50
"""Batches that are sorted by length together; more pads less and mixes rows less."""


@dataclass(frozen=True)
class Encoded:
    """The token numbers of a split, all rows end to end."""

    ids: np.ndarray  # [tokens]
    types: np.ndarray  # [tokens], segment numbers, all 0 where the tokenizer has none
    offsets: np.ndarray  # [N+1], row i is ids[offsets[i]:offsets[i + 1]]
    pad_id: int

    @property
    def lengths(self) -> np.ndarray:
        """The number of tokens of each row, [N]."""
        return np.diff(self.offsets)

    @cached_property
    def fingerprint(self) -> str:
        """What identifies all that a model reads: rows, tokenizer and maximal length at once."""
        arrays = {name: _checksum(getattr(self, name)) for name in ("ids", "types", "offsets")}
        return digest([arrays, self.pad_id])

    def batch(self, rows: np.ndarray) -> dict[str, torch.Tensor]:
        """Return some rows padded to the longest of them: three tensors [B, T]."""
        lengths = self.offsets[rows + 1] - self.offsets[rows]
        position = np.arange(lengths.max())
        mask = position < lengths[:, None]  # [B, T]
        where = np.where(mask, self.offsets[rows][:, None] + position, 0)
        return {
            "input_ids": torch.from_numpy(np.where(mask, self.ids[where], self.pad_id)).long(),
            "attention_mask": torch.from_numpy(mask).long(),
            "token_type_ids": torch.from_numpy(np.where(mask, self.types[where], 0)).long(),
        }


def tokenizer_fingerprint(tokenizer: PreTrainedTokenizerBase) -> str:
    """Return what identifies a tokenizer: its whole state, special tokens included."""
    state = tokenizer.backend_tokenizer
    state.no_truncation()  # set by earlier calls, and no part of the identity
    state.no_padding()
    return hashlib.sha256(state.to_str().encode()).hexdigest()


def encode(
    rows: Rows, tokenizer: PreTrainedTokenizerBase, *, max_length: int, cache_dir: Path
) -> Encoded:
    """Tokenise a split, or read it from the cache; longer texts are cut to `max_length` tokens.

    Raises:
        BadInput: most tokens are unknown to the tokenizer, so that the text has lost its meaning.
    """
    texts = hashlib.sha256(json.dumps(rows.texts).encode()).hexdigest()
    key = digest([texts, tokenizer_fingerprint(tokenizer), max_length])[:20]
    folder = cache_dir / "tokens" / key
    arrays = _load(folder)
    if arrays is None:
        arrays = _tokenise(rows, tokenizer, max_length)
        _save(folder, arrays)
    return Encoded(**arrays, pad_id=tokenizer.pad_token_id)


def _tokenise(
    rows: Rows, tokenizer: PreTrainedTokenizerBase, max_length: int
) -> dict[str, np.ndarray]:
    encoded = tokenizer(
        *rows.texts, truncation=True, max_length=max_length, return_token_type_ids=True
    )
    lengths = [len(ids) for ids in encoded["input_ids"]]
    arrays = {
        "ids": np.concatenate([np.asarray(r, np.int32) for r in encoded["input_ids"]]),
        "types": np.concatenate([np.asarray(r, np.int8) for r in encoded["token_type_ids"]]),
        "offsets": np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
    }
    unknown = float((arrays["ids"] == tokenizer.unk_token_id).mean())
    if tokenizer.unk_token_id is not None and unknown > 0.5:
        raise BadInput(
            f"{unknown:.0%} of the tokens are unknown to the tokenizer, e.g. in "
            f"{rows.texts[0][0]!r}. The tiny models know the words of the demo tasks only: choose "
            "task=demo_sentiment, or other models"
        )
    return arrays


def _save(folder: Path, arrays: dict[str, np.ndarray]) -> None:
    aside = folder.with_name(f".{folder.name}.{os.getpid()}")
    aside.mkdir(parents=True, exist_ok=True)
    for name, array in arrays.items():
        np.save(aside / f"{name}.npy", array)
    write_json(aside / "meta.json", {name: _checksum(array) for name, array in arrays.items()})
    try:
        os.replace(aside, folder)
    except OSError:  # another run was first, or a damaged folder is in the way
        if _load(folder) is None:
            shutil.rmtree(folder)
            os.replace(aside, folder)
        else:
            shutil.rmtree(aside)


def _load(folder: Path) -> dict[str, np.ndarray] | None:
    """Return the cached arrays; None where they are absent or damaged."""
    try:
        expected: dict[str, str] = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        arrays = {name: np.load(folder / f"{name}.npy") for name in ("ids", "types", "offsets")}
    except (OSError, ValueError, EOFError):
        return None
    whole = expected == {name: _checksum(array) for name, array in arrays.items()}
    return arrays if whole else None


def _checksum(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()


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

    def __getitem__(self, rows: np.ndarray) -> dict[str, Any]:
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
    """The batches of the current epoch; Lightning calls `set_epoch` before each."""

    def __init__(
        self, lengths: np.ndarray, batch_size: int, *, seed: int, first_epoch: int
    ) -> None:
        self.lengths, self.batch_size, self.seed = lengths, batch_size, seed
        self.first_epoch = self.epoch = first_epoch

    def set_epoch(self, epoch: int) -> None:
        """Choose the epoch, counted from this phase's first."""
        self.epoch = self.first_epoch + epoch

    def __len__(self) -> int:
        return -(-len(self.lengths) // self.batch_size)

    def __iter__(self) -> Iterator[np.ndarray]:
        return iter(batch_order(self.lengths, self.batch_size, seed=self.seed, epoch=self.epoch))


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
        pin: put batches into page-locked memory, from where a GPU copies while it computes.
    """
    return DataLoader(
        split,
        sampler=batches,
        batch_size=None,
        num_workers=workers,
        pin_memory=pin,
        generator=torch.Generator().manual_seed(0),
    )


def to_device(batch: dict[str, Any], device: torch.device) -> dict[str, Any]:
    """Move the tensors of a batch, also those of its models' inputs."""
    return {
        name: to_device(value, device)
        if isinstance(value, dict)
        else value.to(device, non_blocking=True)
        for name, value in batch.items()
    }
