"""One table in four formats, all from the same frame of text: Markdown, CSV, LaTeX, HTML."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from ilkd_bench.comparison import scores
from ilkd_bench.comparison.results import Results
from ilkd_bench.plumbing import text as escape


def cells(results: Results, rows: pd.DataFrame) -> list[Cell]:
    """Return what a table shows for some rows of the summary.

    Bold is what is in `best`. A dagger marks fewer seeds than the most among these rows.
    """
    most_seeds = rows["n"].max() if len(rows) else 0
    return [
        Cell(
            mean=row.mean,
            std=row.std,
            n=row.n,
            best=(row.section, row.task, row.split, row.metric, row.method) in results.best,
            few=row.n < most_seeds,
            ids=tuple(row.ids.split()),
        )
        for row in scores.rows(rows)
    ]


DASH = "\N{EN DASH}"
DAGGER = "\N{DAGGER}"


@dataclass(frozen=True)
class Cell:
    """What a table shows of some runs.

    Attributes:
        mean, std: of the score, in the metric's own unit; std is NaN for one run.
        n: number of runs behind it.
        best: it is the best of its column, or not distinguishable from it.
        few: there are fewer runs behind it than elsewhere in the table.
        ids: of the runs.
        text: shown in place of `mean ± std (n)`.
    """

    mean: float = math.nan
    std: float = math.nan
    n: int = 0
    best: bool = False
    few: bool = False
    ids: tuple[str, ...] = ()
    text: str | None = None

    def __str__(self) -> str:
        if self.text is not None:
            return self.text
        spread = "" if math.isnan(self.std) else f" ± {100 * self.std:.1f}"
        runs = f" ({self.n})" if self.n else ""
        return f"{100 * self.mean:.1f}{spread}{runs}{DAGGER if self.few else ''}"


@dataclass(frozen=True)
class Grid:
    """A table: rows of cells by column name; what is not there is a dash.

    Attributes:
        name: of its files.
        caption: what it shows and how its numbers came about.
        corner: what the rows are.
        notes: sentences below it.
    """

    name: str
    title: str
    caption: str
    corner: str
    columns: Sequence[str]
    rows: Mapping[str, Mapping[str, Cell]]
    notes: Sequence[str] = field(default_factory=tuple)

    @property
    def empty(self) -> bool:
        """Whether no run is behind any cell."""
        return not any(cell.ids for row in self.rows.values() for cell in row.values())


def texts(
    grid: Grid, escaped: Callable[[str], str] = str, bold: Callable[[str], str] = str
) -> pd.DataFrame:
    """Return the table's text, escaped for a format, the best cells made bold."""

    def formatted(cell: Cell | None) -> str:
        if cell is None:
            return escaped(DASH)
        return bold(escaped(str(cell))) if cell.best else escaped(str(cell))

    body = [[formatted(row.get(column)) for column in grid.columns] for row in grid.rows.values()]
    frame = pd.DataFrame(body, columns=[escaped(c) for c in grid.columns], dtype=str)
    labels = [escaped(label) for label in grid.rows]
    frame.insert(0, escaped(grid.corner), labels, allow_duplicates=True)
    return frame


def csv(grid: Grid) -> str:
    """Return the table as comma-separated values: the text of its cells, without markup."""
    return escape.csv(texts(grid))


def markdown(grid: Grid, level: int = 1) -> str:
    """Return the table as Markdown (GitHub's), with its title, caption and notes."""
    frame = texts(grid, escape.markdown, lambda cell: f"**{cell}**")
    table = frame.to_markdown(index=False, disable_numparse=True)
    parts = [f"{'#' * level} {escape.markdown(grid.title)}", escape.markdown(grid.caption), table]
    parts += [escape.markdown(note) for note in grid.notes]
    return "\n\n".join(part for part in parts if part) + "\n"


def latex(grid: Grid) -> str:
    """Return the table as LaTeX for the package booktabs; it compiles by itself in any document."""
    frame = texts(grid, escape.latex, lambda cell: rf"\textbf{{{cell}}}")
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape.latex(f'{grid.title}. {grid.caption}')}}}",
        rf"\begin{{tabular}}{{l{'r' * len(grid.columns)}}}",
        r"\toprule",
        " & ".join(frame.columns) + r" \\",
        r"\midrule",
        *(" & ".join(row) + r" \\" for row in frame.itertuples(index=False)),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\smallskip\footnotesize {escape.latex(note)}" for note in grid.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def page(grid: Grid) -> str:
    """Return the table as a fragment of HTML: a `table` with caption, header cells and notes."""
    frame = texts(grid, escape.html, lambda cell: f"<strong>{cell}</strong>")
    head = "".join(f'<th scope="col">{column}</th>' for column in frame.columns)
    body = "\n".join(
        f'<tr><th scope="row">{row[0]}</th>' + "".join(f"<td>{c}</td>" for c in row[1:]) + "</tr>"
        for row in frame.itertuples(index=False)
    )
    caption = escape.html(f"{grid.title}. {grid.caption}")
    notes = "".join(f"<p>{escape.html(note)}</p>\n" for note in grid.notes)
    return (
        f"<table>\n<caption>{caption}</caption>\n<thead><tr>{head}</tr></thead>\n"
        f"<tbody>\n{body}\n</tbody>\n</table>\n{notes}"
    )


FORMATS: dict[str, Callable[[Grid], str]] = {
    "md": markdown,
    "csv": csv,
    "tex": latex,
    "html": page,
}
"""Suffix of a file -> what writes it."""
