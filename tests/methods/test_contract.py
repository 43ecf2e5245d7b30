"""The contract that every method meets, over every ``conf/method/*.yaml``."""

from __future__ import annotations

import inspect
import json
import pkgutil
import random
from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
import toys
from closeness import EPS, RELATIVE
from torch import Tensor

from ilkd_bench.methods.base import Method
from ilkd_bench.teachers.live import LiveTeacher
from ilkd_bench.teachers.per_token import PER_TOKEN
from ilkd_bench.training.loop import check_terms
from ilkd_bench.training.module import both_outputs, weighted_sum
from ilkd_bench.types import NEEDS, BadInput, Clock, Incompatible, Rows, Spec

FILES = {path.stem: json.loads(path.read_text("utf-8")) for path in toys.VECTORS.glob("*.json")}
PAIRS = {  # (student layers, width), (teacher layers, width)
    "12to6": ((6, 4), (12, 4)),
    "12to6_wider_teacher": ((6, 4), (12, 6)),
    "4to3_narrower_teacher": ((3, 6), (4, 4)),
}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    *((name, {}) for name in toys.METHODS),
    ("pkd", {"normalize": False}),
    ("alp", {"scale": "sqrt_width", "include_last": True}),
    ("alp", {"buckets": "no"}),
    ("alp", {"buckets": "po", "include_last": True}),
    ("rail_l", {"projection": "per_layer"}),
    ("rail_l", {"resample": "step"}),
    ("pro_kd", {"smoothing": "divide"}),
    ("ckd", {"groups": "overlap", "feature": "mean"}),
    ("ckd", {"groups": "skip_middle"}),
    ("ckd", {"groups": "cross"}),
    ("tinybert", {"regression": "labels"}),
    ("codir", {"feature": "mean", "negatives": 3}),
    ("universal", {"feature": "mean"}),
]
OWN_LAYERS = {n: f["intermediate"] for n, f in sorted(FILES.items()) if "intermediate" in f}
"""Methods that compare layers 1..m-1 only, and the term that does; told by their vectors."""

OF_NO_ROW = {name: file["of_no_row"] for name, file in FILES.items() if "of_no_row" in file}
"""Terms that do not depend on the row of the teacher; told by the vectors, too."""


def named(variant: tuple[str, dict[str, Any]]) -> str:
    name, changes = variant
    return "-".join([name, *(f"{key}={value}" for key, value in changes.items())])


@pytest.fixture(params=VARIANTS, ids=named)
def variant(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    return request.param


@pytest.fixture(params=[3, 1], ids=["classes", "regression"])
def classes(request: pytest.FixtureRequest) -> int:
    return request.param


LONG = {"4to3_narrower_teacher"}


@pytest.fixture(
    params=[pytest.param(name, marks=[pytest.mark.runs] * (name in LONG)) for name in PAIRS]
)
def pair(request: pytest.FixtureRequest, classes: int) -> tuple[Spec, Spec]:
    student, teacher = PAIRS[request.param]
    return toys.spec(*student, classes), toys.spec(*teacher, classes)


def possible(variant: tuple[str, dict[str, Any]], student: Spec, teacher: Spec) -> Method:
    """The method for a pair; a pair that it refuses must be told why, and is left out."""
    try:
        return toys.method(variant[0], student, teacher, **variant[1])
    except Incompatible as error:
        sizes = {student.layers, student.width, student.heads, teacher.layers, teacher.width}
        assert any(f"{size}" in str(error) for size in sizes), "the reason names what differs"
        return pytest.skip(f"incompatible: {error}")


@cache
def raws(student: Spec, teacher: Spec, same_tokens: bool, seed: int) -> tuple[toys.Raw, toys.Raw]:
    """Outputs of both models, drawn once for all methods; no test changes them in place."""
    generator = torch.Generator().manual_seed(seed)
    s = toys.raw(student, generator)
    lengths = (16, 9, 3, 1) if same_tokens else (12, 9, 4, 1)
    return s, toys.raw(teacher, generator, lengths=lengths)


def rounded(term: Tensor) -> Any:
    """A term but for rounding: at a temperature of 10, `kd` is 100 times a difference of sums."""
    return pytest.approx(term.item(), rel=100 * 8 * EPS, abs=RELATIVE)


class Case:
    """A method with random outputs of its student and teacher, to be evaluated in every phase."""

    def __init__(
        self, variant: tuple[str, dict[str, Any]], pair: tuple[Spec, Spec], seed: int = 0
    ) -> None:
        torch.manual_seed(seed)  # of the projections
        self.student_spec, self.teacher_spec = pair
        self.method = possible(variant, *pair)
        self.student, self.teacher = raws(*pair, self.method.same_tokens, seed)
        self.batch = toys.batch(len(self.student.mask), self.student_spec.classes)
        self.method.prepare(self.batch.labels, self.batch.index)

    def moments(self) -> Iterator[Clock]:
        """The first and the last epoch of every phase."""
        for phase in self.method.phases(8):
            for epoch in sorted({0, phase.epochs - 1}):
                yield toys.clock(phase, epoch=epoch)

    def terms(self, clock: Clock, **changes: Any) -> dict[str, Tensor]:
        """The loss, shown only what the phase needs."""
        needs = clock.phase.needs
        student = changes.get("student", self.student)
        teacher = changes.get("teacher", self.teacher).outputs(needs) if needs else None
        batch = changes.get("batch", self.batch)
        return self.method.loss(student.outputs(needs), teacher, batch, clock)

    def unchanged(self, **changes: Any) -> None:
        """Every term of every phase has the same value after the changes, but for rounding."""
        for clock in self.moments():
            before, after = self.terms(clock), self.terms(clock, **changes)
            assert before.keys() == after.keys()
            for name, value in before.items():
                assert after[name].item() == rounded(value), name


CASES: dict[Any, Case] = {}


@pytest.fixture
def case(variant: tuple[str, dict[str, Any]], pair: tuple[Spec, Spec]) -> Case:
    """Made once for all tests: none that takes it changes it, which one of them checks."""
    key = named(variant), pair
    if key not in CASES:
        CASES[key] = Case(variant, pair)
    return CASES[key]


class BestOnly:
    """A teacher without snapshots answers with its best weights at any time."""

    def __init__(self, teacher: LiveTeacher) -> None:
        self._teacher = teacher

    def to(self, device: torch.device) -> None:
        self._teacher.to(device)

    def outputs(self, batch: Any, needs: frozenset[str], at: float | None = None) -> Any:
        return self._teacher.outputs(batch, needs)


def test_the_methods_of_the_mission_are_found() -> None:
    mission = {"finetune", "vanilla", "pkd", "pkd_last", "alp", "rail_l", "rail_c", "pro_kd"}
    assert mission <= set(toys.METHODS)
    assert {"pkd", "pkd_last", "alp", "rail_l", "rail_c", "universal"} <= set(OWN_LAYERS)


def test_every_method_teaches_a_smaller_student_of_the_teacher_s_width(variant: Any) -> None:
    """The pair that no method may refuse, so that the tests below leave none out altogether."""
    toys.method(variant[0], *(toys.spec(*sizes) for sizes in PAIRS["12to6"]), **variant[1])


# ------------------------------------------------------------------------------------- the loss


def test_terms_are_positive_scalars_and_padding_changes_none(case: Case) -> None:
    for clock in case.moments():
        for name, value in case.terms(clock).items():
            assert value.shape == (), name
            assert value.item() > 0, name  # so that equality below says something
    case.unchanged(student=case.student.padded(64), teacher=case.teacher.padded(64))


def test_repeating_the_batch_changes_no_term(case: Case) -> None:
    twice = [0, 1, 2, 3, 0, 1, 2, 3]
    case.unchanged(
        student=case.student.rows(twice),
        teacher=case.teacher.rows(twice),
        batch=toys.rows_of(case.batch, twice),
    )


def test_the_order_of_the_rows_changes_no_term(case: Case) -> None:
    mixed = [2, 0, 3, 1]
    case.unchanged(
        student=case.student.rows(mixed),
        teacher=case.teacher.rows(mixed),
        batch=toys.rows_of(case.batch, mixed),
    )


def test_the_rows_of_student_and_teacher_belong_together(variant: Any, pair: Any) -> None:
    case = Case(variant, pair)
    for clock in case.moments():
        if not clock.phase.needs:
            continue
        before = case.terms(clock)
        after = case.terms(clock, teacher=case.teacher.rows([1, 2, 3, 0]))
        for name in before.keys() - {"ce", OF_NO_ROW.get(variant[0])}:
            assert abs(before[name].item() - after[name].item()) > 1e-6, name


def test_extreme_rows_have_finite_terms_and_gradients(case: Case) -> None:
    """Half-precision logits of +-1e4, an all-padding row, a row whose layers are all zero."""
    sign = torch.tensor([1e4, -1e4, 1e4, -1e4])[:, None]
    wave = torch.where(torch.arange(case.student_spec.classes) % 2 == 0, 1.0, -1.0)
    logits = (sign * wave).half().requires_grad_()
    no_text = case.student.mask.clone()
    no_text[3] = 0
    hidden = [h.clone() for h in case.student.hidden]
    for h in hidden:
        h[2] = 0
        h.requires_grad_()
    inside = {
        name: tuple(x.clone().requires_grad_() for x in getattr(case.student, name))
        for name in ("queries", "keys", "values")
    }
    student = replace(case.student, logits=logits, mask=no_text, hidden=tuple(hidden), **inside)
    teacher = replace(
        case.teacher,
        logits=(-sign * wave).half(),
        mask=torch.cat([case.teacher.mask[:3], torch.zeros_like(case.teacher.mask[3:])]),
    )
    leaves = [logits, *hidden, *case.method.parameters()]
    leaves += [x for states in inside.values() for x in states]
    used = False
    for clock in case.moments():
        terms = case.terms(clock, student=student, teacher=teacher)
        for name, value in terms.items():
            assert torch.isfinite(value), name
            assert value.dtype == torch.float32, name
        gradients = torch.autograd.grad(sum(terms.values()), leaves, allow_unused=True)
        used |= gradients[0] is not None
        for gradient in gradients:
            assert gradient is None or torch.isfinite(gradient).all()
    assert used, "no phase learns from the logits"


def test_a_second_call_gives_the_same_and_draws_nothing(case: Case) -> None:
    def states() -> list[Any]:
        return [torch.get_rng_state().tolist(), random.getstate(), str(np.random.get_state())]

    before_state, parameters = states(), {k: v.clone() for k, v in case.method.state_dict().items()}
    for clock in case.moments():
        first, second = case.terms(clock), case.terms(clock)
        assert {k: v.item() for k, v in first.items()} == {k: v.item() for k, v in second.items()}
    assert states() == before_state
    for name, value in case.method.state_dict().items():
        assert torch.equal(value, parameters[name]), name


def test_diagnosis_changes_no_term_and_draws_nothing(case: Case) -> None:
    for clock in case.moments():
        before, state = case.terms(clock), torch.get_rng_state()
        needs = clock.phase.needs
        teacher = case.teacher.outputs(needs) if needs else None
        case.method.diagnose(case.student.outputs(needs), teacher, case.batch, clock)
        assert torch.equal(torch.get_rng_state(), state)
        after = case.terms(clock)
        assert {k: v.item() for k, v in before.items()} == {k: v.item() for k, v in after.items()}


def test_remembering_draws_nothing_and_leaves_parameters_and_row_order_alone(
    variant: Any, pair: Any
) -> None:
    """The second case sees the same rows in another order, and ends up with the same losses."""
    one, other = Case(variant, pair), Case(variant, pair)
    mixed = [2, 0, 3, 1]
    parameters = [p.detach().clone() for p in one.method.parameters()]
    for clock in one.moments():
        needs = clock.phase.needs
        state = torch.get_rng_state()
        for case, order in ((one, [0, 1, 2, 3]), (other, mixed)):
            s = case.student.rows(order).outputs(needs)
            t = case.teacher.rows(order).outputs(needs) if needs else None
            with torch.no_grad():
                case.method.remember(s, t, toys.rows_of(case.batch, order), clock)
        assert torch.equal(torch.get_rng_state(), state)
        after = one.terms(clock), other.terms(clock)
        for term, value in after[0].items():
            assert after[1][term].item() == rounded(value), term
    for kept, p in zip(parameters, one.method.parameters(), strict=True):
        assert torch.equal(kept, p)


@pytest.mark.parametrize("name", OWN_LAYERS)
def test_embeddings_and_last_layers_are_not_compared(name: str, pair: Any) -> None:
    case = Case((name, {}), pair)
    student_last, teacher_last = case.student_spec.layers, case.teacher_spec.layers
    for layer in (0, student_last):
        case.unchanged(student=case.student.shifted(layer))
    for layer in (0, teacher_last):
        case.unchanged(teacher=case.teacher.shifted(layer))


@pytest.mark.parametrize("name", OWN_LAYERS)
def test_every_intermediate_student_layer_is_compared(name: str, pair: Any) -> None:
    case = Case((name, {}), pair)
    clock = next(case.moments())
    term = OWN_LAYERS[name]
    before = case.terms(clock)[term].item()
    for layer in range(1, case.student_spec.layers):
        after = case.terms(clock, student=case.student.shifted(layer))[term].item()
        assert abs(after - before) > 1e-7, layer  # exactly 0 where the layer is not read


# ---------------------------------------------------------------------------- phases and weights


def test_phases_sum_to_the_epochs(variant: Any) -> None:
    method = toys.method(variant[0], toys.spec(2), toys.spec(4), **variant[1])
    possible = 0
    for epochs in range(1, 41):
        try:
            phases = method.phases(epochs)
        except BadInput as error:
            assert f"epochs={epochs}" in str(error)
            assert possible == 0, "too few epochs, though fewer were enough"
            continue
        possible += 1
        assert sum(phase.epochs for phase in phases) == epochs
        for phase in phases:
            assert phase.epochs >= 1
            assert phase.needs <= NEEDS
            if phase.teacher_at is not None:
                times = [phase.teacher_at(epoch) for epoch in range(phase.epochs)]
                assert all(0 < time <= 1 for time in times)
                assert times == sorted(times)
    assert possible >= 36


def test_needs_of_the_method_cover_its_phases(variant: Any) -> None:
    method = toys.method(variant[0], toys.spec(2), toys.spec(4), **variant[1])
    assert method.needs <= NEEDS
    for phase in method.phases(8):
        assert phase.needs <= method.needs


def test_no_other_layers_of_the_teacher_are_looked_at_than_the_phase_names(case: Case) -> None:
    """A bank of tokens shows None in the place of a layer that it does not keep."""
    for clock in case.moments():
        named = clock.phase.teacher_layers
        if named is None:
            continue
        assert set(named) <= set(range(case.teacher_spec.layers + 1))
        kept: dict[str, Any] = {}
        for field in PER_TOKEN:
            first = 0 if field == "hidden" else 1
            layers = enumerate(getattr(case.teacher, field), start=first)
            kept[field] = tuple(x if number in named else None for number, x in layers)
        found = case.terms(clock, teacher=replace(case.teacher, **kept))
        expected = case.terms(clock)
        assert found.keys() == expected.keys()
        assert all(torch.equal(found[name], expected[name]) for name in found)


def test_weights_and_terms_are_the_same_names(case: Case, variant: Any) -> None:
    weights = toys.method_settings(variant[0])["weights"]
    terms = {name for clock in case.moments() for name in case.terms(clock)}
    assert terms == set(weights)


def test_a_term_without_a_weight_is_an_error(variant: Any) -> None:
    weights = toys.method_settings(variant[0])["weights"]
    terms = {name: torch.tensor(1.0) for name in weights}
    with pytest.raises(ValueError, match="no weight for the loss term extra: add it"):
        weighted_sum(terms | {"extra": torch.tensor(1.0)}, weights)
    assert weighted_sum(terms, weights).item() == pytest.approx(sum(weights.values()), rel=RELATIVE)


def test_unused_weights_and_unweighted_terms_are_refused_before_training(variant: Any) -> None:
    name, changes = variant
    specs = toys.spec(2), toys.spec(4)
    method = toys.method(name, *specs, **changes)
    weights = toys.method_settings(name)["weights"]
    rows = Rows(torch.tensor([0, 1, 2, 0, 1, 2]), torch.arange(6))
    rest = method.phases(4), *specs, Rows(rows.labels[:2], rows.index[:2])
    method.prepare(rows.labels, rows.index)
    check_terms(method, weights, *rest)
    with pytest.raises(BadInput, match="weights that no phase of the method uses: typo"):
        check_terms(method, weights | {"typo": 1.0}, *rest)
    for term in weights:
        fewer = {k: v for k, v in weights.items() if k != term}
        with pytest.raises(BadInput, match=f"terms without a weight: {term}"):
            check_terms(method, fewer, *rest)


# ------------------------------------------------------------------------------ with live models


@pytest.mark.parametrize("widths", [(8, 8), (8, 12)], ids=["equal", "unequal"])
def test_gradients_reach_every_parameter_and_no_teacher_one(
    variant: Any, widths: tuple[int, int], classes: int
) -> None:
    student = toys.model(layers=2, width=widths[0], classes=classes, seed=1)
    model = toys.model(layers=4, width=widths[1], classes=classes, seed=2)
    teacher = LiveTeacher(model)
    method = possible(variant, student.spec, teacher.spec)
    rows = toys.split(8, classes=classes)[np.arange(8)]
    method.prepare(rows["labels"], rows["index"])
    reached: set[str] = set()
    trained = dict(student.named_parameters()) | {
        f"method.{key}": value for key, value in method.named_parameters()
    }
    for phase in method.phases(4):
        s, t, b = both_outputs(student, BestOnly(teacher), rows, toys.clock(phase))
        loss = sum(method.loss(s, t, b, toys.clock(phase)).values())
        assert t is None or not t.logits.requires_grad
        gradients = torch.autograd.grad(loss, list(trained.values()), allow_unused=True)
        reached |= {
            key for key, g in zip(trained, gradients, strict=True) if g is not None and g.any()
        }
    # a query-key product does not change when all keys move together, so this one is 0 by nature
    assert {key for key in trained if not key.endswith("key.bias")} <= reached
    assert all(p.grad is None and not p.requires_grad for p in model.parameters())


# -------------------------------------------------------------------------------------- the code


@pytest.mark.parametrize("name", toys.METHODS)
def test_yaml_is_the_only_place_of_a_number(name: str) -> None:
    chosen = toys.method_settings(name)
    kind = pkgutil.resolve_name(chosen["_target_"])
    assert issubclass(kind, Method)
    parameters = inspect.signature(kind.__init__).parameters
    own = {k: p for k, p in parameters.items() if k not in ("self", "student", "teacher")}
    for key, parameter in own.items():
        assert parameter.kind is inspect.Parameter.KEYWORD_ONLY, key
        assert parameter.default is inspect.Parameter.empty, key
    assert set(own) == set(chosen) - {"name", "_target_", "weights"}


@pytest.mark.parametrize("name", toys.METHODS)
def test_name_is_the_file_name(name: str) -> None:
    assert toys.method_settings(name)["name"] == name


def test_check_terms_looks_at_every_phase() -> None:
    """The weight of a later phase is used; check with the phases cut to the first."""
    specs = toys.spec(2), toys.spec(3)
    method = toys.method("pro_kd", *specs)
    weights = toys.method_settings("pro_kd")["weights"]
    rows = Rows(torch.tensor([0, 1]), torch.arange(2))
    check_terms(method, weights, method.phases(4), *specs, rows)
    with pytest.raises(BadInput, match="no phase of the method uses: ce"):
        check_terms(method, weights, method.phases(4)[:1], *specs, rows)


@pytest.mark.parametrize("weight", [1e299, 3e38, 1e20, -1e299])
def test_weights_that_float32_cannot_train_with_are_refused(weight: float) -> None:
    """Of the largest one the message speaks; the first terms of both losses are below 10."""
    specs = toys.spec(2), toys.spec(3)
    method = toys.method("vanilla", *specs)
    rest = method.phases(2), *specs, Rows(torch.tensor([0, 1]), torch.arange(2))
    check_terms(method, {"ce": 0.0, "kd": 1e13}, *rest)
    with pytest.raises(BadInput, match=r"method\.weights\.kd=.* where float32 cannot train"):
        check_terms(method, {"ce": 1.0, "kd": weight}, *rest)


def test_a_term_that_is_no_number_is_refused() -> None:
    class Broken(type(toys.method("finetune", toys.spec(2), toys.spec(3)))):
        def loss(self, *given: Any) -> dict[str, torch.Tensor]:
            return {name: term * float("nan") for name, term in super().loss(*given).items()}

    specs = toys.spec(2), toys.spec(3)
    method = Broken(student=specs[0], teacher=specs[1])
    rows = Rows(torch.tensor([0, 1]), torch.arange(2))
    with pytest.raises(BadInput, match="its loss term ce is no finite number"):
        check_terms(method, {"ce": 1.0}, method.phases(2), *specs, rows)
