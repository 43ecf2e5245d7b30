"""Distances between student and teacher, as pure functions.

All results are scalars: sums over classes and means over rows are spelt out per function, and
repeating a batch changes none of them. Half-precision inputs are computed in float32.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

_SMALLEST_NORM = 1e-6  # keeps the gradient of a zero vector within float32


def full(x: Tensor) -> Tensor:
    """Return `x` in float32, or unchanged when it is more precise already."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


def cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    """Compare predictions with labels: cross-entropy, or squared error for a regression.

    Args:
        logits: [B, C]; C = 1 is a regression.
        labels: [B], class numbers, or scores in the label's own unit when C = 1.

    Returns:
        The mean over the batch, in nats (classes) or squared label units (regression).
    """
    if logits.shape[-1] == 1:
        return mse(logits[..., 0], labels)
    return F.cross_entropy(full(logits), labels.long())


def soft_kl(student_logits: Tensor, teacher_logits: Tensor, *, temperature: float) -> Tensor:
    """Compare two predictions at a temperature: T^2 KL(teacher || student).

    The sum over classes and the mean over the batch; T^2 keeps the size of the gradient when T
    changes (Hinton et al., 2015, arXiv 1503.02531, section 2). A softmax over a single logit is
    constant, so a regression (C = 1) is the squared error between the outputs and has no
    temperature.

    Args:
        student_logits: [B, C].
        teacher_logits: [B, C].
        temperature: T > 0.
    """
    if student_logits.shape != teacher_logits.shape:
        raise ValueError(
            f"student logits {tuple(student_logits.shape)} and teacher logits "
            f"{tuple(teacher_logits.shape)} differ in shape"
        )
    if student_logits.shape[-1] == 1:
        return mse(student_logits, teacher_logits)
    log_s = F.log_softmax(full(student_logits) / temperature, dim=-1)
    log_t = F.log_softmax(full(teacher_logits) / temperature, dim=-1)
    return F.kl_div(log_s, log_t, reduction="batchmean", log_target=True) * temperature**2


def mse(a: Tensor, b: Tensor) -> Tensor:
    """Return the squared error, mean over all elements; `a` and `b` have one shape."""
    return F.mse_loss(full(a), full(b))


def unit(x: Tensor) -> Tensor:
    """Scale the vectors on the last axis to length 1; a zero vector stays zero."""
    x = full(x)
    return x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).clamp_min(_SMALLEST_NORM)


def normalized_mse(a: Tensor, b: Tensor) -> Tensor:
    """Return the squared error of the vectors scaled to length 1, mean over all elements.

    This is PKD's distance (arXiv 1908.09355, eq. 7) with the reduction of its authors' code.

    Args:
        a, b: [..., H].
    """
    return mse(unit(a), unit(b))


def masked_mse(a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
    """Return the squared error over real tokens, mean over tokens and features.

    Args:
        a, b: [B, T, H].
        mask: [B, T], 1 on real tokens. Without any real token the result is 0.
    """
    mask = mask.to(full(a).dtype)
    per_token = F.mse_loss(full(a), full(b), reduction="none").mean(-1)  # [B, T]
    return (per_token * mask).sum() / mask.sum().clamp_min(1)


def masked_cosine(a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
    """Return 1 - cos(a, b), mean over real tokens.

    Args:
        a, b: [B, T, H]. A zero vector has the cosine 0 with any other.
        mask: [B, T], 1 on real tokens. Without any real token the result is 0.
    """
    cosine = (unit(a) * unit(b)).sum(-1)  # [B, T]
    mask = mask.to(cosine.dtype)
    return ((1 - cosine) * mask).sum() / mask.sum().clamp_min(1)


def relation_mse(a: Tensor, b: Tensor, mask: Tensor) -> Tensor:
    """Return the squared error of scores between tokens, mean over heads and real pairs of tokens.

    Args:
        a, b: [B, A, T, T], before any softmax.
        mask: [B, T], 1 on real tokens. Without any real token the result is 0.
    """
    mask = mask.to(full(a).dtype)
    pairs = mask[:, :, None] * mask[:, None, :]  # [B, T, T]
    per_pair = F.mse_loss(full(a), full(b), reduction="none").mean(1)  # [B, T, T]
    return (per_pair * pairs).sum() / pairs.sum().clamp_min(1)


def relation_kl(student_scores: Tensor, teacher_scores: Tensor, mask: Tensor) -> Tensor:
    """Compare how tokens look at tokens: KL(softmax of teacher || softmax of student).

    The softmax and the sum run over the real keys, the mean over heads and real queries.

    Args:
        student_scores, teacher_scores: [B, A, T, T], before the softmax; the keys are last.
        mask: [B, T], 1 on real tokens. Without any real token the result is 0.
    """
    padding = mask[:, None, None, :] == 0
    log_s, log_t = (
        # the smallest number and not -inf: a row without real tokens has a finite gradient then
        F.log_softmax(full(x).masked_fill(padding, torch.finfo(full(x).dtype).min), dim=-1)
        for x in (student_scores, teacher_scores)
    )
    per_query = (log_t.exp() * (log_t - log_s)).sum(-1).mean(1)  # [B, T]
    mask = mask.to(per_query.dtype)
    return (per_query * mask).sum() / mask.sum().clamp_min(1)
