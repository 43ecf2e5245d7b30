"""Tokens that are hidden from a model: which, how often, and the same every time."""

from __future__ import annotations

import numpy as np
import pytest

from ilkd_bench.data.masking import NOTHING, MaskedText, rarity
from ilkd_bench.data.tokens import Encoded

PAD, CLS, SEP, MASK, WORDS = 0, 1, 2, 3, 100
SPECIAL = (PAD, CLS, SEP, MASK)


def text(lengths: list[int]) -> Encoded:
    draw = np.random.default_rng(0)
    rows = [[CLS, *draw.integers(4, WORDS, n - 2), SEP] for n in lengths]
    ids = np.concatenate(rows).astype(np.int32)
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return Encoded(ids, np.zeros(len(ids), np.int8), offsets, PAD)


def masked(encoded: Encoded, seed: int = 0) -> MaskedText:
    readiness = rarity(encoded.ids, WORDS, SPECIAL)
    rows = np.arange(len(encoded.lengths))
    return MaskedText(encoded, rows, readiness=readiness, mask=MASK, seed=seed)


def test_readiness_falls_with_the_frequency_and_special_tokens_have_none() -> None:
    found = rarity(np.array([4] * 16 + [5] + [CLS] * 9), 7, SPECIAL)
    assert found.tolist() == pytest.approx([0, 0, 0, 0, 16**-0.7, 1, 1])


def test_labels_are_the_hidden_tokens_of_all_real_ones_in_their_order() -> None:
    encoded = text([12, 5])
    batch = masked(encoded)[np.array([1, 0])]
    shown = batch["student"]["input_ids"].numpy()
    given = encoded.batch(np.array([1, 0]))
    real = given["attention_mask"].bool().numpy()
    original = given["input_ids"].numpy()[real]
    labels = batch["labels"].numpy()
    assert labels.shape == (17,) and batch["student"] is batch["teacher"]
    asked = labels != NOTHING
    assert np.array_equal(labels[asked], original[asked])
    assert np.array_equal(shown[real][~asked], original[~asked]), "the others stay"
    assert (shown[~real] == PAD).all()
    assert not set(labels[asked]) & set(SPECIAL)
    assert asked[:5].sum() == 1 and asked[5:].sum() == 2  # 15 % of 5 and of 12, rounded


def test_what_is_hidden_depends_on_seed_and_row_alone() -> None:
    encoded = text([20] * 8)
    alone = masked(encoded)[np.array([3])]["labels"]
    among = masked(encoded)[np.array([0, 3, 5])]["labels"].reshape(3, 20)
    assert alone.tolist() == among[1].tolist()
    assert alone.tolist() != masked(encoded, seed=1)[np.array([3])]["labels"].tolist()


def test_eight_of_ten_are_masked_one_swapped_and_one_kept() -> None:
    """2,000 rows of 40 tokens; bounds are five standard deviations of a binomial."""
    encoded = text([40] * 2_000)
    batch = masked(encoded)[np.arange(2_000)]
    labels = batch["labels"].numpy()
    shown = batch["student"]["input_ids"].numpy().ravel()
    asked = labels != NOTHING
    assert asked.sum() == 2_000 * 6
    replaced = (shown[asked] == MASK).mean()
    kept = (shown[asked] == labels[asked]).mean()
    assert abs(replaced - 0.8) < 5 * np.sqrt(0.8 * 0.2 / 12_000) + 0.1 / WORDS
    assert abs(kept - 0.1) < 5 * np.sqrt(0.1 * 0.9 / 12_000) + 0.1 / WORDS


def test_rare_tokens_are_hidden_more_often() -> None:
    row = [CLS, *([4] * 9), 5, *([4] * 8), SEP]
    ids = np.array(row * 400, np.int32)
    encoded = Encoded(ids, np.zeros(len(ids), np.int8), np.arange(401) * 20, PAD)
    batch = masked(encoded)[np.arange(400)]
    labels = batch["labels"].numpy()
    asked = {token: int((labels == token).sum()) for token in (4, 5)}
    assert asked[4] + asked[5] == 400 * 3
    # one in 18 tokens is the rare one; by chance alone 67 of 1,200 would be
    assert asked[5] > 200


def test_a_row_of_special_tokens_has_something_to_predict() -> None:
    encoded = text([2])
    assert (masked(encoded)[np.array([0])]["labels"] != NOTHING).sum() == 1
