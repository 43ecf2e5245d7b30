"""The command line in one process: exit codes, messages, and what a failing job leaves."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import made
import pytest
import toys
from filelock import FileLock, Timeout

from ilkd_bench import run
from ilkd_bench.jobs import plan
from ilkd_bench.jobs.job import attempt, execute, summary
from ilkd_bench.plumbing import processes
from ilkd_bench.records.read import record_of, write_record
from ilkd_bench.records.record import Measured, Record
from ilkd_bench.settings.schema import SCHEMA
from ilkd_bench.training import train
from ilkd_bench.types import BadInput, Incompatible

pytestmark = pytest.mark.usefixtures("logging_as_it_was")

MEASURED: dict[str, Any] = {
    "scores": {"dev": {"accuracy": 0.75, "n": 4}},
    "monitor": "dev/accuracy",
    "teacher": {"dev": {"accuracy": 0.875, "n": 4}},
    "seconds": {"train": 1.0, "teacher": 0.5, "evaluate": 0.25},
}


def here(work: Any, *arguments: Any) -> int:
    """Stands in for `processes.alone`: the job in this process, where it can be watched."""
    try:
        work(*arguments)
    except SystemExit as error:
        return int(error.code or 0)
    return 0


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "alone", here)


class Trainings:
    """Stands in for `train.train`; does what is scripted per method."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.calls: list[str] = []
        self.errors: dict[str, BaseException] = {}
        monkeypatch.setattr(train, "train", self)

    def __call__(self, run: Any, folder: Path) -> Measured:
        name = run.method.name
        self.calls.append(name)
        if name in self.errors:
            raise self.errors[name]
        return Measured.model_validate(MEASURED)


@pytest.fixture
def trainings(monkeypatch: pytest.MonkeyPatch) -> Trainings:
    return Trainings(monkeypatch)


def command(monkeypatch: pytest.MonkeyPatch, *argv: str) -> int:
    monkeypatch.setattr(sys, "argv", ["ilkd_bench.run", *argv])
    return run.main(argv)


def status(folder: Path) -> dict[str, str]:
    return {
        record["config"]["method"]["name"]: record["status"]
        for record in toys.records(folder / "results")
    }


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (RuntimeError("CUDA out of memory"), "RuntimeError: CUDA out of memory"),
        (SystemExit(3), "SystemExit: 3"),
        (FloatingPointError("the loss (ce) is not finite"), "FloatingPointError: the loss (ce)"),
        (BadInput("max_length=900 is beyond"), "max_length=900 is beyond"),
    ],
    ids=lambda v: type(v).__name__,
)
def test_a_failing_job_leaves_the_others_done(
    error: BaseException,
    reason: str,
    tmp_path: Path,
    trainings: Trainings,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    trainings.errors["vanilla"] = error
    words = ["-m", *toys.small(tmp_path, "method=finetune,vanilla,pkd")]
    assert command(monkeypatch, *words) == 1
    assert trainings.calls == ["finetune", "vanilla", "pkd"]
    assert status(tmp_path) == {"finetune": "done", "vanilla": "failed", "pkd": "done"}
    (failed,) = [r for r in toys.records(tmp_path / "results") if r["status"] == "failed"]
    folder = tmp_path / "results" / failed["folder"]
    assert failed["reason"].startswith(reason)
    trace = (folder / "error.txt").read_text()
    assert trace.startswith("Traceback") and type(error).__name__ in trace
    out, err = capfd.readouterr()
    assert "3 runs: 2 done, 1 failed" in out
    assert f"failed: {folder}: {reason}" in out
    assert "Traceback" not in out + err


def test_an_impossible_pair_is_skipped_and_no_failure(
    tmp_path: Path, trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainings.errors["pkd"] = Incompatible("a student of 1 layer has no intermediate layer")
    words = ["-m", *toys.small(tmp_path, "method=pkd,vanilla")]
    assert command(monkeypatch, *words) == 0
    (skipped,) = [r for r in toys.records(tmp_path / "results") if r["status"] == "skipped"]
    assert skipped["reason"] == "a student of 1 layer has no intermediate layer"
    assert not list((tmp_path / "results").rglob("error.txt"))


def test_an_interrupt_ends_the_sweep(
    tmp_path: Path, trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C is meant for the whole sweep; the run is not taken for done."""
    trainings.errors["finetune"] = KeyboardInterrupt()
    words = ["-m", *toys.small(tmp_path, "method=finetune,vanilla")]
    with pytest.raises((KeyboardInterrupt, SystemExit)):
        raise SystemExit(command(monkeypatch, *words))
    assert "vanilla" not in trainings.calls
    assert status(tmp_path) == {"finetune": "running"}


def test_done_runs_are_not_run_again_but_failed_and_broken_off_ones_are(
    tmp_path: Path, trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = ["-m", *toys.small(tmp_path, "method=finetune,vanilla,pkd,alp")]
    trainings.errors["vanilla"] = RuntimeError("once")
    assert command(monkeypatch, *words) == 1
    records = {r["config"]["method"]["name"]: r for r in toys.records(tmp_path / "results")}
    folders = {name: tmp_path / "results" / r["folder"] for name, r in records.items()}
    half = {k: v for k, v in records["pkd"].items() if k != "folder"} | {"status": "running"}
    toys.write_record(folders["pkd"], half)
    (folders["alp"] / "record.json").write_text('{"status": "done"')
    done = (folders["finetune"] / "record.json").read_bytes()
    trainings.errors, trainings.calls = {}, []
    assert command(monkeypatch, *words) == 0
    assert trainings.calls == ["vanilla", "pkd", "alp"]
    assert set(status(tmp_path).values()) == {"done"}
    assert (folders["finetune"] / "record.json").read_bytes() == done
    assert not (folders["vanilla"] / "error.txt").exists()


def test_a_record_tells_what_was_asked_and_what_came_out(
    tmp_path: Path, trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = toys.small(tmp_path, "method=pkd", "seed=3")
    assert command(monkeypatch, *words) == 0
    (record,) = toys.records(tmp_path / "results")
    assert record["argv"] == words
    assert record["schema"] == SCHEMA and record["reason"] is None
    assert record["scores"] == MEASURED["scores"]
    assert record["config"]["seed"] == 3 and record["config"]["limit_train"] == 64
    assert record["folder"].endswith(f"/pkd/s3-{record['id']}")


def test_a_run_is_marked_as_running_while_it_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []

    def look(run: Any, folder: Path) -> Measured:
        seen.append(json.loads((folder / "record.json").read_text())["status"])
        return Measured.model_validate(MEASURED)

    monkeypatch.setattr(train, "train", look)
    assert command(monkeypatch, *toys.small(tmp_path)) == 0
    assert seen == ["running"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["method=nope"], "method=nope is unknown"),
        (["epoch=3"], "did you mean epochs"),
        (["batch_size=0"], "batch_size=0: allowed is"),
        (["method=a,b"], "method=a is unknown"),
        (["method=pkd,alp"], "add -m"),
        (["task=custom"], "task=custom has no source of its own: give data_dir=DIR"),
        (["task=mrpc", "data_dir=/no/such/folder"], "data_dir=/no/such/folder is no folder"),
        (["teacher.path=/no/such/model", "teacher=bert_base"], "no model folder at /no/such/model"),
        (["teacher.checkpoint=/no/such/model"], "no model folder at /no/such/model"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else None,
)
def test_bad_input_is_one_message_and_exit_code_2_and_nothing_runs(
    words: list[str],
    expected: str,
    tmp_path: Path,
    trainings: Trainings,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    where = [f"results_dir={tmp_path}/results", f"cache_dir={tmp_path}/cache"]
    assert command(monkeypatch, *words, *where) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("ilkd_bench: ") and expected in err
    assert "Traceback" not in err
    assert trainings.calls == [] and not (tmp_path / "results").exists()


def test_the_summary_of_a_run_is_one_line_with_scores_seconds_and_place(tmp_path: Path) -> None:
    names = {"task": "t", "teacher": "a", "student": "b", "method": "m"}
    record = record_of(made.record(**names, seed=4, dev=0.75) | {"seconds": MEASURED["seconds"]})
    assert summary(record, tmp_path) == (
        f"t, a -> b, m, seed 4: dev accuracy 0.7500; 1.8 s; {tmp_path}"
    )


def test_a_run_is_held_while_it_goes_on(
    trainings: Trainings, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (job,) = plan.plan(toys.small(tmp_path))
    second = FileLock(job.folder.with_name(f".{job.folder.name}.lock"))
    outcomes = []

    def measured(run: Any, folder: Path) -> Measured:
        with pytest.raises(Timeout):
            second.acquire(timeout=0)
        outcomes.append("held")
        return Measured.model_validate(MEASURED)

    monkeypatch.setattr(train, "train", measured)
    record = execute(job)
    assert record is not None and record.status == "done"
    assert outcomes == ["held"]
    second.acquire(timeout=0)  # free again
    second.release()


def test_who_comes_second_waits_and_finds_the_run_done(
    trainings: Trainings, tmp_path: Path
) -> None:
    (job,) = plan.plan(toys.small(tmp_path))
    job.folder.mkdir(parents=True)
    found: list[Record | None] = []
    with FileLock(job.folder.with_name(f".{job.folder.name}.lock")):
        waiting = threading.Thread(target=lambda: found.append(execute(job)))
        waiting.start()
        write_record(job.folder, job.record_with(status="done", **MEASURED))
    waiting.join()
    assert [record and record.status for record in found] == ["done"]
    assert trainings.calls == []


def test_a_forced_run_whose_lock_cannot_be_opened_has_failed(
    tmp_path: Path,
    trainings: Trainings,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A folder in the lock's place does what another user's file does."""
    words = ["-m", *toys.small(tmp_path, "method=pkd,vanilla")]
    assert command(monkeypatch, *words) == 0
    (job, _) = plan.plan(words)
    before = (job.folder / "record.json").read_bytes()
    lock = job.folder.with_name(f".{job.folder.name}.lock")
    lock.unlink()
    lock.mkdir()
    capfd.readouterr()
    assert command(monkeypatch, *words, "force=true") == 1
    out, err = capfd.readouterr()
    assert "2 runs: 1 done, 1 failed" in out
    assert f"failed: {job.folder}: {lock}: Is a directory" in out and "Traceback" not in err
    assert (job.folder / "record.json").read_bytes() == before
    assert trainings.calls == ["pkd", "vanilla", "vanilla"]
    assert command(monkeypatch, *words) == 0, "what is done needs no lock"


def test_a_forced_run_that_is_killed_before_it_begins_has_failed(
    tmp_path: Path, trainings: Trainings, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = toys.small(tmp_path)
    assert command(monkeypatch, *words) == 0

    def killed(work: Any, *arguments: Any) -> int:
        return -9 if work is attempt else here(work, *arguments)

    monkeypatch.setattr(processes, "alone", killed)
    assert command(monkeypatch, *words, "force=true") == 1
    assert set(status(tmp_path).values()) == {"done"}


@pytest.mark.parametrize("first", [True, False])
def test_where_no_process_can_be_started_the_sweep_ends_or_the_run_fails_alone(
    first: bool,
    tmp_path: Path,
    trainings: Trainings,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    begun: list[Any] = []

    def short_of_memory(work: Any, *arguments: Any) -> int:
        if work is not attempt:
            return here(work, *arguments)
        begun.append(arguments)
        if (len(begun) == 1) == first:
            raise processes.NoProcess("no process can be forked: Cannot allocate memory")
        return here(work, *arguments)

    monkeypatch.setattr(processes, "alone", short_of_memory)
    words = ["-m", *toys.small(tmp_path, "method=finetune,vanilla")]
    assert command(monkeypatch, *words) == (2 if first else 1)
    out, err = capfd.readouterr()
    assert "Cannot allocate memory" in err and "Traceback" not in err
    assert len(begun) == (1 if first else 2)
    assert ("2 runs: 1 done, 1 missing" in out) == (not first)
