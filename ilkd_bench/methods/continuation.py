"""Continuation-KD (Jafari et al., 2022, arXiv 2212.05998).

Training begins with an easy objective, a softened teacher whose small errors are forgiven, and
turns it step by step into the one that counts, the labels:

    loss = psi ce + (1 - psi) max(0, | z_s - phi z_t |^2 - margin phi)

phi grows from 1/T_max to 1 as in Annealing-KD. psi grows evenly up to `last_psi` over the first
`follow_share` of the epochs and is 1 from then on: epoch / 40 up to epoch 20, then 1, in the
paper's 30 epochs on GLUE. One phase: optimiser and learning rate run through.

Not certain: the distance is the sum over classes, the hinge is taken per row, and the mean is over
the batch; epochs count from 1, so that the first one has a psi above 0; phi reaches 1 with the end
of the following epochs, after which the teacher counts no more; the size of `margin` is ours.
"""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ilkd_bench.functional.losses import cross_entropy, full
from ilkd_bench.functional.schedules import falling_temperature, smoothing_factor
from ilkd_bench.methods.base import Method, positive, share_below_one, temperature_of
from ilkd_bench.types import Clock, Outputs, Rows, Spec


class ContinuationKD(Method):
    """Turn from a softened teacher to the labels: `follow` = (1 - psi) hinge, `ce` = psi ce.

    Once psi is 1, `ce` is the only term.
    """

    def __init__(
        self,
        student: Spec,
        teacher: Spec,
        *,
        max_temperature: float,
        margin: float,
        last_psi: float,
        follow_share: float,
    ) -> None:
        super().__init__()
        self.max_temperature = temperature_of("max_temperature", max_temperature, least=1)
        self.margin = positive("margin", margin)
        self.last_psi = share_below_one("last_psi", last_psi)
        self.follow_share = share_below_one("follow_share", follow_share)

    def schedule(self, clock: Clock) -> tuple[float, float]:
        """Return psi and phi of this epoch."""
        follow = max(1, round(clock.phase.epochs * self.follow_share))
        if clock.epoch >= follow:
            return 1.0, 1.0
        temperature = falling_temperature(clock.epoch, follow, self.max_temperature)
        psi = self.last_psi * (clock.epoch + 1) / follow
        return psi, smoothing_factor(temperature, self.max_temperature)

    def loss(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Tensor]:
        psi, phi = self.schedule(clock)
        ce = cross_entropy(s.logits, rows.labels)
        if psi == 1:
            return {"ce": ce}
        distance = (full(s.logits) - phi * full(t.logits)).square().sum(-1)  # [B]
        follow = (distance - self.margin * phi).clamp_min(0).mean()
        return {"ce": psi * ce, "follow": (1 - psi) * follow}

    def diagnose(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Any]:
        psi, phi = self.schedule(clock)
        return {"psi": psi, "phi": phi}
