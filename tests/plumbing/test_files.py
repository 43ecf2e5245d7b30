"""Files and folders that are whole or absent."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from ilkd_bench.plumbing import files


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
