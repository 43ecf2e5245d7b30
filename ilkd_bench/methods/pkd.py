"""Patient KD (Sun et al., EMNLP 2019, arXiv 1908.09355).

Student layers 1..m-1 imitate fixed teacher layers (eq. 7), first token, vectors of length 1:

    pkd = | h_s / |h_s| - h_t / |h_t| |^2,   mean over batch, layers and features

The printed equation is a sum; the mean is what the authors' code computes and what their grid of
weights (10 to 1000) belongs to. Deviations: rows are shuffled (the authors' cached teacher needed a
fixed order); unequal widths are mapped by one linear layer per side, as RAIL-KD's authors do.

Controls, which say how much of an effect is due to what: layer maps that nobody would choose
(`reversed`, `all_to_last`, `permuted`, after arXiv 2502.04499), and `target`, which puts vectors of
other rows or random ones in the teacher's place (`methods/targets.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor

from ilkd_bench.functional import layermaps
from ilkd_bench.functional.losses import mse, normalized_mse
from ilkd_bench.methods.base import common_space, one_of
from ilkd_bench.methods.targets import TARGETS, replaced
from ilkd_bench.methods.vanilla import Vanilla
from ilkd_bench.types import Clock, Outputs, Rows, Spec

LAYER_MAPS: dict[str, Callable[..., list[int]]] = {
    "skip": layermaps.skip,
    "last": layermaps.last,
    "first": layermaps.first,
    "reversed": layermaps.reversed_skip,
    "all_to_last": layermaps.all_to_last,
    "permuted": layermaps.permuted_skip,
}


class PKD(Vanilla):
    """Learn from labels, logits and a fixed choice of teacher layers: `ce`, `kd`, `pkd`."""

    needs = frozenset({"logits", "cls"})

    def __init__(
        self,
        student: Spec,
        teacher: Spec,
        *,
        temperature: float,
        layer_map: str,
        target: str,
        normalize: bool,
        projection_width: int | str,
    ) -> None:
        super().__init__(student, teacher, temperature=temperature)
        self.depths = teacher.layers, student.layers
        self.layer_map = one_of("layer_map", layer_map, tuple(LAYER_MAPS))
        self.layers(seed=0)  # Incompatible now rather than in training
        self.target = one_of("target", target, TARGETS)
        self.distance = normalized_mse if one_of("normalize", normalize, (True, False)) else mse
        self.student_projection, self.teacher_projection = common_space(
            student, teacher, projection_width
        )

    def layers(self, seed: int) -> list[int]:
        """Return the teacher layers for student layers 1..m-1; only one map depends on the seed."""
        drawn = {"seed": seed} if self.layer_map == "permuted" else {}
        return LAYER_MAPS[self.layer_map](*self.depths, **drawn)

    def loss(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Tensor]:
        taught = replaced(t.cls[:, self.layers(clock.seed)], rows, clock, target=self.target)
        h_s = self.student_projection(s.cls[:, 1:-1])  # [B, m-1, H]
        h_t = self.teacher_projection(taught)  # [B, m-1, H]
        return super().loss(s, t, rows, clock) | {"pkd": self.distance(h_s, h_t)}

    def diagnose(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Any]:
        return {"layers": " ".join(map(str, self.layers(clock.seed)))}
