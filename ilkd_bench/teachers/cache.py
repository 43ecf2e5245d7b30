"""What lies in a folder of caches: teachers, banks, tokens, converted models, halves, hashes.

`ilkd-bench banks` lists it and removes what is old.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ilkd_bench.plumbing import shared

log = logging.getLogger(__name__)

DAY = 24 * 60 * 60

KINDS = {"banks": "bank", "teachers": "teacher", "tokens": "tokens", "models": "converted model"}
"""Folder of a cache folder -> what each folder in it is."""

DESCRIPTIONS = ("meta.json", "teacher.json", "converted.json")
"""Files that are written last, and say what a folder holds."""

OLD_TOKENS = {"ids", "types", "offsets"}
"""What the description of tokens had in an earlier version: a checksum of each array."""

HALVES: dict[str, dict[str | None, str]] = {
    "banks": {None: "half-built bank"},
    "teachers": {"best": "half-trained teacher", "snapshots": "half-trained teacher"},
    "tokens": {},
    "models": {},
}
"""Folder -> the parts beside a key (None: `.KEY` itself) that the next run goes on with."""

HIDDEN = re.compile(r"\.(?P<key>.+?)(\.(?P<part>best|snapshots|gone|\d+))?")
"""`.KEY` or `.KEY.PART`."""


@dataclass(frozen=True)
class Entry:
    """What the command lists in a line."""

    kind: str
    key: str
    folder: Path
    bytes: int
    built: float  # seconds since 1970
    used: float
    about: dict[str, Any]  # of a bank: teacher, epoch, task, split, rows, files


def entries(cache_dir: Path) -> Iterator[Entry]:
    """Yield what is in a folder of caches, last used first."""
    found = [
        entry
        for name in KINDS
        for folder in _folders(cache_dir / name)
        if (entry := _entry(name, folder)) is not None
    ]
    hashes = cache_dir / "hashes"
    if hashes.is_dir() and (entry := _sized("hashes", "hashes", hashes, {})) is not None:
        found.append(entry)
    yield from sorted(found, key=lambda entry: (-entry.used, entry.key))


def _folders(root: Path) -> list[Path]:
    return [path for path in root.iterdir() if path.is_dir()] if root.is_dir() else []


def _entry(name: str, folder: Path) -> Entry | None:
    """Return what is in a folder; None if it is gone by now."""
    hidden = HIDDEN.fullmatch(folder.name)
    if hidden is not None:
        kind = HALVES[name].get(hidden["part"], "leftover")
        return _sized(kind, hidden["key"], folder, {})
    about = _about(folder)
    kind = KINDS[name] if about else f"damaged {KINDS[name]}"
    return _sized(kind, folder.name, folder, about)


def _about(folder: Path) -> dict[str, Any]:
    """Return what a folder says of itself; empty where that is nothing that we wrote."""
    for name in DESCRIPTIONS:
        try:
            about = json.loads((folder / name).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            continue
        if isinstance(about, dict) and (
            isinstance(about.get("files"), dict) or about.keys() == OLD_TOKENS
        ):
            return about
    return {}


def _sized(kind: str, key: str, folder: Path, about: dict[str, Any]) -> Entry | None:
    try:
        files = {path: path.stat() for path in folder.rglob("*") if path.is_file()}
        changed = max((s.st_mtime for s in files.values()), default=folder.stat().st_mtime)
    except FileNotFoundError:  # renamed or removed meanwhile
        return None
    size = sum(stat.st_blocks * 512 for stat in files.values())
    written = [files[folder / name].st_mtime for name in DESCRIPTIONS if folder / name in files]
    used = files.get(folder / shared.USED)
    return Entry(
        kind,
        key,
        folder,
        size,
        built=written[0] if about and written else changed,
        used=used.st_mtime if about and used else changed,
        about=about if kind == "bank" else {},
    )


def prune(
    cache_dir: Path, *, older_than: float | None, max_size: float | None, now: float
) -> list[Entry]:
    """Remove entries and return them; what a process makes or uses stays.

    Args:
        older_than: days since the last use beyond which one goes; None: any age may stay.
        max_size: bytes that the others may take, the last used first; None: any size.
        now: seconds since 1970.
    """
    found = list(entries(cache_dir))
    total, removed = sum(entry.bytes for entry in found), []
    for entry in reversed(found):
        old = older_than is not None and now - entry.used > older_than * DAY
        if (old or (max_size is not None and total > max_size)) and shared.discard(
            entry.folder, entry.key
        ):
            removed.append(entry)
            total -= entry.bytes
    return removed
