"""Lines and bars of several processes on one terminal."""

from __future__ import annotations

import io
import logging
from collections.abc import Iterator
from pathlib import Path

import pytest

from ilkd_bench.plumbing import board, terminal
from ilkd_bench.plumbing.board import Board, Sender
from ilkd_bench.plumbing.fork_server import own_folder


@pytest.fixture
def folder() -> Iterator[Path]:
    """One whose name is short enough for a socket."""
    with own_folder() as short:
        yield short


@pytest.fixture
def screen(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """A terminal of 80 columns."""
    written = io.StringIO()
    console = terminal.Terminal(file=written, force_terminal=True, width=80, color_system=None)
    monkeypatch.setattr(terminal, "console", console)
    monkeypatch.setattr(board, "console", console)
    return written


def shown(screen: io.StringIO) -> str:
    """What was written since the last look."""
    text = screen.getvalue()
    screen.seek(0)
    screen.truncate()
    return text


def test_each_process_has_a_bar_below_the_counts(
    folder: Path, screen: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Board(folder) as shared:
        terminal.heading = "1 done, 3 left"
        one, other = (Sender(shared.address, who) for who in ("a", "b"))
        shared.begin("a", "mrpc pkd seed 0")
        shared.begin("b", "mrpc pkd seed 1")
        shown(screen)
        one.bar("pkd seed 0", 3, 12, "epoch 1/4")
        shared.look()
        text = shown(screen)
        assert text.index("1 done, 3 left") < text.index("pkd seed 0") < text.index("pkd seed 1")
        assert "3/12" in text and "epoch 1/4" in text
        one.no_bar()
        shared.look()
        text = shown(screen)
        assert "mrpc pkd seed 0" in text and "3/12" not in text and "epoch" not in text
        other.line("pkd, seed 1: dev 0.5")
        shared.end("b")
        text = shown(screen)
        assert "pkd, seed 1: dev 0.5\n" in text, "what was said before the end comes out"
        assert "mrpc pkd seed 1" not in text.rpartition("\n")[0].rpartition("1 done")[2]
        other.bar("pkd seed 1", 1, 2, "")  # too late
        shared.look()
        assert "1/2" not in shown(screen)
    assert terminal.heading == ""


def test_a_bar_is_sent_now_and_then_and_a_line_always(folder: Path) -> None:
    with Board(folder) as shared:
        sender = Sender(shared.address, "a")
        for number in range(1000):  # more than a socket holds
            sender.bar("pkd", number, 1000, "")
        sender.line("the end")
        assert b"pkd" in shared._socket.recv(10_000)
        assert b"the end" in shared._socket.recv(10_000)


def test_what_several_wait_for_is_said_once(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with Board(folder) as shared:
        for who in "abc":
            Sender(shared.address, who).line("waiting: another run is fine-tuning the teacher")
            Sender(shared.address, who).line("done")
        shared.look()
    said = capfd.readouterr().err.splitlines()
    assert said == ["waiting: another run is fine-tuning the teacher", "done", "done", "done"]


def test_without_a_board_a_process_goes_on(folder: Path) -> None:
    with Board(folder) as shared:
        sender = Sender(shared.address, "a")
    sender.line("nobody reads this")
    sender.bar("pkd", 1, 2, "")
    sender.no_bar()


def test_log_lines_and_bars_go_where_they_are_shown(
    folder: Path, screen: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Board(folder) as shared:
        shared.begin("a", "pkd")
        shown(screen)
        monkeypatch.setattr(terminal, "elsewhere", Sender(shared.address, "a"))
        terminal.Lines().emit(logging.LogRecord("x", 20, "", 1, "a line of %d", (7,), None))
        for _ in terminal.track(range(3), "scoring"):
            break
        list(terminal.track(range(3), "counting"))
        assert shown(screen) == "", "not here"
        monkeypatch.setattr(terminal, "elsewhere", None)
        shared.look()
        assert "a line of 7\n" in shown(screen)
