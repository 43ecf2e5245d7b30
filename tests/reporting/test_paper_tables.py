"""The papers' tables filled from records made by hand."""

from __future__ import annotations

import re
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest
from made import columns, record, seeds

from ilkd_bench.jobs import plan
from ilkd_bench.reporting.tables import paper_tables, papers
from ilkd_bench.reporting.tables.grid import Grid
from ilkd_bench.reporting.tables.papers import Column, Row, Table

pytestmark = pytest.mark.runs

TABLE = Table(
    name="small",
    paper="Paper",
    title="Table 1",
    teacher="big",
    student="small",
    rows=(Row("PKD", "pkd"), Row("w/o KD", "finetune"), Row("KD", "vanilla")),
    columns=columns(("STS-B", "stsb"), ("CoLA", "cola")),
    average="Avg.",
)


def build(root: Path, items: list[dict[str, Any]], table: Table = TABLE) -> Grid:
    return paper_tables.build(table, made.load(root, items))


def shown(grid: Grid) -> dict[str, list[str]]:
    return {
        label: [str(row[column]) if column in row else "-" for column in grid.columns]
        for label, row in grid.rows.items()
    }


def full(methods: tuple[str, ...] = ("finetune", "vanilla", "pkd"), **other: Any) -> list[Any]:
    """Two seeds of each method on each task: 50 and 60 on CoLA, 70 and 80 on STS-B."""
    return [
        one
        for method in methods
        for task, low in (("cola", 0.5), ("stsb", 0.7))
        for one in seeds([low, low + 0.1], method, task, **other)
    ]


def note(grid: Grid, start: str) -> str:
    (found,) = [text for text in grid.notes if text.startswith(start)]
    return found


def test_rows_and_columns_have_the_paper_s_order_and_names(tmp_path: Path) -> None:
    grid = build(tmp_path, full())
    assert grid.name == "small" and grid.title == "Paper, Table 1" and grid.corner == "Method"
    assert list(grid.columns) == ["STS-B", "CoLA", "Avg."]
    row = ["75.0 ± 7.1 (2)", "55.0 ± 7.1 (2)", "65.0"]  # 10 / sqrt(2) = 7.07
    assert shown(grid) == {"PKD": row, "w/o KD": row, "KD": row}
    assert list(grid.rows) == ["PKD", "w/o KD", "KD"]
    assert grid.notes == []


def test_every_cell_leads_back_to_its_runs(tmp_path: Path) -> None:
    items = full()
    grid = build(tmp_path, items)
    wanted = {
        one["id"]
        for one in items
        if one["config"]["method"]["name"] == "pkd" and one["config"]["task"]["name"] == "cola"
    }
    assert set(grid.rows["PKD"]["CoLA"].ids) == wanted


def test_other_methods_and_tasks_are_left_out(tmp_path: Path) -> None:
    grid = build(tmp_path, [*full(), record("alp", "cola"), record("pkd", "rte")])
    assert set(shown(grid)) == {"PKD", "w/o KD", "KD"}
    assert all(len(row) == 3 for row in shown(grid).values())


def test_a_hole_is_a_dash_without_an_average_and_the_note_counts_it(tmp_path: Path) -> None:
    items = [
        one
        for one in full()
        if (one["config"]["method"]["name"], one["config"]["task"]["name"]) != ("pkd", "cola")
    ]
    grid = build(tmp_path, items)
    assert shown(grid)["PKD"] == ["75.0 ± 7.1 (2)", "-", "-"]
    assert shown(grid)["KD"][2] == "65.0"
    assert note(grid, "Missing") == "Missing (n = 0): PKD on CoLA."
    assert note(grid, "To fill it") == (
        "To fill it: python -m ilkd_bench.run -m teacher=big student=small method=pkd task=cola "
        "seed=0,1 epochs=3 max_length=128 precision=32-true"
    )


def test_a_failed_run_leaves_a_hole(tmp_path: Path) -> None:
    items = [*full(("finetune", "vanilla")), record("pkd", "cola", status="failed")]
    assert shown(build(tmp_path, items))["PKD"] == ["-", "-", "-"]


def test_fewer_seeds_have_a_dagger_and_a_number_in_the_note(tmp_path: Path) -> None:
    grid = build(tmp_path, [*full(), record("vanilla", "cola", 2, 0.55)])
    assert shown(grid)["KD"][1] == "55.0 ± 5.0 (3)"
    assert shown(grid)["KD"][0] == "75.0 ± 7.1 (2)†"
    assert note(grid, "†") == (
        "† fewer seeds than elsewhere: PKD on STS-B (2), PKD on CoLA (2), w/o KD on STS-B (2), "
        "w/o KD on CoLA (2), KD on STS-B (2)."
    )
    command = note(grid, "To fill it")
    assert "method=pkd,finetune,vanilla task=stsb,cola seed=0,1,2 " in command
    assert not any(text.startswith("Missing") for text in grid.notes)


def test_without_runs_the_table_is_empty_and_says_how_to_begin(tmp_path: Path) -> None:
    grid = build(tmp_path, [record(teacher="other")])
    assert grid.empty and grid.caption == "No runs yet."
    assert shown(grid)["PKD"] == ["-", "-", "-"]
    assert note(grid, "Missing") == (
        "Missing (n = 0): PKD on STS-B, CoLA; w/o KD on STS-B, CoLA; KD on STS-B, CoLA."
    )
    assert "seed=0,1,2,3,4" in note(grid, "To fill it")


def test_the_caption_tells_pair_metrics_and_protocol(tmp_path: Path) -> None:
    items = [one for lr in (1e-5, 2e-5) for one in full(lr=lr)]
    caption = build(tmp_path / "grid", items).caption
    assert caption.startswith(
        "big -> small. Scores times 100, mean ± standard deviation (number of seeds); "
        "STS-B accuracy, CoLA accuracy. Protocol: 2 seeds; learning rate and batch size chosen per "
        "task and method by the mean dev score over seeds, full grid; precision 32-true. Bold: "
    )
    caption = build(tmp_path / "part", [*full(lr=1e-5), record("pkd", "cola", lr=2e-5)]).caption
    assert "not a full grid" in caption
    assert "one learning rate and batch size" in build(tmp_path / "one", full()).caption


def test_what_is_not_possible_says_why(tmp_path: Path) -> None:
    skipped = record("pkd", "cola", status="skipped") | {"reason": "a student of <1> layer"}
    grid = build(tmp_path, [*full(("finetune", "vanilla")), skipped])
    assert "PKD on cola is not possible: a student of <1> layer." in grid.notes


def test_limited_runs_count_only_if_there_is_nothing_else(tmp_path: Path) -> None:
    limited = full(limit_train=100)
    grid = build(tmp_path / "both", [*limited, record("pkd", "cola", dev=0.9)])
    assert shown(grid)["PKD"] == ["-", "90.0 (1)", "-"]
    assert not any("imited" in text for text in grid.notes)
    grid = build(tmp_path / "limited", limited)
    assert shown(grid)["PKD"] == ["75.0 ± 7.1 (2)", "55.0 ± 7.1 (2)", "65.0"]
    assert note(grid, "Limited") == "Limited runs (limit_train=100): not the paper's experiment."


def test_of_several_settings_the_one_that_fills_most_is_shown_and_others_named(
    tmp_path: Path,
) -> None:
    few = [record("pkd", "cola", seed, 0.9, epochs=40) for seed in range(9)]
    found = made.load(tmp_path, [*full(), *few])
    grid = paper_tables.build(TABLE, found)
    assert shown(grid)["PKD"][1] == "55.0 ± 7.1 (2)"
    told = "Runs of this pair with other settings are in overview.md."
    assert note(grid, "Runs of this pair") == told
    alone = paper_tables.build(TABLE, made.load(tmp_path / "alone", full()))
    assert told not in alone.notes


def test_of_two_settings_with_as_many_cells_the_one_with_more_seeds_is_shown(
    tmp_path: Path,
) -> None:
    two = seeds([0.5, 0.6], "pkd", "cola", epochs=40)
    three = seeds([0.7, 0.8, 0.9], "pkd", "cola")
    assert shown(build(tmp_path, two + three))["PKD"][1] == "80.0 ± 10.0 (3)"


def test_another_pair_is_shown_on_demand(tmp_path: Path) -> None:
    items = [*full(), record("pkd", "cola", dev=0.25, teacher="huge", student="tiny")]
    grid = build(tmp_path, items, replace(TABLE, sweep="rail_table2").of_pair("huge", "tiny"))
    assert shown(grid)["PKD"] == ["-", "25.0 (1)", "-"]
    command = note(grid, "To fill it")
    assert "teacher=huge student=tiny" in command and "sweeps" not in command


def test_several_students_are_rows_of_one_table(tmp_path: Path) -> None:
    table = replace(TABLE, rows=[Row("6 layers", "pkd", "six"), Row("3 layers", "pkd", "three")])
    items = seeds([0.5, 0.6], "pkd", "cola", student="six")
    items += seeds([0.3, 0.4], "pkd", "cola", student="three")
    items += seeds([0.1, 0.2], "pkd", "cola")
    grid = build(tmp_path, items, table)
    assert shown(grid)["6 layers"][1] == "55.0 ± 7.1 (2)"
    assert shown(grid)["3 layers"][1] == "35.0 ± 7.1 (2)"
    assert grid.caption.startswith("big -> six, three. ")
    one = table.of_pair(None, "tiny")
    assert [(row.method, row.student) for row in one.rows] == [("pkd", None)]


def test_a_row_may_be_a_changed_method(tmp_path: Path) -> None:
    rows = [Row("T 5", "pkd (temperature=5)"), Row("T 10", "pkd")]
    items = seeds([0.5, 0.6], "pkd", "cola", changes={"temperature": 5})
    items += seeds([0.7, 0.8], "pkd", "cola")
    grid = build(tmp_path, items, replace(TABLE, rows=rows))
    assert [row[1] for row in shown(grid).values()] == ["55.0 ± 7.1 (2)", "75.0 ± 7.1 (2)"]


# ------------------------------------------------------------------------- out of domain (Table 6)


def test_the_average_out_of_domain_is_that_of_the_named_columns_only(tmp_path: Path) -> None:
    table = replace(
        TABLE,
        columns=(
            *columns(("MNLI", "mnli"), ("QQP", "qqp")),
            Column("SciTail", "mnli", "ood/scitail"),
            Column("PAWS", "qqp", "ood/paws"),
        ),
        average="OOD avg.",
        averaged=("SciTail", "PAWS"),
    )
    items = [record("pkd", "mnli", s, 0.8, ood={"scitail": 0.6 + 0.1 * s}) for s in range(2)]
    items += [record("pkd", "qqp", s, 0.9, ood={"paws": 0.3}) for s in range(2)]
    items += [record("vanilla", "mnli", s, 0.8, ood={"scitail": 0.5}) for s in range(2)]
    grid = build(tmp_path, items, table)
    assert list(grid.columns) == ["MNLI", "QQP", "SciTail", "PAWS", "OOD avg."]
    told = ["80.0 ± 0.0 (2)", "90.0 ± 0.0 (2)", "65.0 ± 7.1 (2)", "30.0 ± 0.0 (2)", "47.5"]
    assert shown(grid)["PKD"] == told
    assert shown(grid)["KD"] == ["80.0 ± 0.0 (2)", "-", "50.0 ± 0.0 (2)", "-", "-"]
    assert "KD on QQP, PAWS." in note(grid, "Missing")
    assert " method=finetune,vanilla task=mnli,qqp seed=0,1 " in note(grid, "To fill it")


# ---------------------------------------------------------------------------- deviations (Table 5)


def test_a_table_of_deviations_shows_the_spread_over_seeds(tmp_path: Path) -> None:
    table = replace(TABLE, shows="deviations", average=None)
    values = [0.5, 0.6, 0.4, 0.55]
    items = [
        *seeds(values, "pkd", "cola"),
        record("vanilla", "cola"),
        *seeds([0.5] * 4, "vanilla", "stsb"),
    ]
    grid = build(tmp_path, items, table)
    assert list(grid.columns) == ["STS-B", "CoLA"]
    assert shown(grid)["PKD"] == ["-", f"{100 * np.std(values, ddof=1):.1f} (4)"]
    assert shown(grid)["KD"] == ["0.0 (4)", "-"], "one seed has no deviation"
    assert grid.caption.startswith(
        "big -> small. Standard deviation over seeds (their number), scores times 100"
    )
    assert "Bold" not in grid.caption and not grid.empty
    assert "KD on CoLA" in note(grid, "Missing")


# ---------------------------------------------------------------------------------- speed (Table 4)


def timed(method: str, task: str, *speeds: float) -> list[dict[str, Any]]:
    return [record(method, task, s, 0.5, speed=speed) for s, speed in enumerate(speeds)]


def test_the_speed_up_is_a_mean_of_ratios_of_medians(tmp_path: Path) -> None:
    table = replace(TABLE, speed="Speed-up", speed_of="vanilla")
    items = [
        *timed("vanilla", "cola", 100, 110, 900),  # median 110
        *timed("pkd", "cola", 220, 10, 230),  # median 220: 2
        *timed("vanilla", "stsb", 50),
        *timed("pkd", "stsb", 150),  # 3; mean 2.5
        *timed("finetune", "cola", 55),  # 0.5
    ]
    grid = build(tmp_path, items, table)
    assert grid.columns[-1] == "Speed-up"
    assert [row[-1] for row in shown(grid).values()] == ["2.50x", "0.50x", "1.00x"]


def test_without_the_method_that_it_is_a_multiple_of_there_is_no_speed_up(tmp_path: Path) -> None:
    table = replace(TABLE, speed="Speed-up", speed_of="codir")
    grid = build(tmp_path, [*timed("pkd", "cola", 100), *full(("vanilla",))], table)
    assert [row[-1] for row in shown(grid).values()] == ["-", "-", "-"]


# ----------------------------------------------------------------------------- properties (Table 1)


def test_a_table_of_properties_has_the_measured_cost(tmp_path: Path) -> None:
    rows = (
        Row("PKD", "pkd", facts=("fixed", "skips layers")),
        Row("CKD", "ckd", facts=("groups", "by hand")),
    )
    table = replace(TABLE, rows=rows, shows="properties", average=None)
    items = [*timed("finetune", "cola", 300), *timed("pkd", "cola", 120)]
    grid = build(tmp_path, items, table)
    assert list(grid.columns) == ["Mapping", "Limitation", "Cost"]
    assert shown(grid) == {
        "PKD": ["fixed", "skips layers", "2.50x"],
        "CKD": ["groups", "by hand", "-"],
    }


# ------------------------------------------------------------------------------ the command to type


def words_of(grid: Grid) -> list[str]:
    words = shlex.split(note(grid, "To fill it").partition(": ")[2])
    assert words[:3] == ["python", "-m", "ilkd_bench.run"]
    return words[3:]


def planned(words: list[str], root: Path) -> list[dict[str, Any]]:
    places = [f"results_dir={root}/r", f"cache_dir={root}/c"]
    return [job.run.identity for job in plan.plan([*words, *places])]


PAIR = {"teacher": "bert_base", "student": "distilbert"}


def test_the_command_runs_what_is_missing(tmp_path: Path) -> None:
    table = replace(TABLE, **PAIR)
    items = full(("finetune", "vanilla"), **PAIR) + seeds([0.7, 0.8], "pkd", "stsb", **PAIR)
    grid = build(tmp_path, items, table)
    runs = planned(words_of(grid), tmp_path)
    assert [(r["method"]["name"], r["task"]["name"], r["seed"]) for r in runs] == [
        ("pkd", "cola", 0),
        ("pkd", "cola", 1),
    ]
    assert all((r["epochs"], r["max_length"]) == (3, 128) for r in runs)
    assert all(r["teacher"]["name"] == "bert_base" for r in runs)
    assert all(r["student"]["name"] == "distilbert" for r in runs)


def test_the_command_keeps_the_limits_of_limited_runs(tmp_path: Path) -> None:
    grid = build(
        tmp_path, full(("pkd",), limit_train=64, limit_eval=32, **PAIR), replace(TABLE, **PAIR)
    )
    words = words_of(grid)
    assert "limit_train=64" in words and "limit_eval=32" in words
    assert {r["limit_train"] for r in planned(words, tmp_path)} == {64}


def test_the_command_with_a_preset_runs_what_is_missing(tmp_path: Path) -> None:
    table = papers.tables()["rail_table2"]
    items = [
        record(row.method, column.task, seed, **PAIR)
        for seed in range(2)
        for row in table.rows
        for column in table.columns
        if (row.method, column.task) != ("rail_c", "rte")
    ]
    words = words_of(build(tmp_path, items, table))
    choice, settings = words[:3], words[3:]
    assert choice == ["+sweeps=rail_table2", "method=rail_c", "task=rte"]
    assert settings == ["epochs=3", "max_length=128", "precision=32-true"], (
        "as the runs that are there"
    )
    runs = planned([*words, "lr=1e-5", "batch_size=32", "seed=0"], tmp_path)
    assert [(r["method"]["name"], r["task"]["name"]) for r in runs] == [("rail_c", "rte")]
    assert (runs[0]["teacher"]["name"], runs[0]["student"]["name"]) == tuple(PAIR.values())


def test_rows_with_changed_settings_have_lines_of_their_own(tmp_path: Path) -> None:
    table = papers.tables()["pro_kd_temperature"].of_pair("huge", "tiny")
    pair = {"teacher": "huge", "student": "tiny"}
    items = [record("pro_kd", column.task, **pair) for column in table.columns]
    told = note(build(tmp_path, items, table), "To fill it")
    for temperature in (1, 5, 20):
        assert (
            f"python -m ilkd_bench.run -m teacher=huge student=tiny method=pro_kd "
            f"task=cola,mrpc,rte,stsb method.max_temperature={temperature} seed=0 epochs=3"
        ) in told
    assert told.count("ilkd_bench.run") == 3


def test_without_runs_the_whole_preset_is_the_command(tmp_path: Path) -> None:
    grid = build(tmp_path, [record()], papers.tables()["rail_table3"])
    assert words_of(grid) == ["+sweeps=rail_table3"]


@pytest.mark.parametrize("name", papers.tables())
def test_every_table_of_a_paper_can_be_built_from_nothing(name: str, tmp_path: Path) -> None:
    table = papers.tables()[name]
    grid = build(tmp_path, [record()], table)
    assert grid.empty and list(grid.rows) == [row.label for row in table.rows]
    assert re.search(r"Table|GLUE|results|ablation|checkpoint", grid.title)
    for text in grid.notes:
        assert text.strip() == text
