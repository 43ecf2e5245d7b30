"""Aligned columns: folded, left out, and safe to print."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from ilkd_bench.plumbing.table import plain, table

COLUMNS: dict[str, Callable[[Any], str]] = {
    "name": lambda row: row[0],
    "score": lambda row: row[1],
    "note": lambda row: row[2],
}
ROWS = [("short", "0.5", "x"), ("a_name_of_20_letters", "10.25", "two words")]


def lines(rows: Any = ROWS, **options: Any) -> list[str]:
    return table(rows, COLUMNS, **({"width": None, "numbers": ["score"]} | options))


def test_columns_are_aligned_and_nothing_trails() -> None:
    assert lines() == [
        "name                  score  note",
        "short                   0.5  x",
        "a_name_of_20_letters  10.25  two words",
    ]


def test_a_narrow_terminal_folds_what_may_be_folded() -> None:
    folded = lines(width=30, folded=["name"])
    assert max(map(len, folded)) <= 30
    assert folded[2:] == ["a_name_of_20  10.25  two words", "_letters"]


def test_a_narrower_one_leaves_columns_out_and_says_so() -> None:
    short = lines(width=16, folded=["name"], dropped=["note"], instead="csv has them")
    assert short[-1] == "left out: note (csv has them)"
    assert all("two" not in line for line in short) and short[0].split() == ["name", "score"]


def test_where_nothing_helps_lines_stay_whole() -> None:
    assert lines(width=3) == lines()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("größer :smile: [red] 長い", "größer :smile: [red] 長い"),
        ("a\x1b[31mb", "a [31mb"),
        ("one\r\ntwo\tthree\x00", "one two three"),
        ("left\u202eright\u2028more", "left right more"),
        ("\n", ""),
    ],
    ids=repr,
)
def test_no_text_moves_the_cursor(text: str, shown: str) -> None:
    assert plain(text) == shown
    for line in lines([(text, text, text)]):
        assert line.isprintable()


def test_numbers_are_shown_as_they_are_written() -> None:
    assert lines([("1e-05", "0.10", "007")])[1] == "1e-05   0.10  007"


def test_ten_thousand_rows_take_a_moment() -> None:
    rows = [("a_name_of_20_letters", "10.25", str(number)) for number in range(10_000)]
    started = time.process_time()
    assert len(lines(rows, width=30, folded=["name"])) == 20_001
    assert time.process_time() - started < 10  # seconds; half a second on an idle machine
