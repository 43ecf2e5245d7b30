"""Bootstrap samples of examples, and the metrics of many samples at once.

A sample is a row of weights: how often it holds each example. Metrics are then made of weighted
sums over examples, and a thousand samples cost a matrix product.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]

Metric = Callable[[Array, Array, Array], Array]
"""(predictions [K], labels [K], weights [D, K]) -> scores [D] of D samples of K examples.

Every row of weights has the same sum. Predictions are class numbers or scores. As in
`data.metrics`, a sample in which nothing varies or nothing is found scores 0.
"""


def accuracy(predictions: Array, labels: Array, weights: Array) -> Array:
    """Return the share of right answers; see `Metric`."""
    return ratio(weights @ (predictions == labels), weights.sum(axis=1))


def f1(predictions: Array, labels: Array, weights: Array) -> Array:
    """Return the F1 of class 1; see `Metric`."""
    positive, relevant = predictions == 1, labels == 1
    true_positive = weights @ (positive & relevant)
    return ratio(2 * true_positive, weights @ positive + weights @ relevant)


def mcc(predictions: Array, labels: Array, weights: Array) -> Array:
    """Return Matthews' correlation for any number of classes (Gorodkin 2004); see `Metric`."""
    classes = np.union1d(predictions, labels)
    predicted = weights @ (predictions[:, None] == classes)  # [D, C]
    actual = weights @ (labels[:, None] == classes)  # [D, C]
    n, right = weights.sum(axis=1), weights @ (predictions == labels)
    covariance = right * n - (predicted * actual).sum(axis=1)
    variances = (n**2 - (predicted**2).sum(axis=1)) * (n**2 - (actual**2).sum(axis=1))
    return ratio(covariance, np.sqrt(variances))


def pearson(predictions: Array, labels: Array, weights: Array) -> Array:
    """Return Pearson's correlation from weighted moments; see `Metric`."""
    return _correlation(predictions - predictions.mean(), labels - labels.mean(), weights)


def spearman(predictions: Array, labels: Array, weights: Array) -> Array:
    """Return Spearman's correlation, the ranks taken anew in every resample; see `Metric`."""
    ranked = _centred_ranks(predictions, weights), _centred_ranks(labels, weights)
    return _correlation(*ranked, weights)


METRICS: dict[str, Metric] = {
    "accuracy": accuracy,
    "f1": f1,
    "mcc": mcc,
    "pearson": pearson,
    "spearman": spearman,
}
"""The weighted form of every metric of `data.metrics`, by its name there."""


def draw(counts: NDArray[np.int64], rng: np.random.Generator, draws: int) -> Array:
    """Draw samples with replacement, each as large as the whole.

    Args:
        counts: [K], how many examples there are of each kind.
        rng: where the random numbers come from.
        draws: number of samples.

    Returns:
        [draws, K], how many of each kind a sample holds.
    """
    n, kinds = int(counts.sum()), len(counts)
    if 8 * kinds < n:  # the same distribution as below, and much faster for few kinds
        return rng.multinomial(n, counts / n, size=draws).astype(float)
    members = np.repeat(np.arange(kinds), counts)
    samples = [members[rng.integers(n, size=n)] for _ in range(draws)]
    return np.stack([np.bincount(sample, minlength=kinds) for sample in samples]).astype(float)


def _correlation(x: Array, y: Array, weights: Array) -> Array:
    """Return the weighted correlation of x and y, [K] or [D, K], nearly centred, as [D]."""

    def total(values: Array) -> Array:
        return weights @ values if values.ndim == 1 else np.einsum("dk,dk->d", weights, values)

    n, sum_x, sum_y, squares_x, squares_y = weights.sum(axis=1), *map(total, (x, y, x * x, y * y))
    variance_x, variance_y = squares_x - sum_x**2 / n, squares_y - sum_y**2 / n
    # A sample that does not vary leaves a variance of rounding errors.
    varies = (variance_x > 1e-12 * squares_x) & (variance_y > 1e-12 * squares_y)
    return ratio(total(x * y) - sum_x * sum_y / n, np.sqrt(variance_x * variance_y * varies))


def _centred_ranks(values: Array, weights: Array) -> Array:
    """Return the rank of each value within each resample, ties sharing the mean, minus the mean."""
    _, place = np.unique(values, return_inverse=True)
    order = np.argsort(place, kind="stable")
    starts = np.flatnonzero(np.diff(place[order], prepend=-1))
    counts = np.add.reduceat(weights[:, order], starts, axis=1)  # [D, distinct values]
    middle = counts.cumsum(axis=1) - counts / 2 - weights.sum(axis=1, keepdims=True) / 2
    centred: Array = middle[:, place]
    return centred


def ratio(numerator: Array, denominator: Array) -> Array:
    """Return numerator / denominator, and 0 where the denominator is."""
    zero = np.zeros(np.shape(denominator))
    return np.divide(numerator, denominator, out=zero, where=denominator > 0)
