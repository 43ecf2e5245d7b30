"""The terminal that bars and log lines share."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from typing import Protocol, TypeVar

from rich.console import Console, RenderableType
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from ilkd_bench.plumbing.text import block


class Terminal(Console):
    """Standard error; nothing is shown any more once nobody reads it, and the runs go on."""

    def on_broken_pipe(self) -> None:
        """Go on in silence, where rich would exit."""
        self.quiet = True
        os.dup2(os.open(os.devnull, os.O_WRONLY), self.file.fileno())  # for what is left to flush


console = Terminal(stderr=True)

heading = ""
"""Shown above every bar of this process: how far the sweep is."""

Item = TypeVar("Item", covariant=True)


class SizedIterable(Sized, Iterable[Item], Protocol[Item]):
    """What a bar can count."""


class Bars(Progress):
    """Our columns, below the heading."""

    def __init__(self) -> None:
        super().__init__(
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeRemainingColumn(),
            TextColumn("{task.fields[state]}"),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )

    def get_renderables(self) -> Iterable[RenderableType]:
        """Put the heading first."""
        if heading:
            yield Text(heading, style="dim")
        yield from super().get_renderables()


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
        console.print(block(self.format(record)), soft_wrap=True, markup=False, highlight=False)
