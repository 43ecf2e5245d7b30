"""Folders that are made once and then shared by all processes, until somebody removes them.

A folder `KEY` has beside it `.KEY.lock`, held by whoever makes or removes it, and half of it as
`.KEY` or `.KEY.PART`; and in it a file `used`, whose time is that of the last use, and on which
whoever uses the folder keeps a shared lock.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from glob import escape
from os.path import samestat
from pathlib import Path
from typing import TypeVar

from ilkd_bench.plumbing.files import Held, locked, remove_folder

log = logging.getLogger(__name__)

T = TypeVar("T")

USED = "used"

_in_use: list[dict[Path, int]] = []
"""Of each block that keeps what it obtains: folder -> the open file that carries its lock."""


class Damaged(Exception):
    """What is stored is not what was written; the message says what becomes of it."""


def obtain(
    folder: Path,
    read: Callable[[], T | None],
    make: Callable[[], None],
    *,
    waiting: str,
    half_done: Callable[[T | None], Collection[str]] = lambda value: (),
) -> T:
    """Return what a folder holds, which is made first where it is missing or damaged.

    Whoever comes second waits for the first; the lock dies with the process that holds it. What
    killed processes left beside the folder is removed.

    Args:
        read: returns what is stored; None where that is not there, or less than what is needed.
            It raises `Damaged` where it is not whole.
        make: makes the folder, under its lock.
        waiting: what to say while another process makes it.
        half_done: for what is stored (None: nothing), the parts that may stay beside it.

    Raises:
        Damaged: what was made cannot be read.
    """
    value = _whole(folder, read)
    if value is not None and not _beside(folder, half_done(value)):
        return value
    with locked(folder, waiting):
        try:
            value = _use(folder, read)
        except Damaged as damage:
            log.warning("%s", damage)
            value = None
        if value is None:
            _clear(folder, half_done(None))
            make()
            value = _use(folder, read)
        _clear(folder, half_done(value))
    if value is None:
        raise Damaged(f"{folder} was made, and is not there")
    return value


def _whole(folder: Path, read: Callable[[], T | None]) -> T | None:
    try:
        return _use(folder, read)
    except Damaged:  # said under the lock, where it is made again
        return None


def _beside(folder: Path, kept: Collection[str]) -> list[Path]:
    """Return what lies beside a folder and is no half of it that may be gone on with."""
    known = {f".{folder.name}.{part}" for part in ("lock", *kept)}
    beside = folder.parent.glob(f".{escape(folder.name)}.*")
    return sorted(path for path in beside if path.name not in known)


def _clear(folder: Path, kept: Collection[str]) -> None:
    """Remove what killed processes left beside a folder and in it; its lock is held."""
    for path in _beside(folder, kept):
        remove(path)
    for path in sorted(folder.rglob(".*")):
        remove(path)


def remove(path: Path) -> None:
    """Remove a file, or a folder with all that is in it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


# -------------------------------------------------------------------------------------- who uses it


@contextmanager
def kept_until_the_end() -> Iterator[None]:
    """Keep whatever is obtained inside from being removed, to the end of the block."""
    _in_use.append({})
    try:
        yield
    finally:
        for file in _in_use.pop().values():
            os.close(file)


def _use(folder: Path, read: Callable[[], T | None]) -> T | None:
    """Return what is read from a folder that nobody can remove meanwhile; None if it is gone."""
    kept = _in_use[-1] if _in_use else {}
    path, before = folder / USED, kept.pop(folder, None)
    if before is not None and not (path.exists() and samestat(os.fstat(before), path.stat())):
        os.close(before)  # of a folder that was here before
        before = None
    file = _open(path) if before is None else before  # closing a second one gives up the lock
    if file is None:
        return None
    os.utime(file)
    if _in_use:
        kept[folder] = file
        return read()
    try:
        return read()
    finally:
        os.close(file)


def _open(path: Path) -> int | None:
    """Return an open file that carries a shared lock; None if its folder is gone."""
    try:
        file = os.open(path, os.O_RDWR | os.O_CREAT, 0o666)
    except (FileNotFoundError, NotADirectoryError):
        return None
    fcntl.lockf(file, fcntl.LOCK_SH)  # waits for whoever is removing it
    if os.fstat(file).st_nlink == 0:
        os.close(file)
        return None
    return file


@contextmanager
def unused(folder: Path, key: str) -> Iterator[None]:
    """Hold a folder that nobody uses or makes, to remove it.

    Args:
        key: of what the folder is, or is half of.

    Raises:
        Held: another process is at it.
    """
    with locked(folder.with_name(key), f"{key} is in use", wait=False):
        try:
            file = os.open(folder / USED, os.O_RDWR)
        except (FileNotFoundError, NotADirectoryError):
            yield
            return
        try:
            try:
                fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except (BlockingIOError, PermissionError):
                raise Held(f"{key} is in use") from None
            yield
        finally:
            os.close(file)


def discard(folder: Path, key: str) -> bool:
    """Remove a folder, half of one, or what was left of one, unless a process is at it."""
    try:
        with unused(folder, key):
            if folder.name == key:
                remove_folder(folder)
            else:
                remove(folder)
    except Held as reason:
        log.warning("%s and stays", reason)
        return False
    return True
