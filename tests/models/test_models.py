"""BERT, RoBERTa and DistilBERT: what they show, how they are cut, copied, loaded and refused."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import torch
import toys
from closeness import close
from families import FAMILIES, OTHERS, POSITIONS, inputs, load, save
from transformers import (
    BertConfig,
    BertModel,
)

from ilkd_bench.models import build
from ilkd_bench.models.layers import copy_layers, layers_of
from ilkd_bench.types import BadInput, Spec

ALL = frozenset({"logits", "cls", "mean", "hidden", "attention"})


# ----------------------------------------------------------------------------------- what they show


@pytest.mark.parametrize("family", FAMILIES)
def test_outputs_have_the_shapes_of_the_concept(family: str, tmp_path: Path) -> None:
    labels = ["a", "b", "c"]
    model = load(save(tmp_path, family, layers=3, labels=labels), labels).eval()
    batch = inputs(model, "good film", "the film was very bad one two")
    rows, tokens = batch["input_ids"].shape
    shown = model.outputs(batch, ALL)
    assert model.spec == Spec(layers=3, width=8, heads=2, vocabulary=21, classes=3)
    assert shown.logits.shape == (rows, 3)
    assert shown.mask.equal(batch["attention_mask"])
    assert shown.cls.shape == shown.mean.shape == (rows, 4, 8)
    assert [h.shape for h in shown.hidden] == [(rows, tokens, 8)] * 4
    assert [a.shape for a in shown.attention] == [(rows, 2, tokens, tokens)] * 3
    for layer, hidden in enumerate(shown.hidden):
        assert torch.equal(shown.cls[:, layer], hidden[:, 0]), "the same numbers, copied"
        short = int(batch["attention_mask"][0].sum())
        close(shown.mean[0, layer], hidden[0, :short].mean(0), of=hidden)
    for attention in shown.attention:
        close(attention.sum(-1), torch.ones(rows, 2, tokens))


@pytest.mark.parametrize("family", FAMILIES)
def test_index_0_is_the_embedding_output_and_the_last_one_the_last_layer_s(
    family: str, tmp_path: Path
) -> None:
    model = load(save(tmp_path, family)).eval()
    batch = inputs(model, "good film")
    seen: list[torch.Tensor] = []
    layers = layers_of(model.hf)
    layers[0].register_forward_pre_hook(
        lambda module, args, kwargs: seen.append(args[0] if args else kwargs["hidden_states"]),
        with_kwargs=True,
    )
    layers[-1].register_forward_hook(
        lambda module, args, out: seen.append(out[0] if isinstance(out, tuple) else out)
    )
    shown = model.outputs(batch, frozenset({"hidden"}))
    assert torch.equal(shown.hidden[0], seen[0])
    assert torch.equal(shown.hidden[-1], seen[1].reshape(shown.hidden[-1].shape))


@pytest.mark.parametrize("family", FAMILIES)
def test_padding_changes_nothing_that_is_shown(family: str, tmp_path: Path) -> None:
    model = load(save(tmp_path, family)).eval()
    short = inputs(model, "good film")
    needs = frozenset({"logits", "cls", "mean"})
    alone = model.outputs(short, needs)
    padded = model.outputs(
        dict(
            model.tokenizer(
                ["good film"],
                padding="max_length",
                max_length=20,
                return_tensors="pt",
                return_token_type_ids=True,
            )
        ),
        needs,
    )
    for name in needs:
        close(getattr(padded, name), getattr(alone, name), name=name)


def test_only_what_is_asked_for_is_shown(tmp_path: Path) -> None:
    model = load(save(tmp_path, "bert")).eval()
    kernel = model.hf.config._attn_implementation
    shown = model.outputs(inputs(model, "good"), frozenset({"logits", "cls"}))
    assert shown.mean is None and shown.hidden == () and shown.attention == ()
    shown = model.outputs(inputs(model, "good"), frozenset())
    assert shown.cls is None
    assert kernel == model.hf.config._attn_implementation == "sdpa", "the fast kernel stays"


@pytest.mark.parametrize("family", FAMILIES)
def test_attention_maps_are_there_when_asked_for_and_change_no_prediction(
    family: str, tmp_path: Path
) -> None:
    model = load(save(tmp_path, family)).eval()
    batch = inputs(model, "good film", "a bad cup")
    before = model.outputs(batch, frozenset())
    shown = model.outputs(batch, frozenset({"attention"}))
    assert len(shown.attention) == 2 and all(a is not None for a in shown.attention)
    close(shown.logits, before.logits)


def test_distilbert_takes_no_segment_numbers_and_bert_reads_them(tmp_path: Path) -> None:
    for family, differs in (("distilbert", False), ("bert", True)):
        model = load(save(tmp_path / family, family)).eval()
        batch = inputs(model, "good film")
        other = batch | {"token_type_ids": 1 - batch["token_type_ids"]}
        same = torch.equal(
            model.outputs(batch, frozenset()).logits, model.outputs(other, frozenset()).logits
        )
        assert same != differs, family


@pytest.mark.parametrize(("family", "tokens"), [("bert", 24), ("distilbert", 24), ("roberta", 24)])
def test_max_tokens_is_what_the_positions_allow(family: str, tokens: int, tmp_path: Path) -> None:
    """RoBERTa has two positions more than it can read tokens (514 and 512)."""
    model = load(save(tmp_path, family)).eval()
    assert model.max_tokens == tokens
    assert model.hf.config.max_position_embeddings == tokens + 2 * (family == "roberta")
    full = torch.full((1, tokens), 7)
    ones = torch.ones_like(full)
    batch = {"input_ids": full, "attention_mask": ones, "token_type_ids": 0 * ones}
    assert torch.isfinite(model.outputs(batch, frozenset()).logits).all()


# ---------------------------------------------------------------------------- seeds and classifiers


def test_a_new_classifier_comes_from_the_seed_and_leaves_the_global_state_alone(
    tmp_path: Path,
) -> None:
    bare = BertModel(
        BertConfig(
            vocab_size=21,
            hidden_size=8,
            num_hidden_layers=2,
            num_attention_heads=2,
            intermediate_size=16,
        )
    )
    bare.save_pretrained(tmp_path)
    build.word_tokenizer(toys.WORDS, POSITIONS).save_pretrained(tmp_path)
    state = torch.get_rng_state()
    one, same, other = (load(tmp_path, seed=s).hf.classifier.weight for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(one, same) and not torch.equal(one, other)


@pytest.mark.parametrize("labels", [["no", "yes"], ["a", "b", "c"], None])
def test_the_classifier_has_the_task_s_labels(labels: list[str] | None, tmp_path: Path) -> None:
    model = load(save(tmp_path, "bert"), labels)
    config = model.hf.config
    assert model.spec.classes == (1 if labels is None else len(labels))
    assert list(config.id2label.values()) == (["score"] if labels is None else labels)
    assert config.problem_type == (
        "regression" if labels is None else "single_label_classification"
    )


def test_tiny_models_read_every_word_of_the_demo_tasks() -> None:
    settings = toys.config()["student"]
    sizes = {k: v for k, v in settings.items() if k not in ("name", "_target_", "recommended")}
    sizes.pop("teacher_layers")
    one, same, other = (build.tiny(labels=["no", "yes"], seed=s, **sizes) for s in (1, 1, 2))
    weights = [m.hf.classifier.weight for m in (one, same, other)]
    assert torch.equal(weights[0], weights[1]) and not torch.equal(weights[0], weights[2])
    assert one.spec.layers == sizes["layers"] and one.max_tokens == sizes["positions"]


@pytest.mark.parametrize("family", FAMILIES)
def test_an_untrained_model_has_the_sizes_and_no_weight_of_the_encoder(
    family: str, tmp_path: Path
) -> None:
    whole = load(save(tmp_path, family, layers=4))
    state = torch.get_rng_state()
    given = {"path": str(tmp_path), "revision": None, "labels": ["no", "yes"], "layers": 3}
    one, same, other = (build.untrained(seed=s, **given) for s in (1, 1, 2))
    assert torch.equal(torch.get_rng_state(), state)
    assert one.spec == Spec(**(vars(whole.spec) | {"layers": 3, "classes": 2}))
    assert one.tokenizer.get_vocab() == whole.tokenizer.get_vocab()
    weights = [m.hf.get_input_embeddings().weight for m in (one, same, other, whole)]
    assert torch.equal(weights[0], weights[1])
    assert not torch.equal(weights[0], weights[2]) and not torch.equal(weights[0], weights[3])
    assert list(one.hf.config.id2label.values()) == ["no", "yes"]
    for layers in (0, 5):
        with pytest.raises(BadInput, match=f"student.layers={layers}: .* has 1 to 4 to give"):
            build.untrained(seed=1, **(given | {"layers": layers}))


# ----------------------------------------------------------------------------- keep and copy layers


@pytest.mark.parametrize("family", FAMILIES)
def test_kept_layers_are_those_of_the_whole_model_in_order(family: str, tmp_path: Path) -> None:
    whole = load(save(tmp_path, family, layers=4))
    cut = load(tmp_path, keep_layers=[4, 2])
    assert cut.spec.layers == 2 and len(layers_of(cut.hf)) == 2
    for layer, number in zip(layers_of(cut.hf), (4, 2), strict=True):
        for name, value in layer.state_dict().items():
            assert torch.equal(value, layers_of(whole.hf)[number - 1].state_dict()[name])
    shown = cut.eval().outputs(inputs(cut, "good film"), frozenset({"hidden", "attention"}))
    assert len(shown.hidden) == 3 and len(shown.attention) == 2


@pytest.mark.parametrize("keep", [[0, 1], [1, 5], [2, 2], []])
def test_impossible_layers_are_refused(keep: list[int], tmp_path: Path) -> None:
    save(tmp_path, "bert", layers=4)
    with pytest.raises(BadInput) as error:
        load(tmp_path, keep_layers=keep)
    assert str(error.value) == f"layers {keep}: allowed are distinct numbers from 1 to 4"


@pytest.mark.parametrize("family", [*FAMILIES, *OTHERS])
def test_a_student_of_all_layers_has_its_teacher_s_hidden_states(
    family: str, tmp_path: Path
) -> None:
    teacher = load(save(tmp_path / "t", family, layers=3, seed=1)).eval()
    student = load(save(tmp_path / "s", family, layers=3, seed=2)).eval()
    batch = inputs(teacher, "good film", "the cup was not very blue")
    needs = frozenset({"hidden"})
    before = student.outputs(batch, needs).hidden[-1]
    expected = teacher.outputs(batch, needs).hidden
    assert not torch.allclose(before, expected[-1])
    copy_layers(student.hf, teacher.hf, [1, 2, 3])
    for a, b in zip(student.outputs(batch, needs).hidden, expected, strict=True):
        assert torch.equal(a, b)


def test_copied_layers_are_copies(tmp_path: Path) -> None:
    teacher, student = toys.model(layers=4, seed=1), toys.model(layers=2, seed=2)
    copy_layers(student.hf, teacher.hf, [2, 4])
    for layer, number in zip(layers_of(student.hf), (2, 4), strict=True):
        source = layers_of(teacher.hf)[number - 1]
        for (name, a), b in zip(layer.named_parameters(), source.parameters(), strict=True):
            assert torch.equal(a, b) and a.data_ptr() != b.data_ptr(), name


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([1, 2, 3], "student.teacher_layers=[1, 2, 3]: the student has 2 layers"),
        ([1, 5], "student.teacher_layers=[1, 5]: allowed are distinct numbers from 1 to 4"),
    ],
)
def test_copies_that_do_not_fit_are_refused(layers: list[int], message: str) -> None:
    with pytest.raises(BadInput) as error:
        copy_layers(toys.model(layers=2).hf, toys.model(layers=4).hf, layers)
    assert str(error.value) == message


def test_copies_from_another_family_or_width_are_refused(tmp_path: Path) -> None:
    teacher = load(save(tmp_path / "t", "bert", layers=2))
    for folder, family, width in (("w", "bert", 12), ("d", "distilbert", 8)):
        student = load(save(tmp_path / folder, family, width=width))
        with pytest.raises(
            BadInput, match=r"student\.teacher_layers=null starts the student by itself"
        ):
            copy_layers(student.hf, teacher.hf, [1, 2])


# -------------------------------------------------------------------------------- given checkpoints


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_keeps_its_classifier_and_gives_its_label_order(
    family: str, tmp_path: Path
) -> None:
    save(tmp_path, family, labels=["yes", "no"], seed=3)
    model, order = build.checkpoint(str(tmp_path), labels=["no", "yes"])
    again, _ = build.checkpoint(str(tmp_path), labels=["no", "yes"])
    assert order == [1, 0]
    batch = inputs(model, "good film")
    logits = model.eval().outputs(batch, frozenset()).logits
    assert torch.equal(logits, again.eval().outputs(batch, frozenset()).logits)
    assert logits.abs().sum() > 0


def test_a_checkpoint_with_another_number_of_labels_is_refused(tmp_path: Path) -> None:
    save(tmp_path, "bert", labels=["a", "b", "c"])
    with pytest.raises(BadInput) as error:
        build.checkpoint(str(tmp_path), labels=["no", "yes"])
    assert str(error.value) == f"{tmp_path} has 3 outputs, the task has 2"


@pytest.mark.parametrize("family", FAMILIES)
def test_a_checkpoint_without_a_classifier_is_refused(family: str, tmp_path: Path) -> None:
    save(tmp_path, family)
    hf = load(tmp_path).hf
    hf.base_model.save_pretrained(tmp_path)
    with pytest.raises(BadInput) as error:
        build.checkpoint(str(tmp_path), labels=["no", "yes"])
    message = str(error.value)
    assert message.startswith(f"{tmp_path} is not fine-tuned: it lacks classifier.")
    assert "teacher.path=" in message


@pytest.mark.parametrize("damage", ["truncated", "garbage", "no_weights", "bad_config", "empty"])
def test_a_corrupt_checkpoint_is_refused_by_name(damage: str, tmp_path: Path) -> None:
    folder = save(tmp_path / "m", "bert")
    weights = folder / "model.safetensors"
    if damage == "truncated":
        weights.write_bytes(weights.read_bytes()[:-200])
    elif damage == "garbage":
        weights.write_bytes(b"\xff" * 500)
    elif damage == "no_weights":
        weights.unlink()
    elif damage == "bad_config":
        (folder / "config.json").write_text("{")
    else:
        weights.write_bytes(b"")
    for call in (
        lambda: build.checkpoint(str(folder), labels=["no", "yes"]),
        lambda: load(folder),
    ):
        with pytest.raises(BadInput) as error:
            call()
        assert str(error.value).startswith(
            f"{folder} cannot be loaded as a transformers checkpoint"
        )


def test_weights_of_another_architecture_are_refused(tmp_path: Path) -> None:
    folder = save(tmp_path / "m", "bert", width=8)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"hidden_size": 12}))
    with pytest.raises(BadInput, match=str(folder)):
        build.checkpoint(str(folder), labels=["no", "yes"])


def test_a_hub_model_without_a_network_names_what_to_give_instead() -> None:
    with pytest.raises(BadInput) as error:
        build.pretrained(
            labels=["no", "yes"], seed=0, path="ilkd-bench-tests/nothing", revision="0" * 40
        )
    message = str(error.value)
    assert "ilkd-bench-tests/nothing cannot be loaded from the hub" in message
    for word in ("teacher.path=DIR", "student.path=DIR", "data_dir=DIR"):
        assert word in message


def test_batches_from_the_data_module_fit_every_family(tmp_path: Path) -> None:
    rows = toys.split(5)[np.arange(5)]["student"]
    for family in FAMILIES:
        model = load(save(tmp_path / family, family)).eval()
        assert model.outputs(rows, frozenset({"mean"})).mean.shape == (5, 3, 8)


def test_an_encoder_with_missing_weights_is_refused(tmp_path: Path) -> None:
    toys.model(layers=2).hf.save_pretrained(tmp_path)
    toys.model(layers=2).tokenizer.save_pretrained(tmp_path)
    config = tmp_path / "config.json"
    text = config.read_text()
    config.write_text(text.replace('"num_hidden_layers": 2', '"num_hidden_layers": 3'))
    assert config.read_text() != text
    with pytest.raises(BadInput, match=r"lacks .* of the encoder's weights"):
        build.pretrained(labels=["no", "yes"], seed=0, path=str(tmp_path), revision=None)
