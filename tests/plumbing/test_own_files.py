"""Folders that others write to: nothing in them is read or written through a link."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ilkd_bench.plumbing import files, own_files
from ilkd_bench.plumbing.logs import crash_report, logged


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    path = tmp_path / "victim"
    path.write_text("mine")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    path.mkdir()
    return path


def test_a_file_is_read_and_a_link_is_not(folder: Path, victim: Path) -> None:
    (folder / "a").mkdir()
    (folder / "a/b").write_text("text")
    (folder / "link").symlink_to(victim)
    (folder / "way").symlink_to(folder / "a")
    assert own_files.read_file(folder, "a/b") == b"text" and own_files.has_file(folder, "a/b")
    for name in ("link", "way/b", "a", "../victim", str(victim), "nothing", "x" * 300, "x\0"):
        assert not own_files.has_file(folder, name)
        with pytest.raises((OSError, ValueError)):
            own_files.read_file(folder, name)


def test_the_folder_itself_may_be_reached_through_links(folder: Path, tmp_path: Path) -> None:
    (folder / "a").write_text("text")
    (tmp_path / "big_disk").symlink_to(folder)
    assert own_files.read_file(tmp_path / "big_disk", "a") == b"text"


WRITES: list[Callable[[Path], object]] = [
    lambda path: files.write_text(path, "ours"),
    lambda path: files.write_bytes(path, b"ours"),
    lambda path: files.write_json(path, 1),
]


@pytest.mark.parametrize("write", WRITES)
def test_what_is_written_takes_the_link_s_place(
    write: Callable[[Path], object], folder: Path, victim: Path
) -> None:
    for name in ("file", f".file.{os.getpid()}"):
        (folder / name).symlink_to(victim)
    write(folder / "file")
    assert victim.read_text() == "mine" and not (folder / "file").is_symlink()
    assert [path.name for path in folder.iterdir()] == ["file"]


@pytest.mark.parametrize("make", [lambda p, v: p.symlink_to(v), lambda p, v: os.mkfifo(p)])
@pytest.mark.parametrize("report", [logged, crash_report])
def test_logs_are_not_written_into_links_and_pipes(
    report: Callable[[Path], object], make: Callable[[Path, Path], None], folder: Path, victim: Path
) -> None:
    make(folder / "log", victim)
    with pytest.raises(OSError), report(folder / "log"):  # type: ignore[attr-defined]
        pass
    assert victim.read_text() == "mine"


@pytest.mark.parametrize(
    ("name", "target"),
    [
        *(("error.txt", "../victim"), ("student", ".."), ("a/deep", "/etc"), ("new", "../absent")),
        ("loop", "loop"),
    ],
)
def test_a_folder_with_a_link_that_leads_out_is_refused(
    name: str, target: str, folder: Path, victim: Path
) -> None:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).symlink_to(target)
    with pytest.raises(OSError, match="it is a link") as error:
        own_files.require_own(folder)
    assert error.value.filename == str(folder / name)


def test_links_within_a_folder_are_its_own(folder: Path) -> None:
    (folder / "wandb/run-1").mkdir(parents=True)
    (folder / "wandb/latest-run").symlink_to("run-1")
    (folder / "wandb/debug.log").symlink_to("run-0/logs/debug.log")  # is gone
    own_files.require_own(folder)


def test_a_folder_that_is_a_link_and_one_with_a_pipe_are_refused(
    folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "other").symlink_to(folder)
    with pytest.raises(OSError, match="it is a link"):
        own_files.require_own(tmp_path / "other")
    os.mkfifo(folder / "run.log")
    with pytest.raises(OSError, match="it is a pipe"):
        own_files.require_own(folder)
