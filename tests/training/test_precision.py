"""In bf16-mixed the student's training steps are in 16 bit, and nothing else is."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
import toys
from safetensors.torch import load_file
from torch import nn

from ilkd_bench.jobs import plan
from ilkd_bench.methods.base import Method
from ilkd_bench.models.model import Model
from ilkd_bench.plumbing import hardware
from ilkd_bench.teachers.live import LiveTeacher
from ilkd_bench.training import loop, train
from ilkd_bench.training.evaluation import predict
from ilkd_bench.training.inputs import fit_settings, recipe_settings

HALF, FULL = torch.bfloat16, torch.float32
PATIENCE = 1800
"""Seconds; it takes two minutes on an idle core."""


class Dtypes:
    """The dtypes in which a model multiplies matrices, by whether it is in training mode."""

    def __init__(self, model: Model) -> None:
        self.seen: dict[bool, set[torch.dtype]] = {}
        for layer in model.modules():
            if isinstance(layer, nn.Linear):
                layer.register_forward_hook(self._note)

    def _note(self, layer: nn.Module, inputs: Any, output: torch.Tensor) -> None:
        self.seen.setdefault(layer.training, set()).add(output.dtype)


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("name", ["rail_l", "minilm"])
def test_only_the_steps_of_the_student_are_in_16_bit(
    name: str, precision: str, tmp_path: Path
) -> None:
    """Also of the methods that run the teacher at every step; and dev is scored as at the end."""
    student, model = toys.model(layers=2), toys.model(layers=3, seed=1)
    method: Method = toys.method(name, student.spec, model.spec)
    data = toys.splits()
    method.prepare(data["train"].labels, data["train"].index)
    dtypes, of_teacher = Dtypes(student), Dtypes(model)
    losses, answers = set(), []
    terms = method.loss

    def loss(*arguments: Any) -> Any:
        computed = terms(*arguments)
        losses.update(value.dtype for value in computed.values())
        return computed

    method.loss = loss  # type: ignore[method-assign]

    def score(logits: torch.Tensor, labels: torch.Tensor) -> dict[str, float]:
        answers.append(logits)
        return {"made": float(len(answers))}  # the last epoch is the best

    settings = toys.fit_settings(precision=precision)
    loop.fit(
        student,
        method,
        toys.method_settings(name)["weights"],
        LiveTeacher(model),
        data,
        phases=method.phases(2),
        settings=settings,
        score=score,
        monitor="made",
        folder=tmp_path,
        title="test",
    )
    assert dtypes.seen == {True: {HALF if precision == "bf16-mixed" else FULL}, False: {FULL}}
    assert of_teacher.seen == {False: {FULL}}
    assert losses == {FULL}
    assert all(p.dtype == FULL for p in (*student.parameters(), *method.parameters()))
    student.eval()
    again = predict(
        lambda batch: student.outputs(batch["student"], frozenset()),
        data["dev"],
        settings.eval_batch_size,
        torch.device("cpu"),
    )
    last = answers[-1]  # in the order of the batches, which go by length
    torch.testing.assert_close(last.sort(0).values, again.sort(0).values, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("typed", "taught"),
    [("32-true", "32-true"), ("bf16-mixed", "32-true"), ("16-mixed", "16-mixed")],
)
def test_teachers_and_assistants_are_trained_in_32_bit_for_bfloat16(
    typed: str, taught: str
) -> None:
    run = toys.run(f"precision={typed}")
    assert fit_settings(run).precision == typed
    assert recipe_settings(run).precision == taught


def done(folder: Path, name: str, *words: str) -> dict[str, Any]:
    """The record of a finished run."""
    where = f"results_dir={folder / name}"
    (job,) = plan.plan(toys.small(folder, "method=vanilla", where, *words))
    job.folder.mkdir(parents=True)
    measured = train.train(job.run, job.folder)
    return job.record_with(**measured.model_dump(), status="done").content()


@pytest.mark.runs
def test_both_precisions_share_a_teacher_and_say_which_they_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The teacher of a run in 16 bit is, bit by bit, the one of a run in 32 bit."""
    monkeypatch.setattr(hardware, "fast_bfloat16", lambda: False)
    monkeypatch.setattr(hardware, "bfloat16_cost", lambda: 4.0)
    half, full = tmp_path / "half", tmp_path / "full"
    first = done(half, "16", "precision=bf16-mixed")
    path = half / "cache/teachers" / first["teacher"]["key"] / "model.safetensors"
    made = path.stat().st_mtime_ns
    second = done(half, "32", "precision=32-true")
    alone = done(full, "32", "precision=32-true")
    assert first["teacher"]["key"] == second["teacher"]["key"] == alone["teacher"]["key"]
    assert path.stat().st_mtime_ns == made, "the teacher was made again"
    assert len(list((half / "cache/teachers").glob("*/model.safetensors"))) == 1
    one, other = (load_file(root / path.relative_to(half)) for root in (half, full))
    assert all(torch.equal(one[name], other[name]) for name in one)
    assert first["teacher"]["dev"] == second["teacher"]["dev"] == alone["teacher"]["dev"]
    for record, precision in ((first, "bf16-mixed"), (second, "32-true")):
        assert record["precision"] == record["config"]["precision"] == precision
    assert first["id"] != second["id"] == alone["id"]
    assert caplog.text.count("4.0 times as long in bfloat16") == 1  # of the one run in it


@pytest.mark.sweep
def test_both_precisions_score_alike(tmp_path: Path) -> None:
    """On the demo pair as it is, five seeds: each mean lies among the other precision's seeds."""
    words = ["-m", "method=rail_l", "precision=32-true,bf16-mixed", "seed=0,1,2,3,4"]
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    ended = subprocess.run(
        [sys.executable, "-m", "ilkd_bench.run", *words, "keep_student=none"],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    records = list(toys.records(tmp_path / "results"))
    assert len(records) == 10 and len({r["teacher"]["key"] for r in records}) == 1
    for split in ("dev", "test"):
        full, half = (
            [r["scores"][split]["accuracy"] for r in records if r["precision"] == precision]
            for precision in ("32-true", "bf16-mixed")
        )
        assert len(full) == len(half) == 5
        for ours, theirs in ((full, half), (half, full)):
            assert min(theirs) <= sum(ours) / 5 <= max(theirs), (split, full, half)
