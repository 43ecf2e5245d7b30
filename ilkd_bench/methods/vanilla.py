"""Vanilla KD (Hinton et al., 2015, arXiv 1503.02531): labels and the teacher's soft prediction."""

from __future__ import annotations

from torch import Tensor

from ilkd_bench.losses import cross_entropy, soft_kl
from ilkd_bench.methods.base import Method, positive
from ilkd_bench.types import Batch, Clock, Outputs, Spec


class Vanilla(Method):
    """Learn from labels and logits: `ce` and `kd` = T^2 KL(teacher || student).

    The base of the methods that add a term on intermediate layers. For a regression `kd` is the
    squared error between the two outputs.
    """

    def __init__(self, student: Spec, teacher: Spec, *, temperature: float) -> None:
        super().__init__()
        self.temperature = positive("temperature", temperature)

    def loss(self, s: Outputs, t: Outputs, batch: Batch, clock: Clock) -> dict[str, Tensor]:
        return {
            "ce": cross_entropy(s.logits, batch.labels),
            "kd": soft_kl(s.logits, t.logits, temperature=self.temperature),
        }
