"""A sequence classifier with its tokenizer, and what it shows."""

from __future__ import annotations

import inspect
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from transformers import (
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ilkd_bench.functional import features
from ilkd_bench.functional.losses import full
from ilkd_bench.models.dropout import FastMasks
from ilkd_bench.models.layers import PROJECTIONS, watched
from ilkd_bench.types import Incompatible, Inputs, Outputs, Spec


class Model(nn.Module):
    """A sequence classifier with its tokenizer."""

    def __init__(self, hf: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> None:
        super().__init__()
        self.hf = hf
        self.tokenizer = tokenizer
        self._accepted = set(inspect.signature(hf.forward).parameters)

    @property
    def spec(self) -> Spec:
        """The sizes that methods build their projections from."""
        config: Any = self.hf.config
        return Spec(
            layers=config.num_hidden_layers,
            width=config.hidden_size,
            heads=config.num_attention_heads,
            vocabulary=config.vocab_size,
            classes=config.num_labels,
        )

    @property
    def size(self) -> int:
        """The number of parameters."""
        return sum(p.numel() for p in self.parameters())

    @property
    def max_tokens(self) -> int:
        """The longest input; RoBERTa's first positions are taken by the padding index."""
        embeddings = getattr(self.hf.base_model, "embeddings", None)
        offset = getattr(embeddings, "padding_idx", None)
        return self.hf.config.max_position_embeddings - (0 if offset is None else offset + 1)

    def outputs(self, inputs: Inputs, needs: frozenset[str]) -> Outputs:
        """Run the model on [B, T] inputs and return what `needs` names, besides the logits.

        Inputs that the architecture does not take (DistilBERT: segment numbers) are left out.
        Attention maps switch to the kernel that can return them; otherwise the fast one stays, for
        queries, keys and values too.

        Raises:
            Incompatible: the architecture does not show what is asked for.
        """
        if "attention" in needs and self.hf.config._attn_implementation != "eager":
            self.hf.set_attn_implementation("eager")
        given = {name: x for name, x in inputs.items() if name in self._accepted}
        if inputs["attention_mask"].is_meta:
            del given["attention_mask"]  # whether it hides anything cannot be asked there
        with self._drawing(), watched(self.hf, needs & PROJECTIONS.keys()) as projected:
            result = self.hf(
                **given,
                output_hidden_states=bool(needs & {"cls", "mean", "hidden"}),
                output_attentions="attention" in needs,
            )
        if "attention" in needs:
            self._require_maps(result.attentions)
        mask, hidden = inputs["attention_mask"], result.hidden_states
        heads: dict[str, Any] = {n: tuple(map(self._heads, x)) for n, x in projected.items()}
        place = "cpu" if mask.is_meta else mask.device.type
        with torch.autocast(place, enabled=False):
            return Outputs(
                logits=full(result.logits),
                mask=mask,
                **_pooled(hidden, mask, needs),
                hidden=hidden if "hidden" in needs else (),
                attention=result.attentions if "attention" in needs else (),
                **heads,
            )

    def _drawing(self) -> AbstractContextManager[object]:
        """Draw dropout's masks fast; a compiled model has a generator of its own in its loops."""
        compiled = self.hf._compiled_call_impl is not None
        return FastMasks() if self.training and not compiled else nullcontext()

    def _require_maps(self, attentions: Any) -> None:
        maps = [] if attentions is None else [a for a in attentions if a is not None]
        square = all(a.shape[1] == self.spec.heads and a.shape[2] == a.shape[3] for a in maps)
        if len(maps) != self.spec.layers or not square:
            kind = type(self.hf).__name__
            raise Incompatible(f"a {kind} shows no attention map of every head in every layer")

    def _heads(self, x: Tensor) -> Tensor:
        """Split [B, T, H] into heads, [B, A, T, D]."""
        return x.unflatten(-1, (self.spec.heads, -1)).transpose(1, 2)


def _pooled(hidden: Any, mask: Tensor, needs: frozenset[str]) -> dict[str, Any]:
    pooled = {}
    if "cls" in needs:
        pooled["cls"] = full(features.cls(hidden))
    if "mean" in needs:
        pooled["mean"] = features.mean(hidden, mask)
    return pooled
