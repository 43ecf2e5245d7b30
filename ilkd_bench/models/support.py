"""Which architectures can be a teacher or a student, and why others cannot."""

from __future__ import annotations

import copy
from typing import Any

import torch
from transformers import (
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
)

from ilkd_bench.models.model import Model
from ilkd_bench.types import BadInput

SIZES = {
    "num_hidden_layers": "layers",
    "hidden_size": "width",
    "num_attention_heads": "attention heads",
    "vocab_size": "vocabulary",
    "max_position_embeddings": "positions",
}
"""Settings of a model that every use of it asks for, and what they are."""

PROBE = 5
"""Tokens of the texts that a model is tried on."""

INSTEAD = "Give an encoder like BERT, RoBERTa or DistilBERT"


def check_config(config: PreTrainedConfig, where: str) -> None:
    """Refuse an architecture that can be neither teacher nor student.

    Args:
        where: what to call the model in messages.

    Raises:
        BadInput: the message has the reason.
    """
    kind = str(config.model_type)
    reason = _reason(config, kind)
    if reason is not None:
        raise BadInput(f"{where} is a {kind or 'model of no kind'}, {reason}. {INSTEAD}")
    for name, what in SIZES.items():
        value = getattr(config, name, None)
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadInput(f"{where} is a {kind}, which has no single number of {what}. {INSTEAD}")
        if value < 1:
            raise BadInput(f"{where}: {name}={value} in its config.json: allowed is 1 or more")
    if getattr(config, "quantization_config", None):
        raise BadInput(f"{where} is quantised, so it cannot be trained. Give its full weights")


def _reason(config: Any, kind: str) -> str | None:
    if kind not in MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES:
        return "for which transformers has no classifier of texts"
    if config.is_encoder_decoder:
        return "which decodes what it encodes: it has two stacks of layers, where one is compared"
    if kind not in MODEL_FOR_MASKED_LM_MAPPING_NAMES:
        if kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
            return (
                "which predicts the next token: it judges a text by its last token, and here the "
                "first one is compared"
            )
        return "which is not pre-trained on masked tokens: it may read no single tokens of text"
    if getattr(config, "is_decoder", False):
        return "set up as a decoder (is_decoder), where no token sees the ones after it"
    return None


def architecture(
    config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase, where: str
) -> type[PreTrainedModel]:
    """Return the class of the classifier, once it has been tried on a few tokens without weights.

    Args:
        where: what to call the model in messages.

    Raises:
        BadInput: it cannot be built in these sizes or run on text alone, or its layers do not show
            a state for every token.
    """
    hf = _built(config, where, "meta")
    if not _shows_states(Model(hf, tokenizer), where):
        with torch.random.fork_rng():
            _shows_states(Model(_built(config, where, "cpu"), tokenizer), where)
    return type(hf)


def _built(config: PreTrainedConfig, where: str, device: str) -> PreTrainedModel:
    try:
        with torch.device(device):
            hf: PreTrainedModel = AutoModelForSequenceClassification.from_config(
                copy.deepcopy(config), trust_remote_code=False
            )
    except Exception as error:  # whatever an architecture raises at sizes that do not fit
        raise not_loaded(where, error) from error
    return hf.eval()


def not_loaded(where: str, why: object) -> BadInput:
    """Return the error of a model that is damaged or of another kind."""
    text = " ".join(str(why).split())
    return BadInput(f"{where} cannot be loaded as a transformers checkpoint: {text}")


def _shows_states(model: Model, where: str) -> bool:
    """Tell whether a model shows a state for every token; False: its device does not let it run.

    On `meta` only sizes are computed, and some architectures look at values on their way.

    Raises:
        BadInput: it cannot be run on text alone, or its layers show something else.
    """
    kind, spec = type(model.hf).__name__, model.spec
    tokens = min(PROBE, model.max_tokens)
    ids = torch.full((2, tokens), model.tokenizer.pad_token_id or 0, device=model.hf.device)
    zeros = torch.zeros_like(ids)
    inputs = {"input_ids": ids, "attention_mask": zeros + 1, "token_type_ids": zeros}
    try:
        with torch.no_grad():
            shown = model.outputs(inputs, frozenset({"hidden"}))
    except Exception as error:  # whatever an architecture raises that wants other inputs
        if ids.is_meta and "meta" in str(error):
            return False
        why = " ".join(str(error).split())
        raise BadInput(
            f"{where} is a {kind}, which cannot be run on text: {why}. {INSTEAD}"
        ) from error
    sizes = {tuple(state.shape) for state in shown.hidden or ()}
    if len(shown.hidden or ()) != spec.layers + 1 or sizes != {(2, tokens, spec.width)}:
        raise BadInput(
            f"{where} is a {kind}, whose layers do not show one state of the same width for "
            f"every token, so they cannot be compared. {INSTEAD}"
        )
    return True
