from __future__ import annotations

import json
import random
import re
import zlib
from collections import Counter
from functools import cache

import pytest

from ilkd_bench.data import grammar

SPLITS = tuple(grammar.SIZES)
COLUMNS = {
    "demo_sentiment": ["sentence"],
    "demo_paraphrase": ["sentence1", "sentence2"],
    "demo_nli": ["premise", "hypothesis"],
    "demo_similarity": ["sentence1", "sentence2"],
}
PINNED = (
    1,
    {
        "demo_sentiment": 431203279,
        "demo_paraphrase": 2105295750,
        "demo_nli": 156366155,
        "demo_similarity": 1548150587,
    },
)
CLASSES = {"demo_sentiment": 2, "demo_paraphrase": 2, "demo_nli": 3}


@cache
def rows(task: str, split: str) -> list[dict]:
    return grammar.rows(task, split)


def texts(task: str, row: dict) -> tuple[str, ...]:
    return tuple(row[column] for column in COLUMNS[task])


def words(text: str) -> list[str]:
    return re.findall(r"\w+|[^\w\s]", text)


def correlation(x: list[float], y: list[float]) -> float:
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    cov = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return cov / (sum((a - mean_x) ** 2 for a in x) * sum((b - mean_y) ** 2 for b in y)) ** 0.5


def test_rows_do_not_depend_on_call_order_or_global_random_state() -> None:
    expected = [rows(task, "ood") for task in grammar.TASKS]
    random.seed(7)
    before = random.getstate()
    again = [grammar.rows(task, "ood") for task in reversed(grammar.TASKS)]
    assert again[::-1] == expected
    assert random.getstate() == before


def test_this_version_of_the_text_is_pinned() -> None:
    """Whoever changes the text must bump VERSION, and then PINNED."""
    found = {
        task: zlib.crc32(json.dumps([rows(task, split) for split in SPLITS]).encode())
        for task in grammar.TASKS
    }
    assert (grammar.VERSION, found) == PINNED


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("task", grammar.TASKS)
def test_columns_sizes_and_words(task: str, split: str) -> None:
    found = rows(task, split)
    known = set(grammar.vocabulary())
    assert len(found) == grammar.SIZES[split]
    assert [row["idx"] for row in found] == list(range(len(found)))
    for row in found:
        assert list(row) == [*COLUMNS[task], "label", "idx"]
        for text in texts(task, row):
            assert set(words(text)) <= known
            assert 5 <= len(words(text)) <= 21


def test_vocabulary_is_sorted_lower_case_and_without_repeats() -> None:
    found = grammar.vocabulary()
    assert found == sorted({word.lower() for word in found})
    assert 200 <= len(found) <= 500


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("task", CLASSES)
def test_classes_are_balanced(task: str, split: str) -> None:
    counts = Counter(row["label"] for row in rows(task, split))
    assert sorted(counts) == list(range(CLASSES[task]))
    assert all(type(label) is int for label in counts)
    assert max(counts.values()) < 1.15 * min(counts.values())


@pytest.mark.parametrize("split", SPLITS)
def test_scores_are_floats_from_0_to_5(split: str) -> None:
    scores = [row["label"] for row in rows("demo_similarity", split)]
    assert all(type(score) is float and 0 <= score <= 5 for score in scores)
    assert 2 < sum(scores) / len(scores) < 3


@pytest.mark.parametrize("task", grammar.TASKS)
def test_no_train_row_comes_back_and_no_row_repeats(task: str) -> None:
    train = {texts(task, row) for row in rows(task, "train")}
    assert len(train) == grammar.SIZES["train"]
    firsts = {pair[0] for pair in train}
    for split in ("validation", "test", "ood"):
        other = {texts(task, row) for row in rows(task, split)}
        assert len(other) == grammar.SIZES[split]
        assert firsts.isdisjoint(pair[0] for pair in other)


def rate(hits: list[bool]) -> float:
    return sum(hits) / len(hits)


def occasion_agrees(split: str) -> float:
    """How often a glad occasion means a good review and a grim one a bad review."""
    hits = []
    for row in rows("demo_sentiment", split):
        glad = any(o in row["sentence"] for o in grammar.GLAD)
        grim = any(o in row["sentence"] for o in grammar.GRIM)
        hits += [(row["label"] == 1) == glad] if glad or grim else []
    return rate(hits)


def overlap_agrees(split: str) -> float:
    """How often "two thirds of the words are shared" means paraphrase."""
    hits = []
    for row in rows("demo_paraphrase", split):
        a, b = set(words(row["sentence1"])), set(words(row["sentence2"]))
        hits.append((len(a & b) / len(a | b) > 0.6) == (row["label"] == 1))
    return rate(hits)


def negation_agrees(split: str) -> float:
    """How often "not" in the hypothesis means contradiction."""
    found = [r for r in rows("demo_nli", split) if " not " in r["hypothesis"]]
    return rate([row["label"] == 2 for row in found])


def length_agrees(split: str) -> float:
    """Correlation of the score with "the second sentence is not longer"."""
    found = rows("demo_similarity", split)
    extra = [len(words(row["sentence1"])) - len(words(row["sentence2"])) for row in found]
    return correlation([float(n) for n in extra], [row["label"] for row in found])


@pytest.mark.parametrize(
    ("agreement", "holds", "fails"),
    [
        (occasion_agrees, 0.75, 0.25),
        (overlap_agrees, 0.75, 0.25),
        (negation_agrees, 0.65, 0.25),
        (length_agrees, 0.3, -0.3),
    ],
)
def test_the_shortcut_holds_in_domain_and_fails_out_of_domain(
    agreement, holds: float, fails: float
) -> None:
    assert agreement("validation") > holds
    assert agreement("train") > holds - 0.1, "label noise takes a little away"
    assert agreement("ood") < fails


def test_only_train_scores_are_noisy() -> None:
    true = {0.0, 1.25, 2.5, 3.75, 5.0}
    for split in ("validation", "test", "ood"):
        assert {row["label"] for row in rows("demo_similarity", split)} == true
    assert len({row["label"] for row in rows("demo_similarity", "train")}) > 100


@pytest.mark.parametrize("task", CLASSES)
def test_noise_has_the_stated_rate_and_leaves_the_text_alone(
    task: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    noisy = rows(task, "train")
    monkeypatch.setitem(grammar.LABEL_NOISE, task, 0.0)
    clean = grammar.rows(task, "train")
    assert [texts(task, row) for row in noisy] == [texts(task, row) for row in clean]
    wrong = rate([a["label"] != b["label"] for a, b in zip(noisy, clean, strict=True)])
    assert wrong == pytest.approx(0.15, abs=0.03)
