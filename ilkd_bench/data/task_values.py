"""What a task's label names, columns and range of scores may be."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ilkd_bench.data.labels import number
from ilkd_bench.types import BadInput


def label_names(labels: Any) -> list[str]:
    """Return label names as text.

    Raises:
        BadInput: they are not two or more different names.
    """
    wrong = isinstance(labels, str) or not all(_is_name(label) for label in labels)
    if wrong or len({str(label) for label in labels}) < 2:
        raise BadInput(
            f"task.labels={labels}: allowed is a list of two or more different names, "
            "or null for a score"
        )
    names = [str(label) for label in labels]
    if len(set(names)) < len(names):
        raise BadInput(f"task.labels={labels}: a name stands there twice")
    return names


def _is_name(label: Any) -> bool:
    if isinstance(label, float):
        return bool(np.isfinite(label))
    return isinstance(label, int) or (isinstance(label, str) and label.strip() != "")


def check_columns(columns: Any, label_column: str) -> None:
    """Refuse what is no list of one or two columns of texts.

    Raises:
        BadInput: that is so, or the label's column is one of them.
    """
    if (
        isinstance(columns, str)
        or columns is None
        or not 1 <= len(columns) <= 2
        or not all(isinstance(name, str) and name for name in columns)
        or len({*columns, label_column}) <= len(columns)
    ):
        raise BadInput(
            f"task.text_columns={columns}: allowed is a list of one or two columns, e.g. [a,b], "
            f"and not the label's ({label_column})"
        )


def check_range(score_range: Any, labels: Sequence[str] | None) -> None:
    """Refuse what is no range of scores, or one beside class names.

    Raises:
        BadInput: that is so.
    """
    if score_range is None:
        return
    if labels is not None:
        raise BadInput(
            f"task.score_range={score_range} has no effect next to task.labels; type "
            "task.score_range=null, or task.labels=null for scores"
        )
    ends = [] if isinstance(score_range, str) else [number(end) for end in score_range]
    numbers = [end for end in ends if end is not None]
    if (
        isinstance(score_range, str)
        or not len(ends) == len(numbers) == 2
        or ends != sorted(set(numbers))
    ):
        raise BadInput(
            f"task.score_range={score_range}: allowed is [LEAST,GREATEST], two numbers, or null"
        )
