"""Tables from the records: `ilkd-bench tables`."""

from __future__ import annotations

if __name__ == "__main__":  # before what takes a while to import
    from ilkd_bench.plumbing.command import begin

    begin("tables")

import argparse
from collections.abc import Sequence

from ilkd_bench.comparison.results import load
from ilkd_bench.plumbing import command
from ilkd_bench.plumbing.logs import terminal_lines
from ilkd_bench.reporting.tables import paper_tables, papers
from ilkd_bench.reporting.tables.grid import markdown
from ilkd_bench.reporting.tables.write import write
from ilkd_bench.types import BadInput


def _parser() -> argparse.ArgumentParser:
    parser = command.parser("tables", "Write tables from the records.")
    names = ", ".join(papers.tables())
    parser.add_argument("--table", metavar="NAME", help=f"print one table of a paper: {names}")
    parser.add_argument("--teacher", help="show the papers' tables for another teacher")
    parser.add_argument("--student", help="show the papers' tables for another student")
    return parser


@command.verb
def main(argv: Sequence[str]) -> int:
    """Write the tables and print the overview, or one table of a paper."""
    args = _parser().parse_args(argv)
    of_papers = papers.tables()
    if args.table is not None and args.table not in of_papers:
        raise BadInput(f"--table {args.table} is unknown: {', '.join(of_papers)}")
    tables = {name: table.of_pair(args.teacher, args.student) for name, table in of_papers.items()}
    with terminal_lines():
        results = load(args.results_dir)
    overview, written = write(results, tables.values())
    folder = args.results_dir / "tables"
    if args.table is not None:
        command.say(markdown(paper_tables.build(tables[args.table], results)))
        command.say(f"table: {folder / args.table}.md, .csv, .tex, .html")
        for flaw in results.flaws:
            command.complain(flaw)
        return 0
    command.say(overview)
    command.say(f"table: {folder / 'overview.md'}; all numbers: {folder / 'summary.csv'}")
    if written:
        command.say(f"papers' tables with results: {', '.join(written)} (--table NAME)")
    return 0
