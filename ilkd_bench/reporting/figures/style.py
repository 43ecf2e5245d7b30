"""The style of all figures: colours that everyone can tell apart, panels, titles, legends.

Nothing is told by colour alone: there is a marker, a line style, a number or a place beside it. The
colours are Okabe's and Ito's, the maps cividis; both keep their order in grey. Text is drawn as it
is, never read as mathematics.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import matplotlib as mpl
import pandas as pd
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from ilkd_bench.plumbing.text import plain

BLUE, ORANGE, INK = "#0072B2", "#D55E00", "#222222"
COLOURS = (BLUE, ORANGE, "#009E73", "#CC79A7", "#56B4E9", "#E69F00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">")
LINES = ("-", "--", "-.", ":", (0, (5, 1, 1, 1, 1, 1)))
METRICS = {
    "accuracy": "accuracy",
    "f1": "F1",
    "mcc": "Matthews correlation",
    "pearson": "Pearson correlation",
    "spearman": "Spearman correlation",
}
UNDEFINED = "#DDDDDD"
CROSS = "\N{MULTIPLICATION SIGN}"
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "ilkd_bench",  # else the names inside the file change from run to run
    "svg.fonttype": "path",
    "pdf.fonttype": 42,
    "text.parse_math": False,
    "text.usetex": False,
    "axes.unicode_minus": False,
    "font.family": "DejaVu Sans",  # comes with matplotlib
    "font.size": 9,
    "axes.titlesize": 9,
    "axes.labelsize": 9,
    "figure.titlesize": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": False,
    "grid.color": "#E5E5E5",
    "axes.axisbelow": True,
    "legend.frameon": False,
}

Table = pd.DataFrame


@contextmanager
def style() -> Iterator[None]:
    """Draw and save inside in one style, whatever the user's own settings of matplotlib are."""
    with mpl.rc_context():
        mpl.rcdefaults()
        mpl.rcParams.update(STYLE)
        yield


def place(figure: Figure) -> None:
    """Give everything its place once, for all forms that the figure is saved in."""
    engine = figure.get_layout_engine()
    if engine is not None:
        engine.execute(figure)
        figure.set_layout_engine("none")


def wrapped(text: str, width: int) -> str:
    """Break a name into lines, inside a word where there is no other way."""
    shown = plain(text)
    return "\n".join(textwrap.wrap(shown, max(width, 8), break_on_hyphens=False)) or shown


def empty(across: float, down: float, title: str) -> Figure:
    """Return a figure of so many inches below its title."""
    heading = wrapped_title(title, across)
    size = across, down + 0.2 * (heading.count("\n") + 1)
    figure = Figure(size, layout="constrained")
    figure.suptitle(heading)
    return figure


def panels(
    names: Sequence[str], width: float, height: float, title: str, *, most: float = 13
) -> tuple[Figure, list[Axes]]:
    """Return a figure with one named panel per name, as many in a row as `most` inches take."""
    columns, lines = arranged(len(names), width, most)
    headings = [wrapped(name, int(11 * width)) for name in names]
    tallest = max(heading.count("\n") for heading in headings)
    figure = empty(max(columns * width, 5), lines * (height + 0.17 * tallest), title)
    axes = [figure.add_subplot(lines, columns, number + 1) for number in range(len(names))]
    for heading, ax in zip(headings, axes, strict=True):
        ax.set_title(heading)
    return figure, axes


def arranged(count: int, width: float, most: float) -> tuple[int, int]:
    """Return the columns and lines of so many panels, the lines about equally full."""
    lines = math.ceil(count / max(1, int(most / width)))
    columns = math.ceil(count / lines)
    return columns, lines


def legend(figure: Figure, handles: Sequence[Line2D], title: str | None = None) -> None:
    """Put a legend below all panels, in room of its own."""
    width, height = figure.get_size_inches()
    longest = max(len(line) for h in handles for line in str(h.get_label()).split("\n"))
    columns = max(1, min(len(handles), int(width / (0.75 + 0.078 * longest))))
    down = sum(
        max(str(h.get_label()).count("\n") + 1 for h in handles[start : start + columns])
        for start in range(0, len(handles), columns)
    )
    figure.set_size_inches(width, height + 0.19 * down + (0.4 if title else 0.2))
    figure.legend(
        handles=handles, loc="outside lower center", ncols=columns, title=title, handlelength=3
    )


def wrapped_title(title: str, across: float) -> str:
    """Break the lines of a title so that they fit a figure of so many inches."""
    return "\n".join(wrapped(line, int(12.5 * across)) for line in title.split("\n"))


def metric_in_words(metric: str) -> str:
    """Return what an axis says of a metric whose values are shown times 100."""
    return f"{METRICS.get(metric, metric)} (times 100)"


def split_in_words(split: str) -> str:
    """Return what a heading says of a split."""
    return f"out of domain: {split[4:]}" if split.startswith("ood/") else split


def task_name(task: str) -> str:
    """Return a task without the hash of its data."""
    return task.partition("#")[0]


def mark(number: int) -> dict[str, Any]:
    """Return the marker of a method; the first 18 differ also without colour."""
    colour, hollow = COLOURS[number % len(COLOURS)], number // len(MARKERS) % 2 == 1
    face = "white" if hollow else colour
    return {"marker": MARKERS[number % len(MARKERS)], "color": colour, "mfc": face, "ms": 7}


def line(number: int) -> dict[str, Any]:
    """Return the line of a quantity; the first 35 differ also without colour."""
    return {
        "color": COLOURS[number % len(COLOURS)],
        "ls": LINES[number % len(LINES)],
        "marker": MARKERS[number % len(MARKERS)],
        "ms": 3.5,
        "lw": 1.3,
    }
