"""Records and predictions written by hand, for the tests of what is made of results."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from ilkd_bench.comparison import results, scores
from ilkd_bench.comparison.results import Results
from ilkd_bench.records.folders import run_folder
from ilkd_bench.records.read import load_records
from ilkd_bench.reporting.tables.papers import Column
from ilkd_bench.settings import groups, identity
from ilkd_bench.settings.schema import SCHEMA


def record(
    method: str = "pkd",
    task: str = "mrpc",
    seed: int = 0,
    dev: float = 0.8,
    *,
    teacher: str = "big",
    student: str = "small",
    lr: float = 1e-5,
    batch_size: int = 32,
    status: str = "done",
    ood: dict[str, float] | None = None,
    splits: dict[str, dict[str, float]] | None = None,
    metric: str = "accuracy",
    speed: float | None = None,
    changes: dict[str, Any] | None = None,
    **other: Any,
) -> dict[str, Any]:
    """A record whose id fits its settings.

    Args:
        dev: the score on dev.
        ood: score by other domain.
        splits: more scores, or others.
        changes: settings of the method.
        other: settings of the run.
    """
    shifts = {} if ood is None else ood
    config = {
        "teacher": {"name": teacher},
        "student": {"name": student},
        "method": (groups.defaults("method", method) or {"name": method}) | (changes or {}),
        "task": {
            "name": task,
            "metric": metric,
            "labels": ["no", "yes"],
            "ood": {name: {"metric": metric} for name in shifts},
        },
        "data": {"train": "t", "dev": "d"},
        "seed": seed,
        "lr": lr,
        "batch_size": batch_size,
        "epochs": 3,
        "max_length": 128,
        "precision": "32-true",
        "limit_train": None,
        "limit_eval": None,
    } | other
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "id": identity.run_id(config),
        "status": status,
        "reason": None if status == "done" else "because",
        "config": config,
    }
    if status == "done":
        measured = {"dev": {metric: dev, "n": 400}}
        measured |= {f"ood/{name}": {metric: score, "n": 900} for name, score in shifts.items()}
        found |= {
            "scores": measured | (splits or {}),
            "monitor": f"dev/{metric}",
            "teacher": {"key": "k", "dev": {metric: 0.9, "n": 400}},
        }
        if speed is not None:
            found["examples_per_second"] = speed
    return found


def seeds(values: Sequence[float], *given: Any, **other: Any) -> list[dict[str, Any]]:
    """One record per score, with seeds from 0."""
    return [record(*given, seed=seed, dev=value, **other) for seed, value in enumerate(values)]


def folder_of(root: Path, item: dict[str, Any]) -> Path:
    return run_folder(root, item["config"], item["id"])


def write(root: Path, items: Sequence[dict[str, Any]]) -> list[Path]:
    """Write records where runs leave them."""
    folders = [folder_of(root, item) for item in items]
    for folder, item in zip(folders, items, strict=True):
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "record.json").write_text(json.dumps(item), encoding="utf-8")
    return folders


def load(root: Path, items: Sequence[dict[str, Any]]) -> Results:
    write(root, items)
    return results.load(root)


def read(root: Path, items: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """The frame of records that were written and read."""
    write(root, items)
    found = load_records(root)
    assert found.flaws == []
    return scores.frame(found.records)


def predictions(
    folder: Path,
    labels: Sequence[float],
    logits: Sequence[Sequence[float]],
    split: str = "dev",
    index: Sequence[int] | None = None,
) -> Path:
    """Write predictions beside a run's record, as `evaluate` stores them."""
    table = pd.DataFrame({"index": range(len(labels)) if index is None else index})
    table["label"] = labels
    for column, values in enumerate(zip(*logits, strict=True)):
        table[f"logit_{column}"] = values
    path = folder / "predictions" / f"{split}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    table.to_parquet(path, index=False)
    return path


def columns(*pairs: tuple[str, str]) -> tuple[Column, ...]:
    """Columns of a paper's table from pairs of label and task."""
    return tuple(Column(label, task) for label, task in pairs)


def one_hot(classes: Sequence[int], of: int = 2) -> list[list[float]]:
    """Logits whose largest is that of the given class."""
    return [[float(column == chosen) for column in range(of)] for chosen in classes]
