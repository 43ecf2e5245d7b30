"""Files and folders that are whole or absent, hashes, and locks that die with their process."""

from __future__ import annotations

import errno
import hashlib
import json
import logging
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, Any

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
    aside.unlink(missing_ok=True)  # of a killed process that had this number, or a link
    try:
        yield aside
        _flush(aside)
        os.replace(aside, path)
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


# ------------------------------------------------------------------- folders that others write to
#
# One rule: what lies inside a run's folder is a file or a folder of its own, or it is not used. A
# link would have us read or write somewhere else, a pipe would have us wait. Where the folder
# itself lies, and what links lead there, is up to its owner.

LARGEST = 50 * 2**20
"""Bytes of the largest text that is read whole."""

KINDS = {
    stat.S_IFLNK: "a link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


NO_FILE = (errno.EINVAL, errno.ELOOP, errno.ENOTDIR, errno.EISDIR, errno.ENXIO)
"""What the system or we answer where something else stands in a file's place."""


def _refused(path: Path, what: str) -> OSError:
    return OSError(errno.EINVAL, what, str(path))


def require_file(folder: Path, name: str) -> Path:
    """Return the path of a file inside a folder, if it is one and no link leads to it.

    Raises:
        FileNotFoundError: there is none.
        OSError: it cannot be told, or is something else; the message says what.
    """
    path = folder
    parts = Path(name).parts
    if not parts or ".." in parts or Path(name).is_absolute():
        raise _refused(folder / name, "it lies elsewhere")
    for number, part in enumerate(parts, 1):
        path /= part
        kind = stat.S_IFMT(path.lstat().st_mode)
        if kind != (stat.S_IFREG if number == len(parts) else stat.S_IFDIR):
            where = "it" if number == len(parts) else part
            raise _refused(folder / name, f"{where} is {KINDS.get(kind, 'a file')}")
    return path


def has_file(folder: Path, name: str) -> bool:
    """Tell whether a folder has a file of that name, of its own."""
    try:
        require_file(folder, name)
    except (OSError, ValueError):  # ValueError: a name that no file can have
        return False
    return True


def open_file(folder: Path, name: str) -> BufferedReader:
    """Open a file inside a folder for reading, if it is one and no link leads to it.

    Raises:
        FileNotFoundError: there is none.
        OSError: it cannot be opened, or is no file; the message says what it is.
    """
    if os.path.basename(name) != name:
        require_file(folder, name)  # what lies between
    path = os.path.join(folder, name)
    try:
        file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK), "rb")
    except OSError as error:
        if error.errno in NO_FILE:
            require_file(folder, name)  # says what it is
        raise
    kind = stat.S_IFMT(os.fstat(file.fileno()).st_mode)
    if kind != stat.S_IFREG:
        file.close()
        raise _refused(folder / name, f"it is {KINDS.get(kind, 'no file')}")
    return file


def read_file(folder: Path, name: str, largest: int = LARGEST) -> bytes:
    """Return what a file inside a folder holds (`require_file`).

    Raises:
        FileNotFoundError: there is none.
        OSError: it cannot be read, is no file, or is too large.
    """
    with open_file(folder, name) as file:
        if os.fstat(file.fileno()).st_size > largest:
            raise _refused(folder / name, f"it has more than {largest >> 20} MB")
        return file.read()


def open_to_write(path: Path, mode: str) -> IO[str]:
    """Open a text file, for `w` or `a`; a link or a pipe in its place is refused.

    Raises:
        OSError: that is so, or it cannot be opened.
    """

    def opener(name: str, flags: int) -> int:
        return os.open(name, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o666)

    return open(path, mode, encoding="utf-8", opener=opener)


def require_own(folder: Path) -> None:
    """Refuse a folder in which something leads elsewhere, before anything is written into it.

    Raises:
        OSError: the folder is a link, or there is a link in it that leads out, or a pipe.
    """
    if folder.is_symlink():
        raise _refused(folder, "it is a link, and not followed; remove it")
    inside = folder.resolve()
    for parent, folders, names in os.walk(folder):
        for path in (Path(parent) / name for name in (*folders, *names)):
            kind = stat.S_IFMT(path.lstat().st_mode)
            if kind in (stat.S_IFREG, stat.S_IFDIR):
                continue
            if kind == stat.S_IFLNK and _leads_into(inside, path):
                continue  # W&B has such
            raise _refused(
                path,
                f"it is {KINDS.get(kind, 'no file')}, which no run's folder may have; remove it",
            )


def _leads_into(folder: Path, link: Path) -> bool:
    try:
        return link.resolve().is_relative_to(folder)
    except (OSError, RuntimeError):  # it leads into a circle
        return False


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
