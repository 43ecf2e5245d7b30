"""Files and folders that are whole or absent, hashes, and locks that die with their process."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from ilkd_bench.types import BadInput

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


def follow_umask(path: Path) -> None:
    """Give a file the permissions of any new file; safetensors gives its own to nobody else."""
    if path.stat().st_mode & 0o077:
        return
    probe = _aside(path)
    probe.touch()  # the only way to learn the umask that disturbs no other thread
    try:
        path.chmod(probe.stat().st_mode & 0o777)
    finally:
        probe.unlink()


@contextmanager
def whole_file(path: Path) -> Iterator[Path]:
    """Yield a place aside for the content of a file, which gets its name at the end."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = _aside(path)
    aside.unlink(missing_ok=True)  # of a killed process that had this number, or a link
    try:
        yield aside
        follow_umask(aside)
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
    with whole_file(path) as aside, aside.open("xb") as file:
        file.write(content)


def write_text(path: Path, text: str) -> None:
    """Write a file in UTF-8 so that no reader sees a part of it."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))  # a name may hold half a letter


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
            follow_umask(path)
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


GRAIN = 0.02
"""Seconds within which two changes of a file may get the same time from the system's clock."""

FileHash = Callable[[Path, Path], str]
"""(path, folder of the caches) -> SHA-256 of the file's content."""

_read_here: dict[tuple[int, ...], str] = {}
"""State of a file -> the hash of its content as this process read it."""


def _state(path: Path) -> tuple[int, ...]:
    """Return what no change of a file's content leaves as it is."""
    stat = path.stat()
    age = time.time() - stat.st_ctime
    if 0 <= age < GRAIN:  # a change right after the reading would leave the times as they are
        time.sleep(GRAIN - age)
    return (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)


def content_hash(path: Path) -> str:
    """Return the SHA-256 of a file's content, read once in a process."""
    state = (path.stat().st_dev, *_state(path))
    if state not in _read_here:
        with path.open("rb") as file:
            _read_here[state] = hashlib.file_digest(file, "sha256").hexdigest()
    return _read_here[state]


def file_hash(path: Path, cache_dir: Path) -> str:
    """Return the SHA-256 of a file's content, remembered by path, inode, size and times."""
    return _remembered(_memory(path, cache_dir)) or hash_anew(path, cache_dir)


def hash_anew(path: Path, cache_dir: Path) -> str:
    """Return the SHA-256 of a file's content now, whatever is remembered, and remember it."""
    memory, value = _memory(path, cache_dir), content_hash(path)
    if _remembered(memory) != value:
        with locked(memory.parent, "another process is remembering a hash"):
            for left in memory.parent.glob(".*"):  # by a process that was killed
                left.unlink()
            write_text(memory, f"{value} {digest([memory.name, value])}")
    return value


def verified_hash(path: Path, cache_dir: Path) -> str:
    """Return the SHA-256 of a file's content, read once in a process.

    Raises:
        BadInput: it is not what is remembered, though nobody has written to the file since.
    """
    remembered, value = _remembered(_memory(path, cache_dir)), content_hash(path)
    if remembered is None:
        return hash_anew(path, cache_dir)
    if remembered != value:
        raise BadInput(
            f"{path} is damaged: its content is another one than before, though its size and "
            "times are the same, so it is the disk that has changed it. Put a whole copy in its "
            "place, or type force=true to take it as it is"
        )
    return value


def _memory(path: Path, cache_dir: Path) -> Path:
    return cache_dir / "hashes" / digest([str(path.resolve()), *_state(path)])


def _remembered(memory: Path) -> str | None:
    """Return a remembered hash; None where there is none, or not the one that was written."""
    try:
        content = memory.read_bytes()
    except FileNotFoundError:
        return None
    value, _, check = content.decode(errors="replace").partition(" ")
    return value if check == digest([memory.name, value]) else None


def seal(value: dict[str, Any]) -> dict[str, Any]:
    """Return a JSON-like object with the hash of the rest of it under `seal`."""
    rest = {key: item for key, item in value.items() if key != "seal"}
    return rest | {"seal": digest(rest)}


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
