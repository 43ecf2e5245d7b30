"""One page with everything: `python -m ilkd_bench.report [--results-dir results]`.

`results/report/index.html` opens from disk, asks for nothing outside itself, and is the same bytes
from run to run. All text from records goes through jinja2's autoescape, or through JSON into
`textContent`; a content security policy allows no other script. Needs neither torch nor a network.
"""

from __future__ import annotations

import base64
import hashlib
import json
import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from ilkd_bench.comparison.results import Results
from ilkd_bench.plumbing import own_files
from ilkd_bench.records.record import Done
from ilkd_bench.reporting.page import missing, sentences
from ilkd_bench.reporting.page.rows import Score, details, environment, section_names, tried
from ilkd_bench.reporting.page.rows import table as score_table
from ilkd_bench.reporting.page.sentences import probability
from ilkd_bench.reporting.tables import claims, overview, paper_tables, papers, published
from ilkd_bench.reporting.tables.controls import layer_choice
from ilkd_bench.reporting.tables.grid import DASH, Grid
from ilkd_bench.settings import groups

PAGE = Path(__file__).parent
STYLE = Markup((PAGE / "page.css").read_text(encoding="utf-8"))
SCRIPT = Markup((PAGE / "page.js").read_text(encoding="utf-8"))
MARKS = {"holds": "✓", "does not hold": "✗", "not shown": "?"}
"""Verdict on a claim -> sign before it; the verdict itself is always written out."""


@dataclass(frozen=True)
class Picture:
    """A figure: its file, what it shows, and its content as an address that holds it."""

    file: str
    title: str
    address: str


@dataclass(frozen=True)
class Section:
    """A pair in one setting: conclusions and tables."""

    name: str
    introduction: str
    standing: str | None
    conclusions: Sequence[sentences.Conclusion]
    grids: Sequence[Grid]


def page(results: Results) -> str:
    """Return the report as HTML."""
    parts = overview.sections(results)
    names = section_names(results.sections(), [title for title, *_ in parts])
    table = score_table(results, names)
    sections = _sections(results, names, parts, table)
    paper_grids, without = _paper_tables(results)
    unfinished = missing.unfinished(results)
    template = _environment().get_template("page.html")
    text = template.render(
        folder=results.folder.resolve().name,
        counts=_counts(results, [run.state for run, _ in unfinished]),
        sections=sections,
        table=table,
        papers=paper_grids,
        without=without,
        pictures=pictures(results.folder / "figures"),
        claims=claims.claims(results),
        controls=layer_choice(results),
        published=published.beside(results),
        tried=tried(results, names),
        unfinished=unfinished,
        missing=missing.missing(results, names),
        notes=unknown(results),
        flaws=results.flaws,
        measured=environment(results),
        style=STYLE,
        script=SCRIPT,
        digest=base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode(),
        data=embedded(details(results, (run_id for row in table for run_id in row.ids))),
    )
    return text.encode("utf-8", "backslashreplace").decode()  # a record may hold half a letter


def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "points": lambda value: DASH if math.isnan(value) else sentences.points(value),
        "signed": lambda value: DASH if math.isnan(value) else sentences.points(value, "+"),
        "probability": lambda p: DASH if math.isnan(p) else probability(p),
        "plain": plain,
        "sortable": sortable,
    }
    environment.globals |= {"marks": MARKS, "whisker": whisker, "extent": extent, "dash": DASH}
    return environment


def plain(value: float | None, form: str = "g") -> str:
    """Return a number as it is shown, a dash where there is none."""
    return DASH if value is None or math.isnan(value) else format(value, form)


def sortable(value: float | None) -> str:
    """Return the number that a cell is sorted by; empty sorts last."""
    return "" if value is None or math.isnan(value) else f"{value:.6g}"


def embedded(value: Any) -> Markup:
    """Return JSON that no HTML parser can mistake for the end of its script element."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return Markup(text.translate({ord(sign): f"\\u{ord(sign):04x}" for sign in "<>&"}))


def _sections(
    results: Results,
    names: Mapping[str, str],
    parts: Sequence[tuple[str, str, list[Grid]]],
    table: Sequence[Score],
) -> list[Section]:
    conclusions = sentences.conclude(results, table)
    return [
        Section(
            names[key],
            introduction,
            sentences.standing(results, key, conclusions[key]),
            conclusions[key],
            [grid for grid in grids if grid.columns],
        )
        for key, (_, introduction, grids) in zip(names, parts, strict=True)
    ]


def _paper_tables(results: Results) -> tuple[list[Grid], list[str]]:
    """Return the papers' tables that have something to show, and the titles of the others."""
    pairs = set(results.summary[["teacher", "student"]].itertuples(index=False, name=None))
    grids, without = [], []
    for table in papers.tables().values():
        students = {row.student or table.student for row in table.rows}
        if any((table.teacher, student) in pairs for student in students):
            grid = paper_tables.build(table, results)
            if not grid.empty:
                grids.append(grid)
                continue
        without.append(f"{table.paper}, {table.title}")
    return grids, without


def _counts(results: Results, unfinished: Sequence[str]) -> list[tuple[str, int]]:
    """Return how many runs are in each state, those that are missing from it left out."""
    states = Counter(unfinished)
    states["done"] = sum(isinstance(record, Done) for record in results.records)
    states["not readable"] = len(results.flaws)
    order = ("done", "running", "stopped", "failed", "skipped", "not readable")
    return [(state, states[state]) for state in order if states[state] or state == "done"]


def unknown(results: Results) -> list[str]:
    """Return sentences on tasks and methods that this version does not have."""
    notes = []
    for group in ("task", "method"):
        names = {record.config[group]["name"] for record in results.records}
        names -= set(groups.names(group))
        notes += [
            f"This version has no {group} named {name}; its runs are shown."
            for name in sorted(names)
        ]
    return notes


def extent(rows: Sequence[Score]) -> tuple[float, float]:
    """Return the least and the greatest of some scores and their intervals."""
    ends = [end for r in rows for end in (r.low, r.high, r.mean) if not math.isnan(end)]
    return min(ends), max(ends)


def whisker(row: Score, rows: Sequence[Score]) -> dict[str, float]:
    """Return where a score and its interval lie, in percent of what its column spans."""
    least, greatest = extent(rows)

    def at(value: float) -> float:
        return round(3 + 94 * (value - least) / ((greatest - least) or 1), 1)

    known = not math.isnan(row.low)
    return {"at": at(row.mean)} | ({"low": at(row.low), "high": at(row.high)} if known else {})


def pictures(folder: Path) -> list[Picture]:
    """Return every SVG of a folder, ordered by name."""
    figures = []
    for path in sorted(folder.glob("*.svg")):
        try:
            content = own_files.read_file(folder, path.name)
        except OSError:  # no file: it is no figure of ours
            continue
        address = f"data:image/svg+xml;base64,{base64.b64encode(content).decode()}"
        figures.append(Picture(path.name, picture_title(path.stem, content), address))
    return figures


def picture_title(stem: str, content: bytes) -> str:
    """Return the title of a figure's file, or the words of its name."""
    title = re.search(rb"<title>(.*?)</title>", content[:5000], re.DOTALL)
    if title is not None:
        return " ".join(Markup(title[1].decode("utf-8", "replace")).unescape().split())
    return stem.replace("--", ", ").replace("_", " ")
