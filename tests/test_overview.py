from __future__ import annotations

import csv
import io
import math
import statistics
from pathlib import Path
from typing import Any

import pytest

from ilkd_bench import store, tables


def record(
    method: str = "pkd",
    task: str = "mrpc",
    seed: int = 0,
    dev: float = 0.8,
    *,
    lr: float = 1e-5,
    batch_size: int = 32,
    status: str = "done",
    **other: Any,
) -> dict[str, Any]:
    """A made-up record; `method_settings` change the method, the rest of `other` the run."""
    changed = other.pop("method_settings", {})
    config = {
        "teacher": {"name": "big"},
        "student": {"name": "small"},
        "method": tables.method_defaults(method) | changed,
        "task": {"name": task, "metric": "accuracy", "ood": {"paws": {"metric": "accuracy"}}},
        "data": {"train": "t", "dev": "d"},
        "seed": seed,
        "lr": lr,
        "batch_size": batch_size,
        "epochs": 3,
        "max_length": 128,
        "precision": "auto",
        "limit_train": None,
        "limit_eval": None,
    } | other
    found: dict[str, Any] = {
        "schema": store.SCHEMA,
        "id": store.digest(config)[:10],
        "status": status,
        "reason": None if status == "done" else "because",
        "config": config,
        "folder": f"runs/{task}/{method}/s{seed}",
    }
    if status == "done":
        found |= {
            "scores": {
                "dev": {"accuracy": dev, "f1": dev / 2, "n": 400},
                "ood/paws": {"accuracy": dev - 0.3, "n": 900},
            },
            "monitor": "dev/accuracy",
            "teacher": {"key": "k", "dev": {"accuracy": 0.9, "f1": 0.95, "n": 400}},
        }
    return found


def rows(records: list[dict[str, Any]], split: str = "dev", metric: str = "accuracy") -> Any:
    summary = tables.summarise(tables.frame(records))
    return summary[(summary["split"] == split) & (summary["metric"] == metric)].to_dict("records")


def test_mean_and_sample_standard_deviation_over_seeds() -> None:
    values = [0.80, 0.82, 0.87]
    (row,) = rows([record(seed=s, dev=v) for s, v in enumerate(values)])
    assert math.isclose(row["mean"], statistics.mean(values))
    assert math.isclose(row["std"], statistics.stdev(values))
    assert row["n"] == 3


def test_settings_are_chosen_by_the_mean_over_seeds_never_per_seed() -> None:
    slow = [record(seed=0, dev=0.70, lr=1e-5), record(seed=1, dev=0.90, lr=1e-5)]
    fast = [record(seed=0, dev=0.82, lr=2e-5), record(seed=1, dev=0.82, lr=2e-5)]
    (row,) = rows(slow + fast)
    assert row["lr"] == 2e-5
    assert math.isclose(row["mean"], 0.82)  # the best of each seed would give 0.86


def test_settings_chosen_on_dev_hold_for_the_other_domain() -> None:
    good, bad = record(dev=0.8, lr=1e-5), record(dev=0.7, lr=2e-5)
    bad["scores"]["ood/paws"]["accuracy"] = 0.99
    (row,) = rows([good, bad], split="ood/paws")
    assert math.isclose(row["mean"], 0.5)


def test_settings_with_fewer_seeds_cannot_win() -> None:
    many = [record(seed=s, dev=0.8, lr=1e-5) for s in range(3)]
    (row,) = rows([*many, record(seed=0, dev=0.99, lr=2e-5)])
    assert (row["lr"], row["n"]) == (1e-5, 3)


def test_the_smaller_setting_wins_a_tie() -> None:
    (row,) = rows([record(lr=2e-5, batch_size=8), record(lr=1e-5, batch_size=32)])
    assert (row["lr"], row["batch_size"]) == (1e-5, 32)


@pytest.mark.parametrize(
    "other",
    [
        {"epochs": 4},
        {"limit_train": 100},
        {"teacher": {"name": "big", "path": "another"}},
        {"data": {"train": "other", "dev": "d"}},
        {"method_settings": {"temperature": 5}},
    ],
)
def test_runs_with_other_settings_never_share_a_cell(other: dict[str, Any]) -> None:
    found = rows([record(seed=0, dev=0.8), record(seed=1, dev=0.6, **other)])
    assert sorted(row["mean"] for row in found) == [0.6, 0.8]


def test_failed_running_and_skipped_runs_are_told_and_not_counted() -> None:
    states = ["failed", "running", "skipped"]
    lost = [record(seed=s, status=status) for s, status in enumerate(states, 1)]
    text = tables.overview([record(), *lost])
    assert "| pkd      | 80.0 (1)" in text
    assert "Not possible: pkd on mrpc: because." in text
    assert "failed or unfinished: runs/mrpc/pkd/s1, runs/mrpc/pkd/s2." in text


def test_a_missing_task_is_a_dash_and_has_no_average() -> None:
    whole = [record("alp", "mrpc", dev=0.8), record("alp", "rte", dev=0.6)]
    text = tables.overview([*whole, record("pkd", "mrpc", dev=0.9)])
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines()]
    dev = lines[next(i for i, line in enumerate(lines) if line and line[0] == "method") :]
    assert dev[0] == ["method", "mrpc accuracy", "rte accuracy", "average"]
    assert dev[2] == ["teacher", "90.0", "90.0", "90.0"]
    assert dev[3] == ["alp", "80.0 (1)", "60.0 (1)", "70.0"]
    assert dev[4] == ["pkd", "90.0 (1)", tables.DASH, tables.DASH]


def test_fewer_seeds_than_elsewhere_are_marked() -> None:
    text = tables.overview([record("alp", seed=0), record("alp", seed=1), record("pkd")])
    assert "80.0 ± 0.0 (2)" in text
    assert "80.0 (1)†" in text
    assert "† fewer seeds than the other cells." in text


def test_limited_runs_stand_apart_and_say_so() -> None:
    text = tables.overview([record(), record(limit_train=1000)])
    assert "## big -> small (limited)" in text
    assert "Limited runs (limit_train=1000)" in text


def test_a_changed_method_is_named_by_what_changed() -> None:
    text = tables.overview([record(), record(method_settings={"temperature": 5})])
    assert "pkd (temperature=5)" in text


def write(results_dir: Path, records: list[dict[str, Any]]) -> None:
    for item in records:
        store.write_record(results_dir / "runs" / "t" / "p" / "m" / item["id"], item)


def test_summary_leads_every_cell_back_to_its_runs(tmp_path: Path) -> None:
    records = [record(seed=s) for s in range(3)]
    write(tmp_path, records)
    tables.write(tmp_path)
    text = (tmp_path / "tables" / "summary.csv").read_text()
    (row,) = [
        row
        for row in csv.DictReader(io.StringIO(text))
        if row["split"] == "dev" and row["metric"] == "accuracy"
    ]
    assert row["ids"].split() == [item["id"] for item in records]
    assert list(row)[:12] == tables.SUMMARY
    assert float(row["mean"]) == pytest.approx(0.8)


def test_output_is_byte_identical_and_independent_of_the_order_of_writing(tmp_path: Path) -> None:
    records = [record(m, t, s) for m in ("pkd", "alp") for t in ("rte", "mrpc") for s in range(2)]
    written = []
    for name, order in (("a", records), ("b", records[::-1])):
        write(tmp_path / name, order)
        tables.write(tmp_path / name)
        folder = tmp_path / name / "tables"
        written.append([(folder / f).read_bytes() for f in ("overview.md", "summary.csv")])
    assert written[0] == written[1]


def test_without_records_the_message_says_what_to_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tables.main(["--results-dir", str(tmp_path)]) == 2
    assert "python -m ilkd_bench.run" in capsys.readouterr().err
