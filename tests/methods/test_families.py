"""Every method with every family on either side, live and from the bank."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

import numpy as np
import pairs
import pytest
import torch
import toys
from families import FAMILIES, OTHERS
from pairs import FOLDER, Pair, Side
from torch import Tensor
from toys import CLOSE, HALF

from ilkd_bench.data.batches import Split
from ilkd_bench.data.tokens import Encoded
from ilkd_bench.methods.base import Method
from ilkd_bench.teachers.banked import banked, can_bank
from ilkd_bench.training.module import weighted_sum
from ilkd_bench.types import Incompatible

SIZES = [
    pytest.param([(8, 3), (12, 1)], id="classes, wider regression"),
    pytest.param([(8, 1), (12, 3)], id="regression, wider classes", marks=pytest.mark.runs),
]
"""The teacher's width beside a student of 8, and the number of classes; 1: a regression."""
ROUND = [("bert", "roberta"), ("roberta", "distilbert"), ("distilbert", "bert")]
"""Each family once on either side."""
NO_GRADIENT = ("key.bias", "k_lin.bias", "attn.k.bias", "key_proj.bias")
"""A query-key product does not change when all keys move together: these are 0 by nature."""
OTHER_PAIRS = [
    *[("bert", "electra"), ("electra", "deberta"), ("deberta", "bert")],
    *[("roberta", "mpnet"), ("mpnet", "roberta")],
]
"""Each of the other families on either side of one that reads the same tokens."""
OWN_WORDS = {name: "bert" for name in (*FAMILIES, *OTHERS)} | {
    "roberta": "roberta",
    "mpnet": "roberta",
}
"""Whose tokenizer a family has."""


def pair(student: str, teacher: str, width: int, classes: int) -> Pair:
    return pairs.pair(Side(student, 2, 8), Side(teacher, 4, width), classes)


def possible(
    name: str, families: tuple[str, str], sizes: Sequence[tuple[int, int]]
) -> Iterator[tuple[Pair, Method]]:
    """The pairs of two families that a method can work with; the others must be told why."""
    same = OWN_WORDS[families[0]] == OWN_WORDS[families[1]]
    for width, classes in sizes:
        of = pair(*families, width, classes)
        try:
            method = pairs.method(name, of)
        except Incompatible as error:
            assert width != 8, "only the widths may stand in the way"
            assert "8 wide" in str(error) and "12" in str(error)
            continue
        if method.same_tokens and not same:
            with pytest.raises(Incompatible, match="the method compares the models token by token"):
                pairs.check_tokens(method, of)
            continue
        pairs.check_tokens(method, of)
        yield of, method


def values(of: Pair, method: Method, **changes: Any) -> list[dict[str, float]]:
    """Return the terms of every phase as numbers."""
    with torch.no_grad():
        found = list(pairs.terms(method, of, **changes))
    return [{name: x.item() for name, x in terms.items()} for _, terms in found]


def agree(found: list[dict[str, float]], expected: list[dict[str, float]], rel: float) -> None:
    """Compare term by term; `kd` at a temperature of 10 is 100 times a difference of two sums."""
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one == {name: pytest.approx(x, rel=rel, abs=10 * CLOSE) for name, x in other.items()}


def learns(name: str, of: Pair, method: Method) -> list[dict[str, float]]:
    """Take the gradients of every phase's weighted sum, and return the terms."""
    weights = pairs.method_settings(name)["weights"]
    trained = dict(of.student.named_parameters()) | {
        f"method.{key}": value for key, value in method.named_parameters()
    }
    reached: set[str] = set()
    found = []
    for _, terms in pairs.terms(method, of):
        assert all(x.shape == () and torch.isfinite(x) and x >= 0 for x in terms.values()), terms
        loss: Tensor = weighted_sum(terms, weights)
        assert loss > 0
        found.append({term: x.item() for term, x in terms.items()})
        gradients = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
        for key, gradient in zip(trained, gradients, strict=True):
            assert gradient is None or torch.isfinite(gradient).all(), key
            if gradient is not None and gradient.any():
                reached.add(key)
    missed = {k for k in trained if not k.endswith(NO_GRADIENT)} - reached
    assert not missed
    assert not any(p.requires_grad for p in of.teacher.model.parameters())
    return found


@pytest.mark.parametrize(
    "families",
    [
        pytest.param(pair, id=" from ".join(pair), marks=[pytest.mark.runs] * (pair not in ROUND))
        for pair in [*product(FAMILIES, FAMILIES), *OTHER_PAIRS]
    ],
)
@pytest.mark.parametrize("name", toys.METHODS)
@pytest.mark.parametrize("sizes", SIZES)
def test_every_family_teaches_every_family(
    sizes: list[tuple[int, int]], name: str, families: tuple[str, str]
) -> None:
    """Classes and a regression, equal and unequal widths; the bank's numbers are the live ones."""
    for of, method in possible(name, families, sizes):
        live = learns(name, of, method)
        phases = method.phases(pairs.EPOCHS)
        if not any(phase.needs for phase in phases) or not can_bank(phases):
            continue
        bank = banked(
            of.teacher,
            of.split,
            phases,
            about={"teacher": families[1], "task": "words", "split": "train"},
            dtype="float16",
            batch_size=4,
            device=torch.device("cpu"),
            cache_dir=FOLDER,
        )
        agree(values(of, method, teacher=bank), live, rel=2 * HALF)


@pytest.mark.parametrize(
    "families",
    [
        *[pytest.param(pair, id=" from ".join(pair)) for pair in product(FAMILIES, FAMILIES)],
        *[
            pytest.param(pair, id=" from ".join(pair), marks=pytest.mark.runs)
            for pair in OTHER_PAIRS
        ],
    ],
)
def test_padding_changes_no_term(families: tuple[str, str]) -> None:
    """Rows that are padded as beside a long one have the terms that they have without it."""
    for name in toys.METHODS:
        for of, method in possible(name, families, [(8, 3)]):
            s = of.split
            padded = Split(s.labels, s.index, longer(s.student), longer(s.teacher))
            agree(values(of, method, split=padded), values(of, method), rel=1e-3)


class Longer(Encoded):
    """The same rows, padded as beside a row of 20 tokens."""

    def batch(self, rows: np.ndarray) -> dict[str, Tensor]:
        batch, fill = super().batch(rows), {"input_ids": self.pad_id}
        more = 20 - batch["input_ids"].shape[1]
        assert more > 0
        pad = torch.nn.functional.pad
        return {name: pad(x, (0, more), value=fill.get(name, 0)) for name, x in batch.items()}


def longer(encoded: Encoded) -> Encoded:
    return Longer(encoded.ids, encoded.types, encoded.offsets, encoded.pad_id)


def test_the_families_read_what_they_are_said_to_read() -> None:
    for student, teacher in product(FAMILIES, FAMILIES):
        split = pair(student, teacher, 8, 3).split
        same = np.array_equal(split.student.ids, split.teacher.ids)
        assert same == (OWN_WORDS[student] == OWN_WORDS[teacher])
        assert len(split) == 6 and split.student.types.any() == (student != "roberta")
