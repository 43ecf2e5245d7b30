"""What is compared: one vector per row and layer, or the scores between the tokens of a layer."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ilkd_bench.functional.losses import full


def cls(hidden: Sequence[Tensor]) -> Tensor:
    """Take the first token of every layer: L+1 of [B, T, H] -> [B, L+1, H]."""
    return torch.stack([h[:, 0] for h in hidden], dim=1)


def mean(hidden: Sequence[Tensor], mask: Tensor) -> Tensor:
    """Average the real tokens of every layer: L+1 of [B, T, H] -> [B, L+1, H].

    Args:
        mask: [B, T], 1 on real tokens. A row without real tokens gives zeros.
    """
    layers = torch.stack([full(h) for h in hidden], dim=1)  # [B, L+1, T, H]
    weights = mask.to(layers.dtype)
    weights = weights / weights.sum(-1, keepdim=True).clamp_min(1)  # [B, T]
    return torch.einsum("blth,bt->blh", layers, weights)


def partners(index: Tensor, *, at: tuple[int, ...]) -> Tensor:
    """Return for each row of a batch the position of another row, [B].

    The rows of the batch are put in a circle at random and each takes the next one's place, so no
    row is its own partner and every row is one. It depends on the row numbers and `at` alone, not
    on the order of the batch. A batch of a single row has no other: it keeps its own.

    Args:
        index: [B], row numbers; equal numbers are one row.
    """
    rows, places, which = np.unique(index.cpu().numpy(), return_index=True, return_inverse=True)
    circle = np.random.default_rng(at).permutation(len(rows))
    other = np.empty(len(rows), dtype=int)
    other[circle] = np.roll(circle, -1)
    return torch.from_numpy(places[other[which]])


def random_like(h: Tensor, index: Tensor, *, seed: int) -> Tensor:
    """Return vectors of random direction with the lengths of h, [B, K, H].

    The directions are uniform and belong to (seed, row, place of the layer): the same in every
    epoch, like those of a teacher that does not move.

    Args:
        h: [B, K, H].
        index: [B], row numbers.
    """
    shape = h.shape[1:]
    drawn = np.stack(
        [np.random.default_rng((seed, row)).standard_normal(shape) for row in index.tolist()]
    )
    drawn /= np.linalg.norm(drawn, axis=-1, keepdims=True)
    length = torch.linalg.vector_norm(h, dim=-1, keepdim=True)
    return torch.from_numpy(drawn).to(h) * length


def relations(a: Tensor, b: Tensor) -> Tensor:
    """Score each token of `a` against each of `b`: a b^T / sqrt(D).

    Of queries and keys these are the attention scores before the softmax, of values twice the value
    relations of MiniLM (arXiv 2002.10957, section 3). Padding is scored like any token.

    Args:
        a, b: [B, A, T, D].

    Returns:
        [B, A, T, T], in float32 at least.
    """
    return full(a) / a.shape[-1] ** 0.5 @ full(b).transpose(-1, -2)  # fewer numbers to divide
