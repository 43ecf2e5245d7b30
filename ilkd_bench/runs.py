"""The runs below a results folder: `ilkd-bench runs`."""

from __future__ import annotations

import argparse
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path

from rich.console import Console
from rich.text import Text

from ilkd_bench.records.listing import (
    FILTERS,
    RUN,
    STATES,
    Run,
    _plain,
    as_csv,
    as_json,
    command,
    described,
    fits,
    load,
    look,
    one,
    table,
    told,
    why_failed,
)
from ilkd_bench.types import BadInput


def planned(words: Sequence[str]) -> list[Run]:
    """Return the runs of a command line of `ilkd_bench.run`, in its order.

    Raises:
        BadInput: a word is wrong.
    """
    from ilkd_bench.jobs import plan  # only here: Hydra takes a second to import

    flags = [word for word in words if word in ("-m", "--multirun")]
    for word in words:
        if word.startswith("-") and word not in flags:
            raise BadInput(
                f"{word} after --missing: allowed are the words of a run (-m, key=value); "
                "options of this command come before --missing"
            )
    found = []
    for job in plan.plan(flags + [word for word in words if word not in flags]):
        planned_only = {"config": job.run.identity, "argv": list(job.words)}
        run = look(job.folder) or described(job.folder, planned_only, "missing", when=None)
        found.append(replace(run, command=command(list(job.words))))
    return found


def _print(lines: Sequence[str]) -> None:
    """Print lines, on a terminal with the states in colour."""
    if not sys.stdout.isatty():
        print("\n".join(lines))
        return
    coloured = [Text(line) for line in lines]
    for text in coloured:
        state = text.plain.partition(" ")[0]
        text.stylize(STATES.get(state, ""), 0, len(state))
    Console().print(Text("\n").join(coloured), soft_wrap=True)  # at once: many calls are slow


# ------------------------------------------------------------------------------------- command line


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ilkd_bench.runs",
        description="Lists the runs below a results folder. A run that was stopped goes on when "
        "its command is typed again.",
    )
    for name in FILTERS:
        parser.add_argument(
            f"--{name}", nargs="+", action="extend", help=f"only these {name}s; patterns as in 'a*'"
        )
    parser.add_argument(
        "--status", nargs="+", action="extend", help=f"only these states: {', '.join(STATES)}"
    )
    parser.add_argument(
        "--results-dir", type=Path, help="where runs/ lies (results)", metavar="DIR"
    )
    parser.add_argument("--format", choices=["table", "csv", "json"], default="table")
    asked = parser.add_mutually_exclusive_group()
    asked.add_argument("--failed", action="store_true", help="what failed, and why")
    asked.add_argument("--command", metavar="ID", help="the line that repeats a run")
    asked.add_argument(
        "--missing",
        nargs=argparse.REMAINDER,
        metavar="WORDS",
        help=f"what is not done of the command {RUN} WORDS; comes last",
    )
    return parser


def main(argv: Sequence[str]) -> int:
    """List what was asked for; return the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # whatever letters a name has
    args = _arguments(argv)
    try:
        runs = load(args.results_dir) if args.missing is None else planned(args.missing)
        fitting = [run for run in runs if fits(run, args.filters)]
        if args.command is not None:
            _print([one(args.command, fitting)])
            return 0
    except (BadInput, OSError) as error:
        print(f"ilkd_bench: {error}", file=sys.stderr)
        return 2
    shown = [r for r in fitting if any(fnmatchcase(r.state, p) for p in args.status)]
    if args.missing is not None:
        shown = [run for run in shown if run.state != "done"]
    if args.format == "table":
        _print(_lines(args, shown, fitting, len(runs)))
    else:
        sys.stdout.write(as_csv(shown) if args.format == "csv" else as_json(shown))
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
    """Return the patterns of an option; commas part them as in `method=a,b` of a run."""
    return [pattern for word in words or () for pattern in word.split(",")]


def _lines(
    args: argparse.Namespace, shown: Sequence[Run], fitting: Sequence[Run], number: int
) -> list[str]:
    """Return what the table format prints."""
    if args.missing is not None:
        done = sum(run.state == "done" for run in fitting)
        rest = told([run for run in fitting if run.state != "done"])
        lines = [f"{run.state:<8} {run.command}" for run in shown]
        return [*lines, f"{done} of {len(fitting)} runs are done" + (f"; {rest}" if rest else "")]
    lines = [why_failed(run) for run in shown] if args.failed else []
    if shown and not args.failed:
        lines += table(shown, Console().width if sys.stdout.isatty() else None)
        damaged = [run for run in shown if run.state == "damaged"]
        lines += [_plain(f"damaged: {run.folder}/record.json: {run.reason}") for run in damaged]
    of = "" if len(shown) == number else f" of {number}"
    states = f": {told(shown)}" if shown else ""
    return [*lines, f"{len(shown)}{of} runs in {args.results_dir / 'runs'}{states}"]


def cli() -> None:
    """Entry point of the installed command."""
    try:
        code = main(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # `| head` has read enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    sys.exit(code)


if __name__ == "__main__":
    cli()
