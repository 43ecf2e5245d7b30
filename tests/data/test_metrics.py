"""Scores against scipy, scikit-learn's definitions by hand, and whole splits."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import toys
from closeness import RELATIVE, apart, decided
from scipy import stats

from ilkd_bench.data import metrics
from ilkd_bench.data.tasks import Task
from ilkd_bench.training.evaluation import predict, scorer

# truth 1 1 1 1 0 0 0 0, predicted 1 1 1 0 1 0 0 0: 3 true positives, 1 false one, 1 missed, 3 true
TRUTH = torch.tensor([1, 1, 1, 1, 0, 0, 0, 0, 0, 0])
GUESS = torch.tensor([1, 1, 1, 0, 1, 0, 0, 0, 0, 0])


def logits(predicted: torch.Tensor, classes: int = 2) -> torch.Tensor:
    return torch.nn.functional.one_hot(predicted, classes).float() * 3 - 1


def test_class_metrics_are_those_of_the_contingency_table() -> None:
    scores = metrics.compute(["accuracy", "f1", "mcc"], logits(GUESS), TRUTH)
    tp, fp, fn, tn = 3, 1, 1, 5
    mcc = (tp * tn - fp * fn) / math.sqrt((tp + fp) * (tp + fn) * (tn + fp) * (tn + fn))
    assert scores == pytest.approx(
        {"accuracy": 0.8, "f1": 2 * 3 / (2 * 3 + 1 + 1), "mcc": mcc, "n": 10}
    )


def test_f1_is_that_of_class_1_not_of_class_0() -> None:
    everything = torch.ones(10, dtype=torch.long)
    scores = metrics.compute(["f1"], logits(everything), TRUTH)
    assert scores["f1"] == pytest.approx(2 * 4 / (2 * 4 + 6 + 0))


def test_accuracy_of_three_classes_counts_rows_not_classes() -> None:
    truth = torch.tensor([0, 0, 0, 0, 1, 2])
    guess = torch.tensor([0, 0, 0, 0, 2, 1])
    assert metrics.compute(["accuracy"], logits(guess, 3), truth)["accuracy"] == pytest.approx(
        4 / 6
    )


@pytest.mark.parametrize("seed", [0, 1])
def test_correlations_are_scipy_s(seed: int) -> None:
    generator = np.random.default_rng(seed)
    truth = generator.uniform(0, 5, 40).round(1)  # with ties
    guess = (truth + generator.normal(0, 2, 40)).round(1)
    scores = metrics.compute(
        ["pearson", "spearman"], torch.tensor(guess)[:, None].float(), torch.tensor(truth).float()
    )
    assert scores["pearson"] == pytest.approx(stats.pearsonr(guess, truth).statistic, abs=1e-6)
    assert scores["spearman"] == pytest.approx(stats.spearmanr(guess, truth).statistic, abs=1e-6)
    assert scores["n"] == 40


@pytest.mark.parametrize("answer", [0, 1])
def test_a_constant_answer_has_mcc_0(answer: int) -> None:
    guess = torch.full((10,), answer)
    assert metrics.compute(["mcc"], logits(guess), TRUTH)["mcc"] == 0.0


@pytest.mark.parametrize("name", ["pearson", "spearman"])
def test_a_constant_answer_has_correlation_0(name: str) -> None:
    truth = torch.linspace(0, 5, 10)
    assert metrics.compute([name], torch.full((10, 1), 2.5), truth)[name] == 0.0
    # a constant that float32 cannot hold exactly, so that a naive variance is not quite 0
    assert metrics.compute([name], torch.full((10, 1), 0.1), truth)[name] == 0.0


@pytest.mark.parametrize("sign", [1, -1])
def test_perfect_and_reversed_answers_have_mcc_and_correlation_of_one(sign: int) -> None:
    guess = TRUTH if sign == 1 else 1 - TRUTH
    assert metrics.compute(["mcc"], logits(guess), TRUTH)["mcc"] == pytest.approx(sign)
    scores = torch.linspace(0, 5, 10)
    found = metrics.compute(["pearson"], sign * scores[:, None], scores)
    assert found["pearson"] == pytest.approx(sign)


def test_an_unknown_metric_is_named() -> None:
    with pytest.raises(ValueError, match="unknown metric auc"):
        metrics.compute(["auc"], logits(GUESS), TRUTH)


def test_the_best_constant_answer() -> None:
    assert metrics.constant_score("accuracy", TRUTH) == pytest.approx(0.6)
    assert metrics.constant_score("mcc", TRUTH) == 0.0
    assert metrics.constant_score("pearson", torch.linspace(0, 5, 10)) == 0.0


# --------------------------------------------------------------------------------- whole splits


@pytest.mark.parametrize(
    ("classes", "names"),
    [(2, ("f1", "accuracy", "mcc")), (3, ("accuracy",)), (1, ("pearson", "spearman"))],
)
def test_scores_are_equal_at_evaluation_batch_sizes_1_3_and_8(
    classes: int, names: tuple[str, ...]
) -> None:
    model, data = toys.model(classes=classes), toys.split(13, classes=classes, seed=4)
    device = torch.device("cpu")

    def scores(size: int) -> dict[str, float]:
        found = predict(lambda b: model.outputs(b["student"], frozenset()), data, size, device)
        return metrics.compute(names, found, data.labels)

    found = predict(lambda b: model.outputs(b["student"], frozenset()), data, 1, device)
    decided(found) if classes > 1 else apart(found)
    one = scores(1)
    assert one["n"] == 13
    assert set(one) == {*names, "n"}
    for size in (3, 8):
        assert scores(size) == pytest.approx(one, abs=RELATIVE)


def test_f1_is_no_mean_over_batches() -> None:
    """In sorted batches of 2 the means differ, so that a mean over batches would be seen."""
    whole = metrics.compute(["f1"], logits(GUESS), TRUTH)["f1"]
    parts = [
        metrics.compute(["f1"], logits(GUESS[i : i + 2]), TRUTH[i : i + 2])["f1"]
        for i in range(0, 10, 2)
    ]
    assert abs(sum(parts) / len(parts) - whole) > 0.1
    task = Task("t", ["a"], "label", ["no", "yes"], None, "f1", ["mcc"], {}, [], None, {})
    assert scorer(task)(logits(GUESS), TRUTH)["f1"] == pytest.approx(whole)
    assert set(scorer(task)(logits(GUESS), TRUTH)) == {"f1", "mcc", "n"}


# --------------------------------------------------------------------- three classes to two of them

NLI, SCITAIL = ["entailment", "neutral", "contradiction"], ["entails", "neutral"]
MAP = {"entailment": "entails", "neutral": "neutral", "contradiction": "neutral"}
# entailment is the most probable, yet neutral and contradiction together are more probable
SPLIT_VOTE = torch.tensor([[0.4, 0.3, 0.3]]).log()


def test_argmax_lets_the_most_probable_class_decide() -> None:
    collapsed = metrics.collapsed(SPLIT_VOTE, NLI, SCITAIL, MAP, rule="argmax")
    assert collapsed.argmax(-1).tolist() == [0]


def test_sum_adds_probabilities_and_decides_otherwise() -> None:
    collapsed = metrics.collapsed(SPLIT_VOTE, NLI, SCITAIL, MAP, rule="sum")
    assert collapsed.argmax(-1).tolist() == [1]
    assert collapsed.exp()[0].tolist() == pytest.approx([0.4, 0.6])


@pytest.mark.parametrize("rule", ["argmax", "sum"])
def test_each_class_goes_where_the_map_says(rule: str) -> None:
    clear = torch.eye(3) * 20
    assert metrics.collapsed(clear, NLI, SCITAIL, MAP, rule=rule).argmax(-1).tolist() == [0, 1, 1]
    reversed_target = ["neutral", "entails"]
    again = metrics.collapsed(clear, NLI, reversed_target, MAP, rule=rule)
    assert again.argmax(-1).tolist() == [1, 0, 0]


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="collapse=mean is not one of: argmax, sum"):
        metrics.collapsed(SPLIT_VOTE, NLI, SCITAIL, MAP, rule="mean")
