"""Folders of models: what belongs together is loaded, anything else is refused with a reason."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import toys
from families import FAMILIES, POSITIONS, load, roberta_tokenizer, save
from huggingface_hub import constants
from safetensors.torch import load_file, save_file
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertForPreTraining,
    BertModel,
    ElectraConfig,
    ElectraForPreTraining,
    RobertaConfig,
    RobertaForMaskedLM,
)

from ilkd_bench.models import build
from ilkd_bench.settings.identity import model_fingerprint, model_source
from ilkd_bench.students import load as students
from ilkd_bench.types import BadInput

LABELS = ["no", "yes"]
JSONS = (
    *("config.json", "tokenizer.json", "tokenizer_config.json"),
    *("special_tokens_map.json", "added_tokens.json", "vocab.json"),
)


def refusal(folder: Path, how: str = "pretrained", **given: Any) -> str:
    """The message with which a folder is refused as an encoder, a teacher or a student."""
    ways: dict[str, Callable[[], Any]] = {
        "pretrained": lambda: load(folder, **given),
        "checkpoint": lambda: build.checkpoint(str(folder), labels=LABELS),
        "student": lambda: students.load(folder, LABELS),
    }
    with pytest.raises(BadInput) as error:
        ways[how]()
    with pytest.raises(BadInput) as again, torch.device("meta"):
        ways[how]()
    assert str(error.value) == str(again.value), "known from the files' headers alone"
    return str(error.value)


def configure(folder: Path, **changes: Any) -> None:
    """Change settings in a model's config.json."""
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


def rename(folder: Path, names: Callable[[str], str]) -> None:
    """Give the weights other names."""
    path = folder / "model.safetensors"
    save_file({names(name): value for name, value in load_file(path).items()}, path)


# ----------------------------------------------------------------------------- weights and config


@pytest.mark.parametrize(
    ("how", "changes", "words"),
    [
        ("pretrained", {"hidden_size": 12}, ["another size", "is [8], not [12]", " more"]),
        ("checkpoint", {"hidden_size": 12}, ["another size", "is [8], not [12]", " more"]),
        ("pretrained", {"vocab_size": 23}, ["word_embeddings.weight is [21, 8], not [23, 8]"]),
        ("student", {"max_position_embeddings": 48}, ["weight is [24, 8], not [48, 8]"]),
        ("pretrained", {"intermediate_size": 24}, ["another size", "config.json"]),
        (
            "pretrained",
            {"num_hidden_layers": 2},
            ["no place for", "layer.2.", "keep_layers=[1,2]", "have 4"],
        ),
        (
            "checkpoint",
            {"num_hidden_layers": 5},
            ["lacks 16 of the encoder's weights", "and 13 more", "layer 5"],
        ),
    ],
    ids=str,
)
def test_weights_that_do_not_fit_the_configuration_are_refused(
    how: str, changes: dict[str, int], words: list[str], tmp_path: Path
) -> None:
    save(tmp_path, "bert", layers=4, labels=LABELS)
    configure(tmp_path, **changes)
    message = refusal(tmp_path, how)
    for word in words:
        assert word in message, message
    assert message.count("layer.") <= 3, "a list of names is cut"


@pytest.mark.parametrize("family", FAMILIES)
def test_no_weight_of_the_encoder_may_be_missing(family: str, tmp_path: Path) -> None:
    weights = load_file(save(tmp_path, family, labels=LABELS) / "model.safetensors")
    for name in weights:
        if "classifier" in name or "pooler" in name:
            continue
        rest = {other: value for other, value in weights.items() if other != name}
        save_file(rest, tmp_path / "model.safetensors")
        with pytest.raises(BadInput, match="of the encoder's weights") as error:
            build.checkpoint(str(tmp_path), labels=LABELS)
        assert name in str(error.value)
        break


def test_a_weight_too_many_inside_the_encoder_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, "bert", labels=LABELS) / "model.safetensors"
    more = {"bert.encoder.layer.0.adapter.weight": torch.zeros(2, 2)}
    save_file(load_file(path) | more, path)
    assert "no place for: bert.encoder.layer.0.adapter.weight" in refusal(tmp_path)


QUERY = "bert.encoder.layer.1.attention.self.query.weight"
NORM = "bert.embeddings.LayerNorm.weight"


@pytest.mark.parametrize("how", ["pretrained", "checkpoint", "student"])
@pytest.mark.parametrize(
    ("name", "again"),
    [
        (QUERY, f"bert.{QUERY}"),
        (QUERY, QUERY.removeprefix("bert.")),
        (QUERY, f"module.{QUERY}"),
        (NORM, NORM.replace("weight", "gamma")),
        (NORM.replace("weight", "bias"), NORM.replace("weight", "beta")),
        (NORM, "embeddings.LayerNorm.gamma"),
        ("classifier.weight", "bert.classifier.weight"),
    ],
)
def test_a_weight_that_is_given_twice_is_refused(
    name: str, again: str, how: str, tmp_path: Path
) -> None:
    path = save(tmp_path, "bert", labels=LABELS) / "model.safetensors"
    weights = load_file(path)
    save_file(weights | {again: torch.zeros_like(weights[name])}, path)
    message = refusal(tmp_path, how)
    assert "has a weight twice, as " in message
    assert f" {name} " in f"{message.replace(',', ' ')} " and f" {again}" in message


def test_old_names_of_weights_are_read(tmp_path: Path) -> None:
    expected = load(save(tmp_path, "bert", labels=LABELS)).hf.state_dict()
    rename(
        tmp_path,
        lambda n: n.replace("Norm.weight", "Norm.gamma").replace("Norm.bias", "Norm.beta"),
    )
    for name, value in load(tmp_path).hf.state_dict().items():
        assert torch.equal(value, expected[name])


@pytest.mark.parametrize("how", ["pretrained", "checkpoint", "student"])
@pytest.mark.parametrize(
    "kind", [torch.int64, torch.int32, torch.int16, torch.bool, torch.complex64], ids=str
)
def test_weights_that_are_no_floating_point_numbers_are_refused(
    kind: torch.dtype, how: str, tmp_path: Path
) -> None:
    path = save(tmp_path, "bert", labels=LABELS) / "model.safetensors"
    weights = load_file(path)
    save_file(weights | {QUERY: weights[QUERY].to(kind)}, path)
    message = refusal(tmp_path, how)
    assert "no floating-point numbers" in message and QUERY in message
    assert str(kind).removeprefix("torch.") in message


def test_buffers_may_be_whole_numbers_and_weights_of_any_precision(tmp_path: Path) -> None:
    path = save(tmp_path, "bert", labels=LABELS) / "model.safetensors"
    weights = load_file(path)
    half = {name: value.bfloat16() for name, value in weights.items()}
    positions = {"bert.embeddings.position_ids": torch.arange(POSITIONS)[None]}
    save_file(half | positions, path)
    for name, value in load(tmp_path).hf.state_dict().items():
        assert torch.equal(value, half[name].float())


def test_only_the_classifier_may_be_of_another_size_and_the_log_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, "bert", labels=["a", "b", "c"])
    with caplog.at_level(logging.INFO, "ilkd_bench"):
        model = load(tmp_path, LABELS)
    assert model.spec.classes == 2
    assert "new, from the seed, are classifier.bias, classifier.weight" in caplog.text


def test_a_wrong_number_of_labels_is_named(tmp_path: Path) -> None:
    save(tmp_path, "bert", labels=["a", "b", "c"])
    configure(tmp_path, id2label={"0": "no", "1": "yes"}, label2id={"no": 0, "yes": 1})
    message = refusal(tmp_path, "checkpoint")
    assert "classifier.weight is [3, 8], not [2, 8]. Correct num_labels or id2label" in message


@pytest.mark.parametrize("how", ["pretrained", "checkpoint", "student"])
@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"num_hidden_layers": 10**7}, "num_hidden_layers=10000000 in its config.json: allowed is"),
        ({"num_attention_heads": 10**9}, "num_attention_heads=1000000000 in its config.json"),
        ({"hidden_size": 10**12}, "hidden_size=1000000000000 in its config.json"),
        ({"max_position_embeddings": 10**13}, "max_position_embeddings=10000000000000 in its"),
        ({"max_position_embeddings": 10**7}, "describes a model of 800"),
        ({"intermediate_size": 10**7}, "describes a model of 68"),
        ({"type_vocab_size": 10**8}, "describes a model of 80000"),
        ({"intermediate_size": 10**13}, "would have 6.8e+14 weights in these sizes"),
    ],
    ids=str,
)
def test_sizes_beyond_the_weights_are_refused_before_room_is_made_for_them(
    changes: dict[str, int], words: str, how: str, tmp_path: Path
) -> None:
    """Of 4 layers of width 8: 2 * 8 + 1 weights for each of `intermediate_size` in every layer."""
    save(tmp_path, "bert", layers=4, labels=LABELS)
    configure(tmp_path, **changes)
    assert words in refusal(tmp_path, how)


SIZES = {
    "vocab_size": 21,
    "hidden_size": 8,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 16,
    "max_position_embeddings": POSITIONS,
}


@pytest.mark.parametrize(
    ("make", "config", "tokenizer"),
    [
        (BertModel, BertConfig(**SIZES), "bert"),
        (BertForMaskedLM, BertConfig(**SIZES), "bert"),
        (BertForPreTraining, BertConfig(**SIZES), "bert"),
        (ElectraForPreTraining, ElectraConfig(**SIZES, embedding_size=8), "bert"),
        (
            RobertaForMaskedLM,
            RobertaConfig(**SIZES | {"max_position_embeddings": 26}, type_vocab_size=1),
            "roberta",
        ),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_heads_of_the_pre_training_are_left_out_and_its_pooler_may_be_missing(
    make: Any, config: Any, tokenizer: str, tmp_path: Path
) -> None:
    source = make(config)
    source.save_pretrained(tmp_path)
    words = build.word_tokenizer(toys.WORDS, POSITIONS)
    (roberta_tokenizer() if tokenizer == "roberta" else words).save_pretrained(tmp_path)
    model = load(tmp_path)
    expected = source.base_model.state_dict()
    for name, value in model.hf.base_model.state_dict().items():
        if "pooler" not in name or name in expected:
            assert torch.equal(value, expected[name]), name


# ------------------------------------------------------------------------------------- their files


def test_weights_in_parts_are_the_same_weights(tmp_path: Path) -> None:
    whole = load(save(tmp_path / "a", "bert", labels=LABELS))
    whole.hf.save_pretrained(tmp_path / "b", max_shard_size="2KB")
    whole.tokenizer.save_pretrained(tmp_path / "b")
    parts = sorted(path.name for path in (tmp_path / "b").glob("model-*.safetensors"))
    assert len(parts) > 1
    again, _ = build.checkpoint(str(tmp_path / "b"), labels=LABELS)
    for name, value in again.hf.state_dict().items():
        assert torch.equal(value, whole.hf.state_dict()[name])
    first, second = (tmp_path / "b" / name for name in parts[:2])
    before, twice = load_file(second), min(load_file(first))
    save_file(before | {twice: torch.zeros(1)}, second)
    assert f"two of its files have the same weights: {twice}" in refusal(tmp_path / "b")
    save_file(before, second)
    (tmp_path / "b" / parts[0]).unlink()
    assert f"names files that are not there: {parts[0]}" in refusal(tmp_path / "b")


@pytest.mark.parametrize("prefix", ["module.", "model.", "module.model.", "_orig_mod."])
def test_the_names_of_wrappers_are_stripped_and_said(
    prefix: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    expected = load(save(tmp_path, "bert", labels=LABELS)).hf.state_dict()
    rename(tmp_path, lambda name: prefix + name)
    with caplog.at_level(logging.WARNING, "ilkd_bench"):
        model, _ = build.checkpoint(str(tmp_path), labels=LABELS)
    assert f"begins with {prefix}, which is left out" in caplog.text
    for name, value in model.hf.state_dict().items():
        assert torch.equal(value, expected[name])


def test_a_state_dict_of_torch_is_read_and_no_other_pickle(tmp_path: Path) -> None:
    expected = load(save(tmp_path, "bert", labels=LABELS)).hf.state_dict()
    safe, pickled = tmp_path / "model.safetensors", tmp_path / "pytorch_model.bin"
    torch.save(load_file(safe), pickled)
    safe.unlink()
    model, _ = build.checkpoint(str(tmp_path), labels=LABELS)
    assert torch.equal(model.hf.classifier.weight, expected["classifier.weight"])
    torch.save({"state_dict": load_file_of(model)}, pickled)
    assert "other things than named tensors" in refusal(tmp_path)
    torch.save(Path, pickled)
    assert "pytorch_model.bin: " in refusal(tmp_path)
    assert "no model.safetensors" in refusal(tmp_path, "student"), "of students no pickle is read"


def load_file_of(model: Any) -> dict[str, torch.Tensor]:
    return dict(model.hf.state_dict())


def a_pointer(folder: Path) -> None:
    text = "version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 9\n"
    (folder / "model.safetensors").write_text(text)


def an_adapter(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "adapter_model.safetensors")
    (folder / "adapter_config.json").write_text("{}")


def adapters_inside(folder: Path) -> None:
    rename(folder, lambda name: name.replace("query.weight", "query.lora_A.weight"))


def only_onnx(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "model.onnx")


def nothing(folder: Path) -> None:
    shutil.rmtree(folder)
    folder.mkdir()


def a_folder_above(folder: Path) -> None:
    shutil.copytree(folder, folder.with_name("copy"))
    nothing(folder)
    folder.with_name("copy").rename(folder / "student")


def eight_bits(folder: Path) -> None:
    path = folder / "model.safetensors"
    weights = load_file(path)
    weights["bert.pooler.dense.weight"] = torch.zeros(8, 8, dtype=torch.int8)
    save_file(weights, path)


def own_code(folder: Path) -> None:
    configure(folder, auto_map={"AutoConfig": "code.Config"}, model_type="own")
    (folder / "code.py").write_text("raise SystemExit('it ran')")


def own_tokenizer(folder: Path) -> None:
    path = folder / "tokenizer_config.json"
    content = json.loads(path.read_text()) | {"auto_map": {"AutoTokenizer": ["code.T", None]}}
    path.write_text(json.dumps(content))


def own_kernel(folder: Path) -> None:
    configure(folder, attn_implementation="somebody/kernel")


def no_json(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text("[1]")


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (a_pointer, ["a pointer of Git LFS", "git lfs pull"]),
        (an_adapter, ["adapter (LoRA)", "merge"]),
        (adapters_inside, ["adapter (LoRA)", "merge"]),
        (only_onnx, ["no weights", "found model.onnx"]),
        (eight_bits, ["quantised", "bert.pooler.dense.weight"]),
        (own_code, ["code of its own", "auto_map in its config.json"]),
        (own_tokenizer, ["code of its own", "auto_map in its tokenizer_config.json"]),
        (own_kernel, ["somebody/kernel", "remove the key"]),
        (no_json, ["tokenizer_config.json holds no settings"]),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_is_no_model_is_refused_with_the_reason(
    damage: Callable[[Path], None],
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("builtins.input", lambda *_: pytest.fail("it asks on the terminal"))
    folder = save(tmp_path / "m", "bert", labels=LABELS)
    damage(folder)
    message = refusal(folder)
    for word in words:
        assert word in message, message


OF_PYTHON = re.compile(
    r"object has no|has no attribute|NoneType|object (is|cannot)|not supported|invalid literal"
    r"|unhashable|there is no '|out of range|unexpected keyword|indices must|recursion"
)
"""Words of Python that say nothing to a person."""


@pytest.mark.parametrize("how", ["pretrained", "checkpoint"])
@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("hidden_act", "nosuch", "cannot use hidden_act='nosuch' of its config.json"),
        ("hidden_act", 5, "hidden_act"),
        ("dtype", "nosuch", "cannot use dtype='nosuch' of its config.json"),
        ("dtype", {"a": 1}, "cannot use dtype={'a': "),
        ("id2label", ["no", "yes"], "id2label in its config.json is no {number: name}: ['no', 'y"),
        ("id2label", {"no": 0}, "id2label in its config.json is no {number: name}: {'no': 0}"),
        ("id2label", 5, "id2label in its config.json is no {number: name}: 5"),
        ("model_type", ["bert"], "cannot use model_type=['bert'] of its config.json"),
        ("model_type", "nosuch", "nosuch"),
        ("return_dict", False, "return_dict=False in its config.json: remove it"),
        ("layer_norm_eps", "small", "layer_norm_eps"),
    ],
    ids=str,
)
def test_a_setting_that_cannot_be_used_is_named(
    name: str, value: Any, words: str, how: str, tmp_path: Path
) -> None:
    configure(save(tmp_path, "bert", labels=LABELS), **{name: value})
    message = refusal(tmp_path, how)
    assert words in message and not OF_PYTHON.search(message), message


@pytest.mark.parametrize("value", [None, [], {"a": 1}, "two", 1.5])
def test_a_number_of_labels_that_is_none_is_named(value: Any, tmp_path: Path) -> None:
    """What is no task's is of the folder; a new classifier has the task's number."""
    folder = save(tmp_path, "bert")
    configure(folder, num_labels=value)
    message = refusal(folder, "checkpoint")
    assert "num_labels=" in message and not OF_PYTHON.search(message), message


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        *((file, text, f"{file} holds no settings") for file in JSONS for text in ("null", "[1]")),
        *((file, "{", f"{file} is no JSON") for file in JSONS),
        ("tokenizer.json", "[" * 5000, "tokenizer.json is nested too deeply"),
        ("tokenizer.json", "{}", "'added_tokens' is missing in its tokenizer.json"),
        ("tokenizer.json", '{"added_tokens": null}', "a value is wrong in its tokenizer.json"),
        ("tokenizer_config.json", '{"cls_token": [1]}', "a value is wrong in its tokenizer.json"),
        ("special_tokens_map.json", '{"cls_token": [1]}', "a value is wrong in its tokenizer.js"),
    ],
    ids=str,
)
def test_a_file_of_a_tokenizer_that_cannot_be_used_is_named(
    name: str, content: str, words: str, tmp_path: Path
) -> None:
    folder = save(tmp_path, "bert", labels=LABELS)
    (folder / name).write_text(content)
    message = refusal(folder)
    assert words in message and not OF_PYTHON.search(message), message


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (nothing, "the folder is empty"),
        (a_folder_above, "there are models in its folders student"),
        (only_onnx, "found model.onnx"),
        (an_adapter, "merge it into its model first"),
    ],
)
def test_a_folder_without_weights_is_refused_while_runs_are_planned(
    damage: Callable[[Path], None], words: str, tmp_path: Path
) -> None:
    folder = save(tmp_path / "m", "bert", labels=LABELS)
    damage(folder)
    with pytest.raises(BadInput, match=r"no weights|adapter") as error:
        model_fingerprint(str(folder), None, tmp_path)
    assert words in str(error.value)


def test_a_file_in_the_place_of_a_folder_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path, "bert") / "model.safetensors"
    with pytest.raises(BadInput, match="is a file: give the folder that it is in"):
        model_source(str(path))


@pytest.mark.parametrize(
    ("how", "value"),
    [("pretrained", float("nan")), ("checkpoint", float("inf")), ("student", float("nan"))],
)
def test_weights_that_are_not_finite_are_refused_by_name(
    how: str, value: float, tmp_path: Path
) -> None:
    path = save(tmp_path, "bert", labels=LABELS) / "model.safetensors"
    weights = load_file(path)
    weights["bert.encoder.layer.1.output.dense.bias"][3] = value
    save_file(weights, path)
    ways = {
        "pretrained": lambda: load(tmp_path),
        "checkpoint": lambda: build.checkpoint(str(tmp_path), labels=LABELS),
        "student": lambda: students.load(tmp_path, LABELS),
    }
    with pytest.raises(BadInput, match=r"no finite numbers: bert\.encoder\.layer\.1\.output"):
        ways[how]()


# ------------------------------------------------------------------------------------ from the hub


def test_a_model_of_the_hub_is_read_from_its_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit = "c" * 40
    snapshot = tmp_path / "models--somebody--model" / "snapshots" / commit
    expected = load(save(snapshot, "bert", labels=LABELS)).hf.state_dict()
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path))
    model = build.pretrained(labels=LABELS, seed=0, path="somebody/model", revision=commit)
    given, _ = build.checkpoint(f"somebody/model@{commit}", labels=LABELS)
    for found in (model, given):
        for name, value in found.hf.state_dict().items():
            assert torch.equal(value, expected[name])


# -------------------------------------------------------------------------------- without weights


def test_on_the_meta_device_a_model_is_built_from_its_configuration_alone(tmp_path: Path) -> None:
    save(tmp_path, "bert", layers=4, labels=LABELS)
    given = {"labels": LABELS, "seed": 0, "path": str(tmp_path), "revision": None}
    ways: list[Callable[[], Any]] = [
        lambda: build.pretrained(**given, keep_layers=[4, 1]),
        lambda: build.untrained(**given, layers=2),
        lambda: build.checkpoint(str(tmp_path), labels=LABELS)[0],
        lambda: toys.model(layers=3),
    ]
    for make in ways:
        state = torch.get_rng_state()
        with torch.device("meta"):
            model = make()
        assert torch.equal(torch.get_rng_state(), state)
        assert all(weight.is_meta for weight in model.parameters())
        assert model.spec == make().spec
        ids = torch.full((2, 5), 7, device="meta")
        batch = {"input_ids": ids, "attention_mask": ids, "token_type_ids": ids}
        shown = model.outputs(batch, frozenset({"hidden", "attention", "cls", "mean", "keys"}))
        assert shown.logits.shape == (2, 2)
        assert len(shown.attention) == model.spec.layers == len(shown.keys)
