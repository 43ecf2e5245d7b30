"""A process per job: how it ends and what that is called, also when its server or caller dies."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from ilkd_bench.plumbing import command, fork_server, processes
from ilkd_bench.plumbing.interrupts import Terminated, terminable
from ilkd_bench.plumbing.processes import NoProcess
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
    with pytest.raises(KeyboardInterrupt) as interrupt, terminable():
        processes.alone(linger, told)
    assert isinstance(interrupt.value, Terminated) == (number == signal.SIGTERM)
    assert told.read_text() == "terminated"


class Slow:
    """Something that takes long to be removed."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __del__(self) -> None:
        self.path.touch()
        time.sleep(20)


def linger_where_python_drops_errors(path: Path) -> None:
    try:
        slow = Slow(path.with_suffix(".begun"))
        del slow
        time.sleep(120)
    except Terminated:
        path.write_text("terminated")
        raise


def test_an_interrupt_that_python_drops_is_sent_again(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    told = tmp_path / "told"
    begun = told.with_suffix(".begun")
    threading.Thread(target=send, args=(signal.SIGTERM, begun), daemon=True).start()
    with pytest.raises(Terminated), terminable():
        processes.alone(linger_where_python_drops_errors, told)
    assert told.read_text() == "terminated" and "Traceback" not in capfd.readouterr().err


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
    with pytest.raises(Terminated), terminable():
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    assert signal.getsignal(signal.SIGTERM) == before
    seen = []

    def elsewhere() -> None:
        with terminable():
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
from ilkd_bench.plumbing import command, fork_server, processes

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


# ------------------------------------------------------------------------------------- the server


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A server of this test alone."""
    monkeypatch.setattr(processes, "_server", None)
    yield
    if processes._server is not None:
        processes._server.end()


def server() -> int:
    assert processes._server is not None
    return processes._server._process.pid


def count_and_kill_the_server(path: Path, times: int) -> None:
    """Note that it was begun, and kill the server the first few times."""
    lock = path.with_suffix(".lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails while another one is at it
    with path.open("a") as file:
        print(os.getpid(), file=file)
    if len(path.read_text().split()) <= times:
        os.kill(os.getppid(), signal.SIGKILL)
        time.sleep(120)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] not in "ZX"
    except OSError:
        return False


def wait_until_gone(pid: int) -> None:
    end = time.monotonic() + 100
    while alive(pid):
        assert time.monotonic() < end, pid
        time.sleep(0.01)


def test_a_server_that_died_is_started_again(
    fresh: None, capsys: pytest.CaptureFixture[str]
) -> None:
    assert processes.alone(print, "a") == 0
    os.kill(server(), signal.SIGKILL)
    assert processes.alone(print, "b") == 0
    said = capsys.readouterr().err
    assert said.count(" is gone: the process was killed by signal 9 (SIGKILL") == 1


@pytest.mark.parametrize(("deaths", "code"), [(1, 0), (2, -9)])
def test_work_whose_server_dies_is_begun_once_more_when_nothing_is_left_of_it(
    deaths: int, code: int, fresh: None, tmp_path: Path
) -> None:
    assert processes.alone(count_and_kill_the_server, tmp_path / "pids", deaths) == code
    pids = [int(pid) for pid in (tmp_path / "pids").read_text().split()]
    assert len(pids) == 2
    for pid in pids:
        wait_until_gone(pid)
    assert processes.alone(print, "the next one") == 0


def test_several_go_on_at_once_and_end_one_by_one(fresh: None, tmp_path: Path) -> None:
    """The first waits for a file that the second makes."""
    first = processes.Process(wait_for, tmp_path / "a" / "pid")
    (tmp_path / "a").mkdir()
    second = processes.Process(leave, "exit", tmp_path / "a" / "pid")
    assert second.end() == 3
    assert first.end() == 0


def wait_for(path: Path) -> None:
    end = time.monotonic() + 100
    while not path.exists() and time.monotonic() < end:
        time.sleep(0.02)


def test_all_whose_server_dies_are_begun_once_more(
    fresh: None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is said once."""
    names = [tmp_path / name for name in ("a", "b", "c")]
    begun = [processes.Process(note_and_wait, name, tmp_path / "go") for name in names]
    end = time.monotonic() + 100
    while not all(name.exists() for name in names) and time.monotonic() < end:
        time.sleep(0.02)
    os.kill(server(), signal.SIGKILL)
    assert [process.end() for process in begun] == [None] * 3
    (tmp_path / "go").touch()
    assert [process.end() for process in begun] == [0] * 3
    pids = [name.read_text().split() for name in names]
    assert [len(set(both)) for both in pids] == [2] * 3
    assert capsys.readouterr().err.count(" is gone: ") == 1


def note_and_wait(path: Path, go: Path) -> None:
    with path.open("a") as file:
        print(os.getpid(), file=file)
    wait_for(go)


def test_all_are_stopped_together(fresh: None, tmp_path: Path) -> None:
    told = [tmp_path / name for name in ("a", "b")]
    begun = [processes.Process(linger, path) for path in told]
    for path in told:
        wait_for(path.with_suffix(".begun"))
    processes.stop(begun)
    assert [path.read_text() for path in told] == ["terminated"] * 2
    processes.stop(begun)  # there is nothing left to do


@pytest.mark.parametrize(
    ("module", "said"),
    [
        ("raise ImportError('no room')", "cannot start: ImportError: no room"),
        ("raise MemoryError", "cannot start: MemoryError"),
        ("import os; os._exit(3)", "cannot start: the process ended with exit code 3"),
        # as OpenBLAS does where it gets no threads
        ("import signal; signal.raise_signal(signal.SIGINT)", r"killed by signal 2 \(SIGINT\)"),
    ],
)
def test_a_server_that_cannot_import_is_an_error_and_no_hang(
    module: str, said: str, fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "heavy.py").write_text(module)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(processes, "PRELOAD", ["heavy"])
    with pytest.raises(NoProcess, match=said):
        processes.alone(print, "never")


def test_an_unknown_address_space_limit_is_not_told_and_a_known_one_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    limits = command.limits
    assert limits() == "" or "ulimit" in limits()
    monkeypatch.setattr(command.resource, "getrlimit", lambda _: (2**30, 2**30))
    assert "`ulimit -v` is 1048576 kB here: type `ulimit -v unlimited`" in limits()


STUCK = """
import ctypes, os, pathlib
pathlib.Path(os.environ["PLACE"], "pid").write_text(str(os.getpid()))
ctypes.PyDLL(None).sleep(120)  # Python runs nothing else meanwhile, as in a library's own loop
"""

CALLER = """
import stuck_later
from ilkd_bench.plumbing import processes

processes.PRELOAD[:] = {preload}
processes.alone(stuck_later.work)
"""


@pytest.mark.parametrize("when", ["while it imports", "while it works"])
def test_whatever_they_are_at_server_and_work_end_with_their_caller(
    when: str, tmp_path: Path
) -> None:
    imports = when == "while it imports"
    (tmp_path / "stuck.py").write_text(STUCK)
    (tmp_path / "stuck_later.py").write_text("def work():\n    import stuck\n")
    (tmp_path / "tmp").mkdir()
    (tmp_path / "caller.py").write_text(CALLER.format(preload=["stuck"] if imports else []))
    environment = {"PYTHONPATH": f"{ROOT}{os.pathsep}{tmp_path}", "PLACE": str(tmp_path)}
    environment["TMPDIR"] = str(tmp_path / "tmp")
    caller = subprocess.Popen(
        [sys.executable, str(tmp_path / "caller.py")], env=os.environ | environment
    )
    end = time.monotonic() + 100
    while not ((tmp_path / "pid").exists() and (tmp_path / "pid").read_text()):
        assert time.monotonic() < end and caller.poll() is None
        time.sleep(0.01)
    caller.kill()
    caller.wait()
    wait_until_gone(int((tmp_path / "pid").read_text()))
    if not imports:  # the server had time to tidy up
        assert list((tmp_path / "tmp").iterdir()) == []


def test_work_takes_over_where_its_caller_is(
    fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it is now, not as it was when the server was started."""
    processes.alone(print, "started")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SAID", "later")
    monkeypatch.setattr(sys, "argv", ["changed"])
    assert processes.alone(tell_where) == 0
    assert (tmp_path / "told").read_text() == "later ['changed']"


def tell_where() -> None:
    Path("told").write_text(f"{os.environ['SAID']} {sys.argv}")


def test_no_process_can_be_forked_is_told(
    fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "forkless.py").write_text(
        "import os\ndef fork():\n    raise OSError(11, 'Resource temporarily unavailable')\n"
        "os.fork = fork\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(processes, "PRELOAD", ["forkless"])
    with pytest.raises(NoProcess, match="no process can be forked: Resource temporarily unav"):
        processes.alone(print, "never")


# --------------------------------------------------------------------------- the temporary folder


def note_temporary_folder(path: Path) -> None:
    path.write_text(tempfile.mkdtemp())


def test_what_work_puts_into_the_temporary_folder_goes_with_the_server(
    fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At its end, or, where it was killed, when the next one begins."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    processes.alone(note_temporary_folder, tmp_path / "note")
    left = Path((tmp_path / "note").read_text())
    assert left.is_dir() and left.parent.name.startswith(fork_server.PREFIX)
    os.kill(server(), signal.SIGKILL)
    processes.alone(print, "next")
    assert not left.parent.exists()


def test_only_dead_servers_folders_are_removed(tmp_path: Path) -> None:
    dead, alive, foreign, elsewhere = (tmp_path / f"{fork_server.PREFIX}{n}" for n in "abcd")
    for folder in (dead, alive, foreign):
        (folder / "sub").mkdir(parents=True)
    for folder in (dead, alive):
        (folder / fork_server.LOCK).touch()
    target = tmp_path / "target"
    target.mkdir()
    (target / fork_server.LOCK).touch()
    elsewhere.symlink_to(target)
    with (alive / fork_server.LOCK).open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        fork_server.remove_dead(tmp_path)
    assert sorted(tmp_path.iterdir()) == sorted([alive, foreign, elsewhere, target])
    assert (target / fork_server.LOCK).exists() and (foreign / "sub").exists()


def test_a_temporary_folder_too_long_for_sockets_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    long = tmp_path / ("x" * fork_server.LONGEST)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with fork_server.temporary_folder():
        with socket.socket(socket.AF_UNIX) as listener:
            name = "pymp-12345678/listener-12345678"
            (Path(tempfile.gettempdir()) / name).parent.mkdir()
            listener.bind(str(Path(tempfile.gettempdir()) / name))
        folder = Path(tempfile.gettempdir())
    assert not folder.exists() and list(long.iterdir()) == []
