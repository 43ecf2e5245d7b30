"""Which teacher layer teaches which student layer.

Layers are numbered from 1; the last one (n of the teacher, m of the student) and the embedding
output (0) are not intermediate. A map is a list with one teacher layer per student layer 1..m-1,
unless a function says otherwise.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from ilkd_bench.losses import full
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


def random_sorted(teacher_layers: int, student_layers: int, *, seed: int, epoch: int) -> list[int]:
    """Draw m - 1 distinct layers from 1..n-1 uniformly and sort them.

    RAIL-KD's draw (arXiv 2109.10164, section 3). It is a pure function of (seed, epoch): no other
    consumer of random numbers can move it.
    """
    _check(teacher_layers, student_layers)
    generator = np.random.default_rng((seed, epoch))
    drawn = generator.choice(np.arange(1, teacher_layers), size=student_layers - 1, replace=False)
    return sorted(drawn.tolist())


def attend(query: Tensor, keys: Tensor) -> Tensor:
    """Return a soft map: weights over the keys, a softmax of dot products.

    ALP-KD's layer attention (arXiv 2012.14022, eq. 4), which has no parameters.

    Args:
        query: [B, M, H], student layers.
        keys: [B, N, H], teacher layers.

    Returns:
        [B, M, N]; each row sums to 1.
    """
    return torch.softmax(full(query) @ full(keys).transpose(-1, -2), dim=-1)
