"""Published numbers beside ours, and what RAIL-KD claims as a checklist.

results/reference.csv holds the numbers with their sources; `verified` says whether they were read
in the source itself. Scores there are in points, ours from 0 to 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ilkd_bench import scores, stats
from ilkd_bench.compare import ALPHA
from ilkd_bench.findings import Findings
from ilkd_bench.grid import Cell, Grid
from ilkd_bench.scores import task_name
from ilkd_bench.settings import ROOT

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


# --- claims


@dataclass(frozen=True)
class Claim:
    """A difference that RAIL-KD states: the best of `left` minus the best of `right`.

    Attributes:
        split: `dev`, or `ood` for the mean over the other domains.
        points: as published, for its own pair.
    """

    text: str
    teacher: str
    student: str
    split: str
    left: tuple[str, ...]
    right: tuple[str, ...]
    points: float


RAIL = ("rail_l", "rail_c")
LAYERS = ("pkd", "alp")
_BERT, _LARGE = ("bert_base", "distilbert"), ("roberta_large", "distilroberta")
CLAIMS = (
    Claim(
        "an intermediate-layer method beats vanilla KD", *_BERT, "dev", LAYERS, ("vanilla",), 0.8
    ),
    Claim("ALP-KD beats PKD", *_BERT, "dev", ("alp",), ("pkd",), 0.2),
    Claim("RAIL-KD beats PKD and ALP-KD", *_BERT, "dev", RAIL, LAYERS, 0.5),
    Claim(
        "RAIL-KD beats all others",
        *(*_LARGE, "dev", RAIL, ("finetune", "vanilla", *LAYERS), 1.2),
    ),
    Claim("RAIL-KD (c) beats (l) out of domain", *_BERT, "ood", ("rail_c",), ("rail_l",), 1.1),
    Claim("RAIL-KD (l) beats (c) out of domain", *_LARGE, "ood", ("rail_l",), ("rail_c",), 1.1),
)
"""RAIL-KD, section 5: differences of averages over the tasks, in points; `verified` in the CSV."""


def claims(found: Findings) -> Grid:
    """Return RAIL-KD's claims with what our runs say, for every pair and setting there is."""
    rows: dict[str, dict[str, Cell]] = {}
    for section, records in found.sections().items():
        config = records[0]["config"]
        pair = f"{config['teacher']['name']} -> {config['student']['name']}"
        for claim in CLAIMS:
            told = check(claim, found.runs[found.runs["section"] == section])
            own = pair == f"{claim.teacher} -> {claim.student}"
            if not own and claim.teacher != _BERT[0]:
                continue  # for other pairs the claims on 12 -> 6 layers are looked at
            told["published"] = f"{claim.points:+.1f} ({claim.teacher} -> {claim.student})"
            limited = (
                ", limited" if found.runs.query("section == @section")["limited"].any() else ""
            )
            label = f"{claim.text} ({claim.split}; {pair}{limited}, {section})"
            rows[label] = {name: Cell(text=text) for name, text in told.items()}
    columns = ["published", "ours", "verdict"]
    caption = (
        "Difference of the averages over tasks, in points, with the 95 % interval of the paired t "
        "test over seeds. Holds: the interval lies above zero. Best of several: the one with the "
        "best average here."
    )
    return Grid("claims", "RAIL-KD's claims", caption, "claim", columns, rows)


def check(claim: Claim, runs: pd.DataFrame) -> dict[str, str]:
    """Return our difference with its interval, and the verdict."""
    main = runs[runs["main"] & runs["split"].str.startswith(claim.split)]
    main = main[main["method"].isin([*claim.left, *claim.right])]
    main = main[main["split"] != "dev_mismatched"]
    left, right = _averages(main, claim.left), _averages(main, claim.right)
    if left is None or right is None:
        return {"ours": "", "verdict": "not enough runs"}
    seeds = sorted(left.index.intersection(right.index))
    if len(seeds) < 2:
        return {"ours": "", "verdict": f"not enough runs ({len(seeds)} shared seeds)"}
    found = stats.paired(left[seeds], right[seeds])
    if found.low != found.low:
        return {"ours": f"{100 * found.difference:+.1f}", "verdict": "not enough runs"}
    ours = f"{100 * found.difference:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}]"
    verdict = "holds" if found.difference > 0 else "does not hold"
    if found.p >= ALPHA:
        verdict = "not shown"
    return {
        "ours": f"{ours} ({left.name} minus {right.name}, {found.n} seeds)",
        "verdict": verdict,
    }


def _averages(main: pd.DataFrame, methods: Sequence[str]) -> Any:
    """Return the average over all tasks by seed, of the method with the best one; or None.

    Only seeds with every task count, and only methods that have such seeds.
    """
    tasks = main[["task", "split"]].drop_duplicates()
    found = []
    for method in methods:
        own = main[main["method"] == method]
        counts = own.groupby("seed")["value"].agg(["mean", "size"])
        whole = counts[counts["size"] == len(tasks)]["mean"].rename(method)
        if len(whole):
            found.append(whole)
    return max(found, key=lambda averages: averages.mean(), default=None)
