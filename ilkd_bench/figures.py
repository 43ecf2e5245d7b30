"""Figures from the records: `ilkd-bench figures`."""

from __future__ import annotations

if __name__ == "__main__":  # before what takes a while to import
    from ilkd_bench.plumbing.command import begin

    begin("figures")

import argparse
from collections.abc import Sequence

from ilkd_bench.plumbing import command
from ilkd_bench.records.read import load_records
from ilkd_bench.reporting.figures.catalogue import FIGURES
from ilkd_bench.reporting.figures.write import write
from ilkd_bench.types import BadInput


def _parser() -> argparse.ArgumentParser:
    names = [entry.name for entry in FIGURES]
    parser = command.parser(
        "figures", "Draws figures from the records and the analyses of the runs."
    )
    parser.add_argument(
        "--figure",
        action="append",
        choices=names,
        metavar="NAME",
        help=f"only this one (all): {', '.join(names)}",
    )
    parser.add_argument("--png", action="store_true", help="PNG files too")
    return parser


@command.verb
def main(argv: Sequence[str]) -> int:
    """Write the figures that can be drawn, and say why others cannot.

    Returns:
        Of figures that were asked for 1 if one has no data, 2 if a file of one is damaged; 2 also
        without records.
    """
    args = _parser().parse_args(argv)
    forms = ("svg", "pdf", "png") if args.png else ("svg", "pdf")
    stored = load_records(args.results_dir)
    for flaw in stored.flaws:
        command.complain(flaw)
    if not stored.records:
        raise command.no_runs(args.results_dir)
    without, damaged = [], False
    for entry in FIGURES:
        if args.figure and entry.name not in args.figure:
            continue
        try:
            pictures = write(entry, args.results_dir, stored.records, forms)
        except BadInput as error:  # one of its files is damaged; the others do without
            command.complain(f"no figure {entry.name}: {error}")
            damaged = True
            continue
        without += [] if pictures else [entry]
        for path in pictures:
            if path.suffix == ".svg":
                command.say(f"figure: {path}")
    for entry in without:
        command.complain(f"no figure {entry.name}: {entry.missing}")
    if args.figure and damaged:
        return 2
    return 1 if args.figure and without else 0
