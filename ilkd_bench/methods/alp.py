"""ALP-KD (Passban et al., AAAI 2021, arXiv 2012.14022).

Each student layer imitates a mixture of the teacher's layers, first token, where the mixture is an
attention over layers without parameters (eq. 4 to 6):

    e_ij = softmax_j <h_s_i, h_t_j>,   C_i = sum_j e_ij h_t_j,   alp = sum_i MSE(h_s_i, C_i)

MSE is the mean over features, then the mean over the batch. The gradient flows through e.
Layers 1..m-1 attend over 1..n-1, as in the comparison of RAIL-KD; `include_last` adds the last
layer of both sides, as the original code does. `buckets` limits each student layer to a bucket of
teacher layers, without (`no`: ALP-NO) or with a partial overlap (`po`: ALP-PO); that neighbouring
buckets share the layer between them is our reading. The weights of the three terms (0.2, 0.7, 0.1),
their order, and T = 20 are remembered from the paper's text and not verified. Unequal widths are
mapped by one linear layer per side, as RAIL-KD's authors do.
"""

from __future__ import annotations

import torch
from torch import Tensor

from ilkd_bench.functional.layermaps import attend, overlap_groups, regular_groups
from ilkd_bench.functional.losses import mse
from ilkd_bench.methods.base import common_space, intermediate_layers, one_of
from ilkd_bench.methods.vanilla import Vanilla
from ilkd_bench.types import Clock, Outputs, Rows, Spec


def bucket_mask(buckets: str, teacher_layers: int, student_layers: int) -> Tensor | None:
    """Return which of N teacher layers each of M student layers attends to, [M, N]; None: all."""
    if one_of("buckets", buckets, ("none", "no", "po")) == "none":
        return None
    groups = {"no": regular_groups, "po": overlap_groups}[buckets](teacher_layers, student_layers)
    return torch.tensor([[j in group for j in range(1, teacher_layers + 1)] for group in groups])


class ALP(Vanilla):
    """Learn from labels, logits and an attention over teacher layers: `ce`, `kd`, `alp`."""

    needs = frozenset({"logits", "cls"})
    attends = True
    allowed: Tensor | None

    def __init__(
        self,
        student: Spec,
        teacher: Spec,
        *,
        temperature: float,
        scale: str,
        include_last: bool,
        buckets: str,
        projection_width: int | str,
    ) -> None:
        super().__init__(student, teacher, temperature=temperature)
        self.scale = one_of("scale", scale, ("none", "sqrt_width"))
        last = [-1] if one_of("include_last", include_last, (True, False)) else []
        self.student_layers = intermediate_layers(student, "student") + last
        self.teacher_layers = intermediate_layers(teacher, "teacher") + last
        depths = len(self.teacher_layers), len(self.student_layers)
        self.register_buffer("allowed", bucket_mask(buckets, *depths), persistent=False)
        self.student_projection, self.teacher_projection = common_space(
            student, teacher, projection_width
        )

    def loss(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Tensor]:
        h_s, h_t, weights = self._attend(s, t)
        context = weights @ h_t  # [B, M, H]
        alp = mse(h_s, context) * len(self.student_layers)  # a sum over layers
        return super().loss(s, t, rows, clock) | {"alp": alp}

    def layer_attention(self, s: Outputs, t: Outputs) -> Tensor:
        _, _, weights = self._attend(s, t)
        if self.allowed is not None:
            weights = weights.masked_fill(~self.allowed, float("nan"))
        shape = len(weights), s.cls.shape[1], t.cls.shape[1]
        placed = weights.new_full(shape, float("nan"))  # [B, L_s+1, L_t+1]
        placed[:, [[layer] for layer in self.student_layers], self.teacher_layers] = weights
        return placed

    def _attend(self, s: Outputs, t: Outputs) -> tuple[Tensor, Tensor, Tensor]:
        """Return the student's layers, the teacher's, and the weights between them."""
        h_s = self.student_projection(s.cls[:, self.student_layers])  # [B, M, H]
        h_t = self.teacher_projection(t.cls[:, self.teacher_layers])  # [B, N, H]
        query = h_s / h_s.shape[-1] ** 0.5 if self.scale == "sqrt_width" else h_s
        return h_s, h_t, attend(query, h_t, allowed=self.allowed)  # [B, M, N]
