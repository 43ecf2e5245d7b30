"""Whole runs measure the same whether the teacher is run at every step or was banked before."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import toys
from closeness import EPS
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from ilkd_bench.jobs import plan
from ilkd_bench.methods.alp import ALP
from ilkd_bench.training import train
from ilkd_bench.types import BadInput

pytestmark = pytest.mark.runs

VARIED = ("teacher.initializer_range=0.4", "teacher.residual_scale=1", "student.width=32")
"""A teacher whose rows differ much after little training, so that a wrong row would show."""
FEATURES, TOKENS = ("rail_l", "pkd", "alp"), ("minilm", "distilbert", "tinybert")
"""Methods whose banks have more than logits: a few vectors per row, or vectors of every token."""
FITTING = {"distilbert": ("student.width=64",), "tinybert": ("teacher.layers=4",)}
"""What a method cannot do without: equal widths; layers that can be mapped."""
HALF = 2.0**-11
"""The largest relative error of rounding a feature to float16. A loss term is a mean over many
rows and features, whose errors cancel, so it moves by less than one of them does."""
LR, STEPS = 1e-3, 6
"""What the runs are trained with: 3 epochs of 64 rows in batches of 32."""
DRIFT = (2 * LR * STEPS) ** 2
"""What rounding can make of a loss in training. AdamW moves a parameter by the sign of its
gradient, by `LR` at most; where the gradient is all rounding, two trainings may move it apart by
twice that. Such a parameter changes the loss in the second order only."""
KD = 100 * 8 * EPS
"""At a temperature of 10, `kd` is 100 times a difference of sums of order one."""


class Run:
    """A finished run: its record, history and weights."""

    def __init__(self, folder: Path, name: str, *words: str) -> None:
        (job,) = plan.plan(
            toys.small(folder, "limit_eval=32", *VARIED, f"results_dir={folder / name}", *words)
        )
        job.folder.mkdir(parents=True)
        self.folder, self.lr = job.folder, job.run.lr
        self.record = train.train(job.run, job.folder).model_dump()
        self.history = pd.read_csv(job.folder / "history.csv").drop(columns="seconds")
        self.weights = load_file(job.folder / "student/model.safetensors")

    @property
    def losses(self) -> np.ndarray:
        """Every loss term of every epoch; nan where a phase does not have it."""
        return self.history.filter(like="loss/").to_numpy()

    @property
    def outputs(self) -> str:
        return self.record["teacher"]["outputs"]


def banks_in(folder: Path) -> dict[str, int]:
    """The arrays of all banks and when they were written."""
    return {str(p): p.stat().st_mtime_ns for p in (folder / "cache/banks").rglob("*.npy")}


def agree_on_rows(run: Run, live: Run) -> None:
    """Compare what the students answer, and the scores but for rows that are almost undecided."""
    if run.record["best_epoch"] != live.record["best_epoch"]:
        dev = live.history["dev/accuracy"]
        one, other = (dev[r.record["best_epoch"] - 1] for r in (run, live))
        assert abs(one - other) <= 1.5 / 32, "a row decides which epoch is the best"
        return
    for split in live.record["scores"]:
        a, b = (
            pd.read_parquet(r.folder / f"predictions/{split}.parquet").filter(like="logit_")
            for r in (run, live)
        )
        limit = LR * STEPS * max(1.0, float(b.abs().to_numpy().max()))
        np.testing.assert_allclose(a, b, rtol=0, atol=limit, err_msg=split)
        near = int((np.abs(np.diff(b, axis=1)) <= 2 * limit).sum())
        scores = [r.record["scores"][split]["accuracy"] * len(b) for r in (run, live)]
        assert abs(scores[0] - scores[1]) <= near + 0.5


@pytest.mark.parametrize("method", [*FEATURES, *TOKENS, "vanilla", "pro_kd"])
def test_a_run_from_the_bank_measures_what_a_live_one_does(method: str, tmp_path: Path) -> None:
    words = (f"method={method}", "epochs=3", *FITTING.get(method, ()))
    live = Run(tmp_path, "live", *words, "bank=off")
    assert live.outputs == "live" and not (tmp_path / "cache/banks").exists()
    fine = Run(tmp_path, "fine", *words, "bank=on", "bank_dtype=float32")
    coarse = Run(tmp_path, "coarse", *words)
    kept = "float16" if method in (*FEATURES, *TOKENS) else "float32"  # logits stay float32
    assert (fine.outputs, coarse.outputs) == ("bank, float32", f"bank, {kept}")
    assert (np.isfinite(live.losses).sum(axis=1) > 1).all()
    assert live.lr == LR and live.history["rows"].tolist() == [64] * 3
    for run, rtol in ((fine, DRIFT), (coarse, DRIFT + HALF)):
        np.testing.assert_allclose(run.losses, live.losses, rtol=rtol, atol=KD)
        assert list(run.history) == list(live.history) and len(run.history) == 3
        agree_on_rows(run, live)
        assert run.record["teacher"]["dev"] == live.record["teacher"]["dev"], "measured once"


@pytest.mark.parametrize("method", ["rail_l", "pkd", "pro_kd", "distilbert"])  # mean, cls, ...
def test_a_run_from_the_bank_is_the_same_to_the_last_bit_where_batches_are(
    method: str, tmp_path: Path
) -> None:
    """One row at a time in both: the same arithmetic, with no padding and equal shapes."""
    one = ("batch_size=1", "trainer.eval_batch_size=1", "limit_train=12", "limit_eval=8")
    words = (f"method={method}", "epochs=2", "teacher.recipe.batch_size=4", *one)
    words += FITTING.get(method, ())
    live, bank = (
        Run(tmp_path, f"bank_{mode}", *words, f"bank={mode}", "bank_dtype=float32")
        for mode in ("off", "on")
    )
    assert bank.outputs == "bank, float32" and np.nanmax(live.losses) > 1e-3
    pd.testing.assert_frame_equal(bank.history, live.history, check_exact=True)
    assert set(bank.weights) == set(live.weights)
    assert all(torch.equal(bank.weights[name], live.weights[name]) for name in live.weights)
    assert bank.record["scores"] == live.record["scores"]
    assert bank.record["best_epoch"] == live.record["best_epoch"]


def test_other_seeds_rates_batches_and_methods_use_the_same_bank(tmp_path: Path) -> None:
    Run(tmp_path, "first", "method=rail_l")
    before = banks_in(tmp_path)
    assert {Path(path).stem for path in before} == {"logits", "cls", "mean"}
    for number, words in enumerate(
        [
            ("method=pkd", "seed=1", "lr=0.01", "batch_size=8", "epochs=2"),
            ("method=vanilla", "bank=on", "trainer.eval_batch_size=5", "student.layers=3"),
        ]
    ):
        Run(tmp_path, str(number), *words)
    assert banks_in(tmp_path) == before


def test_a_build_is_announced_with_rows_size_and_space(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "ilkd_bench"):
        Run(tmp_path, "first", "method=pkd")
    said = [r.getMessage() for r in caplog.records if "building the bank" in r.getMessage()]
    size = 64 * (2 * 4 + 2 * 4 * 64 * 2)  # two arrays of 4 layers of width 64 in float16
    assert [line.split(": ")[0] for line in said] == [
        f"building the bank of tiny12 on {split}" for split in ("dev", "train")
    ]
    assert f"64 rows, {size / 1000:.1f} kB on disk" in said[1] and "free" in said[1]


# ------------------------------------------------------------------------------------- bank=MODE


def test_a_method_that_needs_attention_maps_runs_live_or_says_why_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ALP, "needs", frozenset({"logits", "cls", "attention"}))
    assert Run(tmp_path, "auto", "method=alp").outputs == "live"
    assert all(path.endswith("logits.npy") for path in banks_in(tmp_path)), "no features"
    with pytest.raises(BadInput) as error:
        Run(tmp_path, "on", "method=alp", "bank=on")
    message = str(error.value)
    kept = "banks hold cls, hidden, keys, logits, mean, queries, values"
    for part in ("bank=on", "method=alp needs attention, cls", kept, "bank=auto"):
        assert part in message
    assert not list((tmp_path / "on").rglob("history.csv"))


def test_the_bank_is_no_part_of_a_run_s_identity(tmp_path: Path) -> None:
    ways = [["bank=off"], ["bank=on"], ["bank_dtype=float32", "compile=true"], ["seed=1"]]
    *same, other = (plan.plan(toys.small(tmp_path, *words))[0].id for words in ways)
    assert len(set(same)) == 1 and other not in same


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        ("bank=maybe", "one of auto, on, off"),
        ("bank_dtype=bfloat16", "one of float16, float32"),
        ("compile=1", "true or false"),
    ],
)
def test_a_mode_that_does_not_exist_is_refused(words: str, allowed: str, tmp_path: Path) -> None:
    with pytest.raises(BadInput) as error:
        plan.plan(toys.small(tmp_path, words))
    assert words in str(error.value) and allowed in str(error.value)


# --------------------------------------------------------------------------------------- compile


def test_a_compiled_student_is_saved_and_scored_like_any_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Traced and run as traced; to have C++ made of it takes over a minute."""
    trained: list[bool] = []
    compiled = torch.compile

    def backend(graph: Any, inputs: Any) -> Any:
        trained.append(torch.is_grad_enabled())
        return graph.forward

    words = ("method=vanilla", "student.layers=1", "limit_train=40", "batch_size=8")
    plain = Run(tmp_path, "plain", *words)
    monkeypatch.setattr(torch, "compile", lambda *a, **how: compiled(*a, **how, backend=backend))
    other = Run(tmp_path, "compiled", *words, "compile=true")
    assert 1 <= sum(trained) <= 2, "once, and not anew for every length"
    assert {n: v.shape for n, v in other.weights.items()} == {
        n: v.shape for n, v in plain.weights.items()
    }
    AutoModelForSequenceClassification.from_pretrained(other.folder / "student")
    np.testing.assert_allclose(other.losses, plain.losses, rtol=DRIFT, atol=KD)
    agree_on_rows(other, plain)
