"""Two sweeps over one folder share the work; a claim ends with the process that made it."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest
import toys
from driving import REAL, Stage, differences, held, litter, record, runs, said, states, wait

pytestmark = pytest.mark.kills


@pytest.mark.parametrize("parallel", [1, 2])
def test_two_sweeps_at_once_do_each_run_once_and_end_well(
    parallel: int, undisturbed: Path, tmp_path: Path
) -> None:
    """Whoever begins fine-tunes the teacher, not before the other one has begun a run too."""
    plan = {job: [("teacher step", 1, "wait for the other")] for job in ("vanilla-0", "vanilla-1")}
    stage = Stage(tmp_path, plan)
    words = ("-m", *REAL, "cache_dir=cache", "method=vanilla,pkd", "seed=0,1")
    words += (f"parallel={parallel}",)
    both = [said(process) for process in [stage.start(*words), stage.start(*words)]]
    for one in both:
        assert one["code"] == 0, one
        assert "4 runs: 4 done" in one["out"]
    attempts = stage.log("attempt")
    assert sorted(words[0] for words in attempts) == ["pkd-0", "pkd-1", "vanilla-0", "vanilla-1"]
    assert len({words[2] for words in attempts}) == 2, "both took part"
    assert len([words for words in stage.log("fit") if words[2] == "teacher"]) == 1
    built = [words[2] for words in stage.log("bank")]
    assert len(built) == len(set(built)) == 3, "dev, train with logits, train with all"
    found, expected = runs(tmp_path), runs(undisturbed)
    assert [d for name in found for d in differences(found[name], expected[name])] == []
    assert litter(tmp_path) == [] and held(tmp_path) == []
    stage.nobody_left()


def test_two_sweeps_at_once_distil_each_assistant_once(tmp_path: Path) -> None:
    plan = {job: [("assistant step", 1, "wait for the other")] for job in ("takd-0", "takd-1")}
    stage = Stage(tmp_path, plan)
    words = ("-m", *toys.last(*REAL, "teacher.layers=5"), "cache_dir=cache", "method=takd")
    words += ("seed=0,1", "method.assistants=[4,3]")
    both = [said(process) for process in [stage.start(*words), stage.start(*words)]]
    for one in both:
        assert one["code"] == 0, one
        assert "2 runs: 2 done" in one["out"]
    assert len({words[2] for words in stage.log("attempt")}) == 2, "both took part"
    made = [words[2] for words in stage.log("fit")]
    assert sorted(made) == ["assistant"] * 2 + ["student"] * 2 + ["teacher"]
    told = [record(folder)["teacher"] for folder in runs(tmp_path).values()]
    assert told[0]["assistants"] == told[1]["assistants"]
    assert [one["name"] for one in told[0]["assistants"]] == ["tiny12-4", "tiny12-3"]
    assert litter(tmp_path) == [] and held(tmp_path) == []
    stage.nobody_left()


STAGE = (
    "student=tiny6_general",
    "student.general.batch_size=16",
    "student.general.every=2",
    "student.general.limit_steps=6",
    "teacher.layers=4",
)


def stages(root: Path) -> bytes:
    """The weights that a general stage left, which is there once."""
    (folder,) = (root / "cache/teachers").glob("tiny6_general-general-*")
    return (folder / "model.safetensors").read_bytes()


def test_a_general_stage_is_made_once_and_goes_on_after_kills(tmp_path: Path) -> None:
    """By two sweeps at once, killed in its second stretch and while its checkpoint is written."""
    real = (word for word in REAL if word != "student.teacher_layers=null")
    words: tuple[str, ...] = ("-m", *toys.last(*real, *STAGE))
    words += ("cache_dir=cache", "method=vanilla", "seed=0,1")
    plain = Stage(tmp_path / "plain")
    assert plain.run(*words)["code"] == 0
    moments = [("general step", 4, "kill"), ("half a checkpoint of the general", 2, "kill")]
    first = [("general step", 1, "wait for the other")]
    stage = Stage(tmp_path / "killed", {"vanilla-0": first + moments, "vanilla-1": first + moments})
    both = [said(process) for process in [stage.start(*words), stage.start(*words)]]
    assert all("Traceback" not in one["out"] + one["err"] for one in both), both
    kills = [mark for mark in stage.happened if not mark.endswith(".0")]
    assert len(kills) >= 2, "whoever makes the stage is killed, then the one who goes on"
    stage.plan({})
    assert stage.run(*words)["code"] == 0
    assert stages(stage.root) == stages(plain.root)
    told = [record(folder)["teacher"]["general"] for folder in runs(stage.root).values()]
    assert len(told) == 2 and told[0]["key"] == told[1]["key"]
    found, expected = runs(stage.root), runs(plain.root)
    for name, folder in found.items():
        weights = "student/model.safetensors"
        assert (folder / weights).read_bytes() == (expected[name] / weights).read_bytes()
    assert litter(stage.root) == [] and held(stage.root) == []
    stage.nobody_left()


def test_who_finds_a_run_taken_does_the_others_first(tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"pkd-0": [("run", 1, "wait")]}, light=True)
    words = ("-m", "cache_dir=cache", "method=pkd,alp,vanilla")
    first = stage.start(*words)
    stage.until("paused")
    second = stage.start(*words)
    wait(lambda: len(stage.log("attempt")) == 3, "the second sweep does the other two")
    assert states(tmp_path)["pkd-0"] == "running"
    (stage.notes / "go").touch()
    one, other = said(first), said(second)
    assert one["code"] == other["code"] == 0
    by = {words[0]: words[2] for words in stage.log("attempt")}
    assert by == {"pkd-0": str(first.pid), "alp-0": str(second.pid), "vanilla-0": str(second.pid)}
    assert len(stage.log("attempt")) == 3
    assert "done before: " in one["err"] and "done before: " in other["err"]


@pytest.mark.parametrize("whom", ["sweep", "job"])
def test_a_holder_that_dies_frees_its_claim(whom: str, tmp_path: Path) -> None:
    stage = Stage(tmp_path, {"pkd-0": [("run", 1, "wait")]}, light=True)
    words = ("cache_dir=cache", "method=pkd")
    first = stage.start(*words)
    stage.until("paused")
    before = set(stage.processes())
    second = stage.start(*words)
    (folder,) = runs(tmp_path).values()
    wait(lambda: bool(stage.log("waits")), "the second one waits")
    assert len(stage.log("attempt")) == 1
    if whom == "sweep":
        first.send_signal(signal.SIGKILL)
    else:
        (holder,) = [pid for pid in before if holds(pid, folder)]
        os.kill(holder, signal.SIGKILL)
    assert said(second)["code"] == 0
    # A sweep whose job was killed tells so, unless the other one has made up for it by then.
    assert said(first)["code"] in ((-9,) if whom == "sweep" else (0, 1))
    assert record(folder)["status"] == "done"
    assert [words[2] for words in stage.log("attempt")] == [str(first.pid), str(second.pid)]
    stage.nobody_left()
    assert held(tmp_path) == []


def lock_of(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.lock")


def holds(pid: int, folder: Path) -> bool:
    """Tell whether a process has the run's lock open."""
    try:
        return any(p.resolve() == lock_of(folder) for p in Path(f"/proc/{pid}/fd").iterdir())
    except OSError:
        return False
