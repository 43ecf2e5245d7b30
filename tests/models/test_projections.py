"""What is compared token by token: seen inside the layers, masked, refused where impossible."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
import toys
from closeness import RELATIVE, close
from families import FAMILIES, OTHERS, inputs, load, save
from torch import Tensor

from ilkd_bench.data.batches import Split
from ilkd_bench.functional import losses
from ilkd_bench.functional.features import relations
from ilkd_bench.jobs import plan
from ilkd_bench.jobs.job import Job
from ilkd_bench.methods.base import Method
from ilkd_bench.models.layers import layers_of
from ilkd_bench.models.model import Model
from ilkd_bench.teachers.banked import can_bank
from ilkd_bench.teachers.live import LiveTeacher
from ilkd_bench.training import train
from ilkd_bench.training.inputs import check_tokens
from ilkd_bench.types import NEEDS, BadInput, Clock, Incompatible, Outputs, Spec

INSIDE = frozenset({"queries", "keys", "values"})
TOKENS = ["distilbert", "minilm", "tinybert"]


def hooks(model: Model) -> int:
    """How many hooks there are anywhere in a model."""
    return sum(len(m._forward_hooks) + len(m._forward_pre_hooks) for m in model.modules())


# --------------------------------------------------------------------------- inside the layers


@pytest.mark.parametrize("family", FAMILIES)
def test_queries_keys_and_values_are_those_of_eager_attention(family: str, tmp_path: Path) -> None:
    model = load(save(tmp_path, family)).eval()
    batch = inputs(model, "good film", "the film was very bad one two")
    mask = batch["attention_mask"] == 1
    shown = model.outputs(batch, INSIDE)
    assert model.hf.config._attn_implementation == "sdpa", "the fast kernel stays"
    assert hooks(model) == 0

    mixed: list[Tensor] = []  # what the values give under the attention, heads joined
    for layer in layers_of(model.hf):
        attention: Any = layer.attention
        out = attention.out_lin if family == "distilbert" else attention.output.dense
        out.register_forward_pre_hook(lambda module, given: mixed.append(given[0]))
    eager = model.outputs(batch, frozenset({"attention"})).attention
    assert len(shown.queries) == len(shown.keys) == len(shown.values) == len(eager) == 2
    for number, weights in enumerate(eager):
        scores = relations(shown.queries[number], shown.keys[number])
        scores = scores.masked_fill(~mask[:, None, None, :], float("-inf"))
        close(torch.softmax(scores, -1), weights)
        joined = (weights @ shown.values[number]).transpose(1, 2).flatten(2)
        close(joined, mixed[number])


PROJECTED = {
    "mpnet": "attention.attn.{0}",
    "electra": "attention.self.{1}",
    "deberta": "attention.self.{1}_proj",
}


@pytest.mark.parametrize("family", OTHERS)
def test_projections_of_other_families_are_found_by_their_names(
    family: str, tmp_path: Path
) -> None:
    """Scores may have relative positions in them: expected is what the maps give by themselves."""
    model = load(save(tmp_path, family)).eval()
    batch = inputs(model, "good film", "the film was very bad one two")
    hidden = model.outputs(batch, frozenset({"hidden"})).hidden
    before = hooks(model)  # those that transformers adds in some families
    shown = model.outputs(batch, INSIDE)
    assert hooks(model) == before
    for number, layer in enumerate(layers_of(model.hf)):
        for field in ("queries", "keys", "values"):
            word = {"queries": "query", "keys": "key", "values": "value"}[field]
            linear: Any = layer.get_submodule(PROJECTED[family].format(word[0], word))
            expected = hidden[number] @ linear.weight.T + linear.bias
            found = getattr(shown, field)
            assert len(found) == 2
            close(found[number].transpose(1, 2).flatten(2), expected)


def test_nothing_inside_is_seen_unless_asked_for() -> None:
    model = toys.model()
    batch = toys.split(4)[np.arange(4)]["student"]
    shown = model.outputs(batch, frozenset({"logits", "values"}))
    assert shown.queries == shown.keys == () and len(shown.values) == 2
    assert model.outputs(batch, frozenset({"logits"})).values == ()
    with pytest.raises(KeyError):
        model.outputs({"input_ids": batch["input_ids"]}, INSIDE)
    assert hooks(model) == 0


def test_a_layer_without_such_maps_is_incompatible() -> None:
    model = toys.model()
    for layer in layers_of(model.hf):
        attention: Any = layer.attention
        attention.self.queries_and_keys = attention.self.query
        del attention.self.query
    with pytest.raises(Incompatible, match="a BertSelfAttention has no queries"):
        model.outputs(toys.split(2)[np.arange(2)]["student"], INSIDE)
    assert hooks(model) == 0


@pytest.mark.parametrize("name", TOKENS)
def test_terms_of_half_precision_are_float32_and_teach_the_student_only(name: str) -> None:
    student, teacher = toys.model(layers=2, seed=1).train(), toys.model(layers=4, seed=2)
    live = LiveTeacher(teacher)
    method = toys.method(name, student.spec, teacher.spec)
    rows = toys.split(6)[np.arange(6)]
    for phase in method.phases(4):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            s = student.outputs(rows["student"], phase.needs)
            t = live.outputs(rows, phase.needs)
        for x in s.queries:
            assert x.dtype == torch.bfloat16 and x.requires_grad
        batch = toys.batch(6, 2)
        terms = method.loss(s, t, batch, toys.clock(phase))
        assert {value.dtype for value in terms.values()} == {torch.float32}
        sum(terms.values(), start=torch.tensor(0.0)).backward()
    assert layers_of(student.hf)[-1].attention.self.query.weight.grad.any()  # type: ignore
    assert all(p.grad is None for p in teacher.parameters())


# --------------------------------------------------------------------------------- distances


def test_distances_by_hand() -> None:
    mask = torch.tensor([[1, 1, 0]])
    a = torch.tensor([[[1.0, 0.0], [3.0, 4.0], [9.0, 9.0]]])
    b = torch.tensor([[[0.0, 2.0], [4.0, 3.0], [-9.0, 9.0]]])
    # cosines 0 and 24/25
    assert losses.masked_cosine(a, b, mask).item() == pytest.approx((1 + 0.04) / 2, rel=RELATIVE)
    assert losses.masked_cosine(a, b, 0 * mask).item() == 0

    scores = torch.full((1, 1, 3, 3), 50.0)
    other = torch.full((1, 1, 3, 3), -50.0)
    scores[0, 0, :2, :2] = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    other[0, 0, :2, :2] = torch.tensor([[math.log(3), 0.0], [2.0, 2.0]])
    # the first query 3/4, 1/4 against 1/2, 1/2; the second is even on both sides
    divergence = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert losses.relation_kl(scores, other, mask).item() == pytest.approx(
        divergence / 2, rel=RELATIVE
    )
    assert losses.relation_mse(scores, other, mask).item() == pytest.approx(
        (math.log(3) ** 2 + 0 + 1 + 1) / 4, rel=RELATIVE
    )
    two = scores.expand(1, 2, 3, 3)  # a second head, which agrees
    heads = torch.cat([other, scores], dim=1)
    assert losses.relation_kl(two, heads, mask).item() == pytest.approx(
        divergence / 4, rel=RELATIVE
    )
    assert losses.relation_kl(scores, other, 0 * mask).item() == 0
    assert losses.relation_mse(scores, other, 0 * mask).item() == 0


def test_relations_are_divided_by_the_root_of_the_width_of_a_head() -> None:
    a = torch.tensor([[[[1.0, 2.0, 0.0, 0.0], [0.0, 1.0, 0.0, 1.0]]]])
    assert relations(a, a)[0, 0].tolist() == [[2.5, 1.0], [1.0, 1.0]], "exact in binary"
    assert relations(a.half(), a.half()).dtype == torch.float32


# ------------------------------------------------------------------ whole models, another way


@pytest.fixture(scope="module")
def pair() -> tuple[Model, Model]:
    """A student of 2 layers and a wider teacher of 4 that read up to 70 tokens."""
    return (
        toys.model(layers=2, width=8, seed=1, positions=70),
        toys.model(layers=4, width=12, seed=2, positions=70),
    )


LENGTHS = (16, 9, 3)


def padded(length: int) -> dict[str, Tensor]:
    """Three rows padded to a length."""
    batch = toys.encoded(LENGTHS, seed=5).batch(np.arange(3))
    return {name: F.pad(x, (0, length - x.shape[1])) for name, x in batch.items()}


def loss_of(method: Method, models: tuple[Model, Model], length: int, clock: Clock) -> Any:
    batch, needs = padded(length), clock.phase.needs
    s, t = (model.outputs(batch, needs) for model in models)
    return method.loss(s, t, toys.batch(3, 2), clock)


@pytest.mark.parametrize("name", TOKENS)
@torch.no_grad()
def test_terms_are_equal_padded_to_16_and_to_64(name: str, pair: tuple[Model, Model]) -> None:
    models = (pair[0], toys.model(layers=4, seed=2, positions=70)) if name == "distilbert" else pair
    method = toys.method(name, *(model.spec for model in models))
    for phase in method.phases(2):
        clock = toys.clock(phase)
        short, long = (loss_of(method, models, length, clock) for length in (16, 64))
        for term, value in short.items():
            assert long[term].item() == pytest.approx(value.item(), rel=1e-4, abs=RELATIVE), term


def alone(model: Model) -> Iterator[tuple[list[Tensor], dict[str, list[list[Tensor]]]]]:
    """Row by row without padding: hidden states [t, H], and per map, layer and head [t, D].

    The maps are applied here, to the hidden states and with the stored weights.
    """
    encoded, weights = toys.encoded(LENGTHS, seed=5), model.hf.state_dict()
    spec = model.spec
    for row in range(3):
        batch = encoded.batch(np.array([row]))
        hidden = [h[0] for h in model.hf(**batch, output_hidden_states=True).hidden_states]
        maps: dict[str, list[list[Tensor]]] = {}
        for name in ("query", "key", "value"):
            maps[name] = []
            for layer in range(spec.layers):
                prefix = f"bert.encoder.layer.{layer}.attention.self.{name}"
                out = hidden[layer] @ weights[f"{prefix}.weight"].T + weights[f"{prefix}.bias"]
                maps[name].append(list(out.chunk(spec.heads, dim=1)))
        yield hidden, maps


def plain_scores(maps: dict[str, list[list[Tensor]]], layer: int, a: str, b: str) -> list[Tensor]:
    """One [t, t] per head."""
    heads = zip(maps[a][layer], maps[b][layer], strict=True)
    return [x @ y.T / math.sqrt(x.shape[1]) for x, y in heads]


@torch.no_grad()
def test_minilm_another_way(pair: tuple[Model, Model]) -> None:
    method = toys.method("minilm", *(model.spec for model in pair))
    (phase,) = method.phases(1)
    found = loss_of(method, pair, 24, toys.clock(phase))
    for term, names in {"attention": ("query", "key"), "value": ("value", "value")}.items():
        values = []
        for (_, s), (_, t) in zip(alone(pair[0]), alone(pair[1]), strict=True):
            heads = zip(plain_scores(s, 1, *names), plain_scores(t, 3, *names), strict=True)
            for student, teacher in heads:
                p, q = torch.softmax(teacher, 1), torch.softmax(student, 1)
                values.append((p * (p / q).log()).sum(1))
        assert found[term].item() == pytest.approx(torch.cat(values).mean().item(), rel=1e-4), term


@torch.no_grad()
def test_tinybert_another_way(pair: tuple[Model, Model]) -> None:
    method: Any = toys.method("tinybert", *(model.spec for model in pair))
    hint, predict = method.phases(13)
    w, b = method.projection.weight, method.projection.bias
    found = loss_of(method, pair, 24, toys.clock(hint))
    rows = list(zip(alone(pair[0]), alone(pair[1]), strict=True))
    hidden = attention = 0.0
    for i, j in ((0, 0), (1, 2), (2, 4)):
        errors = [((s[i] @ w.T + b - t[j]) ** 2).flatten() for (s, _), (t, _) in rows]
        hidden += torch.cat(errors).mean().item()
        if i > 0:
            squares = [
                ((x - y) ** 2).flatten()
                for (_, s), (_, t) in rows
                for x, y in zip(
                    plain_scores(s, i - 1, "query", "key"),
                    plain_scores(t, j - 1, "query", "key"),
                    strict=True,
                )
            ]
            attention += torch.cat(squares).mean().item()
    assert found["hidden"].item() == pytest.approx(hidden, rel=1e-4)
    assert found["attention"].item() == pytest.approx(attention, rel=1e-4)
    s, t = (model.hf(**padded(24)).logits for model in pair)
    entropy = -(t.softmax(1) * t.log_softmax(1)).sum(1)
    soft = -(t.softmax(1) * s.log_softmax(1)).sum(1)  # the paper's soft cross-entropy
    expected = (soft - entropy).mean().item()
    predicted = loss_of(method, pair, 24, toys.clock(predict))["predict"].item()
    assert predicted == pytest.approx(expected, rel=1e-4)


def test_tinybert_has_the_phases_of_the_paper() -> None:
    method = toys.method("tinybert", toys.spec(2), toys.spec(4))
    hint, predict = method.phases(13)
    assert (hint.name, hint.epochs, hint.needs) == ("hint", 10, {"hidden", "queries", "keys"})
    assert (predict.name, predict.epochs, predict.needs) == ("predict", 3, {"logits"})
    assert hint.lr_factor == 1
    assert 5e-5 * predict.lr_factor == pytest.approx(3e-5)
    with pytest.raises(BadInput, match="epochs=1: tinybert has two phases and needs at least 2"):
        method.phases(1)


# -------------------------------------------------------------------------- impossible pairs


@pytest.mark.parametrize(
    ("name", "student", "teacher", "reason"),
    [
        ("minilm", {}, {"heads": 4}, "the student has 2 attention heads and the teacher 4: "),
        ("tinybert", {}, {"heads": 1}, "the student has 2 attention heads and the teacher 1: "),
        ("tinybert", {"layers": 3}, {}, "3 layers do not divide the teacher's 4"),
        ("tinybert", {"layers": 8}, {}, "8 layers do not divide the teacher's 4"),
        ("distilbert", {}, {"width": 8}, "the student is 4 wide and the teacher 8: "),
    ],
)
def test_impossible_pairs_are_refused(
    name: str, student: dict[str, int], teacher: dict[str, int], reason: str
) -> None:
    def spec(layers: int, changes: dict[str, int]) -> Spec:
        return replace(toys.spec(layers), **changes)

    toys.method(name, toys.spec(2), toys.spec(4))
    with pytest.raises(Incompatible) as error:
        toys.method(name, spec(2, student), spec(4, teacher))
    assert reason in str(error.value)


@pytest.mark.parametrize("name", toys.METHODS)
def test_methods_that_see_tokens_say_so_and_banks_hold_them(name: str) -> None:
    method = toys.method(name, toys.spec(2), toys.spec(4))
    sees = bool(method.needs & (INSIDE | {"hidden", "attention"}))
    assert method.same_tokens == sees
    assert sees or name not in TOKENS
    assert can_bank(method.phases(4))


def test_other_tokens_are_refused_where_tokens_are_compared() -> None:
    tokens = toys.split(6).student
    ids = tokens.ids.copy()
    ids[4] += 1
    labels, index = torch.zeros(6), torch.arange(6)
    split, same, other, longer = (
        Split(labels, index, tokens, reading)
        for reading in (
            tokens,
            replace(tokens, types=tokens.types + 1),  # segments: a student may take none
            replace(tokens, ids=ids),
            toys.encoded([5] * 6),
        )
    )
    minilm, pkd = (toys.method(name, toys.spec(2), toys.spec(4)) for name in ("minilm", "pkd"))
    check_tokens("minilm", minilm, split)
    check_tokens("minilm", minilm, same)
    check_tokens("pkd", pkd, other)
    for wrong in (other, longer):
        with pytest.raises(Incompatible) as error:
            check_tokens("minilm", minilm, wrong)
        assert str(error.value) == (
            "minilm compares the models token by token, and the tokenizers of student and teacher "
            "make different tokens of the same text"
        )


# --------------------------------------------------------------------------------- whole runs


def planned(folder: Path, *words: str) -> Job:
    (job,) = plan.plan(toys.small(folder, "teacher.layers=4", "limit_train=16", *words))
    job.folder.mkdir(parents=True)
    return job


def test_what_compiled_code_does_not_show_is_refused_at_once(tmp_path: Path) -> None:
    job = planned(tmp_path, "method=minilm", "compile=true")
    with pytest.raises(BadInput) as error:
        train.train(job.run, job.folder)
    message = "compile=true: method=minilm needs keys, queries, values of the student"
    assert str(error.value).startswith(message)
    assert not (tmp_path / "cache").exists()


@pytest.mark.runs
@pytest.mark.parametrize("name", TOKENS)
def test_a_run_with_the_demo_pair(name: str, tmp_path: Path) -> None:
    words = (f"method={name}", "epochs=2", *(("student.width=32",) * (name != "distilbert")))
    job = planned(tmp_path, *words)
    record = train.train(job.run, job.folder).model_dump()
    assert record["teacher"]["outputs"] == "bank, float16"
    assert 0 <= record["scores"]["dev"]["accuracy"] <= 1


def test_outputs_name_all_that_may_be_asked_for() -> None:
    assert set(Outputs.__dataclass_fields__) - {"mask"} == NEEDS
