"""Losses, features, layer maps and schedules: hand-computed literals and the numpy oracle."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import numpy as np
import oracle
import pytest
import torch

from ilkd_bench.functional import features, layermaps, losses, schedules
from ilkd_bench.types import Incompatible

LN2, LN3 = math.log(2.0), math.log(3.0)

# One rounding of float32 is 6e-8; a handful of them in a row of sums, logs and squares stays
# well below 2e-5 on the values of order one used here. float64 only differs in summation order.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 2e-5}
PRECISIONS = pytest.mark.parametrize("dtype", list(TOLERANCE), ids=["float64", "float32"])
HALVES = pytest.mark.parametrize(
    "dtype", [torch.float16, torch.bfloat16], ids=["float16", "bfloat16"]
)
SEEDS = pytest.mark.parametrize("seed", [0, 1, 2])


def real(values: Any, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.as_tensor(values, dtype=dtype)


def numbers(tensor: torch.Tensor) -> Any:
    return tensor.detach().to(torch.float64).numpy()


def agree(loss: torch.Tensor, expected: float, dtype: torch.dtype = torch.float64) -> None:
    """A scalar tensor with this value."""
    assert loss.shape == ()
    assert loss.item() == pytest.approx(expected, rel=TOLERANCE[dtype], abs=TOLERANCE[dtype])


def finite_with_gradient(
    function: Callable[..., torch.Tensor], *trained: torch.Tensor
) -> list[torch.Tensor]:
    """The gradients of ``function(*trained)``; it and they have to be finite."""
    leaves = [tensor.detach().clone().requires_grad_() for tensor in trained]
    loss = function(*leaves)
    assert torch.isfinite(loss).all(), loss
    gradients = list(torch.autograd.grad(loss, leaves))
    for gradient in gradients:
        assert torch.isfinite(gradient).all(), gradient
    return gradients


# ------------------------------------------------------------------------------ cross-entropy


@PRECISIONS
def test_cross_entropy_by_hand(dtype: torch.dtype) -> None:
    # p of the label: 1/2, and 3/4 of logits 0, ln 3: (ln 2 + ln 4/3) / 2 = ln(8/3) / 2
    loss = losses.cross_entropy(real([[0, 0], [0, LN3]], dtype), torch.tensor([0, 1]))
    agree(loss, 0.4904146265, dtype)


@PRECISIONS
def test_cross_entropy_of_one_output_by_hand(dtype: torch.dtype) -> None:
    # ((1 - 0)^2 + (3 - 1)^2) / 2; pairing every output with every label would give 3.5
    agree(losses.cross_entropy(real([[1], [3]], dtype), real([0, 1], dtype)), 2.5, dtype)


@SEEDS
@PRECISIONS
@pytest.mark.parametrize("classes", [1, 2, 3, 10])
def test_cross_entropy_against_the_oracle(classes: int, dtype: torch.dtype, seed: int) -> None:
    g = np.random.default_rng(seed)
    logits = real(g.normal(0, 3, (7, classes)), dtype)
    drawn = g.uniform(0, 5, 7) if classes == 1 else g.integers(0, classes, 7)
    labels = torch.as_tensor(drawn) if classes > 1 else real(drawn, dtype)
    expected = oracle.cross_entropy(numbers(logits), labels.numpy())
    agree(losses.cross_entropy(logits, labels), expected, dtype)


# ------------------------------------------------------------------------------------ soft KL


@PRECISIONS
@pytest.mark.parametrize(
    ("student", "teacher", "temperature", "expected"),
    [
        # the published fixture; 2 T (x^2 - 1) / (x^2 + x + 1) with x = e^(1/T), see test_oracle.py
        ([[1, 2, 3]], [[3, 2, 1]], 1, 1.1504207652),
        ([[1, 2, 3]], [[3, 2, 1]], 2, 1.2806266713),
        ([[1, 2, 3]], [[3, 2, 1]], 10, 1.3311159151),
        # p_t = 3/4, 1/4, p_s = 1/2, 1/2: 3/4 ln(3/2) + 1/4 ln(1/2)
        ([[0, 0]], [[LN3, 0]], 1, 0.1308120359),
        # the same distributions at T = 2, times 4; the other direction of KL would give 0.5753641
        ([[0, 0]], [[2 * LN3, 0]], 2, 0.5232481438),
        # sum over classes, mean over rows: a second row without a difference halves it
        ([[0, 0], [1, 5]], [[LN3, 0], [1, 5]], 1, 0.0654060180),
        # a constant added to all logits of a row changes nothing
        ([[101, 102, 103]], [[-7, -8, -9]], 1, 1.1504207652),
        ([[1, 2, 3]], [[1, 2, 3]], 4, 0.0),
        # one output: a squared error without temperature
        ([[1], [3]], [[2], [0]], 10, 5.0),
    ],
)
def test_soft_kl_by_hand(
    student: Any, teacher: Any, temperature: float, expected: float, dtype: torch.dtype
) -> None:
    found = losses.soft_kl(real(student, dtype), real(teacher, dtype), temperature=temperature)
    agree(found, expected, dtype)


@SEEDS
@PRECISIONS
@pytest.mark.parametrize("temperature", [1, 2.5, 10])
@pytest.mark.parametrize("classes", [1, 2, 3, 10])
def test_soft_kl_against_the_oracle(
    classes: int, temperature: float, dtype: torch.dtype, seed: int
) -> None:
    zs, zt = real(np.random.default_rng(seed).normal(0, 3, (2, 7, classes)), dtype)
    expected = oracle.soft_kl(numbers(zs), numbers(zt), temperature)
    agree(losses.soft_kl(zs, zt, temperature=temperature), expected, dtype)


@pytest.mark.parametrize("temperature", [1, 2, 10])
def test_soft_kl_gradient_by_hand(temperature: int) -> None:
    # d/dz_s of T^2 KL = T (p_s - p_t) / B: with p_s = 1/2, 1/2 and p_t = 3/4, 1/4, two equal rows
    zs = torch.zeros(2, 2, dtype=torch.float64, requires_grad=True)
    zt = real([[temperature * LN3, 0]] * 2)
    (gradient,) = torch.autograd.grad(losses.soft_kl(zs, zt, temperature=temperature), [zs])
    expected = real([[-temperature / 8, temperature / 8]] * 2)
    torch.testing.assert_close(gradient, expected, rtol=1e-10, atol=1e-12)


def test_soft_kl_of_one_output_is_not_zero() -> None:
    zs = real([[0.5], [1.5], [-2.0]]).requires_grad_()
    loss = losses.soft_kl(zs, real([[1.0], [0.0], [3.0]]), temperature=10)
    assert loss.item() == pytest.approx((0.25 + 2.25 + 25.0) / 3)
    (gradient,) = torch.autograd.grad(loss, [zs])
    assert (gradient != 0).all()


# ---------------------------------------------------------------------------- squared errors


@PRECISIONS
def test_squared_errors_by_hand(dtype: torch.dtype) -> None:
    # (1 + 4 + 9 + 16) / 4
    agree(losses.mse(real([[1, 2], [3, 4]], dtype), real([[0, 0], [0, 0]], dtype)), 7.5, dtype)
    # (0.6, 0.8) - (0.8, 0.6): (0.04 + 0.04) / 2
    agree(losses.normalized_mse(real([[3, 4]], dtype), real([[4, 3]], dtype)), 0.04, dtype)
    # norms are over the last axis only, so lengths do not matter: still 0.04, and 1 for the axes
    a, b = [[[3, 4], [7, 0]], [[30, 40], [5, 0]]], [[[8, 6], [0, 1]], [[4, 3], [0, 9]]]
    agree(losses.normalized_mse(real(a, dtype), real(b, dtype)), 0.52, dtype)
    # a zero vector stays zero: (0.36 + 0.64) / 2
    agree(losses.normalized_mse(real([[0, 0]], dtype), real([[3, 4]], dtype)), 0.5, dtype)


@PRECISIONS
@pytest.mark.parametrize("kind", [torch.int64, torch.bool, torch.float32], ids=str)
def test_masked_mse_by_hand(kind: torch.dtype, dtype: torch.dtype) -> None:
    # real vectors (1, 2) and (3, 0): (1 + 4 + 9 + 0) / 4
    a = real([[[1, 2], [900, 900]], [[3, 0], [-900, 900]]], dtype)
    mask = torch.tensor([[1, 0], [1, 0]]).to(kind)
    agree(losses.masked_mse(a, torch.zeros_like(a), mask), 3.5, dtype)
    # every position counts once, whatever its row: (1 + 1 + 16) / 3; a mean of row means gives 8.5
    b = real([[[1], [1]], [[4], [900]]], dtype)
    mask = torch.tensor([[1, 1], [1, 0]]).to(kind)
    agree(losses.masked_mse(b, torch.zeros_like(b), mask), 6.0, dtype)
    agree(losses.masked_mse(b, torch.zeros_like(b), torch.zeros_like(mask)), 0.0, dtype)


@SEEDS
@PRECISIONS
@pytest.mark.parametrize("shape", [(5, 4), (3, 2, 6), (2, 3, 4, 5)])
def test_squared_errors_against_the_oracle(
    shape: tuple[int, ...], dtype: torch.dtype, seed: int
) -> None:
    a, b = real(np.random.default_rng(seed).normal(0, 2, (2, *shape)), dtype)
    agree(losses.mse(a, b), oracle.mse(numbers(a), numbers(b)), dtype)
    expected = oracle.normalized_mse(numbers(a), numbers(b))
    agree(losses.normalized_mse(a, b), expected, dtype)


@SEEDS
@PRECISIONS
def test_masked_mse_against_the_oracle(dtype: torch.dtype, seed: int) -> None:
    g = np.random.default_rng(seed)
    mask = np.arange(6)[None, :] < g.integers(0, 7, (4, 1))
    garbage = np.where(mask[..., None], 0.0, 800.0)
    a, b = real(g.normal(0, 2, (2, 4, 6, 3)), dtype) + real(np.stack([garbage, -garbage]), dtype)
    expected = oracle.masked_mse(numbers(a), numbers(b), mask)
    agree(losses.masked_mse(a, b, torch.as_tensor(mask).long()), expected, dtype)


# -------------------------------------------------------------------------- all of the losses


def test_repeating_the_batch_changes_nothing() -> None:
    g = np.random.default_rng(3)
    zs, zt = real(g.normal(0, 3, (2, 4, 3)))
    a, b = real(g.normal(0, 2, (2, 4, 5, 6)))
    labels = torch.tensor([0, 1, 2, 1])
    scores = real(g.uniform(0, 5, 4))
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 1, 1, 0, 0], [1, 0, 0, 0, 0]])
    times = 3

    def again(tensor: torch.Tensor) -> torch.Tensor:
        return torch.cat([tensor] * times)

    calls: list[tuple[Callable[..., torch.Tensor], tuple[torch.Tensor, ...]]] = [
        (losses.cross_entropy, (zs, labels)),
        (losses.cross_entropy, (zs[:, :1], scores)),
        (lambda x, y: losses.soft_kl(x, y, temperature=10), (zs, zt)),
        (lambda x, y: losses.soft_kl(x, y, temperature=10), (zs[:, :1], zt[:, :1])),
        (losses.mse, (a, b)),
        (losses.normalized_mse, (a, b)),
        (losses.masked_mse, (a, b, mask)),
    ]
    for function, arguments in calls:
        once = function(*arguments).item()
        assert once > 0
        assert function(*map(again, arguments)).item() == pytest.approx(once, rel=1e-12)


@HALVES
@pytest.mark.parametrize("temperature", [1, 2, 10])
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_soft_kl_of_large_half_precision_logits(
    classes: int, temperature: int, dtype: torch.dtype
) -> None:
    zs = torch.full((2, classes), -1e4, dtype=dtype)
    zs[0, 0] = zs[1, -1] = 1e4
    finite_with_gradient(lambda z: losses.soft_kl(z, -zs, temperature=temperature), zs)
    finite_with_gradient(lambda z: losses.soft_kl(z, zs, temperature=temperature), zs)


@HALVES
@pytest.mark.parametrize("classes", [1, 2, 3])
def test_cross_entropy_of_large_half_precision_logits(classes: int, dtype: torch.dtype) -> None:
    logits = torch.full((2, classes), -1e4, dtype=dtype)
    logits[0, 0] = logits[1, -1] = 1e4
    for labels in ([0, 0], [classes - 1, classes - 1]):
        wanted = torch.tensor(labels) if classes > 1 else torch.tensor(labels, dtype=dtype)
        finite_with_gradient(lambda z, y=wanted: losses.cross_entropy(z, y), logits)


@HALVES
def test_mse_of_large_half_precision_logits(dtype: torch.dtype) -> None:
    # Pro-KD compares logits with it; 2e4^2 is beyond the largest float16, 65504
    logits = torch.tensor([[1e4, -1e4], [-1e4, 1e4]], dtype=dtype)
    finite_with_gradient(lambda z: losses.mse(z, -logits), logits)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=["float64", "float32"])
@pytest.mark.parametrize("other", [[0.0, 0.0, 0.0], [3.0, 4.0, 0.0]])
def test_zero_vectors_under_normalisation(other: list[float], dtype: torch.dtype) -> None:
    zero = torch.zeros(2, 3, dtype=dtype)
    zero[1] = real([1, 2, 2], dtype)
    there = real([other, other], dtype)
    finite_with_gradient(losses.normalized_mse, zero, there)
    finite_with_gradient(losses.normalized_mse, there, zero)
    expected = oracle.normalized_mse(numbers(zero), numbers(there))
    agree(losses.normalized_mse(zero, there), expected, dtype)


# ---------------------------------------------------------------------------------- features


@pytest.mark.parametrize("container", [list, tuple])
def test_features_by_hand(container: Callable[[Any], Any]) -> None:
    hidden = container(
        [
            real([[[1, 2], [3, 6], [900, 900]], [[5, 5], [900, 900], [900, 900]]]),
            real([[[0, 1], [1, 0], [900, 900]], [[7, 8], [900, 900], [900, 900]]]),
        ]
    )
    assert features.cls(hidden).tolist() == [[[1, 2], [0, 1]], [[5, 5], [7, 8]]]
    mask = torch.tensor([[1, 1, 0], [1, 0, 0]])
    assert features.mean(hidden, mask).tolist() == [[[2, 4], [0.5, 0.5]], [[5, 5], [7, 8]]]


@SEEDS
@PRECISIONS
@pytest.mark.parametrize("kind", [torch.int64, torch.bool, torch.float32], ids=str)
def test_features_against_the_oracle(kind: torch.dtype, dtype: torch.dtype, seed: int) -> None:
    g = np.random.default_rng(seed)
    mask = np.arange(5)[None, :] < np.array([5, 3, 1, 0])[:, None]
    garbage = np.where(mask[..., None], 0.0, 900.0)
    hidden = [real(g.normal(0, 1, (4, 5, 6)) + garbage, dtype) for _ in range(4)]
    plain = [numbers(h) for h in hidden]
    limit = TOLERANCE[dtype]
    found = features.mean(hidden, torch.as_tensor(mask).to(kind))
    assert found.dtype == dtype
    np.testing.assert_allclose(numbers(found), oracle.mean(plain, mask), rtol=limit, atol=limit)
    np.testing.assert_array_equal(numbers(features.cls(hidden)), oracle.cls(plain))


def test_a_row_of_padding_is_finite() -> None:
    hidden = torch.full((2, 3, 4), 700.0)
    mask = torch.tensor([[1, 1, 0], [0, 0, 0]])
    pooled = features.mean([hidden], mask)
    assert pooled[1].eq(0).all()
    (gradient,) = finite_with_gradient(lambda h: features.mean([h], mask).sum(), hidden)
    assert gradient[mask == 0].eq(0).all()
    assert gradient[mask == 1].eq(0.5).all()
    (gradient,) = finite_with_gradient(
        lambda h: losses.normalized_mse(features.mean([h], mask), torch.ones(2, 1, 4)), hidden
    )
    assert gradient[mask == 0].eq(0).all()
    for real_rows in (mask, torch.zeros_like(mask)):
        (gradient,) = finite_with_gradient(
            lambda h, m=real_rows: losses.masked_mse(h, torch.zeros_like(h), m), hidden
        )
        assert gradient[real_rows == 0].eq(0).all()


# -------------------------------------------------------------------------------- layer maps


@pytest.mark.parametrize(
    ("function", "n", "m", "expected"),
    [
        (layermaps.skip, 12, 6, [2, 4, 6, 8, 10]),
        (layermaps.skip, 24, 6, [4, 8, 12, 16, 20]),
        (layermaps.skip, 12, 5, [2, 4, 7, 9]),  # 2.4, 4.8, 7.2, 9.6, all rounded down
        (layermaps.skip, 11, 4, [2, 5, 8]),  # 2.75, 5.5, 8.25
        (layermaps.skip, 6, 6, [1, 2, 3, 4, 5]),
        (layermaps.skip, 12, 2, [6]),
        (layermaps.last, 12, 6, [7, 8, 9, 10, 11]),
        (layermaps.last, 24, 6, [19, 20, 21, 22, 23]),
        (layermaps.last, 6, 6, [1, 2, 3, 4, 5]),
        (layermaps.last, 12, 2, [11]),
        (layermaps.uniform, 12, 6, [0, 2, 4, 6, 8, 10, 12]),
        (layermaps.uniform, 12, 4, [0, 3, 6, 9, 12]),
        (layermaps.uniform, 11, 4, [0, 2, 5, 8, 11]),
        (layermaps.uniform, 4, 4, [0, 1, 2, 3, 4]),
    ],
)
def test_fixed_maps_by_hand(function: Any, n: int, m: int, expected: list[int]) -> None:
    found = function(n, m)
    assert found == expected
    assert isinstance(found, list)
    assert all(type(layer) is int for layer in found)


def test_fixed_maps_against_the_oracle() -> None:
    for n in range(2, 25):
        for m in range(2, n + 1):
            assert layermaps.skip(n, m) == oracle.skip(n, m)
            assert layermaps.last(n, m) == oracle.last(n, m)
            assert layermaps.uniform(n, m) == oracle.uniform(n, m)


@pytest.mark.parametrize(("n", "m"), [(12, 6), (24, 6), (12, 4), (3, 2), (6, 6)])
def test_random_layers_are_distinct_sorted_and_intermediate(n: int, m: int) -> None:
    for epoch in range(100):
        drawn = layermaps.random_layers(n, m, at=(7, epoch), order="sorted")
        assert isinstance(drawn, list)
        assert all(type(layer) is int for layer in drawn)
        assert len(drawn) == m - 1
        assert drawn == sorted(set(drawn))
        assert 1 <= drawn[0] <= drawn[-1] <= n - 1
        assert drawn == layermaps.random_layers(n, m, at=(7, epoch), order="sorted")
        assert drawn == oracle.random_sorted(n, m, 7, epoch)


def test_random_layers_differ_between_epochs_and_seeds() -> None:
    # 462 possible draws: 20 draws are all equal with probability 462^-19
    epochs = [tuple(layermaps.random_layers(12, 6, at=(0, e), order="sorted")) for e in range(20)]
    seeds = [tuple(layermaps.random_layers(12, 6, at=(s, 0), order="sorted")) for s in range(20)]
    # 20 out of 462 with replacement: 0.41 repetitions expected
    assert len(set(epochs)) > 15
    assert len(set(seeds)) > 15
    # seed and epoch are not exchangeable, nor only their sum
    assert epochs[1:] != seeds[1:]
    assert layermaps.random_layers(12, 6, at=(1, 2), order="sorted") == oracle.random_sorted(
        12, 6, 1, 2
    )
    assert layermaps.random_layers(12, 6, at=(2, 1), order="sorted") == oracle.random_sorted(
        12, 6, 2, 1
    )


def test_random_layers_leave_global_generators_alone() -> None:
    expected = layermaps.random_layers(12, 6, at=(3, 4), order="sorted")
    kept = random.getstate(), np.random.get_state(), torch.get_rng_state()
    try:
        for seed in (0, 1):
            random.seed(seed)
            np.random.seed(seed)
            torch.manual_seed(seed)
            before = random.getstate(), np.random.get_state(), torch.get_rng_state()
            assert layermaps.random_layers(12, 6, at=(3, 4), order="sorted") == expected
            assert random.getstate() == before[0]
            for one, other in zip(np.random.get_state(), before[1], strict=True):
                assert np.array_equal(one, other)
            assert torch.equal(torch.get_rng_state(), before[2])
    finally:
        random.setstate(kept[0])
        np.random.set_state(kept[1])
        torch.set_rng_state(kept[2])


def test_random_layers_are_about_uniform() -> None:
    # each of 1..11 is in a draw of 5 with p = 5/11, so over 2000 draws its frequency has standard
    # deviation sqrt(p (1 - p) / 2000) = 0.0111; the draws are fixed, and 4 of these is 0.0445
    # (for all 11 layers at once a false alarm would have a probability below 0.001)
    epochs, p = 2000, 5 / 11
    counts = dict.fromkeys(range(1, 12), 0)
    for epoch in range(epochs):
        for layer in layermaps.random_layers(12, 6, at=(0, epoch), order="sorted"):
            counts[layer] += 1
    limit = 4 * math.sqrt(p * (1 - p) / epochs)
    for layer, count in counts.items():
        assert abs(count / epochs - p) < limit, layer


@pytest.mark.parametrize(
    "function",
    [
        layermaps.skip,
        layermaps.last,
        lambda n, m: layermaps.random_layers(n, m, at=(0, 0), order="sorted"),
    ],
    ids=["skip", "last", "random_layers"],
)
@pytest.mark.parametrize(("n", "m"), [(3, 6), (5, 6), (1, 2), (12, 1), (1, 1)])
def test_maps_of_intermediate_layers_need_fitting_depths(function: Any, n: int, m: int) -> None:
    with pytest.raises(Incompatible):
        function(n, m)


GROUPS = {
    "regular": layermaps.regular_groups,
    "overlap": layermaps.overlap_groups,
    "skip_middle": layermaps.skip_middle_groups,
    "cross": layermaps.cross_groups,
}


def words(text: str) -> list[list[int]]:
    return [[int(layer) for layer in group.split()] for group in text.split(",")]


@pytest.mark.parametrize(
    ("scheme", "n", "m", "expected"),
    [
        # the authors' examples
        ("regular", 6, 2, "1 2 3, 4 5 6"),
        ("overlap", 6, 2, "1 2 3 4, 3 4 5 6"),
        ("skip_middle", 6, 2, "1 2, 5 6"),
        ("cross", 6, 2, "1 3, 4 6"),
        ("regular", 12, 6, "1 2, 3 4, 5 6, 7 8, 9 10, 11 12"),
        ("overlap", 12, 6, "1 2 3, 3 4 5, 5 6 7, 7 8 9, 9 10 11, 10 11 12"),
        ("skip_middle", 12, 6, "1, 2, 3, 10, 11, 12"),
        ("cross", 12, 6, "1, 3, 5, 7, 9, 11"),
        ("regular", 12, 4, "1 2 3, 4 5 6, 7 8 9, 10 11 12"),
        ("overlap", 12, 4, "1 2 3 4, 4 5 6 7, 7 8 9 10, 9 10 11 12"),
        ("skip_middle", 12, 4, "1 2, 3 4, 9 10, 11 12"),
        ("cross", 12, 4, "1 3, 4 6, 7 9, 10 12"),
        ("regular", 12, 2, "1 2 3 4 5 6, 7 8 9 10 11 12"),
        ("overlap", 12, 2, "1 2 3 4 5 6 7, 6 7 8 9 10 11 12"),
        ("skip_middle", 12, 2, "1 2 3 4 5, 8 9 10 11 12"),
        ("cross", 12, 2, "1 3 5, 7 9 11"),
        ("skip_middle", 24, 6, "1 2 3, 4 5 6, 7 8 9, 16 17 18, 19 20 21, 22 23 24"),
        ("cross", 24, 6, "1 3, 5 7, 9 11, 13 15, 17 19, 21 23"),
        # not whole: groups end at 2.75, 5.5, 8.25 and 11, rounded down
        ("regular", 11, 4, "1 2, 3 4 5, 6 7 8, 9 10 11"),
        ("skip_middle", 9, 3, "1 2, 3 4, 8 9"),
        ("overlap", 3, 3, "1 2, 2 3, 2 3"),
        ("overlap", 4, 1, "1 2 3 4"),
        ("skip_middle", 4, 4, "1, 2, 3, 4"),
    ],
)
def test_groups_by_hand(scheme: str, n: int, m: int, expected: str) -> None:
    assert GROUPS[scheme](n, m) == words(expected)


@pytest.mark.parametrize("scheme", GROUPS)
def test_every_student_layer_has_a_group_of_its_size(scheme: str) -> None:
    """All pairs of depths up to 30."""
    for n in range(1, 31):
        for m in range(1, n + 1):
            found = GROUPS[scheme](n, m)
            assert found == oracle.groups(n, m, scheme)
            assert len(found) == m
            regular = [len(group) for group in layermaps.regular_groups(n, m)]
            for group, size in zip(found, regular, strict=True):
                assert n // m <= size <= -(-n // m)
                assert group == sorted(set(group))
                assert group[0] >= 1 and group[-1] <= n
                wanted = {
                    "regular": size,
                    "overlap": size + (m > 1),
                    "skip_middle": max(1, n // m - 1),
                    "cross": (size + 1) // 2,
                }
                assert len(group) == wanted[scheme]
            firsts, lasts = [g[0] for g in found], [g[-1] for g in found]
            assert firsts == sorted(firsts) and lasts == sorted(lasts)
            layers = [layer for group in found for layer in group]
            if scheme == "overlap":
                assert set(layers) == set(range(1, n + 1))
                assert all(set(a) & set(b) for a, b in pairwise(found))
            else:
                assert len(set(layers)) == len(layers), "no layer is in two groups"
            if scheme == "regular":
                assert layers == list(range(1, n + 1))
            if scheme == "skip_middle" and n // m > 1 and m > 1:
                out = sorted(set(range(1, n + 1)) - set(layers))
                assert out == list(range(out[0], out[-1] + 1)), "one stretch is left out"
                assert layers[0] == 1 and layers[-1] == n


@pytest.mark.parametrize("scheme", GROUPS)
@pytest.mark.parametrize(("n", "m"), [(3, 6), (1, 2)])
def test_groups_need_a_deeper_teacher(scheme: str, n: int, m: int) -> None:
    with pytest.raises(Incompatible, match="shallower than the student"):
        GROUPS[scheme](n, m)


@pytest.mark.parametrize(("n", "m"), [(3, 6), (5, 6), (1, 2)])
def test_the_uniform_map_needs_a_deeper_teacher(n: int, m: int) -> None:
    with pytest.raises(Incompatible):
        layermaps.uniform(n, m)


# --------------------------------------------------------------------------------- attention


@PRECISIONS
def test_attend_by_hand(dtype: torch.dtype) -> None:
    # products ln 2, 0 and 0, 0: weights 2/3, 1/3 and 1/2, 1/2
    query = real([[[1, 0], [0, 0]]], dtype)
    keys = real([[[LN2, 5], [0, 7]]], dtype)
    expected = real([[[2 / 3, 1 / 3], [1 / 2, 1 / 2]]], dtype)
    limit = TOLERANCE[dtype]
    torch.testing.assert_close(layermaps.attend(query, keys), expected, rtol=limit, atol=limit)


@SEEDS
@PRECISIONS
def test_attend_against_the_oracle(dtype: torch.dtype, seed: int) -> None:
    g = np.random.default_rng(seed)
    query, keys = real(g.normal(size=(3, 2, 4)), dtype), real(g.normal(size=(3, 5, 4)), dtype)
    weights = layermaps.attend(query, keys)
    assert weights.shape == (3, 2, 5)
    expected = oracle.attend(numbers(query), numbers(keys))
    np.testing.assert_allclose(numbers(weights), expected, rtol=TOLERANCE[dtype])
    np.testing.assert_allclose(numbers(weights.sum(dim=2)), 1.0, rtol=TOLERANCE[dtype])


def test_attend_to_what_is_allowed_by_hand() -> None:
    # products ln 2, 0, ln 5: of the first two 2/3, 1/3; of the last two 1/6, 5/6
    query, keys = real([[[1.0], [1.0]]]), real([[[LN2], [0.0], [math.log(5)]]])
    allowed = torch.tensor([[True, True, False], [False, True, True]])
    expected = real([[[2 / 3, 1 / 3, 0], [0, 1 / 6, 5 / 6]]])
    found = layermaps.attend(query, keys, allowed=allowed)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    everywhere = torch.ones(2, 3, dtype=torch.bool)
    assert torch.equal(
        layermaps.attend(query, keys, allowed=everywhere), layermaps.attend(query, keys)
    )


def test_the_gradient_flows_through_the_attention_weights() -> None:
    # weights 1/2, 1/2 of keys 1 and 0: d w_1 / d q = w_1 w_2 (k_1 - k_2) = 1/4
    query = torch.zeros(1, 1, 1, dtype=torch.float64, requires_grad=True)
    weights = layermaps.attend(query, real([[[1], [0]]]))
    (gradient,) = torch.autograd.grad(weights[0, 0, 0], [query])
    assert gradient.item() == pytest.approx(0.25)


def test_attend_to_large_products_is_finite() -> None:
    keys = torch.tensor([[[1e3, 0.0], [0.0, 1e3]]])
    finite_with_gradient(
        lambda q: layermaps.attend(q, keys).square().sum(), torch.tensor([[[1e3, -1e3]]])
    )


# --------------------------------------------------------------------------------- schedules


@pytest.mark.parametrize(
    ("epochs", "t_max", "expected"),
    [
        (10, 10, [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]),
        (20, 10, [t for t in range(10, 0, -1) for _ in range(2)]),
        (12, 10, [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1, 1]),  # each for floor(1.2) = 1, then 1
        (14, 7, [t for t in range(7, 0, -1) for _ in range(2)]),
        (7, 3, [3, 3, 2, 2, 1, 1, 1]),
        (4, 10, [10, 7, 4, 1]),  # steps of 9 / 3
        (3, 4, [4, 2.5, 1]),
        (2, 10, [10, 1]),
        (1, 10, [1]),
        (1, 1, [1]),
        (3, 1, [1, 1, 1]),
    ],
)
def test_falling_temperature_by_hand(epochs: int, t_max: int, expected: list[float]) -> None:
    found = [schedules.falling_temperature(epoch, epochs, t_max) for epoch in range(epochs)]
    assert found == pytest.approx(expected, rel=1e-12)


def test_falling_temperature_against_the_oracle() -> None:
    for t_max in range(1, 13):
        for epochs in range(1, 30):
            found = [schedules.falling_temperature(e, epochs, t_max) for e in range(epochs)]
            expected = [oracle.falling_temperature(e, epochs, t_max) for e in range(epochs)]
            assert found == pytest.approx(expected, rel=1e-12)
            assert found == sorted(found, reverse=True)
            assert found[-1] == pytest.approx(1)
            assert epochs == 1 or found[0] == pytest.approx(t_max)


@pytest.mark.parametrize(
    ("temperature", "t_max", "expected"),
    [(10, 10, 0.1), (5, 10, 0.6), (1, 10, 1.0), (7, 7, 1 / 7), (2.5, 4, 0.625), (1, 1, 1.0)],
)
def test_smoothing_factor_by_hand(temperature: float, t_max: int, expected: float) -> None:
    assert schedules.smoothing_factor(temperature, t_max) == pytest.approx(expected, rel=1e-12)
    smoothed = oracle.smooth([[1.0]], temperature, t_max, "factor")
    assert smoothed.tolist() == [[pytest.approx(expected, rel=1e-12)]]
