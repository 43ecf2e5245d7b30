"""The comparison at W&B: what would be sent, from records alone and without a network."""

from __future__ import annotations

import json
import socket
import sys
from pathlib import Path
from typing import Any

import pytest
import toys
from toys import write_record

from ilkd_bench import dashboard
from ilkd_bench.records import cells
from ilkd_bench.records.read import record_of
from ilkd_bench.reporting import wandb_views
from ilkd_bench.settings import identity
from ilkd_bench.settings.schema import SCHEMA
from ilkd_bench.training import wandb_logger
from ilkd_bench.types import BadInput


@pytest.fixture(autouse=True)
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No network, no key, no settings of whoever runs the tests."""

    def refuse(*given: Any) -> None:
        raise AssertionError("a test reached for the network")

    monkeypatch.setattr(socket, "create_connection", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_CONFIG_DIR", str(tmp_path / "config"))


def record(method: str = "rail_l", seed: int = 0, **changes: Any) -> dict[str, Any]:
    """A done run; `task`, `student` and `limit_train` can be changed."""
    task = changes.pop("task", "mnli")
    student = changes.pop("student", "bert_6")
    terms = {"rail_l": ["ce", "kd", "rail"], "pkd": ["ce", "kd", "pt"]}[method]
    ood = {"scitail": {"metric": "accuracy"}} if task == "mnli" else {}
    measured = {"dev": {"accuracy": 0.8, "f1": 0.7, "n": 4}, "test": {"accuracy": 0.6, "n": 4}}
    measured |= {f"ood/{name}": {"accuracy": 0.5, "n": 4} for name in ood}
    config = {
        "teacher": {"name": "bert_base"},
        "student": {"name": student},
        "method": {"name": method, "weights": {term: 1.0 for term in terms}},
        "task": {"name": task, "metric": "accuracy", "ood": ood},
        "data": {"dev": task},
        "seed": seed,
        "lr": 1e-4,
        "batch_size": 8,
        "limit_train": None,
        "epochs": 3,
        "max_length": 128,
        "precision": "32-true",
        "limit_eval": None,
    } | changes
    return {
        "schema": SCHEMA,
        "id": identity.run_id(config),
        "status": "done",
        "config": config,
        "teacher": {"dev": {"accuracy": 0.9, "n": 4}},
        "scores": measured,
        "monitor": "dev/accuracy",
        "seconds": {"train": 10.0, "teacher": 1.0, "evaluate": 1.0},
    }


def sent(*records: dict[str, Any]) -> list[dict[str, Any]]:
    return [wandb_views.spec(view) for view in workspaces(*records).values()]


def workspaces(*records: dict[str, Any]) -> dict[str, Any]:
    read = [record_of(content, f"runs/{number}") for number, content in enumerate(records)]
    return wandb_views.workspaces(read, entity="us", project="ilkd_bench")


def panels(view: dict[str, Any], title: str) -> list[dict[str, Any]]:
    found = view["spec"]["section"]["panelBankConfig"]["sections"]
    (section,) = [part for part in found if part["name"] == title]
    return [panel["config"] for panel in section["panels"]]


def runs(view: dict[str, Any]) -> dict[str, Any]:
    (found,) = view["spec"]["section"]["runSets"]
    return found


def test_a_view_compares_methods_with_seeds_grouped() -> None:
    (view,) = sent(record(), record(seed=1), record("pkd"))
    assert view["entity"] == "us" and view["project"] == "ilkd_bench"
    assert view["name"] == "mnli: bert_base to bert_6"
    bars = panels(view, "Scores by method")
    assert [bar["metrics"] for bar in bars] == [
        ["scores/dev/accuracy"],
        ["scores/ood/scitail/accuracy"],
        ["scores/test/accuracy"],
    ]
    assert {(bar["groupAgg"], bar["groupArea"]) for bar in bars} == {("mean", "stddev")}
    assert [key["name"] for key in runs(view)["grouping"]] == [
        "row.value",
        "lr.value",
        "batch_size.value",
    ]


def test_a_view_sets_other_domains_and_seconds_against_dev() -> None:
    (view,) = sent(record())
    (domain,) = panels(view, "Other domains against dev")
    assert (domain["xAxis"], domain["yAxis"]) == (
        "summary:scores/dev/accuracy",
        "summary:scores/ood/scitail/accuracy",
    )
    (times,) = panels(view, "Seconds against score")
    assert (times["xAxis"], times["yAxis"]) == (
        "summary:seconds/train",
        "summary:scores/dev/accuracy",
    )


def test_a_view_has_a_line_for_every_loss_term_of_every_method() -> None:
    (view,) = sent(record(), record("pkd"))
    lines = panels(view, "Loss terms and dev by epoch")
    assert {line["xAxis"] for line in lines} == {"epoch"}
    assert [line["metrics"] for line in lines] == [
        ["dev/accuracy"],
        ["loss/ce"],
        ["loss/kd"],
        ["loss/pt"],
        ["loss/rail"],
        ["loss/total"],
    ]


def test_without_another_domain_there_is_no_section_for_it() -> None:
    (view,) = sent(record(task="mrpc"))
    titles = [part["name"] for part in view["spec"]["section"]["panelBankConfig"]["sections"]]
    assert titles == ["Scores by method", "Seconds against score", "Loss terms and dev by epoch"]


def test_what_cannot_be_compared_is_in_views_of_its_own() -> None:
    views = sent(
        record(),
        record(task="mrpc"),
        record(student="bert_4"),
        record(limit_train=64),
        record(limit_train=32),
    )
    names = [view["name"] for view in views]
    assert len(set(names)) == 5
    assert sorted(name.partition(" (limited)")[0] for name in names) == [
        "mnli: bert_base to bert_4",
        "mnli: bert_base to bert_6",
        "mnli: bert_base to bert_6",
        "mnli: bert_base to bert_6",
        "mrpc: bert_base to bert_6",
    ]
    filters = [json.dumps(runs(view)["filters"]) for view in views]
    assert len(set(filters)) == 5


def test_a_view_shows_exactly_the_runs_that_carry_its_marks(tmp_path: Path) -> None:
    """The marks that `tracking` gives a run are those that the view asks for."""
    run = toys.run("logger=wandb", data={"dev": "mnli"})
    limited = run.but(limit_train=64)
    one, other = (record(task="mrpc") | {"config": r.identity, "id": r.id} for r in (run, limited))
    for chosen, wanted in ((one, True), (other, False)):
        (view,) = sent(chosen)
        filters = {f["key"]["name"]: f for f in runs(view)["filters"]["filters"]}
        marks = wandb_logger.opening(run, run.logger, tmp_path)["init"]["config"]
        found = [filters[name]["value"] == marks[name] for name in ("section", "column")]
        assert all(found) is wanted
        assert filters["state"]["value"] == ["finished", "running"]


def test_panels_ask_for_names_that_runs_send() -> None:
    (view,) = sent(record())
    names = set(wandb_logger.flat(record()))
    asked = {bar["metrics"][0] for bar in panels(view, "Scores by method")}
    for title in ("Other domains against dev", "Seconds against score"):
        for panel in panels(view, title):
            asked |= {panel[axis].removeprefix("summary:") for axis in ("xAxis", "yAxis")}
    assert asked <= names
    assert "scores/dev/accuracy" in asked and "seconds/train" in asked


def test_the_same_comparison_has_the_same_key_whatever_ran_since() -> None:
    first = workspaces(record())
    later = workspaces(record(), record("pkd", 1))
    assert list(first) == list(later)


def test_names_that_the_library_refuses_are_changed() -> None:
    (view,) = sent(record(student="bert+6"))
    assert view["name"] == "mnli: bert_base to bert-6"


class Saved:
    """Stands in for a view at W&B."""

    def __init__(self, there: bool, log: list[str]) -> None:
        self.there, self.log = there, log

    def from_url(self, url: str) -> Any:
        if not self.there:
            raise ValueError("not found")
        self.log.append("found")
        return self

    def save(self) -> Any:
        self.log.append(f"saved {self.sections}")  # type: ignore[attr-defined]
        return self

    url = "address"


@pytest.mark.parametrize("there", [False, True])
def test_a_view_that_is_there_is_updated(there: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    log: list[str] = []
    library = Saved(there, log)
    monkeypatch.setattr(wandb_views, "_library", lambda: (_with(library), None))
    view = Saved(False, log)
    view.name, view.settings, view.sections, view.runset_settings = "mnli", 1, 2, 3  # type: ignore[attr-defined]
    assert wandb_views.send({"abc": view}, "us") == ["mnli: address"]
    assert view.entity == "us" and view._internal_name == "nw-abc-v"  # type: ignore[attr-defined]
    assert log == (["found", "saved 2"] if there else ["saved 2"])


def _with(workspace: Any) -> Any:
    class Library:
        Workspace = workspace

    return Library


def write(folder: Path, *records: dict[str, Any]) -> None:
    for number, one in enumerate(records):
        write_record(folder / "runs" / "t" / "p" / "m" / str(number), one)


def test_a_dry_run_prints_what_would_be_sent(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, record(), record("pkd"))
    assert dashboard.main(["--results-dir", str(tmp_path), "--dry-run"]) == 0
    (view,) = json.loads(capsys.readouterr().out)
    assert len(panels(view, "Scores by method")) == 3


def test_without_a_key_the_error_says_what_to_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, record())
    assert dashboard.main(["--results-dir", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert "type wandb login, or set WANDB_API_KEY" in err and "Traceback" not in err


def test_without_records_the_error_says_what_to_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dashboard.main(["--results-dir", str(tmp_path), "--dry-run"]) == 2
    assert "logger=wandb" in capsys.readouterr().err


def test_without_the_library_the_error_says_what_to_install(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "wandb_workspaces", None)
    monkeypatch.setitem(sys.modules, "wandb_workspaces.reports.v2", None)
    with pytest.raises(BadInput, match=r"\.\[wandb\]"):
        sent(record())


@pytest.mark.parametrize("name", ["a\" or 'b') and Metric(x)\x1b[2J=1", "x\\", "é'\n", "a=b"])
def test_a_hostile_name_is_a_value_of_the_filter_and_nothing_else(name: str) -> None:
    (view,) = sent(record(task=name))
    (runset,) = view["spec"]["section"]["runSets"]
    filters = json.dumps(runset["filters"])
    column = cells.place(record(task=name)["config"])["task"]
    assert json.dumps(column) in filters and filters.count('"op"') == 3
    assert name.isprintable() or name not in view["name"]
