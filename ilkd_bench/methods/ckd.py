"""CKD, combined layers (Wu et al., EMNLP 2020, arXiv 2010.03034).

Each student layer i imitates the concatenation of a group G_i of teacher layers. A linear layer of
its own maps it up to the length of the concatenation; the teacher is not mapped:

    ckd = sum_i | W_i h_s_i + b_i / |.| - [h_t_j for j in G_i] / |.| |^2,   mean over the batch

a sum over features and over the student layers 1..m, the last one included, as the authors' code
computes. The paper is on translation and compares every token of the encoder; here a sentence is
one vector per layer: `cls` or `mean`. How ALP-KD's authors, who use CKD as a baseline on GLUE, take
it to sentences is not known to us. The authors' code has groups for few depths only; for others
the rules in `layermaps` are ours, above all `skip_middle`. The weights are those of an example of
the authors, whose code has a temperature of 1 for `kd`; ours is that of the other methods.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ilkd_bench.functional import layermaps
from ilkd_bench.functional.losses import unit
from ilkd_bench.methods.base import one_of
from ilkd_bench.methods.vanilla import Vanilla
from ilkd_bench.types import Clock, Outputs, Rows, Spec

GROUPS = {
    "regular": layermaps.regular_groups,
    "overlap": layermaps.overlap_groups,
    "skip_middle": layermaps.skip_middle_groups,
    "cross": layermaps.cross_groups,
}


class CKD(Vanilla):
    """Learn from labels, logits and groups of teacher layers: `ce`, `kd`, `ckd`."""

    def __init__(
        self, student: Spec, teacher: Spec, *, temperature: float, groups: str, feature: str
    ) -> None:
        super().__init__(student, teacher, temperature=temperature)
        self.groups = GROUPS[one_of("groups", groups, tuple(GROUPS))](
            teacher.layers, student.layers
        )
        self.feature = one_of("feature", feature, ("cls", "mean"))
        self.needs = frozenset({"logits", feature})
        self.student_projection = nn.ModuleList(
            nn.Linear(student.width, len(group) * teacher.width) for group in self.groups
        )

    def loss(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Tensor]:
        h_s, h_t = getattr(s, self.feature), getattr(t, self.feature)  # [B, L+1, H]
        distances = []
        for i, (group, up) in enumerate(zip(self.groups, self.student_projection, strict=True), 1):
            z_s = unit(up(h_s[:, i]))  # [B, |group| H]
            z_t = unit(h_t[:, group].flatten(1))  # [B, |group| H]
            distances.append((z_s - z_t).square().sum(-1))
        return super().loss(s, t, rows, clock) | {"ckd": torch.stack(distances).sum(0).mean()}
