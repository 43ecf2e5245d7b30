"""The banks of a cache folder: `ilkd-bench banks` lists them, `... prune` removes old ones."""

from __future__ import annotations

import argparse
import logging
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.filesize import decimal
from rich.table import Table

from ilkd_bench.teachers.bank import DAY, Entry, entries, prune

log = logging.getLogger(__name__)


def table(listed: Sequence[Entry], now: float) -> Table:
    """Return the listing for a terminal."""
    columns = (
        "bank",
        "teacher",
        "epoch",
        "task",
        "split",
        "rows",
        "fields",
        "size",
        "age",
        "last use",
    )
    shown = Table(*columns, box=None)
    for entry in listed:
        about = entry.about
        state = "half-built or damaged"
        shown.add_row(
            entry.key,
            *(str(about.get(name) or "") for name in ("teacher", "epoch", "task")),
            str(about.get("split", state)),
            *(str(about.get("rows", "")), " ".join(about.get("files", {}))),
            decimal(entry.bytes),
            age(now - entry.built),
            age(now - entry.used),
        )
    return shown


def age(seconds: float) -> str:
    """Return a duration for a person, in its largest unit."""
    for unit, length in (("days", DAY), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{max(0, seconds):.0f} seconds"


def main(argv: Sequence[str]) -> int:
    """List or prune; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m ilkd_bench.banks",
        description="Lists what teachers show for the rows of a split, stored once for all runs. "
        "A bank that is removed is built again by the next run that needs it.",
    )
    parser.add_argument("command", nargs="?", choices=["list", "prune"], default="list")
    parser.add_argument("--cache-dir", type=Path, default=Path(".cache"))
    parser.add_argument(
        "--older-than", type=_amount, metavar="DAYS", help="prune: not used for so many days"
    )
    parser.add_argument(
        "--max-size", type=_amount, metavar="GB", help="prune: the least recently used beyond it"
    )
    args = parser.parse_args(argv)
    limits = (args.older_than, args.max_size)
    if args.command == "prune" and limits == (None, None):
        parser.error("prune what? Give --older-than DAYS, --max-size GB, or both")
    if args.command == "list" and limits != (None, None):
        parser.error("--older-than and --max-size remove banks: type prune before them")
    now, console = time.time(), Console()
    if not console.is_terminal:
        console.width = 200  # whole lines for what reads them
    if args.command == "prune":
        size_limit = None if args.max_size is None else args.max_size * 1e9
        shown = prune(args.cache_dir, older_than=args.older_than, max_size=size_limit, now=now)
        told = "removed"
    else:
        shown, told = list(entries(args.cache_dir)), f"in {args.cache_dir / 'banks'}"
    if shown:
        console.print(table(shown, now))
    said = f"{len(shown)} banks {told}, {decimal(sum(entry.bytes for entry in shown))}"
    console.print(said, markup=False, highlight=False, soft_wrap=True)
    return 0


def _amount(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not value >= 0:
        raise argparse.ArgumentTypeError(f"{text}: allowed is a number from 0")
    return value


def cli() -> None:
    """Entry point of the installed command."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
