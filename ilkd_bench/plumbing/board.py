"""Bars and lines of processes that run beside each other, shown by the one that started them.

They come as messages through a socket, JSON each: who, then a line, or how far the process is.
"""

from __future__ import annotations

import json
import socket
import time
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.progress import TaskID

from ilkd_bench.plumbing import terminal
from ilkd_bench.plumbing.terminal import Bars, console, print_line

OFTEN = 0.25
"""Seconds between two looks of a bar."""

LONGEST = 50_000
"""Characters of a line."""

PATIENCE = 10.0
"""Seconds after which a process goes on whose line nobody takes."""


class Sender:
    """What a process has in place of the terminal.

    Args:
        address: of the board.
        who: the key of its bar there.
    """

    def __init__(self, address: str, who: str) -> None:
        self._who, self._next = who, 0.0
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        with suppress(OSError):  # see `_send`
            self._socket.connect(address)

    def line(self, text: str) -> None:
        """Have a line shown."""
        self._socket.settimeout(PATIENCE)
        self._send(text[:LONGEST])

    def bar(self, title: str, done: float, total: float | None, state: str) -> None:
        """Have a bar moved, now and then."""
        if time.monotonic() >= self._next:
            self._next = time.monotonic() + OFTEN
            self._socket.settimeout(0)
            self._send([title, done, total, state])

    def no_bar(self) -> None:
        """Have the bar wait for the next one."""
        self._socket.settimeout(0)
        self._send(None)

    def _send(self, what: Any) -> None:
        with suppress(OSError):  # it is full, or gone: then this process is about to end too
            self._socket.send(json.dumps([self._who, what]).encode())


class Board:
    """One bar for each process that is at work, and all their lines above.

    Args:
        folder: where the socket lies, of a short name.
    """

    def __init__(self, folder: Path) -> None:
        self.address = str(folder / "board")
        self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._socket.bind(self.address)
        self._socket.setblocking(False)
        self._bars = Bars(by_hand=True)
        self._tasks: dict[str, TaskID] = {}
        self._titles: dict[str, str] = {}
        self._waits: set[str] = set()

    def __enter__(self) -> Board:
        self._bars.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.look()
        self._bars.stop()
        self._socket.close()
        terminal.heading = ""

    def fileno(self) -> int:
        """Return the socket's number, by which can be waited for a message."""
        return self._socket.fileno()

    @property
    def patience(self) -> float | None:
        """Seconds until the bars are to be drawn again; None where there are none."""
        return OFTEN if console.is_terminal else None

    def begin(self, who: str, title: str) -> None:
        """Show a process that has nothing to tell yet."""
        self._titles[who] = title
        self._tasks[who] = self._bars.add_task(title, total=None, state="")

    def end(self, who: str) -> None:
        """Show a process no more, whose last lines are taken first."""
        self.look()
        self._bars.remove_task(self._tasks.pop(who))
        self._bars.refresh()

    def look(self) -> None:
        """Show what has come in."""
        with suppress(BlockingIOError):
            while True:
                who, what = json.loads(self._socket.recv(1 << 20))
                if isinstance(what, str):
                    self._line(what)
                elif who in self._tasks:
                    self._move(who, what)
        self._bars.refresh()

    def _move(self, who: str, bar: tuple[str, float, float | None, str] | None) -> None:
        if bar is None:  # what it was at is over; what comes next has another length
            self._bars.remove_task(self._tasks[who])
            self.begin(who, self._titles[who])
        else:
            title, done, total, state = bar
            self._bars.update(
                self._tasks[who], description=title, completed=done, total=total, state=state
            )

    def _line(self, text: str) -> None:
        """Print a line; what several wait for is said once."""
        if text.startswith("waiting: "):
            if text in self._waits:
                return
            self._waits.add(text)
        print_line(text)
