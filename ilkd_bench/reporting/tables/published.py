"""Published numbers beside ours."""

from __future__ import annotations

import pandas as pd

from ilkd_bench.comparison import scores
from ilkd_bench.comparison.results import Results
from ilkd_bench.records.cells import task_name
from ilkd_bench.reporting.tables import papers
from ilkd_bench.reporting.tables.grid import Cell, Grid
from ilkd_bench.settings.groups import ROOT

TITLE = "Published numbers beside ours"


def published() -> pd.DataFrame:
    """Return results/reference.csv under our names, without what no run of ours can match."""
    names = papers.declared().names
    path = ROOT / "results" / "reference.csv"
    table = pd.read_csv(path, keep_default_na=False)
    table["teacher"] = table["teacher"].map({"": "", **names.teachers})
    starts = [
        names.starts.get(student, {}).get(setting)
        for student, setting in zip(table["student"], table["setting"], strict=True)
    ]
    students = table["student"].map(dict(names.students))
    table["student"] = pd.Series(starts, dtype=object).fillna(students)
    table["method"] = table["method"].replace(dict(names.methods))
    table["metric"] = table["metric"].replace(dict(names.metrics))
    mismatched = table["task"] == "mnli_mismatched"
    table.loc[mismatched, "split"] += "_mismatched"
    table["task"] = table["task"].replace({"mnli_mismatched": "mnli"})
    table["points"] = pd.to_numeric(table["value"], errors="coerce")
    return table.dropna(subset=["teacher", "student", "points"])


def matches(results: Results) -> pd.DataFrame:
    """Return our cells with every published number of the same pair, task, metric and split.

    A student that was fine-tuned without a teacher has none in the publications. Limited runs are
    left out: they are no attempt at a published number.

    Returns:
        The summary's columns, and `points`, `difference` (ours minus published, in points),
        `source`, `published_in`, `verified`.
    """
    ours = results.summary[~results.summary["limited"]].copy()
    ours["name"] = ours["task"].map(task_name)
    references = published().rename(columns={"table": "published_in", "task": "name"})
    keys = ["student", "method", "name", "metric", "split"]
    pairs = ours.merge(references, on=keys, suffixes=("", "_published"))
    same_teacher = (pairs["teacher_published"] == "") | (
        pairs["teacher_published"] == pairs["teacher"]
    )
    pairs = pairs[same_teacher].copy()
    pairs["difference"] = 100 * pairs["mean"] - pairs["points"]
    return pairs.reset_index(drop=True)


def beside(results: Results) -> Grid:
    """Return published numbers and ours in one table."""
    rows = {}
    for row in scores.rows(matches(results)):
        label = f"{row.teacher} -> {row.student}, {row.method}, {row.name} {row.split} {row.metric}"
        spread = "" if row.std != row.std else f" ± {100 * row.std:.1f}"
        texts = {
            "ours": f"{100 * row.mean:.1f}{spread} ({row.n})",
            "published": f"{row.points:.1f}",
            "difference": f"{row.difference:+.1f}",
            "source": f"{row.source}, {row.published_in}",
            "verified": str(row.verified),
        }
        if label in rows:
            label += f"; {row.source}, {row.published_in}"
        rows[label] = {column: Cell(text=text) for column, text in texts.items()}
    columns = ["ours", "published", "difference", "source", "verified"]
    caption = (
        "Scores times 100; pair, task, metric and split agree, settings need not."
        if rows
        else "No run of a published pair, task, metric and split is done."
    )
    return Grid("published", TITLE, caption, "run", columns, rows)
