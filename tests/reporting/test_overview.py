"""All results, section by section."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import made
import pytest
from made import record, seeds

from ilkd_bench.reporting.tables import overview, write
from ilkd_bench.reporting.tables.grid import Grid


def sections(root: Path, items: list[dict[str, Any]]) -> list[tuple[str, str, list[Grid]]]:
    return overview.sections(made.load(root, items))


def grids(root: Path, items: list[dict[str, Any]]) -> dict[str, Grid]:
    """The tables of the only section."""
    ((_, _, found),) = sections(root, items)
    return {grid.title: grid for grid in found}


def shown(grid: Grid) -> list[list[str]]:
    """The table as text, its head first."""
    rows = [
        [label, *(str(row[column]) if column in row else "-" for column in grid.columns)]
        for label, row in grid.rows.items()
    ]
    return [[grid.corner, *grid.columns], *rows]


def text(root: Path, items: list[dict[str, Any]]) -> str:
    return write.as_markdown(made.load(root, items))


def test_methods_by_tasks_with_the_teacher_on_top_and_the_average_at_the_right(
    tmp_path: Path,
) -> None:
    items = [record("alp", "mrpc", dev=0.8), record("alp", "rte", dev=0.6)]
    items += [record("pkd", "mrpc", dev=0.9)]
    assert shown(grids(tmp_path, items)["Dev"]) == [
        ["method", "mrpc accuracy", "rte accuracy", "average"],
        ["teacher", "90.0", "90.0", "90.0"],
        ["alp", "80.0 (1)", "60.0 (1)", "70.0"],
        ["pkd", "90.0 (1)", "-", "-"],
    ]


def test_one_task_needs_no_average(tmp_path: Path) -> None:
    assert shown(grids(tmp_path, [record()])["Dev"])[0] == ["method", "mrpc accuracy"]


def test_other_domains_and_other_splits_have_tables_of_their_own(tmp_path: Path) -> None:
    splits = {"dev_mismatched": {"accuracy": 0.6, "n": 4}, "test": {"accuracy": 0.7, "n": 4}}
    found = grids(tmp_path, [record("pkd", "mnli", ood={"scitail": 0.5}, splits=splits)])
    assert list(found) == [
        "Dev",
        "Out of domain",
        "Other splits",
        "Standing on dev",
        "Chosen settings",
    ]
    assert shown(found["Out of domain"]) == [
        ["method", "mnli -> scitail accuracy"],
        ["pkd", "50.0 (1)"],
    ]
    assert shown(found["Other splits"]) == [
        ["method", "mnli dev_mismatched accuracy", "mnli test accuracy", "average"],
        ["pkd", "60.0 (1)", "70.0 (1)", "65.0"],
    ]


def test_fewer_seeds_than_elsewhere_are_marked(tmp_path: Path) -> None:
    dev = grids(tmp_path, [*seeds([0.8, 0.8], "alp"), record("pkd", dev=0.7)])["Dev"]
    assert shown(dev)[2:] == [["alp", "80.0 ± 0.0 (2)"], ["pkd", "70.0 (1)†"]]
    assert list(dev.notes) == ["† fewer seeds than the other cells."]


def test_the_chosen_settings_are_told(tmp_path: Path) -> None:
    items = [record("pkd", lr=2e-5, batch_size=8, dev=0.9), record("pkd", lr=1e-5, dev=0.8)]
    assert shown(grids(tmp_path, items)["Chosen settings"]) == [
        ["method", "mrpc"],
        ["pkd", "lr 2e-05, batch 8"],
    ]


def test_the_standing_has_ranks_and_the_record_against_vanilla(tmp_path: Path) -> None:
    items = seeds([0.80, 0.81, 0.83], "pkd", "mrpc") + seeds([0.60, 0.61, 0.62], "vanilla", "mrpc")
    items += seeds([0.50, 0.52, 0.51], "pkd", "rte") + seeds([0.52, 0.50, 0.51], "vanilla", "rte")
    items += [record("alp", "rte", dev=0.1)]
    assert shown(grids(tmp_path, items)["Standing on dev"]) == [
        ["method", "average rank", "tasks", "against vanilla"],
        ["pkd", "1.25", "2", "1 better, 1 alike, 0 worse"],  # 1 and, as both have 51.0, 1.5
        ["vanilla", "1.75", "2", "-"],
        ["alp", "-", "1", "0 better, 0 alike, 0 worse, 1 untested"],
    ]


def test_limited_runs_stand_apart_and_say_so(tmp_path: Path) -> None:
    found = sections(tmp_path, [record(), record(limit_train=1000)])
    assert sorted(title for title, _, _ in found) == ["big -> small", "big -> small (limited)"]
    (told,) = [told for title, told, _ in found if "limited" in title]
    assert told.startswith("Limited runs (limit_train=1000): for trying out, not for comparing.")


def test_sections_of_one_pair_say_what_sets_them_apart(tmp_path: Path) -> None:
    found = sections(tmp_path, [record(), record(epochs=40), record(student="other")])
    told = sorted((title, text.partition(". ")[0]) for title, text, _ in found)
    general = "max_length 128, precision 32-true"
    assert told == [
        ("big -> other", f"Settings: epochs 3, {general}"),
        (
            "big -> small",
            f"Settings: epochs 3, {general}; apart from others of this pair: epochs=3",
        ),
        (
            "big -> small",
            f"Settings: epochs 40, {general}; apart from others of this pair: epochs=40",
        ),
    ]


def test_data_that_is_not_the_same_is_in_columns_of_its_own(tmp_path: Path) -> None:
    items = [record(dev=0.8), record(dev=0.6, seed=1, data={"train": "other", "dev": "d"})]
    head = shown(grids(tmp_path, items)["Dev"])[0]
    assert len(head) == 4 and head[3] == "average"
    assert all(name.startswith("mrpc#") and name.endswith(" accuracy") for name in head[1:3])


def test_a_changed_method_is_a_row_of_its_own(tmp_path: Path) -> None:
    dev = grids(tmp_path, [record(), record(changes={"temperature": 5})])["Dev"]
    assert list(dev.rows) == ["teacher", "pkd", "pkd (temperature=5)"]


@pytest.mark.parametrize(
    ("seeds_of_other_lr", "told"),
    [
        ((), "2 seeds; one learning rate and batch size."),
        ((0, 1), "2 seeds; learning rate and batch size chosen per task and method by the mean "),
        ((0,), "2 seeds; learning rate and batch size chosen per task and method on dev, not a "),
    ],
)
def test_the_introduction_tells_the_protocol(
    seeds_of_other_lr: tuple[int, ...], told: str, tmp_path: Path
) -> None:
    items = seeds([0.8, 0.9]) + [record(seed=s, lr=2e-5) for s in seeds_of_other_lr]
    ((_, introduction, _),) = sections(tmp_path, items)
    assert told in introduction


def test_failed_running_and_skipped_runs_are_told_and_not_counted(tmp_path: Path) -> None:
    lost = [record(seed=s, status=state) for s, state in ((1, "failed"), (2, "running"))]
    skipped = record("alp", status="skipped")
    found = text(tmp_path, [record(), *lost, skipped])
    assert "| pkd      | 80.0 (1)" in found and "| alp" not in found
    assert "Not possible: alp on mrpc: because." in found
    names = ", ".join(
        sorted(f"runs/mrpc/big-small/pkd/s{r['config']['seed']}-{r['id']}" for r in lost)
    )
    assert f"Not counted, failed or unfinished: {names}." in found


def test_methods_that_this_version_has_not_are_named(tmp_path: Path) -> None:
    found = text(tmp_path, [record("invented"), record("older"), record("pkd")])
    assert "| invented | 80.0 (1)" in found
    assert "This version has no method named invented, older; its runs are shown." in found


def test_runs_that_are_not_done_alone_make_no_table(tmp_path: Path) -> None:
    ((title, _, found),) = sections(tmp_path, [record(status="failed")])
    assert title == "big -> small" and found == []
