"""Every architecture of transformers works, or is refused with a reason."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import toys
from families import POSITIONS, load, save
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import (
    MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING_NAMES as CLASSIFIERS,
)

from ilkd_bench.models import build
from ilkd_bench.models.layers import check_copy, keep
from ilkd_bench.models.model import Model
from ilkd_bench.models.support import check_config, check_finite, check_needs
from ilkd_bench.types import NEEDS, BadInput, Incompatible

SIZES = {
    "vocab_size": 21,
    "hidden_size": 16,
    "embedding_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 32,
    "max_position_embeddings": 32,
    "entity_vocab_size": 5,
    "pad_token_id": 0,
}


def small(kind: str) -> Any:
    """A small configuration of an architecture; one that has no such sizes stays as it is."""
    usual = AutoConfig.for_model(kind)
    try:
        return AutoConfig.for_model(
            kind, **{name: value for name, value in SIZES.items() if hasattr(usual, name)}
        )
    except Exception:  # whatever its validators demand
        return usual


def built(kind: str, folder: Path) -> Model:
    """A model of an architecture without weights, as a student of random weights is made."""
    sizes = small(kind)
    for name in ("bos", "eos", "sep", "cls"):
        if getattr(sizes, f"{name}_token_id", None) is not None:
            setattr(sizes, f"{name}_token_id", 2 if name in ("bos", "cls") else 3)
    sizes.save_pretrained(folder)
    build.word_tokenizer(toys.WORDS, POSITIONS).save_pretrained(folder)
    with torch.device("meta"):
        return build.untrained(
            labels=["no", "yes"], seed=0, path=str(folder), revision=None, layers=2
        )


@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("gpt2", "predicts the next token"),
        ("xlnet", "predicts the next token"),
        ("llama", "predicts the next token"),
        ("bart", "two stacks of layers"),
        ("t5", "two stacks of layers"),
        ("canine", "not pre-trained on masked tokens"),
        ("funnel", "no single number of positions"),
        ("fnet", "no single number of attention heads"),
        ("perceiver", "no single number of layers"),
        ("vit", "no classifier of texts"),
    ],
)
def test_architectures_that_lack_what_is_compared_are_refused(kind: str, reason: str) -> None:
    with pytest.raises(BadInput) as error:
        check_config(AutoConfig.for_model(kind), "the folder")
    message = str(error.value)
    assert message.startswith(f"the folder is of the type {kind}, ") and reason in message
    assert message.endswith("Give an encoder like BERT, RoBERTa or DistilBERT")


def test_an_encoder_that_was_made_a_decoder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no token sees the ones after it"):
        check_config(AutoConfig.for_model("bert", is_decoder=True), "the folder")


def test_architectures_that_want_more_than_text_are_refused(tmp_path: Path) -> None:
    for kind in ("tapas", "xmod"):
        with pytest.raises(BadInput, match="which cannot be run on text: "):
            built(kind, tmp_path / kind)


@pytest.mark.parametrize("kind", ["albert", "modernbert", "deberta", "convbert"])
def test_what_an_architecture_cannot_show_is_told_before_anything_is_trained(
    kind: str, tmp_path: Path
) -> None:
    model = built(kind, tmp_path)
    check_needs(model, frozenset({"hidden", "cls", "mean"}), "the student")
    if kind == "convbert":  # looks at values on its way, so that it is tried with random weights
        with pytest.raises(Incompatible, match="shows no attention map of every head"):
            check_needs(model, frozenset({"attention"}), "the student")
        return
    check_needs(model, frozenset({"attention"}), "the student")
    with pytest.raises(Incompatible, match=r"a \w+ has no (list of layers|keys)"):
        check_needs(model, frozenset({"queries", "keys", "values"}), "the student")


@pytest.mark.parametrize("kind", ["mpnet", "electra", "deberta-v2", "camembert", "xlm-roberta"])
def test_other_encoders_show_all_that_methods_ask_for(kind: str, tmp_path: Path) -> None:
    check_needs(built(kind, tmp_path), frozenset(NEEDS), "the student")


@pytest.mark.parametrize("kind", ["albert", "modernbert"])
def test_layers_that_are_shared_or_arranged_in_another_way_are_not_taken_apart(
    kind: str, tmp_path: Path
) -> None:
    hf = built(kind, tmp_path / "m").hf
    for refuse in (lambda: keep(hf, [1]), lambda: check_copy(hf, hf, [1])):
        with pytest.raises((BadInput, Incompatible), match="has no list of layers to take some of"):
            refuse()


def test_keep_layers_says_why_it_is_refused(tmp_path: Path) -> None:
    from transformers import AlbertForSequenceClassification

    AlbertForSequenceClassification(small("albert")).save_pretrained(tmp_path)
    build.word_tokenizer(toys.WORDS, POSITIONS).save_pretrained(tmp_path)
    config: Any = tmp_path / "config.json"
    text = config.read_text()
    config.write_text(text.replace('"bos_token_id": 2', '"bos_token_id": null'))
    with pytest.raises(BadInput, match=r"keep_layers=\[1\] for .*: a AlbertFor.* has no list"):
        load(tmp_path, keep_layers=[1])


@pytest.mark.parametrize("numbers", [3, "1", True, [1.5], [True], ["1"], [0], [9], [1, 1], None])
def test_layers_are_a_list_of_distinct_numbers(numbers: Any, tmp_path: Path) -> None:
    model = toys.model(layers=4)
    with pytest.raises(BadInput, match=r"allowed are distinct numbers from 1 to 4"):
        keep(model.hf, numbers)


@pytest.mark.runs
@pytest.mark.parametrize("kind", sorted(CLASSIFIERS))
def test_every_architecture_works_or_is_refused_with_a_reason(kind: str, tmp_path: Path) -> None:
    try:
        model = built(kind, tmp_path)
    except BadInput as reason:
        assert len(str(reason)) > 40 and "Error" not in str(reason).split(":")[0]
        return
    for need in sorted(NEEDS):
        try:
            check_needs(model, frozenset({need}), "the student")
        except Incompatible as reason:
            assert str(reason).startswith("a ")
    try:
        keep(model.hf, [2])
    except Incompatible as reason:
        assert str(reason).startswith("a ")
    else:
        check_needs(model, frozenset({"hidden"}), "the student")


# ------------------------------------------------------------------------------------- tiny models


@cache
def usual_sizes() -> dict[str, Any]:
    others = ("name", "_target_", "recommended", "teacher_layers")
    return {name: value for name, value in toys.config()["student"].items() if name not in others}


def tiny(**changes: Any) -> Any:
    return build.tiny(labels=["no", "yes"], seed=1, **usual_sizes() | changes)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"heads": 0}, "heads=0: allowed is a whole number of at least 1"),
        ({"heads": 3}, "width=64: allowed is a multiple of the number of heads, heads=3"),
        ({"width": 0}, "width=0: allowed is a whole number of at least 1"),
        ({"width": 64.0}, "width=64.0: allowed is a whole number of at least 1"),
        ({"layers": 0}, "layers=0: allowed is a whole number of at least 1"),
        ({"layers": -2}, "layers=-2: allowed is a whole number of at least 1"),
        ({"layers": True}, "layers=True: allowed is a whole number of at least 1"),
        ({"layers": None}, "layers=None: allowed is a whole number of at least 1"),
        ({"layers": "3"}, "layers=3: allowed is a whole number of at least 1"),
        ({"intermediate": 0}, "intermediate=0: allowed is a whole number of at least 1"),
        ({"positions": 3}, "positions=3: allowed is a whole number of at least 4"),
        ({"dropout": 2}, "dropout=2: allowed is a number from 0 to below 1"),
        ({"dropout": -0.1}, "dropout=-0.1: allowed is a number from 0 to below 1"),
        ({"dropout": 1}, "dropout=1: allowed is a number from 0 to below 1"),
        ({"dropout": "x"}, "dropout=x: allowed is a number"),
        ({"initializer_range": 0}, "initializer_range=0: allowed is a number above 0"),
        ({"residual_scale": float("nan")}, "residual_scale=nan: allowed is a number"),
        ({"first_score": None}, "first_score=None: allowed is a number"),
        ({"layers": 10**8}, "layers=100000000: allowed is a whole number of at most 1000"),
        ({"width": 10**8}, "width=100000000: allowed is a whole number of at most 10000"),
        ({"heads": 10**8}, "heads=100000000: allowed is a whole number of at most 10000"),
        (
            {"intermediate": 10**13 - 1},
            "intermediate=9999999999999: allowed is a whole number of at most 100000",
        ),
        (
            {"positions": 10**11 - 1},
            "positions=99999999999: allowed is a whole number of at most 100000",
        ),
        (
            {"layers": 1000, "width": 10_000},
            "layers=1000: a model of width=10000 would have 4.03e+11 weights in these sizes: "
            "allowed are up to 1e+10. Give smaller sizes",
        ),
        ({"initializer_range": 1e38}, "initializer_range=1e+38: allowed is a number of at most 10"),
        ({"residual_scale": -1e38}, "residual_scale=-1e+38: allowed is a number of at most 1000"),
        ({"first_score": 1e38}, "first_score=1e+38: allowed is a number of at most 1e+09"),
    ],
)
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_impossible_sizes_of_a_tiny_model_are_refused(
    changes: dict[str, Any], message: str, device: str
) -> None:
    with torch.device(device), pytest.raises(BadInput) as error:
        tiny(**changes)
    assert str(error.value) == message


def test_a_model_that_answers_no_finite_numbers_is_refused() -> None:
    model = tiny()
    state = torch.get_rng_state()
    check_finite(model, "the student")
    assert torch.equal(torch.get_rng_state(), state), "nothing is drawn"
    with torch.no_grad():
        model.hf.bert.pooler.dense.weight.fill_(3e38)  # a finite number, the logits are not
        model.hf.classifier.weight.fill_(3e38)
    with pytest.raises(BadInput, match="the student answers no finite numbers before it is tr"):
        check_finite(model, "the student")


@pytest.mark.parametrize("layers", [0, -1, 3, 1.5, "2", None, [1]])
def test_impossible_numbers_of_random_layers_are_refused(layers: Any, tmp_path: Path) -> None:
    save(tmp_path, "bert", layers=2)
    with pytest.raises(BadInput, match=r"student\.layers=.* has 1 to 2 to give"):
        build.untrained(labels=None, seed=0, path=str(tmp_path), revision=None, layers=layers)
