"""Signals that stop a command: Ctrl-C, and SIGTERM made to do the same."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

LATER = 0.5
"""Seconds until an interrupt that was dropped comes again."""


class Terminated(KeyboardInterrupt):
    """SIGTERM, as Slurm sends it before a time limit; stops a sweep as Ctrl-C does."""


def terminate(number: int, frame: FrameType | None) -> None:
    """Handle SIGTERM."""
    raise Terminated


def again(lost: Any) -> None:
    """Send an interrupt again that Python has dropped, as it does in `__del__` and in callbacks.

    For `sys.unraisablehook`. It comes a little later, so that it does not arrive in here.
    """
    if isinstance(lost.exc_value, KeyboardInterrupt):
        number = exit_code(lost.exc_value) - 128
        later = threading.Timer(LATER, os.kill, (os.getpid(), number))
        later.daemon = True
        later.start()
    else:
        sys.__unraisablehook__(lost)


@contextmanager
def terminable() -> Iterator[None]:
    """Raise `Terminated` on SIGTERM inside, where signals can be handled at all."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def not_lost() -> Iterator[None]:
    """Raise an interrupt inside as such, also where a library has made another error of it.

    OmegaConf's containers do: a `finally` meets what the interrupt left half made, and fails.
    """
    try:
        yield
    except Exception as error:
        lost = _behind(error)
        if lost is None:
            raise
        raise lost from None


def _behind(error: BaseException | None) -> KeyboardInterrupt | None:
    """Return the interrupt that was being handled when an error came about, if there was one."""
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__context__
    return error


def ignore() -> None:
    """Hear of no interrupt any more: the process is about to end."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Return what a command that was stopped exits with."""
    number = signal.SIGTERM if isinstance(interrupt, Terminated) else signal.SIGINT
    return 128 + number
