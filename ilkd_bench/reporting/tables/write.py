"""Tables from the records: `python -m ilkd_bench.tables [--table NAME]`.

Learning rate and batch size are chosen per task and method by the mean dev score over seeds, never
per seed. Then mean, standard deviation (ddof 1) and the number of seeds. What is missing is a dash.
Needs neither torch nor a network.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from ilkd_bench.comparison.results import Results
from ilkd_bench.plumbing import files
from ilkd_bench.plumbing import text as escape
from ilkd_bench.reporting.tables import claims, overview, paper_tables, papers, published
from ilkd_bench.reporting.tables.controls import layer_choice
from ilkd_bench.reporting.tables.grid import FORMATS, Grid, markdown

SUMMARY = "teacher student method task split metric lr batch_size mean std n ids".split()


def write(results: Results, tables: Iterable[papers.Table]) -> tuple[str, list[str]]:
    """Write summary, comparisons, overview, the papers' tables and the published numbers.

    Returns:
        The overview as Markdown, and the names of the papers' tables that have something to show.
    """
    folder = results.folder / "tables"
    summary = results.summary.copy()
    summary[["task", "data"]] = (
        summary["task"].str.split("#", expand=True, n=1).reindex(columns=[0, 1])
    )
    columns = [*SUMMARY, "low", "high", "limited", "section", "data"]
    files.write_text(folder / "summary.csv", escape.csv(summary[columns]))
    files.write_text(folder / "comparisons.csv", escape.csv(results.compared))
    text = as_markdown(results)
    files.write_text(folder / "overview.md", text)
    written = []
    for table in tables:
        grid = paper_tables.build(table, results)
        if not grid.empty:
            written.append(table.name)
        _write(folder, grid)
    for grid in (published.beside(results), claims.claims(results), layer_choice(results)):
        _write(folder, grid)
    return text, written


def _write(folder: Path, grid: Grid) -> None:
    for suffix, form in FORMATS.items():
        files.write_text(folder / f"{grid.name}.{suffix}", form(grid))


def as_markdown(results: Results) -> str:
    """Return the overview of all results."""
    parts = ["# Results\n"]
    for title, introduction, grids in overview.sections(results):
        parts.append(f"## {escape.markdown(title)}\n\n{escape.markdown(introduction)}\n")
        parts += [markdown(grid, level=3) for grid in grids]
    parts += [f"{escape.markdown(note)}\n" for note in overview.notes(results)]
    return "\n".join(parts)
