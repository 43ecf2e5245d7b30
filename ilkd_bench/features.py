"""One vector per row and layer from hidden states, and scores between the tokens of a layer."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from ilkd_bench.losses import full


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


def relations(a: Tensor, b: Tensor) -> Tensor:
    """Score each token of `a` against each of `b`: a b^T / sqrt(D).

    Of queries and keys these are the attention scores before the softmax, of values twice the value
    relations of MiniLM (arXiv 2002.10957, section 3). Padding is scored like any token.

    Args:
        a, b: [B, A, T, D].

    Returns:
        [B, A, T, T], in float32 at least.
    """
    return full(a) @ full(b).transpose(-1, -2) / a.shape[-1] ** 0.5
