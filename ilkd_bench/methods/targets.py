"""What stands in for a teacher's vectors where a method is tested against a control.

A term on intermediate layers may help because the student learns what the teacher makes of a row,
or merely because something is asked of its layers. The controls take the first reason away:
`shuffled` gives a row the teacher's vectors of another row, `random` gives it directions that mean
nothing, of the same length. Predictions (`kd`) are left alone. Both are pure functions.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ilkd_bench.types import Batch, Clock

TARGETS = ("own", "shuffled", "random")
"""The teacher's vectors of the row itself, those of another row of the batch, or random ones."""


def replaced(h: Tensor, batch: Batch, clock: Clock, *, target: str) -> Tensor:
    """Return what the student shall imitate, for the teacher's vectors h.

    Args:
        h: [B, K, H], of the K layers that are compared.
        target: one of `TARGETS`.
    """
    if target == "shuffled":
        return h[partners(batch.index, at=(clock.seed, clock.epoch, clock.step)).to(h.device)]
    if target == "random":
        return random_like(h, batch.index, seed=clock.seed)
    return h


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
