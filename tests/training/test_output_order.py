"""Given teachers whose outputs are in another order than it is said."""

from __future__ import annotations

import json
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toys
from transformers import BertConfig, BertForSequenceClassification

from ilkd_bench.data import tasks
from ilkd_bench.data.batches import Split
from ilkd_bench.data.tasks import Task
from ilkd_bench.models import build
from ilkd_bench.training import evaluation, train
from ilkd_bench.training.output_order import better_order, is_reversed
from ilkd_bench.types import BadInput

FOUR = Path(__file__).parent.parent / "cases" / "four"
TOPICS = {
    "north": "wheat barn cow corn",
    "south": "harbor sail ship fish",
    "east": "bond bank stock loan",
    "west": "team league goal coach",
}

# -------------------------------------------------------------------------------------- pure rules


def rows(classes: int, count: int, *, right: float, seed: int = 0) -> tuple[Any, Any]:
    """Labels, and the predictions of a classifier that knows a share of them."""
    generator = np.random.default_rng(seed)
    labels = generator.integers(0, classes, count)
    guesses = generator.integers(0, classes, count)
    return np.where(generator.random(count) < right, labels, guesses), labels


@pytest.mark.parametrize("order", [[1, 0], [0, 2, 1], [1, 2, 0], [2, 3, 0, 1], [0, 3, 2, 1]])
@pytest.mark.parametrize("right", [0.5, 0.9, 1.0])
def test_another_order_is_found(order: list[int], right: float) -> None:
    predicted, labels = rows(len(order), 200, right=right)
    assert better_order(np.array(order)[predicted], labels, len(order)) == order


@pytest.mark.parametrize("classes", [2, 3, 4, 20, 77])
@pytest.mark.parametrize("right", [0.1, 0.9, 1.0])
def test_an_order_that_is_right_is_left_alone(classes: int, right: float) -> None:
    for seed in range(20):
        predicted, labels = rows(classes, 150, right=right, seed=seed)
        assert better_order(predicted, labels, classes) is None


def test_many_classes_take_no_time_and_need_no_order_of_all() -> None:
    order = np.random.default_rng(1).permutation(300)
    predicted, labels = rows(300, 6000, right=0.9)
    assert better_order(order[predicted], labels, 300) == order.tolist()
    two = np.arange(77)
    two[[3, 9]] = 9, 3
    predicted, labels = rows(77, 2000, right=0.9)
    assert better_order(two[predicted], labels, 77) == two.tolist()


def test_a_few_rows_prove_nothing() -> None:
    assert better_order(np.array([1, 1, 0, 0, 1]), np.array([0, 0, 1, 1, 0]), 2) is None
    assert better_order(np.array([1, 0] * 8), np.array([0, 1] * 8), 2) == [1, 0]


def test_a_class_without_rows_proves_nothing() -> None:
    """A teacher of three classes on rows of two says `contradiction` for most of one of them."""
    labels = np.array([0] * 100 + [1] * 100)
    predicted = np.array([0] * 100 + [2] * 90 + [1] * 10)
    assert better_order(predicted, labels, 3) is None


def test_one_answer_for_all_rows_is_in_no_other_order() -> None:
    labels = np.array([0] * 30 + [1] * 70)
    assert measure(np.zeros(100, int), labels, weak=True)["accuracy"] == pytest.approx(0.3)


def test_reversed_scores() -> None:
    generator = np.random.default_rng(0)
    labels = generator.uniform(0, 5, 60)
    noise = generator.normal(size=60)
    assert is_reversed(-labels + noise, labels) and not is_reversed(labels + noise, labels)
    assert not is_reversed(noise, labels)
    assert not is_reversed(np.array([1.0, 0.0]), np.array([0.0, 1.0]))


# --------------------------------------------------------------------------------------- measuring


class Answers:
    """A teacher that gives fixed logits by row number."""

    def __init__(self, logits: torch.Tensor) -> None:
        self.logits = logits

    def to(self, device: torch.device) -> None: ...

    def outputs(self, batch: Any, needs: Any, at: Any = None) -> Any:
        return toys.Outputs(self.logits[batch["index"]], batch["teacher"]["attention_mask"])


def measure(
    predicted: Any, labels: Any, *, weak: bool = False, given: Sequence[int] | None = (0, 1)
) -> dict[str, float]:
    names = None if predicted.ndim == 2 else ["no", "yes"]
    metric = "pearson" if names is None else "accuracy"
    scores = [0, 5] if names is None else None
    task = Task("t", ["a"], "label", names, scores, metric, [], {}, [], None, {})
    logits = torch.from_numpy(predicted).float()
    if names is not None:
        logits = torch.nn.functional.one_hot(torch.from_numpy(predicted), 2).float()
    tokens = toys.encoded([4] * len(labels))
    dev = Split(torch.from_numpy(labels), torch.arange(len(labels)), tokens, tokens)
    return evaluation.measure_teacher(
        Answers(logits),
        task,
        dev,
        allow_weak=weak,
        given=given,
        device=torch.device("cpu"),
        batch_size=64,
    )


@pytest.mark.parametrize("weak", [False, True])
@pytest.mark.parametrize(
    ("given", "names"), [((0, 1), '{"0": "yes", "1": "no"}'), ((1, 0), '{"0": "no", "1": "yes"}')]
)
def test_both_figures_and_what_to_write_are_told_also_where_weak_teachers_are_allowed(
    weak: bool, given: tuple[int, int], names: str
) -> None:
    predicted, labels = rows(2, 200, right=0.8)
    right = (predicted == labels).mean()
    with pytest.raises(BadInput) as error:
        measure(1 - predicted, labels, weak=weak, given=given)
    message = str(error.value)
    assert f"scores {1 - right:.4f} (accuracy) on dev, and {right:.4f} with its outputs" in message
    assert message.endswith(f"Correct id2label (and label2id) in its config.json: {names}")


def test_a_teacher_that_was_trained_on_the_task_s_labels_is_not_doubted() -> None:
    predicted, labels = rows(2, 200, right=0.8)
    assert measure(1 - predicted, labels, weak=True, given=None)["accuracy"] < 0.5


@pytest.mark.parametrize("weak", [False, True])
def test_a_regression_of_the_other_sign_is_refused(weak: bool) -> None:
    labels = np.random.default_rng(0).uniform(0, 5, 40)
    with pytest.raises(BadInput, match=r"scores -1\.0000 .* 1\.0000 with the sign .* reversed"):
        measure(-labels[:, None], labels, weak=weak, given=(0,))
    assert measure(labels[:, None], labels, given=(0,))["pearson"] == pytest.approx(1)


# ---------------------------------------------------------------------------------------- in a run


def topics(folder: Path, names: dict[int, str] | None, outputs: Sequence[str]) -> Path:
    """Write a classifier that knows the topic of every word, and gives its outputs in an order.

    The first token's state is the mean of all; dimension n counts the words of topic n.
    """
    words = [*" ".join(TOPICS.values()).split(), *"today new said the a".split()]
    tokenizer = build.word_tokenizer(words, 16)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=8,
        num_hidden_layers=1,
        num_attention_heads=1,
        intermediate_size=8,
        max_position_embeddings=16,
        num_labels=4,
        id2label=names,
        label2id=None if names is None else {name: n for n, name in names.items()},
    )
    hf = BertForSequenceClassification(config)
    layer, eye = hf.bert.encoder.layer[0], torch.eye(8)
    with torch.no_grad():
        for name, weight in hf.named_parameters():
            weight.fill_(float("LayerNorm.weight" in name))
        table = hf.bert.embeddings.word_embeddings.weight
        for number, topic in enumerate(TOPICS.values()):
            table[tokenizer.convert_tokens_to_ids(topic.split()), number] = 1.0
        for linear in (layer.attention.self.value, layer.attention.output.dense):
            linear.weight.copy_(eye)
        hf.bert.pooler.dense.weight.copy_(eye)
        for output, topic in enumerate(outputs):
            hf.classifier.weight[output, list(TOPICS).index(topic)] = 1.0
    hf.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def prepared(folder: Path, model: Path, *words: str) -> dict[str, Any]:
    """What the record says of a given teacher, before anything is trained."""
    run = toys.run(
        *(
            f"task=custom task.labels=[{','.join(TOPICS)}] data_dir={FOUR} teacher=bert_base"
        ).split(),
        *(f"student=bert_2 student.path={model} student.keep_layers=null method=vanilla").split(),
        *(f"teacher.checkpoint={model} cache_dir={folder / 'cache'} max_length=16").split(),
        *("trainer.accelerator=cpu", "task.hidden=[]", *words),
    )
    data = tasks.fingerprints(run.task, FOUR, run.cache)
    return train.prepare(run.but(data=data)).facts


RIGHT = ["north", "south", "east", "west"]
EXCHANGED = ["north", "west", "east", "south"]


def test_outputs_without_names_in_another_order_are_refused(tmp_path: Path) -> None:
    """Half of the rows are right as the outputs are taken, all of them in the order they have."""
    model = topics(tmp_path / "m", None, EXCHANGED)
    for weak in ("false", "true"):
        with pytest.raises(BadInput) as error:
            prepared(tmp_path, model, f"teacher.allow_weak={weak}")
        message = str(error.value)
        assert "1.0000 with its outputs in another order" in message
        assert message.endswith('{"1": "west", "3": "south"}')


def test_names_that_lie_are_refused_and_those_that_are_proposed_are_right(tmp_path: Path) -> None:
    lying = dict(enumerate(RIGHT))
    model = topics(tmp_path / "m", lying, EXCHANGED)
    with pytest.raises(BadInput) as error:
        prepared(tmp_path, model)
    proposed = json.loads(str(error.value)[str(error.value).rindex("{") :])
    names = lying | {int(number): name for number, name in proposed.items()}
    assert list(names.values()) == EXCHANGED
    facts = prepared(tmp_path, topics(tmp_path / "n", names, EXCHANGED))
    assert facts["dev"]["accuracy"] == 1.0 and "label_order" not in facts


def test_outputs_without_names_in_the_task_s_order_are_taken_and_it_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "ilkd_bench"):
        facts = prepared(tmp_path, topics(tmp_path / "m", None, RIGHT))
    assert facts["dev"]["accuracy"] == 1.0 and facts["label_order"] == "assumed"
    assert "have no names (LABEL_0, ...): they are taken to be north, south" in caplog.text
