"""Options of the methods: what is refused, and what the schedules and draws are."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import oracle
import pytest
import torch
import toys
from closeness import RELATIVE, close

from ilkd_bench.functional.features import partners, random_like
from ilkd_bench.types import BadInput, Clock, Incompatible, Outputs, Rows, Spec

WRONG = [
    ("vanilla_checkpoint", {"teacher_at": 0}, "method.teacher_at=0: allowed is a number above 0"),
    ("vanilla_checkpoint", {"teacher_at": 1.5}, "teacher_at=1.5: allowed is a number up to 1"),
    ("vanilla", {"temperature": 0}, "method.temperature=0: allowed is a number of at"),
    ("vanilla", {"temperature": -2.0}, "method.temperature=-2.0: allowed is a number of at"),
    ("vanilla", {"temperature": "hot"}, "method.temperature=hot: allowed is a number of at"),
    ("vanilla", {"temperature": True}, "method.temperature=True: allowed is a number of at"),
    (
        "pkd",
        {"layer_map": "top"},
        "method.layer_map=top is not one of: skip, last, first, reversed",
    ),
    ("pkd", {"target": "other"}, "method.target=other is not one of: own, shuffled, random"),
    ("rail_l", {"resample": "batch"}, "method.resample=batch is not one of: epoch, step, never"),
    ("rail_c", {"order": "up"}, "method.order=up is not one of: sorted, unsorted, reversed"),
    ("pkd", {"normalize": "yes"}, "method.normalize=yes is not one of: True, False"),
    ("pkd", {"projection_width": "wide"}, "method.projection_width=wide: allowed is a whole"),
    ("pkd_last", {"projection_width": 0}, "method.projection_width=0: allowed is a whole number"),
    ("alp", {"scale": "width"}, "method.scale=width is not one of: none, sqrt_width"),
    ("alp", {"include_last": "no"}, "method.include_last=no is not one of: True, False"),
    ("alp", {"buckets": "some"}, "method.buckets=some is not one of: none, no, po"),
    ("rail_l", {"projection": "own"}, "method.projection=own is not one of: shared, per_layer"),
    ("rail_l", {"projection_width": 1.5}, "method.projection_width=1.5: allowed is a whole"),
    ("rail_c", {"projection_width": -1}, "method.projection_width=-1: allowed is a whole number"),
    ("pro_kd", {"max_temperature": 0.5}, "method.max_temperature=0.5: allowed is a number of at"),
    ("pro_kd", {"smoothing": "soft"}, "method.smoothing=soft is not one of: factor, divide"),
    ("pro_kd", {"label_share": 1}, "method.label_share=1: allowed is a number below 1"),
    ("pro_kd", {"label_share": 0}, "method.label_share=0: allowed is a number above 0"),
    (
        "ckd",
        {"groups": "all"},
        "method.groups=all is not one of: regular, overlap, skip_middle, cro",
    ),
    ("ckd", {"feature": "last"}, "method.feature=last is not one of: cls, mean"),
    ("annealing", {"max_temperature": 0}, "method.max_temperature=0: allowed is a number of at"),
    ("annealing", {"label_share": 1.5}, "method.label_share=1.5: allowed is a number below 1"),
    ("continuation", {"max_temperature": 0.5}, "method.max_temperature=0.5: allowed is a number"),
    ("continuation", {"margin": -1}, "method.margin=-1: allowed is a number above 0"),
    ("continuation", {"last_psi": 1}, "method.last_psi=1: allowed is a number below 1"),
    ("continuation", {"follow_share": 0}, "method.follow_share=0: allowed is a number above 0"),
    ("rco", {"anchors": 2.5}, "method.anchors=2.5: allowed is a whole number above 0"),
    ("codir", {"feature": "last"}, "method.feature=last is not one of: cls, mean"),
    ("codir", {"projection_width": 0}, "method.projection_width=0: allowed is a whole number"),
    ("codir", {"negatives": 1.5}, "method.negatives=1.5: allowed is a whole number above 0"),
    ("codir", {"momentum": 1}, "method.momentum=1: allowed is a number below 1"),
    (
        "codir",
        {"contrast_temperature": 0.01},
        "contrast_temperature=0.01: allowed is a number of at least 0.02",
    ),
    ("universal", {"feature": "last"}, "method.feature=last is not one of: cls, mean"),
    ("universal", {"projection_width": "auto"}, "method.projection_width=auto: allowed is a whole"),
    ("rco", {"temperature": 0}, "method.temperature=0: allowed is a number of at"),
]


@pytest.mark.parametrize(("name", "change", "message"), WRONG, ids=lambda v: str(v))
def test_a_wrong_value_is_refused_with_what_is_allowed(
    name: str, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput) as error:
        toys.method(name, toys.spec(2), toys.spec(4), **change)
    assert message in str(error.value)


SENSELESS = (
    *(0, -1, -0.5, 1e308, 2**70, float("nan"), float("inf"), -float("inf")),
    *("text", "", "1", None, [], [0.5], {}, True),
)
"""What no number of a method can be."""

BUILT_IN = sorted(path.stem for path in (toys.CONF / "method").glob("*.yaml"))
AND_YET = {
    ("takd", "assistants"): ["text", "", "1"],  # names of students, looked up where they are known
    ("alp", "include_last"): [True],
    **{(name, "normalize"): [True] for name in BUILT_IN if name.startswith("pkd")},
}


@pytest.mark.parametrize("name", BUILT_IN)
def test_an_option_is_a_sensible_value_or_refused(name: str) -> None:
    """Never another exception, and never a loss that is not finite."""
    options = toys.method_settings(name).keys() - {"name", "_target_", "weights"}
    for option in sorted(options):
        for value in SENSELESS:
            if value in AND_YET.get((name, option), []):
                toys.method(name, toys.spec(3), toys.spec(6), **{option: value})
                continue
            with pytest.raises(BadInput) as error:
                toys.method(name, toys.spec(3), toys.spec(6), **{option: value})
            assert str(error.value).startswith(f"method.{option}=")


EXTREMES = [
    ("temperature", (0.01, 1000)),
    ("max_temperature", (1, 1000)),
    ("contrast_temperature", (0.02, 1e6)),
    ("margin", (1e-9, 1e6)),
    ("label_share", (1e-9, 0.999)),
    ("predict_share", (1e-9, 0.999)),
    ("follow_share", (1e-9, 0.999)),
    ("last_psi", (1e-9, 0.999)),
    ("momentum", (1e-9, 0.999)),
    ("predict_lr_factor", (1e-9, 1e6)),
    ("anchors", (1, 1000)),
    ("negatives", (1, 1000)),
    ("teacher_at", (1e-9, 1)),
]


@pytest.mark.parametrize(("option", "values"), EXTREMES)
def test_the_last_value_that_is_taken_gives_finite_terms(
    option: str, values: tuple[float, ...]
) -> None:
    """Logits of 1e4, in the first and the last epoch of every phase."""
    student, teacher = toys.spec(3), toys.spec(6)
    having = [name for name in BUILT_IN if option in toys.method_settings(name)]
    assert having
    for name in having:
        for value in values:
            method = toys.method(name, student, teacher, **{option: value})
            generator = torch.Generator().manual_seed(0)
            s, t = (toys.raw(spec, generator) for spec in (student, teacher))
            s, t = (replace(raw, logits=raw.logits * 1e4) for raw in (s, t))
            batch = toys.batch(4, 3)
            method.prepare(batch.labels, batch.index)
            for phase in method.phases(8):
                for epoch in {0, phase.epochs - 1}:
                    shows = (raw.outputs(phase.needs | {"logits"}) for raw in (s, t))
                    terms = method.loss(*shows, batch, toys.clock(phase, epoch=epoch))
                    assert all(torch.isfinite(term) for term in terms.values()), (name, value)
                    if phase.teacher_at is not None:
                        assert 0 < phase.teacher_at(epoch) <= 1


@pytest.mark.parametrize("name", BUILT_IN)
@pytest.mark.parametrize("epochs", [1, 2, 3])
def test_few_epochs_are_split_or_refused(name: str, epochs: int) -> None:
    method = toys.method(name, toys.spec(3), toys.spec(6))
    try:
        phases = method.phases(epochs)
    except BadInput as error:
        assert str(error).startswith(f"epochs={epochs}: {name} has two phases and needs at least 2")
        assert epochs == 1
    else:
        assert sum(phase.epochs for phase in phases) == epochs
        assert all(phase.epochs >= 1 for phase in phases)


@pytest.mark.parametrize("name", ["pkd", "pkd_last", "alp", "rail_l", "rail_c", "universal"])
def test_a_student_of_one_layer_has_nothing_to_compare(name: str) -> None:
    with pytest.raises(Incompatible, match=r"student (of|has) 1 layer"):
        toys.method(name, toys.spec(1), toys.spec(4))


@pytest.mark.parametrize("name", ["pkd", "pkd_last", "rail_l", "rail_c", "ckd", "codir"])
def test_a_teacher_shallower_than_its_student_is_incompatible(name: str) -> None:
    with pytest.raises(Incompatible, match=r"the teacher \(2 layers\) is shallower"):
        toys.method(name, toys.spec(3), toys.spec(2))


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("pkd", [2, 4, 6, 8, 10]),
        ("pkd_last", [7, 8, 9, 10, 11]),
        ("pkd_first", [1, 2, 3, 4, 5]),
        ("pkd_reversed", [2, 4, 6, 8, 10]),
        ("pkd_permuted", [2, 4, 6, 8, 10]),
        ("pkd_all_to_last", [11]),
    ],
)
def test_pkd_reads_the_layers_of_the_paper(name: str, expected: list[int]) -> None:
    """12 -> 6: only these teacher layers change the term."""
    student, teacher = toys.spec(6), toys.spec(12)
    method = toys.method(name, student, teacher)
    generator = torch.Generator().manual_seed(0)
    s, t = toys.raw(student, generator), toys.raw(teacher, generator)
    phase = method.phases(1)[0]
    batch = toys.batch(4, 3)

    def term(shown: toys.Raw) -> float:
        out = method.loss(
            s.outputs(phase.needs), shown.outputs(phase.needs), batch, toys.clock(phase)
        )
        return out["pkd"].item()

    moved = [layer for layer in range(13) if abs(term(t.shifted(layer)) - term(t)) > 1e-6]
    assert moved == expected


@pytest.mark.parametrize("name", ["rail_l", "rail_c"])
@pytest.mark.parametrize(("seed", "epoch"), [(0, 0), (0, 1), (7, 3)])
def test_rail_reads_the_layers_drawn_for_seed_and_epoch(name: str, seed: int, epoch: int) -> None:
    student, teacher = toys.spec(3), toys.spec(6)
    method = toys.method(name, student, teacher)
    generator = torch.Generator().manual_seed(1)
    s, t = toys.raw(student, generator), toys.raw(teacher, generator)
    phase = method.phases(10)[0]
    clock = toys.clock(phase, epoch=epoch, seed=seed)

    def term(shown: toys.Raw) -> float:
        shows = s.outputs(phase.needs), shown.outputs(phase.needs)
        return method.loss(*shows, toys.batch(4, 3), clock)["rail"].item()

    moved = [layer for layer in range(7) if abs(term(t.shifted(layer)) - term(t)) > 1e-6]
    assert moved == oracle.random_sorted(6, 3, seed, epoch)


@pytest.mark.parametrize(("layers", "same"), [(2, True), (3, False)])
def test_rail_l_and_rail_c_are_one_where_one_layer_is_compared(layers: int, same: bool) -> None:
    student, teacher = toys.spec(layers), toys.spec(6, 6)
    generator = torch.Generator().manual_seed(1)
    s, t = toys.raw(student, generator), toys.raw(teacher, generator)
    terms = []
    for name in ("rail_l", "rail_c"):
        torch.manual_seed(0)  # of the maps
        method = toys.method(name, student, teacher)
        phase = method.phases(1)[0]
        shows = s.outputs(phase.needs), t.outputs(phase.needs)
        terms.append(method.loss(*shows, toys.batch(4, 3), toys.clock(phase))["rail"].item())
    assert (terms[0] == pytest.approx(terms[1], rel=1e-5)) == same


def test_unequal_widths_are_mapped_to_128_and_equal_ones_not_at_all() -> None:
    for name in ("pkd", "pkd_last", "alp"):
        assert not list(toys.method(name, toys.spec(2, 4), toys.spec(4, 4)).parameters())
        mapped = toys.method(name, toys.spec(2, 4), toys.spec(4, 6)).state_dict()
        assert mapped["student_projection.weight"].shape == (128, 4)
        assert mapped["teacher_projection.weight"].shape == (128, 6)


@pytest.mark.parametrize(
    ("name", "options", "student_in", "teacher_in"),
    [
        ("rail_l", {}, {"": 4}, {"": 6}),
        ("rail_l", {"projection": "per_layer"}, {".0": 4, ".1": 4}, {".0": 6, ".1": 6}),
        ("rail_c", {}, {"": 2 * 4}, {"": 2 * 6}),
    ],
)
def test_rail_maps_have_a_bias_and_128_outputs(
    name: str, options: dict[str, Any], student_in: dict[str, int], teacher_in: dict[str, int]
) -> None:
    method = toys.method(name, toys.spec(3, 4), toys.spec(6, 6), **options)
    expected = {}
    for side, inputs in (("student", student_in), ("teacher", teacher_in)):
        for part, width in inputs.items():
            expected[f"{side}_projection{part}.weight"] = (128, width)
            expected[f"{side}_projection{part}.bias"] = (128,)
    assert {k: tuple(v.shape) for k, v in method.state_dict().items()} == expected


def test_rail_tells_that_its_projection_has_collapsed() -> None:
    student, teacher = toys.spec(3), toys.spec(6)
    method = toys.method("rail_l", student, teacher)
    generator = torch.Generator().manual_seed(1)
    phase = method.phases(2)[0]
    shows = [toys.raw(m, generator).outputs(phase.needs) for m in (student, teacher)]
    told = method.diagnose(*shows, toys.batch(4, 3), toys.clock(phase))
    assert told["layers"] == " ".join(map(str, oracle.random_sorted(6, 3, 0, 0)))
    assert told["teacher_spread"] > 1e-3
    with torch.no_grad():
        method.teacher_projection.weight.zero_()
    collapsed = method.diagnose(*shows, toys.batch(4, 3), toys.clock(phase))
    assert collapsed["teacher_spread"] < RELATIVE, "vectors that are all the bias, of order 1"


# ------------------------------------------------------------------------------------- controls


def clocks(method: Any, *moments: tuple[int, int, int]) -> list[Clock]:
    """Clocks from (seed, epoch, step)."""
    (phase,) = method.phases(10)
    return [Clock(phase, epoch=e, step=t, steps=99, seed=s) for s, e, t in moments]


@pytest.mark.parametrize(
    ("layer_map", "expected"),
    [
        ("first", [1, 2, 3, 4, 5]),
        ("reversed", [10, 8, 6, 4, 2]),
        ("all_to_last", [11, 11, 11, 11, 11]),
    ],
)
def test_the_maps_of_the_controls(layer_map: str, expected: list[int]) -> None:
    method = toys.method("pkd", toys.spec(6), toys.spec(12), layer_map=layer_map)
    assert method.layers(seed=0) == method.layers(seed=1) == expected


def test_permuted_layers_are_those_of_skip_and_stay_for_the_run() -> None:
    method = toys.method("pkd_permuted", toys.spec(6), toys.spec(12))
    orders = {tuple(method.layers(seed=seed)) for seed in range(20)}
    assert len(orders) > 10
    assert {tuple(sorted(order)) for order in orders} == {(2, 4, 6, 8, 10)}
    first, later = clocks(method, (3, 0, 0), (3, 4, 99))
    told = method.diagnose(None, None, None, first)
    assert told == method.diagnose(None, None, None, later)
    assert told["layers"] == " ".join(map(str, oracle.pkd_layers(12, 6, "permuted", 3)))


@pytest.mark.parametrize(
    ("resample", "draws"),
    [("epoch", [0, 0, 1, 2]), ("step", [0, 1, 2, 3]), ("never", [0, 0, 0, 1])],
)
def test_rail_draws_anew_when_it_is_told_to(resample: str, draws: list[int]) -> None:
    """Two steps of an epoch, the next epoch, another seed: equal numbers are equal draws."""
    method = toys.method("rail_l", toys.spec(6), toys.spec(24), resample=resample)
    moments = clocks(method, (5, 0, 7), (5, 0, 8), (5, 1, 9), (6, 0, 7))
    layers = [tuple(method.layers(clock)) for clock in moments]
    distinct = list(dict.fromkeys(layers))
    assert [distinct.index(one) for one in layers] == draws


def test_rail_pairs_in_the_order_it_is_told_to() -> None:
    found = {}
    for order in ("sorted", "unsorted", "reversed"):
        method = toys.method("rail_l", toys.spec(6), toys.spec(12), order=order)
        found[order] = [method.layers(clock) for clock in clocks(method, (0, 0, 0), (0, 1, 0))]
    for ascending, drawn, descending in zip(*found.values(), strict=True):
        assert ascending == sorted(drawn) != drawn
        assert descending == ascending[::-1]
        assert len(set(drawn)) == 5 and set(drawn) <= set(range(1, 12))


@pytest.mark.parametrize("rows", [2, 3, 7, 32])
def test_shuffled_rows_are_all_taught_by_another(rows: int) -> None:
    generator = torch.Generator().manual_seed(0)
    index = torch.randperm(1000, generator=generator)[:rows]
    for step in range(20):
        found = partners(index, at=(0, 1, step)).tolist()
        assert sorted(found) == list(range(rows))
        assert all(partner != row for row, partner in enumerate(found))
    if rows > 3:
        assert found != partners(index, at=(0, 1, 0)).tolist()


def test_partners_belong_to_the_rows_and_not_to_their_order() -> None:
    index = torch.tensor([30, 10, 40, 20, 50])
    named = dict(zip(index.tolist(), index[partners(index, at=(1, 2, 3))].tolist(), strict=True))
    mixed = index[[4, 2, 0, 1, 3, 4]]  # and a row twice
    assert [named[row] for row in mixed.tolist()] == mixed[partners(mixed, at=(1, 2, 3))].tolist()
    assert partners(torch.tensor([8]), at=(1, 2, 3)).tolist() == [0], "there is no other row"


def test_random_vectors_have_the_lengths_and_belong_to_seed_and_row() -> None:
    h = torch.randn(4, 3, 64, generator=torch.Generator().manual_seed(0)) * 5
    index = torch.tensor([7, 3, 11, 5])
    found = random_like(h, index, seed=1)
    close(found.norm(dim=-1), h.norm(dim=-1))
    close(random_like(h[[2, 0]], index[[2, 0]], seed=1), found[[2, 0]])
    flat = torch.nn.functional.normalize(found.flatten(0, 1), dim=-1)
    cosines = flat @ flat.T - torch.eye(12)
    assert cosines.abs().max() < 0.5, "rows and layers differ"
    other = random_like(h, index, seed=2).flatten(0, 1)
    assert torch.cosine_similarity(flat, other, dim=-1).abs().max() < 0.5
    assert random_like(torch.zeros(4, 3, 2), index, seed=1).abs().max() == 0


@pytest.mark.parametrize("name", ["pkd_shuffled", "pkd_random"])
def test_a_replaced_target_leaves_the_other_terms_alone(name: str) -> None:
    student, teacher = toys.spec(3), toys.spec(6)
    generator = torch.Generator().manual_seed(1)
    raws = toys.raw(student, generator), toys.raw(teacher, generator)
    terms = {}
    for one in ("pkd", name):
        method = toys.method(one, student, teacher)
        (phase,) = method.phases(2)
        shows = [raw.outputs(phase.needs) for raw in raws]
        terms[one] = method.loss(*shows, toys.batch(4, 3), toys.clock(phase))
    assert terms[name]["kd"] == terms["pkd"]["kd"] and terms[name]["ce"] == terms["pkd"]["ce"]
    assert abs(terms[name]["pkd"].item() - terms["pkd"]["pkd"].item()) > 1e-3


def test_random_targets_tell_nothing_about_the_teacher() -> None:
    """With equal widths and vectors of length 1 another teacher gives the same term."""
    student, teacher = toys.spec(3), toys.spec(6)
    method = toys.method("pkd_random", student, teacher)
    generator = torch.Generator().manual_seed(1)
    (phase,) = method.phases(2)
    s, one, other = (
        toys.raw(spec, generator).outputs(phase.needs) for spec in (student, teacher, teacher)
    )
    first, second = (
        method.loss(s, t, toys.batch(4, 3), toys.clock(phase))["pkd"].item() for t in (one, other)
    )
    assert first == pytest.approx(second, rel=RELATIVE)


# ----------------------------------------------------------------------------- CKD, ALP's buckets


def layers_read(
    method: Any, student: Spec, teacher: Spec, term: str, *, of_teacher: bool
) -> list[int]:
    """The layers that change a term when they are moved, 0 the embedding output."""
    generator = torch.Generator().manual_seed(0)
    raws = [toys.raw(student, generator), toys.raw(teacher, generator)]
    phase = method.phases(1)[0]

    def value(changed: list[toys.Raw]) -> float:
        shows = [raw.outputs(phase.needs) for raw in changed]
        return method.loss(*shows, toys.batch(4, 3), toys.clock(phase))[term].item()

    moved = []
    for layer in range((teacher if of_teacher else student).layers + 1):
        changed = list(raws)
        changed[of_teacher] = raws[of_teacher].shifted(layer)
        if abs(value(changed) - value(raws)) > 1e-6:
            moved.append(layer)
    return moved


@pytest.mark.parametrize(
    ("groups", "layers", "sizes"),
    [
        ("regular", list(range(1, 13)), [3, 3, 3, 3]),
        ("overlap", list(range(1, 13)), [4, 4, 4, 4]),
        ("skip_middle", [1, 2, 3, 4, 9, 10, 11, 12], [2, 2, 2, 2]),
        ("cross", [1, 3, 4, 6, 7, 9, 10, 12], [2, 2, 2, 2]),
    ],
)
@pytest.mark.parametrize("feature", ["cls", "mean"])
def test_ckd_reads_all_student_layers_and_the_groups(
    feature: str, groups: str, layers: list[int], sizes: list[int]
) -> None:
    student, teacher = toys.spec(4, 4), toys.spec(12, 6)
    method = toys.method("ckd", student, teacher, groups=groups, feature=feature)
    assert method.needs == {"logits", feature}
    assert layers_read(method, student, teacher, "ckd", of_teacher=False) == [1, 2, 3, 4]
    assert layers_read(method, student, teacher, "ckd", of_teacher=True) == layers
    shapes = {key: tuple(value.shape) for key, value in method.state_dict().items()}
    expected = {}
    for i, size in enumerate(sizes):
        expected[f"student_projection.{i}.weight"] = (size * 6, 4)
        expected[f"student_projection.{i}.bias"] = (size * 6,)
    assert shapes == expected, "the student is mapped up, the teacher is not mapped"


def test_ckd_teaches_a_student_of_one_layer() -> None:
    method = toys.method("ckd", toys.spec(1), toys.spec(3))
    assert method.groups == [[1, 2, 3]]


@pytest.mark.parametrize(
    ("options", "first", "rest"),
    [
        ({"buckets": "none"}, [1, 2, 3, 4, 5], [1, 2, 3, 4, 5]),
        ({"buckets": "no"}, [1, 2], [3, 4, 5]),
        ({"buckets": "po"}, [1, 2, 3], [2, 3, 4, 5]),
        ({"buckets": "no", "include_last": True}, [1, 2], [3, 4, 5, 6]),
        ({"buckets": "po", "include_last": True}, [1, 2, 3], [3, 4, 5, 6]),
    ],
    ids=str,
)
def test_alp_attends_within_the_bucket(
    options: dict[str, Any], first: list[int], rest: list[int]
) -> None:
    """Student layer 1 attends to `first`; without it, the others attend to `rest`."""
    student, teacher = toys.spec(3), toys.spec(6)
    method = toys.method("alp", student, teacher, **options)
    layers = method.student_layers
    method.student_layers = layers[:1]
    masks = method.allowed
    method.allowed = None if masks is None else masks[:1]
    assert layers_read(method, student, teacher, "alp", of_teacher=True) == first
    method.student_layers = layers[1:]
    method.allowed = None if masks is None else masks[1:]
    assert layers_read(method, student, teacher, "alp", of_teacher=True) == rest


def test_buckets_need_a_teacher_layer_for_each_student_layer() -> None:
    assert toys.method("alp", toys.spec(4), toys.spec(3), buckets="none") is not None
    for buckets in ("no", "po"):
        with pytest.raises(Incompatible, match="shallower"):
            toys.method("alp", toys.spec(4), toys.spec(3), buckets=buckets)


# ---------------------------------------------------------- Annealing-KD, Continuation-KD and RCO


def test_annealing_has_the_epochs_of_the_paper_and_goes_on_from_the_best() -> None:
    method = toys.method("annealing", toys.spec(2), toys.spec(4))
    follow, labels = method.phases(18)
    assert (follow.name, follow.epochs, follow.carry) == ("follow", 14, "best")
    assert (labels.name, labels.epochs, labels.needs) == ("labels", 4, frozenset())
    assert follow.needs == {"logits"} and follow.teacher_at is None
    told = [method.diagnose(None, None, None, toys.clock(follow, epoch=e)) for e in range(14)]
    temperatures = [row["temperature"] for row in told]
    assert temperatures == [7, 7, 6, 6, 5, 5, 4, 4, 3, 3, 2, 2, 1, 1]
    assert method.diagnose(None, None, None, toys.clock(labels)) == {}
    with pytest.raises(BadInput) as error:
        method.phases(1)
    assert str(error.value) == "epochs=1: annealing has two phases and needs at least 2 epochs"


@pytest.mark.parametrize("name", ["pro_kd", "tinybert", "rco", "continuation"])
def test_the_other_methods_go_on_from_the_last_weights(name: str) -> None:
    phases = toys.method(name, toys.spec(2), toys.spec(4)).phases(8)
    assert {phase.carry for phase in phases} == {"last"}


def test_continuation_has_the_schedule_of_the_paper() -> None:
    method = toys.method("continuation", toys.spec(2), toys.spec(4))
    (phase,) = method.phases(30)
    told = [method.diagnose(None, None, None, toys.clock(phase, epoch=e)) for e in range(30)]
    assert [row["psi"] for row in told] == pytest.approx(
        [epoch / 40 for epoch in range(1, 21)] + [1] * 10
    )
    held = [factor / 10 for factor in range(1, 11) for _ in range(2)]
    assert [row["phi"] for row in told] == pytest.approx(held + [1] * 10)


@pytest.mark.parametrize(
    ("epochs", "psi"),
    [(1, [0.5]), (2, [0.5, 1]), (3, [0.25, 0.5, 1]), (6, [0.125, 0.25, 0.375, 0.5, 1, 1])],
)
def test_continuation_of_few_epochs_ends_with_the_labels(epochs: int, psi: list[float]) -> None:
    method = toys.method("continuation", toys.spec(2), toys.spec(4))
    (phase,) = method.phases(epochs)
    clocks = [toys.clock(phase, epoch=e) for e in range(epochs)]
    assert [method.schedule(clock)[0] for clock in clocks] == pytest.approx(psi)


def test_continuation_forgives_within_the_margin_row_by_row() -> None:
    method = toys.method(
        "continuation",
        toys.spec(2, classes=2),
        toys.spec(4, classes=2),
        margin=4,
        max_temperature=1,
    )
    (phase,) = method.phases(3)  # the first epoch has psi 0.25; phi is always 1
    mask = torch.ones(3, 1)
    s = Outputs(torch.zeros(3, 2), mask)
    t = Outputs(torch.tensor([[3.0, 0.0], [0.0, 1.0], [2.0, 2.0]]), mask)
    batch = Rows(labels=torch.tensor([0, 1, 0]), index=torch.arange(3))
    terms = method.loss(s, t, batch, toys.clock(phase))
    # 9 - 4, 1 - 4, 8 - 4: (5 + 0 + 4) / 3, times 3/4; ce ln 2, times 1/4
    assert terms["follow"].item() == pytest.approx(0.75 * 3, rel=RELATIVE)
    assert terms["ce"].item() == pytest.approx(0.25 * math.log(2), rel=RELATIVE)


@pytest.mark.parametrize(
    ("anchors", "epochs", "expected"),
    [
        (4, 8, [0.25, 0.25, 0.5, 0.5, 0.75, 0.75, 1, 1]),
        (4, 4, [0.25, 0.5, 0.75, 1]),
        (4, 1, [1]),
        (4, 2, [0.5, 1]),
        (2, 5, [0.5, 0.5, 1, 1, 1]),
        (1, 3, [1, 1, 1]),
    ],
)
def test_rco_changes_its_anchor_at_equal_intervals(
    anchors: int, epochs: int, expected: list[float]
) -> None:
    method = toys.method("rco", toys.spec(2), toys.spec(4), anchors=anchors)
    (phase,) = method.phases(epochs)
    assert phase.teacher_at is not None
    assert [phase.teacher_at(epoch) for epoch in range(epochs)] == expected
    told = [method.diagnose(None, None, None, toys.clock(phase, epoch=e)) for e in range(epochs)]
    assert [row["teacher_at"] for row in told] == expected


# ----------------------------------------------------------------------------------------- Pro-KD


def test_pro_kd_needs_an_epoch_for_each_phase() -> None:
    method = toys.method("pro_kd", toys.spec(2), toys.spec(4))
    with pytest.raises(BadInput) as error:
        method.phases(1)
    assert str(error.value) == "epochs=1: pro_kd has two phases and needs at least 2 epochs"
    assert [(p.name, p.epochs) for p in method.phases(2)] == [("follow", 1), ("labels", 1)]


def test_pro_kd_follows_the_teacher_to_its_end_and_then_needs_none() -> None:
    method = toys.method("pro_kd", toys.spec(2), toys.spec(4), label_share=0.25)
    follow, labels = method.phases(8)
    assert (follow.epochs, labels.epochs) == (6, 2)
    assert follow.teacher_at is not None
    times = [follow.teacher_at(epoch) for epoch in range(6)]
    assert times == pytest.approx([1 / 6, 2 / 6, 3 / 6, 4 / 6, 5 / 6, 1])
    assert follow.needs == {"logits"}
    assert labels.needs == set() and labels.teacher_at is None


def test_pro_kd_tells_temperature_and_snapshot_of_the_epoch() -> None:
    method = toys.method("pro_kd", toys.spec(2), toys.spec(4), max_temperature=4)
    follow, labels = method.phases(8)
    told = [method.diagnose(None, None, None, toys.clock(follow, epoch=e)) for e in range(6)]
    assert [t["temperature"] for t in told] == [4, 3, 2, 1, 1, 1]
    assert told[2]["teacher_at"] == pytest.approx(0.5)
    assert method.diagnose(None, None, None, toys.clock(labels)) == {}
