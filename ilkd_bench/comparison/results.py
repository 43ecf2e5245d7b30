"""All that is known of a results folder, worked out once for tables, figures and report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ilkd_bench.comparison import differences, predictions, scores, statistics
from ilkd_bench.comparison.scores import CELL
from ilkd_bench.plumbing.command import no_runs
from ilkd_bench.records.cells import LIMITS, task_name
from ilkd_bench.records.read import load_records
from ilkd_bench.records.record import Done, Record


@dataclass(frozen=True)
class Results:
    """What the records below a folder say.

    Attributes:
        records: that can be used, each with `folder` and `place`.
        flaws: a sentence for every record that cannot.
        scores: `scores.frame`, all runs that are done.
        runs: those of the learning rate and batch size that each cell chose.
        summary: `scores.summarise`, with the interval of each mean.
        compared, standings: as `differences` describes them.
        best: `best_of` them.
    """

    folder: Path
    records: list[Record]
    flaws: list[str]
    scores: pd.DataFrame
    runs: pd.DataFrame
    summary: pd.DataFrame
    compared: pd.DataFrame
    standings: pd.DataFrame
    best: frozenset[tuple[Any, ...]]

    def sections(self) -> dict[str, list[Record]]:
        """Return the records of each section, ordered by teacher."""
        sections: dict[str, list[Record]] = {}
        for record in self.records:
            sections.setdefault(record.place["section"], []).append(record)
        teachers = {key: part[0].teacher_name for key, part in sections.items()}
        return {key: sections[key] for key in sorted(sections, key=lambda k: (teachers[k], k))}


def load(results_dir: Path) -> Results:
    """Read the records and compare the methods.

    Raises:
        BadInput: there are no records.
    """
    stored = load_records(results_dir)
    if not stored.records and not stored.flaws:
        raise no_runs(results_dir)
    frame = scores.frame(stored.records)
    runs = scores.chosen(frame)
    read = predictions.reader(results_dir, {record.folder: record for record in stored.records})
    compared = differences.compare(runs, read)
    summary = with_intervals(scores.summarise(frame), runs)
    return Results(
        folder=results_dir,
        records=stored.records,
        flaws=stored.flaws,
        scores=frame,
        runs=runs,
        summary=summary,
        compared=compared,
        standings=differences.standings(runs, compared),
        best=best_of(summary, compared),
    )


def with_intervals(summary: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Add `low` and `high`, the 95 % bootstrap interval of the mean over seeds."""
    keys = [*CELL, "split", "metric"]
    values = {key: part["value"].to_numpy() for key, part in runs.groupby(keys)}
    intervals = [
        statistics.interval(values[key], differences.generator(*key), draws=differences.DRAWS)
        for key in zip(*(summary[name] for name in keys), strict=True)
    ]
    return summary.assign(low=[low for low, _ in intervals], high=[high for _, high in intervals])


def best_of(summary: pd.DataFrame, compared: pd.DataFrame) -> frozenset[tuple[Any, ...]]:
    """Return (*`COLUMN`, method) of the best of each column and what is not told from it.

    What could not be tested against the best is not among them, nor is the best where nothing was.
    """
    tested = {
        key: part for key, part in compared[compared["p"].notna()].groupby(differences.COLUMN)
    }
    cells: set[tuple[Any, ...]] = set()
    for key, part in summary.groupby(differences.COLUMN):
        if key in tested:
            best = differences.best_method(part.set_index("method")["mean"])
            others = tested[key][tested[key]["against"] == best]
            alike = others.loc[~others["distinct"].astype(bool), "method"]
            cells |= {(*key, method) for method in [*([] if others.empty else [best]), *alike]}
    return frozenset(cells)


def teacher_scores(records: Sequence[Record]) -> dict[str, float]:
    """Return the teacher's dev score on each task, as the first run that is done measured it."""
    by_task: dict[str, float] = {}
    for record in records:
        metric = record.config["task"]["metric"]
        if isinstance(record, Done) and metric in record.teacher["dev"]:
            by_task.setdefault(record.place["task"], record.teacher["dev"][metric])
    return by_task


def protocol(frame: pd.DataFrame) -> str:
    """Return how the numbers of some runs came about, for a caption."""
    seeds = frame.groupby(CELL)["seed"].nunique() if len(frame) else pd.Series(dtype=int)
    grid = len(frame[["lr", "batch_size"]].drop_duplicates())
    count = "no" if seeds.empty else _span(seeds.min(), seeds.max())
    if grid <= 1:
        how = "one learning rate and batch size"
    elif scores.full_grid(frame):
        how = (
            "learning rate and batch size chosen per task and method by the mean dev score over "
            "seeds, full grid"
        )
    else:
        how = (
            "learning rate and batch size chosen per task and method on dev, not a full grid: some "
            "settings were run with fewer seeds, and those chose (select, then repeat)"
        )
    return f"{count} seeds; {how}"


def _span(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low} to {high}"


def limits(config: dict[str, Any]) -> str:
    """Return the limits of a run as they are typed; empty for a whole one."""
    return ", ".join(f"{key}={config[key]}" for key in LIMITS if config[key] is not None)


def rows_of(summary: pd.DataFrame, task: str, split: str) -> pd.DataFrame:
    """Return the summary's rows of a task by its name, with any data, on a split."""
    if summary.empty:
        return summary
    named = summary["task"].map(task_name) == task
    return summary[named & (summary["split"] == split) & summary["main"]]
