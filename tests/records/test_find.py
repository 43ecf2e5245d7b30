"""A run by its folder, its id, or the beginning of its id."""

from __future__ import annotations

from pathlib import Path

import pytest

from ilkd_bench.records.find import find
from ilkd_bench.types import BadInput


def stored(root: Path, *ids: str) -> list[Path]:
    folders = [root / "runs" / "task" / "a-b" / "method" / f"s0-{id}" for id in ids]
    for folder in folders:
        folder.mkdir(parents=True)
        (folder / "record.json").write_text("{}")
    return folders


def test_a_run_is_found_by_its_id_the_beginning_of_it_or_its_folder(tmp_path: Path) -> None:
    first, second = stored(tmp_path, "abc1", "abd2")
    for typed in ("abc", "abc1", str(first)):
        assert find(typed, tmp_path) == first
    assert find("ab", tmp_path, [second]) == second, "among those that are given"
    assert find(str(first), tmp_path, [second]) == first


def test_nothing_and_several_are_refused(tmp_path: Path) -> None:
    stored(tmp_path, *(f"abc{n:02d}" for n in range(12)))
    for typed in ("", "bc", "s0", "abc000"):
        with pytest.raises(BadInput, match=f"begins with {typed!r}"):
            find(typed, tmp_path)
    with pytest.raises(BadInput, match=r"'abc' begins 12 ids: .*abc09, 2 more\. Type more of it"):
        find("abc", tmp_path)
    with pytest.raises(BadInput, match="begins with 'abc'"):
        find("abc", tmp_path / "elsewhere")
