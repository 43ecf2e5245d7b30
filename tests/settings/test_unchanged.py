"""Files that a run is named for are read where it takes place, by force before it too."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import toys

from ilkd_bench.jobs import plan
from ilkd_bench.jobs.job import Job
from ilkd_bench.plumbing import files
from ilkd_bench.settings.identity import require_unchanged
from ilkd_bench.types import BadInput


@pytest.fixture
def own(tmp_path: Path) -> Path:
    """A folder with rows and a teacher of the user's."""
    (tmp_path / "data/custom").mkdir(parents=True)
    for split in ("train", "validation", "test"):
        rows = [{"sentence": f"{split} {n}", "label": ("no", "yes")[n % 2]} for n in range(4)]
        text = "\n".join(map(json.dumps, rows))
        (tmp_path / f"data/custom/{split}.jsonl").write_text(text)
    model = toys.model(labels=["no", "yes"])
    model.hf.save_pretrained(tmp_path / "teacher")
    model.tokenizer.save_pretrained(tmp_path / "teacher")
    return tmp_path


def planned(own: Path, *words: str) -> Job:
    given = ("task=custom", f"data_dir={own / 'data'}", f"teacher.checkpoint={own / 'teacher'}")
    (job,) = plan.plan([*given, f"cache_dir={own / 'cache'}", f"results_dir={own / 'r'}", *words])
    return job


USED = ("data/custom/train.jsonl", "teacher/model.safetensors", "teacher/tokenizer.json")


def flip(path: Path) -> None:
    """Flip a bit, and put the time back."""
    content, stat = bytearray(path.read_bytes()), path.stat()
    content[-3] ^= 1
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def test_a_file_that_changes_between_the_command_and_its_run_is_refused(own: Path) -> None:
    job = planned(own)
    require_unchanged(job.run)
    for name in USED:
        flip(own / name)
        with pytest.raises(BadInput) as error:
            require_unchanged(job.run)
        group = name.partition("/")[0]
        assert f"the files of {group} have changed since this command" in str(error.value)
        flip(own / name)
        require_unchanged(job.run)
    flip(own / USED[1])
    again = planned(own)
    require_unchanged(again.run)
    assert again.id != job.id, "and the command typed again is another run"


def test_a_file_that_the_disk_has_changed_is_refused_and_taken_by_force(
    own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    state = files._state
    known = {path.resolve(): state(path) for path in map(own.joinpath, USED)}
    monkeypatch.setattr(files, "_state", lambda path: known.get(path.resolve()) or state(path))
    job = planned(own)
    for name in USED:
        flip(own / name)
        files._read_here.clear()  # as in another process
        with pytest.raises(BadInput, match="is damaged") as error:
            require_unchanged(job.run)
        assert str(own / name) in str(error.value)
        flip(own / name)
    flip(own / USED[1])
    files._read_here.clear()
    assert planned(own).id == job.id
    forced = planned(own, "force=true")
    assert forced.id != job.id
    require_unchanged(forced.run)
