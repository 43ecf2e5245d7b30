"""Whatever way a job ends, its record tells, the others run on, and the exit code is 1."""

from __future__ import annotations

from pathlib import Path

import pytest
from driving import Stage, record, runs, said, states, wait

pytestmark = pytest.mark.kills

METHODS = ("pkd", "alp", "vanilla", "finetune", "rail_l", "rail_c", "pro_kd")
WORDS = ("-m", "cache_dir=cache", f"method={','.join(METHODS)}")
ENDS = {
    "raise": "RuntimeError: on purpose",
    "memory": "MemoryError: ",
    "exit 3": "SystemExit: 3",
    "_exit 0": "the process ended with exit code 0 before the run did",
    "_exit 7": "the process ended with exit code 7 before the run did",
    "segv": "the process was killed by signal 11 (SIGSEGV)",
    "kill": "the process was killed by signal 9 (SIGKILL, as it is when memory runs out)",
}


@pytest.mark.parametrize("parallel", [1, 3])
def test_every_end_of_a_job_is_told_and_the_others_run_on(parallel: int, tmp_path: Path) -> None:
    """Each of seven methods ends its own way with seed 0 and is well with seed 1."""
    plan = {f"{m}-0": [("run", 1, end)] for m, end in zip(METHODS, ENDS, strict=True)}
    stage = Stage(tmp_path, plan, light=True)
    words = (*WORDS, "seed=0,1", f"parallel={parallel}")
    first = stage.run(*words)
    assert first["code"] == 1
    assert len(stage.happened) == 7
    found = runs(tmp_path)
    assert set(found) == {f"{m}-{s}" for m in METHODS for s in (0, 1)}
    for method, (end, reason) in zip(METHODS, ENDS.items(), strict=True):
        assert states(tmp_path)[f"{method}-1"] == "done"
        failed = found[f"{method}-0"]
        assert record(failed)["status"] == "failed"
        assert record(failed)["reason"] == reason
        assert f"  failed: {failed.relative_to(tmp_path)}: {reason}" in first["out"]
        trace = failed / "error.txt"
        if end in ("raise", "memory", "exit 3"):
            last = trace.read_text().strip().splitlines()[-1]
            assert trace.read_text().startswith("Traceback") and last == reason.removesuffix(": ")
        elif end == "segv":
            assert "Fatal Python error: Segmentation fault" in trace.read_text()
            assert "in do" in trace.read_text(), "where it was"
        else:
            assert not trace.exists()
        assert f"{method}, seed 0: failed, {reason}" in first["err"]
    assert "14 runs: 7 done, 7 failed" in first["out"]
    assert "Traceback" not in first["out"] + first["err"]

    assert stage.run(*words)["code"] == 0
    assert set(states(tmp_path).values()) == {"done"}
    assert len(stage.log("attempt")) == 14 + 7, "what was done was left alone"
    assert not list(tmp_path.rglob("error.txt"))
    stage.nobody_left()


@pytest.mark.parametrize("end", ["raise", "kill"])
def test_fail_fast_stops_at_the_first_failure(end: str, tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"vanilla-0": [("run", 1, end)]}, light=True)
    words = ("-m", "cache_dir=cache", "method=finetune,vanilla,pkd,alp", "seed=0")
    first = stage.run(*words, "fail_fast=true")
    assert first["code"] == 1
    assert states(tmp_path) == {"finetune-0": "done", "vanilla-0": "failed"}
    assert [words[0] for words in stage.log("attempt")] == ["finetune-0", "vanilla-0"]
    folders = {path.name for path in (tmp_path / "results/runs").glob("*/*/*")}
    assert folders == {"finetune", "vanilla"}, "the rest is untouched"
    assert "4 runs: 1 done, 1 failed, 2 missing" in first["out"]
    assert stage.run(*words, "fail_fast=true")["code"] == 0
    assert set(states(tmp_path).values()) == {"done"} and len(states(tmp_path)) == 4


@pytest.mark.parametrize("end", ["raise", "kill"])
def test_after_the_first_failure_those_at_work_end_and_no_other_begins(
    end: str, tmp_path: Path
) -> None:
    plan = {"finetune-0": [("run", 1, "wait")], "vanilla-0": [("run", 1, end)]}
    stage = Stage(tmp_path, plan, light=True)
    words = ("-m", "cache_dir=cache", "method=finetune,vanilla,pkd,alp", "seed=0", "parallel=2")
    process = stage.start(*words, "fail_fast=true")
    wait(lambda: states(tmp_path).get("vanilla-0") == "failed", "it fails")
    (stage.notes / "go").touch()
    last = said(process)
    assert last["code"] == 1 and "4 runs: 1 done, 1 failed, 2 missing" in last["out"], last
    assert states(tmp_path) == {"finetune-0": "done", "vanilla-0": "failed"}
