"""The files of the figures."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from ilkd_bench.plumbing import files
from ilkd_bench.reporting.figures import style
from ilkd_bench.reporting.figures.catalogue import Declared, parts, subtitles, title
from ilkd_bench.reporting.figures.data import (
    Records,
)


def render(figure: Figure, form: str) -> bytes:
    """Return the file of a figure (svg, pdf or png), with its title and without a date in it."""
    title = " ".join(figure.get_suptitle().split())
    undated: dict[str, dict[str, Any]] = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    file = io.BytesIO()
    figure.savefig(file, format=form, metadata={"Title": title} | undated.get(form, {}))
    return file.getvalue()


def write(
    declared: Declared, results_dir: Path, records: Records, forms: Sequence[str] = ("svg", "pdf")
) -> list[Path]:
    """Write a figure's files anew, and return the pictures; none where it has no data.

    Raises:
        BadInput: a file that it is made of is damaged.
    """
    folder = results_dir / "figures"
    table = declared.prepare(results_dir, records)
    for form in ("svg", "pdf", "png", "csv"):  # of runs that are gone, or named more shortly
        for old in (*folder.glob(f"{declared.name}--*.{form}"), folder / f"{declared.name}.{form}"):
            old.unlink(missing_ok=True)
    written: list[Path] = []
    if table.empty:
        return written
    told = subtitles(records)
    for words, part in parts(table, declared.apart):
        stem = "--".join([declared.name, *words])
        text = part.to_csv(index=False, float_format="%.9g", lineterminator="\n")
        files.write_text(folder / f"{stem}.csv", text)
        with style.style():
            figure = declared.draw(part, title(declared, part, told[part["section"].iloc[0]]))
            style.place(figure)
            for form in forms:
                path = folder / f"{stem}.{form}"
                files.write_bytes(path, render(figure, form))
                written.append(path)
    return written
