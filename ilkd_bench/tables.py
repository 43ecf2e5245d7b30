"""Tables from the records: `ilkd-bench tables`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from ilkd_bench.comparison import results
from ilkd_bench.plumbing import command
from ilkd_bench.reporting.tables import paper_tables, papers
from ilkd_bench.reporting.tables.grid import markdown
from ilkd_bench.reporting.tables.write import write
from ilkd_bench.types import BadInput


def _parser() -> argparse.ArgumentParser:
    parser = command.parser("tables", "Write tables from the records.")
    parser.add_argument(
        "--table", metavar="NAME", help=f"print one table of a paper: {', '.join(papers.TABLES)}"
    )
    parser.add_argument("--teacher", help="show the papers' tables for another teacher")
    parser.add_argument("--student", help="show the papers' tables for another student")
    return parser


@command.verb
def main(argv: Sequence[str]) -> int:
    """Write the tables and print the overview, or one table of a paper."""
    args = _parser().parse_args(argv)
    if args.table is not None and args.table not in papers.TABLES:
        raise BadInput(f"--table {args.table} is unknown: {', '.join(papers.TABLES)}")
    tables = {
        name: table.of_pair(args.teacher, args.student) for name, table in papers.TABLES.items()
    }
    findings = results.load(args.results_dir)
    overview, written = write(findings, tables.values())
    folder = args.results_dir / "tables"
    if args.table is not None:
        print(markdown(paper_tables.build(tables[args.table], findings)))
        print(f"table: {folder / args.table}.md, .csv, .tex, .html")
        for flaw in findings.flaws:
            command.complain(flaw)
        return 0
    print(overview)
    print(f"table: {folder / 'overview.md'}; all numbers: {folder / 'summary.csv'}")
    if written:
        print(f"papers' tables with results: {', '.join(written)} (--table NAME)")
    return 0


if __name__ == "__main__":
    command.cli(main)
