"""Standard streams that may be closed, full, or of a terminal that lacks letters."""

from __future__ import annotations

import io
import os
import sys
from typing import Any


class OutputLost(Exception):
    """What was printed cannot be written; a verb does not take it for an error of its files."""


class _Output(io.FileIO):
    """Standard output whose errors are known as such, but for a reader that has read enough."""

    def write(self, content: Any) -> int:
        try:
            return super().write(content)
        except BrokenPipeError:
            raise
        except OSError as error:
            raise OutputLost(error.strerror or str(error)) from error


def open_streams() -> None:
    """Make standard output an `_Output`, and open streams that the caller has closed (`>&-`).

    Else the next file that is opened would take their place. What is printed to a closed output is
    an error, as it is elsewhere; complaints go nowhere.
    """
    for number, mode in ((0, os.O_RDONLY), (1, os.O_RDONLY), (2, os.O_WRONLY)):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, mode)  # takes the lowest number that is free
    if sys.stderr is None:
        sys.stderr = os.fdopen(2, "w", closefd=False)
    if sys.stdout is sys.__stdout__:
        before = sys.stdout
        sys.stdout = io.TextIOWrapper(
            io.BufferedWriter(_Output(1, "w", closefd=False)),
            encoding=None if before is None else before.encoding,
            line_buffering=os.isatty(1),
        )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def abandon_output() -> None:
    """Send what is left in the streams nowhere where it cannot be written."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, OutputLost):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
