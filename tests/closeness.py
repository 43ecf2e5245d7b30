"""When two results in float32 are the same but for rounding.

Processors, numbers of threads, paddings and the other rows of a batch change the order in which
sums are made, and with it their last bits. What a sum loses follows the magnitude of what is added,
not that of what comes out: two numbers of 1e5 that cancel to 28 leave an error of a hundredth. So
the tolerance is absolute, and the same for a whole tensor: a number of roundings of its largest
value, or of the largest value that it was computed from.

Equality to the last bit is asked for only where the arithmetic is the same by construction: the
same program on the same machine computes the same numbers in the same shapes, as a run that is
repeated, or killed and gone on with, does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

EPS = 2.0**-23
"""The distance from 1 to the next number of float32."""
ROUNDINGS = 256
"""In units of `EPS`: the models of the tests have at most 12 layers, each with a handful of sums of
at most 24 terms one after the other, so about 20 roundings per layer if none ever cancel. What the
tests look for (a wrong row, padding that is read, a layer too many) is a thousand times larger."""
RELATIVE = ROUNDINGS * EPS
"""For a sum of positive numbers, like most losses: 3e-5 of its value."""


def numbers(value: Any) -> np.ndarray:
    if isinstance(value, torch.Tensor):
        value = value.detach().double().cpu().numpy()
    return np.asarray(value, dtype=np.float64)


def tolerance(*values: Any) -> float:
    """Return what rounding may change where these are the largest values."""
    return RELATIVE * max(float(np.abs(numbers(value)).max(initial=0.0)) for value in values)


def close(found: Any, expected: Any, *, of: Any = 1.0, half: bool = False, name: str = "") -> None:
    """Assert that two arrays of float32 differ by rounding only.

    Args:
        of: what they were computed from, if larger: by default 1, as layer norms give it.
        half: one side was kept in float16: besides, each value may be off by its rounding.
    """
    a, b = numbers(found), numbers(expected)
    relative, smallest = (2.0**-11, 2.0**-25) if half else (0.0, 0.0)
    limit = tolerance(b, of) + smallest
    np.testing.assert_allclose(a, b, rtol=relative, atol=limit, strict=True, err_msg=name)


def undecided(logits: Any) -> np.ndarray:
    """Return for each row whether rounding may change its answer, the class of the largest."""
    values = np.sort(numbers(logits), axis=-1)
    return values[..., -1] - values[..., -2] <= 2 * tolerance(values, 1.0)


def decided(logits: Any) -> None:
    """Assert that no row's answer rests on rounding; otherwise the test needs other numbers."""
    assert not undecided(logits).any(), "a tie but for rounding: take another seed"


def apart(values: Any) -> None:
    """Assert that rounding changes the order of no two numbers."""
    gaps = np.diff(np.sort(numbers(values), axis=None))
    assert (gaps > 2 * tolerance(values, 1.0)).all(), "a tie but for rounding: take another seed"
