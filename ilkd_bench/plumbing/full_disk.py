"""A full disk told in one sentence, whoever met it."""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.filesize import decimal

from ilkd_bench.types import BadInput

FULL = re.compile(
    rf"os error ({errno.ENOSPC}|{errno.EDQUOT})\b|No space left on device|Disk quota exceeded"
    r"|\d+ requested and \d+ written"
)
"""What libraries say of a full disk in errors of their own: Rust's, pyarrow's, numpy's."""


class NoSpace(BadInput, OSError):
    """A disk is full; the message says which one, and what to do."""


@contextmanager
def full_disk_told(folder: Path, remedy: str) -> Iterator[None]:
    """Make whatever a library raises on a full disk one sentence.

    Args:
        folder: where files are written inside.
        remedy: what to type for more room there.

    Raises:
        NoSpace: the disk is full.
    """
    try:
        yield
    except NoSpace:
        raise
    except Exception as error:
        told = next((e for e in _chain(error) if isinstance(e, NoSpace)), None)
        if told is not None:  # and something else went wrong on the way out
            raise NoSpace(*told.args) from error
        full = next((e for e in _chain(error) if _is_full(e)), None)
        if full is None:
            raise
        name = getattr(full, "filename", None)
        place = folder if name is None else Path(os.fsdecode(name)).parent
        raise NoSpace(
            f"no space left on the disk of {place}, {decimal(_free(place))} are free: {remedy}, "
            "then type the same command again"
        ) from error


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and those that it came from."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _is_full(error: BaseException) -> bool:
    number = error.errno if isinstance(error, OSError) else None
    return number in (errno.ENOSPC, errno.EDQUOT) or FULL.search(str(error)) is not None


def _free(folder: Path) -> int:
    """Return the bytes that are free where a folder is, or would be."""
    there = next(path for path in (folder, *folder.absolute().parents) if path.exists())
    return shutil.disk_usage(there).free
