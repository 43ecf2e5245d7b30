"""One table in four formats, all from the same frame of text: Markdown, CSV, LaTeX, HTML."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import pandas as pd

from ilkd_bench.comparison import scores
from ilkd_bench.comparison.results import Results


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


def text(
    grid: Grid, escape: Callable[[str], str] = str, bold: Callable[[str], str] = str
) -> pd.DataFrame:
    """Return the table's text, escaped for a format, the best cells made bold."""

    def formatted(cell: Cell | None) -> str:
        if cell is None:
            return escape(DASH)
        return bold(escape(str(cell))) if cell.best else escape(str(cell))

    body = [[formatted(row.get(column)) for column in grid.columns] for row in grid.rows.values()]
    frame = pd.DataFrame(body, columns=[escape(c) for c in grid.columns], dtype=str)
    labels = [escape(label) for label in grid.rows]
    frame.insert(0, escape(grid.corner), labels, allow_duplicates=True)
    return frame


def csv(grid: Grid) -> str:
    """Return the table as comma-separated values: the text of its cells, without markup."""
    return str(text(grid).to_csv(index=False))


def markdown(grid: Grid, level: int = 1) -> str:
    """Return the table as Markdown (GitHub's), with its title, caption and notes."""
    frame = text(grid, escape_markdown, lambda cell: f"**{cell}**")
    table = frame.to_markdown(index=False, disable_numparse=True)
    parts = [f"{'#' * level} {escape_markdown(grid.title)}", escape_markdown(grid.caption), table]
    parts += [escape_markdown(note) for note in grid.notes]
    return "\n\n".join(part for part in parts if part) + "\n"


def latex(grid: Grid) -> str:
    """Return the table as LaTeX for the package booktabs; it compiles by itself in any document."""
    frame = text(grid, _latex, lambda cell: rf"\textbf{{{cell}}}")
    lines = [
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{_latex(f'{grid.title}. {grid.caption}')}}}",
        rf"\begin{{tabular}}{{l{'r' * len(grid.columns)}}}",
        r"\toprule",
        " & ".join(frame.columns) + r" \\",
        r"\midrule",
        *(" & ".join(row) + r" \\" for row in frame.itertuples(index=False)),
        r"\bottomrule",
        r"\end{tabular}",
        *(rf"\par\smallskip\footnotesize {_latex(note)}" for note in grid.notes),
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def page(grid: Grid) -> str:
    """Return the table as a fragment of HTML: a `table` with caption, header cells and notes."""
    frame = text(grid, html.escape, lambda cell: f"<strong>{cell}</strong>")
    head = "".join(f'<th scope="col">{column}</th>' for column in frame.columns)
    body = "\n".join(
        f'<tr><th scope="row">{row[0]}</th>' + "".join(f"<td>{c}</td>" for c in row[1:]) + "</tr>"
        for row in frame.itertuples(index=False)
    )
    caption = html.escape(f"{grid.title}. {grid.caption}")
    notes = "".join(f"<p>{html.escape(note)}</p>\n" for note in grid.notes)
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

_SPECIAL_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: rf"\{sign}" for sign in "&%$#_"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\symbol{34}",
    "±": r"$\pm$",
    "→": r"$\rightarrow$",
    DAGGER: r"$\dagger$",
    DASH: "--",
}


def _latex(text: str) -> str:
    return "".join(_SPECIAL_LATEX.get(sign, sign) for sign in " ".join(text.split()))


def escape_markdown(text: str) -> str:
    """Return text without what would start a cell, a tag, a link or an emphasis in Markdown."""
    escaped = "".join(f"\\{sign}" if sign in "\\|*[]`" else sign for sign in " ".join(text.split()))
    return escaped.replace("&", "&amp;").replace("<", "&lt;")
