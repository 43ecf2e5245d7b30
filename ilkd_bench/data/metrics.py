"""Scores over a whole split. A prediction that does not vary scores 0 in MCC and correlations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor
from torchmetrics.functional import (
    accuracy,
    f1_score,
    matthews_corrcoef,
    pearson_corrcoef,
    spearman_corrcoef,
)

from ilkd_bench.data.collapse import collapse as collapse_probabilities

CONSTANT_IS_ZERO = ("mcc", "pearson", "spearman")
"""Metrics without a value where nothing varies; chance level, 0, stands for it."""


def compute(names: Sequence[str], logits: Tensor, labels: Tensor) -> dict[str, float]:
    """Return each metric by name, and `n`, the number of rows.

    Args:
        names: out of `tasks.CLASS_METRICS`, or `tasks.SCORE_METRICS` for a regression; `f1` is that
            of class 1.
        logits: [N, C] on the CPU; C = 1 is a regression.
        labels: [N].
    """
    predicted = logits[:, 0].float() if logits.shape[1] == 1 else logits.argmax(-1)
    classes = max(2, logits.shape[1])
    scores = {name: _metric(name, predicted, labels, classes) for name in names}
    return scores | {"n": len(labels)}


def _metric(name: str, predicted: Tensor, labels: Tensor, classes: int) -> float:
    if name == "accuracy":
        return accuracy(predicted, labels, task="multiclass", num_classes=classes).item()
    if name == "f1":
        return f1_score(predicted == 1, labels == 1, task="binary").item()
    if name not in CONSTANT_IS_ZERO:
        raise ValueError(f"unknown metric {name}")
    if (predicted == predicted[0]).all() or (labels == labels[0]).all():
        return 0.0
    if name == "mcc":
        return matthews_corrcoef(predicted, labels, task="multiclass", num_classes=classes).item()
    measure = pearson_corrcoef if name == "pearson" else spearman_corrcoef
    return measure(predicted.double(), labels.double()).item()


def constant_score(name: str, labels: Tensor) -> float:
    """Return what the best constant prediction scores: the majority's share, 0 for the others."""
    if name != "accuracy":
        return 0.0
    return labels.bincount().max().item() / len(labels)


def collapsed(
    logits: Tensor,
    names: Sequence[str],
    target: Sequence[str],
    label_map: Mapping[str, str],
    *,
    rule: str,
) -> Tensor:
    """Turn the logits of a task into those of a set with fewer labels; see `data.collapse`.

    Returns:
        [N, len(target)], log-probabilities, or 0 and -inf for `argmax`.
    """
    probabilities = collapse_probabilities(logits.numpy(), names, target, label_map, rule=rule)
    return torch.from_numpy(probabilities).log()
