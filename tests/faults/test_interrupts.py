"""Ctrl-C and SIGTERM in the middle of a training: a clean end, and the next command goes on."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path

import pytest
from driving import FOUND, REAL, Stage, differences, held, litter, record, runs, said, states, wait

pytestmark = pytest.mark.kills


def ctrl_c(process: subprocess.Popen[str]) -> None:
    """Send what the terminal sends: to the whole group."""
    os.killpg(process.pid, signal.SIGINT)


def terminate(process: subprocess.Popen[str]) -> None:
    """Send SIGTERM to the sweep only."""
    process.terminate()


STOPS = pytest.mark.parametrize(
    ("stop", "code"), [(ctrl_c, 130), (terminate, 143)], ids=["ctrl_c", "sigterm"]
)


@STOPS
@pytest.mark.parametrize("parallel", [1, 2])
def test_an_interrupted_training_goes_on_from_its_last_epoch(
    parallel: int, stop: object, code: int, undisturbed: Path, tmp_path: Path
) -> None:
    shutil.copytree(undisturbed / "cache", tmp_path / "cache")
    at_work = ["vanilla-0", "finetune-0"][:parallel]
    stage = Stage(tmp_path, {name: [("student step", 7, "pause")] for name in at_work})
    words = ("-m", *REAL, "cache_dir=cache", "method=vanilla,finetune", "seed=0")
    words += (f"parallel={parallel}",)
    process = stage.start(*words)
    wait(lambda: len(stage.log("pause")) == parallel, "all are at work")
    stop(process)  # type: ignore[operator]
    first = said(process)
    assert first["code"] == code, first
    assert "ilkd_bench: stopped; type the same command again to go on" in first["err"]
    assert "Traceback" not in first["err"]
    stage.nobody_left()
    assert set(runs(tmp_path)) == set(at_work)
    for folder in runs(tmp_path).values():
        assert record(folder)["status"] == "running" and record(folder)["reason"] is None
        assert (folder / "checkpoint/phase-1.ckpt").is_file()
        assert not (folder / "error.txt").exists()
    assert held(tmp_path) == []

    second = stage.run(*words)
    assert second["code"] == 0, second
    for name in at_work:
        epochs = [words[3] for words in stage.log("epoch") if words[0] == name]
        assert epochs == ["0", "1", "1", "2"]
    found, expected = runs(tmp_path), runs(undisturbed)
    assert set(found) == {"vanilla-0", "finetune-0"}
    assert [d for name in found for d in differences(found[name], expected[name])] == []
    assert litter(tmp_path) == []


@STOPS
def test_an_interrupted_teacher_goes_on_too(
    stop: object, code: int, undisturbed: Path, tmp_path: Path
) -> None:
    stage = Stage(tmp_path, {"finetune-0": [("teacher step", 3, "pause")]})
    words = (*REAL, "cache_dir=cache", "method=finetune", "seed=0")
    process = stage.start(*words)
    stage.until("paused")
    stop(process)  # type: ignore[operator]
    assert said(process)["code"] == code
    stage.nobody_left()
    assert stage.run(*words)["code"] == 0
    epochs = [words[3] for words in stage.log("epoch") if words[2] == "teacher"]
    assert epochs == ["0", "1", "1", "2"]
    found, expected = runs(tmp_path), runs(undisturbed)
    assert differences(found["finetune-0"], expected["finetune-0"]) == []
    assert litter(tmp_path) == []


@STOPS
def test_an_interrupt_between_jobs_starts_none(stop: object, code: int, tmp_path: Path) -> None:
    """The rest stays untouched; what is done stays done."""
    stage = Stage(tmp_path, {"vanilla-0": [("run", 1, "pause")]}, light=True)
    words = ("-m", "cache_dir=cache", "method=finetune,vanilla,pkd")
    process = stage.start(*words)
    stage.until("paused")
    stop(process)  # type: ignore[operator]
    assert said(process)["code"] == code
    stage.nobody_left()
    assert states(tmp_path) == {"finetune-0": "done", "vanilla-0": "running"}
    assert stage.run(*words)["code"] == 0


@STOPS
def test_an_interrupt_ends_all_that_are_at_work(stop: object, code: int, tmp_path: Path) -> None:
    plan = {f"{method}-0": [("run", 1, "pause")] for method in ("finetune", "vanilla")}
    stage = Stage(tmp_path, plan, light=True)
    words = ("-m", "cache_dir=cache", "method=finetune,vanilla,pkd", "parallel=2")
    process = stage.start(*words)
    wait(lambda: len(stage.log("pause")) == 2, "both are at work")
    stop(process)  # type: ignore[operator]
    last = said(process)
    assert last["code"] == code and "Traceback" not in last["err"], last
    stage.nobody_left()
    assert states(tmp_path) == {"finetune-0": "running", "vanilla-0": "running"}
    assert held(tmp_path) == []
    assert stage.run(*words)["code"] == 0
    assert set(states(tmp_path).values()) == {"done"} and len(states(tmp_path)) == 3


def test_ctrl_c_while_the_libraries_are_loaded_shows_no_traceback(tmp_path: Path) -> None:
    """In the first seconds, when no job has begun."""
    loading = tmp_path / "slow"
    loading.mkdir()
    (loading / "transformers.py").write_text(
        "import pathlib, time\n"
        f"pathlib.Path({str(tmp_path / 'sabotage' / 'paused')!r}).touch()\n"
        "time.sleep(8)\n"
    )
    stage = Stage(tmp_path, {})
    process = stage.start(*REAL, "cache_dir=cache", PYTHONPATH=f"{loading}:{FOUND}")
    stage.until("paused")
    ctrl_c(process)
    last = said(process)
    assert last["code"] == 130, last
    assert "Traceback" not in last["err"], last["err"]
    assert "stopped; type the same command again" in last["err"]
