"""Every case of ``tests/vectors/*.json`` against the real method, term by term, in float64."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import toys

from ilkd_bench.types import Clock, Rows, Spec

VECTORS = Path(__file__).parent.parent / "vectors"
FILES = {path.stem: json.loads(path.read_text("utf-8")) for path in VECTORS.glob("*.json")}
CASES = [
    pytest.param(name, case, id=f"{name}: {case['name']}")
    for name, file in sorted(FILES.items())
    for case in file["cases"]
]


def double(values: Any) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.float64)


def side(raw: dict[str, Any]) -> toys.Raw:
    mask = torch.tensor(raw["mask"])
    given = [name for name in toys.PER_LAYER if name in raw]
    layers = {name: tuple(map(double, raw[name])) for name in given}
    return toys.Raw(double(raw["logits"]), mask, **layers)


def test_every_method_has_vectors_and_every_vector_a_method() -> None:
    assert sorted(FILES) == toys.METHODS


@pytest.mark.parametrize("name", sorted(FILES))
def test_vectors_say_where_their_numbers_come_from(name: str) -> None:
    assert FILES[name]["method"] == name
    assert len(FILES[name]["source"]) > 20
    assert FILES[name]["cases"]


@pytest.mark.parametrize("name", sorted(FILES))
def test_the_cases_of_a_method_cover_all_its_terms_and_both_kinds_of_labels(name: str) -> None:
    cases = FILES[name]["cases"]
    weights = toys.method_settings(name)["weights"]
    assert {term for case in cases for term in case["expected"]} == set(weights)
    assert {case["student"]["classes"] > 1 for case in cases} == {True, False}


@pytest.mark.parametrize(("name", "case"), CASES)
def test_terms_are_those_of_the_vector(name: str, case: dict[str, Any]) -> None:
    student, teacher = Spec(**case["student"]), Spec(**case["teacher"])
    inputs = case["inputs"]
    labels = torch.tensor(inputs["labels"]) if student.classes > 1 else double(inputs["labels"])
    index = torch.arange(len(labels))
    seen = case.get("training", {"labels": labels, "index": index})
    method = toys.method(name, student, teacher, **case["settings"])
    method.prepare(**{key: torch.as_tensor(values) for key, values in seen.items()})
    method.double()
    method.load_state_dict({k: double(v) for k, v in case["parameters"].items()})
    at = case["clock"]
    phase = replace(method.phases(8)[at["phase"]], epochs=at["epochs"])
    clock = Clock(phase, epoch=at["epoch"], step=0, steps=1, seed=at["seed"])
    terms = method.loss(
        side(inputs["student"]).outputs(phase.needs),
        side(inputs["teacher"]).outputs(phase.needs) if phase.needs else None,
        Rows(labels=labels, index=index),
        clock,
    )
    found = {key: value.item() for key, value in terms.items()}
    assert found == pytest.approx(case["expected"], rel=1e-9)
