"""Which teacher layer teaches which student layer.

Layers are numbered from 1; the last one (n of the teacher, m of the student) and the embedding
output (0) are not intermediate. A map is a list with one teacher layer per student layer 1..m-1,
unless a function says otherwise. A grouping is a list with one group of teacher layers per student
layer 1..m, the last layers of both sides included.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from ilkd_bench.functional.losses import full
from ilkd_bench.types import Incompatible


def _check(teacher_layers: int, student_layers: int) -> None:
    if student_layers < 2:
        raise Incompatible(f"a student of {student_layers} layer has no intermediate layer")
    if teacher_layers < student_layers:
        raise Incompatible(
            f"the teacher ({teacher_layers} layers) is shallower than the student "
            f"({student_layers} layers)"
        )


def skip(teacher_layers: int, student_layers: int) -> list[int]:
    """Spread the student over the teacher: j(i) = i n / m, rounded down (12 -> 6: 2 4 6 8 10)."""
    _check(teacher_layers, student_layers)
    return [i * teacher_layers // student_layers for i in range(1, student_layers)]


def last(teacher_layers: int, student_layers: int) -> list[int]:
    """Take the top of the teacher: j(i) = n - m + i (12 -> 6: 7 8 9 10 11)."""
    _check(teacher_layers, student_layers)
    return [teacher_layers - student_layers + i for i in range(1, student_layers)]


def uniform(teacher_layers: int, student_layers: int) -> list[int]:
    """Spread all points, embeddings (0 -> 0) and last layer (m -> n) included: m + 1 entries.

    TinyBERT's map (arXiv 1909.10351, section 3.1), rounded down where n / m is not whole.
    """
    if teacher_layers < student_layers:
        _check(teacher_layers, student_layers)
    return [i * teacher_layers // student_layers for i in range(student_layers + 1)]


def starts(teacher_layers: int, student_layers: int) -> list[int]:
    """Take the lowest layer of each of m equal parts: j(i) = 1 + (i-1) n / m, rounded down.

    12 -> 6: 1 3 5 7 9 11. One entry per student layer 1..m, as in the code of CoDIR's authors.

    Raises:
        Incompatible: the teacher has fewer layers than the student.
    """
    if teacher_layers < student_layers:
        _check(teacher_layers, student_layers)
    return [1 + i * teacher_layers // student_layers for i in range(student_layers)]


def first(teacher_layers: int, student_layers: int) -> list[int]:
    """Take the bottom of the teacher: j(i) = i (12 -> 6: 1 2 3 4 5)."""
    _check(teacher_layers, student_layers)
    return list(range(1, student_layers))


def reversed_skip(teacher_layers: int, student_layers: int) -> list[int]:
    """Turn `skip` upside down (12 -> 6: 10 8 6 4 2): a control, low layers learn from high ones.

    The reverse matching of arXiv 2502.04499. A student of 2 layers has one pair, so no reverse.
    """
    return skip(teacher_layers, student_layers)[::-1]


def all_to_last(teacher_layers: int, student_layers: int) -> list[int]:
    """Match all student layers with the top intermediate layer n - 1 (12 -> 6: 11 11 11 11 11).

    The all-to-one matching of arXiv 2502.04499, a control.
    """
    _check(teacher_layers, student_layers)
    return [teacher_layers - 1] * (student_layers - 1)


def permuted_skip(teacher_layers: int, student_layers: int, *, seed: int) -> list[int]:
    """Shuffle the layers of `skip` once, as a pure function of `seed`.

    The (out-of-order) random matching of arXiv 2502.04499, a control.
    """
    layers = skip(teacher_layers, student_layers)
    generator = np.random.default_rng((seed,))
    return [int(layer) for layer in generator.permutation(layers)]


ORDERS: dict[str, Callable[[list[int]], list[int]]] = {
    "sorted": sorted,
    "unsorted": list,
    "reversed": lambda drawn: sorted(drawn, reverse=True),
}


def random_layers(
    teacher_layers: int, student_layers: int, *, at: tuple[int, ...], order: str
) -> list[int]:
    """Draw m - 1 distinct layers from 1..n-1 uniformly and put them in order.

    RAIL-KD's draw (arXiv 2109.10164, section 3) with `at` = (seed, epoch) and `order` = `sorted`.
    It is a pure function: no other consumer of random numbers can move it.

    Args:
        at: when the layers are drawn; the same draw for the same numbers.
        order: a key of `ORDERS`; `unsorted` is the order in which they were drawn.
    """
    _check(teacher_layers, student_layers)
    generator = np.random.default_rng(at)
    drawn = generator.choice(np.arange(1, teacher_layers), size=student_layers - 1, replace=False)
    return ORDERS[order](drawn.tolist())


def regular_groups(teacher_layers: int, student_layers: int) -> list[list[int]]:
    """Cut the teacher into m contiguous groups (12 -> 4: 1 2 3, 4 5 6, 7 8 9, 10 11 12).

    CKD's regular combination (arXiv 2010.03034). Every layer is in one group. A group
    has n / m layers; where that is not whole, group i ends at layer i n / m, rounded down, so that
    the sizes are floor(n / m) or one more.

    Raises:
        Incompatible: the teacher has fewer layers than the student.
    """
    if teacher_layers < student_layers:
        _check(teacher_layers, student_layers)
    ends = [i * teacher_layers // student_layers for i in range(student_layers + 1)]
    return [list(range(start + 1, end + 1)) for start, end in pairwise(ends)]


def overlap_groups(teacher_layers: int, student_layers: int) -> list[list[int]]:
    """Let neighbours share layers (6 -> 2: 1 2 3 4, 3 4 5 6).

    A regular group and the layer above it; the topmost group takes the layer below it. A single
    group has no neighbour. Every layer is in one group or more.
    """
    groups = regular_groups(teacher_layers, student_layers)
    if len(groups) == 1:
        return groups
    *lower, top = groups
    return [[*group, group[-1] + 1] for group in lower] + [[top[0] - 1, *top]]


def skip_middle_groups(teacher_layers: int, student_layers: int) -> list[list[int]]:
    """Leave the middle of the teacher out (6 -> 2: 1 2, 5 6).

    All groups have floor(n / m) - 1 layers, at least 1. The lower half of the groups (the larger
    one for an odd m) is laid from layer 1 upwards, the rest from layer n downwards.
    """
    regular_groups(teacher_layers, student_layers)  # Incompatible where it has to be
    size = max(1, teacher_layers // student_layers - 1)
    starts = [i * size for i in range(student_layers)]
    left_out = teacher_layers - student_layers * size
    half = (student_layers + 1) // 2
    starts = starts[:half] + [start + left_out for start in starts[half:]]
    return [list(range(start + 1, start + size + 1)) for start in starts]


def cross_groups(teacher_layers: int, student_layers: int) -> list[list[int]]:
    """Take every second layer of each regular group, from its first (6 -> 2: 1 3, 4 6).

    A group of g layers keeps g / 2 of them, rounded up.
    """
    return [group[::2] for group in regular_groups(teacher_layers, student_layers)]


def attend(query: Tensor, keys: Tensor, *, allowed: Tensor | None = None) -> Tensor:
    """Return a soft map: weights over the keys, a softmax of dot products.

    ALP-KD's layer attention (arXiv 2012.14022, eq. 4), which has no parameters.

    Args:
        query: [B, M, H], student layers.
        keys: [B, N, H], teacher layers.
        allowed: [M, N], true where a layer may be attended to, at least once in each row. None:
            everywhere.

    Returns:
        [B, M, N]; each row sums to 1.
    """
    products = full(query) @ full(keys).transpose(-1, -2)
    if allowed is not None:
        products = products.masked_fill(~allowed, float("-inf"))
    return torch.softmax(products, dim=-1)
