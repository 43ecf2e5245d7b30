"""What every test gets: no network, one thread, this package, and expensive things made once."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["OMP_NUM_THREADS"] = "1"

import pytest
import torch
from filelock import FileLock

from ilkd_bench.plumbing import cores

torch.set_num_threads(1)
# Commands in processes of their own are those of this checkout, whatever is installed.
HERE = str(Path(__file__).parent.parent)
os.environ["PYTHONPATH"] = os.pathsep.join([HERE, *filter(None, [os.environ.get("PYTHONPATH")])])

COSTS = ("runs", "sweep", "kills", "browser", "slurm", "ray", "onnx")
"""Markers of what takes long; pyproject.toml says what each is."""


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what takes long as `long`, before `-m` looks at it."""
    for item in items:
        if any(item.get_closest_marker(cost) for cost in COSTS):
            item.add_marker("long")


@pytest.fixture(scope="session")
def once(
    tmp_path_factory: pytest.TempPathFactory, worker_id: str
) -> Callable[[str, Callable[[Path], Any]], tuple[Path, Any]]:
    """``once(name, make)``: the folder that ``make(folder)`` filled and what it returned (JSON).

    It is made by the first test of any xdist worker that asks; the others wait. Tests must not
    write into the folder: they copy it.
    """
    base = tmp_path_factory.getbasetemp()
    root = (base if worker_id == "master" else base.parent) / "shared"
    root.mkdir(exist_ok=True)

    def get(name: str, make: Callable[[Path], Any]) -> tuple[Path, Any]:
        folder, result = root / name, root / f"{name}.json"
        with FileLock(root / f"{name}.lock"):
            if not result.exists():
                folder.mkdir()
                result.write_text(json.dumps(make(folder)), encoding="utf-8")
        return folder, json.loads(result.read_text(encoding="utf-8"))

    return get


@pytest.fixture(autouse=True)
def one_core(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have sweeps of this process go on one run at a time, as they are watched."""
    monkeypatch.setattr(cores, "cores", lambda: 1)


@pytest.fixture
def logging_as_it_was() -> Iterator[None]:
    """`run` sets the handlers of the process; give them back."""
    loggers = [logging.getLogger(), logging.getLogger("ilkd_bench")]
    before = [(logger, logger.handlers, logger.level) for logger in loggers]
    yield
    for logger, handlers, level in before:
        logger.handlers = handlers
        logger.setLevel(level)
    logging.captureWarnings(False)
