"""Tables from the records: `python -m ilkd_bench.tables [--table NAME]`.

Learning rate and batch size are chosen per task and method by the mean dev score over seeds, never
per seed. Then mean, standard deviation (ddof 1) and the number of seeds. What is missing is a dash.
Needs neither torch nor a network.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from ilkd_bench import findings, overview, paper_tables, papers, reference, store
from ilkd_bench.controls import layer_choice
from ilkd_bench.findings import Findings
from ilkd_bench.grid import FORMATS, Grid, escape_markdown, markdown

SUMMARY = "teacher student method task split metric lr batch_size mean std n ids".split()


def write(found: Findings, tables: Iterable[papers.Table]) -> tuple[str, list[str]]:
    """Write summary, comparisons, overview, the papers' tables and the published numbers.

    Returns:
        The overview as Markdown, and the names of the papers' tables that have something to show.
    """
    folder = found.folder / "tables"
    summary = found.summary.copy()
    summary[["task", "data"]] = (
        summary["task"].str.split("#", expand=True, n=1).reindex(columns=[0, 1])
    )
    columns = [*SUMMARY, "low", "high", "limited", "section", "data"]
    store.write_text(folder / "summary.csv", summary[columns].to_csv(index=False))
    store.write_text(folder / "comparisons.csv", found.compared.to_csv(index=False))
    text = as_markdown(found)
    store.write_text(folder / "overview.md", text)
    written = []
    for table in tables:
        grid = paper_tables.build(table, found)
        if not grid.empty:
            written.append(table.name)
        _write(folder, grid)
    for grid in (reference.beside(found), reference.claims(found), layer_choice(found)):
        _write(folder, grid)
    return text, written


def _write(folder: Path, grid: Grid) -> None:
    for suffix, form in FORMATS.items():
        store.write_text(folder / f"{grid.name}.{suffix}", form(grid))


def as_markdown(found: Findings) -> str:
    """Return the overview of all results."""
    parts = ["# Results\n"]
    for title, introduction, grids in overview.sections(found):
        parts.append(f"## {escape_markdown(title)}\n\n{escape_markdown(introduction)}\n")
        parts += [markdown(grid, level=3) for grid in grids]
    parts += [f"{escape_markdown(note)}\n" for note in overview.notes(found)]
    return "\n".join(parts)


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
        found = findings.load(given.results_dir)
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
