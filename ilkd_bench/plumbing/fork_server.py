"""The server that processes are forked from: `processes` starts this file and talks to it.

It imports what is heavy once, then forks a process for each piece of work. It ends when its caller
does, and its processes end when it does. Nothing of the package is imported here but what the
caller names.

All that the processes put into the temporary folder lies in a folder of the server, which a later
server removes where a kill left it behind.
"""

from __future__ import annotations

import fcntl
import importlib
import multiprocessing
import os
import pickle
import select
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import recv_handle
from pathlib import Path
from typing import Any

PREFIX = "ilkd-"
"""Of the folders that servers have in the temporary one."""

LOCK = "server.lock"
"""In such a folder; its server holds it."""

LONGEST = 60
"""Bytes of a temporary folder in which data loader workers can make sockets: `/ilkd-xxxxxxxx`,
`/pymp-xxxxxxxx` and `/listener-xxxxxxxx` follow, and a socket's path has 107 bytes at most."""

LOOK = 1.0
"""Seconds after which a process's end is noticed at the latest, though its own children live on."""

FORK = multiprocessing.get_context("fork")


# ------------------------------------------------------------------------------------- the end


@contextmanager
def ending_with(line: int) -> Iterator[None]:
    """Have the kernel end this process when the other end of a pipe or a socket pair is closed.

    A thread would not do: a library that is being imported may keep Python from running any.
    Nothing may be sent through the line meanwhile.
    """
    signal.signal(signal.SIGIO, signal.SIG_DFL)  # which ends the process
    before = fcntl.fcntl(line, fcntl.F_GETFL)
    fcntl.fcntl(line, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(line, fcntl.F_SETFL, before | os.O_ASYNC)
    if select.select([line], [], [], 0)[0]:  # it was closed before
        os.kill(os.getpid(), signal.SIGIO)
    try:
        yield
    finally:
        fcntl.fcntl(line, fcntl.F_SETFL, before)


# --------------------------------------------------------------------------- the temporary folder


@contextmanager
def own_folder() -> Iterator[Path]:
    """Make a folder in the temporary one that a later one's maker removes if a kill leaves it."""
    parent = Path(tempfile.gettempdir())
    if len(os.fsencode(parent)) > LONGEST and os.access("/tmp", os.W_OK):
        parent = Path("/tmp")
    remove_dead(parent)
    folder, lock = _locked_folder(parent)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


@contextmanager
def temporary_folder() -> Iterator[None]:
    """Give this process and its children a temporary folder of their own."""
    before = os.environ.get("TMPDIR"), tempfile.tempdir
    with own_folder() as folder:
        os.environ["TMPDIR"] = tempfile.tempdir = str(folder)
        try:
            yield
        finally:
            tempfile.tempdir = before[1]
            os.environ.pop("TMPDIR")
            if before[0] is not None:
                os.environ["TMPDIR"] = before[0]


def _locked_folder(parent: Path) -> tuple[Path, int]:
    while True:
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=parent))
        with suppress(FileNotFoundError):  # removed before it was locked
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(lock, fcntl.LOCK_EX)
            if (folder / LOCK).exists():
                return folder, lock
            os.close(lock)


def remove_dead(parent: Path) -> None:
    """Remove the folders of this user's servers that are dead; nobody holds their locks."""
    for folder in parent.glob(f"{PREFIX}*"):
        try:
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            lock = os.open(folder / LOCK, os.O_RDWR | os.O_NOFOLLOW)
        except OSError:  # another server removes it, or has yet to lock it, or it is none of ours
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder, ignore_errors=True)
        except BlockingIOError:  # its server lives
            pass
        finally:
            os.close(lock)


# ------------------------------------------------------------------------------------ the server


class Forked:
    """A process that was forked, and the line to the one who waits for it."""

    def __init__(self, request: bytes, line: Connection, foreign: list[Connection]) -> None:
        self.line = line
        self.process = FORK.Process(target=_do, args=(request, line, foreign))
        self.process.start()

    def hear(self) -> None:
        """Pass a signal on; where nobody waits any more, kill the process."""
        try:
            os.kill(self.process.pid or 0, pickle.loads(self.line.recv_bytes()))
        except (EOFError, OSError):
            self.process.kill()
            self.process.join()

    def tell(self, end: int | str) -> None:
        """Tell how it ended, and forget the line."""
        with suppress(OSError):  # nobody waits any more
            self.line.send_bytes(pickle.dumps(end))
        self.line.close()


def _do(request: bytes, line: Connection, foreign: list[Connection]) -> None:
    """Do a piece of work in a process of its own, which keeps its line open while it lives."""
    for other in foreign:
        other.close()
    parent = multiprocessing.parent_process()
    with ending_with(parent.sentinel):  # type: ignore[union-attr]
        state, work, arguments = pickle.loads(request)
        adopt(state)
        work(*arguments)


def adopt(state: dict[str, Any]) -> None:
    """Be where the caller is, with its arguments, variables and places of modules."""
    sys.path[:], sys.argv[:] = state["path"], state["argv"]
    here = {name: os.environ[name] for name in ("TMPDIR",)}
    os.environ.clear()
    os.environ.update(state["environment"] | here)
    os.chdir(state["directory"])


def serve(caller: Connection) -> None:
    """Fork a process for each request, until the caller is gone."""
    running: dict[Connection, Forked] = {}
    try:
        while True:
            ends = [forked.process.sentinel for forked in running.values()]
            ready = wait([caller, *running, *ends], LOOK if running else None)
            for line, forked in list(running.items()):
                if line in ready and forked.process.exitcode is None:
                    forked.hear()
                if forked.process.exitcode is not None:
                    running.pop(line).tell(forked.process.exitcode)
            if caller in ready:
                _accept(caller, running)
    except EOFError:  # the caller is gone
        pass
    finally:
        for forked in running.values():
            forked.process.kill()


def _accept(caller: Connection, running: dict[Connection, Forked]) -> None:
    request = caller.recv_bytes()
    line = Connection(recv_handle(caller))
    try:
        running[line] = Forked(request, line, [caller, *running])
    except OSError as error:  # no memory, or no room for another process
        line.send_bytes(pickle.dumps(f"no process can be forked: {error.strerror}"))
        line.close()


def main(caller: Connection) -> None:
    """Import what the caller names, tell whether that went well, and serve."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # OpenBLAS raises it where it gets no threads
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])
    multiprocessing.set_start_method("fork", force=True)  # for the workers of data loaders too
    with ExitStack() as stack:
        try:
            state, modules = pickle.loads(caller.recv_bytes())
            stack.enter_context(temporary_folder())
            with ending_with(caller.fileno()):
                adopt(state)
                for name in modules:
                    importlib.import_module(name)
        except EOFError:
            return
        except Exception as error:
            caller.send_bytes(f"{type(error).__name__}: {error}".removesuffix(": ").encode())
            return
        for number in (signal.SIGINT, signal.SIGTERM):  # sent to everyone; the caller ends us
            signal.signal(number, signal.SIG_IGN)
        caller.send_bytes(b"")
        serve(caller)


if __name__ == "__main__":
    main(Connection(int(sys.argv[1])))
