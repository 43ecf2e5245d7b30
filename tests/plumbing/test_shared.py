"""Folders that are made once: verified, shared, kept while in use, cleared of what kills left."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from ilkd_bench.plumbing import files, shared


class Stored:
    """A folder with one file, which must hold `whole`."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.made = folder, 0

    def read(self) -> str | None:
        text = (self.folder / "content").read_text()
        if text != "whole":
            raise shared.Damaged(f"{self.folder.name} is damaged and is made again")
        return text

    def make(self) -> None:
        self.made += 1
        with files.folder_aside(self.folder) as aside:
            (aside / "content").write_text("whole")
            files.put_folder(aside, self.folder)

    def get(self, half_done: Callable[[str | None], tuple[str, ...]] = lambda value: ()) -> str:
        return shared.obtain(
            self.folder, self.read, self.make, waiting="another run is at it", half_done=half_done
        )


@pytest.fixture
def stored(tmp_path: Path) -> Stored:
    return Stored(tmp_path / "key-1")


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_it_is_made_once_and_then_read(stored: Stored) -> None:
    assert stored.get() == stored.get() == "whole"
    assert stored.made == 1
    assert names(stored.folder) == {"content", "used"}


def test_damage_is_said_once_and_mended(stored: Stored, caplog: pytest.LogCaptureFixture) -> None:
    stored.get()
    (stored.folder / "content").write_text("while")
    assert stored.get() == "whole" and stored.made == 2
    assert [record.getMessage() for record in caplog.records] == [
        "key-1 is damaged and is made again"
    ]


def test_what_kills_left_is_removed_at_the_next_use_of_the_same_key(
    stored: Stored, tmp_path: Path
) -> None:
    stored.get()
    for name in (".key-1.gone", ".key-1.4711", ".key-1.part", ".key-12.4711", ".key-1"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "left").write_text("")
    (tmp_path / ".key-1.json.4711").write_text("half")
    (stored.folder / ".content.4711").write_text("half")
    stored.get(lambda value: ("part",))
    assert names(tmp_path) == {"key-1", ".key-1.lock", ".key-1.part", ".key-12.4711", ".key-1"}
    stored.get(lambda value: () if value else ("part",))
    assert ".key-1.part" not in names(tmp_path), "nobody goes on with it any more"


USER = """
import sys
from pathlib import Path
from ilkd_bench.plumbing import shared
folder = Path(sys.argv[1])
with shared.kept_until_the_end():
    shared.obtain(folder, (folder / "content").read_text, lambda: None, waiting="")
    print("here", flush=True)
    input()
print("over", flush=True)
input()
"""


@contextmanager
def used_elsewhere(folder: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that uses a folder, until it is told to stop, and lives on."""
    process = subprocess.Popen(
        [sys.executable, "-c", USER, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "here\n"
        yield process
    finally:
        process.kill()
        process.communicate()


def test_what_another_process_uses_is_not_removed(
    stored: Stored, caplog: pytest.LogCaptureFixture
) -> None:
    stored.get()
    with used_elsewhere(stored.folder) as process:
        assert not shared.discard(stored.folder, "key-1")
        assert "key-1 is in use and stays" in caplog.text
        assert (stored.folder / "content").is_file()
        assert stored.get() == "whole", "readers do not keep each other out"
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write("\n")
        process.stdin.flush()
        assert process.stdout.readline() == "over\n"
        assert shared.discard(stored.folder, "key-1"), "it uses it no more"
    assert not stored.folder.exists()


def test_a_process_that_is_killed_uses_nothing(stored: Stored) -> None:
    stored.get()
    with used_elsewhere(stored.folder):
        pass
    assert shared.discard(stored.folder, "key-1")


def test_what_is_being_made_is_not_removed(stored: Stored) -> None:
    stored.get()
    with files.locked(stored.folder, ""):
        assert not shared.discard(stored.folder, "key-1")
    assert shared.discard(stored.folder, "key-1")
