"""The zip for the GLUE server: `ilkd-bench submit`."""

from __future__ import annotations

if __name__ == "__main__":  # before what takes a while to import
    from ilkd_bench.plumbing.command import begin

    begin("submit")

import argparse
from collections.abc import Sequence
from pathlib import Path

from ilkd_bench.plumbing import command
from ilkd_bench.students import select
from ilkd_bench.students.glue import submission


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(
        "submit", "Makes the zip for the GLUE server from the runs that are best on dev."
    )
    add = parser.add_argument
    add(
        "--data-dir",
        type=command.folder,
        help="GLUE's text, DIR/<task>/<split>.jsonl; without it the hub",
    )
    add(
        "--cache-dir",
        type=command.folder,
        default=Path(".cache"),
        help="for tokenised text (.cache)",
    )
    for key in select.CHOICES:
        add(f"--{key}", help=f"the {key} to submit; needed where several are stored")
    add("--run", nargs="+", action="extend", default=[], metavar="ID", help="take this run")
    add(
        "--out",
        type=command.folder,
        default=Path("submission.zip"),
        help="the zip (submission.zip)",
    )
    add("--placeholder", action="store_true", help="constant answers where a task is missing")
    add("--limited", action="store_true", help="take limited runs where there are no others")
    add("--batch-size", type=int, default=64, help="rows at once (64); changes only the speed")
    add("--accelerator", choices=["auto", "cpu", "gpu"], default="auto", help="where to predict")
    return parser


@command.verb
def main(argv: Sequence[str]) -> int:
    """Write the zip; return 0, 1 if the server would not take it as it is, 2 if there is none."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.batch_size < 1:
        parser.error(f"--batch-size {args.batch_size}: allowed is a whole number of at least 1")
    problems = submission(args)
    for problem in problems:
        command.complain(problem)
    return 1 if problems else 0
