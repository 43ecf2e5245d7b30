"""Dropout on a processor: torch's distribution, from fewer random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.overrides import TorchFunctionMode

from ilkd_bench.functional.losses import full

GRAIN = 2**16
"""A weight is dropped with a probability that is a multiple of 1 / `GRAIN`, the nearest to `p`."""


def mask(like: Tensor, p: float) -> Tensor:
    """Draw what dropout multiplies with, in the shape and type of a tensor: 0 or 1 / (1 - p).

    torch draws a number of the generator for each element. Here each 64 random bits give four
    elements 16 bits, which are compared with p. The masks are a function of torch's random state
    and of the sizes alone, whatever the number of threads.
    """
    count, dropped = like.numel(), round(p * GRAIN)
    words = torch.empty((count + 3) // 4, dtype=torch.int64).random_(-(2**63), None)
    bits = words.view(torch.int16)[:count].view(like.shape)
    kept = torch.empty(like.shape, dtype=like.dtype)
    torch.ge(bits, dropped - GRAIN // 2, out=kept)
    return kept.mul_(GRAIN / (GRAIN - dropped))


def attention(
    query: Tensor,
    key: Tensor,
    value: Tensor,
    attn_mask: Tensor | None = None,
    dropout_p: float = 0.0,
    *,
    scale: float | None = None,
) -> Tensor:
    """Attend with dropout on the probabilities, as `scaled_dot_product_attention` does.

    Like torch's kernel for this case it computes in float32 what is given in 16 bits.

    Args:
        query, key, value: [B, A, T, D].
        attn_mask: broadcasts to [B, A, T, T]; False hides, or a number to add.

    Returns:
        [B, A, T, D].
    """
    scale = query.shape[-1] ** -0.5 if scale is None else scale
    with torch.autocast("cpu", enabled=False):
        scores = (full(query) * scale) @ full(key).transpose(-2, -1)
        if attn_mask is not None and attn_mask.dtype == torch.bool:
            scores = scores.masked_fill_(~attn_mask, -math.inf)
        elif attn_mask is not None:
            scores = scores + attn_mask
        weights = scores.softmax(-1)
        return ((weights * mask(weights, dropout_p)) @ full(value)).to(value.dtype)


class FastMasks(TorchFunctionMode):
    """Inside, whatever a model drops on a processor is drawn by `mask`, in any architecture."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Any,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Take the place of the two functions that draw; leave all others as they are."""
        given = kwargs or {}
        if func is F.dropout and given["training"] and not given["inplace"]:
            if _here(args[0], given["p"]):
                return args[0] * mask(args[0], given["p"])
        elif func is F.scaled_dot_product_attention and _here(args[0], given.get("dropout_p", 0.0)):
            asked = {
                name: value
                for name, value in given.items()
                if value is not None and value is not False
            }
            if asked.keys() <= {"attn_mask", "dropout_p", "scale"}:
                return attention(*args, **asked)
        return func(*args, **given)


def _here(x: Tensor, p: float) -> bool:
    """Tell if these masks are drawn here: on a processor, and some weights go and some stay."""
    return x.device.type == "cpu" and 0 < round(p * GRAIN) < GRAIN
