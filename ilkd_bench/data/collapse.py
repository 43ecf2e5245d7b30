"""The answer to a task in the fewer labels of another set, e.g. three classes of NLI in two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

RULES = ("argmax", "sum")


def collapse(
    logits: NDArray[np.floating],
    names: Sequence[str],
    target: Sequence[str],
    label_map: Mapping[str, str],
    *,
    rule: str,
) -> NDArray[np.float64]:
    """Turn the logits of a task into probabilities for a set with fewer labels.

    Args:
        logits: [N, C] for the classes `names`.
        target: the labels of the other set.
        label_map: name -> target name.
        rule: `argmax`: the most probable class decides; `sum`: the probabilities are added.

    Returns:
        [N, len(target)], in float64; 0 and 1 for `argmax`.

    Raises:
        ValueError: there is no such rule.
    """
    if rule not in RULES:
        raise ValueError(f"collapse={rule} is not one of: {', '.join(RULES)}")
    matrix = np.eye(len(target))[[target.index(label_map[name]) for name in names]]  # [C, targets]
    if rule == "argmax":
        return matrix[logits.argmax(axis=1)]
    probabilities: NDArray[np.float64] = softmax(logits.astype(float), axis=1) @ matrix
    return probabilities
