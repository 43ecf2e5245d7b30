"""Bars where there is no terminal: a line now and then."""

from __future__ import annotations

import io
import logging
from dataclasses import dataclass

import pytest

from ilkd_bench.plumbing import terminal
from ilkd_bench.plumbing.terminal import Bars, Terminal, count, duration, track


@dataclass
class Hours:
    """A clock that is moved by hand."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> Hours:
    """The time, where standard error is a file."""
    made = Hours()
    console = Terminal(file=io.StringIO(), force_terminal=False, get_time=made)
    monkeypatch.setattr(terminal, "console", console)
    monkeypatch.setattr(terminal.time, "monotonic", made)
    caplog.set_level(logging.INFO)
    return made


def test_a_line_a_minute_tells_how_far_it_is(
    clock: Hours, caplog: pytest.LogCaptureFixture
) -> None:
    with Bars() as bars:
        task = bars.add_task("general stage of x", total=2000, state="")
        for step in range(1, 18):  # 10 steps in 10 seconds
            clock.now += 10
            bars.advance(task, 10)
            if step == 8:
                bars.update(task, state="look 1/8, loss 0.0723")
    assert caplog.messages == [
        "general stage of x: 60 of 2,000, about 32 min left",
        "general stage of x: 120 of 2,000, about 31 min left, look 1/8, loss 0.0723",
    ]


def test_of_unknown_length_the_number_so_far(
    clock: Hours, caplog: pytest.LogCaptureFixture
) -> None:
    with count("reading the corpus") as counted:
        for _ in range(3):
            clock.now += 40
            counted(2000)
    assert caplog.messages == ["reading the corpus: 4,000"]


def test_what_takes_less_than_a_minute_is_not_told(
    clock: Hours, caplog: pytest.LogCaptureFixture
) -> None:
    for _ in track(range(5), "scoring"):
        clock.now += 11
    assert caplog.messages == []


def test_a_terminal_has_its_bar_and_no_lines(
    clock: Hours, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    screen = Terminal(file=io.StringIO(), force_terminal=True, get_time=clock)
    monkeypatch.setattr(terminal, "console", screen)
    for _ in track(range(5), "scoring"):
        clock.now += 61
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (29.4, "29 s"),
        (31, "1 min"),
        (89, "1 min"),
        (3600, "60 min"),
        (7140, "119 min"),
        (7200, "2 h 0 min"),
        (7260 + 3600, "3 h 1 min"),
    ],
)
def test_a_duration_is_for_a_person(seconds: float, text: str) -> None:
    assert duration(seconds) == text
