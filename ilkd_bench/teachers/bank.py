"""Banks: what frozen teachers show for the rows of a split, computed once and kept on disk.

A bank is a folder `cache_dir/banks/<key>/` with an array per field, `logits.npy` [N, C] in float32,
`cls.npy` and `mean.npy` [N, L+1, H], and `meta.json` with what they are, sizes and checksums. It is
written aside and renamed when it is whole. No torch here.

`ilkd-bench banks` lists the banks of a cache folder and removes old ones.
"""

from __future__ import annotations

import json
import logging
import math
import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib.format import open_memmap
from rich.filesize import decimal

from ilkd_bench.plumbing.command import line
from ilkd_bench.plumbing.files import Held, file_hash, locked, put_folder, write_json
from ilkd_bench.types import BadInput

log = logging.getLogger(__name__)

FORMAT = 1
"""Version of the layout; part of every key."""

Shapes = Mapping[str, tuple[tuple[int, ...], str]]
"""Field -> (shape, the name of its dtype). The first axis is the rows of the split."""

DAY = 24 * 60 * 60


class Draft:
    """A bank being written. What was flushed survives a kill, and the next draft goes on from it.

    Args:
        folder: where it grows, aside from the finished bank.
        shapes: of its arrays.
    """

    def __init__(self, folder: Path, shapes: Shapes) -> None:
        self._folder = folder
        self._shapes: dict[str, list[Any]] = {n: [list(s), d] for n, (s, d) in shapes.items()}
        self._files: dict[str, int] = {}
        self._places: dict[str, tuple[int, int]] = {}  # where the data starts, bytes of a row
        self.done = self._progress()
        """Rows that were written and flushed, in the order of whoever fills the draft."""
        for name, (shape, dtype) in shapes.items():
            path = folder / f"{name}.npy"
            array = open_memmap(path, "r+" if self.done else "w+", dtype, shape)
            self._places[name] = (array.offset, array.nbytes // shape[0])
            del array
            self._files[name] = os.open(path, os.O_RDWR)
            if hasattr(os, "posix_fallocate"):  # not on macOS
                os.posix_fallocate(self._files[name], 0, path.stat().st_size)

    def _progress(self) -> int:
        try:
            progress = json.loads((self._folder / "progress.json").read_text(encoding="utf-8"))
            whole = progress["shapes"] == self._shapes
            sizes = {n: (self._folder / f"{n}.npy").stat().st_size for n in self._shapes}
            if whole and progress["sizes"] == sizes:
                return int(progress["done"])
        except (OSError, ValueError, KeyError, TypeError):
            pass  # nothing usable was left behind
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)
        return 0

    def write(self, rows: np.ndarray, values: Mapping[str, np.ndarray]) -> None:
        """Write some rows of every array; memory use does not grow with what is written.

        Raises:
            BadInput: a value is beyond the range of the array's dtype.
        """
        for name, file in self._files.items():
            start, width = self._places[name]
            dtype = self._shapes[name][1]
            with np.errstate(over="ignore"):
                converted = np.ascontiguousarray(values[name]).astype(dtype)
            if not np.isfinite(converted).all():
                shutil.rmtree(self._folder)
                wider = "" if dtype == "float32" else "bank_dtype=float32 or "
                raise BadInput(f"the teacher's {name} is not finite in {dtype}: {wider}bank=off")
            for row, value in zip(rows.tolist(), converted, strict=True):
                os.pwrite(file, value.data, start + row * width)

    def flush(self, done: int) -> None:
        """Note that `done` rows are safe on the disk."""
        for file in self._files.values():
            os.fsync(file)
        sizes = {name: os.fstat(file).st_size for name, file in self._files.items()}
        progress = {"done": done, "shapes": self._shapes, "sizes": sizes}
        write_json(self._folder / "progress.json", progress)
        self.done = done

    def close(self) -> None:
        """Close the files."""
        for file in self._files.values():
            os.close(file)
        self._files = {}


def size(shapes: Shapes) -> int:
    """Return the bytes that arrays of these shapes take on the disk."""
    return sum(math.prod(shape) * np.dtype(dtype).itemsize for shape, dtype in shapes.values())


def obtain(
    folder: Path,
    shapes: Shapes,
    about: Mapping[str, Any],
    fill: Callable[[Draft], None],
    *,
    cache_dir: Path,
) -> dict[str, np.ndarray]:
    """Return the arrays of a bank, memory-mapped, building it first where it is not whole.

    Whoever comes second waits for the first; the lock dies with the process that holds it.

    Args:
        about: what a person wants to know of it: teacher, epoch (None: the best), task, split.
        fill: writes all rows, less the first `draft.done` of its order.

    Raises:
        BadInput: there is too little space on the disk.
    """
    moment = f" after epoch {about['epoch']}" if about["epoch"] is not None else ""
    what = f"the bank of {about['teacher']}{moment} on {about['split']}"
    with locked(folder, f"another run is building {what}"):
        if not _whole(folder, shapes, cache_dir):
            _build(folder, shapes, about, fill, what, cache_dir)
        (folder / "used").touch()
        return {name: np.load(folder / f"{name}.npy", mmap_mode="r") for name in shapes}


def _whole(folder: Path, shapes: Shapes, cache_dir: Path) -> bool:
    """Tell whether a bank is there and undamaged."""
    if not folder.is_dir():
        return False
    try:
        meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
        facts = _files(folder, shapes, cache_dir)
    except (OSError, ValueError):
        meta, facts = {}, {}
    if facts and isinstance(meta, dict) and meta.get("files") == facts:
        return True
    log.warning("the bank %s is damaged and is built again", folder.name)
    return False


def _files(folder: Path, shapes: Shapes, cache_dir: Path) -> dict[str, dict[str, Any]]:
    paths = {name: folder / f"{name}.npy" for name in shapes}
    return {
        name: {"bytes": path.stat().st_size, "sha256": file_hash(path, cache_dir)}
        for name, path in paths.items()
    }


def _build(
    folder: Path,
    shapes: Shapes,
    about: Mapping[str, Any],
    fill: Callable[[Draft], None],
    what: str,
    cache_dir: Path,
) -> None:
    aside = folder.with_name(f".{folder.name}")
    needed, rows = size(shapes), next(iter(shapes.values()))[0][0]
    there = sum(f.stat().st_blocks * 512 for f in aside.glob("*.npy"))
    free = shutil.disk_usage(folder.parent).free
    log.info(
        "building %s: %d rows, %s on disk, %s free", what, rows, decimal(needed), decimal(free)
    )
    if needed - there > free:
        raise BadInput(
            f"{what} needs {decimal(needed)} in {folder.parent}, which has {decimal(free)} free: "
            f"remove old ones ({line('banks', 'prune', '--older-than', 'DAYS')}), give a larger "
            "disk (cache_dir=DIR), or run the teacher at every step (bank=off)"
        )
    draft = Draft(aside, shapes)
    try:
        if draft.done:
            log.info("going on with %s: %d rows are there", what, draft.done)
        fill(draft)
    finally:
        draft.close()
    (aside / "progress.json").unlink(missing_ok=True)
    meta = {"format": FORMAT, "rows": rows, "files": _files(aside, shapes, cache_dir)}
    write_json(aside / "meta.json", dict(about) | meta)
    (aside / "used").touch()
    put_folder(aside, folder)


# ------------------------------------------------------------------------------- of a cache folder


@dataclass(frozen=True)
class Entry:
    """A bank as the command lists it."""

    folder: Path
    bytes: int
    built: float  # seconds since 1970
    used: float
    about: dict[str, Any]  # empty: half-built or damaged

    @property
    def key(self) -> str:
        """Its name, also while it is half-built."""
        return self.folder.name.removeprefix(".")


def entries(cache_dir: Path) -> Iterator[Entry]:
    """Yield the banks of a cache folder, half-built ones too, last used first."""
    root = cache_dir / "banks"
    folders = [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []
    banks = [entry for entry in map(_entry, folders) if entry is not None]
    yield from sorted(banks, key=lambda entry: (-entry.used, entry.key))


def _entry(folder: Path) -> Entry | None:
    """Return what is in a folder; None if it is gone by now."""
    try:
        files = {path.name: path.stat() for path in folder.iterdir() if path.is_file()}
        changed = max((s.st_mtime for s in files.values()), default=folder.stat().st_mtime)
    except FileNotFoundError:  # renamed or removed meanwhile
        return None
    try:
        about = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        about = {}
    if not isinstance(about, dict) or not isinstance(about.get("files"), dict):
        about = {}
    size = sum(stat.st_blocks * 512 for stat in files.values())
    built, used = (
        files[name].st_mtime if about and name in files else changed
        for name in ("meta.json", "used")
    )
    return Entry(folder, size, built, used, about)


def prune(
    cache_dir: Path, *, older_than: float | None, max_size: float | None, now: float
) -> list[Entry]:
    """Remove banks and return them; those that a run is building stay.

    Args:
        older_than: days since the last use beyond which a bank goes; None: any age may stay.
        max_size: bytes that the others may take, the last used first; None: any size.
        now: seconds since 1970.
    """
    banks = list(entries(cache_dir))
    total, removed = sum(bank.bytes for bank in banks), []
    for bank in reversed(banks):
        old = older_than is not None and now - bank.used > older_than * DAY
        if (old or (max_size is not None and total > max_size)) and _remove(bank):
            removed.append(bank)
            total -= bank.bytes
    return removed


def _remove(bank: Entry) -> bool:
    try:
        with locked(bank.folder.with_name(bank.key), "", wait=False):
            shutil.rmtree(bank.folder, ignore_errors=True)  # another prune may be first
    except Held:
        log.warning("%s is being built and stays", bank.key)
        return False
    return True
