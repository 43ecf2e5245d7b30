"""Whether the outputs of a given classifier are in another order than it is said."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import linear_sum_assignment
from scipy.special import gammaln
from scipy.stats import binom, pearsonr

LEVEL = 0.01
"""The chance with which an order that is right is taken for a wrong one."""


def better_order(predicted: np.ndarray, labels: np.ndarray, classes: int) -> list[int] | None:
    """Return, for each class, the output that answers for it, where that is clearly another one.

    The best assignment of outputs to classes is taken apart into its cycles, such as two outputs
    that changed places. A cycle counts where the rows that are right only after the exchange
    outnumber those that are right only before it by more than chance (a one-sided sign test,
    corrected for all exchanges of as many classes). A cycle with a class that no row has does not
    count: nothing is known of it.

    Args:
        predicted: the number of the largest output of each row, [N].
        labels: [N].

    Returns:
        [classes]; None: no other order is clearly better.
    """
    counts = np.zeros((classes, classes), int)  # [class, output]
    np.add.at(counts, (labels, predicted), 1)
    _, best = linear_sum_assignment(counts - 1e-6 * (1 - np.eye(classes)), maximize=True)
    order = np.arange(classes)
    for cycle in _cycles(best):
        after = int(counts[cycle, best[cycle]].sum())
        before = int(counts[cycle, cycle].sum())
        chance = binom.logsf(after - 1, after + before, 0.5)
        exchanges = gammaln(classes + 1) - gammaln(classes - len(cycle) + 1)  # log of how many
        if chance + exchanges < math.log(LEVEL) and counts[cycle].any(axis=1).all():
            order[cycle] = best[cycle]
    return None if (order == np.arange(classes)).all() else order.tolist()


def _cycles(order: np.ndarray) -> list[np.ndarray]:
    """Return the cycles of a permutation that move something."""
    left, cycles = set(range(len(order))), []
    while left:
        cycle = [left.pop()]
        while order[cycle[-1]] in left:
            cycle.append(int(order[cycle[-1]]))
            left.discard(cycle[-1])
        if len(cycle) > 1:
            cycles.append(np.array(cycle))
    return cycles


def is_reversed(predicted: np.ndarray, labels: np.ndarray) -> bool:
    """Tell whether scores clearly fall where the labels rise, by Pearson's correlation.

    Args:
        predicted: [N], which vary, as do the labels.
        labels: [N].
    """
    return len(labels) > 2 and float(pearsonr(predicted, labels, alternative="less").pvalue) < LEVEL
