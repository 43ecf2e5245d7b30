"""Which students stay on the disk, and how much room a sweep is told to need."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import toys
from toys import write_record

from ilkd_bench.records import retention
from ilkd_bench.records.folders import run_folder
from ilkd_bench.settings import identity
from ilkd_bench.settings.run import Run
from ilkd_bench.settings.schema import SCHEMA

SCIENCE: dict[str, Any] = {
    "task": {"name": "t", "metric": "accuracy", "ood": {}},
    "teacher": {"name": "a"},
    "student": {"name": "b"},
    "method": {"name": "m"},
    "seed": 0,
    "lr": 1e-3,
    "batch_size": 8,
    "epochs": 2,
    "max_length": 64,
    "precision": "32-true",
    "limit_train": None,
    "limit_eval": None,
    "data": {"train": "t", "dev": "d"},
}


def finished(root: Path, score: float, rule: str = "best", **changes: Any) -> Path:
    """Do what a run does at its end: the student, the record, and then the tidying."""
    science = SCIENCE | changes
    status = science.pop("status", "done")
    folder = run_folder(root, science, identity.run_id(science))
    (folder / "student").mkdir(parents=True, exist_ok=True)
    (folder / "student/config.json").write_text("{}")
    (folder / "student/model.safetensors").write_bytes(b"weights")
    write_record(
        folder,
        {
            "schema": SCHEMA,
            "id": identity.run_id(science),
            "status": status,
            "config": science,
            "monitor": "dev/accuracy",
            "scores": {"dev": {"accuracy": score, "n": 4}, "test": {"accuracy": 1 - score}},
            "teacher": {"dev": {"accuracy": 0.9, "n": 4}},
        },
    )
    retention.tidy(folder, rule)
    return folder


def kept(*folders: Path) -> list[bool]:
    return [(folder / "student/model.safetensors").is_file() for folder in folders]


def test_the_best_of_a_cell_on_dev_stays_over_seeds_rates_and_batch_sizes(tmp_path: Path) -> None:
    first = finished(tmp_path, 0.6)
    assert kept(first) == [True]
    worse = finished(tmp_path, 0.5, seed=1)
    assert kept(first, worse) == [True, False]
    better = finished(tmp_path, 0.7, lr=5e-5)
    assert kept(first, worse, better) == [False, False, True]
    best = finished(tmp_path, 0.9, batch_size=32)
    assert kept(first, worse, better, best) == [False, False, False, True]
    assert all((folder / "record.json").is_file() for folder in (first, worse, better, best))


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_at_equal_scores_one_stays_whoever_comes_first(
    order: tuple[int, int], tmp_path: Path
) -> None:
    folders = {seed: finished(tmp_path, 0.5, seed=seed) for seed in order}
    assert kept(folders[0], folders[1]) == [False, True]


@pytest.mark.parametrize("change", [{"method": {"name": "m", "k": 2}}, {"epochs": 3}])
def test_another_cell_in_the_same_folder_is_left_alone(
    change: dict[str, Any], tmp_path: Path
) -> None:
    one = finished(tmp_path, 0.5)
    other = finished(tmp_path, 0.9, **change)
    assert one.parent == other.parent
    third = finished(tmp_path, 0.6, seed=1)
    assert kept(one, other, third) == [False, True, True]


@pytest.mark.parametrize("status", ["failed", "running"])
def test_only_whole_runs_take_part(status: str, tmp_path: Path) -> None:
    """A student of a run that is not done neither wins nor goes."""
    half = finished(tmp_path, 0.9, seed=1, status=status)
    done = finished(tmp_path, 0.5)
    assert kept(half, done) == [True, True]


def test_all_and_none(tmp_path: Path) -> None:
    folders = [finished(tmp_path, s / 10, "all", seed=s) for s in range(3)]
    assert kept(*folders) == [True] * 3
    other = finished(tmp_path, 0.9, "none", seed=3)
    assert kept(*folders, other) == [True] * 3 + [False]


def test_a_damaged_record_beside_it_is_no_rival(tmp_path: Path) -> None:
    damaged, done = finished(tmp_path, 0.9, seed=1), None
    text = (damaged / "record.json").read_text()
    (damaged / "record.json").write_text(text[: len(text) // 2])
    done = finished(tmp_path, 0.5)
    assert kept(damaged, done) == [True, True]


def test_a_student_that_was_removed_halfway_goes_with_the_next(tmp_path: Path) -> None:
    """A kill during a removal leaves a part."""
    worse = finished(tmp_path, 0.5)
    (worse / "student/config.json").unlink()
    finished(tmp_path, 0.9, seed=1)
    assert not (worse / "student").exists()


# ----------------------------------------------------------------------------------------- room


def runs(*sizes: float | None, rule: str = "best") -> list[Run]:
    size = "student.recommended.megabytes"
    word = {None: "null"}
    return [toys.run(f"{size}={word.get(s, s)}", f"keep_student={rule}") for s in sizes]


@pytest.mark.parametrize(
    ("rule", "cells", "expected"),
    [("all", 2, 10 + 20 + 30 + 7 * 30), ("best", 2, 2 * 30 + 7 * 30), ("none", 2, 7 * 30)],
)
def test_room_is_for_what_stays_and_one_checkpoint(rule: str, cells: int, expected: float) -> None:
    assert retention.room(runs(10, 20, 30, rule=rule), cells) == expected


def test_room_is_unknown_where_a_size_is(tmp_path: Path) -> None:
    assert retention.room(runs(10, None), 1) is None
    assert retention.room([], 0) is None


def test_the_tidying_removes_nothing_behind_a_link(tmp_path: Path) -> None:
    mine = finished(tmp_path / "mine", 0.5, "all")
    theirs = finished(tmp_path / "theirs", 0.9, "all", seed=1)
    (theirs.parent / mine.name).symlink_to(mine)
    retention.tidy(theirs, "best")
    assert (mine / "student/model.safetensors").is_file()
