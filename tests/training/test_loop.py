"""The training loop: teacher and student facts, phases, selection, and independence of plumbing."""

from __future__ import annotations

import errno
import math
import os
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toys
from closeness import RELATIVE, close
from pytorch_lightning.loggers.logger import DummyLogger
from safetensors.torch import load_file
from torch import Tensor, nn

from ilkd_bench.functional import layermaps
from ilkd_bench.methods.finetune import Finetune
from ilkd_bench.models.model import Model
from ilkd_bench.plumbing.full_disk import NoSpace, full_disk_told
from ilkd_bench.teachers.live import LiveTeacher
from ilkd_bench.training import evaluation, loop
from ilkd_bench.training.module import DistillModule, Optimisation
from ilkd_bench.types import Clock, Outputs, Phase, Rows


class Watched(Finetune):
    """`ce`, and a call of ``watch`` in every training step. It holds no model."""

    def __init__(self, watch: Callable[[Outputs, Outputs, Clock], None]) -> None:
        super().__init__(toys.spec(2), toys.spec(3))
        self._watch = watch

    def loss(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Tensor]:
        self._watch(s, t, clock)
        return super().loss(s, t, rows, clock)


def scripted(scores: Iterable[float]) -> Callable[[Tensor, Tensor], dict[str, float]]:
    """A score that gives these values, one per validation, whatever the predictions."""
    values = iter(scores)
    return lambda logits, labels: {"made": next(values)}


def constant(logits: Tensor, labels: Tensor) -> dict[str, float]:
    return {"made": 0.0}


def train(
    student: Model,
    method: Any,
    folder: Path,
    *,
    teacher: Any = None,
    phases: list[Phase] | None = None,
    weights: dict[str, float] | None = None,
    score: Any = constant,
    **rest: Any,
) -> loop.Fitted:
    given = {k: rest.pop(k) for k in ("snapshots", "logger") if k in rest}
    data = rest.pop("splits", None) or toys.splits()
    return loop.fit(
        student,
        method,
        weights or {"ce": 1.0},
        teacher,
        data,
        phases=phases or [Phase("only", 2, frozenset())],
        settings=toys.fit_settings(**rest),
        score=score,
        monitor="made",
        folder=folder,
        title="test",
        **given,
    )


def weights_of(model: nn.Module) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    """Compare to the last bit: copies, or trainings with the same steps in this process."""
    return a.keys() == b.keys() and all(torch.equal(value, b[name]) for name, value in a.items())


def without_times(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if k != "seconds"} for row in history]


# -------------------------------------------------------------------------- teacher and student


def test_student_trains_and_teacher_stays_still_in_every_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In both phases, after validations too; nor is the teacher optimised or checkpointed."""
    student, model = toys.model(layers=2), toys.model(layers=3, seed=1)
    before = weights_of(model)
    teacher = LiveTeacher(model)
    student.eval()  # as from_pretrained leaves it
    steps, saved, optimised = [], [], []

    def watch(s: Outputs, t: Outputs, clock: Clock) -> None:
        dropouts = [m for m in student.modules() if isinstance(m, nn.Dropout)]
        steps.append(
            {
                "phase": clock.phase.name,
                "student": student.training and dropouts and all(m.training for m in dropouts),
                "teacher": any(m.training for m in model.modules()),
                "frozen": not any(p.requires_grad for p in model.parameters()),
                "no_graph": not t.logits.requires_grad,
            }
        )
        saved.extend(
            torch.load(path, weights_only=True)["state_dict"] for path in tmp_path.rglob("*.ckpt")
        )

    configure = DistillModule.configure_optimizers

    def recorded(self: DistillModule) -> Any:
        chosen = configure(self)
        optimised.extend(p for g in chosen["optimizer"].param_groups for p in g["params"])
        return chosen

    monkeypatch.setattr(DistillModule, "configure_optimizers", recorded)
    phases = [Phase("first", 2, frozenset({"logits"})), Phase("second", 2, frozenset({"logits"}))]
    train(student, Watched(watch), tmp_path, teacher=teacher, phases=phases)

    assert [step["phase"] for step in steps] == ["first"] * 6 + ["second"] * 6
    for step in steps:
        assert step["student"] and not step["teacher"] and step["frozen"] and step["no_graph"]
    assert saved, "no checkpoint was written before the last step"
    for state in saved:
        assert all(name.startswith("student.") for name in state)
        assert sum(v.numel() for v in state.values()) == sum(
            v.numel() for v in student.state_dict().values()
        )
    of_student, of_teacher = ({id(p) for p in m.parameters()} for m in (student, model))
    table: Any = student.hf.get_input_embeddings().weight
    (words,) = {p for p in optimised if id(p) not in of_student}  # in the place of the table
    assert words.shape[0] < table.shape[0] and words.shape[1] == table.shape[1]
    assert {id(p) for p in optimised} == of_student - {id(table)} | {id(words)}
    assert not of_teacher & of_student
    assert same(before, weights_of(model))
    assert all(p.grad is None for p in model.parameters())


@pytest.mark.parametrize("name", ["rail_l", "rail_c", "pkd", "alp", "codir", "universal"])
def test_every_parameter_of_student_and_method_moves_and_none_of_the_teacher(
    name: str, tmp_path: Path
) -> None:
    student, model = toys.model(layers=2, width=8), toys.model(layers=3, width=12, seed=1)
    method = toys.method(name, student.spec, model.spec)
    data = toys.splits()
    method.prepare(data["train"].labels, data["train"].index)
    before, fixed = weights_of(student) | weights_of(method), weights_of(model)
    train(
        student,
        method,
        tmp_path,
        splits=data,
        teacher=LiveTeacher(model),
        weights=toys.method_settings(name)["weights"],
        phases=[replace(phase, epochs=1) for phase in method.phases(1)],
        score=scripted([1.0]),
    )
    after = weights_of(student) | weights_of(method)
    # moving all keys together changes no attention, so their bias has no gradient by nature
    still = {
        k for k, v in after.items() if torch.equal(v, before[k]) and not k.endswith("key.bias")
    }
    assert not {k for k in still if "position_ids" not in k and "token_type_ids" not in k}
    assert same(fixed, weights_of(model))


def test_losses_are_computed_in_32_bit_under_mixed_precision(tmp_path: Path) -> None:
    seen = []

    def watch(s: Outputs, t: Outputs, clock: Clock) -> None:
        seen.append((s.logits.dtype, s.mean.dtype, s.cls.dtype, torch.is_autocast_enabled("cpu")))

    phase = Phase("only", 1, frozenset({"logits", "mean", "cls"}))
    train(toys.model(), Watched(watch), tmp_path, phases=[phase], precision="bf16-mixed")
    assert set(seen) == {(torch.float32, torch.float32, torch.float32, False)}


# ------------------------------------------------------------------------------------ the history


def test_history_has_a_row_per_epoch_with_every_term_and_the_weighted_total(
    tmp_path: Path,
) -> None:
    student, model = toys.model(layers=2), toys.model(layers=3, seed=1)
    method = toys.method("pkd", student.spec, model.spec)
    weights = {"ce": 0.3, "kd": 0.6, "pkd": 50}
    fitted = train(
        student,
        method,
        tmp_path,
        teacher=LiveTeacher(model),
        weights=weights,
        phases=method.phases(3),
        score=lambda logits, labels: {"made": 0.5, "rows": float(len(labels))},
    )
    assert [row["epoch"] for row in fitted.history] == [1, 2, 3]
    for row in fitted.history:
        assert row["phase"] == "distill"
        assert row["rows"] == 24
        assert row["dev/made"] == 0.5 and row["dev/rows"] == 10
        total = sum(weight * row[f"loss/{term}"] for term, weight in weights.items())
        assert row["loss/total"] == pytest.approx(total, rel=RELATIVE)
        assert row["loss/ce"] > 0 and row["loss/kd"] > 0 and row["loss/pkd"] > 0
    assert fitted.examples == 72
    assert fitted.seconds == sum(row["seconds"] for row in fitted.history) > 0


def test_epoch_means_weigh_every_row_equally(tmp_path: Path) -> None:
    """23 rows in batches of 8: the short batch counts for what it has."""
    student = toys.model(dropout=0.0)
    data = {"train": toys.split(23), "dev": toys.split(10, seed=2)}
    with torch.no_grad():
        tokens = data["train"].student.batch(np.arange(23))
        logits = student.eval().outputs(tokens, frozenset()).logits
        expected = nn.functional.cross_entropy(logits, data["train"].labels).item()
    still = Optimisation(lr=1e-12, weight_decay=0.0, warmup_ratio=0.0)
    fitted = train(
        student,
        Finetune(student.spec, student.spec),
        tmp_path,
        splits=data,
        phases=[Phase("only", 1, frozenset())],
        optimisation=still,
    )
    assert fitted.history[0]["loss/ce"] == pytest.approx(expected, rel=RELATIVE)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_a_loss_that_is_not_finite_ends_the_training_with_a_hint(
    value: float, tmp_path: Path
) -> None:
    class Broken(Finetune):
        def loss(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Tensor]:
            return {"ce": s.logits.sum() * value}

    student = toys.model()
    with pytest.raises(FloatingPointError) as error:
        train(student, Broken(student.spec, student.spec), tmp_path)
    assert "the loss (ce, total) is not finite in epoch 1 of phase only" in str(error.value)
    assert "lr=" in str(error.value)


def test_answers_on_dev_that_are_not_finite_end_the_training_too(tmp_path: Path) -> None:
    """The last step may break a student whose losses were all finite."""

    class Breaks(Finetune):
        def loss(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Tensor]:
            with torch.no_grad():
                student.hf.classifier.bias += math.nan
            return {"ce": s.logits.detach().nan_to_num().sum() + student.hf.classifier.weight.sum()}

    student = toys.model()
    optimisation = Optimisation(1e-2, 0.0, 0.0, "teacher.recipe.lr")
    with pytest.raises(FloatingPointError) as error:
        train(student, Breaks(student.spec, student.spec), tmp_path, optimisation=optimisation)
    assert "the logits on dev are not finite in epoch 1 of phase only" in str(error.value)
    assert "a lower teacher.recipe.lr=" in str(error.value)


# ------------------------------------------------------------------------------ phases, selection


def test_the_last_weights_go_on_to_the_next_phase_with_a_fresh_optimiser(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though the first epoch of the first phase was its best."""
    student = toys.model()
    carried, optimisers, states = [], [], []
    configure = DistillModule.configure_optimizers

    def recorded(self: DistillModule) -> Any:
        chosen = configure(self)
        optimisers.append(chosen["optimizer"])
        return chosen

    def watch(s: Outputs, t: Outputs, clock: Clock) -> None:
        if clock.step == 0:
            states.append(len(optimisers[-1].state))
            if clock.phase.name == "second":
                carried.append(weights_of(student.hf))
                carried.append(load_file(tmp_path / "kept" / "epoch-002.safetensors"))

    monkeypatch.setattr(DistillModule, "configure_optimizers", recorded)
    fitted = train(
        student,
        Watched(watch),
        tmp_path,
        phases=[Phase("first", 2, frozenset()), Phase("second", 3, frozenset())],
        score=scripted([0.9, 0.1, 0.2, 0.5, 0.4]),
        snapshots=tmp_path / "kept",
    )
    first_step, end_of_first_phase = carried
    assert same(first_step, end_of_first_phase)
    assert len(optimisers) == 2 and optimisers[0] is not optimisers[1]
    assert states == [0, 0]
    assert fitted.best_epoch == 4, "the best of the last phase, counted over all phases"
    kept = load_file(tmp_path / "kept" / "epoch-002.safetensors")  # of the last phase
    assert same(weights_of(student.hf), kept)
    assert not same(weights_of(student.hf), load_file(tmp_path / "kept" / "epoch-003.safetensors"))
    assert [row["epoch"] for row in fitted.history] == [1, 2, 3, 4, 5]
    assert [row["phase"] for row in fitted.history] == ["first"] * 2 + ["second"] * 3
    assert [row["lr"] for row in fitted.history][1::3] == [0.0, 0.0], "each schedule ends at 0"
    assert not list(tmp_path.rglob("*.ckpt")), "a checkpoint is left"


@pytest.mark.runs
@pytest.mark.parametrize(("carry", "epoch"), [("last", 3), ("best", 2)])
@pytest.mark.parametrize("killed", [None, ("first", 2), ("second", 0), ("second", 1)], ids=str)
def test_a_phase_says_which_of_its_weights_the_next_one_starts_from(
    carry: Any, epoch: int, killed: tuple[str, int] | None, tmp_path: Path
) -> None:
    """Its last, or its best on dev; also when the training is killed and goes on."""
    student = toys.model()
    started: list[dict[str, Tensor]] = []
    kept: list[dict[str, Tensor]] = []
    epochs: list[int] = []

    def watch(s: Outputs, t: Outputs, clock: Clock) -> None:
        moment = (clock.phase.name, clock.epoch)
        epochs.append(clock.epoch + (0 if clock.phase.name == "first" else 3))
        if moment == ("second", 0) and clock.step == 0:
            started.append(weights_of(student.hf))
            names = [f"epoch-{number:03d}.safetensors" for number in (1, 2, 3)]
            kept.extend(load_file(tmp_path / "kept" / name) for name in names)
        if moment == killed and epochs.count(epochs[-1]) == 2:
            raise Killed

    def once() -> loop.Fitted:
        return train(
            student,
            Watched(watch),
            tmp_path,
            phases=[
                Phase("first", 3, frozenset(), carry=carry),
                Phase("second", 2, frozenset()),
            ],
            score=lambda logits, labels: {"made": (0.3, 0.9, 0.1, 0.2, 0.15)[epochs[-1]]},
            snapshots=tmp_path / "kept",
            patience=1,  # the first phase is not stopped though it has become worse
        )

    if killed is not None:
        with pytest.raises(Killed):
            once()
        student.load_state_dict(toys.model(seed=9).state_dict())  # as a new process, knows nothing
    fitted = once()
    assert started and all(same(weights, kept[epoch - 1]) for weights in started)
    assert not same(kept[1], kept[2])
    assert [row["phase"] for row in fitted.history] == ["first"] * 3 + ["second"] * 2
    assert fitted.best_epoch == 4, "of the last phase"
    assert not list(tmp_path.rglob("*.ckpt"))


@pytest.mark.parametrize("scores", [[0.0, 0.0], [-0.3, -0.1]], ids=["zero", "negative"])
def test_a_collapsed_student_is_saved_and_counted(scores: list[float], tmp_path: Path) -> None:
    student = toys.model()
    fitted = train(
        student,
        Finetune(student.spec, student.spec),
        tmp_path,
        score=scripted(scores),
        snapshots=tmp_path / "kept",
    )
    assert fitted.best_epoch == (1 if scores[0] == scores[1] else 2)
    kept = load_file(tmp_path / "kept" / f"epoch-{fitted.best_epoch:03d}.safetensors")
    assert same(weights_of(student.hf), kept)


def test_stopping_waits_for_patience_and_watches_the_last_phase_only(tmp_path: Path) -> None:
    student = toys.model()
    fitted = train(
        student,
        Finetune(student.spec, student.spec),
        tmp_path,
        phases=[Phase("first", 4, frozenset()), Phase("second", 6, frozenset())],
        score=scripted([0.9, 0.8, 0.7, 0.6, 0.2, 0.3, 0.1, 0.25, 0.9, 0.9]),
        patience=2,
    )
    assert [row["phase"] for row in fitted.history] == ["first"] * 4 + ["second"] * 4
    assert fitted.best_epoch == 6


def test_a_phase_may_have_its_own_learning_rate(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates, configure = [], DistillModule.configure_optimizers

    def recorded(self: DistillModule) -> Any:
        chosen = configure(self)
        rates.append(chosen["optimizer"].defaults["lr"])
        return chosen

    monkeypatch.setattr(DistillModule, "configure_optimizers", recorded)
    student = toys.model()
    phases = [
        Phase("own", 1, frozenset(), lr=3e-4),
        Phase("common", 1, frozenset()),
        Phase("slower", 1, frozenset(), lr_factor=0.5),
    ]
    train(student, Finetune(student.spec, student.spec), tmp_path, phases=phases)
    assert rates == [3e-4, 1e-2, 5e-3]


def test_biases_and_norms_are_not_decayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decay, configure = {}, DistillModule.configure_optimizers

    def recorded(self: DistillModule) -> Any:
        chosen = configure(self)
        names = {id(p): name for name, p in self.named_parameters()}
        for group in chosen["optimizer"].param_groups:
            decay.update({names[id(p)]: group["weight_decay"] for p in group["params"]})
        return chosen

    monkeypatch.setattr(DistillModule, "configure_optimizers", recorded)
    student = toys.model()
    train(student, Finetune(student.spec, student.spec), tmp_path)
    assert decay.keys() == {f"student.{name}" for name, _ in student.named_parameters()}
    free = {name for name, value in decay.items() if value == 0}
    assert free == {n for n in decay if n.endswith(".bias") or "LayerNorm" in n}
    assert {decay[name] for name in decay.keys() - free} == {0.01}


# ------------------------------------------------------------- the same numbers whatever surrounds


class Drawing(DummyLogger):
    """A logger that takes random numbers from every global source."""

    def log_metrics(self, *args: Any, **kwargs: Any) -> None:
        torch.rand(3)
        np.random.rand(3)
        random.random()


def rail_run(
    folder: Path, *, state: int = 5, **rest: Any
) -> tuple[list[dict[str, Any]], dict[str, Tensor]]:
    """A RAIL training that starts with the global random numbers in this state."""
    student, model = toys.model(layers=3), toys.model(layers=6, seed=1)
    torch.manual_seed(5)  # of the projections
    method = toys.method("rail_l", student.spec, model.spec)
    torch.manual_seed(state)
    np.random.seed(state)
    random.seed(state)
    fitted = train(
        student,
        method,
        folder,
        teacher=LiveTeacher(model),
        weights=toys.method_settings("rail_l")["weights"],
        phases=method.phases(4),
        score=lambda logits, labels: {"made": logits.double().sum().item()},
        **rest,
    )
    return without_times(fitted.history), weights_of(student) | weights_of(method)


@pytest.mark.runs
def test_rail_layers_come_from_seed_and_epoch_whatever_else_draws(tmp_path: Path) -> None:
    for seed in (0, 3):
        expected = [
            " ".join(map(str, layermaps.random_layers(6, 3, at=(seed, epoch), order="sorted")))
            for epoch in range(4)
        ]
        assert len(set(expected)) > 1
        for logger in (False, Drawing()):
            history, _ = rail_run(tmp_path / f"{seed}{bool(logger)}", seed=seed, logger=logger)
            assert [row["layers"] for row in history] == expected


@pytest.mark.runs
@pytest.mark.parametrize(
    "change", ["repeat", "workers", "logger", "drawing_logger", "callback", "global_state"]
)
def test_nothing_around_the_training_changes_its_numbers(change: str, tmp_path: Path) -> None:
    history, weights = rail_run(tmp_path / "plain")
    more: dict[str, Any] = {
        "workers": {"workers": 2},
        "logger": {"logger": DummyLogger()},
        "drawing_logger": {"logger": Drawing()},  # between epochs, when the score is logged
        "callback": {"snapshots": tmp_path / "kept"},
        "global_state": {"state": 99},
    }.get(change, {})
    again, weights_again = rail_run(tmp_path / change, **more)
    assert history == again
    assert same(weights, weights_again)


def test_another_seed_gives_other_numbers(tmp_path: Path) -> None:
    history, weights = rail_run(tmp_path / "a")
    other, other_weights = rail_run(tmp_path / "b", seed=1)
    assert history[0]["loss/total"] != other[0]["loss/total"]
    assert not same(weights, other_weights)


# ------------------------------------------------------------------------------ kills and resuming


class Killed(BaseException):
    """The end of a process, as far as the training can tell."""


LONG = pytest.mark.kills
SCORES = (0.2, 0.9, 0.9, 0.3, 0.5)  # in the order of the epochs, whenever they are trained
PHASES = [Phase("first", 2, frozenset()), Phase("second", 3, frozenset())]
CARRIES_BEST = [replace(PHASES[0], carry="best"), PHASES[1]]


def resumable(
    folder: Path,
    scores: Sequence[float] = SCORES,
    watch: Any = None,
    phases: list[Phase] = PHASES,
) -> tuple[list[dict[str, Any]], int, dict[str, Tensor]]:
    """A training of two phases whose dev score depends on the epoch alone."""
    student = toys.model()
    epochs: list[int] = []

    def watched(s: Outputs, t: Outputs, clock: Clock) -> None:
        epochs.append(clock.epoch + (0 if clock.phase.name == "first" else 2))
        if watch is not None:
            watch(clock)

    fitted = train(
        student,
        Watched(watched),
        folder,
        phases=phases,
        score=lambda logits, labels: {"made": scores[epochs[-1]]},
        patience=2,
    )
    return without_times(fitted.history), fitted.best_epoch, weights_of(student)


def until_it_ends(folder: Path, train_once: Callable[[Path], Any]) -> tuple[Any, int]:
    """Train again after every kill; return the result and the number of kills."""
    for kills in range(100):
        try:
            return train_once(folder), kills
        except Killed:
            assert list(folder.rglob("*")), "nothing was kept"
    raise AssertionError("it never ends")


@pytest.mark.parametrize(
    ("scores", "phases"),
    [
        (SCORES, PHASES),
        pytest.param((0.9, 0.1, 0.9, 0.5, 0.4), PHASES, marks=LONG),
        pytest.param((0.1, 0.2, 0.3, 0.4, 0.5), PHASES, marks=LONG),
        pytest.param((0.9, 0.1, 0.9, 0.5, 0.4), CARRIES_BEST, marks=LONG),
    ],
    ids=lambda value: str(value) if isinstance(value[0], float) else value[0].carry,
)
@pytest.mark.parametrize("moment", ["before", pytest.param("after", marks=LONG)])
def test_a_kill_around_any_rename_changes_nothing(
    phases: list[Phase],
    moment: str,
    scores: tuple[float, ...],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One training is killed at every checkpoint that it writes, or removes, in turn."""
    expected = resumable(tmp_path / "whole", scores, phases=phases)
    replace = os.replace
    seen: set[Any] = set()

    def killing(source: Any, target: Any) -> None:
        if moment == "after":
            replace(source, target)
        key = (Path(target).name, epoch_of[-1])
        if key not in seen:
            seen.add(key)
            raise Killed
        if moment == "before":
            replace(source, target)

    epoch_of: list[Any] = [None]

    def once(folder: Path) -> Any:
        return resumable(
            folder,
            scores,
            watch=lambda clock: epoch_of.append((clock.phase.name, clock.epoch)),
            phases=phases,
        )

    monkeypatch.setattr(os, "replace", killing)
    found, kills = until_it_ends(tmp_path / "killed", once)
    assert kills >= len(expected[0]) + 2, "a checkpoint per epoch, and those of the best"
    assert found[0] == expected[0] and found[1] == expected[1]
    assert same(found[2], expected[2])
    assert not list((tmp_path / "killed").rglob("*.ckpt"))


@pytest.mark.kills
@pytest.mark.parametrize("error", [KeyboardInterrupt, Killed])
def test_a_training_that_is_stopped_in_any_step_goes_on(
    error: type[BaseException], tmp_path: Path
) -> None:
    """Ctrl-C and a kill; what is finished is not trained again."""
    expected = resumable(tmp_path / "whole")
    for step in (0, 4, 8, 10, 13):
        trained: list[tuple[str, int]] = []

        def watch(clock: Clock, step: int = step, trained: Any = trained) -> None:
            trained.append((clock.phase.name, clock.epoch))
            if len(trained) == step + 1:
                raise error

        folder = tmp_path / f"{error.__name__}{step}"
        with pytest.raises(error):
            resumable(folder, watch=watch)
        found = resumable(folder, watch=watch)
        assert found[0] == expected[0] and found[1] == expected[1]
        assert same(found[2], expected[2])
        assert len(trained) == 3 * len(expected[0]) + step % 3 + 1, "the steps of broken epochs"
        assert not list(folder.rglob("*.ckpt"))


@pytest.mark.parametrize("which", ["phase-2.ckpt", pytest.param("best.ckpt", marks=LONG)])
@pytest.mark.parametrize(
    "damage", ["flipped", *(pytest.param(d, marks=LONG) for d in ("truncated", "empty", "garbage"))]
)
def test_a_damaged_checkpoint_is_noticed(damage: str, which: str, tmp_path: Path) -> None:
    expected = resumable(tmp_path / "whole")
    steps = []

    def watch(clock: Clock) -> None:
        steps.append(clock)
        if len(steps) == 11:
            raise Killed

    folder = tmp_path / "killed"
    with pytest.raises(Killed):
        resumable(folder, watch=watch)
    path = folder / "checkpoint" / which
    content = bytearray(path.read_bytes())
    half = len(content) // 2
    content[half] ^= 0x40
    path.write_bytes(
        {
            "truncated": bytes(content[:half]),
            "flipped": bytes(content),
            "empty": b"",
            "garbage": b"\x93" * 9999,
        }[damage]
    )
    found = resumable(folder)
    assert found[0] == expected[0] and found[1] == expected[1]
    assert same(found[2], expected[2])


@pytest.mark.parametrize(
    "damage", ["rotten", *(pytest.param(d, marks=LONG) for d in ("missing", "none"))]
)
def test_snapshots_of_a_half_training_are_verified(
    damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    epochs: list[int] = []

    def watch(s: Outputs, t: Outputs, clock: Clock) -> None:
        epochs.append(clock.epoch)
        if len(epochs) == 8:
            raise Killed

    def once() -> None:
        only = [Phase("only", 3, frozenset())]
        kept = tmp_path / "snapshots"
        train(toys.model(), Watched(watch), tmp_path, phases=only, snapshots=kept)

    with pytest.raises(Killed):
        once()
    first = tmp_path / "snapshots/epoch-001.safetensors"
    content, stat = bytearray(first.read_bytes()), first.stat()
    if damage == "rotten":
        content[-7] ^= 1
        first.write_bytes(content)
        os.utime(first, ns=(stat.st_atime_ns, stat.st_mtime_ns))
    elif damage == "missing":
        first.unlink()
    del epochs[:]
    epochs += [9] * 8  # no more kills
    once()
    assert epochs[8] == (2 if damage == "none" else 0)
    assert ("the training starts again" in caplog.text) == (damage != "none")
    assert len(list((tmp_path / "snapshots").iterdir())) == 3


def test_a_checkpoint_that_does_not_fit_on_the_disk_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk's error is torch's by the time that it arrives: `unexpected pos`."""

    def save(content: Any, file: Any) -> None:
        try:
            raise OSError(errno.ENOSPC, "No space left on device")
        except OSError as error:
            raise RuntimeError(
                "[enforce fail at inline_container.cc:664] . unexpected pos"
            ) from error

    monkeypatch.setattr(torch, "save", save)
    with pytest.raises(NoSpace) as error, full_disk_told(tmp_path, "type results_dir=DIR"):
        resumable(tmp_path)
    assert f"no space left on the disk of {tmp_path}" in str(error.value)
    assert "results_dir=DIR" in str(error.value)


def test_a_training_that_fails_keeps_no_checkpoint(tmp_path: Path) -> None:
    """Trying again the same way would meet the same end."""

    def watch(clock: Clock) -> None:
        if clock.phase.name == "second":
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        resumable(tmp_path, watch=watch)
    assert not list(tmp_path.rglob("*.ckpt"))


def test_a_killed_training_goes_on_after_its_folder_has_moved(tmp_path: Path) -> None:
    expected = resumable(tmp_path / "whole")

    def watch(clock: Clock) -> None:
        if clock.phase.name == "second" and clock.epoch == 1:
            raise Killed

    with pytest.raises(Killed):
        resumable(tmp_path / "here", watch=watch)
    (tmp_path / "here").rename(tmp_path / "there")
    found = resumable(tmp_path / "there")
    assert found[0] == expected[0] and found[1] == expected[1]
    assert same(found[2], expected[2])


# ------------------------------------------------------------------------------------ predictions


@pytest.mark.parametrize("size", [1, 3, 8])
def test_predictions_are_in_row_order_at_any_batch_size(size: int) -> None:
    model, data = toys.model(classes=3), toys.split(13, classes=3)
    with torch.no_grad():
        rows = [data.student.batch(np.array([i])) for i in range(13)]
        expected = torch.cat([model.outputs(row, frozenset()).logits for row in rows])
    found = evaluation.predict(
        lambda batch: model.outputs(batch["student"], frozenset()), data, size, torch.device("cpu")
    )
    close(found, expected)
