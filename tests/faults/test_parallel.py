"""Several runs at once leave what one at a time leaves."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import toys
from driving import REAL, Stage, differences, held, litter, record

from ilkd_bench.jobs import plan
from ilkd_bench.plumbing import cores
from ilkd_bench.training import train

pytestmark = pytest.mark.runs


def by_name(root: Path) -> dict[str, Path]:
    """Folders of runs, by method and by what their own folder is called."""
    found = (path.parent for path in (root / "results/runs").rglob("record.json"))
    return {f"{folder.parent.name}/{folder.name}": folder for folder in found}


def test_records_are_the_same_to_the_last_bit(tmp_path: Path) -> None:
    """Of a grid that is selected from, with the best students kept, whatever threads there are.

    Each run of such a small pair has one thread.
    """
    words = toys.last(*REAL, "cache_dir=cache", "keep_student=best", "method=vanilla,pkd")
    words += ["protocol=select_then_repeat", "lr=1e-3,3e-3", "seed=0,1,2"]
    roots = []
    for parallel in (1, 2, 3):
        stage = Stage(tmp_path / str(parallel))
        roots.append(stage.root)
        said = stage.run("-m", *words, f"parallel={parallel}", OMP_NUM_THREADS=str(parallel))
        assert said["code"] == 0, said
        assert "8 runs: 8 done" in said["out"]
        assert ("at once" in said["err"]) == (parallel > 1)
        assert len([w for w in stage.log("fit") if w[2] == "teacher"]) == 1
        stage.nobody_left()
        assert litter(stage.root) == [] and held(stage.root) == []
    one, *others = map(by_name, roots)
    assert len(one) == 8
    for other in others:
        assert other.keys() == one.keys()
        assert [d for name in one for d in differences(other[name], one[name])] == []
    kept = [folder for folder in one.values() if (folder / "student").is_dir()]
    assert len(kept) == 2, "the best of each method"
    assert {record(folder)["device"].rpartition(", ")[2] for folder in kept} == {"1 threads"}


def test_larger_models_have_their_share_and_come_out_close(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The share is what changes: two threads add up in another order than one."""
    monkeypatch.setattr(cores, "SMALL", 0)
    monkeypatch.setattr(cores, "cores", lambda: 2)
    monkeypatch.setattr(cores, "_usual", lambda: 2)
    (job,) = plan.plan(toys.small(tmp_path, "method=pkd", "epochs=2"))
    found: list[tuple[Any, pd.DataFrame]] = []
    for at_once in (1, 2):
        monkeypatch.setattr(cores, "at_once", at_once)
        folder = tmp_path / str(at_once)
        folder.mkdir()
        measured = train.train(job.run, folder)
        assert measured.device.endswith(f"{3 - at_once} threads")
        found.append((measured, pd.read_csv(folder / "history.csv")))
    (one, first), (other, second) = found
    losses = [column for column in first if column.startswith("loss/")]
    np.testing.assert_allclose(first[losses], second[losses], rtol=1e-4)
    for split, scores in one.scores.items():
        gap = abs(scores["accuracy"] - other.scores[split]["accuracy"])
        assert gap <= 1.5 / scores["n"], "at most one row is answered otherwise"
