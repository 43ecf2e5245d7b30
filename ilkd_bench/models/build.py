"""How teachers and students are built: from random weights, from the hub, from a folder."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import nn
from transformers import (
    AutoConfig,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
)

from ilkd_bench.data import grammar
from ilkd_bench.models.layers import keep
from ilkd_bench.models.model import Model
from ilkd_bench.settings.identity import model_source, reference
from ilkd_bench.types import BadInput


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw from `seed` inside, and leave the global random state as it was."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def _head(labels: Sequence[str] | None) -> dict[str, Any]:
    """Return the configuration of the classifier: label names, or one score."""
    if labels is None:
        return {
            "num_labels": 1,
            "problem_type": "regression",
            "id2label": {0: "score"},
            "label2id": {"score": 0},
        }
    return {
        "num_labels": len(labels),
        "problem_type": "single_label_classification",
        "id2label": dict(enumerate(labels)),
        "label2id": {name: number for number, name in enumerate(labels)},
    }


def tiny(
    *,
    labels: Sequence[str] | None,
    seed: int,
    layers: int,
    width: int,
    heads: int,
    intermediate: int,
    positions: int,
    dropout: float,
    initializer_range: float,
    residual_scale: float,
    first_score: float,
) -> Model:
    """Build a narrow BERT with random weights that reads the words of the demo grammar.

    Args:
        residual_scale: factor on the first weights of the layers that write into the residual
            stream; a deep narrow BERT does not train from random weights without it.
        first_score: what a regression answers at first, in units of the label.
    """
    tokenizer = word_tokenizer(grammar.vocabulary(), positions)
    config = BertConfig(
        vocab_size=len(tokenizer),
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=heads,
        intermediate_size=intermediate,
        max_position_embeddings=positions,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        initializer_range=initializer_range,
        pad_token_id=tokenizer.pad_token_id,
        **_head(labels),
    )
    with seeded(seed):
        hf: Any = BertForSequenceClassification(config)
    with torch.no_grad():
        for name, weight in hf.named_parameters():
            if name.endswith("output.dense.weight"):  # after attention and after the feed-forward
                weight.mul_(residual_scale)
        if labels is None:
            hf.classifier.bias.fill_(first_score)
    return Model(hf, tokenizer)


def word_tokenizer(words: Sequence[str], positions: int) -> PreTrainedTokenizerFast:
    """Return a lower-casing tokenizer with one token per word, in BERT's format."""
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    numbers = {word: number for number, word in enumerate([*special, *words])}
    backend = Tokenizer(models.WordLevel(numbers, unk_token="[UNK]"))
    backend.normalizer = normalizers.Lowercase()
    backend.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    backend.post_processor = processors.BertProcessing(
        ("[SEP]", numbers["[SEP]"]), ("[CLS]", numbers["[CLS]"])
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=positions,
        model_input_names=["input_ids", "token_type_ids", "attention_mask"],
        pad_token="[PAD]",
        unk_token="[UNK]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
    )


def pretrained(
    *,
    labels: Sequence[str] | None,
    seed: int,
    path: str,
    revision: str | None,
    keep_layers: Sequence[int] | None = None,
) -> Model:
    """Load a pre-trained encoder from the hub or a folder and give it a classifier.

    The classifier is new, unless the encoder comes with one of the task's size.

    Args:
        path: hub id, folder, or `package:NAME/FOLDER`.
        keep_layers: the layers (from 1) to keep, in this order; None keeps all.

    Raises:
        BadInput: it cannot be loaded; the message says what to give instead.
    """
    with seeded(seed):
        model, info = _load(path, revision, _head(labels), ignore_mismatched_sizes=True)
    encoder = f"{model.hf.base_model_prefix}."
    missing = [n for n in info["missing_keys"] if n.startswith(encoder) and "pooler" not in n]
    if missing:
        raise BadInput(
            f"{path} lacks {len(missing)} of the encoder's weights, e.g. {sorted(missing)[0]}"
        )
    if keep_layers is not None:
        keep(model.hf, keep_layers)
    return model


def untrained(
    *, labels: Sequence[str] | None, seed: int, path: str, revision: str | None, layers: int
) -> Model:
    """Build a model of random weights with the sizes and the tokenizer of a pre-trained encoder.

    Args:
        path: as for `pretrained`.
        layers: how many layers it has, at most as many as the encoder.

    Raises:
        BadInput: the encoder cannot be loaded, or has fewer layers.
    """
    model, _ = _load(path, revision, _head(labels), ignore_mismatched_sizes=True)
    if not 1 <= layers <= model.spec.layers:
        raise BadInput(f"student.layers={layers}: {path} has 1 to {model.spec.layers} to give")
    config = model.hf.config
    config.num_hidden_layers = layers
    with seeded(seed):
        hf = AutoModelForSequenceClassification.from_config(config)
    return Model(hf, model.tokenizer)


def checkpoint(path: str, *, labels: Sequence[str] | None) -> tuple[Model, list[int] | None]:
    """Load a classifier that is already fine-tuned.

    Args:
        path: folder, hub id, or `ID@REVISION`.

    Returns:
        The model, and which of its outputs is which label of the task (None: they are in the
        task's order, or have no names and are taken to be).

    Raises:
        BadInput: it cannot be read, is not fine-tuned, or has other labels than the task.
    """
    source, revision = reference(path)
    model, info = _load(source, revision, {}, ignore_mismatched_sizes=False)
    if info["missing_keys"]:
        raise BadInput(
            f"{path} is not fine-tuned: it lacks {', '.join(sorted(info['missing_keys']))}. "
            "Give it as teacher.path= to have it fine-tuned"
        )
    classes = 1 if labels is None else len(labels)
    if model.spec.classes != classes:
        raise BadInput(f"{path} has {model.spec.classes} outputs, the task has {classes}")
    id2label: Any = model.hf.config.id2label
    return model, label_order(id2label, labels, path)


def label_order(
    id2label: Mapping[int, str], labels: Sequence[str] | None, where: str
) -> list[int] | None:
    """Return, for each label of the task, the output of that name; None: the order is the same.

    Raises:
        BadInput: the names are not those of the task.
    """
    if labels is None:
        return None
    names = [_plain(id2label[number]) for number in range(len(labels))]
    if names == [f"label{number}" for number in range(len(labels))]:
        return None  # transformers' placeholders
    wanted = [_plain(label) for label in labels]
    if sorted(names) != sorted(wanted):
        raise BadInput(
            f"{where} has the labels {', '.join(id2label.values())}; the task has "
            f"{', '.join(labels)}. Rename them in the checkpoint's config.json (id2label)"
        )
    order = [names.index(label) for label in wanted]
    return None if order == list(range(len(labels))) else order


def relabel(hf: Any, order: Sequence[int], labels: Sequence[str]) -> None:
    """Bring a classifier's outputs, and their names, into the order of the task's labels.

    Args:
        order: as `label_order` returns it.
    """
    head = [module for module in hf.classifier.modules() if isinstance(module, nn.Linear)][-1]
    with torch.no_grad():
        head.weight.copy_(head.weight[list(order)])
        head.bias.copy_(head.bias[list(order)])
    for name, value in _head(labels).items():
        setattr(hf.config, name, value)


def _plain(name: str) -> str:
    return "".join(c for c in name.lower() if c.isalnum())


def _load(
    path: str, revision: str | None, head: dict[str, Any], *, ignore_mismatched_sizes: bool
) -> tuple[Model, dict[str, Any]]:
    source = model_source(path)
    where = {"revision": revision} if revision and isinstance(source, str) else {}
    try:
        config = AutoConfig.from_pretrained(source, **where, **head)
        tokenizer = AutoTokenizer.from_pretrained(source, **where)
        hf, info = AutoModelForSequenceClassification.from_pretrained(
            source,
            config=config,
            **where,
            output_loading_info=True,
            dtype=torch.float32,
            ignore_mismatched_sizes=ignore_mismatched_sizes,
        )
    except Exception as error:  # safetensors, tokenizers and the hub have no common base
        if isinstance(source, Path):
            raise BadInput(
                f"{source} cannot be loaded as a transformers checkpoint: {error}"
            ) from error
        raise BadInput(
            f"{source} cannot be loaded from the hub ({type(error).__name__}: {error}). "
            "Without a network give the folder of a downloaded copy: teacher.path=DIR or "
            "student.path=DIR, and data_dir=DIR for the text"
        ) from error
    return Model(hf, tokenizer), info
