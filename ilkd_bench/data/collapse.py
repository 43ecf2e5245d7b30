"""The answer to a task in the fewer labels of another set, e.g. three classes of NLI in two."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from ilkd_bench.data.labels import allowed, finder, shown
from ilkd_bench.types import BadInput

RULES = ("argmax", "sum")


def resolve(
    label_map: Mapping[Any, Any] | None,
    names: Sequence[str] | None,
    target: Sequence[str] | None,
    where: str,
) -> dict[str, str] | None:
    """Return a label map in the very names of both sides; None: the labels are the same.

    Args:
        label_map: label of the task -> label of the other set, as it was given.
        names: the labels of the task; None: a regression.
        target: those of the other set.
        where: the setting is, for the message.

    Raises:
        BadInput: it names a label that is not there, leaves one of either side out, or there is
            none where the labels differ.
    """
    if names is None or target is None:
        if names != target:
            raise BadInput(
                f"{where}: one of the set and the task has labels, the other scores; type "
                "task.ood=null to score no other domain"
            )
        if label_map is not None:
            raise BadInput(f"{where}={label_map} has no effect on scores; type {where}=null")
        return None
    if label_map is None:
        if list(names) != list(target):
            raise BadInput(
                f"{where}=null: the labels of the set are {', '.join(target)}, the task's are "
                f"{', '.join(names)}. Say which becomes which: "
                f"{where}={{{', '.join(f'{name}: ...' for name in names)}}}"
            )
        return None
    find, find_target = finder(names), finder(target)
    resolved: dict[str, str] = {}
    for name, other in label_map.items():
        position, place = find(name), find_target(other)
        if position is None:
            raise BadInput(f"{where}: {shown(name)} is no label of the task: {allowed(names)}")
        if place is None:
            raise BadInput(f"{where}: {shown(other)} is no label of the set: {allowed(target)}")
        if names[position] in resolved:
            raise BadInput(f"{where} has the label {names[position]} twice")
        resolved[names[position]] = target[place]
    left = [name for name in names if name not in resolved]
    if left:
        raise BadInput(f"{where} does not say what becomes of {', '.join(left)}")
    lost = [name for name in target if name not in resolved.values()]
    if lost:
        raise BadInput(f"{where}: nothing becomes {', '.join(lost)}, so it could never be right")
    return resolved


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
