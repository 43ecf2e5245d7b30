"""What lies inside a folder that others can write to.

One rule: what lies inside a run's folder is a file or a folder of its own, or it is not used. A
link would have us read or write somewhere else, a pipe would have us wait. Where the folder itself
lies, and what links lead there, is up to its owner.
"""

from __future__ import annotations

import errno
import os
import stat
from io import BufferedReader
from pathlib import Path
from typing import IO

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
