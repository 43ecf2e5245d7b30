"""Annealing-KD (Jafari et al., EACL 2021, arXiv 2104.07163).

Phase "follow": the student imitates the teacher's logits, which grow from 1/T_max of their size to
their full size while a temperature T falls from T_max to 1; no labels:

    follow = | z_s - (1 - (T-1)/T_max) z_t |^2,   mean over batch and classes

T is held for floor(E1 / T_max) of the E1 epochs. The counter of the authors' code is not capped, so
that its factor may pass 1; here T stays at 1. Phase "labels" starts from the best dev epoch of
"follow", with `ce` alone and a fresh optimiser. 18 epochs are 14 + 4 as in the paper's GLUE runs;
other totals are split in the same proportion (`label_share`). Whether the squared error is a mean
or a sum over classes in the paper is not certain; with `follow` as the only term of its phase, a
constant factor matters little to Adam. A regression follows the teacher's score in the same way.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ilkd_bench.functional.losses import cross_entropy, full, mse
from ilkd_bench.functional.schedules import falling_temperature, smoothing_factor
from ilkd_bench.methods.base import Method, follow_then_labels, share_below_one, temperature_of
from ilkd_bench.types import Clock, Outputs, Phase, Rows, Spec


class AnnealingKD(Method):
    """Follow logits that grow to the teacher's, then learn from labels: `follow`, then `ce`."""

    def __init__(
        self, student: Spec, teacher: Spec, *, max_temperature: float, label_share: float
    ) -> None:
        super().__init__()
        self.max_temperature = temperature_of("max_temperature", max_temperature, least=1)
        self.label_share = share_below_one("label_share", label_share)

    def phases(self, epochs: int) -> list[Phase]:
        follow, labels = follow_then_labels("annealing", epochs, self.label_share)
        return [
            Phase("follow", follow, self.needs, carry="best"),
            Phase("labels", labels, frozenset()),
        ]

    def temperature(self, clock: Clock) -> float:
        """Return the temperature of this epoch."""
        return falling_temperature(clock.epoch, clock.phase.epochs, self.max_temperature)

    def loss(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Tensor]:
        if clock.phase.name == "labels":
            return {"ce": cross_entropy(s.logits, rows.labels)}
        factor = smoothing_factor(self.temperature(clock), self.max_temperature)
        return {"follow": mse(s.logits, factor * full(t.logits))}

    def diagnose(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Any]:
        if clock.phase.name == "labels":
            return {}
        return {"temperature": self.temperature(clock)}
