"""TinyBERT, both stages (Jiao et al., Findings of EMNLP 2020, arXiv 1909.10351).

Phase `hint` imitates the inside of the teacher, student layer i that of layer g(i) = i n / m:

    hidden    = sum over i = 0..m of  MSE(W h_s[i] + b, h_t[g(i)])    (eq. 8; 9: embeddings)
    attention = sum over i = 1..m of  MSE(Q_s K_s^T / sqrt(D), Q_t K_t^T / sqrt(D))   (eq. 7)

The scores are those before the softmax. Hidden states: mean over real tokens and features; scores:
mean over heads and pairs of real tokens. Phase `predict` then learns the teacher's logits:

    predict   = T^2 KL(softmax(z_t / T) || softmax(z_s / T)),  T = 1              (eq. 10)

The general stage (section 3.2) is phase `hint` on plain text. Where the widths are equal W starts
as the identity there, which is ours: the student may be cut from the teacher.

Deviations: the authors' code averages over padding too, and divides the soft cross-entropy by the
number of classes as well; the divergence has the gradient of the cross-entropy. As in their code, W
and b are one map for all points, embeddings included, and there is one whatever the widths. In a
regression that code learns from the labels in phase `predict`: `regression` chooses.
"""

from __future__ import annotations

from torch import Tensor, nn

from ilkd_bench.functional import layermaps
from ilkd_bench.functional.features import relations
from ilkd_bench.functional.losses import cross_entropy, full, masked_mse, relation_mse, soft_kl
from ilkd_bench.methods.base import (
    Method,
    check_heads,
    follow_then_labels,
    one_of,
    positive,
    share_below_one,
    temperature_of,
)
from ilkd_bench.types import Clock, Incompatible, Outputs, Phase, Rows, Spec

INSIDE = frozenset({"hidden", "queries", "keys"})


class TinyBERT(Method):
    """Imitate layers (`hidden`, `attention`), then the logits (`predict`).

    Raises:
        Incompatible: the student's layers do not divide the teacher's, or the models have other
            numbers of heads, or read other tokens.
    """

    needs = INSIDE | {"logits"}
    same_tokens = True

    def __init__(
        self,
        student: Spec,
        teacher: Spec,
        *,
        temperature: float,
        predict_share: float,
        predict_lr_factor: float,
        regression: str,
    ) -> None:
        super().__init__()
        self.temperature = temperature_of("temperature", temperature)
        self.predict_share = share_below_one("predict_share", predict_share)
        self.predict_lr_factor = positive("predict_lr_factor", predict_lr_factor)
        learns_from = one_of("regression", regression, ("teacher", "labels"))
        self.from_labels = learns_from == "labels" and student.classes == 1
        if teacher.layers % student.layers != 0:
            raise Incompatible(
                f"the student's {student.layers} layers do not divide the teacher's "
                f"{teacher.layers}, so there is no uniform map of layers"
            )
        check_heads(student, teacher, "attention scores")
        self.teacher_layers = layermaps.uniform(teacher.layers, student.layers)
        self.projection = nn.Linear(student.width, teacher.width)

    def phases(self, epochs: int) -> list[Phase]:
        hint, predict = follow_then_labels("tinybert", epochs, self.predict_share)
        needs = frozenset() if self.from_labels else frozenset({"logits"})
        return [
            Phase("hint", hint, INSIDE, teacher_layers=tuple(self.teacher_layers)),
            Phase("predict", predict, needs, lr_factor=self.predict_lr_factor),
        ]

    def general(self, epochs: int) -> Phase:
        if self.projection.in_features == self.projection.out_features:
            nn.init.eye_(
                self.projection.weight
            )  # a student cut from the teacher speaks its language
            nn.init.zeros_(self.projection.bias)
        return Phase("hint", epochs, INSIDE)

    def loss(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Tensor]:
        if clock.phase.name == "hint":
            return {"hidden": self._hidden(s, t), "attention": self._attention(s, t)}
        if self.from_labels:
            return {"predict": cross_entropy(s.logits, rows.labels)}
        return {"predict": soft_kl(s.logits, t.logits, temperature=self.temperature)}

    def _hidden(self, s: Outputs, t: Outputs) -> Tensor:
        points = [
            masked_mse(self.projection(full(h_s)), t.hidden[j], s.mask)
            for h_s, j in zip(s.hidden, self.teacher_layers, strict=True)
        ]
        return sum(points[1:], start=points[0])

    def _attention(self, s: Outputs, t: Outputs) -> Tensor:
        layers = [
            relation_mse(
                relations(s.queries[i], s.keys[i]),
                relations(t.queries[j - 1], t.keys[j - 1]),  # these have no entry of the embeddings
                s.mask,
            )
            for i, j in enumerate(self.teacher_layers[1:])
        ]
        return sum(layers[1:], start=layers[0])
