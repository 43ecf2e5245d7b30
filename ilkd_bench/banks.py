"""What is stored once for all runs: `ilkd-bench banks` lists it, `... prune` removes old parts."""

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
from ilkd_bench.teachers.cache import entries, prune


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(
        "banks",
        "Lists what is stored once for all runs: fine-tuned teachers, banks of what they show for "
        "the rows of a split, tokenised text, models of packages that were converted, halves of "
        "them that a killed run left, and remembered hashes of files. What is removed is made "
        "again by the next run that needs it; what a run uses is not removed.",
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
        found = prune(args.cache_dir, older_than=args.older_than, max_size=size_limit, now=now)
        what = "removed"
    else:
        found, what = list(entries(args.cache_dir)), f"in {args.cache_dir}"
    show([*listing.rows(found, now, terminal_width()), listing.total(found, what)], {})
    return 0
