"""Small classifiers of the families that transformers has, saved as the hub would give them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import toys
from tokenizers import Tokenizer, pre_tokenizers, processors
from tokenizers import models as token_models
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    DebertaV2Config,
    DebertaV2ForSequenceClassification,
    DistilBertConfig,
    DistilBertForSequenceClassification,
    ElectraConfig,
    ElectraForSequenceClassification,
    MPNetConfig,
    MPNetForSequenceClassification,
    PreTrainedTokenizerFast,
    RobertaConfig,
    RobertaForSequenceClassification,
)

from ilkd_bench.models import build
from ilkd_bench.models.model import Model

FAMILIES = ["bert", "roberta", "distilbert"]
OTHERS = ["mpnet", "electra", "deberta"]
"""Families whose layers have other names, or more than layers beside the embeddings."""
LIKE_ROBERTA = ("roberta", "mpnet")
"""Families whose positions begin after the number of the padding."""
POSITIONS = 24


def roberta_tokenizer(words: list[str] | None = None) -> PreTrainedTokenizerFast:
    """RoBERTa's format: `<s> a </s></s> b </s>`, no segment numbers, padding is number 1."""
    special = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]
    numbers = {word: i for i, word in enumerate([*special, *(words or toys.WORDS)])}
    backend = Tokenizer(token_models.WordLevel(numbers, unk_token="<unk>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    backend.post_processor = processors.RobertaProcessing(
        ("</s>", 2), ("<s>", 0), trim_offsets=False, add_prefix_space=False
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=POSITIONS,
        model_input_names=["input_ids", "attention_mask"],
        bos_token="<s>",
        cls_token="<s>",
        eos_token="</s>",
        sep_token="</s>",
        unk_token="<unk>",
        pad_token="<pad>",
        mask_token="<mask>",
    )


def save(
    folder: Path,
    family: str,
    *,
    layers: int = 2,
    width: int = 8,
    seed: int = 0,
    labels: list[str] | None = None,
    words: list[str] | None = None,
    dropout: float = 0.1,
) -> Path:
    """Write a random classifier of a family with its tokenizer, as the hub would give it."""
    head: dict[str, Any] = {}
    if labels is not None:
        head = {
            "id2label": dict(enumerate(labels)),
            "label2id": {name: i for i, name in enumerate(labels)},
        }
    common = {"initializer_range": 0.3, **head}
    tokenizer = (
        roberta_tokenizer(words)
        if family in LIKE_ROBERTA
        else build.word_tokenizer(words or toys.WORDS, POSITIONS)
    )
    with build.seeded(seed):
        if family == "distilbert":
            hf: Any = DistilBertForSequenceClassification(
                DistilBertConfig(
                    vocab_size=len(tokenizer),
                    n_layers=layers,
                    dim=width,
                    n_heads=2,
                    hidden_dim=2 * width,
                    max_position_embeddings=POSITIONS,
                    dropout=dropout,
                    attention_dropout=dropout,
                    **common,
                )
            )
        else:
            kinds: dict[str, Any] = {
                "bert": (BertConfig, BertForSequenceClassification),
                "roberta": (RobertaConfig, RobertaForSequenceClassification),
                "mpnet": (MPNetConfig, MPNetForSequenceClassification),
                "electra": (ElectraConfig, ElectraForSequenceClassification),
                "deberta": (DebertaV2Config, DebertaV2ForSequenceClassification),
            }
            own: dict[str, Any] = {
                "electra": {"embedding_size": width // 2},
                "deberta": {  # as the published models have it
                    "relative_attention": True,
                    "pos_att_type": ["c2p", "p2c"],
                    "position_buckets": 8,
                    "norm_rel_ebd": "layer_norm",
                    "share_att_key": True,
                    "position_biased_input": False,
                },
            }
            make_config, make = kinds[family]
            roberta = family in LIKE_ROBERTA
            hf = make(
                make_config(
                    vocab_size=len(tokenizer),
                    num_hidden_layers=layers,
                    hidden_size=width,
                    num_attention_heads=2,
                    intermediate_size=2 * width,
                    max_position_embeddings=POSITIONS + (2 if roberta else 0),
                    type_vocab_size=1 if roberta else 2,
                    pad_token_id=1 if roberta else 0,
                    hidden_dropout_prob=dropout,
                    attention_probs_dropout_prob=dropout,
                    **own.get(family, {}),
                    **common,
                )
            )
    hf.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def load(folder: Path, labels: Any = ("no", "yes"), **given: Any) -> Model:
    given = {"seed": 0, "revision": None} | given
    return build.pretrained(labels=labels, path=str(folder), **given)


def inputs(model: Model, *texts: str) -> dict[str, torch.Tensor]:
    return dict(
        model.tokenizer(list(texts), padding=True, return_tensors="pt", return_token_type_ids=True)
    )
