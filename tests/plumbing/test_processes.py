"""A process per job: what its end is called, and how an interrupt passes on."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ilkd_bench.plumbing import processes
from ilkd_bench.plumbing.processes import Terminated
from ilkd_bench.settings.groups import ROOT


@pytest.fixture(autouse=True)
def nothing_heavy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "PRELOAD", [])


@pytest.fixture(autouse=True)
def interruptible() -> Iterator[None]:
    """Also where the shell that started the tests has them ignore Ctrl-C, as it does with `&`."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def leave(how: str, path: Path) -> None:
    path.write_text(str(os.getpid()))
    if how == "exit":
        sys.exit(3)
    if how == "_exit":
        os._exit(0)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if how == "raise":
        raise ValueError("on purpose")


def linger(path: Path, *, deaf: bool = False) -> None:
    """Note how it ended, or do not listen to SIGTERM."""
    if deaf:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        path.with_suffix(".begun").touch()
        time.sleep(120)
    except Terminated:
        path.write_text("terminated")
        raise


def linger_deaf(path: Path) -> None:
    linger(path, deaf=True)


@pytest.mark.parametrize(
    ("how", "code"), [("return", 0), ("exit", 3), ("_exit", 0), ("kill", -9), ("raise", 1)]
)
def test_the_end_of_a_process_is_returned(how: str, code: int, tmp_path: Path) -> None:
    assert processes.alone(leave, how, tmp_path / "pid") == code
    pid = int((tmp_path / "pid").read_text())
    assert pid != os.getpid()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_each_call_has_a_process_of_its_own(tmp_path: Path) -> None:
    pids = set()
    for number in range(3):
        processes.alone(leave, "return", tmp_path / str(number))
        pids.add((tmp_path / str(number)).read_text())
    assert len(pids) == 3


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_ends_the_job_first(number: signal.Signals, tmp_path: Path) -> None:
    told = tmp_path / "told"
    threading.Thread(target=send, args=(number, told.with_suffix(".begun")), daemon=True).start()
    with pytest.raises(KeyboardInterrupt) as interrupt, processes.terminable():
        processes.alone(linger, told)
    assert isinstance(interrupt.value, Terminated) == (number == signal.SIGTERM)
    assert told.read_text() == "terminated"


def test_who_does_not_listen_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "GRACE", 0.2)
    told = tmp_path / "told"
    begun = told.with_suffix(".begun")
    threading.Thread(target=send, args=(signal.SIGINT, begun), daemon=True).start()
    with pytest.raises(KeyboardInterrupt):
        processes.alone(linger_deaf, told)
    assert begun.exists() and not told.exists()


def send(number: signal.Signals, begun: Path) -> None:
    end = time.monotonic() + 100
    while not begun.exists() and time.monotonic() < end:
        time.sleep(0.02)
    os.kill(os.getpid(), number)


def test_sigterm_is_handled_inside_only_and_in_the_main_thread_only() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(Terminated), processes.terminable():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    assert signal.getsignal(signal.SIGTERM) == before
    seen = []

    def elsewhere() -> None:
        with processes.terminable():
            seen.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert seen == [before]


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (0, "the process ended with exit code 0 before the run did"),
        (7, "the process ended with exit code 7 before the run did"),
        (-9, "the process was killed by signal 9 (SIGKILL, as it is when memory runs out)"),
        (-11, "the process was killed by signal 11 (SIGSEGV)"),
        (-40, "the process was killed by signal 40"),  # a real-time signal without a name
    ],
)
def test_the_cause_is_told(code: int, reason: str) -> None:
    assert processes.cause(code).startswith(reason)


SCRIPT = """
from ilkd_bench.plumbing import processes

processes.PRELOAD.clear()
print("begun", flush=True)
print(processes.alone(print, "inside"))
"""


def test_a_script_is_not_begun_again_by_its_jobs(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("begun\ninside\n0\n", "")
