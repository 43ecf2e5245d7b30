"""Training on the embeddings of the words that occur is training on all of them."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import toys
from closeness import close
from torch import Tensor, nn

from ilkd_bench.models.model import Model
from ilkd_bench.models.seen_words import SeenWords, seen_words

WORDS = torch.tensor([2, 3, 7, 9])
BATCHES = [torch.tensor([[2, 7, 9, 3], [2, 7, 3, 0]]), torch.tensor([[2, 7, 3]])]
"""Of the four words, and of the padding; 9 is in the first one alone."""


def stepped(model: Model, decay: float, optimizer: Any = None) -> Any:
    """Take three steps of AdamW with clipping, without dropout."""
    if optimizer is None:
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.05, weight_decay=decay)
    for ids in (*BATCHES, BATCHES[1]):
        mask = (ids != 0).long()
        logits = model.outputs({"input_ids": ids, "attention_mask": mask}, frozenset()).logits
        logits.square().sum().backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()
    return optimizer


def weights(model: Model) -> dict[str, Tensor]:
    return {name: value.clone() for name, value in model.state_dict().items()}


@pytest.mark.parametrize("decay", [0.0, 0.5])
def test_what_is_learned_is_the_same(decay: float) -> None:
    """Words that no row has change by weight decay alone, and by as much as they would."""
    whole, seen = toys.model(), toys.model()
    before = weights(whole)
    stepped(whole, decay)
    with seen_words(seen.hf, WORDS):
        stepped(seen, decay)
    expected, found = weights(whole), weights(seen)
    assert expected.keys() == found.keys()
    for name, value in expected.items():
        close(found[name], value)
    table = "hf.bert.embeddings.word_embeddings.weight"
    assert torch.equal(before[table][5], expected[table][5]) == (decay == 0.0)
    assert not torch.equal(before[table][7], expected[table][7])


def test_the_table_is_back_afterwards() -> None:
    model = toys.model()
    table, before = model.hf.get_input_embeddings(), weights(model)
    with seen_words(model.hf, WORDS):
        inside: Any = model.hf.get_input_embeddings()
        assert inside.weight.shape == (6, 8), "four words, the padding, what decay alone does"
        assert {k: v.shape for k, v in weights(model).items()} == {
            k: v.shape for k, v in before.items()
        }
    assert model.hf.get_input_embeddings() is table
    assert all(torch.equal(value, before[name]) for name, value in weights(model).items())


def test_it_is_back_after_an_error_too() -> None:
    model = toys.model()
    table = model.hf.get_input_embeddings()
    with pytest.raises(KeyError), seen_words(model.hf, WORDS):
        raise KeyError
    assert model.hf.get_input_embeddings() is table


def test_a_training_goes_on_from_what_was_saved_to_the_last_bit() -> None:
    """As after a kill: a new model, the weights and AdamW's moments."""
    whole, first, second = toys.model(), toys.model(), toys.model(seed=1)
    with seen_words(whole.hf, WORDS):
        optimizer = stepped(whole, 0.5)
        weights(whole)  # a checkpoint is written here as well
        stepped(whole, 0.5, optimizer)
    with seen_words(first.hf, WORDS):
        moments = stepped(first, 0.5).state_dict()
        saved = weights(first)
    with seen_words(second.hf, WORDS):
        second.load_state_dict(saved)
        optimizer = torch.optim.AdamW(second.parameters(), lr=0.05, weight_decay=0.5)
        optimizer.load_state_dict(moments)
        stepped(second, 0.5, optimizer)
    expected, found = weights(whole), weights(second)
    assert all(torch.equal(found[name], value) for name, value in expected.items())


def test_a_word_that_was_not_announced_is_an_error() -> None:
    model = toys.model()
    with seen_words(model.hf, WORDS), pytest.raises(IndexError):
        model.hf.get_input_embeddings()(torch.tensor([[2, 5]]))


@pytest.mark.parametrize("frozen", [True, False])
def test_frozen_embeddings_stay_as_they_are(frozen: bool) -> None:
    model = toys.model()
    model.hf.get_input_embeddings().weight.requires_grad_(not frozen)
    with seen_words(model.hf, WORDS):
        assert isinstance(model.hf.get_input_embeddings(), SeenWords) != frozen


def test_the_type_of_the_weights_is_taken_over() -> None:
    model = toys.model().to(torch.bfloat16)
    before = weights(model)
    with seen_words(model.hf, WORDS):
        pass
    assert all(torch.equal(value, before[name]) for name, value in weights(model).items())


def test_the_mode_of_training_is_taken_over() -> None:
    model = toys.model().train()
    with seen_words(model.hf, WORDS):
        assert all(module.training for module in model.modules())
