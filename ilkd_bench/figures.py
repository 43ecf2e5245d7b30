"""Figures from the records: `ilkd-bench figures`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ilkd_bench.comparison import scores
from ilkd_bench.reporting.figures.catalogue import FIGURES, RUN
from ilkd_bench.reporting.figures.write import write
from ilkd_bench.types import BadInput


def _parser() -> argparse.ArgumentParser:
    names = [entry.name for entry in FIGURES]
    parser = argparse.ArgumentParser(
        prog="python -m ilkd_bench.figures",
        description="Draws figures from the records and the analyses of the runs.",
    )
    parser.add_argument(
        "--results-dir", type=Path, default=Path("results"), help="where runs/ lies (results)"
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


def main(argv: Sequence[str]) -> int:
    """Write the figures; return 1 if one that was asked for has no data, 2 without records."""
    args = _parser().parse_args(argv)
    forms = ("svg", "pdf", "png") if args.png else ("svg", "pdf")
    without = []
    try:
        stored = scores.read(args.results_dir)
        records = stored.records
        for flaw in stored.flaws:
            print(f"ilkd_bench: {flaw}", file=sys.stderr)
        if not records:
            raise BadInput(f"no records in {args.results_dir / 'runs'}: run something, e.g. {RUN}")
        for entry in FIGURES:
            if args.figure and entry.name not in args.figure:
                continue
            written = write(entry, args.results_dir, records, forms)
            without += [] if written else [entry]
            for path in written:
                if path.suffix == ".svg":
                    print(f"figure: {path}")
    except (BadInput, OSError) as error:
        print(f"ilkd_bench: {error}", file=sys.stderr)
        return 2
    for entry in without:
        print(f"ilkd_bench: no figure {entry.name}: {entry.missing}", file=sys.stderr)
    return 1 if args.figure and without else 0


def cli() -> None:
    """Entry point of the installed command."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    cli()
