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
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing import Pipe
from multiprocessing.connection import Connection
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
    request = pickle.dumps((_state(), _inside, (work, arguments)))
    for _ in range(2):
        server = _server_in_use()
        end = server.do(request)
        if isinstance(end, str):
            raise NoProcess(end)
        if end is not None:
            return end
    code = server.end()
    if not server.ready:
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

    def do(self, request: bytes) -> int | str | None:
        """Have a request done and return the exit code, or why no process could be forked.

        None: the server died, and what it had forked is gone too.
        """
        line, theirs = Pipe()
        with line:
            with theirs:
                hindrance = self._hand_over(request, theirs)
            try:
                end = hindrance or _end(line)
            except KeyboardInterrupt:
                _stop(line)
                raise
        if end is None:
            self._process.kill()
            self._process.wait()
        return end

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
    try:
        end: int | str = pickle.loads(line.recv_bytes())
    except (EOFError, OSError):
        return None
    return end


def _stop(line: Connection) -> None:
    """Have a process end; it is killed when it takes too long, or at a second interrupt."""
    try:
        line.send_bytes(pickle.dumps(signal.SIGTERM))
        if line.poll(GRACE):
            return
    except OSError:  # it has ended
        return
    except KeyboardInterrupt:
        pass
    line.send_bytes(pickle.dumps(signal.SIGKILL))
    _end(line)


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
