"""RCO, route-constrained optimisation (Jin et al., ICCV 2019, arXiv 1904.09149).

The student learns in turn from anchors: snapshots at equal intervals of the teacher's own training.
It changes to the next anchor as often, so that anchor k of K teaches in the k-th part of the
epochs and the last one is the fully trained teacher. The loss is that of vanilla KD:

    loss = (1 - w) ce + w T^2 KL(anchor || student)

The paper takes an anchor every 5 epochs of the teacher, for images; here their number is given,
since teachers are fine-tuned for few epochs. With fewer epochs than anchors, some are passed over.
A greedy choice of the anchors, which the paper has too, is not implemented. w and T for text are
not known: those of `vanilla` are taken. Optimiser and learning rate run through all anchors.
"""

from __future__ import annotations

from typing import Any

from ilkd_bench.methods.base import positive
from ilkd_bench.methods.vanilla import Vanilla
from ilkd_bench.types import Clock, Outputs, Phase, Rows, Spec


class RCO(Vanilla):
    """Learn from labels and the logits of one anchor of the teacher after another: `ce`, `kd`."""

    def __init__(self, student: Spec, teacher: Spec, *, temperature: float, anchors: int) -> None:
        super().__init__(student, teacher, temperature=temperature)
        self.anchors = positive("anchors", anchors, whole=True)

    def anchor_at(self, epoch: int, epochs: int) -> float:
        """Return the anchor of an epoch, as a fraction of the teacher's training."""
        number = -(-(epoch + 1) * self.anchors // epochs)  # rounded up, from 1
        return number / self.anchors

    def phases(self, epochs: int) -> list[Phase]:
        return [
            Phase(
                "distill",
                epochs,
                self.needs,
                teacher_at=lambda epoch: self.anchor_at(epoch, epochs),
            )
        ]

    def diagnose(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Any]:
        return {"teacher_at": self.anchor_at(clock.epoch, clock.phase.epochs)}
