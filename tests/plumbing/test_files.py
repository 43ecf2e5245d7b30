"""Files and folders that are whole or absent; hashes of files; disks that are full."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from ilkd_bench.plumbing import files
from ilkd_bench.types import BadInput


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def put(aside: Path, content: str) -> None:
    (aside / "sub").mkdir()
    (aside / "a").write_text(content)
    (aside / "sub" / "b").write_text(content)


def folder_of(path: Path, content: str) -> None:
    with files.folder_aside(path) as aside:
        put(aside, content)
        files.put_folder(aside, path)


@pytest.fixture
def flushed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Names of what was flushed and renamed, in this order."""
    done: list[str] = []
    fsync, replace = os.fsync, os.replace

    def flush(file: int) -> None:
        done.append(f"flush {Path(os.readlink(f'/proc/self/fd/{file}')).name}")
        fsync(file)

    def rename(source: Any, target: Any) -> None:
        done.append(f"name {Path(target).name}")
        replace(source, target)

    monkeypatch.setattr(os, "fsync", flush)
    monkeypatch.setattr(os, "replace", rename)
    return done


def test_a_file_is_flushed_before_it_gets_its_name(tmp_path: Path, flushed: list[str]) -> None:
    files.write_bytes(tmp_path / "new" / "file", b"x\n")
    assert flushed == [f"flush .file.{os.getpid()}", "name file"]
    assert (tmp_path / "new" / "file").read_bytes() == b"x\n"
    assert names(tmp_path / "new") == ["file"]


def test_a_failure_leaves_the_file_before_and_nothing_aside(tmp_path: Path) -> None:
    files.write_text(tmp_path / "file", "before")
    with pytest.raises(ZeroDivisionError), files.whole_file(tmp_path / "file") as aside:
        aside.write_text("half")
        raise ZeroDivisionError
    assert names(tmp_path) == ["file"] and (tmp_path / "file").read_text() == "before"


def test_a_full_disk_names_the_file(tmp_path: Path) -> None:
    with pytest.raises(OSError) as error, files.whole_file(tmp_path / "file"):
        raise OSError(errno.ENOSPC, "No space left on device")
    assert error.value.filename == str(tmp_path / "file")


def test_a_file_that_nobody_wrote_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), files.whole_file(tmp_path / "file"):
        pass
    assert names(tmp_path) == []


def test_all_files_of_a_folder_are_flushed_before_it_gets_its_name(
    tmp_path: Path, flushed: list[str]
) -> None:
    folder_of(tmp_path / "folder", "x")
    assert sorted(flushed[:2]) == ["flush a", "flush b"] and flushed[2:] == ["name folder"]
    assert names(tmp_path) == ["folder"] and names(tmp_path / "folder") == ["a", "sub"]


def test_a_folder_takes_the_place_of_the_one_before(tmp_path: Path) -> None:
    folder_of(tmp_path / "folder", "before")
    (tmp_path / "folder" / "more").write_text("of before")
    folder_of(tmp_path / "folder", "after")
    assert names(tmp_path) == ["folder"] and names(tmp_path / "folder") == ["a", "sub"]
    assert (tmp_path / "folder" / "sub" / "b").read_text() == "after"


def test_a_folder_that_another_process_puts_there_meanwhile_goes_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    remove, calls = files.remove_folder, []

    def late(folder: Path) -> None:
        remove(folder)
        calls.append(folder)
        if len(calls) == 1:
            folder.mkdir()
            (folder / "other").write_text("")

    monkeypatch.setattr(files, "remove_folder", late)
    folder_of(tmp_path / "folder", "x")
    assert names(tmp_path / "folder") == ["a", "sub"] and len(calls) == 2


def test_a_failure_leaves_the_folder_before_and_nothing_aside(tmp_path: Path) -> None:
    folder_of(tmp_path / "folder", "before")
    with pytest.raises(ZeroDivisionError), files.folder_aside(tmp_path / "folder") as aside:
        put(aside, "half")
        raise ZeroDivisionError
    assert names(tmp_path) == ["folder"] and (tmp_path / "folder/a").read_text() == "before"


def test_what_a_killed_process_left_is_in_nobodys_way(tmp_path: Path) -> None:
    for name in (f".folder.{os.getpid()}", ".folder.gone"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "left").write_text("")
    folder_of(tmp_path / "folder", "x")
    folder_of(tmp_path / "folder", "y")
    assert names(tmp_path) == ["folder"] and names(tmp_path / "folder") == ["a", "sub"]


def test_a_folder_is_removed_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A kill while its files are removed leaves none of them under its name."""
    folder_of(tmp_path / "folder", "x")
    monkeypatch.setattr(files.shutil, "rmtree", lambda *_, **__: None)
    files.remove_folder(tmp_path / "folder")
    assert names(tmp_path) == [".folder.gone"]
    monkeypatch.undo()
    files.remove_folder(tmp_path / "folder")
    assert names(tmp_path) == []


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077])
def test_weights_have_the_permissions_of_any_other_file(umask: int, tmp_path: Path) -> None:
    """`safetensors` gives a file to its owner alone, so that no colleague could read it."""

    def weights(path: Path) -> None:
        save_file({"a": torch.ones(2)}, path)

    before = os.umask(umask)
    try:
        with files.whole_file(tmp_path / "a.safetensors") as aside:
            weights(aside)
        with files.folder_aside(tmp_path / "teacher") as aside:
            (aside / "snapshots").mkdir()
            weights(aside / "model.safetensors")
            weights(aside / "snapshots" / "1.safetensors")
            files.put_folder(aside, tmp_path / "teacher")
        weights(tmp_path / "b.safetensors")
        files.follow_umask(tmp_path / "b.safetensors")
    finally:
        os.umask(before)
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert len(found) == 4 and not [path for path in found if path.name.startswith(".")]
    assert {path.stat().st_mode & 0o777 for path in found} == {0o666 & ~umask}


# ------------------------------------------------------------------------------------------- hashes


def rewritten(path: Path) -> None:
    """What `rsync -t` leaves, and a program that puts the time back."""
    stat = path.stat()
    path.write_bytes(b"abd")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def copied_over(path: Path) -> None:
    """What `cp -p` leaves."""
    other = path.with_name("other")
    other.write_bytes(b"abd")
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    shutil.copy2(other, path)


def moved_over(path: Path) -> None:
    other = path.with_name("other")
    other.write_bytes(b"abd")
    os.utime(other, ns=(path.stat().st_atime_ns, path.stat().st_mtime_ns))
    os.replace(other, path)


@pytest.mark.parametrize("change", [rewritten, copied_over, moved_over])
def test_another_content_of_the_same_size_and_time_has_another_hash(
    change: Callable[[Path], None], tmp_path: Path
) -> None:
    path, cache = tmp_path / "file", tmp_path / "cache"
    path.write_bytes(b"abc")
    before, times = files.file_hash(path, cache), path.stat()
    change(path)
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (times.st_size, times.st_mtime_ns)
    assert files.file_hash(path, cache) != before
    assert files.content_hash(path) == files.file_hash(path, cache)


@pytest.fixture
def rotten(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path, str]:
    """A file that a disk has changed behind its times, the caches, and the hash from before."""
    path, cache = tmp_path / "file", tmp_path / "cache"
    path.write_bytes(b"abc")
    state = files._state(path)
    monkeypatch.setattr(files, "_state", lambda path: state)
    before = files.file_hash(path, cache)
    path.write_bytes(b"abd")
    files._read_here.clear()  # as in another process
    return path, cache, before


def test_a_file_that_the_disk_has_changed_is_refused_by_name(
    rotten: tuple[Path, Path, str],
) -> None:
    path, cache, before = rotten
    assert files.file_hash(path, cache) == before, "which is why it is verified where it is used"
    for _ in range(2):
        with pytest.raises(BadInput, match="is damaged: its content is another") as error:
            files.verified_hash(path, cache)
        assert str(path) in str(error.value) and "force=true" in str(error.value)


def test_by_force_it_is_taken_as_it_is(rotten: tuple[Path, Path, str]) -> None:
    path, cache, before = rotten
    now = files.hash_anew(path, cache)
    assert now != before
    assert files.file_hash(path, cache) == files.verified_hash(path, cache) == now


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"0" * 64, b"0" * 64 + b" 00", None])
def test_a_damaged_memory_is_not_believed(content: bytes | None, tmp_path: Path) -> None:
    path, cache = tmp_path / "file", tmp_path / "cache"
    path.write_bytes(b"abc")
    known = files.file_hash(path, cache)
    (memory,) = (cache / "hashes").iterdir()
    if content is None:
        content = memory.read_bytes().replace(known[:1].encode(), b"x", 1)
    memory.write_bytes(content)
    (cache / "hashes" / ".of a killed process").write_bytes(b"")
    assert files.file_hash(path, cache) == known
    assert names(cache / "hashes") == [memory.name]
