"""A process per job, forked from a server that has the heavy imports behind it.

Nothing leaks from one job to the next, and a job that exits, is killed or runs out of memory takes
no other along. A server that dies is started again.
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import send_handle
from typing import Any

from ilkd_bench.plumbing import fork_server, interrupts
from ilkd_bench.plumbing.command import complain, limits

PRELOAD = ["ilkd_bench.training.train", "ilkd_bench.jobs.job"]
"""What the server imports before it forks."""

GRACE = 60
"""Seconds that an interrupted job has to clean up."""


SERVER = "the process that runs are forked from"
"""What a person is told of it."""


class NoProcess(OSError):
    """No process for a piece of work can be started; the message says why."""


def alone(work: Callable[..., None], *arguments: Any) -> int:
    """Call a function in a process of its own.

    An interrupt of this process ends that one too, and is then raised here. Where the server dies
    that the process was forked from, the process dies too, and the work is begun once more.

    Returns:
        0, the code that it exited with, or minus the signal that killed it.

    Raises:
        NoProcess: none can be started.
    """
    process = Process(work, *arguments)
    try:
        while (code := process.end()) is None:
            pass  # it was begun once more
    except KeyboardInterrupt:
        stop([process])
        raise
    return code


class Process:
    """A function that is being called in a process of its own.

    Raises:
        NoProcess: none can be started.
    """

    def __init__(self, work: Callable[..., None], *arguments: Any) -> None:
        self._request = pickle.dumps((_state(), _inside, (work, arguments)))
        self._begun = 0
        self._begin()

    def _begin(self) -> None:
        self._begun += 1
        self._server = _server_in_use()
        self.line = self._server.begin(self._request)
        """Can be read from as soon as `end` has something to tell."""

    def end(self) -> int | None:
        """Wait for the end and return the exit code; None where the work was begun once more.

        Raises:
            NoProcess: none could be started.
        """
        end = _end(self.line)
        self.line.close()
        if isinstance(end, str):
            raise NoProcess(end)
        if end is not None:
            return end
        code = self._server.end()
        if self._begun < 2:
            self._begin()
            return None
        if not self._server.ready:
            raise NoProcess(f"{SERVER} cannot start: {cause(code)}{limits()}")
        return code or 1


def _inside(work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the terminal sends it to everyone
    signal.signal(signal.SIGTERM, interrupts.terminate)
    sys.unraisablehook = interrupts.again
    try:
        work(*arguments)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGTERM)


# ------------------------------------------------------------------------------------- the server


class Server:
    """The process that others are forked from, as its caller sees it.

    Raises:
        NoProcess: it cannot be started.
    """

    def __init__(self) -> None:
        self.line, theirs = Pipe()
        self.ready = False  # what it imports is imported
        self._sending = threading.Lock()
        number = str(theirs.fileno())
        try:
            with theirs, _deaf_to_ctrl_c():
                self._process = subprocess.Popen(
                    [sys.executable, "-P", fork_server.__file__, number],
                    stdin=subprocess.DEVNULL,
                    pass_fds=[theirs.fileno()],
                )
        except OSError as error:
            raise NoProcess(f"no process can be started: {error.strerror}") from error

    @property
    def lives(self) -> bool:
        """Whether it can be asked."""
        return self._process.poll() is None

    def begin(self, request: bytes) -> Connection:
        """Have a request done; return the line that tells the exit code, or why there is none.

        Raises:
            NoProcess: it cannot be started.
        """
        line, theirs = Pipe()
        with theirs:
            hindrance = self._hand_over(request, theirs)
        if hindrance:
            line.close()
            raise NoProcess(hindrance)
        return line

    def _hand_over(self, request: bytes, theirs: Connection) -> str:
        """Send a request and return why it cannot be done; empty where it can, or has died."""
        try:
            with self._sending:
                if not self.ready:
                    self.line.send_bytes(pickle.dumps((_state(), PRELOAD)))
                    told = self.line.recv_bytes().decode()
                    if told:
                        return f"{SERVER} cannot start: {told}{limits()}"
                    self.ready = True
                self.line.send_bytes(request)
                send_handle(self.line, theirs.fileno(), self._process.pid)
        except (EOFError, OSError):  # it has died: nobody holds the other end of the line
            pass
        except KeyboardInterrupt:  # it may wait for the rest of the request
            self._process.kill()
            raise
        return ""

    def end(self) -> int:
        """End it if it lives, and return its exit code."""
        self.line.close()
        self._process.kill()
        return self._process.wait()

    def forget(self) -> None:
        """Leave it to the process that this one was forked from."""
        self.line.close()


def _end(line: Connection) -> int | str | None:
    """Return what a line tells; None: the server died, and what it had forked is gone too."""
    try:
        end: int | str = pickle.loads(line.recv_bytes())
    except (EOFError, OSError):
        return None
    return end


def stop(processes: Sequence[Process]) -> None:
    """Have processes end; they are killed when they take too long, or at a second interrupt."""
    lines = [p.line for p in processes if not p.line.closed and _sent(signal.SIGTERM, p.line)]
    end = time.monotonic() + GRACE
    try:
        while lines and (ended := wait(lines, end - time.monotonic())):
            lines = [line for line in lines if line not in ended]
    except KeyboardInterrupt:
        pass
    for line in lines:
        if _sent(signal.SIGKILL, line):
            _end(line)
    for process in processes:
        process.line.close()


def _sent(number: signal.Signals, line: Connection) -> bool:
    """Send a signal to a process; False where it has ended."""
    try:
        line.send_bytes(pickle.dumps(number))
    except OSError:
        return False
    return True


_server: Server | None = None
_choosing = threading.Lock()


def _server_in_use() -> Server:
    """Return the server, started (again) if need be."""
    global _server
    with _choosing:
        if _server is not None and not _server.lives:
            code, _server = _server.end(), None
            if code:  # else it has told why it cannot start
                complain(
                    f"{SERVER} is gone: {cause(code)}. It is started again, and a run that was "
                    "under way goes on"
                )
        if _server is None:
            _server = Server()
        return _server


def _after_fork() -> None:
    """Have a process that was forked from this one start a server of its own."""
    global _server, _choosing
    if _server is not None:
        _server.forget()
    _server, _choosing = None, threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


def _state() -> dict[str, Any]:
    """Return what a process that is forked takes over from this one."""
    return {
        "path": sys.path,
        "argv": sys.argv,
        "directory": os.getcwd(),
        "environment": dict(os.environ),
    }


@contextmanager
def _deaf_to_ctrl_c() -> Iterator[None]:
    """Start a process that hears of Ctrl-C when it says so."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def cause(code: int) -> str:
    """Return the reason that a process's exit code gives."""
    if code >= 0:
        return f"the process ended with exit code {code} before the run did"
    if -code not in list(signal.Signals):  # real-time signals have no names
        return f"the process was killed by signal {-code}"
    name = signal.Signals(-code).name
    guess = ", as it is when memory runs out" if name == "SIGKILL" else ""
    return f"the process was killed by signal {-code} ({name}{guess})"
