"""Pro-KD (Rezagholizadeh et al., COLING 2022, arXiv 2110.08532).

Phase "follow": the student follows the teacher along the teacher's own training. In its epoch e it
imitates the snapshot that the teacher had at the same fraction of its training, smoothed by a
temperature that falls from `max_temperature` to 1; no labels:

    follow = | z_s - smooth(z_t) |^2,   mean over batch and classes

Phase "labels": `ce` alone, with a fresh optimiser. The student never influences the teacher, so
stored snapshots give exactly the joint training of the paper.

Which smoothing the paper prints is not certain: `factor` is z_t (1 - (T-1)/T_max) as in
Annealing-KD (arXiv 2104.07163), `divide` is z_t / T. The share of the epochs that each phase gets
is not stated either; `label_share` is ours, from Annealing-KD's 14 + 4. The paper trains a whole
number of student epochs per teacher epoch; other numbers are rounded up to the next snapshot.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ilkd_bench.functional.losses import cross_entropy, full, mse
from ilkd_bench.functional.schedules import falling_temperature, smoothing_factor
from ilkd_bench.methods.base import (
    Method,
    follow_then_labels,
    one_of,
    share_below_one,
    temperature_of,
)
from ilkd_bench.types import Clock, Outputs, Phase, Rows, Spec


class ProKD(Method):
    """Follow the teacher's training, then learn from labels: `follow`, then `ce`."""

    def __init__(
        self,
        student: Spec,
        teacher: Spec,
        *,
        max_temperature: float,
        smoothing: str,
        label_share: float,
    ) -> None:
        super().__init__()
        self.max_temperature = temperature_of("max_temperature", max_temperature, least=1)
        self.smoothing = one_of("smoothing", smoothing, ("factor", "divide"))
        self.label_share = share_below_one("label_share", label_share)

    def phases(self, epochs: int) -> list[Phase]:
        follow, labels = follow_then_labels("pro_kd", epochs, self.label_share)
        return [
            Phase("follow", follow, self.needs, teacher_at=lambda epoch: (epoch + 1) / follow),
            Phase("labels", labels, frozenset()),
        ]

    def temperature(self, clock: Clock) -> float:
        """Return the temperature of this epoch."""
        return falling_temperature(clock.epoch, clock.phase.epochs, self.max_temperature)

    def loss(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Tensor]:
        if clock.phase.name == "labels":
            return {"ce": cross_entropy(s.logits, rows.labels)}
        temperature = self.temperature(clock)
        if self.smoothing == "factor":
            target = full(t.logits) * smoothing_factor(temperature, self.max_temperature)
        else:
            target = full(t.logits) / temperature
        return {"follow": mse(s.logits, target)}

    def diagnose(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Any]:
        if clock.phase.name == "labels":
            return {}
        return {
            "temperature": self.temperature(clock),
            "teacher_at": (clock.epoch + 1) / clock.phase.epochs,
        }
