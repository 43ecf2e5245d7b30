"""A general stage that is broken off, damaged, or no good: whole, or not used."""

from __future__ import annotations

import errno
import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import toys
from general_stage import STAGE, folder_of, started

from ilkd_bench import general as verb
from ilkd_bench.plumbing import terminal
from ilkd_bench.plumbing.full_disk import NoSpace
from ilkd_bench.training import general
from ilkd_bench.training.module import DistillModule
from ilkd_bench.types import BadInput


def test_a_stage_that_was_broken_off_goes_on_and_ends_bit_equal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, whole = started(tmp_path / "whole")
    steps: list[int] = []
    real = general.fit

    def stopped(*args: Any, **more: Any) -> Any:
        step = DistillModule.training_step

        def training_step(self: Any, batch: Any, number: int) -> Any:
            steps.append(self.global_step)
            if len(steps) == 9:
                raise KeyboardInterrupt
            return step(self, batch, number)

        with monkeypatch.context() as patch:
            patch.setattr(DistillModule, "training_step", training_step)
            return real(*args, **more)

    monkeypatch.setattr(general, "fit", stopped)
    with pytest.raises(KeyboardInterrupt):
        started(tmp_path / "stopped")
    _, facts = started(tmp_path / "stopped")
    assert steps == [*range(9), *range(6, 12)], "from the end of the first stretch"
    assert {k: v for k, v in facts.items() if k != "seconds"} == {
        k: v for k, v in whole.items() if k != "seconds"
    }
    one, other = (folder_of(tmp_path / name) / "model.safetensors" for name in ("whole", "stopped"))
    assert one.read_bytes() == other.read_bytes()


@pytest.mark.runs
def test_the_verb_goes_on_and_tells_what_there_is(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = DistillModule.training_step

    def stopped(self: Any, batch: Any, number: int) -> Any:
        if self.global_step == 9:
            raise KeyboardInterrupt
        return real(self, batch, number)

    with monkeypatch.context() as patch:
        patch.setattr(DistillModule, "training_step", stopped)
        with pytest.raises(KeyboardInterrupt):
            started(tmp_path)
    words = toys.small(tmp_path, *STAGE)
    assert verb.main(words) == 0
    said = capfd.readouterr()
    assert "general stage of tiny6_general: goes on after step 6 of 12\n" in said.err
    told = dict(re.split(" {2,}", line, maxsplit=1) for line in said.out.splitlines())
    assert told["folder"] == str(folder_of(tmp_path))
    assert float(told["loss after"]) < float(told["loss before"])
    assert told["steps"] == "12" and told["held out"] == "20"
    assert verb.main(words) == 0
    again = capfd.readouterr()
    assert again.out == said.out and again.err == "", "it is there"


def test_a_damaged_stage_is_made_again(tmp_path: Path) -> None:
    started(tmp_path)
    path = folder_of(tmp_path) / "model.safetensors"
    good = path.read_bytes()
    path.write_bytes(good[:-4] + bytes(4))
    started(tmp_path)
    assert path.read_bytes() == good


def test_a_stage_that_ends_no_closer_is_kept_for_a_look_and_not_used(tmp_path: Path) -> None:
    words = ("student.general.lr=10", "student.general.warmup_ratio=0", "student.general.every=2")
    with pytest.raises(BadInput, match="ended no closer to its teacher than it began"):
        started(tmp_path, *words, "student.general.limit_steps=4")
    facts = json.loads((folder_of(tmp_path) / "teacher.json").read_text())
    assert facts["ended"] >= facts["began"] and len(facts["history"]) == 2
    assert (folder_of(tmp_path) / "model.safetensors").exists()


def test_a_stage_whose_loss_is_not_finite_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FloatingPointError, match=r"try a lower student\.general\.lr="):
        started(tmp_path, "student.general.lr=1e12")
    assert [p for p in (tmp_path / "cache/teachers").iterdir() if p.suffix != ".lock"] == []


def test_a_checkpoint_that_does_not_fit_on_the_disk_is_told_and_no_half_stage_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, written = torch.save, []

    def save(content: Any, file: Any) -> None:
        written.append(1)
        if len(written) == 3:  # of the second stretch
            file.write(b"a part")
            raise OSError(errno.ENOSPC, "No space left on device")
        real(content, file)

    with monkeypatch.context() as patch:
        patch.setattr(torch, "save", save)
        expected = r"no space left on the disk of .*/cache/teachers.*\(cache_dir=DIR\), then type"
        with pytest.raises(NoSpace, match=expected):
            started(tmp_path)
    left = [path.name for path in (tmp_path / "cache/teachers").iterdir()]
    assert [name for name in left if not name.endswith(".lock")] == []
    _, facts = started(tmp_path)
    assert facts["steps"] == 12


def test_a_log_has_a_line_now_and_then(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(terminal, "NOW_AND_THEN", 0)
    with caplog.at_level(logging.INFO):
        started(tmp_path)
    (texts,) = re.findall(r"saw \d+ rows of (\d+) texts", caplog.text)
    assert f"reading the corpus: {int(texts):,}" in caplog.messages
    told = [line for line in caplog.messages if line.startswith("general stage of tiny6_general:")]
    assert told[0] == "general stage of tiny6_general: 0 of 12"
    assert re.fullmatch(r".*: 12 of 12, about 0 s left, look 2/2, loss [\d.]+", told[-1])
