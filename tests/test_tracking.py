"""Mirrors of a run: off by default, finished always, and no network is one warning."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import toys

from ilkd_bench.tracking import tracker


class FakeWandb:
    """What `tracker` uses of wandb; `online` cannot be reached."""

    class errors:
        Error = ConnectionError

    def __init__(self) -> None:
        self.modes: list[str] = []
        self.finished = 0

    def Settings(self, **given: Any) -> Any:
        return SimpleNamespace(**given)

    def init(self, *, mode: str, **given: Any) -> Any:
        self.modes.append(mode)
        if mode == "online":
            raise ConnectionError("no route to host")
        return SimpleNamespace(given=given)

    def finish(self) -> None:
        self.finished += 1


@pytest.fixture
def wandb(monkeypatch: pytest.MonkeyPatch) -> FakeWandb:
    fake = FakeWandb()
    monkeypatch.setitem(sys.modules, "wandb", fake)
    loggers = SimpleNamespace(WandbLogger=lambda experiment: ("logger", experiment))
    monkeypatch.setitem(sys.modules, "pytorch_lightning.loggers", loggers)
    return fake


def test_without_a_choice_there_is_no_logger(tmp_path: Path, wandb: FakeWandb) -> None:
    with tracker(toys.config(), tmp_path) as logger:
        assert logger is False
    assert wandb.modes == [] and wandb.finished == 0


def test_every_run_is_its_own_and_is_finished_also_after_an_error(
    tmp_path: Path, wandb: FakeWandb
) -> None:
    config = toys.config("logger=wandb")
    with (
        pytest.raises(ZeroDivisionError),
        tracker(config, tmp_path / "s0-abc") as (name, run),
    ):
        assert name == "logger"
        assert run.given["name"] == "s0-abc" and run.given["dir"] == str(tmp_path / "s0-abc")
        raise ZeroDivisionError
    assert wandb.modes == ["offline"] and wandb.finished == 1


def test_without_a_network_the_run_goes_on_offline_with_one_warning(
    tmp_path: Path, wandb: FakeWandb, caplog: pytest.LogCaptureFixture
) -> None:
    config = toys.config("logger=wandb", "logger.mode=online")
    with caplog.at_level(logging.WARNING), tracker(config, tmp_path) as logger:
        assert logger is not False
    assert wandb.modes == ["online", "offline"] and wandb.finished == 1
    (warning,) = caplog.records
    assert "no route to host" in warning.getMessage() and "offline" in warning.getMessage()
