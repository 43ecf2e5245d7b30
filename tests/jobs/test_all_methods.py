"""One command runs every method on every demo task with the demo pair as it is."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import toys

pytestmark = pytest.mark.sweep

TASKS = sorted(
    path.stem for path in (toys.CONF / "task").glob("demo_*.yaml") if not path.stem.endswith("_ood")
)
EPOCHS = 2
"""As few as methods with two phases can do with."""
QUICK = (
    *("teacher.recipe.epochs=2", "teacher.allow_weak=true", f"epochs={EPOCHS}", "batch_size=16"),
    *("limit_train=32", "limit_eval=32", "keep_student=none"),
)
PATIENCE = 1800
"""Seconds; it takes less than five minutes on a busy core."""


def sweep(folder: Path) -> dict[str, Any]:
    words = ["-m", "method=glob(*)", f"task={','.join(TASKS)}", *QUICK]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    result = subprocess.run(
        [sys.executable, "-m", "ilkd_bench.run", *words],
        cwd=folder,
        env=environment | {"COLUMNS": "80", "PYTHONPATH": str(toys.CONF.parent)},
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    return {"code": result.returncode, "out": result.stdout, "err": result.stderr}


@pytest.fixture(scope="session")
def swept(once: Any) -> tuple[Path, dict[str, Any]]:
    """The folder after the sweep, and what it said. Not to be written to."""
    return once("all_methods", sweep)


@pytest.fixture(scope="session")
def records(swept: tuple[Path, dict[str, Any]]) -> dict[tuple[str, str], dict[str, Any]]:
    """The records by method and task."""
    found = list(toys.records(swept[0] / "results"))
    named = {(r["config"]["method"]["name"], r["config"]["task"]["name"]): r for r in found}
    assert len(named) == len(found)
    return named


def test_the_sweep_ends_well(swept: tuple[Path, dict[str, Any]]) -> None:
    said = swept[1]
    assert said["code"] == 0, said["out"] + said["err"]
    count = len(toys.METHODS) * len(TASKS)
    assert len(TASKS) == 4
    assert f"{count} runs: {count} done" in said["out"]
    assert "Traceback" not in said["out"] + said["err"]
    assert not list(swept[0].rglob("error.txt"))


def test_the_demo_pair_suits_every_method_in_every_task(records: dict[Any, Any]) -> None:
    """None is skipped: equal widths and heads, 12 -> 6 layers, the same words."""
    assert set(records) == {(method, task) for method in toys.METHODS for task in TASKS}
    other = {key: r.get("reason") for key, r in records.items() if r["status"] != "done"}
    assert not other
    sizes = {
        (r["config"]["teacher"]["name"], r["config"]["student"]["name"]) for r in records.values()
    }
    assert sizes == {("tiny12", "tiny6")}


def test_every_score_is_a_number(records: dict[Any, Any]) -> None:
    for key, record in records.items():
        task = record["config"]["task"]
        splits = {"dev", "test", f"ood/{task['name']}_ood"}
        assert set(record["scores"]) == splits, key
        for split, scores in record["scores"].items():
            assert set(scores) == {task["metric"], *task["also"], "n"}, key
            assert scores["n"] == 32, (key, split)
            assert all(math.isfinite(value) for value in scores.values()), (key, scores)


def test_every_epoch_and_term_was_computed(
    records: dict[Any, Any], swept: tuple[Path, dict[str, Any]]
) -> None:
    for key, record in records.items():
        history = pd.read_csv(swept[0] / "results" / record["folder"] / "history.csv")
        assert history["epoch"].tolist() == [1, 2], key
        losses = history.filter(like="loss/")
        terms = {f"loss/{term}" for term in record["config"]["method"]["weights"]}
        assert set(losses) == terms | {"loss/total"}, key
        assert losses.notna().any().all(), key
        assert losses["loss/total"].map(math.isfinite).all(), key


def test_one_teacher_per_task_teaches_all(
    records: dict[Any, Any], swept: tuple[Path, dict[str, Any]]
) -> None:
    keys = {
        task: {r["teacher"]["key"] for (_, t), r in records.items() if t == task} for task in TASKS
    }
    assert all(len(found) == 1 for found in keys.values())
    for (key,) in keys.values():
        facts = json.loads((swept[0] / ".cache/teachers" / key / "teacher.json").read_text())
        assert facts["snapshots"] is True
