"""The files of the figures."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ilkd_bench.plumbing import files
from ilkd_bench.plumbing import text as escape
from ilkd_bench.reporting.figures import style
from ilkd_bench.reporting.figures.catalogue import Entry, parts, subtitles, title
from ilkd_bench.reporting.figures.data import Records


def render(figure: Figure, form: str) -> bytes:
    """Return the file of a figure (svg, pdf or png), with its title and without a date in it."""
    title = " ".join(figure.get_suptitle().split())
    undated: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    file = io.BytesIO()
    figure.savefig(file, format=form, metadata={"Title": title} | undated.get(form, {}))
    return file.getvalue()


def write(
    entry: Entry, results_dir: Path, records: Records, forms: Sequence[str] = ("svg", "pdf")
) -> list[Path]:
    """Write a figure's files anew, and return the pictures; none where it has no data.

    Raises:
        BadInput: a file that it is made of is damaged.
    """
    folder = results_dir / "figures"
    for form in ("svg", "pdf", "png", "csv"):  # of runs that are gone, or named more shortly
        for old in (*folder.glob(f"{entry.name}--*.{form}"), folder / f"{entry.name}.{form}"):
            old.unlink(missing_ok=True)
    table = entry.prepare(results_dir, records)
    written: list[Path] = []
    if table.empty:
        return written
    texts = subtitles(records)
    for words, part in parts(table, entry.apart):
        stem = "--".join([entry.name, *map(escape.file_name, words)])
        text = escape.csv(part, float_format="%.9g")
        files.write_text(folder / f"{stem}.csv", text)
        with style.style():
            figure = entry.draw(part, title(entry, part, texts[part["section"].iloc[0]]))
            style.place(figure)
            for form in forms:
                path = folder / f"{stem}.{form}"
                files.write_bytes(path, render(figure, form))
                written.append(path)
    return written
