"""What stands in for a teacher's vectors where a method is tested against a control.

A term on intermediate layers may help because the student learns what the teacher makes of a row,
or merely because something is asked of its layers. The controls take the first reason away:
`shuffled` gives a row the teacher's vectors of another row, `random` gives it directions that mean
nothing, of the same length. Predictions (`kd`) are left alone. Both are pure functions.
"""

from __future__ import annotations

from torch import Tensor

from ilkd_bench.functional.features import partners, random_like
from ilkd_bench.types import Clock, Rows

TARGETS = ("own", "shuffled", "random")
"""The teacher's vectors of the row itself, those of another row of the batch, or random ones."""


def replaced(h: Tensor, rows: Rows, clock: Clock, *, target: str) -> Tensor:
    """Return what the student shall imitate, for the teacher's vectors h.

    Args:
        h: [B, K, H], of the K layers that are compared.
        target: one of `TARGETS`.
    """
    if target == "shuffled":
        return h[partners(rows.index, at=(clock.seed, clock.epoch, clock.step)).to(h.device)]
    if target == "random":
        return random_like(h, rows.index, seed=clock.seed)
    return h
