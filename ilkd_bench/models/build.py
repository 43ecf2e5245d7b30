"""How teachers and students are built: from random weights, from the hub, from a folder."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from torch import nn
from transformers import (
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    PreTrainedTokenizerFast,
)

from ilkd_bench.data import grammar
from ilkd_bench.data.labels import label_order
from ilkd_bench.models.fill import fill
from ilkd_bench.models.folder import (
    Folder,
    find,
    read_config,
    read_tokenizer,
    read_weights,
)
from ilkd_bench.models.layers import keep
from ilkd_bench.models.model import Model
from ilkd_bench.models.packaged import convert
from ilkd_bench.models.support import architecture, check_room
from ilkd_bench.settings.checks import is_number
from ilkd_bench.settings.identity import reference
from ilkd_bench.types import BadInput, Incompatible

SHORTEST = 4
"""Tokens of the shortest text that is read, its special tokens included."""

LARGEST = {
    "layers": 1_000,
    "width": 10_000,
    "heads": 10_000,
    "intermediate": 100_000,
    "positions": 100_000,
    "initializer_range": 10,
    "residual_scale": 1_000,
    "first_score": 10**9,
}
"""Settings of a tiny model, and the most that any can use."""


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

    Raises:
        BadInput: a size is not possible.
    """
    _check_sizes(
        layers=layers, width=width, heads=heads, intermediate=intermediate, positions=positions
    )
    _check_numbers(
        dropout=dropout,
        initializer_range=initializer_range,
        residual_scale=residual_scale,
        first_score=first_score,
    )
    if width % heads:
        raise BadInput(
            f"width={width}: allowed is a multiple of the number of heads, heads={heads}"
        )
    if not 0 <= dropout < 1:
        raise BadInput(f"dropout={dropout}: allowed is a number from 0 to below 1")
    if initializer_range <= 0:
        raise BadInput(f"initializer_range={initializer_range}: allowed is a number above 0")
    inside = layers * width * (4 * width + 2 * intermediate)  # of attention and feed-forward
    check_room(inside + positions * width, f"layers={layers}: a model of width={width}")
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


def _check_sizes(**sizes: Any) -> None:
    for name, value in sizes.items():
        least = SHORTEST if name == "positions" else 1
        if type(value) is not int or value < least:
            raise BadInput(f"{name}={value}: allowed is a whole number of at least {least}")
        if value > LARGEST[name]:
            raise BadInput(f"{name}={value}: allowed is a whole number of at most {LARGEST[name]}")


def _check_numbers(**numbers: Any) -> None:
    for name, value in numbers.items():
        if not is_number(value):
            raise BadInput(f"{name}={value}: allowed is a number")
        most = LARGEST.get(name, math.inf)
        if abs(value) > most:
            raise BadInput(f"{name}={value}: allowed is a number of at most {most:g}")


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
    return _pretrained(find(path, revision), labels=labels, seed=seed, keep_layers=keep_layers)


def converted(
    *,
    labels: Sequence[str] | None,
    seed: int,
    path: str,
    like: str | None,
    cache_dir: Path,
    keep_layers: Sequence[int] | None = None,
) -> Model:
    """Load a pre-trained encoder that a package has in another form, and give it a classifier.

    Args:
        path: `package:NAME/FILE`.
        like: folder of a model with the tokenizer and the settings that the file does not tell.
        cache_dir: where the converted model is kept.
        keep_layers: as for `pretrained`.

    Raises:
        BadInput: it cannot be converted or loaded; the message says what to type.
    """
    folder = convert(path, like, cache_dir)
    return _pretrained(folder, labels=labels, seed=seed, keep_layers=keep_layers)


def _pretrained(
    folder: Folder, *, labels: Sequence[str] | None, seed: int, keep_layers: Sequence[int] | None
) -> Model:
    config = read_config(folder, _head(labels))
    tokenizer = read_tokenizer(folder, config)
    kind = architecture(config, tokenizer, folder.name)
    with seeded(seed):
        hf = fill(folder, kind, config, read_weights(folder), new_classifier=True)
    if keep_layers is not None:
        try:
            keep(hf, keep_layers)
        except Incompatible as reason:
            raise BadInput(f"keep_layers={keep_layers} for {folder.name}: {reason}") from reason
    return Model(hf, tokenizer)


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
    folder = find(path, revision)
    config: Any = read_config(folder, _head(labels))
    tokenizer = read_tokenizer(folder, config)
    most = config.num_hidden_layers
    if isinstance(layers, bool) or not isinstance(layers, int) or not 1 <= layers <= most:
        raise BadInput(f"student.layers={layers}: {path} has 1 to {most} to give")
    config.num_hidden_layers = layers
    architecture(config, tokenizer, path)  # BadInput now
    with seeded(seed):
        hf = AutoModelForSequenceClassification.from_config(config, trust_remote_code=False)
    return Model(hf, tokenizer)


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
    return classifier(find(*reference(path)), labels=labels)


def classifier(folder: Folder, *, labels: Sequence[str] | None) -> tuple[Model, list[int] | None]:
    """Load a classifier that is already fine-tuned from its folder; see `checkpoint`."""
    config = read_config(folder, {})
    tokenizer = read_tokenizer(folder, config)
    kind = architecture(config, tokenizer, folder.name)
    hf: Any = fill(folder, kind, config, read_weights(folder), new_classifier=False)
    outputs, classes = hf.config.num_labels, 1 if labels is None else len(labels)
    if outputs != classes:
        raise BadInput(f"{folder.name} has {outputs} outputs, the task has {classes}")
    return Model(hf, tokenizer), label_order(hf.config.id2label, labels, folder.name)


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
