"""Runs that are under way: one that has the terminal to itself, or several beside each other."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from multiprocessing.connection import wait
from typing import Any, Protocol

from ilkd_bench.jobs.job import Job, Place, attempt, conclude, execute
from ilkd_bench.plumbing import processes, terminal
from ilkd_bench.plumbing.board import Board
from ilkd_bench.plumbing.fork_server import own_folder
from ilkd_bench.records.read import read_record
from ilkd_bench.records.record import Record


@dataclass
class Ended:
    """How a run has ended.

    Attributes:
        record: None: another sweep is at it.
        error: that kept it from being begun, in place of a record.
    """

    job: Job
    record: Record | None = None
    error: OSError | None = None


class Crew(Protocol):
    """Runs that are under way."""

    @property
    def busy(self) -> int:
        """How many there are."""

    def begin(self, job: Job, heading: str, *, wait: bool) -> None:
        """Begin one more.

        Args:
            heading: how far the sweep is.
            wait: see `job.execute`.

        Raises:
            OSError: no process can be started for it.
        """

    def end(self) -> Ended:
        """Wait for one of them to end."""

    def tell(self, heading: str) -> None:
        """Show how far the sweep is now."""

    def __enter__(self) -> Any:
        """Be ready to begin."""

    def __exit__(self, *_: object) -> None:
        """Stop whatever is under way still."""


class One:
    """A single run at a time, whose process writes to the terminal itself."""

    busy = 0

    def begin(self, job: Job, heading: str, *, wait: bool) -> None:
        """Begin it as soon as its end is waited for."""
        self._next, self.busy = (job, heading, wait), 1

    def end(self) -> Ended:
        """Do the run."""
        job, heading, wait = self._next
        self.busy = 0
        try:
            return Ended(job, execute(job, heading, wait=wait))
        except OSError as error:
            return Ended(job, error=error)

    def tell(self, heading: str) -> None:
        """Do nothing: the run shows what it was begun with."""

    def __enter__(self) -> One:
        return self

    def __exit__(self, *_: object) -> None:
        pass


@dataclass
class _UnderWay:
    job: Job
    before: Record | None
    wait: bool
    process: processes.Process


class Several:
    """Runs beside each other, whose lines and bars this process shows.

    Args:
        at_once: how many share the cores.
    """

    def __init__(self, at_once: int) -> None:
        self._at_once = at_once
        self._under_way: list[_UnderWay] = []
        self._open = ExitStack()

    @property
    def busy(self) -> int:
        """How many there are."""
        return len(self._under_way)

    def __enter__(self) -> Several:
        self._board = self._open.enter_context(Board(self._open.enter_context(own_folder())))
        return self

    def __exit__(self, *_: object) -> None:
        with self._open:
            if self._under_way:
                processes.stop([one.process for one in self._under_way])

    def begin(self, job: Job, heading: str, *, wait: bool) -> None:
        """Begin one more."""
        self.tell(heading)
        place = Place(board=self._board.address, at_once=self._at_once)
        before = read_record(job.folder)
        process = processes.Process(attempt, job, place, wait)
        self._under_way.append(_UnderWay(job, before, wait, process))
        self._board.begin(job.id, job.title)

    def end(self) -> Ended:
        """Wait for one of them to end, and show meanwhile what they say."""
        while True:
            self._board.look()
            lines = [one.process.line for one in self._under_way]
            ready = wait([*lines, self._board.fileno()], self._board.patience)
            for one in self._under_way:
                if one.process.line in ready:
                    ended = self._ended(one)
                    if ended is not None:
                        return ended
                    break  # the others are looked at again: their server has died too

    def _ended(self, one: _UnderWay) -> Ended | None:
        try:
            code = one.process.end()
        except OSError as error:
            self._forget(one)
            return Ended(one.job, error=error)
        if code is None:  # it was begun once more
            return None
        self._forget(one)
        return Ended(one.job, conclude(one.job, code, one.before, wait=one.wait))

    def _forget(self, one: _UnderWay) -> None:
        self._under_way.remove(one)
        self._board.end(one.job.id)

    def tell(self, heading: str) -> None:
        """Show how far the sweep is now."""
        terminal.heading = heading


def crew(at_once: int) -> Crew:
    """Return who carries out so many runs at once."""
    return One() if at_once == 1 else Several(at_once)
