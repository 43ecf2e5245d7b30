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

from ilkd_bench.comparison.results import Findings
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
    """A pair in one setting: what was found, and its tables."""

    name: str
    introduction: str
    standing: str | None
    conclusions: Sequence[sentences.Conclusion]
    grids: Sequence[Grid]


def page(found: Findings) -> str:
    """Return the report as HTML."""
    parts = overview.sections(found)
    names = section_names(found.sections(), [title for title, *_ in parts])
    table = score_table(found, names)
    sections = _sections(found, names, parts, table)
    shown, without = _paper_tables(found)
    unfinished = missing.unfinished(found)
    template = _environment().get_template("page.html")
    text = template.render(
        folder=found.folder.resolve().name,
        counts=_counts(found, [run.state for run, _ in unfinished]),
        sections=sections,
        table=table,
        papers=shown,
        without=without,
        pictures=pictures(found.folder / "figures"),
        claims=claims.claims(found),
        controls=layer_choice(found),
        published=published.beside(found),
        tried=tried(found, names),
        unfinished=unfinished,
        missing=missing.missing(found, names),
        notes=unknown(found),
        flaws=found.flaws,
        measured=environment(found),
        style=STYLE,
        script=SCRIPT,
        digest=base64.b64encode(hashlib.sha256(SCRIPT.encode()).digest()).decode(),
        data=embedded(details(found, (one for row in table for one in row.ids))),
    )
    return text.encode("utf-8", "backslashreplace").decode()  # a record may hold half a letter


def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(PAGE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "points": lambda value: DASH if math.isnan(value) else sentences.points(value),
        "signed": lambda value: DASH if math.isnan(value) else sentences.points(value, "+"),
        "probability": lambda p: DASH if math.isnan(p) else probability(p),
        "plain": plain,
        "sortable": sortable,
    }
    made.globals |= {"marks": MARKS, "whisker": whisker, "extent": extent, "dash": DASH}
    return made


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
    found: Findings,
    names: Mapping[str, str],
    parts: Sequence[tuple[str, str, list[Grid]]],
    table: Sequence[Score],
) -> list[Section]:
    told = sentences.conclude(found, table)
    return [
        Section(
            names[key],
            introduction,
            sentences.standing(found, key, told[key]),
            told[key],
            [grid for grid in grids if grid.columns],
        )
        for key, (_, introduction, grids) in zip(names, parts, strict=True)
    ]


def _paper_tables(found: Findings) -> tuple[list[Grid], list[str]]:
    """Return the papers' tables that have something to show, and the titles of the others."""
    pairs = set(found.summary[["teacher", "student"]].itertuples(index=False, name=None))
    shown, without = [], []
    for table in papers.TABLES.values():
        students = {row.student or table.student for row in table.rows}
        if any((table.teacher, student) in pairs for student in students):
            grid = paper_tables.build(table, found)
            if not grid.empty:
                shown.append(grid)
                continue
        without.append(f"{table.paper}, {table.title}")
    return shown, without


def _counts(found: Findings, unfinished: Sequence[str]) -> list[tuple[str, int]]:
    """Return how many runs are in each state, those that are missing from it left out."""
    states = Counter(unfinished)
    states["done"] = sum(record["status"] == "done" for record in found.records)
    states["not readable"] = len(found.flaws)
    order = ("done", "running", "stopped", "failed", "skipped", "not readable")
    return [(state, states[state]) for state in order if states[state] or state == "done"]


def unknown(found: Findings) -> list[str]:
    """Return sentences on tasks and methods that this version does not have."""
    told = []
    for group in ("task", "method"):
        names = {record["config"][group]["name"] for record in found.records}
        names -= set(groups.names(group))
        told += [
            f"This version has no {group} named {name}; its runs are shown."
            for name in sorted(names)
        ]
    return told


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
    found = []
    for path in sorted(folder.glob("*.svg")):
        content = path.read_bytes()
        address = f"data:image/svg+xml;base64,{base64.b64encode(content).decode()}"
        found.append(Picture(path.name, picture_title(path.stem, content), address))
    return found


def picture_title(stem: str, content: bytes) -> str:
    """Return the title of a figure's file, or the words of its name."""
    found = re.search(rb"<title>(.*?)</title>", content[:5000], re.DOTALL)
    if found is not None:
        return " ".join(Markup(found[1].decode("utf-8", "replace")).unescape().split())
    return stem.replace("--", ", ").replace("_", " ")
