"""Which differences between methods hold: over other seeds, and over other examples.

A difference counts if both tests find it, the paired t test over the seeds that two methods share
and the paired bootstrap over the examples of the stored predictions: the larger p decides
(intersection-union), after Holm's correction over the methods of a column. Where predictions are
missing the seeds decide alone; one seed decides nothing.
"""

from __future__ import annotations

import zlib
from typing import Any

import numpy as np
import pandas as pd

from ilkd_bench.comparison import statistics
from ilkd_bench.comparison.bootstrap import METRICS
from ilkd_bench.comparison.predictions import Answers, Reader
from ilkd_bench.plumbing.terminal import track

ALPHA = 0.05
"""A difference counts if its corrected p is below this."""

DRAWS = 2_000
"""Bootstrap samples of the examples of one comparison."""

BASELINE = "vanilla"
COLUMN = ["section", "task", "split", "metric"]
COMPARED = [*COLUMN, "method", "against", "difference", "low", "high", "n"]
COMPARED += ["p_seeds", "p_examples", "p", "p_holm", "distinct"]


def compare(runs: pd.DataFrame, read: Reader) -> pd.DataFrame:
    """Compare every method with the best of its column and with vanilla KD.

    Args:
        runs: the chosen runs (`scores.chosen`), one row per run, split and metric.
        read: their predictions.

    Returns:
        A row per column, method and `against`: the mean difference over shared seeds with its 95 %
        interval, the p of both tests, the larger of them, that one corrected, and whether the
        difference counts (`distinct`).
    """
    rows = []
    main = runs[runs["main"]]
    for key, column in track(list(main.groupby(COLUMN, sort=True)), "comparing"):
        means = column.groupby("method")["value"].mean()
        for against in dict.fromkeys([best_method(means), BASELINE]):
            if against in means.index:
                rows += _against(dict(zip(COLUMN, key, strict=True)), column, against, read)
    return pd.DataFrame(rows, columns=COMPARED)


def best_method(means: pd.Series) -> str:
    """Return the method with the highest mean, the first by name where several have it."""
    return str(min(means.index, key=lambda method: (-means[method], method)))


def _against(
    key: dict[str, Any], column: pd.DataFrame, against: str, read: Reader
) -> list[dict[str, Any]]:
    columns = (column[name] for name in ("method", "seed", "value", "folder"))
    by_method: dict[str, dict[Any, tuple[float, str]]] = {}
    for method, seed, value, folder in zip(*columns, strict=True):
        by_method.setdefault(str(method), {})[seed] = value, folder
    base = by_method[against]
    rows = []
    for method, runs in sorted(by_method.items()):
        seeds = sorted(runs.keys() & base.keys())
        if method == against or not seeds:
            continue
        a, b = [runs[seed] for seed in seeds], [base[seed] for seed in seeds]
        test = statistics.paired([value for value, _ in a], [value for value, _ in b])
        p_examples = over_examples(
            key["metric"],
            [read(folder, key["split"]) for _, folder in a],
            [read(folder, key["split"]) for _, folder in b],
            generator(*key.values(), *sorted((method, against))),
        )
        rows.append(
            key
            | {"method": method, "against": against, "difference": test.difference}
            | {"low": test.low, "high": test.high, "n": test.n}
            | {"p_seeds": test.p, "p_examples": p_examples, "p": larger(test.p, p_examples)}
        )
    corrected = statistics.holm([row["p"] for row in rows])
    return [
        row | {"p_holm": float(p), "distinct": bool(p < ALPHA)}
        for row, p in zip(rows, corrected, strict=True)
    ]


def larger(p_seeds: float, p_examples: float) -> float:
    """Return the p of a difference that must hold over seeds and over examples."""
    return p_seeds if np.isnan(p_seeds) or np.isnan(p_examples) else max(p_seeds, p_examples)


def over_examples(
    metric: str,
    answers_a: list[Answers | None],
    answers_b: list[Answers | None],
    rng: np.random.Generator,
) -> float:
    """Return the p of the paired bootstrap over examples; NaN where it cannot be made.

    Args:
        answers_a, answers_b: the answers of two methods, one per shared seed.
    """
    stored = [answers for answers in [*answers_a, *answers_b] if answers is not None]
    if metric not in METRICS or len(stored) < len(answers_a) + len(answers_b):
        return float("nan")
    first = stored[0]
    if not all(
        np.array_equal(first.index, answers.index) and np.array_equal(first.labels, answers.labels)
        for answers in stored
    ):
        return float("nan")  # they did not see the same rows
    values = [answers.values for answers in stored]
    return statistics.paired_bootstrap(
        METRICS[metric],
        first.labels,
        np.array(values[: len(answers_a)]),
        np.array(values[len(answers_a) :]),
        rng,
        draws=DRAWS,
    ).p


def generator(*names: str) -> np.random.Generator:
    """Return a generator that depends on what is compared, and not on what else is."""
    return np.random.default_rng(zlib.crc32("\0".join(names).encode()))


def standings(runs: pd.DataFrame, compared: pd.DataFrame) -> pd.DataFrame:
    """Return for each section and method its average rank on dev and its record against vanilla KD.

    Returns:
        Columns: section, method, rank (NaN where it lacks a task), tasks, win, tie, loss, untested.
    """
    rows = []
    dev = runs[runs["monitor"]]
    against = compared[(compared["against"] == BASELINE) & (compared["split"] == "dev")]
    for section, part in dev.groupby("section", sort=True):
        means = part.pivot_table(index="method", columns="task", values="value", aggfunc="mean")
        for method, rank in zip(means.index, statistics.ranks(means.to_numpy()), strict=True):
            tests = against[(against["section"] == section) & (against["method"] == method)]
            row = {"section": section, "method": method, "rank": rank}
            row["tasks"] = int(means.loc[method].notna().sum())
            if not tests.empty:
                row |= statistics.wins(tests["difference"], tests["p_holm"], alpha=ALPHA)._asdict()
            rows.append(row)
    columns = ["section", "method", "rank", "tasks", "win", "tie", "loss", "untested"]
    return pd.DataFrame(rows, columns=columns)
