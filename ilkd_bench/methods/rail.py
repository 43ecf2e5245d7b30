"""RAIL-KD (Haidar et al., Findings of NAACL 2022, arXiv 2109.10164).

Every epoch, m-1 of the teacher's intermediate layers are drawn, sorted, and paired in order with
the student's layers 1..m-1. Layers are represented by the mean over real tokens, mapped linearly to
a small space on both sides, scaled to length 1, and compared by the squared distance:

    rail_l = sum_i | Wt h_t_{a_i} / |.| - Ws h_s_i / |.| |^2           (layer by layer, eq. 2)
    rail_c = the same distance once, between the concatenated layers   (eq. 3)

both as means over the batch. Other implementations average over padding too; here padding is
excluded. The temperature of `kd` is not stated (one implementation: 10). Trained projections on
both sides can collapse to a constant, so the spread of the teacher's vectors is logged.

Controls: what the method consists of can be taken away, drawing anew in every epoch (`resample`)
and pairing in order (`order`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from ilkd_bench.functional.layermaps import ORDERS, random_layers
from ilkd_bench.functional.losses import unit
from ilkd_bench.methods.base import one_of, width_of
from ilkd_bench.methods.vanilla import Vanilla
from ilkd_bench.types import Clock, Outputs, Rows, Spec

RESAMPLE: dict[str, Callable[[Clock], tuple[int, ...]]] = {
    "epoch": lambda clock: (clock.seed, clock.epoch),
    "step": lambda clock: (clock.seed, clock.epoch, clock.step),
    "never": lambda clock: (clock.seed, 0),  # the draw of the first epoch holds
}
"""How often layers are drawn -> what the draw is a function of."""


class Rail(Vanilla):
    """What both variants share: the draw, the distance, and the terms `ce`, `kd`, `rail`."""

    needs = frozenset({"logits", "mean"})
    student_projection: nn.Module
    teacher_projection: nn.Module

    def __init__(
        self, student: Spec, teacher: Spec, *, temperature: float, resample: str, order: str
    ) -> None:
        super().__init__(student, teacher, temperature=temperature)
        self.depths = teacher.layers, student.layers
        self.moment = RESAMPLE[one_of("resample", resample, tuple(RESAMPLE))]
        self.order = one_of("order", order, tuple(ORDERS))
        random_layers(*self.depths, at=(0,), order=order)  # Incompatible now, not in training

    def arrange(self, h: Tensor) -> Tensor:
        """Turn the layers [B, m-1, H] into the K vectors [B, K, F] that are projected."""
        raise NotImplementedError

    def layers(self, clock: Clock) -> list[int]:
        """Return the teacher layers of this moment for student layers 1..m-1."""
        return random_layers(*self.depths, at=self.moment(clock), order=self.order)

    def loss(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Tensor]:
        z_s = unit(self.student_projection(self.arrange(s.mean[:, 1:-1])))  # [B, K, W]
        z_t = unit(self.teacher_projection(self.arrange(t.mean[:, self.layers(clock)])))
        rail = (z_s - z_t).square().sum(dim=(1, 2)).mean()
        return super().loss(s, t, rows, clock) | {"rail": rail}

    def diagnose(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Any]:
        layers = self.layers(clock)
        z_t = unit(self.teacher_projection(self.arrange(t.mean[:, layers])))
        spread = z_t.std(dim=0, correction=0).mean()  # 0: the projection has collapsed
        return {"layers": " ".join(map(str, layers)), "teacher_spread": spread.item()}


class RailL(Rail):
    """Layer by layer: `rail` sums the distances of the m-1 pairs."""

    def __init__(
        self,
        student: Spec,
        teacher: Spec,
        *,
        temperature: float,
        resample: str,
        order: str,
        projection_width: int,
        projection: str,
    ) -> None:
        super().__init__(student, teacher, temperature=temperature, resample=resample, order=order)
        width = width_of("projection_width", projection_width)
        if one_of("projection", projection, ("shared", "per_layer")) == "shared":
            self.student_projection = nn.Linear(student.width, width)
            self.teacher_projection = nn.Linear(teacher.width, width)
        else:
            pairs = student.layers - 1
            self.student_projection = PerLayer(pairs, student.width, width)
            self.teacher_projection = PerLayer(pairs, teacher.width, width)

    def arrange(self, h: Tensor) -> Tensor:
        return h


class RailC(Rail):
    """Concatenated: `rail` is one distance between the joined layers of each side."""

    def __init__(
        self,
        student: Spec,
        teacher: Spec,
        *,
        temperature: float,
        resample: str,
        order: str,
        projection_width: int,
    ) -> None:
        super().__init__(student, teacher, temperature=temperature, resample=resample, order=order)
        width = width_of("projection_width", projection_width)
        pairs = student.layers - 1
        self.student_projection = nn.Linear(pairs * student.width, width)
        self.teacher_projection = nn.Linear(pairs * teacher.width, width)

    def arrange(self, h: Tensor) -> Tensor:
        return h.flatten(1)[:, None]  # [B, 1, (m-1) H]


class PerLayer(nn.ModuleList):
    """A linear map of its own for each layer: [B, K, H] -> [B, K, W]."""

    def __init__(self, layers: int, width: int, projected: int) -> None:
        super().__init__(nn.Linear(width, projected) for _ in range(layers))

    def forward(self, h: Tensor) -> Tensor:
        return torch.stack([linear(h[:, i]) for i, linear in enumerate(self)], dim=1)
