"""MiniLM (Wang et al., NeurIPS 2020, arXiv 2002.10957, section 3), used on a task.

The last layer of the student looks from token to token as the last layer of the teacher does. Per
head, with the D of each model's own heads:

    attention = KL( softmax(Q_t K_t^T / sqrt(D)) || softmax(Q_s K_s^T / sqrt(D)) )
    value     = KL( softmax(V_t V_t^T / sqrt(D)) || softmax(V_s V_s^T / sqrt(D)) )

mean over heads and real query tokens; padding is neither query nor key. Relations are T x T, so the
widths are free, but the models need as many heads and the same tokens.

The paper distils on general text, which is the general stage here, and fine-tunes on the labels
afterwards. Deviations: on the text of a task both terms stand beside the labels and the teacher's
logits in one phase. The softmax is of the scores themselves, so that dropout on the attention is no
part of the terms.
"""

from __future__ import annotations

from torch import Tensor

from ilkd_bench.functional.features import relations
from ilkd_bench.functional.losses import relation_kl
from ilkd_bench.methods.base import check_heads
from ilkd_bench.methods.vanilla import Vanilla
from ilkd_bench.types import Clock, Outputs, Phase, Rows, Spec

RELATED = frozenset({"queries", "keys", "values"})


class MiniLM(Vanilla):
    """Learn from labels, logits and relations of the last layer: `ce`, `kd`, `attention`, `value`.

    Raises:
        Incompatible: the models have other numbers of heads, or read other tokens.
    """

    needs = RELATED | {"logits"}
    same_tokens = True

    def __init__(self, student: Spec, teacher: Spec, *, temperature: float) -> None:
        super().__init__(student, teacher, temperature=temperature)
        check_heads(student, teacher, "relations between tokens")
        self.teacher_layers = (teacher.layers,)

    def phases(self, epochs: int) -> list[Phase]:
        return [Phase("distill", epochs, self.needs, teacher_layers=self.teacher_layers)]

    def general(self, epochs: int) -> Phase:
        return Phase("general", epochs, RELATED)

    def loss(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Tensor]:
        learned = {} if clock.phase.name == "general" else super().loss(s, t, rows, clock)
        scores_s, scores_t = (relations(x.queries[-1], x.keys[-1]) for x in (s, t))  # [B, A, T, T]
        values_s, values_t = (relations(x.values[-1], x.values[-1]) for x in (s, t))
        return learned | {
            "attention": relation_kl(scores_s, scores_t, s.mask),
            "value": relation_kl(values_s, values_t, s.mask),
        }
