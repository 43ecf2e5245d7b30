"""What a training step shows to the loss, and how terms are added up."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import toys
from pytorch_lightning.plugins import MixedPrecision
from torch import nn

from ilkd_bench.methods.finetune import Finetune
from ilkd_bench.teachers.live import LiveTeacher
from ilkd_bench.training.module import DistillModule, Optimisation, both_outputs, weighted_sum
from ilkd_bench.types import Outputs, Phase


class Asked:
    """A teacher that notes what it is asked for."""

    def __init__(self) -> None:
        self.calls: list[tuple[frozenset[str], float | None]] = []

    def to(self, device: torch.device) -> None: ...

    def outputs(
        self, batch: dict[str, Any], needs: frozenset[str], at: float | None = None
    ) -> Outputs:
        self.calls.append((needs, at))
        rows = len(batch["labels"])
        return Outputs(torch.zeros(rows, 2), batch["teacher"]["attention_mask"])


SLOW, DECAYING = Optimisation(1e-3, 0.0, 0.0), Optimisation(1e-2, 0.1, 0.0)


def module(teacher: Any, phase: Phase, optimisation: Optimisation = SLOW) -> DistillModule:
    student = toys.model()
    return DistillModule(
        student,
        Finetune(student.spec, student.spec),
        {"ce": 1.0},
        teacher,
        phase=phase,
        first_epoch=0,
        seed=0,
        optimisation=optimisation,
        score=lambda logits, labels: {"made": 0.0},
        monitor="made",
    )


def test_weighted_sum_is_the_sum_of_terms_times_weights() -> None:
    terms = {"ce": torch.tensor(2.0), "kd": torch.tensor(0.5), "off": torch.tensor(9.0)}
    assert weighted_sum(terms, {"ce": 0.25, "kd": 4.0, "off": 0, "later": 7.0}).item() == 2.5


def test_weighted_sum_names_the_term_that_has_no_weight() -> None:
    terms = {"ce": torch.tensor(2.0), "b": torch.tensor(0.5), "a": torch.tensor(1.0)}
    with pytest.raises(ValueError) as error:
        weighted_sum(terms, {"ce": 1.0})
    assert str(error.value) == ("no weight for the loss term a, b: add it to the method's weights")


def test_the_teacher_is_asked_for_what_the_phase_needs_when_it_needs_it() -> None:
    teacher, student, rows = Asked(), toys.model(), toys.split(4)[np.arange(4)]
    phase = Phase("p", 4, frozenset({"logits", "cls"}), teacher_at=lambda epoch: (epoch + 1) / 4)
    s, t, batch = both_outputs(student, teacher, rows, toys.clock(phase, epoch=2))
    assert teacher.calls == [({"logits", "cls"}, 0.75)]
    assert s.cls.shape == (4, 3, 8) and t.logits.shape == (4, 2)
    assert torch.equal(batch.labels, rows["labels"]) and torch.equal(batch.index, rows["index"])


def test_a_phase_that_needs_nothing_does_not_run_the_teacher() -> None:
    teacher, rows = Asked(), toys.split(4)[np.arange(4)]
    phase = Phase("p", 4, frozenset())
    s, t, _ = both_outputs(toys.model(), teacher, rows, toys.clock(phase))
    assert teacher.calls == [] and t is None
    assert s.cls is None and s.mean is None and s.hidden == () and s.attention == ()


def test_student_and_teacher_each_read_their_own_tokens() -> None:
    rows = toys.split(4)[np.arange(4)]
    rows["teacher"] = toys.split(4, seed=5)[np.arange(4)]["student"]
    student, model = toys.model(dropout=0.0), toys.model(layers=3, seed=3)
    phase = Phase("p", 1, frozenset({"logits"}))
    with torch.no_grad():
        s, t, _ = both_outputs(student, LiveTeacher(model), rows, toys.clock(phase))
        own = student.outputs(rows["student"], frozenset()).logits
        other = model.outputs(rows["teacher"], frozenset()).logits
    assert torch.equal(s.logits, own) and torch.equal(t.logits, other)


def test_the_teacher_is_no_part_of_the_module() -> None:
    model = toys.model(layers=3)
    made = module(LiveTeacher(model), Phase("p", 1, frozenset({"logits"})))
    assert all(name.startswith("student.") for name in made.state_dict())
    inside = {id(part) for part in made.modules()}
    assert not inside & {id(part) for part in model.modules()}
    made.train()
    assert not any(part.training for part in model.modules())


def test_train_mode_reaches_every_part_of_the_student() -> None:
    made = module(None, Phase("p", 1, frozenset()))
    assert not made.student.hf.training, "a loaded model is in eval mode"
    made.train()
    parts = [part for part in made.student.modules() if isinstance(part, nn.Dropout)]
    assert parts and all(part.training for part in parts)


@pytest.mark.parametrize("scale", [1.0, 1024.0])
def test_a_loss_scale_changes_neither_the_clipping_nor_the_step(scale: float) -> None:
    """16-bit training as Lightning does it, against plain AdamW on the true gradients.

    In between a gradient overflows: that step is left out, and the scale is halved.
    """
    made = module(None, Phase("p", 2, frozenset()), DECAYING)
    made._trainer = SimpleNamespace(estimated_stepping_batches=100)
    optimizer = made.configure_optimizers()["optimizer"]
    assert optimizer.defaults["fused"]
    parameters = [p for group in optimizer.param_groups for p in group["params"]]
    copies = [p.detach().clone().requires_grad_() for p in parameters]
    own = iter(copies)
    plain = torch.optim.AdamW(
        [
            {"params": [next(own) for _ in group["params"]], "weight_decay": group["weight_decay"]}
            for group in optimizer.param_groups
        ],
        lr=DECAYING.lr,
        fused=False,
    )
    scaler = torch.amp.GradScaler("cpu", init_scale=scale)
    precision = MixedPrecision("16-mixed", "cpu", scaler=scaler)
    generator = torch.Generator().manual_seed(0)
    for size in (1.0, 1e-3, float("inf"), 10.0):  # clipped, not clipped, left out, clipped
        gradients = [torch.randn(p.shape, generator=generator) for p in parameters]
        gradients = [g * min(size, 10.0) for g in gradients]
        if size == float("inf"):
            gradients[3].view(-1)[0] = size
        before = [p.detach().clone() for p in parameters]
        optimizer.zero_grad()
        loss = sum((p * g).sum() for p, g in zip(parameters, gradients, strict=True))
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        precision.clip_gradients(optimizer, clip_val=1.0)
        scaler.step(optimizer)
        scaler.update()
        moved = not all(torch.equal(a, b) for a, b in zip(before, parameters, strict=True))
        assert moved == (size < float("inf"))
        if moved:
            for copy, gradient in zip(copies, gradients, strict=True):
                copy.grad = gradient.clone()
            torch.nn.utils.clip_grad_norm_(copies, 1.0)
            plain.step()
        for mine, other in zip(parameters, copies, strict=True):
            torch.testing.assert_close(mine, other, rtol=0, atol=1e-6)
    assert scaler.get_scale() == scale / 2
