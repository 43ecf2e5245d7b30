"""What RAIL-KD claims, as a checklist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ilkd_bench.comparison import statistics
from ilkd_bench.comparison.differences import ALPHA
from ilkd_bench.comparison.results import Findings
from ilkd_bench.reporting.tables.grid import Cell, Grid

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
    found = statistics.paired(left[seeds], right[seeds])
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
