"""Whether a tokenizer belongs to a model, and can read the texts of a task."""

from __future__ import annotations

import logging
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any

from transformers import PreTrainedConfig, PreTrainedTokenizerBase

from ilkd_bench.types import BadInput

log = logging.getLogger(__name__)

SPARE = 128
SPARE_SHARE = 0.01
"""Rows that word embeddings may have beyond the tokenizer: they are padded to round numbers."""

LOST = 0.5
"""The share of letters and digits beyond which a text has lost its meaning."""

ROWS = 50
"""The first rows of a task that are read and written back."""

SPECIAL = {
    "pad": ("pad",),
    "unk": ("unk",),
    "cls": ("cls",),
    "sep": ("sep",),
    "mask": ("mask",),
    "bos": ("bos", "cls"),
    "eos": ("eos", "sep"),
}
"""Special tokens that a configuration may number, and which of the tokenizer's may have it."""


def check_tokenizer(
    config: PreTrainedConfig, tokenizer: PreTrainedTokenizerBase, where: str
) -> None:
    """Refuse a tokenizer that does not belong to the model.

    Args:
        where: what to call the model in messages.

    Raises:
        BadInput: it is none, has more or far fewer tokens than the model, or other special tokens.
    """
    if not tokenizer.is_fast:
        raise BadInput(
            f"{where} has a tokenizer ({type(tokenizer).__name__}) that is written in Python; only "
            "those of the library tokenizers are supported (tokenizer.json)"
        )
    vocabulary = tokenizer.get_vocab()
    added = {*tokenizer.all_special_tokens, *tokenizer.get_added_vocab()}
    if not any(any(c.isalnum() for c in token) for token in vocabulary.keys() - added):
        raise no_tokenizer(where)
    size = max(vocabulary.values()) + 1
    rows: int = config.vocab_size
    if size > rows:
        raise BadInput(
            f"{where}: its tokenizer has {size} tokens, and its word embeddings {rows} rows, so "
            "they do not belong together. Give the tokenizer of the weights"
            f"{_about_added(tokenizer, rows)}"
        )
    if rows - size > max(SPARE, SPARE_SHARE * rows):
        raise BadInput(
            f"{where}: its tokenizer has {size} tokens, and its word embeddings {rows} rows, so "
            "they do not belong together. Give the tokenizer of the weights; if it is, cut the "
            "embeddings (transformers: model.resize_token_embeddings(len(tokenizer)))"
        )
    if tokenizer.pad_token_id is None:
        raise BadInput(
            f"{where}: its tokenizer has no token for padding. Name one as pad_token in its "
            "tokenizer_config.json"
        )
    _check_special(config, tokenizer, where)
    _check_segments(config, tokenizer, where)


def no_tokenizer(where: str) -> BadInput:
    """Return the error of a model without a tokenizer, or with one that knows no words."""
    return BadInput(
        f"{where} has no tokenizer: expected tokenizer.json or vocab.txt with its words. Copy the "
        "tokenizer's files from the model that the weights come from"
    )


def _about_added(tokenizer: PreTrainedTokenizerBase, rows: int) -> str:
    beyond = sorted(t for t, number in tokenizer.get_added_vocab().items() if number >= rows)
    if not beyond:
        return ""
    return f", or leave out what was added to it ({', '.join(beyond[:3])})"


def _check_special(config: Any, tokenizer: PreTrainedTokenizerBase, where: str) -> None:
    named = [name for name in SPECIAL if isinstance(getattr(config, f"{name}_token_id", None), int)]
    if {"cls", "sep"} & {*named}:  # then a classifier's texts begin and end with those
        named = [name for name in named if name not in ("bos", "eos")]
    for name in named:
        number = getattr(config, f"{name}_token_id")
        found = {getattr(tokenizer, f"{own}_token_id") for own in SPECIAL[name]} - {None}
        if found and number not in found:
            token = getattr(tokenizer, f"{SPECIAL[name][0]}_token") or name
            raise BadInput(
                f"{where}: its config.json says {name}_token_id={number}, and its tokenizer has "
                f"{token} at {min(found)}, so they do not belong together. Give the tokenizer of "
                "the weights, or correct the number if it is"
            )


def _check_segments(config: Any, tokenizer: PreTrainedTokenizerBase, where: str) -> None:
    kinds = getattr(config, "type_vocab_size", 0)
    segments = max(tokenizer("a", "a", return_token_type_ids=True)["token_type_ids"], default=0)
    if 0 < kinds <= segments:
        raise BadInput(
            f"{where}: its tokenizer numbers the texts of a pair from 0 to {segments}, and the "
            f"model knows {kinds} of them (type_vocab_size), so they do not belong together. Give "
            "the tokenizer of the weights"
        )


def check_texts(
    texts: Sequence[Sequence[str]], tokenizer: PreTrainedTokenizerBase, whose: str
) -> None:
    """Refuse a tokenizer that loses most of the first rows: what it reads is written back.

    Case, accents and everything but letters and digits do not count.

    Args:
        texts: as `TextRows` has them: one or two columns of texts.
        whose: what to call the model in messages.

    Raises:
        BadInput: more than half of the letters and digits are not there any more.
    """
    columns = [list(column[:ROWS]) for column in texts]
    lost = total = 0
    worst, example = 0.0, ""
    for row in zip(*columns, strict=True):
        text = _letters(" ".join(row))
        ids = tokenizer(*row)["input_ids"]
        back = _letters(str(tokenizer.decode(ids, skip_special_tokens=True)))
        gone = (text - back).total()
        lost, total = lost + gone, total + text.total()
        if gone and gone / text.total() > worst:
            worst, example = gone / text.total(), row[0] or row[-1]
    if total == 0 or lost <= LOST * total:
        return
    raise BadInput(
        f"{whose}'s tokenizer does not know {lost / total:.0%} of the text, e.g. of "
        f"{example[:80]!r}. Give a model that reads this language. The tiny models know the words "
        "of the demo tasks only: choose task=demo_sentiment, or other models"
    )


def _letters(text: str) -> Counter[str]:
    """Count letters and digits, whatever their case and accents."""
    plain = unicodedata.normalize("NFKD", text.casefold())
    return Counter(c for c in plain if c.isalnum())
