"""TAKD, teacher assistants (Mirzadeh et al., AAAI 2020, arXiv 1902.03393).

Between teacher and student stand one or more assistants of a size in between. The teacher teaches
the first one, each assistant the next, and the last one the student, every time by

    loss = (1 - w) ce + w T^2 KL(one above || pupil)

An assistant is distilled once, stored like a teacher, and used by all runs. It is trained by the
teacher's recipe (epochs, learning rate, batch size, seed), so that no seed, learning rate or batch
size of the runs that it serves makes another one; that is ours. w and T for text are not known:
those of `vanilla` are taken.
"""

from __future__ import annotations

from ilkd_bench.methods.base import positive
from ilkd_bench.methods.vanilla import Vanilla
from ilkd_bench.types import BadInput, Incompatible, Spec


class TAKD(Vanilla):
    """Learn from labels and the logits of the last assistant: `ce`, `kd`.

    Args:
        assistants: one, or a list from the teacher downwards; each a number of layers (so many of
            the fine-tuned teacher, evenly spaced) or the name of a student in conf/student. `auto`:
            one, halfway.
    """

    def __init__(
        self,
        student: Spec,
        teacher: Spec,
        *,
        temperature: float,
        assistants: int | str | list[int | str],
    ) -> None:
        super().__init__(student, teacher, temperature=temperature)
        if assistants == "auto":
            assistants = -(-(student.layers + teacher.layers) // 2)
        chain = assistants if isinstance(assistants, list) else [assistants]
        if "auto" in chain:
            raise BadInput(f"method.assistants={assistants}: auto stands alone, in no list")
        if not chain:
            raise BadInput("method.assistants=[]: without assistants this is method=vanilla")
        depths = [
            positive("assistants", depth, whole=True)
            for depth in chain
            if not isinstance(depth, str)
        ]
        falling = [teacher.layers, *depths, student.layers]
        if depths and falling != sorted(set(falling), reverse=True):
            raise Incompatible(
                f"assistants of {', '.join(map(str, depths))} layers do not lie between a teacher "
                f"of {teacher.layers} and a student of {student.layers} layers, each below the last"
            )
        self.assistants = tuple(chain)
