"""CoDIR, contrastive distillation (Sun et al., EMNLP 2020, arXiv 2009.14167).

Each model's layers are joined, mapped linearly to a small space and scaled to length 1: z_s, z_t.
A row's z_s must be told from the negatives of the teacher, and its z_t from those of the student:
K rows of another class, which come from two memory banks with a vector for each of the N rows.
With m_0 the row's own vector in the other model's bank and m_1..m_K those of the negatives,

    p_k   = exp(<z, m_k> / tau) / Z
    term  = -log(p_0 / (p_0 + K / N)) - sum_k log((K / N) / (p_k + K / N))
    codir = (term of z_s + term of z_t) / 2,   mean over the batch

Z, one per bank, is N times the mean of exp(<z, m_k> / tau) in the first batch and stays so. After
the loss of a step, and before the optimiser's, the banks take the batch's vectors:
m <- unit(momentum m + (1 - momentum) z). This is the order of the authors' code, which does it in
its forward pass; here `loss` reads the banks and `remember` writes them.

Layers: student 1..m, teacher 1 + (i-1) n / m (12 -> 6: 1 3 5 7 9 11, the authors' code; rounding
down for depths that do not divide is ours). Negatives are drawn with replacement, as a function of
(seed, epoch, step, row number). In a regression any other row is a negative.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from ilkd_bench.functional import layermaps
from ilkd_bench.functional.losses import unit
from ilkd_bench.methods.base import one_of, positive, share_below_one, width_of
from ilkd_bench.methods.vanilla import Vanilla
from ilkd_bench.types import BadInput, Clock, Outputs, Rows, Spec

_STEP, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB


def mixed(*numbers: int | Tensor) -> Tensor:
    """Mix whole numbers into random ones of 63 bits, at the broadcast shape.

    SplitMix64 (Steele et al., OOPSLA 2014), modulo 2^64: h = 0, and for each number in turn
    h = finalise(h + number + 0x9E3779B97F4A7C15); the lowest bit of the last h is dropped. It is a
    pure function of each element, so that rows neither know of each other nor of their order.
    """
    h = torch.zeros((), dtype=torch.int64)
    for number in numbers:
        h = h + number + _signed(_STEP)  # tensors of whole numbers wrap around
        h = (h ^ _shifted(h, 30)) * _signed(_FIRST)
        h = (h ^ _shifted(h, 27)) * _signed(_SECOND)
        h = h ^ _shifted(h, 31)
    return _shifted(h, 1)


def _signed(bits: int) -> int:
    """Return the number below 2^63 with the same 64 bits."""
    return bits - (bits >> 63 << 64)


def _shifted(h: Tensor, bits: int) -> Tensor:
    """Shift to the right and fill with zeros, where torch repeats the sign."""
    return (h >> bits) & ((1 << (64 - bits)) - 1)


class CoDIR(Vanilla):
    """Learn from labels, logits and a contrast between rows: `ce`, `kd`, `codir`."""

    # made by `prepare`; places count the training rows from 0, in the order of their numbers
    numbers: Tensor  # [N], row numbers, ascending
    ranked: Tensor  # [N], places in the order of their class, then of their number
    avoided: Tensor  # [N, 2], first rank and number of the rows that a place has no negatives among
    student_bank: Tensor  # [N, W]
    teacher_bank: Tensor  # [N, W]
    normalisers: Tensor  # [2], Z of z_s with the teacher's bank and of z_t; 0: not fixed yet

    def __init__(
        self,
        student: Spec,
        teacher: Spec,
        *,
        temperature: float,
        feature: str,
        projection_width: int,
        contrast_temperature: float,
        negatives: int,
        momentum: float,
    ) -> None:
        super().__init__(student, teacher, temperature=temperature)
        self.feature = one_of("feature", feature, ("cls", "mean"))
        self.needs = frozenset({"logits", feature})
        self.student_layers = list(range(1, student.layers + 1))
        self.teacher_layers = layermaps.starts(teacher.layers, student.layers)
        self.width = width_of("projection_width", projection_width)
        self.contrast_temperature = positive(
            "contrast_temperature",
            contrast_temperature,
            least=0.02,  # exp(1 / tau) N is a float32
        )
        self.negatives = positive("negatives", negatives, most=1e5, whole=True)
        self.momentum = share_below_one("momentum", momentum)
        self.regression = student.classes == 1
        self.student_projection = nn.Linear(student.layers * student.width, self.width)
        self.teacher_projection = nn.Linear(student.layers * teacher.width, self.width)
        for name in ("numbers", "ranked", "avoided"):
            self.register_buffer(name, None, persistent=False)
        for name in ("student_bank", "teacher_bank", "normalisers"):
            self.register_buffer(name, None)

    def prepare(self, labels: Tensor, index: Tensor) -> None:
        """Fill the banks, uniform in +-1 / sqrt(W / 3), and note who is a negative of whom."""
        self.numbers, order = torch.sort(index)
        rows = len(index)
        classes = torch.arange(rows) if self.regression else labels[order].long()
        _, classes, sizes = torch.unique(classes, return_inverse=True, return_counts=True)
        if len(sizes) < 2:
            seen = "a single row" if self.regression else f"{rows} rows of a single class"
            raise BadInput(
                f"there is nothing to tell a training row from: {seen}. Take others, or more of "
                "them (limit_train=)"
            )
        self.ranked = torch.argsort(classes, stable=True)
        self.avoided = torch.stack([sizes.cumsum(0) - sizes, sizes], dim=1)[classes]
        bound = (3 / self.width) ** 0.5
        self.student_bank = torch.empty(rows, self.width).uniform_(-bound, bound)
        self.teacher_bank = torch.empty(rows, self.width).uniform_(-bound, bound)
        self.normalisers = torch.zeros(2)

    def loss(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> dict[str, Tensor]:
        """Return `ce`, `kd`, `codir`; while Z is not fixed, with the Z of this batch."""
        scores = self._scores(*self._vectors(s, t), rows, clock)  # [2, B, 1+K]
        known = self.normalisers > 0
        log_z = torch.where(known, self.normalisers, self._normalisers(scores.detach())).log()
        log_p = scores - log_z[:, None, None]
        log_noise = math.log(self.negatives / len(self.numbers))  # of K / N
        positives = softplus(log_noise - log_p[..., 0])  # -log(p / (p + K / N)), [2, B]
        others = softplus(log_p[..., 1:] - log_noise).sum(-1)  # [2, B]
        return super().loss(s, t, rows, clock) | {"codir": (positives + others).mean()}

    def remember(self, s: Outputs, t: Outputs, rows: Rows, clock: Clock) -> None:
        """Fix Z in the first step, and let the banks take the vectors of this batch.

        Of a row that stands in the batch more than once, the first one counts.
        """
        vectors = self._vectors(s, t)
        if clock.step == 0:
            self.normalisers = self._normalisers(self._scores(*vectors, rows, clock))
        places = self._places(rows.index)
        first = (places[:, None] == places).to(torch.uint8).argmax(1)  # [B]
        for bank, z in zip((self.student_bank, self.teacher_bank), vectors, strict=True):
            bank[places] = unit(self.momentum * bank[places] + (1 - self.momentum) * z[first])

    def drawn(self, index: Tensor, clock: Clock) -> Tensor:
        """Return the places of the K negatives of each row, [B, K].

        The rows of other classes are counted in the order of their class and number; the k-th
        negative (from 0) is the one with the number mixed(seed, epoch, step, row number, k) modulo
        how many there are.
        """
        first, avoided = self.avoided[self._places(index)].unbind(1)
        k = torch.arange(self.negatives, device=index.device)
        random = mixed(clock.seed, clock.epoch, clock.step, index[:, None], k)
        rank = random % (len(self.numbers) - avoided)[:, None]
        return self.ranked[rank + avoided[:, None] * (rank >= first[:, None])]

    def _places(self, index: Tensor) -> Tensor:
        return torch.searchsorted(self.numbers, index)

    def _vectors(self, s: Outputs, t: Outputs) -> tuple[Tensor, Tensor]:
        """Return z_s and z_t, [B, W] each."""
        h_s = getattr(s, self.feature)[:, self.student_layers].flatten(1)  # [B, m H]
        h_t = getattr(t, self.feature)[:, self.teacher_layers].flatten(1)  # [B, m H]
        return unit(self.student_projection(h_s)), unit(self.teacher_projection(h_t))

    def _scores(self, z_s: Tensor, z_t: Tensor, rows: Rows, clock: Clock) -> Tensor:
        """Return <z, m_k> / tau of z_s, then of z_t, [2, B, 1+K]; k = 0 is the row itself."""
        places = self._places(rows.index)[:, None]
        places = torch.cat([places, self.drawn(rows.index, clock)], dim=1)  # [B, 1+K]
        pairs = (z_s, self.teacher_bank), (z_t, self.student_bank)
        products = [(bank[places] @ z[:, :, None])[..., 0] for z, bank in pairs]
        return torch.stack(products) / self.contrast_temperature

    def _normalisers(self, scores: Tensor) -> Tensor:
        """Return Z of both banks, [2]."""
        return scores.exp().mean(dim=(1, 2)) * len(self.numbers)
