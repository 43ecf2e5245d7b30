"""What banks keep of tokens: hidden states, queries, keys and values of some layers.

In a bank the real tokens of all rows lie end to end, [tokens, K, H], without padding. A batch gets
its padding anew: there stands the last token of the row, which no loss looks at.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor

from ilkd_bench.types import Outputs, Phase, Spec

PER_TOKEN = frozenset({"hidden", "queries", "keys", "values"})
"""Fields of `Outputs` that have one vector per token and layer."""


@dataclass(frozen=True)
class Tokens:
    """The tokens that a bank has.

    Attributes:
        layers: which are kept; 0 is the embedding output, which has `hidden` only.
        spec: of the teacher.
        offsets: [N+1], the tokens of row i are there from `offsets[i]` up to `offsets[i + 1]`.
        widths: of each field that is kept, H; that of queries and keys is not always the model's.
    """

    layers: tuple[int, ...]
    spec: Spec
    offsets: Tensor
    widths: Mapping[str, int]

    def shape(self, name: str) -> tuple[int, int, int]:
        """Return the shape of a field's array, [tokens, K, H]."""
        return int(self.offsets[-1]), len(self._numbers(name)), self.widths[name]

    def end_to_end(self, outputs: Outputs, name: str) -> Tensor:
        """Return the real tokens of all rows of a batch, [tokens, K, H]."""
        shown: tuple[Tensor, ...] = getattr(outputs, name)
        real = outputs.mask.bool()
        layers = [shown[number - _first(name)] for number in self._numbers(name)]
        joined = [x if name == "hidden" else x.transpose(1, 2).flatten(2) for x in layers]
        return torch.stack([x[real] for x in joined], dim=1)

    def places(self, row: Tensor, length: int) -> Tensor:
        """Return where the tokens of some rows [B] are, padded to a length T: [B, T]."""
        first, end = self.offsets[row], self.offsets[row + 1]
        position = torch.arange(length, device=first.device)
        return torch.minimum(first[:, None] + position, end[:, None] - 1)

    def spread(self, name: str, tokens: Tensor) -> tuple[Tensor, ...]:
        """Return a field of `Outputs` in float32, None where a layer is not kept.

        Args:
            tokens: of some rows, [B, T, K, H].
        """
        shown: list[Tensor | None] = [None] * (self.spec.layers + 1)
        for place, number in enumerate(self._numbers(name)):
            x = tokens[:, :, place]  # [B, T, H]
            if name != "hidden":
                x = x.unflatten(-1, (self.spec.heads, -1)).transpose(1, 2)  # [B, A, T, D]
            shown[number] = x.float().contiguous()
        return cast("tuple[Tensor, ...]", tuple(shown[_first(name) :]))

    def _numbers(self, name: str) -> list[int]:
        """Return the layers that are kept of a field."""
        return [number for number in self.layers if number >= _first(name)]


def _first(name: str) -> int:
    """Return the layer that stands first in a field of `Outputs`."""
    return 0 if name == "hidden" else 1


def layers_of(phases: Iterable[Phase], teacher: Spec) -> tuple[int, ...]:
    """Return the teacher's layers whose tokens some phases compare.

    Raises:
        ValueError: a phase names one that the teacher does not have.
    """
    everything = tuple(range(teacher.layers + 1))
    asked = {
        number
        for phase in phases
        if phase.needs & PER_TOKEN
        for number in (everything if phase.teacher_layers is None else phase.teacher_layers)
    }
    if not asked <= set(everything):
        raise ValueError(
            f"teacher_layers of a phase: {sorted(asked)} is beyond 0 to {teacher.layers}"
        )
    return tuple(sorted(asked))
