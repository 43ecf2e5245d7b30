"""How alike the layers of two models are: cosine, distance, linear CKA, principal components.

Pure functions of numpy arrays. A row is a sentence; layer 0 is the embedding output.
"""

from __future__ import annotations

import numpy as np
import pandas as pd

from ilkd_bench import stats

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
    return stats.cka(x, y)


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
                        "cosine": stats.cosine(a, b) if equal else float("nan"),
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
