"""Rows in aligned columns on a terminal."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

from ilkd_bench.plumbing.text import plain

Row = TypeVar("Row")

NARROWEST = 8
"""Letters that a folded column has at least."""


def table(
    rows: Sequence[Row],
    columns: Mapping[str, Callable[[Row], str]],
    *,
    width: int | None,
    numbers: Collection[str] = (),
    folded: Collection[str] = (),
    dropped: Sequence[str] = (),
    instead: str = "a wider terminal shows them",
) -> list[str]:
    """Return the lines of a listing, the head first.

    Args:
        columns: name -> what it shows of a row.
        width: of the terminal; None: whole lines.
        numbers: columns that are aligned on the right.
        folded: columns whose cells go on in the next line where the terminal is narrow.
        dropped: columns that are left out, in this order, where folding is not enough.
        instead: how to see what was left out.
    """
    from tabulate import tabulate  # only here: it takes as long as all else that a verb imports

    cells = {name: [name, *(plain(show(row)) for row in rows)] for name, show in columns.items()}
    widths = {name: max(map(len, column)) for name, column in cells.items()}
    left_out = [] if width is None else _fit(widths, width, folded, dropped)
    folded_cells = [_fold(cells[name], widths[name]) for name in widths]
    text = tabulate(
        list(zip(*folded_cells, strict=True)),
        tablefmt="plain",
        disable_numparse=True,
        colalign=["right" if name in numbers else "left" for name in widths],
    )
    lines = [row.rstrip() for row in text.splitlines()]
    return [*lines, f"left out: {', '.join(left_out)} ({instead})"] if left_out else lines


def _fit(
    widths: dict[str, int], width: int, folded: Collection[str], dropped: Sequence[str]
) -> list[str]:
    """Narrow the columns to a terminal's width, and return the names of those left out."""
    left_out = []
    for name in dropped:
        least = {n: min(w, NARROWEST) if n in folded else w for n, w in widths.items()}
        if _total(least) > width:
            left_out.append(name)
            del widths[name]
    wide = [name for name in folded if name in widths and widths[name] > NARROWEST]
    while wide and _total(widths) > width:
        widest = max(wide, key=widths.__getitem__)
        widths[widest] -= 1
        wide = [name for name in wide if widths[name] > NARROWEST]
    return left_out


def _total(widths: Mapping[str, int]) -> int:
    return sum(widths.values()) + 2 * (len(widths) - 1)


def _fold(column: Sequence[str], width: int) -> list[str]:
    """Break the cells that are too long into lines; thousands of rows share a few names."""
    lines = {
        cell: "\n".join(textwrap.wrap(cell, width, break_on_hyphens=False)) or cell
        for cell in {cell for cell in column if len(cell) > width}
    }
    return [lines.get(cell, cell) for cell in column]


def terminal_width() -> int | None:
    """Return the width of the terminal; None where standard output is none."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def show(lines: Sequence[str], colours: Mapping[str, str]) -> None:
    """Print lines; on a terminal their first words in colour.

    Args:
        colours: word -> rich's name of its style.
    """
    if not sys.stdout.isatty():
        print("\n".join(map(plain, lines)))
        return
    from rich.console import Console
    from rich.text import Text

    texts = [Text(text) for text in map(plain, lines)]
    for text in texts:
        word = text.plain.partition(" ")[0]
        text.stylize(colours.get(word, ""), 0, len(word))
    Console().print(Text("\n").join(texts), soft_wrap=True)  # at once: many calls are slow
