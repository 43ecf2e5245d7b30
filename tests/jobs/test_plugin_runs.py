"""Runs of a method that lies outside the package, as a user starts them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import printed
import pytest
import toys

from ilkd_bench import run
from ilkd_bench.plumbing import processes
from ilkd_bench.settings.groups import PLUGINS, ROOT


def command(cwd: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    given = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST") and k != PLUGINS}
    return subprocess.run(
        [sys.executable, *words],
        cwd=cwd,
        env=given | {"PYTHONPATH": str(ROOT), "COLUMNS": "80"} | environment,
        capture_output=True,
        text=True,
        timeout=400,
    )


def gap(cwd: Path) -> dict[str, Any]:
    """The record of the only run of the printed method."""
    (path,) = cwd.glob("results/runs/*/*/gap/*/record.json")
    record: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return record


def sweep(cwd: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return command(cwd, "-m", "ilkd_bench.run", *toys.SMALL, *words, **environment)


@pytest.mark.runs
def test_a_method_of_the_folder_runs_repeats_and_is_tabled(tmp_path: Path) -> None:
    printed.plugins(tmp_path / "mine")
    done = sweep(tmp_path, "-m", "plugins=mine", "method=gap,far_pkd")
    assert done.returncode == 0, done.stderr
    record = gap(tmp_path)
    assert record["status"] == "done" and "plugins=mine" in record["argv"]
    again = command(tmp_path, "-m", "ilkd_bench.run", *record["argv"])
    assert again.returncode == 0 and "done before" in again.stderr
    listed = command(tmp_path, "-m", "ilkd_bench.runs", "--missing", *record["argv"])
    assert listed.stdout == "1 of 1 runs are done\n"
    tables = command(tmp_path, "-m", "ilkd_bench.tables", **{PLUGINS: "mine"})
    assert "| gap " in tables.stdout and "weights" not in tables.stdout
    analysed = command(tmp_path, "-m", "ilkd_bench.analyse", record["id"], **{PLUGINS: "mine"})
    assert analysed.stdout == "1 runs: 1 analysed\n", analysed.stderr


@pytest.mark.runs
def test_a_launcher_of_hydra_finds_the_folder(tmp_path: Path) -> None:
    printed.plugins(tmp_path / "mine")
    done = sweep(tmp_path, "-m", "plugins=mine", "method=gap", "hydra/launcher=joblib")
    assert done.returncode == 0, done.stderr
    assert gap(tmp_path)["status"] == "done"


@pytest.mark.runs
def test_the_contract_is_tested_as_the_page_says(tmp_path: Path) -> None:
    folder = printed.plugins(tmp_path / "mine")
    words = ("-m", "pytest", "-n", "0", "tests/methods/test_contract.py", "-k", "gap")
    done = command(ROOT, *words, **{PLUGINS: str(folder)})
    assert done.returncode == 0, done.stdout
    assert " passed" in done.stdout


@pytest.mark.runs
@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("raise RuntimeError('on purpose')\n", "RuntimeError: on purpose"),
        ("class Gap(:\n", "SyntaxError: "),
        ("import os\n", "AttributeError: module 'gap' has no attribute 'Gap'"),
        ("import os\nos._exit(3)\n", "the process ended with exit code 3"),
    ],
)
def test_python_that_cannot_be_imported_is_told_before_anything_runs(
    text: str,
    reason: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(processes, "PRELOAD", [])
    monkeypatch.setattr(sys, "argv", ["ilkd_bench.run"])
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setenv(PLUGINS, "")
    folder = printed.plugins(tmp_path / "mine")
    (folder / "gap.py").write_text(text, encoding="utf-8")
    words = toys.small(tmp_path, "-m", f"plugins={folder}", "method=vanilla,gap")
    assert run.main(words) == 2
    assert f"plugins={folder}: " in (told := capsys.readouterr().err) and reason in told
    assert not (tmp_path / "results" / "runs").exists()
