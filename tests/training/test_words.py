"""A training touches the embeddings of its own words alone, and leaves all as if it had not."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import toys
from closeness import close
from test_loop import Finetune, Killed, Watched, train, weights_of

from ilkd_bench.training import loop
from ilkd_bench.types import Phase

PHASES = [Phase("first", 2, frozenset()), Phase("second", 2, frozenset(), lr=3e-3)]


def test_fit_learns_what_it_learns_with_the_whole_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fitted(name: str) -> dict[str, Any]:
        student = toys.model()
        train(student, Finetune(student.spec, student.spec), tmp_path / name, phases=PHASES)
        return weights_of(student)

    found = fitted("seen")
    monkeypatch.setattr(loop, "seen_words", lambda hf, words: nullcontext())
    for name, value in fitted("whole").items():
        close(found[name], value)


def test_a_model_that_does_not_name_its_padding_is_trained_all_the_same(tmp_path: Path) -> None:
    student = toys.model()
    student.hf.get_input_embeddings().padding_idx = None
    train(student, Finetune(student.spec, student.spec), tmp_path)


@pytest.mark.parametrize("snapshots", [False, True])
def test_a_checkpoint_of_another_version_is_not_gone_on_with(
    snapshots: bool, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    steps: list[int] = []

    def watch(s: Any, t: Any, clock: Any) -> None:
        steps.append(clock.epoch)
        if len(steps) == 5:
            raise Killed

    def once() -> None:
        kept = tmp_path / "snapshots" if snapshots else None
        only = [Phase("only", 3, frozenset())]
        train(toys.model(), Watched(watch), tmp_path, phases=only, snapshots=kept)

    with pytest.raises(Killed):
        once()
    path = tmp_path / "checkpoint/phase-1.ckpt"
    content = torch.load(path, weights_only=True)
    del content["format"]  # as earlier versions wrote them, with the moments of all words
    torch.save(content, path)
    once()
    assert steps[5:] == [0, 0, 0, 1, 1, 1, 2, 2, 2]
    assert "another version of ilkd_bench: the training starts again" in caplog.text
