"""A process per job, forked from a server that has the heavy imports behind it.

Nothing leaks from one job to the next, and a job that exits, is killed or runs out of memory takes
no other along.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import forkserver, spawn
from types import FrameType
from typing import Any

PRELOAD = ["ilkd_bench.training.train", "ilkd_bench.jobs.job"]
"""What the server imports before it forks."""

GRACE = 60
"""Seconds that an interrupted job has to clean up."""

NAME = "ilkd_bench job"
"""Of the processes that are started here."""

_starting = threading.Lock()


class Terminated(KeyboardInterrupt):
    """SIGTERM, as Slurm sends it before a time limit; stops a sweep as Ctrl-C does."""


def alone(work: Callable[..., None], *arguments: Any) -> int:
    """Call a function in a process of its own.

    An interrupt of this process ends that one too, and is then raised here.

    Returns:
        0, the code that it exited with, or minus the signal that killed it.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(PRELOAD)
    process = context.Process(target=_inside, args=(work, arguments), name=NAME)
    with _no_interrupt():
        forkserver.ensure_running()
    with _starting, _known_start_method(), _without_main():
        process.start()
    try:
        process.join()
    except KeyboardInterrupt:
        _stop(process)
        raise
    code = process.exitcode
    process.close()
    return 0 if code is None else code


@contextmanager
def _no_interrupt() -> Iterator[None]:
    """Start what must not hear of Ctrl-C while it is importing: the server inherits this."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _known_start_method() -> Iterator[None]:
    """Have the new process told a default that it knows; joblib's workers have one of their own."""
    before = multiprocessing.get_start_method(allow_none=True)
    multiprocessing.set_start_method("forkserver", force=True)
    try:
        yield
    finally:
        multiprocessing.set_start_method(before, force=True)


@contextmanager
def _without_main() -> Iterator[None]:
    """Have the new process leave the script of this one alone.

    It would import it, so a script without an `if __name__ == "__main__"` would begin again there.
    """
    usual = spawn.get_preparation_data

    def shortened(name: str) -> dict[str, Any]:
        data = usual(name)
        if name == NAME:  # another thread may be starting a process of its own
            data = {key: value for key, value in data.items() if not key.startswith("init_main")}
        return data

    spawn.get_preparation_data = shortened
    try:
        yield
    finally:
        spawn.get_preparation_data = usual


def _stop(process: Any) -> None:
    try:
        process.terminate()
        process.join(GRACE)
    finally:  # a second interrupt ends the waiting
        if process.is_alive():
            process.kill()
            process.join()


def _inside(work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to everyone
    signal.signal(signal.SIGTERM, _terminate)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        work(*arguments)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGTERM)


def _end_with_parent() -> None:
    """Die when the sweep does: nobody would see what an orphan does."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(128 + signal.SIGKILL)


def _terminate(number: int, frame: FrameType | None) -> None:
    raise Terminated


@contextmanager
def terminable() -> Iterator[None]:
    """Raise `Terminated` on SIGTERM inside, where signals can be handled at all."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, _terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def cause(code: int) -> str:
    """Return the reason that a process's exit code gives."""
    if code >= 0:
        return f"the process ended with exit code {code} before the run did"
    if -code not in list(signal.Signals):  # real-time signals have no names
        return f"the process was killed by signal {-code}"
    name = signal.Signals(-code).name
    guess = ", as it is when memory runs out" if name == "SIGKILL" else ""
    return f"the process was killed by signal {-code} ({name}{guess})"
