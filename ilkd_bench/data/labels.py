"""Which label of a task is meant, by one rule for rows, checkpoints and stored students.

1. A text that is a name, letter by letter, is that name.
2. A number is the name of its value where any name is a number (1, 1.0 and "1.0" are one value);
   only where none is does it count the names from 0.
3. Any other text is the name that differs from it in nothing but case, blanks around it, and
   blanks, hyphens or underscores between its letters.

What fits two names fits none.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any, TypeVar

import numpy as np

from ilkd_bench.types import BadInput

NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)(e[+-]?\d+)?", re.ASCII | re.IGNORECASE)
BETWEEN = re.compile(r"(?<=\w)[ _-]+(?=\w)")
LONGEST = 60
"""Characters of a label that a message shows."""
MOST = 20
"""Names that a message lists."""

Key = TypeVar("Key", bound=Hashable)


def number(label: Any) -> Decimal | None:
    """Return the value of a number, or of the text of one; None: it is none.

    A float32 has the value of its shortest text, 0.1 rather than 0.10000000149. Truth values,
    infinities and NaN are no numbers.
    """
    if label is None or isinstance(label, bool | np.bool_):
        return None
    text = str(label).strip()
    try:
        return Decimal(text) if NUMBER.fullmatch(text) else None
    except InvalidOperation:  # an exponent beyond all bounds
        return None


def is_missing(label: Any) -> bool:
    """Tell whether there is no label: null or NaN."""
    return label is None or (isinstance(label, float | np.floating) and label != label)


def finder(names: Sequence[str]) -> Callable[[Any], int | None]:
    """Return the function that says which of the names a label means.

    Args:
        names: of the labels, all different.

    Returns:
        label as it was found (a text, a number, a truth value, ...) -> number of the name; None:
        it means none of them, or it is not clear which.
    """
    exact = {name: position for position, name in enumerate(names)}
    values: dict[Decimal, int] = {Decimal(position): position for position in range(len(names))}
    if numbered(names):
        values = _unambiguous((number(name), position) for name, position in exact.items())
    spellings = _unambiguous((_spelling(name), position) for name, position in exact.items())

    def find(label: Any) -> int | None:
        if isinstance(label, bool | np.bool_):
            label = str(label)
        if isinstance(label, str) and label in exact:
            return exact[label]
        value = number(label)
        if value is not None:
            return values.get(value)
        return spellings.get(_spelling(label)) if isinstance(label, str) else None

    return find


def numbered(names: Iterable[str]) -> bool:
    """Tell whether any name is a number, so that a number is a name."""
    return any(number(name) is not None for name in names)


def _unambiguous(pairs: Iterable[tuple[Key | None, int]]) -> dict[Key, int]:
    found = [(key, position) for key, position in pairs if key is not None]
    count = Counter(key for key, _ in found)
    return {key: position for key, position in found if count[key] == 1}


def _spelling(text: str) -> str:
    return BETWEEN.sub(" ", unicodedata.normalize("NFC", text).casefold().strip())


def allowed(names: Sequence[str]) -> str:
    """Return what a label may be, for a message."""
    shown = [
        name if numbered(names) else f"{position} ({name})" for position, name in enumerate(names)
    ]
    return ", ".join([*shown[:MOST], *(["..."] if len(shown) > MOST else [])])


def shown(label: Any) -> str:
    """Return a label, or any other entry of a row, for a message: short and on one line."""
    if is_missing(label):
        return "missing"
    text = repr(label) if isinstance(label, str | bytes) else str(label)
    text = " ".join(text.split())
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def is_unnamed(id2label: Mapping[int, str]) -> bool:
    """Tell whether a checkpoint's outputs have transformers' placeholders for names, in order."""
    return all(id2label.get(n) == f"LABEL_{n}" for n in range(len(id2label)))


def label_order(
    id2label: Mapping[int, str], labels: Sequence[str] | None, where: str
) -> list[int] | None:
    """Return, for each label of the task, the output of that name; None: the order is the same.

    Outputs without names (see `is_unnamed`) are taken to be in the task's order.

    Args:
        id2label: the name of each output, from the checkpoint's configuration.
        where: the checkpoint is, for the message.

    Raises:
        BadInput: the names are not those of the task, or there are none and the task's labels are
            other numbers than 0, 1, ...
    """
    if labels is None:
        return None
    find = finder(labels)
    names = [str(name) for name in id2label.values()]
    positions = [find(id2label.get(n)) for n in range(len(labels))]
    if sorted(p for p in positions if p is not None) == list(range(len(labels))):
        order = [positions.index(n) for n in range(len(labels))]
        return None if order == list(range(len(labels))) else order
    counted = not numbered(labels) or [find(n) for n in range(len(labels))] == [*range(len(labels))]
    if is_unnamed(id2label) and counted:
        return None
    raise BadInput(
        f"{where} has the labels {', '.join(names)}; the task has {', '.join(labels)}"
        + (", and a LABEL_n does not say which of these numbers it is" * is_unnamed(id2label))
        + ". Rename them in the checkpoint's config.json (id2label)"
    )
