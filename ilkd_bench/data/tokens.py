"""Rows as token numbers, cached on disk."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch

from ilkd_bench.data.tasks import TextRows
from ilkd_bench.plumbing import files, full_disk, shared
from ilkd_bench.plumbing.files import digest
from ilkd_bench.types import BadInput, Inputs

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase


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

    def batch(self, rows: np.ndarray) -> Inputs:
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
    rows: TextRows, tokenizer: PreTrainedTokenizerBase, *, max_length: int, cache_dir: Path
) -> Encoded:
    """Tokenise a split, or read it from the cache; longer texts are cut to `max_length` tokens.

    Raises:
        BadInput: most tokens are unknown to the tokenizer, so that the text has lost its meaning.
    """
    texts = hashlib.sha256(json.dumps(rows.texts).encode()).hexdigest()
    key = digest([texts, tokenizer_fingerprint(tokenizer), max_length])[:20]
    folder = cache_dir / "tokens" / key
    arrays = shared.obtain(
        folder,
        lambda: _load(folder),
        lambda: _save(folder, tokenise(rows, tokenizer, max_length)),
        waiting="another run is tokenising the same rows",
    )
    return Encoded(**arrays, pad_id=tokenizer.pad_token_id)


def tokenised(rows: TextRows, tokenizer: PreTrainedTokenizerBase, *, max_length: int) -> Encoded:
    """Tokenise a few rows without the cache; see `encode`."""
    return Encoded(**tokenise(rows, tokenizer, max_length), pad_id=tokenizer.pad_token_id)


def tokenise(
    rows: TextRows, tokenizer: PreTrainedTokenizerBase, max_length: int
) -> dict[str, np.ndarray]:
    """Return the arrays of `Encoded` for some rows.

    Raises:
        BadInput: see `encode`.
    """
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
    with (
        full_disk.full_disk_told(folder.parent, "give a larger disk (cache_dir=DIR)"),
        files.folder_aside(folder) as aside,
    ):
        for name, array in arrays.items():
            np.save(aside / f"{name}.npy", array)
        files.write_json(aside / "meta.json", {"files": _hashes(aside)})
        files.put_folder(aside, folder)


def _load(folder: Path) -> dict[str, np.ndarray] | None:
    """Return the cached arrays; None where an earlier version left them, without these hashes.

    Raises:
        Damaged: they are not what was written.
    """
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        hashes = _hashes(folder)
    except (OSError, ValueError):
        meta, hashes = None, {}
    if isinstance(meta, dict) and meta.keys() == hashes.keys():
        return None
    if meta != {"files": hashes}:
        raise shared.Damaged(f"the stored tokens {folder.name} are damaged and are made again")
    return {name: np.load(folder / f"{name}.npy") for name in hashes}


def _hashes(folder: Path) -> dict[str, str]:
    return {
        name: files.content_hash(folder / f"{name}.npy") for name in ("ids", "types", "offsets")
    }


def _checksum(array: np.ndarray) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()
