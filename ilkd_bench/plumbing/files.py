"""Files that are whole or absent, hashes, and locks that die with their process."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

log = logging.getLogger(__name__)


def write_text(path: Path, text: str) -> None:
    """Write a file aside, flush it to the disk and rename it, so that no reader sees a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON; NaN and infinity are errors, since no JSON reader must take them."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")


def digest(value: Any) -> str:
    """Return a hash of a JSON-like value that does not depend on key order or on 1 versus 1.0."""
    text = json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: Any) -> Any:
    if isinstance(value, str):  # most are: ten thousand records are read in seconds
        return value
    if isinstance(value, dict):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def file_hash(path: Path, cache_dir: Path) -> str:
    """Return the SHA-256 of a file's content, remembered by path, size and modification time."""
    stat = path.stat()
    key = digest([str(path.resolve()), stat.st_size, stat.st_mtime_ns])
    remembered = cache_dir / "hashes" / key
    if remembered.is_file():
        return remembered.read_text(encoding="utf-8")
    with path.open("rb") as file:
        value = hashlib.file_digest(file, "sha256").hexdigest()
    write_text(remembered, value)
    return value


class Held(Exception):
    """Another process holds the lock."""


@contextmanager
def locked(folder: Path, waiting: str, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a folder, which need not exist; the lock dies with its process.

    Args:
        waiting: what to say while another process holds it.
        wait: for the other process; else `Held` is raised.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(_lock_path(folder))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if not wait:
            raise Held(waiting) from None
        log.info("waiting: %s", waiting)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _lock_path(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.lock")


def held(folder: Path) -> bool:
    """Tell whether a process holds the lock of a folder; true also where that cannot be told."""
    path = _lock_path(folder)
    if not path.exists():
        return False
    try:
        with FileLock(path).acquire(timeout=0):
            return False
    except OSError:  # Timeout: it is held; or somebody else's file, which we may not open
        return True
