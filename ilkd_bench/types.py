"""The concepts shared by models, methods and training.

Shape legend, used in every shape comment of the package:
    B  rows of a batch            T  tokens of a (padded) row
    L  layers of a model          H  width of a layer
    A  attention heads            D  width of a head, H / A
    C  classes, 1 for a regression
Index 0 on a layer axis is the embedding output; 1..L are the layers.
`s` stands for the student and `t` for the teacher, the student first.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypedDict

if TYPE_CHECKING:
    from torch import Tensor


Inputs = dict[str, "Tensor"]
"""What one model reads: tensors [B, T] by the names that transformers gives them."""

NEEDS = frozenset("logits cls mean hidden attention queries keys values".split())
"""What a method may ask a model to show: the field names of `Outputs`."""


class Incompatible(Exception):
    """A method that cannot work for this pair of models or this task; the message is the reason.

    The run is recorded as skipped, never as failed.
    """


class BadInput(Exception):
    """Something the user gave is wrong; the message says what was found and what is allowed."""


@dataclass(frozen=True)
class Outputs:
    """What a model shows for one batch. Fields that nobody asked for are None."""

    logits: Tensor  # [B, C]
    mask: Tensor  # [B, T], 1 on real tokens
    cls: Tensor = None  # type: ignore[assignment]  # [B, L+1, H], the first token of every layer
    mean: Tensor = None  # type: ignore[assignment]  # [B, L+1, H], the mean over the real tokens
    hidden: tuple[Tensor, ...] = ()  # L+1 of [B, T, H]
    attention: tuple[Tensor, ...] = ()  # L of [B, A, T, T], after the softmax
    queries: tuple[Tensor, ...] = ()  # L of [B, A, T, D], as projected; `features.relations` makes
    keys: tuple[Tensor, ...] = ()  # L of [B, A, T, D]    of them the scores before the softmax
    values: tuple[Tensor, ...] = ()  # L of [B, A, T, D]


@dataclass(frozen=True)
class Spec:
    """The sizes of a model; all that a method needs in order to build its projections."""

    layers: int
    width: int
    heads: int
    vocabulary: int
    classes: int  # 1 for a regression


class TrainingBatch(TypedDict):
    """What a loader yields: some rows as both models read them."""

    student: Inputs
    teacher: Inputs  # the same object where both read the same tokens
    labels: Tensor  # [B]
    index: Tensor  # [B]


@dataclass(frozen=True)
class Rows:
    """What a loss may know about the rows besides the models' outputs."""

    labels: Tensor  # [B], whole numbers for classes, floats for a regression
    index: Tensor  # [B], row number within the split


@dataclass(frozen=True)
class Phase:
    """One stretch of training with a fresh optimiser and learning-rate schedule."""

    name: str
    epochs: int
    needs: frozenset[str]  # of the teacher and the student alike
    teacher_at: Callable[[int], float] | None = None
    """Epoch of the phase -> fraction (0, 1] of the teacher's own training. None: its best epoch."""
    lr: float | None = None  # None: the run's learning rate
    lr_factor: float = 1.0  # on the learning rate, so that a sweep of it moves all phases
    carry: Literal["last", "best"] = "last"
    """What the next phase starts from: the weights of the last epoch, or of the best one on dev."""
    teacher_layers: tuple[int, ...] | None = None
    """Layers of the teacher whose tokens are compared (`hidden`, `queries`, `keys`, `values`; 0 is
    the embedding output). None: all. A bank keeps no others, and shows None in their places."""


@dataclass(frozen=True)
class Clock:
    """When a loss is computed: all that a schedule or a draw may depend on."""

    phase: Phase
    epoch: int  # within the phase, from 0
    step: int  # within the phase, from 0
    steps: int  # of the whole phase
    seed: int
