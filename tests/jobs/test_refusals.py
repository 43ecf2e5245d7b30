"""A command with a run that cannot be starts nothing."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import toys

from ilkd_bench import run
from ilkd_bench.jobs.check import require_possible
from ilkd_bench.jobs.plan import plan
from ilkd_bench.plumbing import processes
from ilkd_bench.training.check import Checks
from ilkd_bench.types import BadInput

pytestmark = pytest.mark.usefixtures("logging_as_it_was")


@pytest.fixture(autouse=True)
def one_process(monkeypatch: pytest.MonkeyPatch) -> None:
    def here(work: Any, *arguments: Any) -> int:
        work(*arguments)
        return 0

    monkeypatch.setattr(processes, "alone", here)


def test_nothing_is_started(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [
        "-m",
        *toys.small(tmp_path),
        "method=finetune,vanilla",
        "max_length=64,500",
        "seed=0,1",
    ]
    assert run.main(words) == 2
    err = capsys.readouterr().err
    assert "nothing was started" in err
    assert err.count("max_length=500 is beyond") == 1, "each reason once"
    assert "method=finetune max_length=500 seed=0" in err, "a line that has it"
    assert not list(tmp_path.rglob("record.json")) and not list(tmp_path.rglob("teachers"))


def test_runs_that_are_done_or_cannot_be_for_a_pair_are_not_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    parameters = {"finetune": 30, "vanilla": 20}

    def check(self: Checks, run: Any, *, here: bool) -> int:
        asked.append(run.method.name)
        return parameters[run.method.name]

    monkeypatch.setattr(Checks, "check", check)
    jobs = plan(["-m", *toys.small(tmp_path), "method=finetune,vanilla", "seed=0,1,2"])
    assert require_possible(jobs) == 30, "of the largest"
    assert asked == ["finetune", "vanilla"], "one run of every cell"


def test_an_error_that_is_none_of_ours_is_shown_with_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(self: Checks, run: Any, *, here: bool) -> None:
        raise TypeError("unsupported operand")

    monkeypatch.setattr(Checks, "check", broken)
    with pytest.raises(BadInput, match=r"^TypeError: unsupported operand$"):
        require_possible(plan(toys.small(tmp_path)))
    assert "in broken" in capsys.readouterr().err


def test_a_check_that_dies_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "alone", lambda *_: -9)
    with pytest.raises(BadInput, match="could not be checked: the process was killed by signal 9"):
        require_possible(plan(toys.small(tmp_path)))
