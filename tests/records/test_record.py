"""Files that are whole or absent, hashes, and records."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import made
import pytest

from ilkd_bench.plumbing import files
from ilkd_bench.records.folders import run_folder, run_folders
from ilkd_bench.records.read import read_record, record_of, write_record
from ilkd_bench.settings.schema import SCHEMA

RECORD = made.record()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ------------------------------------------------------------------------------------------- files


@pytest.mark.parametrize("step", ["fsync", "replace"])
def test_a_failure_in_the_middle_leaves_the_old_file_and_nothing_else(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record.json"
    files.write_text(path, "old")

    def full_disk(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, step, full_disk)
    with pytest.raises(OSError, match="No space left"):
        files.write_text(path, "new and longer")
    assert path.read_text() == "old"
    assert names(tmp_path) == ["record.json"]


def test_the_content_is_on_the_disk_before_the_name_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, events = tmp_path / "record.json", []
    path.write_text("old")
    fsync, replace = os.fsync, os.replace

    def flushed(descriptor: int) -> None:
        fsync(descriptor)
        events.append(("fsync", os.fstat(descriptor).st_size, path.read_text()))

    def renamed(source: Path, target: Path) -> None:
        events.append(("replace", Path(source).stat().st_size, path.read_text()))
        replace(source, target)

    monkeypatch.setattr(os, "fsync", flushed)
    monkeypatch.setattr(os, "replace", renamed)
    files.write_text(path, "longer")
    assert events == [("fsync", 6, "old"), ("replace", 6, "old")]
    assert path.read_text() == "longer" and names(tmp_path) == ["record.json"]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_that_json_does_not_know_are_refused(value: float, tmp_path: Path) -> None:
    files.write_json(tmp_path / "a.json", {"x": 1})
    with pytest.raises(ValueError):
        files.write_json(tmp_path / "a.json", {"x": value})
    assert json.loads((tmp_path / "a.json").read_text()) == {"x": 1}


# ------------------------------------------------------------------------------------------ hashes


def test_digest_is_independent_of_key_order_and_of_1_or_1_0() -> None:
    one = {"a": 1, "b": {"c": [1e-5, 2.0], "d": None}}
    other = {"b": {"d": None, "c": [0.00001, 2]}, "a": 1.0}
    assert files.digest(one) == files.digest(other)


@pytest.mark.parametrize(
    "change",
    [
        {"a": 2},
        {"a": 1.5},
        {"a": "1"},
        {"a": None},
        {"a": True},
        {"b": {"c": [2.0, 1e-5], "d": None}},
        {"b": {"c": [1e-5, 2.0]}},
        {"e": 0},
    ],
    ids=str,
)
def test_digest_changes_with_every_value(change: dict[str, Any]) -> None:
    one = {"a": 1, "b": {"c": [1e-5, 2.0], "d": None}}
    assert files.digest(one) != files.digest(one | change)


def test_a_file_hash_follows_the_content(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    first, second = tmp_path / "a.txt", tmp_path / "b.txt"
    first.write_bytes(b"abc")
    second.write_bytes(b"abc")
    # sha-256 of "abc", FIPS 180-2, appendix B.1
    known = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    assert files.file_hash(first, cache) == files.file_hash(second, cache) == known
    second.write_bytes(b"abd")
    os.utime(second, ns=(1, 1))
    assert files.file_hash(second, cache) != known


def test_a_file_hash_is_remembered(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, cache = tmp_path / "a.txt", tmp_path / "cache"
    path.write_bytes(b"abc")
    first, reads = files.file_hash(path, cache), []
    digest = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda *a: (reads.append(1), digest(*a))[1])
    assert files.file_hash(path, cache) == first and reads == []
    os.utime(path, ns=(5, 5))
    assert files.file_hash(path, cache) == first and reads == [1]


# ----------------------------------------------------------------------------------------- records


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        json.dumps(RECORD)[:-9],
        "[]",
        "null",
        "{}",
        '"done"',
        json.dumps(RECORD | {"status": "finished"}),
        json.dumps(RECORD | {"schema": SCHEMA + 1}),
        json.dumps({k: v for k, v in RECORD.items() if k != "schema"}),
    ],
)
def test_a_record_that_is_not_whole_is_none(content: str, tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text(content)
    assert read_record(tmp_path) is None


def test_a_record_of_broken_bytes_is_none(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_bytes(b'{"status": "\xff\xfe')
    assert read_record(tmp_path) is None


def test_a_record_that_is_absent_is_none(tmp_path: Path) -> None:
    assert read_record(tmp_path / "nowhere") is None


@pytest.mark.parametrize("status", ["done", "failed", "skipped", "running"])
def test_a_record_is_read_as_it_was_written(status: str, tmp_path: Path) -> None:
    content = RECORD | {"best_epoch": 2, "seconds": {"train": 3, "evaluate": 0.5}}
    content |= {"status": status, "reason": "größer als \U0001f600", "later": {"key": [1]}}
    write_record(tmp_path / "run", record_of(content, "elsewhere"))
    written = json.loads((tmp_path / "run/record.json").read_text())
    assert json.dumps(written, sort_keys=True) == json.dumps(content, sort_keys=True)  # 4 is no 4.0
    found = read_record(tmp_path / "run")
    assert found is not None
    assert json.dumps(found.content(), sort_keys=True) == json.dumps(content, sort_keys=True)


def test_run_folders_lists_all_that_have_a_record_whole_or_not(tmp_path: Path) -> None:
    for run in ("t/p/m/s1-b", "t/p/m/s0-a", "t/p/k/s0-c"):
        write_record(tmp_path / "runs" / run, record_of(RECORD | {"id": run}))
    (tmp_path / "runs/t/p/m/s0-a/record.json").write_text("{")
    (tmp_path / "runs/t/p/m/s9-empty").mkdir()
    found = [folder.relative_to(tmp_path).as_posix() for folder in run_folders(tmp_path)]
    assert found == ["runs/t/p/k/s0-c", "runs/t/p/m/s0-a", "runs/t/p/m/s1-b"]
    assert run_folders(tmp_path / "nowhere") == []


def test_a_run_s_folder_tells_task_pair_method_and_seed(tmp_path: Path) -> None:
    named = {key: {"name": key.upper()} for key in ("task", "teacher", "student", "method")}
    folder = run_folder(tmp_path, named | {"seed": 3}, "0123456789")
    assert folder == tmp_path / "runs/TASK/TEACHER-STUDENT/METHOD/s3-0123456789"
