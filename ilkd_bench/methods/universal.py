"""Universal-KD (Wu et al., EMNLP 2021): intermediate layers are compared by what they predict.

A linear pseudo classifier on each intermediate layer of both models maps it to the space of the
logits, so that models of any width can be compared. A student layer is taught by a mixture of the
teacher's layers, weighed by an attention over layers as in ALP-KD:

    y_s_i = P_s_i h_s_i + b_s_i,   y_t_j = P_t_j h_t_j + b_t_j
    e_ij  = softmax_j <Q h_s_i + b, K h_t_j> / sqrt(W)
    C_i   = sum_j e_ij y_t_j
    universal = sum_i T^2 KL(softmax(C_i / T) || softmax(y_s_i / T)),   mean over the batch
    pseudo    = cross-entropy of y_t_j with the labels,   mean over the batch and the layers

Known to us is the idea: pseudo classifiers, matching in the output space, attention over the
teacher's layers. Ours are the details: layers 1..m-1 attend over 1..n-1; the learned maps Q and K
of the attention; the distance, which is that of `kd`; and when the teacher's classifiers learn:
here along with the student, from the labels (`pseudo`) and from nothing else, as the mixed y_t_j
give no gradient back.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn.functional import pad

from ilkd_bench.functional.layermaps import attend
from ilkd_bench.functional.losses import cross_entropy, soft_kl
from ilkd_bench.methods.base import intermediate_layers, one_of, width_of
from ilkd_bench.methods.rail import PerLayer
from ilkd_bench.methods.vanilla import Vanilla
from ilkd_bench.types import Clock, Outputs, Rows, Spec


class Universal(Vanilla):
    """Learn from labels, logits and those of layers: `ce`, `kd`, `universal`, `pseudo`."""

    attends = True

    def __init__(
        self,
        student: Spec,
        teacher: Spec,
        *,
        temperature: float,
        feature: str,
        projection_width: int,
    ) -> None:
        super().__init__(student, teacher, temperature=temperature)
        self.feature = one_of("feature", feature, ("cls", "mean"))
        self.needs = frozenset({"logits", feature})
        self.student_layers = intermediate_layers(student, "student")
        self.teacher_layers = intermediate_layers(teacher, "teacher")
        width = width_of("projection_width", projection_width)
        self.query = nn.Linear(student.width, width)
        self.key = nn.Linear(teacher.width, width, bias=False)  # one would move all keys alike
        self.student_classifiers = PerLayer(
            len(self.student_layers), student.width, student.classes
        )
        self.teacher_classifiers = PerLayer(
            len(self.teacher_layers), teacher.width, teacher.classes
        )

    def loss(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Tensor]:
        h_s, h_t = self._layers(s, t)
        y_s = self.student_classifiers(h_s)  # [B, M, C]
        y_t = self.teacher_classifiers(h_t)  # [B, N, C]
        context = self._weights(h_s, h_t) @ y_t.detach()  # [B, M, C]
        distance = soft_kl(y_s.flatten(0, 1), context.flatten(0, 1), temperature=self.temperature)
        labels = rows.labels.repeat_interleave(len(self.teacher_layers))
        return super().loss(s, t, rows, clock) | {
            "universal": distance * len(self.student_layers),  # a sum over layers
            "pseudo": cross_entropy(y_t.flatten(0, 1), labels),
        }

    def layer_attention(self, s: Outputs, t: Outputs) -> Tensor:
        weights = self._weights(*self._layers(s, t))  # layers 1..m-1 and 1..n-1
        return pad(weights, (1, 1, 1, 1), value=float("nan"))

    def _layers(self, s: Outputs, t: Outputs) -> tuple[Tensor, Tensor]:
        """Return the intermediate layers, [B, M, H] and [B, N, H]."""
        h_s, h_t = getattr(s, self.feature), getattr(t, self.feature)
        return h_s[:, self.student_layers], h_t[:, self.teacher_layers]

    def _weights(self, h_s: Tensor, h_t: Tensor) -> Tensor:
        """Return how much each student layer attends to each teacher layer, [B, M, N]."""
        query = self.query(h_s)
        return attend(query / query.shape[-1] ** 0.5, self.key(h_t))
