"""A disk that is full: the run that meets it fails, the sweep goes on, and room mends it."""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import driving
import pytest
from driving import REAL, Stage, differences, litter, record, runs, states

pytestmark = pytest.mark.kills


class Disk:
    """A small file system in memory."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def mount(self, options: str) -> None:
        """Mount it, or skip the test."""
        word = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(self.folder)]
        done = subprocess.run(word, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"no small disk can be mounted here: {done.stderr.strip()}")

    def resize(self, options: str) -> None:
        """Make room."""
        word = ["mount", "-o", f"remount,{options}", str(self.folder)]
        subprocess.run(word, check=True)

    def remove(self) -> None:
        """Unmount it."""
        subprocess.run(["umount", "-l", str(self.folder)], capture_output=True, check=False)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    made = Disk(tmp_path / "results")
    yield made
    made.remove()


def test_a_full_disk_fails_a_training_and_not_the_sweep(
    undisturbed: Path, tmp_path: Path, disk: Disk
) -> None:
    """A training needs seven times its student's weights: two checkpoints of three (one is being
    written aside), and the best. With the first student on the disk that is too much.
    """
    weights = runs(undisturbed)["finetune-0"] / "student/model.safetensors"
    disk.mount(f"size={int(7.5 * weights.stat().st_size) // 1024 + 80}k")
    stage = Stage(tmp_path, {})
    words = ("-m", *REAL, "cache_dir=cache", "method=finetune,vanilla,pkd", "seed=0,1")
    said = stage.run(*words)
    assert said["code"] == 1, said
    assert "Traceback" not in said["out"] + said["err"], said["err"]
    found = states(tmp_path)
    assert set(found.values()) <= {"done", "failed"} and "done" in found.values(), found
    assert "failed" in found.values() or "missing" in said["out"]
    for folder in runs(tmp_path).values():
        if record(folder)["status"] == "failed":
            reason = record(folder)["reason"]
            place = re.match("no space left on the disk of (.*), .* are free: ", reason)
            assert place is not None and disk.folder.name in Path(place[1]).parts, reason
            assert "results_dir=DIR" in reason and "type the same command again" in reason
    assert len(stage.log("attempt")) + said["err"].count("No space left") >= 6, "each was tried"
    expected = runs(undisturbed)
    done = {n: f for n, f in runs(tmp_path).items() if record(f)["status"] == "done"}
    assert [d for n, f in done.items() for d in differences(f, expected[n])] == []
    disk.resize("size=64m")
    said = stage.run(*words)
    assert said["code"] == 0 and "6 runs: 6 done" in said["out"], said
    mended = runs(tmp_path)
    assert len(mended) == 6
    assert [d for n, f in mended.items() for d in differences(f, expected[n])] == []
    assert litter(tmp_path) == []


def test_a_disk_without_room_for_a_single_file_is_survived(tmp_path: Path, disk: Disk) -> None:
    """No lock, folder or record can be made any more; the sweep ends as always."""
    disk.mount("size=1m,nr_inodes=20")
    stage = Stage(tmp_path, {}, light=True)
    words = ("-m", "cache_dir=cache", "method=pkd,alp,vanilla", "seed=0,1")
    said = stage.run(*words)
    assert said["code"] == 1, said
    assert "Traceback" not in said["out"] + said["err"], said["err"]
    assert "No space left" in said["err"]
    assert "6 runs: " in said["out"]
    disk.resize("nr_inodes=10000")
    assert stage.run(*words)["code"] == 0
    assert len(states(tmp_path)) == 6 and set(states(tmp_path).values()) == {"done"}


def test_a_disk_that_fills_up_between_files_is_survived(tmp_path: Path, disk: Disk) -> None:
    """Every student takes a third of it."""
    disk.mount("size=600k")
    stage = Stage(tmp_path, {}, light=True)
    words = ("-m", "cache_dir=cache", "keep_student=all", "method=pkd,alp,vanilla", "seed=0,1")
    said = stage.run(*words, SABOTAGE_BYTES="180000")
    assert said["code"] == 1, said
    assert "Traceback" not in said["out"] + said["err"], said["err"]
    counts = list(states(tmp_path).values())
    assert counts.count("done") >= 2, counts
    assert counts.count("running") <= 1, "whose end could not be written"
    assert said["err"].count("failed, ") == 6 - counts.count("done"), said["err"]
    disk.resize("size=64m")
    assert stage.run(*words, SABOTAGE_BYTES="180000")["code"] == 0
    assert set(states(tmp_path).values()) == {"done"} and len(states(tmp_path)) == 6


def test_a_general_stage_on_a_full_disk_is_told_and_made_whole_with_room(
    tmp_path: Path, disk: Disk
) -> None:
    """First there is no room for the tokens of its corpus, then none for its checkpoint."""
    words = ("student=tiny6_general", "student.general.limit_steps=4", "precision=32-true")
    command = (sys.executable, "-m", "ilkd_bench.general", *words, f"cache_dir={disk.folder}")
    stage = Stage(tmp_path, {})
    disk.mount("size=64k")
    for size, made in (("64k", 0), ("1500k", 1), ("64m", 1)):
        disk.resize(f"size={size}")
        said = driving.said(stage.start_program(*command))
        assert len(list((disk.folder / "tokens").glob("*/meta.json"))) == made, size
        stages = [path for path in (disk.folder / "teachers").iterdir() if path.suffix != ".lock"]
        if size == "64m":
            assert said["code"] == 0 and len(stages) == 1, said
        else:
            assert said["code"] == 2 and "Traceback" not in said["err"], said
            (line,) = (line for line in said["err"].splitlines() if "no space left" in line)
            assert f"on the disk of {disk.folder}" in line and "(cache_dir=DIR)" in line
            assert stages == [], "no half of it"


def test_workers_do_without_shared_memory(undisturbed: Path, tmp_path: Path) -> None:
    """A full /dev/shm stops workers that send tensors, without a word, for ever."""
    shutil.copytree(undisturbed / "cache", tmp_path / "cache")
    words = (*REAL, "cache_dir=cache", "method=pkd", "seed=0", "trainer.workers=2")
    command = shlex.join(
        [sys.executable, str(Path(driving.__file__).with_name("sweep.py")), *words]
    )
    stage = Stage(tmp_path, {})
    for size, code in (("128k", 0), ("4k", 1)):
        here = f"mount --make-rprivate / && mount -t tmpfs -o size={size} tmpfs /dev/shm"
        check = subprocess.run(
            ["unshare", "-m", "sh", "-c", here], capture_output=True, check=False
        )
        if check.returncode:
            pytest.skip("no file system of one's own can be mounted here")
        said = driving.said(
            stage.start_program("unshare", "-m", "sh", "-c", f"{here} && {command}")
        )
        assert said["code"] == code, said
        (folder,) = runs(tmp_path).values()
        if code == 0:
            assert differences(folder, runs(undisturbed)["pkd-0"]) == []
            shutil.rmtree(tmp_path / "results")
        else:  # not even the semaphores of the workers' queues
            reason = record(folder)["reason"]
            assert reason.startswith("no space left on the disk of /dev/shm"), reason
            assert "type trainer.workers=0" in reason
