"""Published numbers beside ours."""

from __future__ import annotations

import pandas as pd

from ilkd_bench.comparison import scores
from ilkd_bench.comparison.results import Findings
from ilkd_bench.records.cells import task_name
from ilkd_bench.reporting.tables.grid import Cell, Grid
from ilkd_bench.settings.groups import ROOT

TEACHERS = {
    "BERT12": "bert_base",
    "BERT-base": "bert_base",
    "BERT-large": "bert_large",
    "RoBERTa12": "roberta_base",
    "RoBERTa-base": "roberta_base",
    "RoBERTa24": "roberta_large",
    "RoBERTa-large": "roberta_large",
}
STUDENTS = {
    "BERT6": "bert_6",
    "BERT3": "bert_3",
    "DistilBERT6": "distilbert",
    "DistilBERT-base-uncased": "distilbert",
    "DistilRoBERTa6": "distilroberta",
    "DistilRoBERTa-6": "distilroberta",
    "DistilRoBERTa": "distilroberta",
    "BERT-small-4": "bert_4",
}
STARTS = {
    ("BERT3", "student: 3 random layers"): "bert_3_random",
    ("BERT3", "student: 3 copied layers"): "bert_3_copied",
}
"""(student, setting) -> ours, where the start of the student is told by the setting."""
METHODS = {
    "forward": "pkd",
    "reverse": "pkd_reversed",
    "all_to_one": "pkd_all_to_last",
    "random_matching": "pkd_permuted",
}
"""How arXiv 2502.04499 calls the matchings."""
METRICS = {"matthews": "mcc"}
"""Names of the publications -> ours; models that are not here are none of conf/."""

TITLE = "Published numbers beside ours"


def published() -> pd.DataFrame:
    """Return results/reference.csv under our names, without what no run of ours can match."""
    path = ROOT / "results" / "reference.csv"
    table = pd.read_csv(path, keep_default_na=False)
    table["teacher"] = table["teacher"].map({"": ""} | TEACHERS)
    starts = pd.Series(list(zip(table["student"], table["setting"], strict=True))).map(STARTS)
    table["student"] = starts.fillna(table["student"].map(STUDENTS))
    table["method"] = table["method"].replace(METHODS)
    table["metric"] = table["metric"].replace(METRICS)
    mismatched = table["task"] == "mnli_mismatched"
    table.loc[mismatched, "split"] += "_mismatched"
    table["task"] = table["task"].replace({"mnli_mismatched": "mnli"})
    table["points"] = pd.to_numeric(table["value"], errors="coerce")
    return table.dropna(subset=["teacher", "student", "points"])


def matches(found: Findings) -> pd.DataFrame:
    """Return our cells with every published number of the same pair, task, metric and split.

    A student that was fine-tuned without a teacher has none in the publications. Limited runs are
    left out: they are no attempt at a published number.

    Returns:
        The summary's columns, and `points`, `difference` (ours minus published, in points),
        `source`, `published_in`, `verified`.
    """
    ours = found.summary[~found.summary["limited"]].copy()
    ours["name"] = ours["task"].map(task_name)
    theirs = published().rename(columns={"table": "published_in", "task": "name"})
    keys = ["student", "method", "name", "metric", "split"]
    both = ours.merge(theirs, on=keys, suffixes=("", "_published"))
    same = (both["teacher_published"] == "") | (both["teacher_published"] == both["teacher"])
    both = both[same].copy()
    both["difference"] = 100 * both["mean"] - both["points"]
    return both.reset_index(drop=True)


def beside(found: Findings) -> Grid:
    """Return published numbers and ours in one table."""
    rows = {}
    for row in scores.rows(matches(found)):
        label = f"{row.teacher} -> {row.student}, {row.method}, {row.name} {row.split} {row.metric}"
        spread = "" if row.std != row.std else f" ± {100 * row.std:.1f}"
        cells = {
            "ours": f"{100 * row.mean:.1f}{spread} ({row.n})",
            "published": f"{row.points:.1f}",
            "difference": f"{row.difference:+.1f}",
            "source": f"{row.source}, {row.published_in}",
            "verified": str(row.verified),
        }
        key = label if label not in rows else f"{label}; {row.source}, {row.published_in}"
        rows[key] = {name: Cell(text=text) for name, text in cells.items()}
    columns = ["ours", "published", "difference", "source", "verified"]
    caption = (
        "Scores times 100; pair, task, metric and split agree, settings need not."
        if rows
        else "No run of a published pair, task, metric and split is done."
    )
    return Grid("published", TITLE, caption, "run", columns, rows)
