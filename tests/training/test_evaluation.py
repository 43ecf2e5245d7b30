"""Scores of every split, predictions in row order, and the student's files."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import toys
from closeness import close, decided
from safetensors.torch import load_file

from ilkd_bench.data.batches import Split
from ilkd_bench.data.tasks import Task
from ilkd_bench.training import evaluation

CPU = torch.device("cpu")


def task(**changes: Any) -> Task:
    labels = ["entailment", "neutral", "contradiction"]
    plain = Task("t", ["a"], "label", labels, None, "accuracy", [], {}, [], None, {})
    return replace(plain, **changes)


def test_every_split_but_train_is_scored_and_its_predictions_are_in_row_order(
    tmp_path: Path,
) -> None:
    model = toys.model(classes=3)
    parts = {
        name: toys.split(7 + n, classes=3, seed=n)
        for n, name in enumerate(("train", "dev", "test"))
    }
    parts["dev"] = Split(
        parts["dev"].labels,
        torch.arange(8) + 40,  # a limited split keeps the source's row numbers
        parts["dev"].student,
        parts["dev"].teacher,
    )
    scores = evaluation.evaluate(
        model.train(), task(also=["mcc"]), parts, folder=tmp_path, device=CPU, batch_size=3
    )
    assert set(scores) == {"dev", "test"}
    assert not (tmp_path / "predictions/train.parquet").exists()
    for name in ("dev", "test"):
        frame = pd.read_parquet(tmp_path / f"predictions/{name}.parquet")
        split = parts[name]
        assert frame["index"].tolist() == split.index.tolist()
        assert frame["label"].tolist() == split.labels.tolist()
        with torch.no_grad():
            rows = split.student.batch(np.arange(len(split)))
            expected = model.eval().outputs(rows, frozenset()).logits
        found = frame[["logit_0", "logit_1", "logit_2"]].to_numpy()
        close(found, expected)
        right = (found.argmax(1) == frame["label"]).mean()
        assert scores[name]["accuracy"] == pytest.approx(right)
        assert scores[name]["n"] == len(split)
        assert set(scores[name]) == {"accuracy", "mcc", "n"}


@pytest.mark.parametrize("rule", ["argmax", "sum"])
def test_a_set_with_fewer_labels_is_scored_by_the_rule_of_the_task(
    rule: str, tmp_path: Path
) -> None:
    model = toys.model(classes=3, seed=5)
    other = {
        "name": "scitail",
        "text_columns": ["a"],
        "label_column": "label",
        "labels": ["entails", "neutral"],
        "score_range": None,
        "metric": "accuracy",
        "also": [],
        "splits": {"test": "test"},
        "hidden": [],
        "hub": None,
        "ood": {},
        "collapse": rule,
        "label_map": {"entailment": "entails", "neutral": "neutral", "contradiction": "neutral"},
    }
    split = toys.split(40, classes=2, seed=3)
    with torch.no_grad():
        model.hf.classifier.weight *= 0.1  # unsure, and a little in favour of entailment
        model.hf.classifier.bias.copy_(torch.tensor([0.3, 0.0, 0.0]))
        logits = model.outputs(split.student.batch(np.arange(40)), frozenset()).logits
    p = torch.softmax(logits.double(), -1)
    if rule == "argmax":
        answers = (p.argmax(-1) != 0).long()
    else:
        answers = (p[:, 1] + p[:, 2] > p[:, 0]).long()
    differ = (p.argmax(-1) != 0) != (p[:, 1] + p[:, 2] > p[:, 0])
    assert differ.any(), "the rules must differ here"
    decided(p)  # with other batches, too
    decided(torch.stack([p[:, 0], p[:, 1] + p[:, 2]], dim=1))
    scores = evaluation.evaluate(
        model,
        task(ood={"scitail": other}),
        {"ood/scitail": split},
        folder=tmp_path,
        device=CPU,
        batch_size=8,
    )
    expected = (answers == split.labels).double().mean().item()
    assert scores == {"ood/scitail": {"accuracy": pytest.approx(expected), "n": 40}}
    assert (tmp_path / "predictions/ood/scitail.parquet").exists()


def test_the_student_is_saved_with_its_labels(tmp_path: Path) -> None:
    model = toys.model(labels=["no", "yes"])
    method = toys.method("rail_l", toys.spec(2), toys.spec(4))
    evaluation.save_student(tmp_path, model, method)
    saved = json.loads((tmp_path / "student/config.json").read_text())
    assert saved["id2label"] == {"0": "no", "1": "yes"}
    stored = load_file(tmp_path / "method.safetensors")
    assert stored.keys() == method.state_dict().keys()
    for name, value in method.state_dict().items():
        assert torch.equal(stored[name], value)


@pytest.mark.parametrize("umask", [0o002, 0o022, 0o077])
def test_a_stored_student_has_the_permissions_of_any_other_file(umask: int, tmp_path: Path) -> None:
    method = toys.method("rail_l", toys.spec(2), toys.spec(4))
    before = os.umask(umask)
    try:
        evaluation.save_student(tmp_path, toys.model(), method)
    finally:
        os.umask(before)
    found = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert {path.stat().st_mode & 0o777 for path in found} == {0o666 & ~umask}
