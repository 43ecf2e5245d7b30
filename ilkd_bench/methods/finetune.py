"""Fine-tuning without a teacher: the row "w/o KD" of the tables."""

from __future__ import annotations

from torch import Tensor

from ilkd_bench.functional.losses import cross_entropy
from ilkd_bench.methods.base import Method
from ilkd_bench.types import Clock, Outputs, Rows, Spec


class Finetune(Method):
    """Learn from the labels alone: `ce`."""

    needs = frozenset()

    def __init__(self, student: Spec, teacher: Spec) -> None:
        super().__init__()

    def loss(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Tensor]:
        return {"ce": cross_entropy(s.logits, rows.labels)}
