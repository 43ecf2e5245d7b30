"""From records to frames: what is read, where it belongs, and what is chosen."""

from __future__ import annotations

import json
import math
import re
import statistics
import time
from pathlib import Path
from typing import Any

import made
import pandas as pd
import pytest
from made import record

from ilkd_bench.comparison import scores
from ilkd_bench.plumbing import files
from ilkd_bench.records import cells
from ilkd_bench.records.read import Stored, load_records, record_of
from ilkd_bench.settings import identity


def rows(
    root: Path, records: list[dict[str, Any]], split: str = "dev", metric: str = "accuracy"
) -> list[dict[str, Any]]:
    summary = scores.summarise(made.read(root, records))
    return summary[(summary["split"] == split) & (summary["metric"] == metric)].to_dict("records")


# ------------------------------------------------------------------------------ choice and average


def test_mean_and_sample_standard_deviation_over_seeds(tmp_path: Path) -> None:
    values = [0.80, 0.82, 0.87]
    (row,) = rows(tmp_path, made.seeds(values))
    assert math.isclose(row["mean"], statistics.mean(values))
    assert math.isclose(row["std"], statistics.stdev(values))
    assert row["n"] == 3


def test_one_seed_has_no_deviation(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, [record(dev=0.75)])
    assert row["mean"] == 0.75 and math.isnan(row["std"]) and row["n"] == 1


def test_equal_scores_have_a_deviation_of_zero(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, made.seeds([0.75, 0.75, 0.75]))
    assert (row["mean"], row["std"], row["n"]) == (0.75, 0.0, 3)


def test_settings_are_chosen_by_the_mean_over_seeds_never_per_seed(tmp_path: Path) -> None:
    slow = made.seeds([0.70, 0.90], lr=1e-5)
    fast = made.seeds([0.82, 0.82], lr=2e-5)
    (row,) = rows(tmp_path, slow + fast)
    assert row["lr"] == 2e-5
    assert math.isclose(row["mean"], 0.82)  # the best of each seed would give 0.86


def test_settings_chosen_on_dev_hold_for_the_other_domain_and_for_other_splits(
    tmp_path: Path,
) -> None:
    good = record(dev=0.8, lr=1e-5, ood={"paws": 0.5}, splits={"test": {"accuracy": 0.4, "n": 9}})
    bad = record(dev=0.7, lr=2e-5, ood={"paws": 0.99}, splits={"test": {"accuracy": 0.9, "n": 9}})
    (other,) = rows(tmp_path, [good, bad], split="ood/paws")
    (test,) = rows(tmp_path, [good, bad], split="test")
    assert (other["mean"], test["mean"]) == (0.5, 0.4)


def test_the_task_s_own_metric_chooses(tmp_path: Path) -> None:
    first = record(lr=1e-5, splits={"dev": {"accuracy": 0.6, "f1": 0.9, "n": 4}})
    second = record(lr=2e-5, splits={"dev": {"accuracy": 0.7, "f1": 0.2, "n": 4}})
    (row,) = rows(tmp_path, [first, second], metric="f1")
    assert (row["lr"], row["mean"], row["main"]) == (2e-5, 0.2, False)


def test_settings_with_fewer_seeds_cannot_win(tmp_path: Path) -> None:
    many = made.seeds([0.8, 0.8, 0.8], lr=1e-5)
    (row,) = rows(tmp_path, [*many, record(seed=0, dev=0.99, lr=2e-5)])
    assert (row["lr"], row["n"]) == (1e-5, 3)


def test_the_smaller_setting_wins_a_tie(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, [record(lr=2e-5, batch_size=8), record(lr=1e-5, batch_size=32)])
    assert (row["lr"], row["batch_size"]) == (1e-5, 32)


def test_the_smaller_batch_wins_where_the_learning_rates_are_equal(tmp_path: Path) -> None:
    (row,) = rows(tmp_path, [record(batch_size=32), record(batch_size=8), record(batch_size=16)])
    assert row["batch_size"] == 8


def test_methods_and_tasks_choose_each_for_itself(tmp_path: Path) -> None:
    best = {("alp", "rte"): 1e-5, ("alp", "cola"): 2e-5, ("pkd", "rte"): 2e-5}
    made_here = [
        record(method, task, dev=0.9 if lr == wanted else 0.1, lr=lr)
        for (method, task), wanted in best.items()
        for lr in (1e-5, 2e-5)
    ]
    found = rows(tmp_path, made_here)
    assert {(r["method"], cells.task_name(r["task"])): r["lr"] for r in found} == best


@pytest.mark.parametrize(
    "other",
    [
        {"epochs": 4},
        {"limit_train": 100},
        {"teacher": {"name": "big", "path": "another"}},
        {"data": {"train": "other", "dev": "d"}},
        {"changes": {"temperature": 5}},
    ],
)
def test_runs_with_other_settings_never_share_a_cell(other: dict[str, Any], tmp_path: Path) -> None:
    changed = record(seed=1, dev=0.6)
    config = changed["config"] | {k: v for k, v in other.items() if k != "changes"}
    config["method"] = config["method"] | other.get("changes", {})
    changed |= {"config": config, "id": identity.run_id(config)}
    found = rows(tmp_path, [record(seed=0, dev=0.8), changed])
    assert sorted(row["mean"] for row in found) == [0.6, 0.8]


def test_a_changed_method_is_named_by_what_changed() -> None:
    assert cells.place(record(changes={"temperature": 5})["config"])["method"] == (
        "pkd (temperature=5)"
    )
    assert cells.place(record()["config"])["method"] == "pkd"


def test_a_method_that_this_version_has_not_is_named_by_its_settings() -> None:
    gone = {"temperature": 5}
    assert cells.place(record("gone")["config"])["method"] == "gone"
    assert cells.place(record("gone", changes=gone)["config"])["method"] == "gone (temperature=5)"
    old = record("gone", changes=gone | {"_target_": "a.B"}) | {"schema": 1}
    assert record_of(old).place["method"] == "gone (temperature=5)"


def test_a_teacher_that_was_given_belongs_to_the_task_and_not_to_the_section() -> None:
    one, other = (
        cells.place(record(**{"epochs": 3})["config"] | {"teacher": teacher})
        for teacher in (
            {"name": "big", "checkpoint": "one"},
            {"name": "big", "checkpoint": "other"},
        )
    )
    assert one["section"] == other["section"] and one["task"] != other["task"]


@pytest.mark.parametrize(
    ("runs", "full"),
    [
        ([(0, 1e-5), (1, 1e-5), (0, 2e-5), (1, 2e-5)], True),
        ([(0, 1e-5), (1, 1e-5), (0, 2e-5)], False),
        ([(0, 1e-5)], True),
        ([], True),
    ],
)
def test_a_grid_is_full_if_every_setting_has_as_many_seeds(
    runs: list[tuple[int, float]], full: bool, tmp_path: Path
) -> None:
    table = made.read(tmp_path, [record(seed=seed, lr=lr) for seed, lr in runs])
    assert scores.full_grid(table) is full


def test_a_frame_has_a_row_per_run_split_and_metric(tmp_path: Path) -> None:
    one = record(
        dev=0.5,
        ood={"paws": 0.25},
        splits={"dev": {"accuracy": 0.5, "f1": 0.75, "n": 4}},
    )
    table = made.read(tmp_path, [one, record("alp", status="failed")])
    found = table[["split", "metric", "main", "monitor", "value"]].values.tolist()
    assert found == [
        ["dev", "accuracy", True, True, 0.5],
        ["dev", "f1", False, False, 0.75],
        ["ood/paws", "accuracy", True, False, 0.25],
    ]
    assert set(table["id"]) == {one["id"]}
    assert table["folder"][0] == f"runs/mrpc/big-small/pkd/s0-{one['id']}"


def test_a_frame_of_nothing_has_the_same_columns() -> None:
    assert list(scores.frame([]).columns)[:3] == scores.CELL
    assert scores.summarise(scores.frame([])).empty


def test_the_frame_does_not_depend_on_the_order_of_the_records(tmp_path: Path) -> None:
    items = [record(m, t, s) for m in ("pkd", "alp") for t in ("rte", "mrpc") for s in (1, 0)]
    made.write(tmp_path, items)
    found = load_records(tmp_path).records
    pd.testing.assert_frame_equal(scores.frame(found), scores.frame(found[::-1]))


# ------------------------------------------------------------------------------------ what is read


def test_records_are_read_in_the_order_of_their_paths_with_folder_and_place(
    tmp_path: Path,
) -> None:
    items = [record("pkd"), record("alp", status="failed"), record("alp", "cola")]
    folders = made.write(tmp_path, items)
    found = load_records(tmp_path)
    assert found.flaws == []
    assert [item.id for item in found.records] == [
        items[2]["id"],
        items[1]["id"],
        items[0]["id"],
    ]
    assert [tmp_path / item.folder for item in found.records] == sorted(folders)
    assert [item.place for item in found.records] == [
        cells.place(item["config"]) for item in (items[2], items[1], items[0])
    ]


def test_without_a_folder_nothing_is_read(tmp_path: Path) -> None:
    assert load_records(tmp_path / "nowhere") == Stored([], [])


def without(item: dict[str, Any], *path: str) -> dict[str, Any]:
    """A copy without what lies at a path."""
    copied = json.loads(json.dumps(item))
    inner = copied
    for key in path[:-1]:
        inner = inner[key]
    del inner[path[-1]]
    return copied


GOOD = record(ood={"paws": 0.5})
FLAWS = {
    "truncated": (json.dumps(GOOD)[:-9], "it is no JSON"),
    "empty": ("", "it is no JSON"),
    "another kind": ("[1]", "it holds no record but list"),
    "older": (json.dumps(GOOD | {"schema": 0}), "its schema is 0; this version reads 1"),
    "of no schema": (json.dumps(without(GOOD, "schema")), "its schema is None"),
    "of an unknown status": (json.dumps(GOOD | {"status": "won"}), "its status is 'won'"),
    "edited": (
        json.dumps(GOOD | {"config": GOOD["config"] | {"lr": 0.1}}),
        "its settings do not give its id (was it edited by hand?)",
    ),
    "with NaN": (
        json.dumps(GOOD | {"scores": {"dev": {"accuracy": float("nan"), "n": 4}}}),
        "its score dev/accuracy is no number: nan",
    ),
    "with infinity": (
        json.dumps(GOOD | {"scores": GOOD["scores"] | {"test": {"f1": float("inf")}}}),
        "its score test/f1 is no number: inf",
    ),
    "with a text for a score": (
        json.dumps(GOOD | {"scores": {"dev": {"accuracy": "0.8", "n": 4}}}),
        "its score dev/accuracy is no number: '0.8'",
    ),
    "with truth for a score": (
        json.dumps(GOOD | {"scores": {"dev": {"accuracy": True, "n": 4}}}),
        "its score dev/accuracy is no number: True",
    ),
    "with NaN in its settings": (
        json.dumps(GOOD | {"config": GOOD["config"] | {"lr": float("nan")}}),
        "its config.lr is no number",
    ),
    "without scores": (json.dumps(without(GOOD, "scores")), "it is done and has no scores"),
    "without dev": (
        json.dumps(without(GOOD, "scores", "dev")),
        "it lacks the score that chose its epoch, dev/accuracy",
    ),
    "without monitor": (
        json.dumps(without(GOOD, "monitor")),
        "it lacks the score that chose its epoch, None",
    ),
    "of a domain that its task has not": (
        json.dumps(GOOD | {"scores": GOOD["scores"] | {"ood/mars": {"accuracy": 1.0}}}),
        "its task has no ood/mars",
    ),
    "without a teacher's score": (
        json.dumps(without(GOOD, "teacher", "dev")),
        "it lacks the teacher's score on dev",
    ),
    **{
        f"without {'.'.join(path)}": (
            json.dumps(without(GOOD, "config", *path)),
            f"its config.{'.'.join(path)} is missing",
        )
        for path in (
            ["teacher", "name"],
            ["student", "name"],
            ["method", "name"],
            ["task", "metric"],
            ["task", "ood"],
            ["data"],
            ["limit_train"],
            ["epochs"],
            ["precision"],
        )
    },
    "without an id": (json.dumps(without(GOOD, "id")), "its id is missing"),
    "of schema 1 and without a pair": (
        json.dumps(without(GOOD | {"schema": 1}, "config", "student")),
        "its config.student.name is missing",
    ),
    "without a seed": (json.dumps(without(GOOD, "config", "seed")), "its config.seed is no number"),
    "without settings": (json.dumps(without(GOOD, "config")), "its config.teacher.name is missing"),
    "whose settings are a list": (
        json.dumps(GOOD | {"config": []}),
        "its config.teacher.name is missing",
    ),
}


@pytest.mark.parametrize("kind", FLAWS)
def test_a_record_that_cannot_be_used_is_named_with_the_reason(kind: str, tmp_path: Path) -> None:
    content, reason = FLAWS[kind]
    (whole, broken) = made.write(tmp_path, [record(seed=1), GOOD])
    (broken / "record.json").write_text(content)
    found = load_records(tmp_path)
    name = broken.relative_to(tmp_path).as_posix()
    (flaw,) = found.flaws
    assert flaw.startswith(f"{name}: not used, {reason}")
    assert [item.folder for item in found.records] == [whole.relative_to(tmp_path).as_posix()]


@pytest.mark.parametrize("status", ["failed", "running", "skipped"])
def test_a_run_that_is_not_done_needs_no_scores(status: str, tmp_path: Path) -> None:
    made.write(tmp_path, [record(status=status)])
    found = load_records(tmp_path)
    assert found.flaws == [] and len(found.records) == 1


def test_a_copy_of_a_run_counts_once_and_is_named(tmp_path: Path) -> None:
    (folder,) = made.write(tmp_path, [record()])
    copy = folder.with_name("s0-copy")
    files.write_text(copy / "record.json", (folder / "record.json").read_text())
    found = load_records(tmp_path)
    assert len(found.records) == 1
    first, second = sorted(f.relative_to(tmp_path).as_posix() for f in (folder, copy))
    assert found.flaws == [f"{second}: not used, it has the id of {first}"]


# ---------------------------------------------------------------------------------------- how fast


@pytest.mark.runs
def test_ten_thousand_records_take_less_than_ten_seconds(tmp_path: Path) -> None:
    learning_rates = [number * 1e-6 for number in range(1, 101)]
    one = record(ood={"paws": 0.25})
    for number, lr in enumerate(learning_rates):
        one["scores"]["dev"]["accuracy"] = 0.5 + number / 1000
        for seed in range(100):
            one["config"] |= {"seed": seed, "lr": lr}
            one["id"] = identity.run_id(one["config"])
            folder = made.folder_of(tmp_path, one)
            folder.mkdir(parents=True)
            (folder / "record.json").write_text(json.dumps(one))
    start = time.process_time()  # other tests run beside this one
    found = load_records(tmp_path)
    table = scores.frame(found.records)
    summary = scores.summarise(table)
    seconds = time.process_time() - start
    assert found.flaws == [] and len(table) == 20_000
    dev = summary[summary["split"] == "dev"].iloc[0]
    assert dev["lr"] == learning_rates[-1] and dev["n"] == 100
    assert dev["mean"] == pytest.approx(0.599)
    assert seconds < 10


# ----------------------------------------------------------- settings that some runs do not have


def old_and_new(**changes: Any) -> list[dict[str, Any]]:
    """Two seeds made before a method had a setting, and the same two made since."""
    since = [record(seed=seed, dev=0.4 + seed / 10) for seed in range(2)]
    before = []
    for item in since:
        config = item["config"] | {"method": dict(item["config"]["method"])}
        del config["method"]["temperature"]
        before.append(item | {"config": config | changes, "id": identity.run_id(config | changes)})
    return [*before, *since]


def test_runs_that_lack_a_setting_have_a_row_of_their_own(tmp_path: Path) -> None:
    items = [*old_and_new(), *(record("vanilla", seed=seed, dev=0.5) for seed in range(2))]
    results = made.load(tmp_path, items)
    found = {(row.method, row.n) for row in scores.rows(results.summary)}
    assert found == {("pkd", 2), ("pkd (no temperature)", 2), ("vanilla", 2)}
    assert set(results.compared["n"]) == {2}


SAME: list[tuple[dict[str, Any], dict[str, Any]]] = [
    ({"x": 1}, {"x": True}),
    ({"x": "1"}, {"x": 1}),
    ({"x": None}, {"x": "None"}),
    ({"x": "[1, 2]"}, {"x": [1, 2]}),
    ({"x": ["1"]}, {"x": [1]}),
    ({"x": "1 y=2"}, {"x": 1, "y": 2}),
    ({"x": {"y": 1}}, {"x.y": 1}),
    ({"x": {}}, {}),
    ({"x": ""}, {"x": None}),
]


@pytest.mark.parametrize(("one", "other"), SAME, ids=repr)
def test_different_settings_have_different_labels(one: Any, other: Any) -> None:
    labels = [cells.place(record(changes=c)["config"])["method"] for c in (one, other)]
    assert labels[0] != labels[1]


@pytest.mark.parametrize("number", [2, 2.0])
def test_equal_numbers_have_one_label(number: float) -> None:
    assert cells.place(record(changes={"x": number})["config"])["method"] == "pkd (x=2)"


def test_a_cell_never_counts_a_seed_twice_whatever_differs(tmp_path: Path) -> None:
    """What assistants are made of stands in no label: it is told by a mark."""
    items = []
    for width in (1, 2):
        parts = {"recipe": {}, "students": {"tiny3": {"width": width}}}
        items += [record("takd", seed=seed, dev=0.5, assistants=parts) for seed in range(2)]
    results = made.load(tmp_path, [*items, record("vanilla", seed=0), record("vanilla", seed=1)])
    counts = {row.method: row.n for row in scores.rows(results.summary)}
    assert len(counts) == 3 and set(counts.values()) == {2}
    marked = [method for method in counts if method != "vanilla"]
    assert all(re.fullmatch(r"takd #[0-9a-f]{6}", method) for method in marked)
