"""Independent reference values for the losses, in plain numpy float64.

Nothing here comes from ``ilkd_bench``: every function is written from the formula it states, as
directly as possible (explicit loops over layers, no cleverness), so that an error in the package
and an error here are unlikely to agree.

Shapes: B batch, C classes, T positions, H width, L layers. Pooled features are ``[B, L+1, H]``
with index 0 the embedding output, 1..m the student's layers and 1..n the teacher's.
Every distillation term is returned without its weight in the total loss.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

Array: TypeAlias = NDArray[np.float64]
Linear: TypeAlias = tuple[ArrayLike, ArrayLike]
"""Weight ``[out, in]`` and bias ``[out]``, the layout of a torch ``Linear``."""

EPSILON = 1e-12
"""Smallest norm divided by: a zero vector stays zero when it is L2-normalised."""


# ------------------------------------------------------------------------------------- helpers


def as_float(values: ArrayLike) -> Array:
    """The values as a float64 array."""
    return np.asarray(values, dtype=np.float64)


def log_softmax(logits: ArrayLike) -> Array:
    """log(exp(z_c) / sum_k exp(z_k)) over the last axis, shifted by the maximum."""
    z = as_float(logits)
    z = z - z.max(axis=-1, keepdims=True)
    return as_float(z - np.log(np.exp(z).sum(axis=-1, keepdims=True)))


def softmax(logits: ArrayLike) -> Array:
    """exp(z_c) / sum_k exp(z_k) over the last axis."""
    z = as_float(logits)
    e = np.exp(z - z.max(axis=-1, keepdims=True))
    return as_float(e / e.sum(axis=-1, keepdims=True))


def l2_normalize(values: ArrayLike) -> Array:
    """x / max(|x|, EPSILON) over the last axis."""
    x = as_float(values)
    norm = np.sqrt((x * x).sum(axis=-1, keepdims=True))
    return as_float(x / np.maximum(norm, EPSILON))


def project(values: ArrayLike, linear: Linear | None) -> Array:
    """x W^T + b over the last axis; without a map, x itself."""
    x = as_float(values)
    if linear is None:
        return x
    weight, bias = linear
    return as_float(x @ as_float(weight).T + as_float(bias))


# ---------------------------------------------------------------------------- terms on the logits


def cross_entropy(logits: ArrayLike, labels: ArrayLike) -> float:
    """-log softmax(z)[label], mean over the batch; (z - label)^2 with one output. Textbook."""
    z = as_float(logits)
    if z.shape[1] == 1:
        return float(np.mean((z[:, 0] - as_float(labels)) ** 2))
    log_p = log_softmax(z)
    wanted = np.asarray(labels, dtype=np.int64)
    return float(np.mean([-log_p[row, wanted[row]] for row in range(z.shape[0])]))


def soft_kl(student_logits: ArrayLike, teacher_logits: ArrayLike, temperature: float) -> float:
    """T^2 KL(softmax(z_t/T) || softmax(z_s/T)): sum over classes, mean over the batch.

    With one output: (z_s - z_t)^2, mean, without the temperature. Hinton et al. 2015.
    """
    zs, zt = as_float(student_logits), as_float(teacher_logits)
    if zs.shape[1] == 1:
        return mse(zs, zt)
    log_s, log_t = log_softmax(zs / temperature), log_softmax(zt / temperature)
    per_row = (np.exp(log_t) * (log_t - log_s)).sum(axis=1)
    return float(temperature**2 * per_row.mean())


# -------------------------------------------------------------------------- terms on the features


def mse(a: ArrayLike, b: ArrayLike) -> float:
    """(a - b)^2, mean over all elements."""
    return float(np.mean((as_float(a) - as_float(b)) ** 2))


def normalized_mse(a: ArrayLike, b: ArrayLike) -> float:
    """(a/|a| - b/|b|)^2 with norms over the last axis, mean over all elements. PKD's distance."""
    return mse(l2_normalize(a), l2_normalize(b))


def masked_mse(a: ArrayLike, b: ArrayLike, mask: ArrayLike) -> float:
    """(a - b)^2, mean over the features of the real positions (mask 1); 0 if there is none."""
    x, y, real = as_float(a), as_float(b), np.asarray(mask).astype(bool)
    if not real.any():
        return 0.0
    return mse(x[real], y[real])


# --------------------------------------------------------------------------------------- features


def cls(hidden: Sequence[ArrayLike]) -> Array:
    """The vector of position 0 in each of the L+1 hidden states: ``[B, L+1, H]``."""
    return np.stack([as_float(h)[:, 0, :] for h in hidden], axis=1)


def mean(hidden: Sequence[ArrayLike], mask: ArrayLike) -> Array:
    """Mean over the real positions in each hidden state: ``[B, L+1, H]``; no position, zeros."""
    real = np.asarray(mask).astype(bool)
    layers = []
    for state in hidden:
        h = as_float(state)
        pooled = np.zeros((h.shape[0], h.shape[2]))
        for row in range(h.shape[0]):
            if real[row].any():
                pooled[row] = h[row][real[row]].mean(axis=0)
        layers.append(pooled)
    return np.stack(layers, axis=1)


# ------------------------------------------------------------------------------------- layer maps


def skip(n: int, m: int) -> list[int]:
    """floor(i n / m) for i = 1..m-1: evenly spaced teacher layers (PKD-skip)."""
    return [i * n // m for i in range(1, m)]


def last(n: int, m: int) -> list[int]:
    """n - m + i for i = 1..m-1: the highest intermediate teacher layers (PKD-last)."""
    return [n - m + i for i in range(1, m)]


def uniform(n: int, m: int) -> list[int]:
    """floor(i n / m) for i = 0..m: embeddings to embeddings, last to last (TinyBERT)."""
    return [i * n // m for i in range(m + 1)]


def random_sorted(n: int, m: int, seed: int, epoch: int) -> list[int]:
    """m-1 different layers out of 1..n-1, uniformly, ascending; fixed by seed and epoch (RAIL)."""
    generator = np.random.default_rng((seed, epoch))
    drawn = generator.choice(np.arange(1, n), size=m - 1, replace=False)
    return [int(layer) for layer in np.sort(drawn)]


def rail_layers(
    n: int, m: int, resample: str, order: str, seed: int, epoch: int, step: int
) -> list[int]:
    """RAIL's layers and its controls: drawn per epoch, per step or once; ascending or not."""
    numbers = {"epoch": [seed, epoch], "step": [seed, epoch, step], "never": [seed, 0]}[resample]
    generator = np.random.default_rng(numbers)
    drawn = [int(j) for j in generator.choice(np.arange(1, n), size=m - 1, replace=False)]
    if order == "unsorted":
        return drawn
    ascending = sorted(drawn)
    return ascending if order == "sorted" else ascending[::-1]


def pkd_layers(n: int, m: int, layer_map: str, seed: int) -> list[int]:
    """The teacher layer of each student layer 1..m-1 under PKD's maps and their controls."""
    if layer_map == "permuted":
        return [int(j) for j in np.random.default_rng([seed]).permutation(skip(n, m))]
    i = range(1, m)
    return {
        "skip": skip(n, m),
        "last": last(n, m),
        "first": list(i),
        "reversed": [(m - k) * n // m for k in i],
        "all_to_last": [n - 1 for _ in i],
    }[layer_map]


def stand_in(ht: ArrayLike, target: str, rows: Sequence[int], at: Sequence[int]) -> Array:
    """What a row imitates instead of the teacher's vectors ``[B, K, H]`` of the compared layers.

    ``shuffled``: the distinct row numbers, ascending, are put in a random order drawn from ``at`` =
    (seed, epoch, step); each takes the vectors of the one after it, the last those of the first.
    ``random``: normal directions drawn from (seed, row number), as long as the teacher's vectors.
    """
    teacher = as_float(ht)
    found = teacher.copy()
    if target == "shuffled":
        distinct = sorted(set(rows))
        order = [distinct[k] for k in np.random.default_rng(list(at)).permutation(len(distinct))]
        for place, row in enumerate(rows):
            after = order[(order.index(row) + 1) % len(order)]
            found[place] = teacher[list(rows).index(after)]
    elif target == "random":
        for place, row in enumerate(rows):
            directions = np.random.default_rng([at[0], row]).standard_normal(teacher.shape[1:])
            for k in range(teacher.shape[1]):
                length = math.sqrt(float((teacher[place, k] ** 2).sum()))
                found[place, k] = l2_normalize(directions[k]) * length
    else:
        assert target == "own"
    return found


# ---------------------------------------------------------------------- terms on several layers


def attend(query: ArrayLike, keys: ArrayLike) -> Array:
    """softmax over j of <q_i, k_j>: query ``[B, M, H]``, keys ``[B, N, H]`` -> ``[B, M, N]``."""
    return softmax(np.einsum("bmh,bnh->bmn", as_float(query), as_float(keys)))


def pkd(
    hs: ArrayLike,
    ht: ArrayLike,
    layers: Sequence[int],
    normalize: bool,
    student_projection: Linear | None = None,
    teacher_projection: Linear | None = None,
) -> float:
    """(h^s_i - h^t_layers[i-1])^2 for i = 1..m-1, mean over batch x layers x width.

    Sun et al. 2019 with the reduction of the authors' code. Order: projection (one map per side),
    then L2-normalisation if asked for, then the difference.
    """
    student, teacher = as_float(hs), as_float(ht)
    assert len(layers) == student.shape[1] - 2
    terms = []
    for i, j in enumerate(layers, start=1):
        s = project(student[:, i], student_projection)
        t = project(teacher[:, j], teacher_projection)
        terms.append(normalized_mse(s, t) if normalize else mse(s, t))
    return float(np.mean(terms))


def alp(
    hs: ArrayLike,
    ht: ArrayLike,
    scale: str,
    include_last: bool,
    student_projection: Linear | None = None,
    teacher_projection: Linear | None = None,
    buckets: Sequence[Sequence[int]] | None = None,
) -> float:
    """|h^s_i - sum_j e_ij h^t_j|^2 / H, sum over i, mean over the batch (Passban et al. 2021).

    e_i = softmax_j <h^s_i, h^t_j>, or <h^s_i, h^t_j> / sqrt(H) with scale ``sqrt_width``; i in
    1..m-1 and j in 1..n-1, or 1..m and 1..n with ``include_last``. With projections (one map per
    side) the projected vectors take the place of h, and H is their width. With buckets, j runs
    over the numbers in bucket i only, counted from 1 among the layers that take part.
    """
    assert scale in ("none", "sqrt_width")
    end = None if include_last else -1
    query = project(as_float(hs)[:, 1:end], student_projection)
    keys = project(as_float(ht)[:, 1:end], teacher_projection)
    width = query.shape[2]
    if buckets is not None:
        assert len(buckets) == query.shape[1]
        total = 0.0
        for i, bucket in enumerate(buckets):
            q, k = query[:, i : i + 1], keys[:, [j - 1 for j in bucket]]
            e = attend(q / math.sqrt(width) if scale == "sqrt_width" else q, k)
            mixture = np.einsum("bmn,bnh->bmh", e, k)
            total += float(((q - mixture) ** 2).mean())
        return total
    weights = attend(query / math.sqrt(width) if scale == "sqrt_width" else query, keys)
    context = np.einsum("bmn,bnh->bmh", weights, keys)
    return float(((query - context) ** 2).mean(axis=2).sum(axis=1).mean())


def rail_layerwise(
    hs: ArrayLike,
    ht: ArrayLike,
    layers: Sequence[int],
    Ws: ArrayLike | Sequence[ArrayLike],
    bs: ArrayLike | Sequence[ArrayLike],
    Wt: ArrayLike | Sequence[ArrayLike],
    bt: ArrayLike | Sequence[ArrayLike],
) -> float:
    """|norm(Ws h^s_i + bs) - norm(Wt h^t_layers[i-1] + bt)|^2, sum over i, mean over the batch.

    Haidar et al. 2022, layer-wise, alpha_i = 1; features are mean-pooled. The maps are shared by
    all layers, or given as four lists with one entry per pair.
    """
    student, teacher = as_float(hs), as_float(ht)
    assert len(layers) == student.shape[1] - 2
    maps: list[Any] = [Ws, bs, Wt, bt]
    shared = np.ndim(maps[0][0]) == 1
    total = np.zeros(student.shape[0])
    for i, j in enumerate(layers, start=1):
        ws, vs, wt, vt = maps if shared else [per_layer[i - 1] for per_layer in maps]
        s = l2_normalize(project(student[:, i], (ws, vs)))
        t = l2_normalize(project(teacher[:, j], (wt, vt)))
        total += ((s - t) ** 2).sum(axis=1)
    return float(total.mean())


def rail_concatenated(
    hs: ArrayLike,
    ht: ArrayLike,
    layers: Sequence[int],
    Ws: ArrayLike,
    bs: ArrayLike,
    Wt: ArrayLike,
    bt: ArrayLike,
) -> float:
    """|norm(Ws [h^s_1; ..; h^s_{m-1}] + bs) - norm(Wt [h^t_a1; ..] + bt)|^2, mean over the batch.

    Haidar et al. 2022, concatenated: the chosen layers are joined along the features in ascending
    order, and each side is mapped once.
    """
    student, teacher = as_float(hs), as_float(ht)
    assert len(layers) == student.shape[1] - 2
    s = np.concatenate([student[:, i] for i in range(1, len(layers) + 1)], axis=1)
    t = np.concatenate([teacher[:, j] for j in layers], axis=1)
    difference = l2_normalize(project(s, (Ws, bs))) - l2_normalize(project(t, (Wt, bt)))
    return float((difference**2).sum(axis=1).mean())


def groups(n: int, m: int, scheme: str) -> list[list[int]]:
    """CKD's groups of teacher layers 1..n for student layers 1..m (EMNLP 2020).

    ``regular``: layer j belongs to the first group i with j <= i n / m. ``overlap``: and the layer
    above, the topmost group the layer below. ``cross``: the first, third, fifth .. of the regular
    group. ``skip_middle``: groups of n // m - 1 (at least 1), half of them from below, the others
    from above, the odd one from below.
    """
    found: list[list[int]] = [[] for _ in range(m)]
    if scheme == "skip_middle":
        size = max(n // m - 1, 1)
        below, above = list(range(1, n + 1)), list(range(n, 0, -1))
        for i in range(m - m // 2):
            found[i] = below[i * size : (i + 1) * size]
        for i in range(m // 2):
            found[m - 1 - i] = sorted(above[i * size : (i + 1) * size])
        return found
    for j in range(1, n + 1):
        first = next(i for i in range(1, m + 1) if j * m <= i * n)
        found[first - 1].append(j)
    if scheme == "overlap" and m > 1:
        return [
            sorted({*group, max(group) + 1} if i < m else {*group, min(group) - 1})
            for i, group in enumerate(found, start=1)
        ]
    if scheme == "cross":
        return [[j for place, j in enumerate(group) if place % 2 == 0] for group in found]
    assert scheme in ("regular", "overlap")
    return found


def ckd(
    hs: ArrayLike, ht: ArrayLike, layers: Sequence[Sequence[int]], maps: Sequence[Linear]
) -> float:
    """|norm(W_i h^s_i + b_i) - norm([h^t_j; j in group i])|^2, sum over i = 1..m, mean over batch.

    Wu et al. 2020: the concatenation of the group's layers is not mapped, the student is, by one
    map per layer; sums over features and layers as in the authors' code.
    """
    student, teacher = as_float(hs), as_float(ht)
    assert len(layers) == len(maps) == student.shape[1] - 1
    total = np.zeros(student.shape[0])
    for i, (group, linear) in enumerate(zip(layers, maps, strict=True), start=1):
        joined = np.concatenate([teacher[:, j] for j in group], axis=1)
        difference = l2_normalize(project(student[:, i], linear)) - l2_normalize(joined)
        total += (difference**2).sum(axis=1)
    return float(total.mean())


# ---------------------------------------------------------------------------------------- Pro-KD


def smooth(logits: ArrayLike, temperature: float, t_max: float, smoothing: str) -> Array:
    """``factor``: z (1 - (T-1)/t_max), as in Annealing-KD; ``divide``: z / T."""
    z = as_float(logits)
    if smoothing == "factor":
        return as_float(z * (1.0 - (temperature - 1.0) / t_max))
    assert smoothing == "divide"
    return as_float(z / temperature)


def follow(
    student_logits: ArrayLike,
    teacher_logits: ArrayLike,
    temperature: float,
    t_max: float,
    smoothing: str,
) -> float:
    """(z_s - smooth(z_t))^2, mean over batch and classes: stage 1 of Pro-KD (COLING 2022)."""
    return mse(student_logits, smooth(teacher_logits, temperature, t_max, smoothing))


def falling_temperature(epoch: int, epochs: int, t_max: int) -> float:
    """The temperature of an epoch (from 0) in a stage of ``epochs`` epochs, from t_max down to 1.

    Enough epochs for all values: each is held for floor(epochs / t_max) of them, and 1 for the
    rest. Fewer: even steps from t_max to 1. A single epoch: 1.
    """
    if epochs == 1:
        return 1.0
    if epochs >= t_max:
        return float(max(1, t_max - epoch // (epochs // t_max)))
    return t_max - (t_max - 1) * epoch / (epochs - 1)


# --------------------------------------------------------------------------- Continuation-KD


def continuation(
    student_logits: ArrayLike, teacher_logits: ArrayLike, phi: float, margin: float
) -> float:
    """max(0, |z_s - phi z_t|^2 - margin phi) per row, mean over the batch (arXiv 2212.05998)."""
    zs, zt = as_float(student_logits), as_float(teacher_logits)
    per_row = ((zs - phi * zt) ** 2).sum(axis=1) - margin * phi
    return float(np.mean([max(0.0, float(value)) for value in per_row]))


def psi_and_phi(
    epoch: int, epochs: int, t_max: int, last_psi: float, follow_share: float
) -> tuple[float, float]:
    """Weight of the labels and factor on the teacher in an epoch (from 0) of Continuation-KD.

    F epochs follow the teacher: psi = last_psi / F, 2 last_psi / F .. last_psi, and phi = 1 -
    (T - 1) / t_max for the T of a stage of F epochs; then psi and phi are 1.
    """
    following = max(1, round(epochs * follow_share))
    if epoch + 1 > following:
        return 1.0, 1.0
    temperature = falling_temperature(epoch, following, t_max)
    return last_psi * (epoch + 1) / following, 1.0 - (temperature - 1.0) / t_max


# ------------------------------------------------------------------------ terms on the tokens


def relation(a: ArrayLike, b: ArrayLike) -> Array:
    """a b^T / sqrt(D) of one head of one row, ``[t, D]`` twice -> ``[t, t]``."""
    x, y = as_float(a), as_float(b)
    return as_float(x @ y.T / math.sqrt(x.shape[1]))


def relations(a: ArrayLike, b: ArrayLike, mask: ArrayLike) -> list[Array]:
    """The relations of every row and head, ``[B, A, T, D]`` twice, padding cut off."""
    x, y, found = as_float(a), as_float(b), []
    for row, real in enumerate(np.asarray(mask).astype(bool)):
        for head in range(x.shape[1]):
            found.append(relation(x[row, head][real], y[row, head][real]))
    return found


def relation_kl(student: Sequence[Array], teacher: Sequence[Array]) -> float:
    """KL(softmax(teacher) || softmax(student)) of each query, mean over queries, heads and rows."""
    values: list[float] = []
    for s, t in zip(student, teacher, strict=True):
        log_s, log_t = log_softmax(s), log_softmax(t)
        values += (np.exp(log_t) * (log_t - log_s)).sum(axis=1).tolist()
    return float(np.mean(values))


def relation_mse(student: Sequence[Array], teacher: Sequence[Array]) -> float:
    """(s - t)^2, mean over the pairs of tokens of all heads and rows."""
    squares = [((s - t) ** 2).ravel() for s, t in zip(student, teacher, strict=True)]
    return float(np.concatenate(squares).mean())


def token_cosine(hs: ArrayLike, ht: ArrayLike, mask: ArrayLike) -> float:
    """1 - cos(h^s, h^t), mean over the real positions (DistilBERT)."""
    real = np.asarray(mask).astype(bool)
    s, t = l2_normalize(as_float(hs)[real]), l2_normalize(as_float(ht)[real])
    return float(np.mean(1.0 - (s * t).sum(axis=1)))


def tinybert_hidden(
    hs: Sequence[ArrayLike], ht: Sequence[ArrayLike], linear: Linear, mask: ArrayLike
) -> float:
    """(W h^s_i + b - h^t_{i n / m})^2, mean over real positions and features, sum over i = 0..m."""
    layers = uniform(len(ht) - 1, len(hs) - 1)
    return float(
        sum(masked_mse(project(h, linear), ht[j], mask) for h, j in zip(hs, layers, strict=True))
    )


# ---------------------------------------------------------------- terms on other rows and outputs


def splitmix(*numbers: int) -> int:
    """63 random bits of whole numbers: the finaliser of SplitMix64 after each, then h >> 1."""
    h, modulus = 0, 2**64
    for number in numbers:
        h = (h + number + 0x9E3779B97F4A7C15) % modulus
        h = ((h ^ (h >> 30)) * 0xBF58476D1CE4E5B9) % modulus
        h = ((h ^ (h >> 27)) * 0x94D049BB133111EB) % modulus
        h ^= h >> 31
    return h >> 1


def negatives(row: int, labels: dict[int, float], k: int, at: Sequence[int]) -> list[int]:
    """The row numbers of k negatives of a row, drawn at (seed, epoch, step).

    ``labels``: row number -> class of each training row; in a regression, a number of its own.
    """
    found = sorted((label, n) for n, label in labels.items() if label != labels[row])
    return [found[splitmix(*at, row, j) % len(found)][1] for j in range(k)]


def starts(n: int, m: int) -> list[int]:
    """1 + floor((i-1) n / m) for i = 1..m: the lowest layer of each part (CoDIR)."""
    return [1 + (i - 1) * n // m for i in range(1, m + 1)]


def codir_scores(z: ArrayLike, bank: ArrayLike, places: Sequence[Sequence[int]], tau: float) -> Any:
    """<z_b, bank[places[b][k]]> / tau, ``[B, K+1]``; k = 0 is the row itself."""
    vectors, memory = as_float(z), as_float(bank)
    return np.array(
        [[float(v @ memory[p]) / tau for p in row] for v, row in zip(vectors, places, strict=True)]
    )


def codir_direction(scores: ArrayLike, rows: int, normaliser: float) -> float:
    """-log(p_0 / (p_0 + K P)) - sum_k log(K P / (p_k + K P)), mean over the batch.

    p = exp(score) / Z, P = 1 / rows; Z 0 stands for mean(exp(score)) * rows. Sun et al. 2020.
    """
    e = np.exp(as_float(scores))
    p = e / (normaliser if normaliser > 0 else e.mean() * rows)
    noise = (p.shape[1] - 1) / rows
    own = -np.log(p[:, 0] / (p[:, 0] + noise))
    others = -np.log(noise / (p[:, 1:] + noise)).sum(axis=1)
    return float((own + others).mean())


def codir_vectors(h: ArrayLike, layers: Sequence[int], linear: Linear) -> Array:
    """norm(W [h_j; j in layers] + b), ``[B, W]``."""
    x = as_float(h)
    return l2_normalize(project(np.concatenate([x[:, j] for j in layers], axis=1), linear))


def universal(
    hs: ArrayLike,
    ht: ArrayLike,
    labels: ArrayLike,
    temperature: float,
    query: Linear,
    key: Linear,
    student_maps: Sequence[Linear],
    teacher_maps: Sequence[Linear],
) -> tuple[float, float]:
    """Terms universal and pseudo of Universal-KD; one map (a classifier) per intermediate layer.

    y_i = S_i h^s_i, y_j = T_j h^t_j; e_ij = softmax_j <Q h^s_i, K h^t_j> / sqrt(W); the soft KL of
    y_i and sum_j e_ij y_j, summed over i; the cross-entropy of y_j, mean over j.
    """
    student, teacher = as_float(hs)[:, 1:-1], as_float(ht)[:, 1:-1]
    q, k = project(student, query), project(teacher, key)
    e = attend(q / math.sqrt(q.shape[2]), k)
    y_t = np.stack([project(teacher[:, j], w) for j, w in enumerate(teacher_maps)], axis=1)
    assert y_t.shape[1] == teacher.shape[1]
    assert len(student_maps) == student.shape[1]
    total = 0.0
    for i, linear in enumerate(student_maps):
        mixture = np.einsum("bn,bnc->bc", e[:, i], y_t)
        total += soft_kl(project(student[:, i], linear), mixture, temperature)
    pseudo = [cross_entropy(y_t[:, j], labels) for j in range(y_t.shape[1])]
    return total, float(np.mean(pseudo))
