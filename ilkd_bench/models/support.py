"""Which architectures can be a teacher or a student, and why others cannot."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.models.auto.configuration_auto import CONFIG_MAPPING_NAMES
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    MODEL_FOR_MASKED_LM_MAPPING_NAMES,
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES,
)

from ilkd_bench.models.model import Model
from ilkd_bench.types import BadInput, Incompatible, Outputs

SIZES = {
    "num_hidden_layers": ("layers", 1_000),
    "hidden_size": ("width", 100_000),
    "num_attention_heads": ("attention heads", 10_000),
    "vocab_size": ("vocabulary", 10_000_000),
    "max_position_embeddings": ("positions", 10_000_000),
}
"""Settings of a model that every use of it asks for, what they are, and the most that is taken."""

MOST_WEIGHTS = 10**10
"""Weights of the largest model that is built: 40 GB in float32."""

KERNELS = (None, "eager", "sdpa")
"""Attention as transformers itself computes it; others are code from elsewhere."""

PYTHONS = (LookupError, AttributeError, TypeError, NameError)
"""Errors in whose words there is nothing for a person."""

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
        raise BadInput(f"{where} is of the type {kind or 'unknown'}, {reason}. {INSTEAD}")
    for name, (what, most) in SIZES.items():
        value = getattr(config, name, None)
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadInput(
                f"{where} is of the type {kind}, which has no single number of {what}. {INSTEAD}"
            )
        if value < 1:
            raise BadInput(f"{where}: {name}={value} in its config.json: allowed is 1 or more")
        if value > most:
            raise BadInput(f"{where}: {name}={value} in its config.json: allowed is up to {most}")
    kernel = getattr(config, "_attn_implementation", None)
    if kernel not in KERNELS:
        raise BadInput(
            f"{where} asks for the attention kernel {kernel!r} in its config.json, and none is "
            "fetched: remove the key"
        )
    if not getattr(config, "return_dict", True):
        raise BadInput(f"{where}: return_dict={config.return_dict} in its config.json: remove it")
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
    check_room(sum(weight.numel() for weight in hf.parameters()), where)
    shown = _tried(Model(hf, tokenizer), frozenset({"hidden"}), where)
    layers, width = hf.config.num_hidden_layers, hf.config.hidden_size
    sizes = {state.shape[::2] for state in shown.hidden or ()}
    tokens = {state.shape[1] for state in shown.hidden or ()}
    if len(shown.hidden or ()) != layers + 1 or sizes != {(2, width)} or len(tokens) != 1:
        raise BadInput(
            f"{where} is a {type(hf).__name__}, whose layers do not show one state of the same "
            f"width for every token, so they cannot be compared. {INSTEAD}"
        )
    return type(hf)


def check_room(weights: int, where: str) -> None:
    """Refuse a model of more weights than any computer trains here.

    Raises:
        BadInput: that is so.
    """
    if weights > MOST_WEIGHTS:
        raise BadInput(
            f"{where} would have {weights:.3g} weights in these sizes: allowed are up to "
            f"{MOST_WEIGHTS:.0e}. Give smaller sizes"
        )


def check_finite(model: Model, where: str) -> None:
    """Refuse a model whose weights are so large that it answers no finite numbers to a text.

    It is in eval mode from then on.

    Args:
        where: what to call the model in messages.

    Raises:
        BadInput: that is so.
    """
    model.eval()  # nothing is drawn
    shown = _tried(model, frozenset({"hidden"}), where)
    if not all(x.isfinite().all() for x in (shown.logits, *shown.hidden)):
        raise BadInput(
            f"{where} answers no finite numbers before it is trained: its weights are too large. "
            "Give a smaller initializer_range (and residual_scale, first_score), or other weights"
        )


def check_needs(model: Model, needs: frozenset[str], where: str) -> None:
    """Refuse a model that does not show what a method needs; it may be on torch's `meta` device.

    Args:
        needs: fields of `Outputs`.
        where: what to call the model in messages.

    Raises:
        Incompatible: that is so.
    """
    _tried(model, needs, where)


def _built(config: PreTrainedConfig, where: str, device: str) -> PreTrainedModel:
    try:
        with torch.device(device):
            hf: PreTrainedModel = AutoModelForSequenceClassification.from_config(
                copy.deepcopy(config), trust_remote_code=False
            )
    except Exception as error:  # whatever an architecture raises at sizes that do not fit
        raise not_loaded(where, error, config.to_dict()) from error
    return hf.eval()


def not_loaded(where: str, why: object, settings: Mapping[str, Any] | None = None) -> BadInput:
    """Return the error of a model that is damaged or of another kind.

    Args:
        why: an error, or words.
        settings: of the model, to name those that an error of Python is about.
    """
    text = " ".join(str(why).split())
    if isinstance(why, PYTHONS):
        suspects = _suspects(settings or {}, text)
        text = (
            f"transformers cannot use {', '.join(suspects[:3])} of its config.json"
            if suspects
            else "something in it is missing, unknown or of another kind than transformers expects "
            f"({type(why).__name__}: {text})"
        )
    return BadInput(f"{where} cannot be loaded as a transformers checkpoint: {text}")


def _suspects(settings: Mapping[str, Any], error: str) -> list[str]:
    """Return the settings whose value an error names, or else those of an unusual kind."""

    def shown(names: Iterable[str]) -> list[str]:
        return [f"{name}={settings[name]!r}"[:100] for name in names]

    named = [
        name
        for name, value in settings.items()
        if isinstance(value, str) and value and repr(value) in error and name != "model_type"
    ]
    if named:
        return shown(named)
    kind = settings.get("model_type")
    if not isinstance(kind, str) or kind not in CONFIG_MAPPING_NAMES:
        return shown({"model_type"} & settings.keys())
    usual = AutoConfig.for_model(kind).to_dict()
    usual |= {"num_labels": 2, "dtype": "float32", "torch_dtype": "float32"}
    return shown(
        name
        for name, value in settings.items()
        if usual.get(name) is not None and not _alike(value, usual[name])
    )


def _alike(value: Any, usual: Any) -> bool:
    """Tell whether a value is of the kind of another one, as JSON has kinds."""
    if isinstance(usual, float):
        return isinstance(value, int | float) and not isinstance(value, bool)
    return type(value) is type(usual) or (isinstance(value, list) and isinstance(usual, tuple))


def _tried(model: Model, needs: frozenset[str], where: str) -> Outputs:
    """Return what a model shows for a few tokens.

    On `meta` only sizes are computed. Some architectures look at values on their way; they are
    tried with random weights.

    Raises:
        BadInput: it cannot be run on text alone.
        Incompatible: it does not show what is asked for.
    """
    device = model.hf.device
    try:
        with torch.no_grad(), device:
            ids = torch.full((2, min(PROBE, model.max_tokens)), model.tokenizer.pad_token_id)
            zeros = torch.zeros_like(ids)
            inputs = {"input_ids": ids, "attention_mask": zeros + 1, "token_type_ids": zeros}
            return model.outputs(inputs, needs)
    except Incompatible:
        raise
    except Exception as error:  # whatever an architecture raises that wants other inputs
        if device.type == "meta" and "meta" in str(error):
            with torch.random.fork_rng():
                real = _built(model.hf.config, where, "cpu")
            return _tried(Model(real, model.tokenizer), needs, where)
        why = " ".join(str(error).split())
        raise BadInput(
            f"{where} is a {type(model.hf).__name__}, which cannot be run on text: {why}. {INSTEAD}"
        ) from error
