"""What RAIL-KD claims, as a checklist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from ilkd_bench.comparison import statistics
from ilkd_bench.comparison.differences import ALPHA
from ilkd_bench.comparison.results import Results
from ilkd_bench.reporting.tables import papers
from ilkd_bench.reporting.tables.grid import Cell, Grid
from ilkd_bench.reporting.tables.papers import Claim

GENERAL = "bert_base"
"""The claims on this teacher, 12 -> 6 layers, are looked at for other pairs too."""


def claims(results: Results) -> Grid:
    """Return RAIL-KD's claims with what our runs say, for every pair and setting there is."""
    rows: dict[str, dict[str, Cell]] = {}
    for section, records in results.sections().items():
        config = records[0].config
        pair = f"{config['teacher']['name']} -> {config['student']['name']}"
        runs = results.runs[results.runs["section"] == section]
        limited = ", limited" if runs["limited"].any() else ""
        for claim in papers.declared().claims:
            claimed_pair = f"{claim.teacher} -> {claim.student}"
            if pair != claimed_pair and claim.teacher != GENERAL:
                continue
            texts = {"published": f"{claim.points:+.1f} ({claimed_pair})", **check(claim, runs)}
            label = f"{claim.text} ({claim.split}; {pair}{limited}, {section})"
            rows[label] = {column: Cell(text=text) for column, text in texts.items()}
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
    main = main[main["method"].isin([*claim.methods, *claim.against])]
    main = main[main["split"] != "dev_mismatched"]
    a, b = _averages(main, claim.methods), _averages(main, claim.against)
    if a is None or b is None:
        return {"ours": "", "verdict": "not enough runs"}
    seeds = sorted(a.index.intersection(b.index))
    if len(seeds) < 2:
        return {"ours": "", "verdict": f"not enough runs ({len(seeds)} shared seeds)"}
    test = statistics.paired(a[seeds], b[seeds])
    if test.low != test.low:
        return {"ours": f"{100 * test.difference:+.1f}", "verdict": "not enough runs"}
    ours = f"{100 * test.difference:+.1f} [{100 * test.low:+.1f}, {100 * test.high:+.1f}]"
    verdict = "holds" if test.difference > 0 else "does not hold"
    if test.p >= ALPHA:
        verdict = "not shown"
    return {
        "ours": f"{ours} ({a.name} minus {b.name}, {test.n} seeds)",
        "verdict": verdict,
    }


def _averages(main: pd.DataFrame, methods: Sequence[str]) -> Any:
    """Return the average over all tasks by seed, of the method with the best one; or None.

    Only seeds with every task count, and only methods that have such seeds.
    """
    tasks = main[["task", "split"]].drop_duplicates()
    averages = []
    for method in methods:
        scores = main[main["method"] == method]
        by_seed = scores.groupby("seed")["value"].agg(["mean", "size"])
        complete = by_seed[by_seed["size"] == len(tasks)]["mean"].rename(method)
        if len(complete):
            averages.append(complete)
    return max(averages, key=lambda average: average.mean(), default=None)
