"""Tables from the records: `ilkd-bench tables`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ilkd_bench.comparison.results import load
from ilkd_bench.reporting.tables import paper_tables, papers
from ilkd_bench.reporting.tables.grid import markdown
from ilkd_bench.reporting.tables.write import write


def parser(module: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all commands on results share."""
    parser = argparse.ArgumentParser(prog=f"python -m ilkd_bench.{module}", description=description)
    parser.add_argument(
        "--results-dir", type=Path, default=Path("results"), help="where runs/ lies (results)"
    )
    return parser


def main(argv: Sequence[str]) -> int:
    """Write the tables and print the overview, or one table of a paper."""
    of_papers = papers.tables()
    names = ", ".join(of_papers)
    options = parser("tables", "Write tables from the records.")
    options.add_argument("--table", metavar="NAME", help=f"print one table of a paper: {names}")
    options.add_argument("--teacher", help="show the papers' tables for another teacher")
    options.add_argument("--student", help="show the papers' tables for another student")
    args = options.parse_args(argv)
    if args.table is not None and args.table not in of_papers:
        print(f"ilkd_bench: --table {args.table} is unknown: {names}", file=sys.stderr)
        return 2
    tables = {name: table.of_pair(args.teacher, args.student) for name, table in of_papers.items()}
    try:
        results = load(args.results_dir)
        text, written = write(results, tables.values())
    except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
        print(f"ilkd_bench: {error}", file=sys.stderr)
        return 2
    folder = args.results_dir / "tables"
    if args.table is not None:
        print(markdown(paper_tables.build(tables[args.table], results)))
        print(f"table: {folder / args.table}.md, .csv, .tex, .html")
        for flaw in results.flaws:
            print(f"ilkd_bench: {flaw}", file=sys.stderr)
        return 0
    print(text)
    print(f"table: {folder / 'overview.md'}; all numbers: {folder / 'summary.csv'}")
    if written:
        print(f"papers' tables with results: {', '.join(written)} (--table NAME)")
    return 0


def cli() -> None:
    """Entry point of the installed command."""
    sys.exit(main(sys.argv[1:]))


if __name__ == "__main__":
    cli()
