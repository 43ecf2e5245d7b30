"""Vanilla KD (Hinton et al., 2015, arXiv 1503.02531): labels and the teacher's soft prediction."""

from __future__ import annotations

from torch import Tensor

from ilkd_bench.functional.losses import cross_entropy, soft_kl
from ilkd_bench.methods.base import Method, positive, temperature_of
from ilkd_bench.types import BadInput, Clock, Outputs, Phase, Rows, Spec


class Vanilla(Method):
    """Learn from labels and logits: `ce` and `kd` = T^2 KL(teacher || student).

    The base of the methods that add a term on intermediate layers. For a regression `kd` is the
    squared error between the two outputs.
    """

    def __init__(self, student: Spec, teacher: Spec, *, temperature: float) -> None:
        super().__init__()
        self.temperature = temperature_of("temperature", temperature)

    def loss(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Tensor]:
        return {
            "ce": cross_entropy(s.logits, rows.labels),
            "kd": soft_kl(s.logits, t.logits, temperature=self.temperature),
        }


class FromCheckpoint(Vanilla):
    """Vanilla KD from a teacher that has not finished: a snapshot of its own training.

    Which checkpoint of the teacher teaches best is a question of Pro-KD (Rezagholizadeh et al.,
    COLING 2022, arXiv 2110.08532); the loss is that of `vanilla`.
    """

    def __init__(
        self, student: Spec, teacher: Spec, *, temperature: float, teacher_at: float
    ) -> None:
        super().__init__(student, teacher, temperature=temperature)
        self.teacher_at = positive("teacher_at", teacher_at)
        if teacher_at > 1:
            raise BadInput(f"method.teacher_at={teacher_at}: allowed is a number up to 1")

    def phases(self, epochs: int) -> list[Phase]:
        return [Phase("distill", epochs, self.needs, teacher_at=lambda epoch: self.teacher_at)]
