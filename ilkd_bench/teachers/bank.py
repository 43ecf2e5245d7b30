"""Banks: what frozen teachers show for the rows of a split, computed once and kept on disk.

A bank is a folder `cache_dir/banks/<key>/` with an array per field, `logits.npy` [N, C] in float32,
`cls.npy` and `mean.npy` [N, L+1, H], and `meta.json` with what they are, sizes and checksums. Of
tokens it has `hidden.npy`, `queries.npy`, `keys.npy` and `values.npy` [tokens, K, H] of K layers,
the real tokens of all rows end to end. It is written aside and renamed when it is whole. No torch
here.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
from numpy.lib import format as npy
from rich.filesize import decimal

from ilkd_bench.plumbing import shared
from ilkd_bench.plumbing.command import line
from ilkd_bench.plumbing.files import content_hash, put_folder, seal, write_json
from ilkd_bench.plumbing.full_disk import NoSpace, full_disk_told
from ilkd_bench.types import BadInput

log = logging.getLogger(__name__)

FORMAT = 1
"""Version of the layout; part of every key."""

Shapes = Mapping[str, tuple[tuple[int, ...], str]]
"""Field -> (shape, the name of its dtype). The first axis is the rows of the split, or all their
tokens; the first field is one of rows."""

Offsets = Mapping[str, np.ndarray]
"""Of each field whose first axis is tokens: [N+1], row i is there from `[i]` up to `[i + 1]`."""

ORDER = "rows.bin"
"""Of a draft: the numbers of the rows that were written, in this order."""

KINDS = {"NaN": np.isnan, "infinite numbers": np.isinf}
"""What is no finite number."""

MORE_ROOM = (
    f"remove what is old ({line('banks', 'prune', '--older-than', 'DAYS')}), or give a larger disk "
    "(cache_dir=DIR)"
)
"""What to do where the disk of the caches is full."""


class Draft:
    """A bank being written. What was flushed survives a kill, and the next draft goes on from it.

    Beside the arrays, `rows.bin` has the rows in the order in which they were written, and
    `progress.json` a hash of the values of every piece between two flushes.

    Args:
        folder: where it grows, aside from the finished bank.
        shapes: of its arrays.
        whose: the teacher, for messages.
        offsets: of those that are tokens.
    """

    def __init__(
        self,
        folder: Path,
        shapes: Shapes,
        *,
        whose: str = "the teacher",
        offsets: Offsets = MappingProxyType({}),
    ) -> None:
        self._folder = folder
        self._whose = whose
        self._offsets = offsets
        self._shapes: dict[str, list[Any]] = {n: [list(s), d] for n, (s, d) in shapes.items()}
        self._files: dict[str, int] = {}
        self._places: dict[str, tuple[int, int]] = {}  # where the data starts, bytes of a row
        self._pieces: list[dict[str, Any]] = []
        self.done = self._progress()
        """Rows that were written and flushed, in the order of whoever fills the draft."""
        for name, (shape, dtype) in shapes.items():
            header, width = _header(shape, dtype), size({name: (shape[1:], dtype)})
            self._places[name] = (len(header), width)
            self._files[name] = os.open(folder / f"{name}.npy", os.O_RDWR | os.O_CREAT, 0o666)
            os.pwrite(self._files[name], header, 0)
            length = len(header) + shape[0] * width
            os.truncate(self._files[name], length)
            if hasattr(os, "posix_fallocate"):  # not on macOS
                os.posix_fallocate(self._files[name], 0, length)
        self._order = os.open(folder / ORDER, os.O_RDWR | os.O_CREAT, 0o666)
        self._begin_piece()

    def _progress(self) -> int:
        try:
            progress = json.loads((self._folder / "progress.json").read_text(encoding="utf-8"))
            sizes = {n: (self._folder / f"{n}.npy").stat().st_size for n in self._shapes}
            if (
                progress == seal(progress)
                and progress["shapes"] == self._shapes
                and progress["sizes"] == sizes
                and all(piece["sha256"] == found for piece, found in self._stored(progress))
            ):
                self._pieces = progress["pieces"]
                return int(progress["done"])
            log.warning("the half-built bank %s is damaged and is begun again", self._folder.name)
        except (OSError, ValueError, KeyError, TypeError, AttributeError, IndexError):
            pass  # nothing usable was left behind
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        return 0

    def _stored(self, progress: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, str]]]:
        """Yield each piece that was flushed, and the hashes of what is on the disk of it."""
        order = np.fromfile(self._folder / ORDER, np.int64)
        arrays = {
            n: np.memmap(self._folder / f"{n}.npy", d, "r", len(_header(s, d)), tuple(s))
            for n, (s, d) in self._shapes.items()
        }
        start = 0
        for piece in progress["pieces"]:
            rows = order[start : start + piece["rows"]]
            start += piece["rows"]
            found = {name: hashlib.sha256() for name in (ORDER, *arrays)}
            found[ORDER].update(rows.data)
            for name, array in arrays.items():
                for first, end in self._extents(name, rows):
                    found[name].update(array[first:end].data)
            yield piece, {name: content.hexdigest() for name, content in found.items()}

    def _extents(self, name: str, rows: np.ndarray) -> list[tuple[int, int]]:
        """Return where each of some rows begins and ends on the first axis of an array."""
        offsets = self._offsets.get(name)
        first, end = (rows, rows + 1) if offsets is None else (offsets[rows], offsets[rows + 1])
        return list(zip(first.tolist(), end.tolist(), strict=True))

    def _begin_piece(self) -> None:
        self._rows = 0
        self._hashes = {name: hashlib.sha256() for name in (ORDER, *self._shapes)}

    def write(self, rows: np.ndarray, values: Mapping[str, np.ndarray]) -> None:
        """Write some rows of every array; memory use does not grow with what is written.

        Args:
            values: by field, the rows end to end.

        Raises:
            BadInput: a value is no finite number, or beyond the range of the array's dtype.
        """
        for name, file in self._files.items():
            start, width = self._places[name]
            dtype = self._shapes[name][1]
            with np.errstate(over="ignore"):
                converted = np.ascontiguousarray(values[name]).astype(dtype)
            if not np.isfinite(converted).all():
                shutil.rmtree(self._folder)
                raise BadInput(not_finite(self._whose, name, values[name], dtype))
            extents = self._extents(name, rows)
            expected = (sum(end - first for first, end in extents), *self._shapes[name][0][1:])
            if converted.shape != expected:
                raise ValueError(f"{name}: {converted.shape} was given for {expected}")
            place = 0
            for first, end in extents:
                value = converted[place : place + end - first]
                os.pwrite(file, value.data, start + first * width)
                place += end - first
            self._hashes[name].update(converted.data)
        order = np.ascontiguousarray(rows, dtype=np.int64)
        end = sum(piece["rows"] for piece in self._pieces) + self._rows
        os.pwrite(self._order, order.data, end * order.itemsize)
        self._hashes[ORDER].update(order.data)
        self._rows += len(order)

    def flush(self, done: int) -> None:
        """Note that `done` rows are safe on the disk."""
        for file in (*self._files.values(), self._order):
            os.fsync(file)
        sizes = {name: os.fstat(file).st_size for name, file in self._files.items()}
        hashes = {name: content.hexdigest() for name, content in self._hashes.items()}
        self._pieces.append({"rows": self._rows, "sha256": hashes})
        progress = {"done": done, "shapes": self._shapes, "sizes": sizes, "pieces": self._pieces}
        write_json(self._folder / "progress.json", seal(progress))
        self.done = done
        self._begin_piece()

    def close(self) -> None:
        """Close the files."""
        for file in (*self._files.values(), self._order):
            os.close(file)
        self._files = {}


def _header(shape: Sequence[int], dtype: str) -> bytes:
    """Return how numpy's file of an array begins."""
    content = io.BytesIO()
    descr = npy.dtype_to_descr(np.dtype(dtype))
    about = {"descr": descr, "fortran_order": False, "shape": tuple(shape)}
    npy.write_array_header_1_0(content, about)
    return content.getvalue()


def not_finite(whose: str, name: str, values: np.ndarray, dtype: str) -> str:
    """Return what is wrong with values that are not finite once they have a dtype."""
    if np.isfinite(values).all():
        most, limit = np.abs(values).max(), np.finfo(dtype).max
        return (
            f"{whose}'s {name} is not finite in {dtype}: it reaches {most:.3g}, and {dtype} ends "
            f"at {limit:.3g}. Type bank_dtype=float32 or bank=off"
        )
    kinds = [kind for kind, test in KINDS.items() if test(values).any()]
    return (
        f"{whose} answers with {' and '.join(kinds)} ({name}): its weights are broken, or its "
        "training has diverged. Give another teacher.checkpoint=, or a lower teacher.recipe.lr="
    )


def size(shapes: Shapes) -> int:
    """Return the bytes that arrays of these shapes take on the disk."""
    return sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in shapes.values())


class NoRoom(BadInput):
    """The disk has no room for a bank."""


@contextmanager
def _room(draft: Path, share: float) -> Iterator[None]:
    """Give a draft up that may only have a part of the disk, and finds it full.

    Raises:
        NoRoom: that is so.
    """
    try:
        yield
    except NoSpace as error:
        if share == 1:
            raise
        shutil.rmtree(draft, ignore_errors=True)
        raise NoRoom(str(error)) from error


def obtain(
    folder: Path,
    shapes: Shapes,
    about: Mapping[str, Any],
    fill: Callable[[Draft], None],
    *,
    offsets: Offsets = MappingProxyType({}),
    share: float = 1,
) -> dict[str, np.ndarray]:
    """Return the arrays of a bank, memory-mapped, building it first where it is not whole.

    Every file is read once in a process, and compared with the hash of what was written.

    Args:
        about: what a person wants to know of it: teacher, epoch (None: the best), task, split.
        fill: writes all rows, less the first `draft.done` of its order.
        offsets: of the fields whose first axis is tokens.
        share: of the free disk that it may take.

    Raises:
        NoRoom: there is too little space on the disk.
        BadInput: the teacher's values are not finite.
    """
    moment = f" after epoch {about['epoch']}" if about["epoch"] is not None else ""
    what = f"the bank of {about['teacher']}{moment} on {about['split']}"
    return shared.obtain(
        folder,
        lambda: _read(folder, shapes),
        lambda: _build(folder, shapes, about, fill, what, offsets, share),
        waiting=f"another run is building {what}",
    )


def _read(folder: Path, shapes: Shapes) -> dict[str, np.ndarray]:
    """Return the arrays of a bank.

    Raises:
        Damaged: they are not what was written.
    """
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        facts = _files(folder, shapes)
    except (OSError, ValueError):
        meta, facts = {}, {}
    if not facts or not isinstance(meta, dict) or meta.get("files") != facts:
        raise shared.Damaged(f"the bank {folder.name} is damaged and is built again")
    return {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in shapes}


def _files(folder: Path, shapes: Shapes) -> dict[str, dict[str, Any]]:
    paths = {name: folder / f"{name}.npy" for name in shapes}
    return {
        name: {"bytes": path.stat().st_size, "sha256": content_hash(path)}
        for name, path in paths.items()
    }


def half_built(folder: Path) -> Path:
    """Return where a bank grows."""
    return folder.with_name(f".{folder.name}")


def _build(
    folder: Path,
    shapes: Shapes,
    about: Mapping[str, Any],
    fill: Callable[[Draft], None],
    what: str,
    offsets: Offsets,
    share: float,
) -> None:
    aside = half_built(folder)
    needed, rows = size(shapes), next(iter(shapes.values()))[0][0]
    there = sum(f.stat().st_blocks * 512 for f in aside.glob("*.npy"))
    free = shutil.disk_usage(folder.parent).free
    log.info(
        "building %s: %d rows, %s on disk, %s free", what, rows, decimal(needed), decimal(free)
    )
    if needed - there > share * free:
        part = "" if share == 1 else f", of which it may take {share:.0%}"
        raise NoRoom(
            f"{what} needs {decimal(needed)} in {folder.parent}, which has {decimal(free)} "
            f"free{part}: remove old ones ({line('banks', 'prune', '--older-than', 'DAYS')}), "
            "give a larger disk (cache_dir=DIR), or run the teacher at every step (bank=off)"
        )
    with _room(aside, share), full_disk_told(folder.parent, MORE_ROOM):
        draft = Draft(aside, shapes, whose=f"the teacher {about['teacher']}", offsets=offsets)
        try:
            if draft.done:
                log.info("going on with %s: %d rows are there", what, draft.done)
            fill(draft)
        finally:
            draft.close()
        for path in aside.iterdir():
            if path.suffix != ".npy":  # how far it was, and what a kill left of its writing
                path.unlink()
        meta = {"format": FORMAT, "rows": rows, "files": _files(aside, shapes)}
        write_json(aside / "meta.json", dict(about) | meta)
        put_folder(aside, folder)
