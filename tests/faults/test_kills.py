"""Jobs and whole sweeps are killed; typing the same command again gives the undisturbed results."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from conftest import SWEEP
from driving import REAL, Stage, differences, held, litter, record, runs, states

pytestmark = pytest.mark.kills

DRAW = np.random.default_rng(20240917)


def drawn(low: int, high: int) -> int:
    return int(DRAW.integers(low, high, endpoint=True))


TEACHER_STEPS, STUDENT_STEPS, EPOCHS, PIECES = 6, 12, 3, 8

JOBS = {  # each run is killed at the first moment by the first command, at the other by the second
    "rail_l-0": [
        ("teacher step", drawn(1, TEACHER_STEPS)),
        ("student step", drawn(1, STUDENT_STEPS)),
    ],
    "rail_l-1": [
        ("half a checkpoint of the teacher", 1),
        ("before checkpoint", drawn(1, EPOCHS)),
    ],
    "pkd-0": [("before teachers", 1), ("half a checkpoint of the student", drawn(1, EPOCHS))],
    "pkd-1": [("bank write", drawn(1, PIECES)), ("after checkpoint", drawn(1, EPOCHS))],
    "vanilla-0": [("before progress.json", 1), ("before record.json", 2)],
    "vanilla-1": [("before banks", 1), ("after best", 1)],
    "finetune-0": [("student step", drawn(1, STUDENT_STEPS)), ("before predictions", drawn(1, 3))],
    "finetune-1": [("removal of checkpoints", 1), ("half a student", 1)],
    "pro_kd-0": [("after snapshots", 1), ("after record.json", 1)],
    "pro_kd-1": [("bank write", drawn(1, PIECES)), ("student step", drawn(1, STUDENT_STEPS))],
}
SWEEPS = {  # the whole sweep is killed at each of these moments, one after the other
    "pkd-0": [
        ("teacher step", drawn(1, TEACHER_STEPS)),
        ("before checkpoint", 1),  # the teacher's
        ("bank write", drawn(1, PIECES)),
        ("student step", drawn(1, STUDENT_STEPS)),
        ("half a checkpoint of the student", 1),
        ("after record.json", 2),
    ],
    "pro_kd-0": [
        ("half a checkpoint of the teacher", drawn(1, EPOCHS)),
        ("student step", drawn(1, STUDENT_STEPS)),
        ("after history.csv", 1),
        ("before record.json", 2),
    ],
}
KILLED = "the process was killed by signal 9 (SIGKILL, as it is when memory runs out)"


def compare(root: Path, undisturbed: Path) -> str:
    """Assert that nothing tells of the kills, and say how much was compared.

    To the last byte: every step is computed on one thread of this machine, in the same shapes.
    """
    found, expected = runs(root), runs(undisturbed)
    assert {record(folder)["status"] for folder in found.values()} == {"done"}
    wrong = [text for name in found for text in differences(found[name], expected[name])]
    assert not wrong, wrong
    arrays = sorted((root / "cache/banks").glob("*/*.npy"))
    for path in arrays:
        other = undisturbed / path.relative_to(root)
        assert path.read_bytes() == other.read_bytes(), path
    weights = sorted((root / "cache/teachers").rglob("*.safetensors"))
    for path in weights:
        other = undisturbed / path.relative_to(root)
        assert path.read_bytes() == other.read_bytes(), path
    assert held(root) == []
    assert litter(root) == []
    return f"{len(found)} runs, {len(arrays)} arrays of banks, {len(weights)} files of teachers"


def test_killed_jobs_fail_alone_and_end_as_if_nothing_had_happened(
    undisturbed: Path, tmp_path: Path
) -> None:
    plan = {job: [(*moment, "kill") for moment in moments] for job, moments in JOBS.items()}
    stage = Stage(tmp_path, plan)
    for turn in (0, 1):
        said = stage.run(*SWEEP)
        assert "Traceback" not in said["out"] + said["err"], said["err"]
        assert stage.happened == [f"{job}.{n}" for job in JOBS for n in range(turn + 1)], said
        found = {name: record(folder) for name, folder in runs(tmp_path).items()}
        assert {name: r["reason"] for name, r in found.items()} == dict.fromkeys(JOBS, KILLED)
        assert {r["status"] for r in found.values()} == {"failed"}
        assert said["code"] == 1 and "10 runs: 10 failed" in said["out"]
    said = stage.run(*SWEEP)
    assert said["code"] == 0 and "10 runs: 10 done" in said["out"], said
    told = compare(tmp_path, undisturbed)
    assert set(runs(tmp_path)) == set(JOBS), "no record is lost or counted twice"
    stage.nobody_left()
    print(f"\n{len(stage.happened)} kills of jobs; compared: {told}")


def test_a_job_killed_after_its_record_was_written_is_done(
    undisturbed: Path, tmp_path: Path
) -> None:
    stage = Stage(tmp_path, {"vanilla-0": [("after record.json", 2, "kill")]}, light=True)
    said = stage.run("-m", "cache_dir=cache", "method=vanilla,pkd")
    assert stage.happened == ["vanilla-0.0"]
    assert said["code"] == 0 and set(states(tmp_path).values()) == {"done"}


def test_a_killed_sweep_goes_on_where_it_was(undisturbed: Path, tmp_path: Path) -> None:
    plan = {job: [(*moment, "kill sweep") for moment in moments] for job, moments in SWEEPS.items()}
    words = ("-m", *REAL, "cache_dir=cache", "method=pkd,pro_kd", "seed=0")
    stage = Stage(tmp_path, plan)
    kills = [f"{job}.{number}" for job, moments in SWEEPS.items() for number in range(len(moments))]
    for number, _ in enumerate(kills):
        said = stage.run(*words)
        assert said["code"] == -9, said
        assert stage.happened == kills[: number + 1]
        assert "Traceback" not in said["err"]
        stage.nobody_left()  # the job died by itself
    assert states(tmp_path) == {"pkd-0": "done", "pro_kd-0": "running"}
    said = stage.run(*words)
    assert said["code"] == 0 and "2 runs: 2 done" in said["out"], said
    assert stage.log("orphan") == []
    told = compare(tmp_path, undisturbed)
    assert set(runs(tmp_path)) == set(SWEEPS)
    print(f"\n{len(kills)} kills of sweeps; compared: {told}")


def test_a_forced_run_goes_on_after_a_kill_and_is_forced_again_once_it_is_done(
    undisturbed: Path, tmp_path: Path
) -> None:
    for part in ("cache", "results"):
        shutil.copytree(undisturbed / part, tmp_path / part)
    moments = [("student step", 6, "kill"), ("student step", 6, "kill sweep")]
    stage = Stage(tmp_path, {"pkd-0": moments})
    words = (*REAL, "cache_dir=cache", "method=pkd", "seed=0", "force=true")
    assert stage.run(*words)["code"] == 1
    assert stage.run(*words)["code"] == -9
    stage.nobody_left()
    assert stage.run(*words)["code"] == 0
    assert [words[3] for words in stage.log("epoch")] == ["0", "1", "1", "2", "2"]
    folder = runs(tmp_path)["pkd-0"]
    (kept,) = folder.glob("record-*.json")
    before = runs(undisturbed)["pkd-0"] / "record.json"
    assert kept.read_bytes() == before.read_bytes(), "what was done stays beside it"
    kept.unlink()
    assert differences(folder, runs(undisturbed)["pkd-0"]) == []
    assert stage.run(*words)["code"] == 0
    assert [words[3] for words in stage.log("epoch")][5:] == ["0", "1", "2"]
    assert len(list(folder.glob("record-*.json"))) == 1


# --------------------------------------------------------------------------------------- damage


def truncated(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size * 2 // 3])


def flipped(path: Path) -> None:
    """In the middle of the weights, where no reader of the file's structure comes by."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0x40
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def garbage(path: Path) -> None:
    path.write_bytes(np.random.default_rng(0).bytes(50_000))


DAMAGE: dict[str, tuple[str, Callable[[Path], None]]] = {
    "pkd-0": ("checkpoint/phase-1.ckpt", truncated),
    "pkd-1": ("checkpoint/phase-1.ckpt", flipped),
    "vanilla-0": ("checkpoint/phase-1.ckpt", empty),
    "vanilla-1": ("checkpoint/phase-1.ckpt", garbage),
    "finetune-0": ("checkpoint/best.ckpt", flipped),
    "finetune-1": ("record.json", truncated),
}


def test_damage_is_noticed_and_never_taken_for_whole(undisturbed: Path, tmp_path: Path) -> None:
    """Runs are killed in their second epoch; then the disk does what it can do."""
    shutil.copytree(undisturbed / "cache", tmp_path / "cache")
    stage = Stage(tmp_path, {job: [("student step", 6, "kill")] for job in DAMAGE})
    words = ("-m", *REAL, "cache_dir=cache", "method=pkd,vanilla,finetune", "seed=0,1")
    assert stage.run(*words)["code"] == 1
    folders = runs(tmp_path)
    for job, (name, damage) in DAMAGE.items():
        assert (folders[job] / "checkpoint/best.ckpt").is_file()
        damage(folders[job] / name)
    half_a_record = (folders["finetune-1"] / "record.json").read_bytes()
    stage.plan({})
    said = stage.run(*words)
    assert said["code"] == 0, said
    aside = folders["finetune-1"] / "record-1.json"
    assert aside.read_bytes() == half_a_record, "it is kept"
    aside.unlink()
    compare(tmp_path, undisturbed)
    epochs = {job: [w[3] for w in stage.log("epoch") if w[0] == job] for job in DAMAGE}
    again = {job: ["0", "1", "2"] for job in DAMAGE} | {"finetune-1": ["1", "2"]}
    assert epochs == again, "what was damaged starts again; what was not, goes on"
    for job, folder in folders.items():
        told = "the checkpoints in" in (folder / "run.log").read_text()
        assert told == (job != "finetune-1")


def test_a_killed_run_goes_on_after_its_folder_has_moved(undisturbed: Path, tmp_path: Path) -> None:
    """Its best epoch is one before the kill, and is remembered."""
    shutil.copytree(undisturbed / "cache", tmp_path / "cache")
    best = {
        name: record(folder)["best_epoch"]
        for name, folder in runs(undisturbed).items()
        if not name.startswith("pro_kd")
    }
    early = min(best, key=lambda name: best[name])
    assert best[early] < EPOCHS, "otherwise this shows nothing"
    method, seed = early.split("-")
    stage = Stage(tmp_path, {early: [("student step", STUDENT_STEPS, "kill")]})
    words = (*REAL, "cache_dir=cache", f"method={method}", f"seed={seed}")
    assert stage.run(*words)["code"] == 1
    (tmp_path / "results").rename(tmp_path / "elsewhere")
    assert stage.run(*words, "results_dir=elsewhere")["code"] == 0
    epochs = [words[3] for words in stage.log("epoch")]
    assert epochs == ["0", "1", "2", "2"]
    (tmp_path / "elsewhere").rename(tmp_path / "results")
    compare(tmp_path, undisturbed)
