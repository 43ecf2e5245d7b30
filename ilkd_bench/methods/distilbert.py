"""DistilBERT's triple loss (Sanh et al., 2019, arXiv 1910.01108, section 3).

    loss   = 5 kd + 2 ce + cosine
    cosine = 1 - cos(h_s, h_t) of the last layers, mean over real tokens

On a task `ce` with the labels stands in the place of the masked-language-model loss. In the general
stage it is that loss: the classes are the tokens, `kd` is a mean over all real tokens and `ce` over
those that were hidden. The weights 5, 2 and 1
and the temperature 2 are those of the authors' training script. Their student has every second
layer of the teacher, no segment embeddings and no pooler: `student=distilbert`. Any student of the
teacher's width can be taught in the same way.
"""

from __future__ import annotations

from torch import Tensor

from ilkd_bench.functional.losses import masked_cosine
from ilkd_bench.methods.vanilla import Vanilla
from ilkd_bench.types import Clock, Incompatible, Outputs, Phase, Rows, Spec


class TripleLoss(Vanilla):
    """Learn from labels, logits and the direction of the last hidden states: `ce`, `kd`, `cosine`.

    Raises:
        Incompatible: the widths differ, or the models read other tokens.
    """

    needs = frozenset({"logits", "hidden"})
    same_tokens = True

    def __init__(self, student: Spec, teacher: Spec, *, temperature: float) -> None:
        super().__init__(student, teacher, temperature=temperature)
        if student.width != teacher.width:
            raise Incompatible(
                f"the student is {student.width} wide and the teacher {teacher.width}: the cosine "
                "of two hidden states needs equal widths"
            )
        self.teacher_layers = (teacher.layers,)

    def phases(self, epochs: int) -> list[Phase]:
        return [Phase("distill", epochs, self.needs, teacher_layers=self.teacher_layers)]

    def general(self, epochs: int) -> Phase:
        return Phase("general", epochs, self.needs)

    def loss(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Tensor]:
        cosine = masked_cosine(s.hidden[-1], t.hidden[-1], s.mask)
        return super().loss(s, t, rows, clock) | {"cosine": cosine}
