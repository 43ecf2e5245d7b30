"""From records to tidy frames: what was measured, where it belongs, and which setting was chosen.

No torch here, and nothing is dropped silently: what cannot be used is named.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ilkd_bench.records.cells import SWEPT, task_name
from ilkd_bench.records.read import load_records
from ilkd_bench.records.record import Done, Record
from ilkd_bench.types import BadInput

log = logging.getLogger("ilkd_bench")

CELL = ["section", "method", "task"]


# --- frames


def frame(records: Sequence[Record]) -> pd.DataFrame:
    """Return the scores of all done runs: one row per run, split and metric."""
    columns = [*CELL, *SWEPT, "id", "folder", "limited", "teacher", "student", "split", "metric"]
    columns += ["main", "monitor", "value"]
    table = pd.DataFrame(list(_measured(records)), columns=columns)
    kinds = {"limited": bool, "main": bool, "monitor": bool, "value": float}
    table = table.astype(kinds)  # an empty frame has no kinds of its own
    return table.sort_values([*CELL, "split", "metric", *SWEPT, "id"], ignore_index=True)


def _measured(records: Sequence[Record]) -> Iterator[tuple[Any, ...]]:
    for record in records:
        if not isinstance(record, Done):
            continue
        common = (
            *(record.place[key] for key in CELL),
            *(record.config[key] for key in SWEPT),
            *(record.id, record.folder, record.limited, record.teacher_name, record.student),
        )
        for split, scores in record.scores.items():
            main = main_metric(record.config["task"], split)
            for metric in sorted(scores.keys() - {"n"}):
                monitor = f"{split}/{metric}" == record.monitor
                yield (*common, split, metric, metric == main, monitor, scores[metric])


TIDY = (
    *("teacher", "student", "method", "task", "seed", "lr", "batch_size", "split", "metric"),
    *("value", "section", "limited", "id", "folder"),
)


def load_results(results_dir: Path | str = "results") -> pd.DataFrame:
    """Return the scores of all runs that are done: one row per run, split and metric.

    Columns: `method` is the row of the tables, `rail_l (layers=4)` where a setting differs from its
    YAML; runs of one `section` have all settings in common but task, method, seed, lr and
    batch_size; a `limited` run saw only some of the rows; `value` is in the metric's own unit;
    `folder` is below `results_dir`. What cannot be used is logged as a warning.

    Raises:
        BadInput: there are no runs.
    """
    root = Path(results_dir)
    if not (root / "runs").is_dir():
        raise BadInput(f"no runs in {root}: give the folder that runs/ lies in")
    stored = load_records(root)
    for sentence in stored.flaws:
        log.warning("%s", sentence)
    table = frame(stored.records)
    return table.assign(task=table["task"].map(task_name))[list(TIDY)]


def rows(table: pd.DataFrame) -> Iterable[Any]:
    """Yield the rows of a frame, their columns as attributes."""
    return table.itertuples(index=False)


def main_metric(task: dict[str, Any], split: str) -> str:
    """Return the metric that a table shows for a split; the others are in summary.csv."""
    owner = task["ood"][split.removeprefix("ood/")] if split.startswith("ood/") else task
    return str(owner["metric"])


def chosen(scores: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of the learning rate and batch size that each cell chose.

    Chosen by the mean dev score over seeds, among the settings with the most seeds: a mean over
    fewer is not comparable. At equal scores the smaller learning rate wins, then the smaller batch.
    """
    selecting = (
        scores[scores["monitor"]]
        .groupby([*CELL, "lr", "batch_size"], as_index=False)
        .agg(mean=("value", "mean"), n=("value", "size"))
    )
    most = selecting.groupby(CELL)["n"].transform("max")
    best = (
        selecting[selecting["n"] == most]
        .sort_values(["mean", "lr", "batch_size"], ascending=[False, True, True])
        .drop_duplicates(CELL)
    )
    return scores.merge(best[[*CELL, "lr", "batch_size"]], on=[*CELL, "lr", "batch_size"])


def summarise(scores: pd.DataFrame) -> pd.DataFrame:
    """Choose learning rate and batch size per cell, then average over the seeds (std: ddof 1)."""
    keys = [*CELL, "limited", "teacher", "student", "split", "metric", "lr", "batch_size"]
    grouped = (
        chosen(scores)
        .groupby(keys, as_index=False, sort=True)
        .agg(
            mean=("value", "mean"),
            std=("value", "std"),
            n=("value", "size"),
            ids=("id", " ".join),
            main=("main", "all"),
            monitor=("monitor", "all"),
        )
    )
    return grouped.sort_values(keys, ignore_index=True)


def full_grid(scores: pd.DataFrame) -> bool:
    """Tell whether every setting of every cell was run with as many seeds as its best one."""
    seeds = scores[scores["monitor"]].groupby([*CELL, "lr", "batch_size"])["id"].size()
    if seeds.empty:
        return True
    return bool((seeds.groupby(CELL).min() == seeds.groupby(CELL).max()).all())
