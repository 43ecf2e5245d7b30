"""What the papers' tables name exists, and they are the papers' tables."""

from __future__ import annotations

from pathlib import Path

import pytest

from ilkd_bench.reporting.tables import papers
from ilkd_bench.reporting.tables.papers import Table, tables
from ilkd_bench.settings.groups import ROOT, defaults
from ilkd_bench.types import BadInput


def choices(group: str) -> set[str]:
    return {path.stem for path in (ROOT / "conf" / group).glob("*.yaml")}


@pytest.fixture(params=tables())
def table(request: pytest.FixtureRequest) -> Table:
    return tables()[request.param]


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
    assert [t.name for t in papers.declared().tables].count(table.name) == 1
    labels = [row.label for row in table.rows]
    headings = [column.label for column in table.columns]
    assert len(set(labels)) == len(labels) and len(set(headings)) == len(headings)
    assert set(table.averaged) <= set(headings)
    assert len({(row.method, row.student) for row in table.rows}) == len(table.rows)


def test_rail_s_tables_are_all_there() -> None:
    assert [name for name in tables() if name.startswith("rail")] == [
        f"rail_table{number}" for number in range(1, 7)
    ]
    six = tables()["rail_table6"]
    assert [(c.task, c.split) for c in six.columns[3:]] == [
        ("mnli", "ood/scitail"),
        ("qqp", "ood/paws"),
        ("sst2", "ood/imdb"),
    ]
    assert [c.task for c in tables()["rail_table4"].columns].count("stsb") == 0
    assert len(tables()["rail_table2"].columns) == 8
    assert [c.label for c in tables()["rail_table5"].columns] == ["CoLA", "MRPC", "RTE"]


def test_another_pair_drops_the_preset_and_keeps_the_rest() -> None:
    table = tables()["rail_table2"]
    assert table.of_pair(None, None) is table
    assert table.of_pair("bert_base", "distilbert") is table
    other = table.of_pair("roberta_base", None)
    assert (other.teacher, other.student, other.sweep) == ("roberta_base", "distilbert", None)
    assert other.rows == table.rows and other.columns == table.columns


def test_one_student_for_all_rows_leaves_each_method_once() -> None:
    table = tables()["pkd_table1"].of_pair(None, "distilbert")
    assert [(row.method, row.student) for row in table.rows] == [
        ("finetune", None),
        ("vanilla", None),
        ("pkd", None),
    ]


# --------------------------------------------------------------------------------- the file itself

SMALL = """
tables:
  - name: small
    paper: A paper (arXiv 1)
    title: Table 1
    teacher: bert_base
    student: bert_3
    rows:
      - {label: PKD, method: pkd}
      - {label: RAIL, method: rail_l, student: bert_6, facts: [a, b]}
    columns:
      - {label: MRPC, task: mrpc}
      - {label: SciTail, task: mnli, split: ood/scitail}
    note: [One sentence., Another.]
claims:
  - {text: A beats B, teacher: t, student: s, split: dev, methods: [a], against: [b, c], points: 1}
names:
  teachers: {BERT12: bert_base}
  students: {}
  starts: {BERT3: {copied: bert_3_copied}}
  methods: {}
  metrics: {}
"""


def file(folder: Path, text: str) -> Path:
    path = folder / "papers.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_file_is_read_as_it_stands(tmp_path: Path) -> None:
    content = papers.declared(file(tmp_path, SMALL))
    (table,) = content.tables
    assert table == Table(
        name="small",
        paper="A paper (arXiv 1)",
        title="Table 1",
        teacher="bert_base",
        student="bert_3",
        rows=(
            papers.Row("PKD", "pkd"),
            papers.Row("RAIL", "rail_l", student="bert_6", facts=("a", "b")),
        ),
        columns=(
            papers.Column("MRPC", "mrpc", "dev"),
            papers.Column("SciTail", "mnli", "ood/scitail"),
        ),
        note=("One sentence.", "Another."),
    )
    assert content.claims == (papers.Claim("A beats B", "t", "s", "dev", ("a",), ("b", "c"), 1),)
    assert content.names.starts == {"BERT3": {"copied": "bert_3_copied"}}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "    student: bert_3\n",
            "    studnet: bert_3\n",
            "tables, small: unknown studnet; allowed",
        ),
        ("    title: Table 1\n", "", "tables, small: title must be there"),
        ("    title: Table 1\n", "    title: 1\n", "tables, small, title must be text, not 1"),
        ("    title: Table 1\n", "    title:\n", "tables, small, title must be text, not None"),
        ("method: pkd", "methd: pkd", "tables, small, rows, PKD: unknown methd; allowed"),
        (", method: pkd", "", "tables, small, rows, PKD: method must be there"),
        ("label: PKD, ", "", "tables, small, rows, 1: label must be there"),
        ("{label: MRPC, task: mrpc}", "mrpc", "tables, small, columns, 1 must be a mapping"),
        ("facts: [a, b]", "facts: a", "tables, small, rows, RAIL, facts must be a list, not 'a'"),
        ("note: [", "shows: score\n    note: [", "shows must be one of scores, deviations"),
        ("points: 1}", "points: much}", "claims, A beats B, points must be a number, not 'much'"),
        ("points: 1}", "points: yes}", "claims, A beats B, points must be a number, not True"),
        ("  metrics: {}\n", "", "names: metrics must be there"),
        ("{BERT12: bert_base}", "{12: bert_base}", "names, teachers, the key 12 must be text"),
        ("claims:", "claim:", "unknown claim; allowed are tables, claims, names, shared"),
        ("    paper: A", "    name: b\n    paper: A", "the key name is there twice"),
        ("tables:", "tables: [", "cannot be read"),
    ],
)
def test_a_mistake_names_the_file_and_the_place(
    old: str, new: str, message: str, tmp_path: Path
) -> None:
    assert SMALL.count(old) == 1
    path = file(tmp_path, SMALL.replace(old, new))
    with pytest.raises(BadInput) as error:
        papers.declared(path)
    assert str(error.value).startswith(str(path)) and message in str(error.value)


def test_no_table_is_there_twice(tmp_path: Path) -> None:
    table = SMALL.partition("tables:")[2].partition("claims:")[0]
    path = file(tmp_path, SMALL.replace("claims:", f"{table.strip(chr(10))}\nclaims:"))
    with pytest.raises(BadInput, match="the table small is there twice"):
        papers.declared(path)
