"""The banks of a cache folder: `ilkd-bench banks` lists them, `... prune` removes old ones."""

from __future__ import annotations

if __name__ == "__main__":  # before what takes a while to import
    from ilkd_bench.plumbing.command import begin

    begin("banks")

import argparse
import time
from collections.abc import Sequence
from pathlib import Path

from ilkd_bench.plumbing import command
from ilkd_bench.plumbing.table import show, terminal_width
from ilkd_bench.teachers import listing
from ilkd_bench.teachers.bank import entries, prune


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(
        "banks",
        "Lists what teachers show for the rows of a split, stored once for all runs. A bank that "
        "is removed is built again by the next run that needs it.",
        on_results=False,
    )
    parser.add_argument("command", nargs="?", choices=["list", "prune"], default="list")
    parser.add_argument("--cache-dir", type=command.folder, default=Path(".cache"))
    parser.add_argument(
        "--older-than", type=command.amount, metavar="DAYS", help="prune: not used for so many days"
    )
    parser.add_argument(
        "--max-size",
        type=command.amount,
        metavar="GB",
        help="prune: the least recently used beyond it",
    )
    return parser


@command.verb
def main(argv: Sequence[str]) -> int:
    """List or prune; return the exit code."""
    parser = _parser()
    args = parser.parse_args(argv)
    limits = (args.older_than, args.max_size)
    if args.command == "prune" and limits == (None, None):
        parser.error("prune what? Give --older-than DAYS, --max-size GB, or both")
    if args.command == "list" and limits != (None, None):
        parser.error("--older-than and --max-size remove banks: type prune before them")
    now = time.time()
    if args.command == "prune":
        size_limit = None if args.max_size is None else args.max_size * 1e9
        banks = prune(args.cache_dir, older_than=args.older_than, max_size=size_limit, now=now)
        what = "removed"
    else:
        banks, what = list(entries(args.cache_dir)), f"in {args.cache_dir / 'banks'}"
    show([*listing.rows(banks, now, terminal_width()), listing.total(banks, what)], {})
    return 0
