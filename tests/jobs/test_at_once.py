"""Several runs at once, none of them carried out: what begins when, and what comes of the rest."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import toys

from ilkd_bench.jobs import plan, sweep
from ilkd_bench.jobs.crew import Ended
from ilkd_bench.jobs.job import Job
from ilkd_bench.jobs.sweep import Sweep
from ilkd_bench.plumbing import files

pytestmark = pytest.mark.usefixtures("logging_as_it_was")

MEASURED: dict[str, Any] = {
    "scores": {"dev": {"accuracy": 0.75, "n": 4}},
    "monitor": "dev/accuracy",
    "teacher": {"dev": {"accuracy": 0.875, "n": 4}},
    "seconds": {"train": 1.0, "teacher": 0.5, "evaluate": 0.25},
}


class Scripted:
    """Stands in for a crew: notes what is begun, and has runs end in a given order."""

    def __init__(self, ends: dict[str, Any], at_once: int) -> None:
        self.ends, self.at_once = ends, at_once
        self.at_work: list[Job] = []
        self.begun: list[str] = []
        self.most = 0
        self.told: list[str] = []

    @property
    def busy(self) -> int:
        return len(self.at_work)

    def __enter__(self) -> Scripted:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def begin(self, job: Job, heading: str, *, wait: bool) -> None:
        self.begun.append(name(job) + (" waits" if wait else ""))
        self.at_work.append(job)
        self.most = max(self.most, self.busy)

    def end(self) -> Ended:
        """End the last one that was begun, in the way that is its turn."""
        job = self.at_work.pop()
        ways = self.ends.get(name(job), [])
        way = ways.pop(0) if ways else "done"
        if way == "memory":
            return Ended(job, error=OSError(12, "Cannot allocate memory"))
        if way == "taken":
            return Ended(job)
        measured = MEASURED if way == "done" else {}
        why = None if way == "done" else "on purpose"
        return Ended(job, job.record_with(status=way, reason=why, **measured))

    def tell(self, heading: str) -> None:
        self.told.append(heading)


def name(job: Job) -> str:
    return f"{job.run.method.name}-{job.run.seed}"


def swept(
    root: Path, monkeypatch: pytest.MonkeyPatch, at_once: int, *words: str, **ends: list[str]
) -> tuple[Sweep, Scripted]:
    """Carry out five runs, `pkd-0` to `pkd-4`; `pkd_0=["failed"]` says how one ends."""
    crew = Scripted({key.replace("_", "-"): ways for key, ways in ends.items()}, at_once)
    monkeypatch.setattr(sweep, "crew", lambda at_once: crew)
    words = ("-m", *toys.small(root, "method=pkd", "seed=range(5)", *words))
    made = Sweep(plan.plan(words), at_once)
    made.carry_out()
    return made, crew


@pytest.mark.parametrize("at_once", [1, 2, 3, 9])
def test_as_many_runs_as_allowed_go_on_at_once(
    at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, crew = swept(tmp_path, monkeypatch, at_once)
    assert crew.begun == [f"pkd-{seed}" for seed in range(5)], "in the order of the command"
    assert crew.most == min(at_once, 5)
    assert set(made.states.values()) == {"done"} and len(made.states) == 5
    assert crew.told[-1].startswith("5 done, 0 left")


def test_after_a_failure_nothing_else_begins_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last one that was begun ends first: `pkd-1` fails, and `pkd-0` comes to its end."""
    made, crew = swept(tmp_path / "a", monkeypatch, 2, "fail_fast=true", pkd_1=["failed"])
    assert crew.begun == ["pkd-0", "pkd-1"]
    assert sorted(made.states.values()) == ["done", "failed"]
    assert list(made.failures.values()) == ["on purpose"]
    made, crew = swept(tmp_path / "b", monkeypatch, 2, pkd_1=["failed"])
    assert len(crew.begun) == 5 and list(made.states.values()).count("done") == 4


def test_where_memory_is_short_fewer_go_on_and_none_is_lost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    made, crew = swept(tmp_path, monkeypatch, 3, pkd_2=["memory"])
    assert crew.begun == ["pkd-0", "pkd-1", "pkd-2", "pkd-2", "pkd-3", "pkd-4"]
    assert made.failures == {} and set(made.states.values()) == {"done"}
    assert len(made.states) == 5
    assert "2 at once from now on: Cannot allocate memory" in capfd.readouterr().err


def test_where_not_one_can_be_begun_the_sweep_ends_or_the_run_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(OSError, match="Cannot allocate memory"):
        swept(tmp_path, monkeypatch, 2, pkd_0=["memory"], pkd_1=["memory"])
    made, _ = swept(tmp_path, monkeypatch, 1, pkd_2=["memory"])
    assert list(made.failures.values()) == ["Cannot allocate memory"]
    assert sorted(made.states.values()) == ["done"] * 4 + ["failed"]


def test_what_another_sweep_is_at_comes_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One is found taken only when it is begun; one is held, and is waited for in the end."""
    words = ("-m", *toys.small(tmp_path, "method=pkd", "seed=range(5)"))
    first = plan.plan(words)[0]
    with files.locked(first.folder, "this test is at it"):
        made, crew = swept(tmp_path, monkeypatch, 2, pkd_2=["taken"])
    assert crew.begun == ["pkd-1", "pkd-2", "pkd-3", "pkd-4", "pkd-2", "pkd-0 waits"]
    assert len(made.states) == 5


def test_the_time_that_is_left_is_shared(tmp_path: Path) -> None:
    planned = plan.plan(["-m", *toys.small(tmp_path, "method=pkd", "seed=range(5)")])
    one = Sweep(planned, 4)
    one._seconds = [480.0]
    assert one.line() == "5 left, about 10 min"
