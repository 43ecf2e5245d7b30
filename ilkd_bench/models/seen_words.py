"""A training on the word embeddings that its rows use, in place of the whole table."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class SeenWords(nn.Module):
    """The vectors of some words of an embedding; what is saved and loaded is the whole table.

    A word that no row has gets no gradient: weight decay alone changes it, by the same factor as
    any other. So a vector of ones is trained beside the others, meets no gradient either, and is
    that factor in the end.

    Args:
        table: [V, H], not trained meanwhile.
        words: [S], numbers of the words that occur, each once.
    """

    def __init__(self, table: nn.Embedding, words: Tensor) -> None:
        super().__init__()
        self._table = [table]  # in a list: it is no part of this module
        self._words = words.to(table.weight.device)
        place = torch.full((table.num_embeddings,), -1)  # a word without one is an IndexError
        place[words] = torch.arange(len(words))
        self._place: Tensor
        self.register_buffer("_place", place, persistent=False)
        pad = table.padding_idx
        self._pad = None if pad is None else int(place[pad])
        self.weight = nn.Parameter(table.weight.new_empty(len(words) + 1, table.embedding_dim))
        self._take()

    def forward(self, input_ids: Tensor) -> Tensor:
        """Return the vectors of some words, [B, T] -> [B, T, H].

        Raises:
            IndexError: a word is not among those that occur.
        """
        return F.embedding(self._place[input_ids], self.weight, self._pad)

    @torch.no_grad()
    def settle(self) -> Tensor:
        """Bring the whole table up to date, and return it, [V, H]."""
        table = self._table[0].weight
        trained = self.weight.to(table.device)
        table.mul_(trained[-1])
        table[self._words] = trained[:-1]
        self.weight[-1] = 1.0
        return table

    @torch.no_grad()
    def _take(self) -> None:
        self.weight[:-1] = self._table[0].weight[self._words]
        self.weight[-1] = 1.0

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        destination[f"{prefix}weight"] = self.settle().detach()

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *about: Any) -> None:
        with torch.no_grad():
            self._table[0].weight.copy_(state_dict[f"{prefix}weight"])
        self._take()


@contextmanager
def seen_words(hf: PreTrainedModel, ids: Tensor) -> Iterator[None]:
    """Train a model inside on the embeddings of the words that occur; what is learned is the same.

    Clipping and AdamW pass over all weights at every step, and of a small student most are
    embeddings of words that no row of the task has.

    Args:
        ids: numbers of the words that occur.
    """
    table: Any = hf.get_input_embeddings()
    if type(table) is not nn.Embedding or not table.weight.requires_grad:
        yield
        return
    special = [] if table.padding_idx is None else [table.padding_idx]
    words = torch.cat([ids, ids.new_tensor(special)]).unique()
    seen = SeenWords(table, words)
    seen.train(hf.training)
    hf.set_input_embeddings(seen)
    try:
        yield
    finally:
        seen.settle()
        hf.set_input_embeddings(table)
