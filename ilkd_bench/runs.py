"""The runs below a results folder: `ilkd-bench runs`."""

from __future__ import annotations

if __name__ == "__main__":  # before what takes a while to import
    from ilkd_bench.plumbing.command import begin

    begin("runs")

import argparse
import sys
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path

from ilkd_bench.plumbing import command
from ilkd_bench.plumbing.table import show, terminal_width
from ilkd_bench.records import listing
from ilkd_bench.records.find import find
from ilkd_bench.records.listing import FILTERS, STATES


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(
        "runs",
        "Lists the runs below a results folder. A run that was stopped goes on when its command is "
        "typed again.",
    )
    parser.set_defaults(results_dir=None)
    for name in FILTERS:
        parser.add_argument(
            f"--{name}", nargs="+", action="extend", help=f"only these {name}s; patterns as in 'a*'"
        )
    parser.add_argument(
        "--status", nargs="+", action="extend", help=f"only these states: {', '.join(STATES)}"
    )
    parser.add_argument("--format", choices=["table", "csv", "json"], default="table")
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument("--failed", action="store_true", help="what failed, and why")
    asked.add_argument("--command", metavar="ID", help="the line that repeats a run")
    asked.add_argument(
        "--missing",
        nargs=argparse.REMAINDER,
        metavar="WORDS",
        help=f"what is not done of the command {command.run_line(())} WORDS; comes last",
    )
    return parser


@command.verb
def main(argv: Sequence[str]) -> int:
    """List what was asked for; return the exit code."""
    args = _arguments(argv)
    if args.missing is None:
        runs = listing.load(args.results_dir)
    else:
        from ilkd_bench.jobs.planned import planned  # only here: Hydra takes a second to import

        runs = planned(args.missing)
    fitting = [run for run in runs if listing.fits(run, args.filters)]
    if args.command is not None:
        folders = [Path(run.folder) for run in fitting]
        command.say(listing.command_of(find(args.command, args.results_dir, folders)))
        return 0
    chosen = listing.in_states(fitting, args.status)
    if args.missing is not None:
        chosen = [run for run in chosen if run.state != "done"]
    if args.format == "csv":
        sys.stdout.write(listing.as_csv(chosen))
    elif args.format == "json":
        sys.stdout.write(listing.as_json(chosen))
    elif args.missing is not None:
        show(listing.to_do(fitting, args.status), STATES)
    else:
        lines = (
            map(listing.why_failed, chosen)
            if args.failed
            else listing.rows(chosen, terminal_width())
        )
        show([*lines, listing.total(chosen, len(runs), args.results_dir)], STATES)
    return 0


def _arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = _parser()
    args = parser.parse_args(argv)
    args.status = _patterns(args.status)
    args.filters = {name: _patterns(vars(args)[name]) for name in FILTERS if vars(args)[name]}
    for pattern in args.status:
        if not any(fnmatchcase(state, pattern) for state in STATES):
            parser.error(f"--status {pattern}: allowed are {', '.join(STATES)}")
    if args.failed and args.status:
        parser.error("--failed is --status failed with the reasons: leave --status out")
    if args.command is not None and args.format != "table":
        parser.error("--command prints one line: leave --format out")
    if args.missing is not None and args.results_dir is not None:
        parser.error(f"in place of --results-dir type results_dir={args.results_dir} at the end")
    args.status = ["failed"] if args.failed else args.status or ["*"]
    args.results_dir = args.results_dir or Path("results")
    return args


def _patterns(words: Sequence[str] | None) -> list[str]:
    return [pattern for word in words or () for pattern in word.split(",")]
