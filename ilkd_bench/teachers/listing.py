"""The banks of a cache folder as rows for a person."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from rich.filesize import decimal

from ilkd_bench.plumbing.table import table
from ilkd_bench.teachers.bank import DAY, Entry

FOLDED = ("teacher", "task", "split", "fields")
DROPPED = ("age", "fields", "rows")
"""Columns that a narrow terminal does without, in this order."""


def rows(banks: Sequence[Entry], now: float, width: int | None) -> list[str]:
    """Return a line per bank, after a head.

    Args:
        now: seconds since 1970.
        width: of the terminal; None: whole lines.
    """

    def about(name: str) -> Callable[[Entry], str]:
        return lambda bank: str(bank.about.get(name) or "")

    columns: dict[str, Callable[[Entry], str]] = {
        "bank": lambda bank: bank.key,
        "teacher": about("teacher"),
        "epoch": about("epoch"),
        "task": about("task"),
        "split": lambda bank: str(bank.about.get("split", "half-built or damaged")),
        "rows": lambda bank: str(bank.about.get("rows", "")),
        "fields": lambda bank: " ".join(bank.about.get("files", {})),
        "size": lambda bank: decimal(bank.bytes),
        "age": lambda bank: age(now - bank.built),
        "last use": lambda bank: age(now - bank.used),
    }
    if not banks:
        return []
    return table(banks, columns, width=width, folded=FOLDED, dropped=DROPPED)


def total(banks: Sequence[Entry], what: str) -> str:
    """Return the line below a listing."""
    return f"{len(banks)} banks {what}, {decimal(sum(bank.bytes for bank in banks))}"


def age(seconds: float) -> str:
    """Return a duration for a person, in its largest unit."""
    for unit, length in (("days", DAY), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0, seconds):.0f} seconds"
