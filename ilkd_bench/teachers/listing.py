"""What lies in a folder of caches, as rows for a person."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence

from rich.filesize import decimal

from ilkd_bench.plumbing.table import table
from ilkd_bench.teachers.cache import DAY, Entry

FOLDED = ("name", "kind", "teacher", "task", "split", "fields")
DROPPED = ("age", "fields", "rows")
"""Columns that a narrow terminal does without, in this order."""


def rows(entries: Sequence[Entry], now: float, width: int | None) -> list[str]:
    """Return a line per entry, after a head.

    Args:
        now: seconds since 1970.
        width: of the terminal; None: whole lines.
    """

    def about(name: str) -> Callable[[Entry], str]:
        return lambda entry: str(entry.about.get(name) or "")

    columns: dict[str, Callable[[Entry], str]] = {
        "name": lambda entry: entry.key,
        "kind": lambda entry: entry.kind,
        "teacher": about("teacher"),
        "epoch": about("epoch"),
        "task": about("task"),
        "split": about("split"),
        "rows": about("rows"),
        "fields": lambda entry: " ".join(entry.about.get("files", {})),
        "size": lambda entry: decimal(entry.bytes),
        "age": lambda entry: age(now - entry.built),
        "last use": lambda entry: age(now - entry.used),
    }
    if not entries:
        return []
    return table(entries, columns, width=width, folded=FOLDED, dropped=DROPPED)


def total(entries: Sequence[Entry], what: str) -> str:
    """Return the line below a listing: how many of each kind, and what they take."""
    counts = {"bank": 0} | Counter(entry.kind for entry in entries)
    numbers = ", ".join(f"{count} {plural(kind)}" for kind, count in counts.items())
    return f"{numbers} {what}, {decimal(sum(entry.bytes for entry in entries))}"


PLURAL = ("tokens", "hashes")
"""Kinds whose name is a plural."""


def plural(kind: str) -> str:
    """Return the name of several of a kind."""
    return kind if kind in PLURAL else f"{kind}s"


def age(seconds: float) -> str:
    """Return a duration for a person, in its largest unit."""
    for unit, length in (("days", DAY), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0, seconds):.0f} seconds"
