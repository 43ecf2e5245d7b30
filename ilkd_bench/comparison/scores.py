"""From records to tidy frames: what was measured, where it belongs, and which setting was chosen.

No torch here, and nothing is dropped silently: what cannot be used is named.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from ilkd_bench.records.cells import LIMITS, SWEPT, place, task_name
from ilkd_bench.records.record import Damaged, current, examine, run_folders
from ilkd_bench.settings.identity import run_id
from ilkd_bench.types import BadInput

log = logging.getLogger("ilkd_bench")

CELL = ["section", "method", "task"]


@dataclass(frozen=True)
class StoredRecords:
    """The records below a results folder, each with its `folder` and `place`, and what is wrong."""

    records: list[dict[str, Any]]
    flaws: list[str]  # one sentence for every record that cannot be used


def read(results_dir: Path) -> StoredRecords:
    """Return every record that can be used, ordered by path, and name the others."""
    records, flaws = [], []
    first: dict[str, str] = {}
    for folder in run_folders(results_dir):
        name = folder.relative_to(results_dir).as_posix()
        try:
            record = examine(folder)
        except (Damaged, FileNotFoundError, PermissionError) as error:
            flaws.append(f"{name}: not used, {error}")
            continue
        wrong = flaw(record)
        if wrong is None and record["id"] in first:
            wrong = f"it has the id of {first[record['id']]}"
        if wrong is not None:
            flaws.append(f"{name}: not used, {wrong}")
            continue
        first[record["id"]] = name
        record = current(record)
        records.append(record | {"folder": name, "place": place(record["config"])})
    return StoredRecords(records, flaws)


def flaw(record: dict[str, Any]) -> str | None:
    """Return why a record cannot be used, or nothing.

    Its settings must be there and give its id; of a run that is done, every score must be a number,
    and the one that chose its epoch must be among them.
    """
    config = record.get("config")
    for path in ("teacher.name", "student.name", "method.name", "task.name", "task.metric"):
        if not isinstance(_at(config, path), str):
            return f"its config.{path} is missing"
    for path in ("task.ood", "data"):
        if not isinstance(_at(config, path), dict):
            return f"its config.{path} is missing"
    assert isinstance(config, dict)
    for key in SWEPT:
        if not _is_number(config.get(key)):
            return f"its config.{key} is no number"
    for key in (*LIMITS, "epochs", "max_length", "precision"):
        if key not in config:
            return f"its config.{key} is missing"
    try:
        if run_id(config) != record.get("id"):
            return "its settings do not give its id (was it edited by hand?)"
    except ValueError as error:
        return f"its settings have no identity: {error}"
    return _flaw_of_scores(record) if record["status"] == "done" else None


def _flaw_of_scores(record: dict[str, Any]) -> str | None:
    scores, ood = record.get("scores"), record["config"]["task"]["ood"]
    if not isinstance(scores, dict) or not all(isinstance(v, dict) for v in scores.values()):
        return "it is done and has no scores"
    for split, values in scores.items():
        wrong = [name for name, value in values.items() if not _is_number(value)]
        if wrong:
            return f"its score {split}/{wrong[0]} is no number: {values[wrong[0]]!r}"
        if split.startswith("ood/") and not isinstance(
            _at(ood, f"{split.removeprefix('ood/')}.metric"), str
        ):
            return f"its task has no {split}"
    split, _, metric = str(record.get("monitor")).rpartition("/")
    if not _is_number(_at(scores, f"{split}.{metric}")):
        return f"it lacks the score that chose its epoch, {record.get('monitor')}"
    if not isinstance(_at(record, "teacher.dev"), dict):
        return "it lacks the teacher's score on dev"
    return None


def _at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


# --- frames


def frame(records: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return the scores of all done runs: one row per run, split and metric."""
    measured = []
    for record in records:
        config = record["config"]
        if record["status"] != "done":
            continue
        common = place(config) | {key: config[key] for key in SWEPT}
        common |= {
            "id": record["id"],
            "folder": record["folder"],
            "limited": any(config[k] is not None for k in LIMITS),
            "teacher": config["teacher"]["name"],
            "student": config["student"]["name"],
        }
        for split, scores in record["scores"].items():
            main = main_metric(config["task"], split)
            for metric in sorted(scores.keys() - {"n"}):
                measured.append(
                    common
                    | {
                        "split": split,
                        "metric": metric,
                        "main": metric == main,
                        "monitor": f"{split}/{metric}" == record["monitor"],
                        "value": scores[metric],
                    }
                )
    columns = [*CELL, *SWEPT, "id", "folder", "limited", "teacher", "student", "split", "metric"]
    columns += ["main", "monitor", "value"]
    table = pd.DataFrame(measured, columns=columns)
    kinds = {"limited": bool, "main": bool, "monitor": bool, "value": float}
    table = table.astype(kinds)  # an empty frame has no kinds of its own
    return table.sort_values([*CELL, "split", "metric", *SWEPT, "id"], ignore_index=True)


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
    found = read(root)
    for sentence in found.flaws:
        log.warning("%s", sentence)
    table = frame(found.records)
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
