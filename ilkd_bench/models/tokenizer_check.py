"""Whether a tokenizer belongs to a model, and can read the texts of a task."""

from __future__ import annotations

import logging
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any

from transformers import BatchEncoding, PreTrainedConfig, PreTrainedTokenizerBase

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
    longest: Any = tokenizer.model_max_length
    if not isinstance(longest, int | float):
        raise BadInput(
            f"{where}: model_max_length={longest!r} in its tokenizer_config.json: allowed is a "
            "number"
        )
    _check_special(config, tokenizer, where)
    for texts in (("a",), ("a", "a")):
        read = _read(tokenizer, texts, where)
        _check_added(read, rows, tokenizer, where)
    _check_segments(config, read, where)


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


def _read(tokenizer: PreTrainedTokenizerBase, texts: Sequence[str], where: str) -> BatchEncoding:
    """Return one text, or a pair, as a tokenizer reads it.

    Raises:
        BadInput: it cannot.
    """
    try:
        return tokenizer(*texts, return_token_type_ids=True)
    except Exception as error:  # of tokenizers and transformers: no common base
        why = " ".join(f"{type(error).__name__}: {error}".split())
        raise BadInput(
            f"{where} has a tokenizer that cannot read a text ({why}). Correct its "
            "tokenizer_config.json and tokenizer.json, or copy them from the model that the "
            "weights come from"
        ) from error


def _check_added(
    read: BatchEncoding, rows: int, tokenizer: PreTrainedTokenizerBase, where: str
) -> None:
    """Refuse tokens around texts that are not those that the tokenizer names, or no numbers of it.

    One that names neither `cls_token` nor `sep_token` may add none.
    """
    begins, ends = (
        {getattr(tokenizer, f"{own}_token_id") for own in SPECIAL[name]} - {None}
        for name in ("bos", "eos")
    )
    ids = list(read["input_ids"])
    added = [text is None for text in read.sequence_ids()]
    around = [number for number, new in zip(ids, added, strict=True) if new]
    strange = [n for n in around if n not in begins | ends]
    strange += [n for n in ids if not 0 <= n < rows]
    first, last = (ids[end] if all(added[end]) else [] for end in (slice(0, 1), slice(-1, None)))
    if strange:
        wrong = f"adds {_shown(tokenizer, strange[:1])} to a text"
    elif tokenizer.cls_token_id is not None and not begins & {*first}:
        wrong = f"begins a text with {_shown(tokenizer, first)}"
    elif tokenizer.sep_token_id is not None and not ends & {*last}:
        wrong = f"ends a text with {_shown(tokenizer, last)}"
    else:
        return
    named = [
        f"{_shown(tokenizer, [number])} as {name}_token"
        for name in ("cls", "sep")
        if (number := getattr(tokenizer, f"{name}_token_id")) is not None
    ]
    raise BadInput(
        f"{where}: its tokenizer {wrong}, and names {' and '.join(named) or 'none'}. Give the "
        "tokenizer of the weights, or correct the post_processor in its tokenizer.json"
    )


def _shown(tokenizer: PreTrainedTokenizerBase, numbers: Sequence[int]) -> str:
    """Return how a message calls a token, or that there is none."""
    shown = [f"number {n} ({tokenizer.convert_ids_to_tokens(n) or 'no token'})" for n in numbers]
    return shown[0] if shown else "no token of its own"


def _check_segments(config: Any, pair: BatchEncoding, where: str) -> None:
    kinds = getattr(config, "type_vocab_size", 0)
    segments = max(pair["token_type_ids"], default=0)
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
        ids = _read(tokenizer, row, whose)["input_ids"]
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
