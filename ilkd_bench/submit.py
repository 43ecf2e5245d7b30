"""The zip for the GLUE server: `ilkd-bench submit`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ilkd_bench.students import select
from ilkd_bench.students.glue import submission
from ilkd_bench.types import BadInput

if TYPE_CHECKING:
    pass


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m ilkd_bench.submit",
        description="Makes the zip for the GLUE server from the runs that are best on dev.",
    )
    add = parser.add_argument
    add("--results-dir", type=Path, default=Path("results"), help="where runs/ lies (results)")
    add("--data-dir", type=Path, help="GLUE's text, DIR/<task>/<split>.jsonl; without it the hub")
    add("--cache-dir", type=Path, default=Path(".cache"), help="for tokenised text (.cache)")
    for key in select.CHOICES:
        add(f"--{key}", help=f"the {key} to submit; needed where several are stored")
    add("--run", nargs="+", action="extend", default=[], metavar="ID", help="take this run")
    add("--out", type=Path, default=Path("submission.zip"), help="the zip (submission.zip)")
    add("--placeholder", action="store_true", help="constant answers where a task is missing")
    add("--limited", action="store_true", help="take limited runs where there are no others")
    add("--batch-size", type=int, default=64, help="rows at once (64); changes only the speed")
    add("--accelerator", choices=["auto", "cpu", "gpu"], default="auto", help="where to predict")
    return parser


def main(argv: Sequence[str]) -> int:
    """Write the zip; return 0, 1 if the server would not take it as it is, 2 if there is none."""
    parser = _parser()
    args = parser.parse_args(argv)
    if args.batch_size < 1:
        parser.error(f"--batch-size {args.batch_size}: allowed is a whole number of at least 1")
    try:
        problems = submission(args)
    except (BadInput, OSError) as error:
        print(f"ilkd_bench: {error}", file=sys.stderr)
        return 2
    for problem in problems:
        print(f"ilkd_bench: {problem}", file=sys.stderr)
    return 1 if problems else 0


def cli() -> None:
    """Entry point of the installed command."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    cli()
