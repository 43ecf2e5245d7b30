"""Run folders that somebody else has prepared: nothing outside them is written or removed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import toys

from ilkd_bench.jobs import job, plan
from ilkd_bench.types import BadInput


@pytest.fixture
def planned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> job.Job:
    def refuse(*_: object) -> object:
        raise BadInput("it trains nothing here")

    monkeypatch.setattr("ilkd_bench.training.train.train", refuse)
    (found,) = plan.plan(toys.small(tmp_path))
    found.folder.mkdir(parents=True)
    return found


@pytest.mark.parametrize("name", ["error.txt", "run.log", "student", "checkpoint", "history.csv"])
def test_nothing_is_written_through_a_link(
    name: str, planned: job.Job, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    victim = tmp_path / "victim"
    victim.mkdir()
    (victim / "mine").write_text("mine")
    (planned.folder / name).symlink_to(victim if "." not in name else victim / "mine")
    with pytest.raises(SystemExit):
        job.attempt(planned)
    assert [path.name for path in victim.iterdir()] == ["mine"]
    assert (victim / "mine").read_text() == "mine"
    record = json.loads((planned.folder / "record.json").read_text())
    assert record["status"] == "failed" and f"{name}: it is a link" in record["reason"]


def test_a_record_that_is_a_link_gives_way(planned: job.Job, tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("mine")
    (planned.folder / "record.json").symlink_to(tmp_path / "victim")
    job.attempt(planned)
    assert (tmp_path / "victim").read_text() == "mine"
    assert (planned.folder / "record.json").is_file()
    assert not (planned.folder / "record.json").is_symlink()


def test_a_run_s_folder_that_is_a_link_is_left_alone(planned: job.Job, tmp_path: Path) -> None:
    planned.folder.rmdir()
    (tmp_path / "victim").mkdir()
    planned.folder.symlink_to(tmp_path / "victim")
    with pytest.raises(SystemExit):
        job.attempt(planned)
    assert list((tmp_path / "victim").iterdir()) == []


def test_folders_of_results_may_lie_behind_links(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ilkd_bench.training.train.train", lambda *_: 1 / 0)
    (tmp_path / "big_disk").mkdir()
    (tmp_path / "results").symlink_to("big_disk")
    (planned,) = plan.plan(toys.small(tmp_path))
    job.attempt(planned)
    assert list((tmp_path / "big_disk").glob("runs/*/*/*/s0-*/record.json"))
