"""Statistics against scipy, hand computation and plain loops over the definitions."""

from __future__ import annotations

import math
from itertools import product

import numpy as np
import pytest
import torch
from scipy import stats as scipy_stats

from ilkd_bench.comparison import bootstrap, statistics
from ilkd_bench.data import metrics
from ilkd_bench.students import similarity

NAN = float("nan")


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def classes(seed: int, n: int, kinds: int = 2, seeds: int = 1, share: float = 0.7):
    """Labels [n], and for two methods predictions [seeds, n], right with about that probability."""
    generator = rng(seed)
    labels = generator.integers(kinds, size=n)
    guesses = generator.integers(kinds, size=(2, seeds, n))
    a, b = np.where(generator.random((2, seeds, n)) < share, labels, guesses)
    return labels, a, b


# interval


def test_interval_of_five_values_takes_the_expanded_percentiles_of_all_resamples() -> None:
    values = np.array([0.1, 0.2, 0.35, 0.6, 0.9])
    means = np.sort([np.mean(sample) for sample in product(values, repeat=5)])  # all 3,125
    # level 0.5: t(0.75; 4) = 0.7407, times sqrt(5/4) = 0.8281, Phi(-0.8281) = 0.2038
    expected = means[round(0.2038 * 3125)], means[round((1 - 0.2038) * 3125)]
    found = statistics.interval(values, rng(), level=0.5, draws=20_000)
    assert found == pytest.approx(expected, abs=0.012)
    plain = means[round(0.25 * 3125)], means[round(0.75 * 3125)]
    assert abs(plain[0] - expected[0]) > 0.015  # so that the test tells them apart


def test_interval_of_three_values_is_their_range() -> None:
    assert statistics.interval([0.7, 0.5, 0.9], rng()) == pytest.approx((0.5, 0.9))


def test_interval_of_many_values_is_nearly_student_s() -> None:
    values = rng(1).normal(0.8, 0.1, 200)
    expected = scipy_stats.t.interval(0.95, 199, values.mean(), scipy_stats.sem(values))
    assert statistics.interval(values, rng()) == pytest.approx(expected, abs=1e-3)


def test_interval_without_spread_makes_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    assert statistics.interval([0.1] * 3, rng()) == (0.1, 0.1)
    assert all(map(math.isnan, statistics.interval([0.1], rng())))
    assert not recwarn


def test_interval_covers_what_its_docstring_says() -> None:
    samples = rng(2).normal(size=(300, 5))
    held = [
        low <= 0 <= high
        for low, high in (statistics.interval(s, rng(), draws=999) for s in samples)
    ]
    assert np.mean(held) == pytest.approx(0.92, abs=0.05)  # 0.05 is three standard errors


def test_interval_depends_on_nothing_but_values_and_generator() -> None:
    values = [0.1, 0.5, 0.2, 0.9]
    before = np.random.get_state()[1].copy()
    first = statistics.interval(values, rng(3), draws=50)
    assert first == statistics.interval(values[::-1], rng(3), draws=50)
    assert first == statistics.interval(values, rng(3), draws=50)
    assert (np.random.get_state()[1] == before).all()


# paired


def test_paired_by_hand() -> None:
    a, b = [0.80, 0.82, 0.85, 0.81], [0.78, 0.81, 0.80, 0.81]
    found = statistics.paired(a, b)
    d = [0.02, 0.01, 0.05, 0.0]  # mean 0.02, variance (0 + 1 + 9 + 4) / 3 * 1e-4
    error = math.sqrt(14 / 3 * 1e-4 / 4)
    assert found.difference == pytest.approx(sum(d) / 4)
    half = 3.182446 * error  # the table's t(0.975; 3)
    assert (found.low, found.high) == pytest.approx((0.02 - half, 0.02 + half), abs=1e-7)
    assert found.p == pytest.approx(2 * scipy_stats.t.sf(0.02 / error, 3))
    assert found.n == 4


def test_paired_exchanged_is_reversed_and_order_of_seeds_is_no_matter() -> None:
    a, b = rng(4).random((2, 6))
    found, back = statistics.paired(a, b), statistics.paired(b, a)
    assert back == found.reversed()
    assert found.low < found.difference < found.high
    order = rng(5).permutation(6)
    assert statistics.paired(a[order], b[order]).p == pytest.approx(found.p)


def test_paired_without_differences_has_p_1() -> None:
    assert statistics.paired([0.5, 0.6], [0.5, 0.6]) == statistics.Comparison(0.0, 0.0, 0.0, 1.0, 2)
    assert statistics.paired([0.0, 0.0], [0.0, 0.0]).p == 1.0


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([0.9], [0.7], 0.2),
        ([0.9], [0.9], 0.0),
        ([0.9, 0.8, 0.7], [0.8, 0.7, 0.6], 0.1),
        (np.float32([0.9, 0.8, 0.3]), np.float32([0.8, 0.7, 0.2]), 0.1),  # equal but for rounding
    ],
)
def test_paired_that_cannot_be_tested_has_no_p(a, b, expected, recwarn) -> None:
    found = statistics.paired(a, b)
    assert found.difference == pytest.approx(expected)
    assert all(map(math.isnan, (found.low, found.high, found.p)))
    assert found.n == len(a)
    assert not recwarn


# McNemar


def test_mcnemar_by_hand() -> None:
    # 6 examples only a has right, 1 only b, 5 both, 2 neither: 2 (C(7,0) + C(7,1)) / 2^7
    a = [1] * 6 + [0] + [1] * 5 + [0] * 2
    b = [0] * 6 + [1] + [1] * 5 + [0] * 2
    assert statistics.mcnemar(a, b) == pytest.approx(2 * (1 + 7) / 128)
    assert statistics.mcnemar(b, a) == statistics.mcnemar(a, b)
    assert statistics.mcnemar(a[::-1], b[::-1]) == statistics.mcnemar(a, b)
    assert statistics.mcnemar(
        np.array(a, dtype=bool), np.array(b, dtype=bool)
    ) == statistics.mcnemar(a, b)


def test_mcnemar_without_discordant_examples_is_1() -> None:
    assert statistics.mcnemar([1, 0, 1], [1, 0, 1]) == 1.0
    assert statistics.mcnemar([1, 0], [0, 1]) == 1.0


def test_mcnemar_takes_right_or_wrong_of_one_pair_only() -> None:
    with pytest.raises(ValueError, match="0 and 1 only"):
        statistics.mcnemar([0, 1, 2], [0, 1, 1])
    with pytest.raises(ValueError, match="2 dimensions"):
        statistics.mcnemar([[0, 1], [1, 1]], [[0, 1], [1, 1]])


# the bootstrap over examples


@pytest.mark.parametrize("name", ["accuracy", "f1", "mcc", "pearson", "spearman"])
@pytest.mark.parametrize("seed", [0, 1])
def test_weighted_metrics_are_the_package_s_on_repeated_examples(name: str, seed: int) -> None:
    generator, n = rng(seed), 12
    kinds = 3 if name in ("accuracy", "mcc") else 2
    labels, (guesses,), _ = classes(seed, n, kinds)
    scores = labels if name in ("pearson", "spearman") else None
    if scores is not None:  # a regression, with ties
        labels = generator.normal(size=n).round(1)
        guesses = (labels + generator.normal(size=n)).round(1)
    samples = [
        np.arange(n),
        *generator.integers(n, size=(20, n)),
        np.zeros(n, int),
        np.ones(n, int),
    ]
    weights = np.stack([np.bincount(sample, minlength=n) for sample in samples]).astype(float)
    found = bootstrap.METRICS[name](guesses.astype(float), labels.astype(float), weights)
    for sample, value in zip(samples, found, strict=True):
        drawn = torch.tensor(guesses[sample])
        logits = drawn[:, None] if scores is not None else torch.nn.functional.one_hot(drawn, kinds)
        expected = metrics.compute([name], logits.float(), torch.tensor(labels[sample]))[name]
        assert value == pytest.approx(expected, abs=1e-6)


def test_correlation_of_one_repeated_example_is_0_whatever_the_rounding() -> None:
    x, y = rng(24).normal(size=(2, 50))
    assert (bootstrap.pearson(x, y, 7 * np.eye(50)) == 0).all()


def test_every_metric_of_the_package_has_a_weighted_form() -> None:
    from ilkd_bench.data.tasks import CLASS_METRICS, SCORE_METRICS

    assert set(bootstrap.METRICS) == {*CLASS_METRICS, *SCORE_METRICS}


@pytest.mark.parametrize("n", [10, 300])  # few and many examples per kind are drawn differently
def test_samples_have_the_moments_of_draws_with_replacement(n: int) -> None:
    counts = np.array([n // 10, n // 2, n - n // 10 - n // 2])
    drawn = bootstrap.draw(counts, rng(), 20_000)
    share = counts / n
    assert (drawn.sum(axis=1) == n).all()
    assert drawn.mean(axis=0) == pytest.approx(n * share, rel=0.03)
    covariance = n * (np.diag(share) - np.outer(share, share))
    assert np.cov(drawn.T) == pytest.approx(covariance, abs=0.05 * covariance.max())


@pytest.mark.parametrize("name", ["accuracy", "f1", "mcc"])
@pytest.mark.parametrize("seeds", [1, 3])
def test_paired_bootstrap_is_the_plain_loop_up_to_chance(name: str, seeds: int) -> None:
    labels, a, _ = classes(6, 60, seeds=seeds)
    b = a.copy()  # mostly the same answers: wrong on 8 examples, right on 22
    b[:, :8], b[:, 8:30] = 1 - labels[:8], labels[8:30]

    def score(runs: np.ndarray, sample: np.ndarray) -> float:
        values = []
        for run in runs:
            predicted, actual = run[sample], labels[sample]
            tp = ((predicted == 1) & (actual == 1)).sum()
            fp = ((predicted == 1) & (actual == 0)).sum()
            fn = ((predicted == 0) & (actual == 1)).sum()
            tn = len(sample) - tp - fp - fn
            product_of_sums = (tp + fp) * (tp + fn) * (tn + fp) * (tn + fn)
            values.append(
                {
                    "accuracy": (tp + tn) / len(sample),
                    "f1": 2 * tp / (2 * tp + fp + fn),
                    "mcc": (tp * tn - fp * fn) / math.sqrt(product_of_sums),
                }[name]
            )
        return float(np.mean(values))

    samples = rng(8).integers(60, size=(2000, 60))
    drawn = np.array([score(a, sample) - score(b, sample) for sample in samples])
    observed = score(a, np.arange(60)) - score(b, np.arange(60))
    found = statistics.paired_bootstrap(bootstrap.METRICS[name], labels, a, b, rng(), draws=2000)
    assert found.difference == pytest.approx(observed)
    expected = np.quantile(drawn, [0.025, 0.975])
    one_example = 1.01 / 60  # the step of the accuracy of one run
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=one_example)
    far = (np.abs(drawn - observed) >= abs(observed) - 1e-12).mean()
    assert 0.001 < far < 0.9
    assert found.p == pytest.approx(far, abs=0.04)
    assert found.n == 60


def test_paired_bootstrap_of_pearson_is_the_plain_loop_up_to_chance() -> None:
    labels, noise_a, noise_b = rng(9).normal(size=(3, 50))
    a, b = labels + 0.8 * noise_a, labels + noise_b
    drawn = []
    for sample in rng(10).integers(50, size=(2000, 50)):
        one, other = (np.corrcoef(x[sample], labels[sample])[0, 1] for x in (a, b))
        drawn.append(one - other)
    found = statistics.paired_bootstrap(bootstrap.pearson, labels, a, b, rng(), draws=2000)
    assert found.difference == pytest.approx(
        np.corrcoef(a, labels)[0, 1] - np.corrcoef(b, labels)[0, 1]
    )
    expected = np.quantile(drawn, [0.025, 0.975])
    assert (found.low, found.high) == pytest.approx(tuple(expected), abs=0.08 * np.ptp(expected))


@pytest.mark.parametrize("name", ["accuracy", "f1", "mcc", "pearson", "spearman"])
def test_paired_bootstrap_ignores_order_and_reverses(name: str) -> None:
    labels, a, b = classes(11, 40, seeds=2)
    metric = bootstrap.METRICS[name]
    found = statistics.paired_bootstrap(metric, labels, a, b, rng(), draws=200)
    assert found.difference != 0
    assert statistics.paired_bootstrap(metric, labels, a, b, rng(), draws=200) == found
    assert statistics.paired_bootstrap(metric, labels, b, a, rng(), draws=200) == found.reversed()
    order = rng(12).permutation(40)
    shuffled = labels[order], a[:, order], b[:, order]
    assert statistics.paired_bootstrap(metric, *shuffled, rng(), draws=200) == found
    assert statistics.paired_bootstrap(metric, labels, a, b, rng(1), draws=200) != found


def test_paired_bootstrap_gives_the_same_in_small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    labels, a, b = classes(13, 40, seeds=2)
    found = statistics.paired_bootstrap(bootstrap.f1, labels, a, b, rng(), draws=101)
    monkeypatch.setattr(statistics, "BLOCK", 1)
    assert statistics.paired_bootstrap(bootstrap.f1, labels, a, b, rng(), draws=101) == found


def test_paired_bootstrap_of_equal_runs_has_p_1_and_of_opposite_runs_the_least() -> None:
    labels, a, _ = classes(14, 50)
    same = statistics.paired_bootstrap(bootstrap.f1, labels, a, a, rng(), draws=99)
    assert same == statistics.Comparison(0.0, 0.0, 0.0, 1.0, 50)
    opposite = statistics.paired_bootstrap(
        bootstrap.accuracy, labels, labels, 1 - labels, rng(), draws=99
    )
    assert opposite == statistics.Comparison(1.0, 1.0, 1.0, 1 / 100, 50)


def test_seeds_share_their_examples() -> None:
    """Five copies of one run know no more than one: resampled apart, the interval would shrink."""
    labels, a, b = classes(15, 80)
    one = statistics.paired_bootstrap(bootstrap.accuracy, labels, a, b, rng(), draws=500)
    copies = np.repeat(a, 5, axis=0), np.repeat(b, 5, axis=0)
    five = statistics.paired_bootstrap(bootstrap.accuracy, labels, *copies, rng(), draws=500)
    assert (five.low, five.high) == pytest.approx((one.low, one.high))


def test_many_examples_are_quick_enough_to_be_in_a_test() -> None:
    labels, a, b = classes(16, 40_000, seeds=2, share=0.9)
    found = statistics.paired_bootstrap(bootstrap.f1, labels, a, b, rng(), draws=1000)
    assert found.high - found.low < 0.02


# Holm, ranks, wins


def test_holm_of_a_worked_example() -> None:
    # by hand: 4 * 0.005, 3 * 0.01, then max(2 * 0.03, ...), 1 * 0.04 raised to 0.06
    # statsmodels 0.15.0, multipletests(method="holm"), says the same
    assert statistics.holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])


def test_holm_leaves_out_nan() -> None:
    found = statistics.holm([0.01, NAN, 0.04, 0.9])
    assert found == pytest.approx([0.03, NAN, 0.08, 0.9], nan_ok=True)
    assert np.isnan(statistics.holm([NAN, NAN])).all()
    assert len(statistics.holm([])) == 0


def test_holm_keeps_the_order_and_only_raises() -> None:
    raw = rng(17).random(50) ** 3
    found = statistics.holm(raw)
    assert (found >= raw).all() and (found <= 1).all()
    assert (np.diff(found[np.argsort(raw)]) >= 0).all()
    order = rng(18).permutation(50)
    assert statistics.holm(raw[order]) == pytest.approx(found[order])


@pytest.mark.parametrize("wrong", [[0.1, -0.1], [1.1], [[0.1]]])
def test_holm_takes_probabilities_only(wrong) -> None:
    with pytest.raises(ValueError, match="from 0 to 1"):
        statistics.holm(wrong)


def test_ranks_average_over_tasks_and_share_ties() -> None:
    scores = [[0.9, 0.5, 0.3], [0.8, 0.7, 0.3], [0.7, 0.6, 0.4]]
    # ranks: 1 3 2.5 | 2 1 2.5 | 3 2 1
    assert statistics.ranks(scores) == pytest.approx([6.5 / 3, 5.5 / 3, 2.0])


def test_ranks_leave_out_a_method_that_lacks_a_task() -> None:
    scores = [[0.9, 0.5], [1.0, NAN], [0.7, 0.6]]
    assert statistics.ranks(scores) == pytest.approx([1.5, NAN, 1.5], nan_ok=True)
    assert np.isnan(statistics.ranks([[NAN, 0.1]])).all()


def test_ranks_of_means_summed_in_another_order_tie() -> None:
    one, other = 0.1 + 0.2 + 0.3, 0.3 + 0.2 + 0.1
    assert one != other
    assert statistics.ranks([[one], [other]]) == pytest.approx([1.5, 1.5])


def test_ranks_need_a_table() -> None:
    for wrong in ([0.1, 0.2], np.ones((3, 0))):
        with pytest.raises(ValueError, match="methods, tasks"):
            statistics.ranks(wrong)


def test_wins_by_hand() -> None:
    differences = [0.1, 0.2, -0.1, -0.2, 0.3, 0.0]
    p_values = [0.01, 0.05, 0.001, 0.5, NAN, 0.01]
    assert statistics.wins(differences, p_values, alpha=0.05) == statistics.Wins(1, 3, 1, 1)
    assert statistics.wins(differences, p_values, alpha=0.051) == statistics.Wins(2, 2, 1, 1)


# representations


def test_cka_is_that_of_the_gram_matrices() -> None:
    x, y = rng(19).normal(size=(12, 5)), rng(20).normal(size=(12, 7)) + 3
    centre = np.eye(12) - 1 / 12
    k, m = centre @ x @ x.T @ centre, centre @ y @ y.T @ centre
    expected = np.trace(k @ m) / math.sqrt(np.trace(k @ k) * np.trace(m @ m))
    assert similarity.cka(x, y) == pytest.approx(expected)
    assert similarity.cka(y, x) == pytest.approx(expected)
    order = rng(21).permutation(12)
    assert similarity.cka(x[order], y[order]) == pytest.approx(expected)
    assert similarity.cka(x[order], y) != pytest.approx(expected)


def test_cka_ignores_rotation_scale_and_shift_but_not_a_stretch() -> None:
    x = rng(22).normal(size=(20, 4))
    rotation, _ = np.linalg.qr(rng(23).normal(size=(4, 4)))
    assert similarity.cka(x, 3 * x @ rotation + 5) == pytest.approx(1)
    assert similarity.cka(x, x * [10, 1, 1, 1]) < 0.95


def test_cka_of_rows_that_do_not_differ_is_0() -> None:
    assert similarity.cka(np.full((5, 3), 0.1), rng().normal(size=(5, 3))) == 0.0


def test_cosine_is_the_mean_over_rows() -> None:
    x = [[1.0, 0.0], [1.0, 1.0], [0.0, 0.0]]
    y = [[2.0, 0.0], [1.0, 0.0], [1.0, 0.0]]
    assert similarity.cosine(x, y) == pytest.approx((1 + math.sqrt(0.5) + 0) / 3)
    assert similarity.cosine(np.negative(x), y) == pytest.approx(-similarity.cosine(x, y))


# wrong input

PAIR = {
    "paired": statistics.paired,
    "mcnemar": statistics.mcnemar,
    "wins": lambda a, b: statistics.wins(a, b, alpha=0.05),
    "labels": lambda a, b: statistics.paired_bootstrap(bootstrap.f1, a, b, b, rng(), draws=9),
    "b": lambda a, b: statistics.paired_bootstrap(bootstrap.f1, a, a, b, rng(), draws=9),
    "seeds": lambda a, b: statistics.paired_bootstrap(
        bootstrap.f1, [0, 1], [[0, 1] for _ in a], [[0, 1] for _ in b], rng(), draws=9
    ),
    "cka": lambda a, b: similarity.cka([[x, 1 - x] for x in a], [[x, 1] for x in b]),
}


@pytest.mark.parametrize("name", PAIR)
def test_different_lengths_are_refused(name: str) -> None:
    with pytest.raises(ValueError, match=r"different lengths: .* 2, .* 3"):
        PAIR[name]([0, 1], [0, 1, 1])


@pytest.mark.parametrize("bad", [NAN, math.inf])
def test_nan_and_infinity_are_refused(bad: float) -> None:
    for name in ("paired", "mcnemar", "labels", "b", "cka"):
        with pytest.raises(ValueError, match="holds nan or infinity"):
            PAIR[name]([0, 1], [0, bad])
    for call in (lambda v: statistics.interval(v, rng()), lambda v: similarity.cosine([v], [v])):
        with pytest.raises(ValueError, match="holds nan or infinity"):
            call([0.1, bad])


def test_nothing_is_refused() -> None:
    for name in ("paired", "mcnemar", "wins", "labels", "b"):
        with pytest.raises(ValueError, match="is empty"):
            PAIR[name]([], [])
    with pytest.raises(ValueError, match="values is empty"):
        statistics.interval([], rng())
    with pytest.raises(ValueError, match="x is empty"):
        similarity.cosine(np.ones((0, 3)), np.ones((0, 3)))


def test_cosine_needs_equal_shapes() -> None:
    with pytest.raises(ValueError, match=r"\[1, 2\] and y is \[1, 3\]"):
        similarity.cosine([[1, 2]], [[1, 2, 3]])
