"""Sweeps in one process, with a training that does nothing: what is run, told and left alone."""

from __future__ import annotations

import json
import shutil
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import toys

from ilkd_bench import run
from ilkd_bench.jobs import plan, sweep
from ilkd_bench.jobs.sweep import Sweep
from ilkd_bench.plumbing import cores, processes
from ilkd_bench.records.read import read_record, write_record
from ilkd_bench.records.record import Measured
from ilkd_bench.settings import groups
from ilkd_bench.training import train

pytestmark = pytest.mark.usefixtures("logging_as_it_was")

MEASURED: dict[str, Any] = {
    "scores": {"dev": {"accuracy": 0.75, "n": 4}},
    "monitor": "dev/accuracy",
    "teacher": {"dev": {"accuracy": 0.875, "n": 4}},
    "seconds": {"train": 1.0, "teacher": 0.5, "evaluate": 0.25},
}


@pytest.fixture(autouse=True)
def trained(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The runs that were carried out, in this process and without any training."""
    names: list[str] = []

    def alone(work: Any, *arguments: Any) -> int:
        try:
            work(*arguments)
        except SystemExit as error:
            return int(error.code or 0)
        return 0

    def measure(run: Any, folder: Path) -> Measured:
        names.append(f"{run.method.name}-{run.seed}")
        return Measured.model_validate(MEASURED)

    monkeypatch.setattr(processes, "alone", alone)
    monkeypatch.setattr(train, "train", measure)
    return names


def records(root: Path) -> list[dict[str, Any]]:
    return list(toys.records(root / "results"))


# ------------------------------------------------------------------------- the same run, otherwise


def test_equal_values_are_one_run(tmp_path: Path, trained: list[str]) -> None:
    words = ["-m", *toys.small(tmp_path, "lr=1e-3,0.001,0.0010", "seed=1,1", "batch_size=8,8")]
    assert run.main(words) == 0
    assert trained == ["rail_l-1"] and len(records(tmp_path)) == 1
    (job,) = plan.plan(toys.small(tmp_path, "lr=0.001", "seed=1", "batch_size=8"))
    assert job.is_done(read_record(job.folder))


def test_another_order_of_the_words_finds_the_same_runs(
    tmp_path: Path, trained: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    words = toys.small(tmp_path, "method=pkd,alp", "seed=0,1")
    assert run.main(["-m", *words]) == 0
    before = {record["folder"] for record in records(tmp_path)}
    capfd.readouterr()
    assert run.main([*reversed(words), "-m"]) == 0
    assert len(trained) == 4 and {record["folder"] for record in records(tmp_path)} == before
    assert capfd.readouterr().err.count("done before: ") == 4


# --------------------------------------------------------------------------------------- by force


def test_force_keeps_the_old_records_beside_the_new_one(tmp_path: Path, trained: list[str]) -> None:
    words = toys.small(tmp_path, "method=pkd")
    (job,) = plan.plan(words)
    versions = []
    for turn in range(3):
        (job.folder / "checkpoint").mkdir(parents=True, exist_ok=True)
        (job.folder / "checkpoint/phase-1.ckpt").write_bytes(b"of another attempt")
        assert run.main([*words, "force=true"]) == 0
        assert not (job.folder / "checkpoint").exists()
        record = toys.read_record(job.folder)
        assert record is not None and record["status"] == "done"
        toys.write_record(job.folder, record | {"turn": turn})
        versions.append((job.folder / "record.json").read_bytes())
    assert len(trained) == 3
    kept = [(job.folder / f"record-{number}.json").read_bytes() for number in (1, 2)]
    assert kept == versions[:2]
    assert not (job.folder / "record-3.json").exists()
    assert [r["turn"] for r in records(tmp_path)] == [2], "old records are no runs"
    assert run.main(words) == 0 and len(trained) == 3, "without force it is done"


def test_a_forced_run_that_was_broken_off_goes_on(
    tmp_path: Path, trained: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And once it is done, it is forced again."""
    words = [*toys.small(tmp_path, "method=pkd"), "force=true"]
    (job,) = plan.plan(words)
    checkpoint = job.folder / "checkpoint/phase-1.ckpt"
    kill, found = [True], []

    def measure(run: Any, folder: Path) -> Measured:
        found.append(checkpoint.is_file())
        checkpoint.parent.mkdir(exist_ok=True)
        checkpoint.write_bytes(b"the first epoch")
        if kill[0]:
            raise KeyboardInterrupt
        shutil.rmtree(checkpoint.parent)
        return Measured.model_validate(MEASURED)

    assert run.main(words) == 0 and len(trained) == 1
    monkeypatch.setattr(train, "train", measure)
    for _ in range(2):
        assert run.main(words) == 130
    record = read_record(job.folder)
    assert record is not None and record.status == "running"
    write_record(job.folder, job.record_with(status="failed", reason="killed by signal 9"))
    kill[0] = False
    for _ in range(2):
        assert run.main(words) == 0
    assert found == [False, True, True, False]
    old = sorted(path.name for path in job.folder.glob("record-*.json"))
    assert old == ["record-1.json", "record-2.json"], "one of each run that was done"
    for name in old:
        assert json.loads((job.folder / name).read_text())["status"] == "done"


def test_force_puts_a_failed_record_aside_too(tmp_path: Path, trained: list[str]) -> None:
    words = toys.small(tmp_path, "method=pkd")
    (job,) = plan.plan(words)
    write_record(job.folder, job.record_with(status="failed", reason="once"))
    assert run.main([*words, "force=true"]) == 0
    assert json.loads((job.folder / "record-1.json").read_text())["reason"] == "once"
    assert len(records(tmp_path)) == 1


@pytest.mark.parametrize("damage", ["", "{", '{"schema": 1, "status": "done"', "[]", "\0\0"])
def test_a_damaged_record_is_no_result(damage: str, tmp_path: Path, trained: list[str]) -> None:
    words = toys.small(tmp_path, "method=pkd")
    (job,) = plan.plan(words)
    job.folder.mkdir(parents=True)
    (job.folder / "record.json").write_text(damage)
    assert run.main(words) == 0
    assert trained == ["pkd-0"] and records(tmp_path)[0]["status"] == "done"


# ------------------------------------------------------------------------------ what is left, room


class Usage(NamedTuple):
    total: int
    used: int
    free: int


def told(
    words: list[str], free: int, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> str:
    planned = plan.plan(words)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: Usage(10**12, 0, free))
    capfd.readouterr()
    sweep.announce(planned)
    return capfd.readouterr().err


def test_a_sweep_tells_what_is_to_do_and_how_much_room_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """A student of 2 MB, and checkpoints of seven times that."""
    words = ["-m", *toys.small(tmp_path, "method=pkd,alp", "seed=0,1,2")]
    line = told(words, 50_000_000, monkeypatch, capfd)
    assert line == (
        "6 runs, 6 of them to do; students and checkpoints take about 18.0 MB, 50.0 MB are free "
        f"in {tmp_path / 'results'}\n"
    )
    line = told([*words, "keep_student=all"], 26_000_001, monkeypatch, capfd)
    assert "take about 26.0 MB" in line and "too little room" not in line
    line = told([*words, "keep_student=all"], 25_999_999, monkeypatch, capfd)
    warning = "that is too little room: give results_dir=DIR or keep_student=none"
    assert line.splitlines()[1] == warning
    job = plan.plan(words)[0]
    write_record(job.folder, job.record_with(status="done", **MEASURED))
    assert told(words, 10**9, monkeypatch, capfd).startswith("6 runs, 5 of them to do; ")


def test_nothing_is_announced_for_one_run_or_where_all_is_done(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    words = toys.small(tmp_path, "method=pkd")
    assert told(words, 1, monkeypatch, capfd) == ""
    words = ["-m", *words, "seed=0,1"]
    for job in plan.plan(words):
        write_record(job.folder, job.record_with(status="done", **MEASURED))
    assert told(words, 1, monkeypatch, capfd) == ""


def test_the_line_tells_how_far_the_sweep_is(tmp_path: Path) -> None:
    planned = plan.plan(["-m", *toys.small(tmp_path, "method=pkd", "seed=range(5)")])
    swept = Sweep(planned)
    assert swept.line() == "5 left"
    swept.states = {planned[0].id: "done", planned[1].id: "failed", planned[2].id: "done"}
    assert swept.line() == "2 done, 1 failed, 2 left"
    swept._seconds = [100.0, 140.0]
    assert swept.line() == "2 done, 1 failed, 2 left, about 4 min"
    assert Sweep(planned[:1]).line() == ""


def test_what_was_done_before_does_not_make_the_rest_look_short(
    tmp_path: Path, trained: list[str]
) -> None:
    """Only runs that were carried out count for the time that is left."""
    planned = plan.plan(["-m", *toys.small(tmp_path, "method=pkd", "seed=range(3)")])
    for job in planned[:2]:
        write_record(job.folder, job.record_with(status="done", **MEASURED))
    swept = Sweep(planned)
    swept.carry_out()
    assert trained == ["pkd-2"] and len(swept._seconds) == 1
    assert set(swept.states.values()) == {"done"} and len(swept.states) == 3


# ----------------------------------------------------------------------------------------- its end


def test_a_sweep_of_many_runs_names_only_those_that_are_not_done(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    planned = plan.plan(["-m", *toys.small(tmp_path, "method=pkd", "seed=range(51)")])
    for job in planned[1:]:
        write_record(job.folder, job.record_with(status="done", **MEASURED))
    capfd.readouterr()
    assert sweep.report(planned) == 1
    out = capfd.readouterr().out.splitlines()
    assert out[0] == "51 runs: 50 done, 1 missing"
    assert len(out) == 3 and str(planned[0].folder) in out[1]
    assert out[2].startswith("records: ")


@pytest.mark.runs
def test_two_hundred_done_runs_are_skipped_in_little_time(
    tmp_path: Path, trained: list[str], capfd: pytest.CaptureFixture[str]
) -> None:
    words = ["-m", *toys.small(tmp_path, "method=pkd,alp", "seed=range(100)")]
    for job in plan.plan(words):
        write_record(job.folder, job.record_with(status="done", **MEASURED))
    groups._defaults.cache_clear()
    started = time.process_time()  # not the time that others have the core
    assert run.main(words) == 0
    taken = time.process_time() - started
    assert trained == []
    assert "200 runs: 200 done" in capfd.readouterr().out
    assert taken / 200 < 0.05, f"{taken / 200:.3f} s each"


def test_how_many_go_on_at_once_is_told_and_their_checkpoints_take_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Two students of 2 MB, and twice the checkpoints of seven times that."""
    words = ["-m", *toys.small(tmp_path, "method=pkd,alp", "seed=0,1,2")]
    line = told([*words, "parallel=2"], 50_000_000, monkeypatch, capfd)
    assert line.startswith(
        "6 runs, 6 of them to do, 2 at once; students and checkpoints take about 32.0 MB, 50.0 MB "
    )
    monkeypatch.setattr(cores, "cores", lambda: 4)
    monkeypatch.setattr(cores, "free_memory", lambda: 10**12)
    monkeypatch.setattr(sweep, "has_gpu", lambda: False)
    assert "4 at once; " in told(words, 50_000_000, monkeypatch, capfd)
    monkeypatch.setattr(sweep, "has_gpu", lambda: True)
    assert "at once" not in told(words, 50_000_000, monkeypatch, capfd)
    assert "4 at once; " in told(
        [*words, "trainer.accelerator=cpu"], 50_000_000, monkeypatch, capfd
    )
