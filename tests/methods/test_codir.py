"""What CoDIR keeps from step to step, and whom it tells a row from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import oracle
import pytest
import torch
import toys
from closeness import RELATIVE, close
from safetensors.torch import load_file
from torch import Tensor

from ilkd_bench.functional import layermaps
from ilkd_bench.jobs import plan
from ilkd_bench.methods.codir import CoDIR, mixed
from ilkd_bench.teachers.live import LiveTeacher
from ilkd_bench.training import loop, train
from ilkd_bench.types import BadInput, Clock, Outputs, Phase, Rows

PHASE = Phase("distill", 4, frozenset({"logits", "cls"}))
NUMBERS = torch.tensor([40, 3, 8, 21, 5, 13, 2, 34])  # as with limit_train, and in no order
LABELS = torch.tensor([0, 1, 2, 1, 0, 1, 2, 1])


def codir(classes: int = 3, **changes: Any) -> CoDIR:
    """A method for toy models of 2 and 4 layers that has seen the rows above."""
    method = toys.method("codir", toys.spec(2, 4, classes), toys.spec(4, 4, classes), **changes)
    assert isinstance(method, CoDIR)
    torch.manual_seed(0)
    method.prepare(LABELS if classes > 1 else torch.linspace(0, 5, 8), NUMBERS)
    return method


def at(step: int, *, epoch: int = 0, seed: int = 0) -> Clock:
    return Clock(PHASE, epoch=epoch, step=step, steps=100, seed=seed)


def batch(index: list[int], classes: int = 3) -> Rows:
    places = [NUMBERS.tolist().index(number) for number in index]
    labels = LABELS[places] if classes > 1 else torch.linspace(0, 5, 8)[places]
    return Rows(labels, torch.tensor(index))


def shown(method: CoDIR, rows: int, seed: int = 0) -> tuple[Outputs, Outputs]:
    """Random outputs of student and teacher."""
    generator = torch.Generator().manual_seed(seed)
    classes = 1 if method.regression else 3
    student, teacher = (
        toys.raw(toys.spec(layers, 4, classes), generator, lengths=[5] * rows).outputs(method.needs)
        for layers in (2, 4)
    )
    return student, teacher


def numbers_drawn(method: CoDIR, index: list[int], clock: Clock) -> list[list[int]]:
    found: list[list[int]] = method.numbers[method.drawn(torch.tensor(index), clock)].tolist()
    return found


# ------------------------------------------------------------------------------------ negatives


def test_random_numbers_are_those_of_exact_whole_numbers() -> None:
    rows, k = torch.tensor([[0], [5], [2**40]]), torch.arange(50)
    found = mixed(7, 3, 12, rows, k)
    expected = [[oracle.splitmix(7, 3, 12, row, j) for j in range(50)] for row in (0, 5, 2**40)]
    assert found.tolist() == expected
    assert (found >= 0).all()


def test_random_numbers_are_uniform() -> None:
    """10,000 draws of 10 values: each about 1,000 times; a deviation of 30 is usual."""
    drawn = mixed(0, 0, 0, torch.arange(100)[:, None], torch.arange(100))
    counts = torch.bincount(drawn.view(-1) % 10)
    assert counts.min() > 850 and counts.max() < 1150


def test_negatives_are_rows_of_another_class_and_all_of_them() -> None:
    method = codir(negatives=200)
    label = dict(zip(NUMBERS.tolist(), LABELS.tolist(), strict=True))
    for step in range(3):
        for row, drawn in zip(label, numbers_drawn(method, list(label), at(step)), strict=True):
            assert set(drawn) == {other for other in label if label[other] != label[row]}


def test_negatives_of_a_regression_are_all_other_rows() -> None:
    method = codir(classes=1, negatives=300)
    numbers = NUMBERS.tolist()
    for row, drawn in zip(numbers, numbers_drawn(method, numbers, at(0)), strict=True):
        assert set(drawn) == set(numbers) - {row}


def test_negatives_depend_on_seed_epoch_step_and_row_and_not_on_the_batch() -> None:
    method = codir()
    alone = {row: numbers_drawn(method, [row], at(5))[0] for row in NUMBERS.tolist()}
    together = numbers_drawn(method, [2, 40, 13], at(5))
    assert together == [alone[2], alone[40], alone[13]]
    assert alone[2] != alone[8]  # of one class, so among the same rows
    others = [at(6), at(5, epoch=1), at(5, seed=1)]
    drawn = [numbers_drawn(method, [2], clock)[0] for clock in others]
    for one in drawn:
        assert one != alone[2]
    assert len({tuple(one) for one in drawn}) == 3


@pytest.mark.parametrize("classes", [3, 1])
def test_a_training_set_with_nothing_to_tell_apart_is_refused(classes: int) -> None:
    method = toys.method("codir", toys.spec(2, classes=classes), toys.spec(4, classes=classes))
    rows = 5 if classes > 1 else 1
    with pytest.raises(BadInput, match="5 rows of a single class" if rows > 1 else "a single row"):
        method.prepare(torch.ones(rows), torch.arange(rows))


def test_teacher_layers() -> None:
    assert layermaps.starts(12, 6) == [1, 3, 5, 7, 9, 11]  # the authors' code
    assert layermaps.starts(24, 6) == [1, 5, 9, 13, 17, 21]
    assert layermaps.starts(11, 4) == [1, 3, 6, 9]  # 1 + 0, 2.75, 5.5, 8.25
    assert layermaps.starts(4, 4) == [1, 2, 3, 4]
    assert layermaps.starts(4, 1) == [1]


# ---------------------------------------------------------------------------------------- banks


def test_banks_start_uniform_and_of_about_unit_length() -> None:
    method = toys.method("codir", toys.spec(2), toys.spec(4))
    method.prepare(torch.arange(500) % 2, torch.arange(500))
    bound = 1 / (128 / 3) ** 0.5
    for bank in (method.student_bank, method.teacher_bank):
        assert bank.shape == (500, 128)
        assert 0.99 * bound < bank.max() <= bound and -bound <= bank.min() < -0.99 * bound
        assert bank.square().sum(1).mean().item() == pytest.approx(1, abs=0.02)
    assert not torch.equal(method.student_bank, method.teacher_bank)


def vectors(method: CoDIR, s: Outputs, t: Outputs) -> tuple[np.ndarray, np.ndarray]:
    """z_s and z_t in numpy: all student layers, teacher layers 1 and 3."""
    found = []
    for side, shows, layers in (("student", s, [1, 2]), ("teacher", t, [1, 3])):
        linear = getattr(method, f"{side}_projection")
        weights = linear.weight.detach().numpy(), linear.bias.detach().numpy()
        found.append(oracle.codir_vectors(shows.cls.numpy(), layers, weights))
    return found[0], found[1]


def test_banks_take_the_vectors_of_the_batch_and_no_others() -> None:
    method = codir()
    before = [method.student_bank.clone(), method.teacher_bank.clone()]
    s, t = shown(method, 3)
    index = [21, 2, 40]
    with torch.no_grad():
        method.remember(s, t, batch(index), at(0))
    places = [sorted(NUMBERS.tolist()).index(number) for number in index]
    rest = [place for place in range(8) if place not in places]
    banks = method.student_bank, method.teacher_bank
    for old, bank, z in zip(before, banks, vectors(method, s, t), strict=True):
        expected = oracle.l2_normalize(0.5 * old[places].numpy() + 0.5 * z)
        close(bank[places], expected)
        close(np.linalg.norm(bank[places].numpy(), axis=1), np.ones(3))
        assert torch.equal(bank[rest], old[rest])


def test_of_a_row_that_is_twice_in_a_batch_the_first_one_counts() -> None:
    one, other = codir(), codir()
    s, t = shown(one, 3)
    rows = torch.tensor([0, 2])
    once = [replace(x, logits=x.logits[rows], cls=x.cls[rows]) for x in (s, t)]
    with torch.no_grad():
        one.remember(s, t, batch([8, 8, 3]), at(1))
        other.remember(*once, batch([8, 3]), at(1))
    close(one.student_bank, other.student_bank)
    close(one.teacher_bank, other.teacher_bank)


def test_the_normaliser_is_that_of_the_first_batch_for_ever() -> None:
    """The loss of the first step is as if Z had been known already."""
    method = codir()
    first, second = shown(method, 3, seed=1), shown(method, 3, seed=2)
    index = [5, 34, 8]
    before = method.loss(*first, batch(index), at(0))["codir"].item()
    assert method.normalisers.tolist() == [0, 0], "a loss keeps nothing"
    places = torch.cat(
        [
            torch.tensor([[sorted(NUMBERS.tolist()).index(number)] for number in index]),
            method.drawn(torch.tensor(index), at(0)),
        ],
        dim=1,
    ).tolist()
    z_s, z_t = vectors(method, *first)
    expected = [
        8 * np.exp(oracle.codir_scores(z, bank.numpy(), places, 0.07)).mean()
        for z, bank in ((z_s, method.teacher_bank), (z_t, method.student_bank))
    ]
    with torch.no_grad():
        method.remember(*first, batch(index), at(0))
    # a score is a cosine over 0.07, and the error of exp is relative: that of a score
    close(method.normalisers, expected, of=np.max(expected) / 0.07)
    fixed = method.normalisers.clone()
    with torch.no_grad():
        method.remember(*second, batch(index), at(1))
    assert torch.equal(method.normalisers, fixed)
    again = codir()
    again.normalisers = fixed
    assert again.loss(*first, batch(index), at(0))["codir"].item() == pytest.approx(
        before, rel=RELATIVE
    )


# ------------------------------------------------------------------------------------- training


class Killed(BaseException):
    """The end of a process, as far as the training can tell."""


def trained(folder: Path, seen: list[tuple[int, int]], kill: tuple[int, int] | None = None) -> Any:
    """Train CoDIR on rows with gaps in their numbers; the last epoch is the best.

    Returns:
        The state of the method, that of the student, and the history.
    """
    student, model = toys.model(layers=2), toys.model(layers=4, seed=1)

    class Watched(CoDIR):
        def remember(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> None:
            assert not torch.is_grad_enabled()
            super().remember(s, t, rows, clock)
            seen.append((clock.epoch, clock.step))
            if kill == seen[-1]:
                raise Killed

    about = toys.method_settings("codir")
    options = {k: v for k, v in about.items() if k not in ("name", "_target_", "weights")}
    torch.manual_seed(0)
    method = Watched(student.spec, model.spec, **options)
    splits = toys.splits()
    splits["train"].index = 7 * torch.arange(24) + 3
    method.prepare(splits["train"].labels, splits["train"].index)
    fitted = loop.fit(
        student,
        method,
        about["weights"],
        LiveTeacher(model),
        splits,
        phases=method.phases(3),
        settings=toys.fit_settings(),
        score=lambda logits, labels: {"made": float(seen[-1][0])},
        monitor="made",
        folder=folder,
        title="test",
    )
    history = [{k: v for k, v in row.items() if k != "seconds"} for row in fitted.history]
    return method.state_dict(), student.state_dict(), history


def same(a: dict[str, Tensor], b: dict[str, Tensor]) -> bool:
    return a.keys() == b.keys() and all(torch.equal(value, b[name]) for name, value in a.items())


def test_a_killed_training_has_the_banks_of_an_undisturbed_one(tmp_path: Path) -> None:
    steps: list[tuple[int, int]] = []
    whole = trained(tmp_path / "whole", steps)
    assert steps == [(0, 0), (0, 1), (0, 2), (1, 3), (1, 4), (1, 5), (2, 6), (2, 7), (2, 8)]
    lengths = torch.linalg.vector_norm(whole[0]["student_bank"], dim=1)
    close(lengths, torch.ones(24))  # every row has been there
    assert (whole[0]["normalisers"] > 0).all()
    with pytest.raises(Killed):
        trained(tmp_path / "killed", [], kill=(1, 4))
    rest: list[tuple[int, int]] = []
    found = trained(tmp_path / "killed", rest)
    assert rest[0] == (1, 3), "it went on after the first epoch"
    assert same(found[0], whole[0]) and same(found[1], whole[1])
    assert found[2] == whole[2]


def test_a_run_shows_the_method_its_training_rows_and_stores_no_banks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = []
    prepare = CoDIR.prepare

    def watched(self: CoDIR, labels: Tensor, index: Tensor) -> None:
        seen.append(index)
        prepare(self, labels, index)

    monkeypatch.setattr(CoDIR, "prepare", watched)
    (job,) = plan.plan(toys.small(tmp_path, "method=codir"))
    job.folder.mkdir(parents=True)
    train.train(job.run, job.folder)
    assert len(seen) == 1 and len(seen[0]) == 64
    assert seen[0].max() >= 64, "limit_train leaves gaps"
    kept = {"projection.weight", "projection.bias"}
    stored = load_file(job.folder / "method.safetensors")
    assert set(stored) == {f"{side}_{name}" for side in ("student", "teacher") for name in kept}
