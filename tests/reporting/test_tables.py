"""The command: its files, what it prints, and what it does with input that is not in order."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from typing import Any

import made
import pytest
from made import record, seeds

from ilkd_bench import tables
from ilkd_bench.reporting.tables import papers, write
from ilkd_bench.settings import identity

PAIR = {"teacher": "bert_base", "student": "distilbert"}
SUFFIXES = ("md", "csv", "tex", "html")
GRIDS = [*papers.tables(), "published", "claims", "layer_choice"]


class Said:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two of the papers' tables; all of them take seconds."""
    few = {name: papers.tables()[name] for name in ("rail_table2", "rail_table3")}
    monkeypatch.setattr(papers, "tables", lambda: few)


@pytest.fixture
def run(tmp_path: Path, capsys: pytest.CaptureFixture[str], few: None) -> Any:
    def call(*words: str) -> Said:
        code = tables.main(["--results-dir", str(tmp_path), *words])
        return Said(code, *capsys.readouterr())

    return call


def file(root: Path, name: str) -> str:
    return (root / "tables" / name).read_text(encoding="utf-8")


def formats(root: Path, name: str) -> dict[str, str]:
    return {suffix: file(root, f"{name}.{suffix}") for suffix in SUFFIXES}


def summary(root: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(file(root, "summary.csv"))))


# --------------------------------------------------------------------------------------- the files


def test_every_table_is_written_in_four_formats(tmp_path: Path) -> None:
    made.write(tmp_path, [record()])
    assert tables.main(["--results-dir", str(tmp_path)]) == 0
    wanted = {f"{name}.{suffix}" for name in GRIDS for suffix in SUFFIXES}
    wanted |= {"overview.md", "summary.csv", "comparisons.csv"}
    assert {path.name for path in (tmp_path / "tables").iterdir()} == wanted


def test_the_summary_leads_every_cell_back_to_its_runs(tmp_path: Path, run: Any) -> None:
    items = seeds([0.8, 0.7, 0.9])
    made.write(tmp_path, items)
    run()
    (row,) = summary(tmp_path)
    assert row["ids"].split() == [one["id"] for one in items]
    assert list(row)[: len(write.SUMMARY)] == write.SUMMARY
    assert (row["task"], row["limited"], row["n"]) == ("mrpc", "False", "3")
    assert float(row["mean"]) == pytest.approx(0.8) and float(row["std"]) == pytest.approx(0.1)


def test_the_comparisons_are_written(tmp_path: Path, run: Any) -> None:
    made.write(tmp_path, seeds([0.8, 0.82, 0.81], "pkd") + seeds([0.7, 0.71, 0.73], "alp"))
    run()
    (row,) = csv.DictReader(io.StringIO(file(tmp_path, "comparisons.csv")))
    assert (row["method"], row["against"], row["n"], row["distinct"]) == ("alp", "pkd", "3", "True")
    # differences -10, -11, -8: mean -9.67, deviation 1.53; t = 10.96 with 2 degrees of freedom
    assert float(row["p"]) == pytest.approx(1 - 10.961 / (10.961**2 + 2) ** 0.5, rel=1e-3)


def test_the_same_records_give_the_same_bytes_in_any_order(tmp_path: Path, few: None) -> None:
    items = [
        record(m, t, s, **PAIR) for m in ("pkd", "alp") for t in ("rte", "mrpc") for s in (0, 1)
    ]
    written = []
    for name, order in (("a", items), ("b", items[::-1])):
        made.write(tmp_path / name, order)
        tables.main(["--results-dir", str(tmp_path / name)])
        folder = tmp_path / name / "tables"
        written.append({path.name: path.read_bytes() for path in folder.iterdir()})
    assert written[0] == written[1]


def test_a_second_call_changes_nothing(tmp_path: Path, run: Any) -> None:
    made.write(tmp_path, [record(**PAIR)])
    run()
    before = {path.name: path.read_bytes() for path in (tmp_path / "tables").iterdir()}
    run("--table", "rail_table2")
    assert {path.name: path.read_bytes() for path in (tmp_path / "tables").iterdir()} == before


# ------------------------------------------------------------------------------------ what is said


def test_the_overview_is_printed_and_the_papers_tables_named(tmp_path: Path, run: Any) -> None:
    made.write(tmp_path, [record("pkd", **PAIR)])
    said = run()
    assert said.out.startswith(file(tmp_path, "overview.md"))
    assert "rail_table2" in said.out.splitlines()[-1] and "rail_table3" not in said.out
    assert said.err == ""


def test_one_table_is_printed_on_demand(tmp_path: Path, run: Any) -> None:
    made.write(tmp_path, [record("pkd", dev=0.875, **PAIR)])
    said = run("--table", "rail_table2")
    assert said.code == 0 and said.out.startswith(file(tmp_path, "rail_table2.md"))
    assert "87.5 (1)" in said.out and "# Results" not in said.out
    for suffix in SUFFIXES:
        assert "87.5 (1)" in file(tmp_path, f"rail_table2.{suffix}")


def test_another_pair_is_shown_on_demand(tmp_path: Path, run: Any) -> None:
    made.write(tmp_path, [record("pkd", dev=0.875)])
    assert "87.5" not in run("--table", "rail_table2").out
    assert "87.5 (1)" in run("--table", "rail_table2", "--teacher", "big", "--student", "small").out


def test_a_table_that_is_unknown_is_refused_with_those_there_are(tmp_path: Path, run: Any) -> None:
    made.write(tmp_path, [record()])
    said = run("--table", "rail_table7")
    assert said.code == 2 and "rail_table7 is unknown" in said.err and "rail_table3" in said.err
    assert not (tmp_path / "tables").exists()


def test_without_records_the_message_says_what_to_type(tmp_path: Path, run: Any) -> None:
    said = run()
    assert said.code == 2 and said.out == ""
    assert said.err.startswith("ilkd_bench: ") and "python -m ilkd_bench.run" in said.err


# ------------------------------------------------------------------------------------- bad input


def broken(kind: str, folder: Path, item: dict[str, Any]) -> str:
    """Spoil a record and return what must be said about it."""
    path = folder / "record.json"
    if kind == "older":
        path.write_text(json.dumps(item | {"schema": 0}))
        return "its schema is 0; this version reads 1"
    if kind == "truncated":
        path.write_text(path.read_text()[:-30])
        return "it is no JSON"
    if kind == "edited":
        path.write_text(json.dumps(item | {"config": item["config"] | {"epochs": 99}}))
        return "its settings do not give its id (was it edited by hand?)"
    if kind == "nan":
        path.write_text(json.dumps(item | {"scores": {"dev": {"accuracy": float("nan"), "n": 4}}}))
        return "its score dev/accuracy is no number: nan"
    assert kind == "twice"
    twin = folder.with_name(f"{folder.name}-again")
    twin.mkdir()
    (twin / "record.json").write_text(path.read_text())
    return "it has the id of "


@pytest.mark.runs
@pytest.mark.parametrize("kind", ["older", "truncated", "edited", "nan", "twice"])
def test_a_record_that_cannot_be_used_is_named_and_the_others_are_shown(
    kind: str, tmp_path: Path, run: Any
) -> None:
    good, bad = record("pkd", "rte", dev=0.875, **PAIR), record("alp", "rte", dev=0.375, **PAIR)
    _, folder = made.write(tmp_path, [good, bad])
    reason = broken(kind, folder, bad)
    name = folder.relative_to(tmp_path).as_posix() + ("-again" if kind == "twice" else "")
    said = run()
    assert said.code == 0
    assert f"{name}: not used, {reason}" in said.out
    for text in formats(tmp_path, "rail_table2").values():
        assert text.count("87.5 (1)") == 1
        assert text.count("37.5 (1)") == (1 if kind == "twice" else 0)
    assert f"{name}: not used, {reason}" in run("--table", "rail_table2").err


def test_unusable_records_alone_are_named(tmp_path: Path, run: Any) -> None:
    (folder,) = made.write(tmp_path, [record(**PAIR)])
    (folder / "record.json").write_text("{")
    said = run()
    assert said.code == 0 and "not used, it is no JSON" in said.out
    for name in ("rail_table2", "published", "claims"):
        assert all(formats(tmp_path, name).values())


def test_a_method_that_nobody_knows_is_shown_and_named(tmp_path: Path, run: Any) -> None:
    made.write(
        tmp_path, [record("invented", "rte", dev=0.875, **PAIR), record("pkd", "rte", **PAIR)]
    )
    said = run()
    assert "This version has no method named invented; its runs are shown." in said.out
    assert "| invented | 87.5 (1)" in said.out
    assert "invented" in {row["method"] for row in summary(tmp_path)}


def test_a_task_that_nobody_knows_is_shown(tmp_path: Path, run: Any) -> None:
    made.write(tmp_path, [record("pkd", "my_task", dev=0.875, **PAIR)])
    said = run()
    assert said.code == 0 and "my_task accuracy" in said.out and "87.5 (1)" in said.out
    assert [row["task"] for row in summary(tmp_path)] == ["my_task"]


def test_one_seed_has_a_mean_and_no_spread_and_is_not_bold(tmp_path: Path, run: Any) -> None:
    made.write(tmp_path, [record("pkd", "rte", dev=0.875, **PAIR), record("alp", "rte", **PAIR)])
    assert run().code == 0
    found = formats(tmp_path, "rail_table2")
    assert all("87.5 (1)" in text and "nan" not in text for text in found.values())
    assert (
        "**" not in found["md"] and "textbf" not in found["tex"] and "strong" not in found["html"]
    )
    assert summary(tmp_path)[0]["std"] == ""


def test_equal_scores_are_all_bold(tmp_path: Path, run: Any) -> None:
    items = [one for m in ("pkd", "alp") for one in seeds([0.875] * 3, m, "rte", **PAIR)]
    made.write(tmp_path, items)
    assert run().code == 0
    found = formats(tmp_path, "rail_table2")
    assert found["md"].count("**87.5 ± 0.0 (3)**") == 2
    assert found["tex"].count(r"\textbf{87.5 $\pm$ 0.0 (3)}") == 2
    assert found["html"].count("<strong>87.5 ± 0.0 (3)</strong>") == 2
    assert found["csv"].count("87.5 ± 0.0 (3)") == 2


def test_a_score_that_is_missing_for_one_task_is_a_dash_everywhere(
    tmp_path: Path, run: Any
) -> None:
    tasks = [column.task for column in papers.tables()["rail_table2"].columns]
    items = [record("pkd", task, dev=0.875, **PAIR) for task in tasks]
    items += [record("alp", task, dev=0.75, **PAIR) for task in tasks if task != "qnli"]
    made.write(tmp_path, items)
    assert run().code == 0
    (row,) = [
        r
        for r in csv.DictReader(io.StringIO(file(tmp_path, "rail_table2.csv")))
        if r["Method"] == "ALP-KD"
    ]
    assert row["QNLI"] == row["Avg."] == "\N{EN DASH}"
    assert list(row.values()).count("75.0 (1)") == 7
    found = formats(tmp_path, "rail_table2")
    for text in (found["md"], found["tex"], found["html"]):
        assert "ALP-KD on QNLI" in text.partition("Missing (n = 0): ")[2]
    assert "ALP-KD & " in found["tex"] and " & -- & " in found["tex"]


STRANGE = "<script>|&%_$#{}\"'`*[x]"


def test_names_are_no_markup_in_any_format(tmp_path: Path, run: Any) -> None:
    """A teacher is named in the claims, a method and a task in the overview."""
    items = [
        record(f"m{STRANGE}", f"t{STRANGE}", teacher=f"big{STRANGE}", dev=0.875),
        record(f"m{STRANGE}", f"u{STRANGE}", teacher=f"big{STRANGE}", status="skipped")
        | {"reason": f"why {STRANGE}"},
    ]
    made.write(tmp_path, items)
    said = run()
    assert said.code == 0
    overview = file(tmp_path, "overview.md")
    claims = formats(tmp_path, "claims")
    for text in (overview, said.out, claims["md"], claims["html"]):
        assert "script" in text and "<script" not in text
    assert "big&lt;script&gt;|&amp;%_" in claims["html"]
    assert r"big\textless{}script\textgreater{}\textbar{}\&\%\_\$\#\{\}" in claims["tex"]
    assert any(STRANGE in row["claim"] for row in csv.DictReader(io.StringIO(claims["csv"])))
    assert [row["method"] for row in summary(tmp_path)] == [f"m{STRANGE}"]
    for name in ("overview.md", "claims.md"):
        rows = [line for line in file(tmp_path, name).splitlines() if line.startswith("|")]
        assert rows
    widths = {
        line.replace(r"\|", "").count("|") for line in claims["md"].splitlines() if line[:1] == "|"
    }
    assert widths == {5}


def test_a_strange_reason_is_escaped_in_the_notes_of_a_paper_s_table(
    tmp_path: Path, run: Any
) -> None:
    made.write(tmp_path, [record("pkd", "rte", status="skipped", **PAIR) | {"reason": STRANGE}])
    run()
    found = formats(tmp_path, "rail_table2")
    assert "PKD on rte is not possible: &lt;script>\\|&amp;%_" in found["md"]
    assert r"not possible: \textless{}script\textgreater{}\textbar{}\&\%\_" in found["tex"]
    assert "not possible: &lt;script&gt;|&amp;%_" in found["html"]


def test_a_changed_setting_of_a_method_is_part_of_its_id(tmp_path: Path, run: Any) -> None:
    """The made records are what runs write: their ids are the hash of their settings."""
    one = record(changes={"temperature": 5})
    assert one["id"] == identity.run_id(one["config"]) != record()["id"]
    made.write(tmp_path, [one])
    assert "pkd (temperature=5)" in run().out
