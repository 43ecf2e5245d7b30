"""The terminal that bars and log lines share; in a file a line now and then stands for a bar.

A process that runs beside others sends both to the one that started them (`board`).
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Any, Protocol, TypeVar

from rich.console import Console, RenderableType
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    Task,
    TaskID,
    TextColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from ilkd_bench.plumbing.text import block

log = logging.getLogger(__name__)

NOW_AND_THEN = 60.0
"""Seconds between two lines that tell how far something is where no bar can be shown."""


class Terminal(Console):
    """Standard error; nothing is shown any more once nobody reads it, and the runs go on."""

    def on_broken_pipe(self) -> None:
        """Go on in silence, where rich would exit."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())  # for what is left to flush


console = Terminal(stderr=True)

heading = ""
"""Shown above every bar of this process: how far the sweep is."""


class Elsewhere(Protocol):
    """Whoever shows what a process has to say."""

    def line(self, text: str) -> None:
        """Show a line."""

    def bar(self, title: str, done: float, total: float | None, state: str) -> None:
        """Show how far the process is."""

    def no_bar(self) -> None:
        """Forget how far it was."""


elsewhere: Elsewhere | None = None
"""In place of the terminal, if it is not this process that writes there."""

Item = TypeVar("Item", covariant=True)


class SizedIterable(Sized, Iterable[Item], Protocol[Item]):
    """What a bar can count."""


class Bars(Progress):
    """Our columns, below the heading. Without a terminal, a line every minute.

    Args:
        by_hand: shown anew only when that is asked for.
    """

    def __init__(self, *, by_hand: bool = False) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[state]}"),
            console=console,
            transient=True,
            auto_refresh=not by_hand,
            disable=elsewhere is not None or not console.is_terminal,
        )
        self._next = time.monotonic() + NOW_AND_THEN

    def advance(self, task_id: TaskID, advance: float = 1) -> None:
        """Move a bar on."""
        super().advance(task_id, advance)
        self._tell()

    def update(self, task_id: TaskID, **changes: Any) -> None:
        """Change a bar."""
        super().update(task_id, **changes)
        self._tell()

    def stop(self) -> None:
        """Remove the bars."""
        super().stop()
        if elsewhere is not None:
            elsewhere.no_bar()

    def _tell(self) -> None:
        """Tell of what the terminal of this process does not show."""
        if not console.is_terminal:
            if time.monotonic() >= self._next:
                self._next = time.monotonic() + NOW_AND_THEN
                log.info("%s", _line(self.tasks[-1]))
        elif elsewhere is not None:
            task = self.tasks[-1]
            elsewhere.bar(task.description, task.completed, task.total, task.fields["state"])

    def get_renderables(self) -> Iterable[RenderableType]:
        """Put the heading first."""
        if heading:
            yield Text(heading, style="dim")
        yield from super().get_renderables()


def _line(task: Task) -> str:
    """Return in words what a bar shows."""
    done = f"{task.completed:,.0f}"
    if task.total is not None:
        done += f" of {task.total:,.0f}"
    left = task.time_remaining
    time_left = "" if left is None else f"about {duration(left)} left"
    parts = (done, time_left, task.fields["state"])
    return f"{task.description}: {', '.join(part for part in parts if part)}"


def duration(seconds: float) -> str:
    """Return a time span for a person."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def track(items: SizedIterable[Item], title: str) -> Iterator[Item]:
    """Yield the items while a bar shows how many there were."""
    with Bars() as bars:
        task = bars.add_task(title, total=len(items), state="")
        for item in items:
            yield item
            bars.advance(task)


@contextmanager
def count(title: str) -> Iterator[Callable[[int], None]]:
    """Show how many items there were so far, of nobody knows how many; yields what adds some."""
    with Bars() as bars:
        task = bars.add_task(title, total=None, state="")
        yield lambda more: bars.advance(task, more)


class Lines(logging.Handler):
    """Write each message as one line above the bar, never broken by the terminal's width."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print a message."""
        text = block(self.format(record))
        if elsewhere is None:
            print_line(text)
        else:
            elsewhere.line(text)


def print_line(text: str) -> None:
    """Print a line above the bars."""
    console.print(text, soft_wrap=True, markup=False, highlight=False)
