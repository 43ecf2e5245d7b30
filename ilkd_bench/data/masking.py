"""Plain text with some tokens hidden, which a model is to predict.

As in BERT (Devlin et al., NAACL 2019, arXiv 1810.04805, section 3.1) 15 % of a row's tokens are to
be predicted: 80 % of these are replaced by the mask, 10 % by any token, 10 % stay. As in the
training script of DistilBERT's authors rare tokens are taken more often, by their frequency in the
corpus to the power of -0.7. What is hidden is a pure function of seed and row: the same in every
pass.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np
import torch

from ilkd_bench.data.batches import PlainText
from ilkd_bench.data.tokens import Encoded
from ilkd_bench.types import TrainingBatch

SHARE = 0.15
REPLACED, SWAPPED = 0.8, 0.1
SMOOTHING = 0.7

NOTHING = -100
"""The label of a token that is not to be predicted, as torch's cross-entropy has it."""

AT_ONCE = 1_000_000
"""Tokens that are counted together."""


def rarity(ids: np.ndarray, vocabulary: int, special: Collection[int]) -> np.ndarray:
    """Return how readily each token is hidden, [V]: by its frequency; special tokens never are."""
    counts = np.zeros(vocabulary, np.int64)
    for start in range(0, len(ids), AT_ONCE):
        counts += np.bincount(ids[start : start + AT_ONCE], minlength=vocabulary)
    readiness = np.maximum(counts, 1) ** -SMOOTHING
    readiness[list(special)] = 0
    return readiness


class MaskedText(PlainText):
    """Rows of a text with some tokens hidden; the labels are those of all real tokens, [R].

    Args:
        encoded, rows: as for `PlainText`.
        readiness: [V], as `rarity` gives it.
        mask: number of the token that hides others.
        seed: of what is hidden.
    """

    def __init__(
        self, encoded: Encoded, rows: np.ndarray, *, readiness: np.ndarray, mask: int, seed: int
    ) -> None:
        super().__init__(encoded, rows)
        self._readiness, self._mask, self._seed = readiness, mask, seed

    def __getitem__(self, rows: np.ndarray) -> TrainingBatch:
        """Return the batch of these rows, counted among those that are taken."""
        batch = super().__getitem__(rows)
        inputs = batch["student"]
        given, real = inputs["input_ids"].numpy(), inputs["attention_mask"].numpy().astype(bool)
        shown, labels = given.copy(), np.full_like(given, NOTHING)
        for row, number in enumerate(batch["index"].tolist()):
            hidden, instead = self._hidden(given[row][real[row]], number)
            labels[row, hidden] = given[row, hidden]
            shown[row, hidden] = instead
        hiding = inputs | {"input_ids": torch.from_numpy(shown)}
        return {
            "student": hiding,
            "teacher": hiding,
            "labels": torch.from_numpy(labels[real]),
            "index": batch["index"],
        }

    def _hidden(self, ids: np.ndarray, number: int) -> tuple[np.ndarray, np.ndarray]:
        """Return the places of a row that are to be predicted, and what stands there instead."""
        draw = np.random.default_rng((self._seed, number))
        readiness = self._readiness[ids]
        possible = int((readiness > 0).sum())
        if not possible:  # special tokens only
            readiness, possible = np.ones(len(ids)), len(ids)
        count = min(possible, max(1, round(SHARE * len(ids))))
        places = draw.choice(len(ids), count, replace=False, p=readiness / readiness.sum())
        chance = draw.random(count)
        anything = draw.integers(len(self._readiness), size=count)
        instead = np.where(chance < REPLACED, self._mask, ids[places])
        swapped = (chance >= REPLACED) & (chance < REPLACED + SWAPPED)
        return places, np.where(swapped, anything, instead)
