"""What the papers' tables name exists, and they are the papers' tables."""

from __future__ import annotations

import pytest

from ilkd_bench.reporting.tables.papers import TABLES, Table
from ilkd_bench.settings.groups import ROOT, defaults


def choices(group: str) -> set[str]:
    return {path.stem for path in (ROOT / "conf" / group).glob("*.yaml")}


@pytest.fixture(params=TABLES)
def table(request: pytest.FixtureRequest) -> Table:
    return TABLES[request.param]


def test_pairs_exist(table: Table) -> None:
    assert table.teacher in choices("teacher")
    students = {table.student, *(row.student for row in table.rows if row.student)}
    assert students <= choices("student")


def test_methods_exist_and_their_changes_are_settings(table: Table) -> None:
    for row in table.rows:
        name, _, changed = row.method.partition(" (")
        assert name in choices("method")
        if changed:
            for word in changed.removesuffix(")").split():
                key, _, value = word.partition("=")
                assert str(defaults("method", name)[key]) != value, "that is the default: no change"


def test_tasks_and_their_splits_exist(table: Table) -> None:
    from omegaconf import OmegaConf

    for column in table.columns:
        path = ROOT / "conf" / "task" / f"{column.task}.yaml"
        assert path.is_file()
        task = OmegaConf.load(path)
        if column.split.startswith("ood/"):
            assert column.split.removeprefix("ood/") in task.ood
        else:
            assert column.split in task.splits and column.split not in (task.hidden or [])


def test_presets_exist(table: Table) -> None:
    if table.sweep is not None:
        assert (ROOT / "sweeps" / f"{table.sweep}.yaml").is_file()


def test_a_preset_runs_every_row_and_column(table: Table) -> None:
    """Rows with changed settings are the preset's own affair."""
    from omegaconf import OmegaConf

    path = ROOT / "sweeps" / f"{table.sweep}.yaml"
    if table.sweep is None or not path.is_file():
        pytest.skip("no preset")
    params = OmegaConf.load(path).hydra.sweeper.params
    swept = {key: str(params[key]).split(",") for key in ("teacher", "student", "method", "task")}
    assert swept["teacher"] == [table.teacher]
    assert {row.student or table.student for row in table.rows} <= set(swept["student"])
    assert {column.task for column in table.columns} <= set(swept["task"])
    methods = {row.method for row in table.rows if " (" not in row.method}
    assert methods <= set(swept["method"])


def test_names_are_unique(table: Table) -> None:
    assert TABLES[table.name] is table
    labels = [row.label for row in table.rows]
    headings = [column.label for column in table.columns]
    assert len(set(labels)) == len(labels) and len(set(headings)) == len(headings)
    assert set(table.averaged) <= set(headings)
    assert len({(row.method, row.student) for row in table.rows}) == len(table.rows)


def test_rail_s_tables_are_all_there() -> None:
    assert [name for name in TABLES if name.startswith("rail")] == [
        f"rail_table{number}" for number in range(1, 7)
    ]
    six = TABLES["rail_table6"]
    assert [(c.task, c.split) for c in six.columns[3:]] == [
        ("mnli", "ood/scitail"),
        ("qqp", "ood/paws"),
        ("sst2", "ood/imdb"),
    ]
    assert [c.task for c in TABLES["rail_table4"].columns].count("stsb") == 0
    assert len(TABLES["rail_table2"].columns) == 8
    assert [c.label for c in TABLES["rail_table5"].columns] == ["CoLA", "MRPC", "RTE"]


def test_another_pair_drops_the_preset_and_keeps_the_rest() -> None:
    table = TABLES["rail_table2"]
    assert table.of_pair(None, None) is table
    assert table.of_pair("bert_base", "distilbert") is table
    other = table.of_pair("roberta_base", None)
    assert (other.teacher, other.student, other.sweep) == ("roberta_base", "distilbert", None)
    assert other.rows == table.rows and other.columns == table.columns


def test_one_student_for_all_rows_leaves_each_method_once() -> None:
    table = TABLES["pkd_table1"].of_pair(None, "distilbert")
    assert [(row.method, row.student) for row in table.rows] == [
        ("finetune", None),
        ("vanilla", None),
        ("pkd", None),
    ]
