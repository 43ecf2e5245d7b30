"""Patient KD (Sun et al., EMNLP 2019, arXiv 1908.09355).

Student layers 1..m-1 imitate fixed teacher layers (eq. 7), first token, vectors of length 1:

    pkd = | h_s / |h_s| - h_t / |h_t| |^2,   mean over batch, layers and features

The printed equation is a sum; the mean is what the authors' code computes and what their grid of
weights (10 to 1000) belongs to. Deviations: rows are shuffled (the authors' cached teacher needed a
fixed order); unequal widths are mapped by one linear layer per side, as RAIL-KD's authors do.
"""

from __future__ import annotations

from torch import Tensor

from ilkd_bench import layermaps
from ilkd_bench.losses import mse, normalized_mse
from ilkd_bench.methods.base import common_space, one_of
from ilkd_bench.methods.vanilla import Vanilla
from ilkd_bench.types import Batch, Clock, Outputs, Spec

LAYER_MAPS = {"skip": layermaps.skip, "last": layermaps.last}


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
        normalize: bool,
        projection_width: int | str,
    ) -> None:
        super().__init__(student, teacher, temperature=temperature)
        layer_map = one_of("layer_map", layer_map, tuple(LAYER_MAPS))
        self.teacher_layers = LAYER_MAPS[layer_map](teacher.layers, student.layers)
        self.distance = normalized_mse if one_of("normalize", normalize, (True, False)) else mse
        self.student_projection, self.teacher_projection = common_space(
            student, teacher, projection_width
        )

    def loss(self, s: Outputs, t: Outputs, batch: Batch, clock: Clock) -> dict[str, Tensor]:
        h_s = self.student_projection(s.cls[:, 1:-1])  # [B, m-1, H]
        h_t = self.teacher_projection(t.cls[:, self.teacher_layers])  # [B, m-1, H]
        return super().loss(s, t, batch, clock) | {"pkd": self.distance(h_s, h_t)}
