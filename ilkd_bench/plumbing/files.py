"""Files and folders that are whole or absent, hashes, and locks that die with their process."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

log = logging.getLogger(__name__)


# --------------------------------------------------------------------------------- whole or absent
#
# One rule: what counts is made aside, flushed to the disk, and then renamed. Whoever reads, also
# after a kill or a power cut, finds the new content, or what was there before, and never a part.


def _aside(path: Path) -> Path:
    return path.with_name(f".{path.name}.{os.getpid()}")


def _flush(path: Path) -> None:
    file = os.open(path, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a place aside for the content of a file, which gets its name at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = _aside(path)
    try:
        yield aside
        _flush(aside)
        os.replace(aside, path)
    except OSError as error:
        if error.filename in (None, str(aside)):  # None: the disk is full
            error.filename = str(path)
        raise
    finally:
        aside.unlink(missing_ok=True)


def write_bytes(path: Path, content: bytes) -> None:
    """Write a file so that no reader sees a part of it."""
    with whole_file(path) as aside:
        aside.write_bytes(content)


def write_text(path: Path, text: str) -> None:
    """Write a file in UTF-8 so that no reader sees a part of it."""
    write_bytes(path, text.encode())


@contextmanager
def folder_aside(folder: Path) -> Iterator[Path]:
    """Yield an empty folder beside another one, and remove it at the end if it is there still."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    aside = _aside(folder)
    shutil.rmtree(aside, ignore_errors=True)  # of a killed process that had this number
    aside.mkdir()
    try:
        yield aside
    finally:
        shutil.rmtree(aside, ignore_errors=True)


def put_folder(aside: Path, folder: Path) -> None:
    """Give a folder that was made aside its name; what had the name goes."""
    for path in aside.rglob("*"):
        if path.is_file():
            _flush(path)
    remove_folder(folder)
    try:
        os.replace(aside, folder)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        remove_folder(folder)  # that another process has put there meanwhile
        os.replace(aside, folder)


def remove_folder(folder: Path) -> None:
    """Remove a folder at once: a kill in between leaves no half of it under its name."""
    gone = folder.with_name(f".{folder.name}.gone")
    shutil.rmtree(gone, ignore_errors=True)
    if folder.is_dir():
        try:
            os.replace(folder, gone)
        except OSError:  # another process is at it
            shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(gone, ignore_errors=True)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON; NaN and infinity are errors, since no JSON reader must take them."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")


# ------------------------------------------------------------------------------------------- hashes


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


# -------------------------------------------------------------------------------------------- locks


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
