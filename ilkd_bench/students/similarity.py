"""How alike the layers of two models are: cosine, distance, linear CKA, principal components.

Pure functions of numpy arrays. A row is a sentence; layer 0 is the embedding output.
"""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from ilkd_bench.comparison.bootstrap import ratio
from ilkd_bench.comparison.statistics import _finite, _same_length


def cka(x: ArrayLike, y: ArrayLike) -> float:
    """Return linear CKA of two representations of the same examples (Kornblith et al. 2019).

    0 to 1; unchanged by rotation, by one scale for all columns, and by shifts. It is biased upwards
    unless n is much larger than the widths. 0 where the rows of x or y do not differ.

    Args:
        x: [n, d].
        y: [n, e], the same examples in the same order.

    Raises:
        ValueError: not two dimensions, different n, or nan or infinity.
    """
    left, right = _finite("x", x, dimensions=2), _finite("y", y, dimensions=2)
    _same_length(x=left, y=right)
    if (left == left[0]).all() or (right == right[0]).all():
        return 0.0
    left, right = left - left.mean(axis=0), right - right.mean(axis=0)
    norms = np.linalg.norm(left.T @ left) * np.linalg.norm(right.T @ right)
    return float(np.linalg.norm(left.T @ right) ** 2 / norms)


def cosine(x: ArrayLike, y: ArrayLike) -> float:
    """Return the mean cosine similarity of the rows of x and y; a row of zeros counts as 0.

    Args:
        x: [n, d].
        y: [n, d].

    Raises:
        ValueError: different shapes, not two dimensions, or nan or infinity.
    """
    left, right = _finite("x", x, dimensions=2), _finite("y", y, dimensions=2)
    if left.shape != right.shape:
        raise ValueError(f"x is {list(left.shape)} and y is {list(right.shape)}: no rows to pair")
    norms = np.linalg.norm(left, axis=1) * np.linalg.norm(right, axis=1)
    return float(ratio((left * right).sum(axis=1), norms).mean())


POOLINGS = ("cls", "mean")
Pooled = dict[str, np.ndarray]
"""Pooling -> the vectors of some rows, [n, L+1, H] in float64; index 0 is the embedding output."""


def _unit(x: np.ndarray) -> np.ndarray:
    """Scale vectors [n, d] to length 1; a zero vector stays one."""
    length = np.linalg.norm(x, axis=1, keepdims=True)
    return x / np.where(length == 0, 1, length)


def _centred(x: np.ndarray) -> np.ndarray:
    """Subtract the mean row of [n, d]; what is only rounding then becomes zero."""
    centred = x - x.mean(axis=0)
    return centred if np.linalg.norm(centred) > 1e-6 * np.linalg.norm(x) else centred * 0


def _distance(x: np.ndarray, y: np.ndarray) -> float:
    """Return the mean over rows of the distance between two [n, d] scaled to length 1."""
    return float(np.linalg.norm(_unit(x) - _unit(y), axis=1).mean())


def _cka(x: np.ndarray, y: np.ndarray) -> float:
    """Return the linear CKA (Kornblith et al., 2019, arXiv 1905.00414, eq. 3) of [n, d], [n, e].

    NaN where one side is the same vector in every row, as the first token's embedding is.
    """
    x, y = _centred(x), _centred(y)
    if not x.any() or not y.any():
        return float("nan")
    return cka(x, y)


def similarity(s: Pooled, t: Pooled) -> pd.DataFrame:
    """Compare every student layer with every teacher layer.

    Cosine and distance need vectors of equal width; else they are NaN.
    """
    rows = []
    for pooling in POOLINGS:
        x, y = s[pooling], t[pooling]
        equal = x.shape[-1] == y.shape[-1]
        for i in range(x.shape[1]):
            for j in range(y.shape[1]):
                a, b = x[:, i], y[:, j]
                rows.append(
                    {
                        "pooling": pooling,
                        "student_layer": i,
                        "teacher_layer": j,
                        "rows": len(a),
                        "cosine": cosine(a, b) if equal else float("nan"),
                        "cka": _cka(a, b),
                        "distance": _distance(a, b) if equal else float("nan"),
                    }
                )
    return pd.DataFrame(rows)


def components(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Project [n, d] on its first two principal components.

    The largest entry of each component is positive, so that no sign is left to chance.

    Returns:
        [n, 2], and the share of the variance of each component, [2].
    """
    centred = x - x.mean(axis=0)
    _, scales, axes = np.linalg.svd(centred, full_matrices=False)
    axes = axes[:2]
    axes *= np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(axis=1)])[:, None]
    total = (scales**2).sum()
    return centred @ axes.T, scales[:2] ** 2 / total if total > 0 else np.zeros(2)


def pca(s: Pooled, t: Pooled, index: np.ndarray, labels: np.ndarray) -> pd.DataFrame:
    """Put the vectors of all intermediate layers (1..L-1) on two principal components.

    Teacher and student share one plane where their widths are equal; else each has its own
    (column `plane`). `share_1`, `share_2`: of the variance in that plane's vectors.

    Args:
        index, labels: of the rows, [n].
    """
    parts = []
    for pooling in POOLINGS:
        sides = {"teacher": t[pooling][:, 1:-1], "student": s[pooling][:, 1:-1]}  # [n, L-1, H]
        shared = len({side.shape[-1] for side in sides.values()}) == 1
        for group in [list(sides)] if shared else [[whose] for whose in sides]:
            stacked = np.concatenate([sides[w].reshape(-1, sides[w].shape[-1]) for w in group])
            if not len(stacked):
                continue
            points, share = components(stacked)
            places = [
                {"model": whose, "layer": layer + 1, "row": row, "label": label}
                for whose in group
                for row, label in zip(index.tolist(), labels.tolist(), strict=True)
                for layer in range(sides[whose].shape[1])
            ]
            part = pd.DataFrame(places)
            part.insert(0, "pooling", pooling)
            part["plane"] = "shared" if shared else "own"
            part[["pc1", "pc2"]] = points
            part["share_1"], part["share_2"] = share
            parts.append(part)
    return pd.concat(parts, ignore_index=True) if parts else pd.DataFrame()
