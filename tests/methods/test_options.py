"""Options of the methods: what is refused, and what the schedules and draws are."""

from __future__ import annotations

from typing import Any

import oracle
import pytest
import torch
import toys

from ilkd_bench.types import BadInput, Incompatible

WRONG = [
    ("vanilla_checkpoint", {"teacher_at": 0}, "method.teacher_at=0: allowed is a number above 0"),
    ("vanilla_checkpoint", {"teacher_at": 1.5}, "teacher_at=1.5: allowed is a number up to 1"),
    ("vanilla", {"temperature": 0}, "method.temperature=0: allowed is a number above 0"),
    ("vanilla", {"temperature": -2.0}, "method.temperature=-2.0: allowed is a number above 0"),
    ("vanilla", {"temperature": "hot"}, "method.temperature=hot: allowed is a number above 0"),
    ("vanilla", {"temperature": True}, "method.temperature=True: allowed is a number above 0"),
    ("pkd", {"layer_map": "first"}, "method.layer_map=first is not one of: skip, last"),
    ("pkd", {"normalize": "yes"}, "method.normalize=yes is not one of: True, False"),
    ("pkd", {"projection_width": "wide"}, "method.projection_width=wide: allowed is a whole"),
    ("pkd_last", {"projection_width": 0}, "method.projection_width=0: allowed is a whole number"),
    ("alp", {"scale": "width"}, "method.scale=width is not one of: none, sqrt_width"),
    ("alp", {"include_last": "no"}, "method.include_last=no is not one of: True, False"),
    ("rail_l", {"projection": "own"}, "method.projection=own is not one of: shared, per_layer"),
    ("rail_l", {"projection_width": 1.5}, "method.projection_width=1.5: allowed is a whole"),
    ("rail_c", {"projection_width": -1}, "method.projection_width=-1: allowed is a whole number"),
    ("pro_kd", {"max_temperature": 0.5}, "method.max_temperature=0.5: allowed is a number of at"),
    ("pro_kd", {"smoothing": "soft"}, "method.smoothing=soft is not one of: factor, divide"),
    ("pro_kd", {"label_share": 1}, "method.label_share=1: allowed is a number below 1"),
    ("pro_kd", {"label_share": 0}, "method.label_share=0: allowed is a number above 0"),
]


@pytest.mark.parametrize(("name", "change", "message"), WRONG, ids=lambda v: str(v))
def test_a_wrong_value_is_refused_with_what_is_allowed(
    name: str, change: dict[str, Any], message: str
) -> None:
    with pytest.raises(BadInput) as error:
        toys.method(name, toys.spec(2), toys.spec(4), **change)
    assert message in str(error.value)


@pytest.mark.parametrize("name", ["pkd", "pkd_last", "alp", "rail_l", "rail_c"])
def test_a_student_of_one_layer_has_nothing_to_compare(name: str) -> None:
    with pytest.raises(Incompatible, match=r"student (of|has) 1 layer"):
        toys.method(name, toys.spec(1), toys.spec(4))


@pytest.mark.parametrize("name", ["pkd", "pkd_last", "rail_l", "rail_c"])
def test_a_teacher_shallower_than_its_student_is_incompatible(name: str) -> None:
    with pytest.raises(Incompatible, match=r"the teacher \(2 layers\) is shallower"):
        toys.method(name, toys.spec(3), toys.spec(2))


@pytest.mark.parametrize(
    ("name", "expected"), [("pkd", [2, 4, 6, 8, 10]), ("pkd_last", [7, 8, 9, 10, 11])]
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
    assert collapsed["teacher_spread"] == pytest.approx(0, abs=1e-7)


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
