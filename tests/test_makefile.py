"""`make clean` and `make clean-results`, on a scratch folder that looks like a used checkout."""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
from pathlib import Path

import pytest

from ilkd_bench.settings.groups import ROOT

pytestmark = pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")

RUN = "results/runs/mrpc/big-small/pkd/s0-0123456789/record.json"
AGAIN = (
    *(".venv/bin/python", ".venv-peers/bin/python", ".venv-ray/bin/python"),
    *(".cache/teachers/t/model.safetensors", ".pytest_cache/x", ".ruff_cache/x", ".mypy_cache/x"),
    *("results/tables/summary.csv", "results/figures/f.svg", "results/report/index.html"),
    *("ilkd_bench.egg-info/x", "ilkd_bench/data/__pycache__/tasks.pyc"),
)
STAYS = (RUN, "results/sweeps/s/0.log", "results/reference.csv", "ilkd_bench/run.py", "conf/x.yaml")


@pytest.fixture
def used(tmp_path: Path) -> Path:
    """A checkout after a sweep, in a folder whose parent has results of its own."""
    for name in ("tests", "benchmarks"):
        (tmp_path / name).mkdir()
    for name in (*AGAIN, *STAYS):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x")
    shutil.copy(ROOT / "Makefile", tmp_path)
    return tmp_path


def make(folder: Path, *words: str, typed: str | None = None) -> tuple[int, str]:
    """Run make; `typed` is what a user answers at a terminal, None: there is none."""
    terminal, stdin = pty.openpty() if typed is not None else (None, subprocess.DEVNULL)
    if typed is not None:
        os.write(terminal, typed.encode())
    try:
        done = subprocess.run(
            ["make", *words],
            cwd=folder,
            stdin=stdin,
            env={k: v for k, v in os.environ.items() if not k.startswith("MAKE")},
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
    finally:
        if terminal is not None:
            os.close(terminal)
            os.close(stdin)
    return done.returncode, done.stdout + done.stderr


def there(folder: Path) -> set[str]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix() for path in files} - {"Makefile"}


def test_clean_removes_what_can_be_made_again_and_no_run(used: Path) -> None:
    assert make(used, "clean")[0] == 0
    assert there(used) == set(STAYS)


@pytest.mark.parametrize("typed", ["no\n", "\n", "y\n", "\x04"], ids=["no", "enter", "y", "end"])
def test_runs_are_kept_when_the_answer_is_not_yes(used: Path, typed: str) -> None:
    code, out = make(used, "clean-results", typed=typed)
    assert code != 0 and "with 1 runs?" in out and "results/runs is kept" in out
    assert there(used) == {*AGAIN, *STAYS}


def test_runs_are_kept_where_nobody_can_be_asked(used: Path) -> None:
    code, out = make(used, "clean-results")
    assert code != 0 and "YES=1 removes it" in out
    assert there(used) == {*AGAIN, *STAYS}


@pytest.mark.parametrize(("words", "typed"), [([], "yes\n"), (["YES=1"], None)], ids=["yes", "YES"])
def test_runs_and_their_logs_go_when_it_is(used: Path, words: list[str], typed: str | None) -> None:
    code, out = make(used, "clean-results", *words, typed=typed)
    assert code == 0 and "removed 1 runs" in out
    gone = {RUN, "results/sweeps/s/0.log"}
    assert there(used) == {*AGAIN, *STAYS} - gone
