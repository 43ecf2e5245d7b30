"""Tables from the records: `ilkd-bench tables`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from ilkd_bench.comparison import results
from ilkd_bench.reporting.tables import paper_tables, papers
from ilkd_bench.reporting.tables.grid import markdown
from ilkd_bench.reporting.tables.write import write


def parser(module: str, description: str) -> argparse.ArgumentParser:
    """Return a parser with the options that all commands on results share."""
    made = argparse.ArgumentParser(prog=f"python -m ilkd_bench.{module}", description=description)
    made.add_argument(
        "--results-dir", type=Path, default=Path("results"), help="where runs/ lies (results)"
    )
    return made


def main(argv: Sequence[str]) -> int:
    """Write the tables and print the overview, or one table of a paper."""
    options = parser("tables", "Write tables from the records.")
    options.add_argument(
        "--table", metavar="NAME", help=f"print one table of a paper: {', '.join(papers.TABLES)}"
    )
    options.add_argument("--teacher", help="show the papers' tables for another teacher")
    options.add_argument("--student", help="show the papers' tables for another student")
    given = options.parse_args(argv)
    if given.table is not None and given.table not in papers.TABLES:
        known = ", ".join(papers.TABLES)
        print(f"ilkd_bench: --table {given.table} is unknown: {known}", file=sys.stderr)
        return 2
    tables = {
        name: table.of_pair(given.teacher, given.student) for name, table in papers.TABLES.items()
    }
    try:
        found = results.load(given.results_dir)
        text, written = write(found, tables.values())
    except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
        print(f"ilkd_bench: {error}", file=sys.stderr)
        return 2
    folder = given.results_dir / "tables"
    if given.table is not None:
        print(markdown(paper_tables.build(tables[given.table], found)))
        print(f"table: {folder / given.table}.md, .csv, .tex, .html")
        for flaw in found.flaws:
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
