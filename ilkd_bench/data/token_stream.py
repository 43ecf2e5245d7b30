"""A corpus as token numbers on disk, made and read in pieces: memory stays as it is at any size."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ilkd_bench.data.corpus import Corpus, Text, batched
from ilkd_bench.data.tasks import TextRows
from ilkd_bench.data.tokens import Encoded, tokenise, tokenizer_fingerprint
from ilkd_bench.plumbing import files, shared
from ilkd_bench.plumbing.files import digest
from ilkd_bench.plumbing.full_disk import full_disk_told
from ilkd_bench.plumbing.terminal import count

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

AT_ONCE = 2000
"""Texts that are in memory together."""

KINDS: dict[str, np.dtype[Any]] = {
    "ids": np.dtype(np.int32),
    "types": np.dtype(np.int8),
    "lengths": np.dtype(np.int64),
}


def encode_corpus(
    corpus: Corpus,
    tokenizer: PreTrainedTokenizerBase,
    *,
    about: Any,
    max_length: int,
    cache_dir: Path,
) -> tuple[Encoded, int]:
    """Tokenise a corpus, or open what was made of it before.

    Args:
        about: what identifies the texts, as `Corpus.fingerprint` gives it.

    Returns:
        The token numbers, which stay on the disk, and how many of the texts are pairs.

    Raises:
        BadInput: the corpus cannot be read.
    """
    key = digest([about, tokenizer_fingerprint(tokenizer), max_length])[:20]
    folder = cache_dir / "tokens" / key
    found = shared.obtain(
        folder,
        lambda: _load(folder),
        lambda: _save(folder, corpus.texts(), tokenizer, max_length),
        waiting="another run is tokenising the same corpus",
    )
    arrays = {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in KINDS}
    offsets = np.concatenate([[0], np.cumsum(arrays["lengths"])])
    encoded = Encoded(arrays["ids"], arrays["types"], offsets, tokenizer.pad_token_id)
    return encoded, found["pairs"]


def _save(
    folder: Path, texts: Iterator[Text], tokenizer: PreTrainedTokenizerBase, max_length: int
) -> None:
    with (
        full_disk_told(folder.parent, "give a larger disk (cache_dir=DIR)"),
        files.folder_aside(folder) as aside,
    ):
        pairs = 0
        with count("reading the corpus") as counted:
            for some in batched(texts, AT_ONCE):
                for kind in (1, 2):
                    rows = [text for text in some if len(text) == kind]
                    if rows:
                        _append(aside, rows, tokenizer, max_length)
                pairs += sum(len(text) == 2 for text in some)
                counted(len(some))
        for name, dtype in KINDS.items():
            _with_header(aside / f"{name}.raw", dtype)
        files.write_json(aside / "meta.json", {"files": _hashes(aside), "pairs": pairs})
        files.put_folder(aside, folder)


def _append(
    folder: Path, texts: Sequence[Text], tokenizer: PreTrainedTokenizerBase, max_length: int
) -> None:
    """Append some texts, all single or all pairs, to the arrays of a folder."""
    nothing = np.zeros(len(texts))
    rows = TextRows([list(column) for column in zip(*texts, strict=True)], nothing, nothing)
    arrays = tokenise(rows, tokenizer, max_length)
    arrays["lengths"] = np.diff(arrays.pop("offsets"))
    for name, dtype in KINDS.items():
        with (folder / f"{name}.raw").open("ab") as file:
            file.write(arrays[name].astype(dtype).tobytes())


def _with_header(raw: Path, dtype: np.dtype[Any]) -> None:
    """Make a npy file of the bytes of an array; there may be none."""
    raw.touch()
    about = {
        "descr": dtype.str,
        "fortran_order": False,
        "shape": (raw.stat().st_size // dtype.itemsize,),
    }
    with raw.open("rb") as source, raw.with_suffix(".npy").open("wb") as target:
        np.lib.format.write_array_header_2_0(target, about)
        shutil.copyfileobj(source, target)
    raw.unlink()


def _load(folder: Path) -> dict[str, Any] | None:
    """Return what is known of stored texts.

    Raises:
        Damaged: they are not what was written.
    """
    if not (folder / "meta.json").exists():
        return None
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        whole = meta["files"] == _hashes(folder) and isinstance(meta["pairs"], int)
    except (OSError, ValueError, TypeError, KeyError):
        whole = False
    if not whole:
        raise shared.Damaged(f"the stored tokens {folder.name} are damaged and are made again")
    known: dict[str, Any] = meta
    return known


def _hashes(folder: Path) -> dict[str, str]:
    return {name: files.content_hash(folder / f"{name}.npy") for name in KINDS}
