"""What a task's settings may be: one sentence for each that may not, before rows are read."""

from __future__ import annotations

import copy
from functools import cache
from typing import Any

import pytest
import toys

from ilkd_bench.data.tasks import Task
from ilkd_bench.settings.run import Run
from ilkd_bench.types import BadInput

OTHER = "ood.scitail"
MAP = {"entailment": "entails", "neutral": "neutral", "contradiction": "neutral"}
SCORES = {"labels": None, "metric": "pearson", "ood": None}
LIST = "allowed is a list of one or two columns"
NAMES = "allowed is a list of two or more different names, or null for a score"
ENDS = "allowed is [LEAST,GREATEST], two numbers, or null"


@cache
def composed() -> dict[str, Any]:
    return toys.config("task=mnli")


def run(changes: dict[str, Any]) -> Run:
    """Check MNLI's settings with some of them changed, by dotted key."""
    config = copy.deepcopy(composed())
    for key, value in changes.items():
        *parents, last = key.split(".")
        node = config["task"]
        for part in parents:
            node = node[part]
        if value is ...:
            del node[last]
        else:
            node[last] = value
    return Run.of(config)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"splits": None}, "task.splits=null: allowed is a group of settings"),
    ({"splits": []}, "task.splits=[]: allowed is a group of settings"),
    ({"splits.test": None}, "task.splits.test=null: allowed is a word"),
    ({"splits.test": 3}, "task.splits.test=3: allowed is a word"),
    ({"splits.a/b": "x"}, "task.splits.a/b=a/b: allowed is a word of letters"),
    ({"splits." + "x" * 300: "x"}, "up to 100 of them"),
    ({"splits.dev": ...}, "task=mnli has no dev split"),
    ({"splits.train": ...}, "task=mnli is for evaluation only"),
    ({"text_columns": None}, f"task.text_columns=None: {LIST}"),
    ({"text_columns": []}, f"task.text_columns=[]: {LIST}"),
    ({"text_columns": [None]}, f"task.text_columns=[None]: {LIST}"),
    ({"text_columns": [3]}, f"task.text_columns=[3]: {LIST}"),
    ({"text_columns": ["a", "a"]}, f"task.text_columns=['a', 'a']: {LIST}"),
    ({"text_columns": ["label"]}, "and not the label's (label)"),
    ({"text_columns": {"a": 1}}, "task.text_columns={'a': 1}: allowed is a list, or null"),
    ({"label_column": None}, "task.label_column=null: allowed is a word"),
    ({"labels": []}, f"task.labels=[]: {NAMES}"),
    ({"labels": ["a"]}, f"task.labels=['a']: {NAMES}"),
    ({"labels": ["a", None]}, f"task.labels=['a', None]: {NAMES}"),
    ({"labels": ["a", float("nan")]}, f"task.labels=['a', nan]: {NAMES}"),
    ({"labels": ["a", ["b"]]}, f"task.labels=['a', ['b']]: {NAMES}"),
    ({"labels": ["a", " "]}, f"task.labels=['a', ' ']: {NAMES}"),
    ({"labels": ["a", "b", "a"]}, "a name stands there twice"),
    ({"labels": 3}, "task.labels=3: allowed is a list, or null"),
    ({"metric": None}, "task.metric=null: allowed is a word"),
    ({"metric": "pearson"}, "allowed for task=mnli are accuracy, f1, mcc"),
    ({"also": "f1"}, "task.also=f1: allowed is a list"),
    ({"also": None}, "task.also=null: allowed is a list"),
    ({"also": [None]}, "task.also.0=null: allowed is a word"),
    ({"also": ["f2"]}, "task.also=f2: allowed for task=mnli are"),
    ({"hidden": "test"}, "task.hidden=test: allowed is a list"),
    ({"hidden": None}, "task.hidden=null: allowed is a list"),
    ({"hidden": ["tset"]}, "task.hidden=tset: allowed is a list of splits"),
    ({"hidden": ["dev"]}, "task=mnli has dev_mismatched, test, test_mismatched"),
    ({"score_range": [0, 5]}, "task.score_range=[0, 5] has no effect next to task.labels"),
    (SCORES | {"score_range": [0]}, f"task.score_range=[0]: {ENDS}"),
    (SCORES | {"score_range": [0, 1, 2]}, f"task.score_range=[0, 1, 2]: {ENDS}"),
    (SCORES | {"score_range": [5, 0]}, f"task.score_range=[5, 0]: {ENDS}"),
    (SCORES | {"score_range": [1, 1]}, f"task.score_range=[1, 1]: {ENDS}"),
    (SCORES | {"score_range": [0, float("inf")]}, f"task.score_range=[0, inf]: {ENDS}"),
    (SCORES | {"score_range": [None, 5]}, f"task.score_range=[None, 5]: {ENDS}"),
    (SCORES | {"score_range": [False, True]}, f"task.score_range=[False, True]: {ENDS}"),
    (SCORES | {"score_range": "05"}, f"task.score_range=05: {ENDS}"),
    ({"hub": 3}, "task.hub=3: allowed is a group of settings"),
    ({"hub.revision": None}, "task.hub.revision=null: allowed is a word"),
    ({"hub.revision": ...}, "task.hub.revision is missing"),
    ({"hub.branch": "x"}, "task.hub.branch is no setting"),
    ({"nosuch": 3}, "task.nosuch is no setting"),
    ({"ood": 3}, "task.ood=3: allowed is a group of settings"),
    ({OTHER: None}, "task.ood.scitail=null: allowed is a group of settings"),
    ({OTHER: {"name": "x"}}, "task.ood.scitail.text_columns is missing"),
    ({"ood.a/b": {}}, "task.ood.a/b"),
    ({f"{OTHER}.nosuch": 3}, "task.ood.scitail.nosuch is no setting"),
    ({f"{OTHER}.collapse": ...}, "task.ood.scitail.collapse is missing"),
    ({f"{OTHER}.collapse": None}, "task.ood.scitail.collapse=null: allowed is a word"),
    ({f"{OTHER}.collapse": "mean"}, "collapse=mean: allowed is one of argmax, sum"),
    ({f"{OTHER}.metric": "pearson"}, "task.ood.scitail: task.metric=pearson: allowed"),
    ({f"{OTHER}.splits": {}}, "task.ood.scitail.splits={}: the first one must be there"),
    ({f"{OTHER}.hidden": ["test"]}, "the first one must be there to be scored"),
    ({f"{OTHER}.label_map": ...}, "task.ood.scitail.label_map is missing"),
    ({f"{OTHER}.label_map": ["a"]}, "allowed is LABEL: LABEL of the set, ..., or null"),
    (
        {f"{OTHER}.label_map": None},
        "task.ood.scitail.label_map=null: the labels of the set are entails, neutral, the task's "
        "are entailment, neutral, contradiction. Say which becomes which",
    ),
    (
        {f"{OTHER}.label_map": None, f"{OTHER}.labels": ["neutral", "entailment", "contradiction"]},
        "Say which becomes which",  # a change of the order would be measured as mistakes
    ),
    ({f"{OTHER}.label_map": {}}, "does not say what becomes of entailment, neutral, contradiction"),
    ({f"{OTHER}.label_map": MAP | {"cat": "neutral"}}, "'cat' is no label of the task"),
    ({f"{OTHER}.label_map": MAP | {"neutral": "cat"}}, "'cat' is no label of the set"),
    ({f"{OTHER}.label_map": MAP | {"neutral": None}}, "missing is no label of the set"),
    ({f"{OTHER}.label_map": MAP | {"Neutral": "neutral"}}, "has the label neutral twice"),
    ({f"{OTHER}.label_map": MAP | {"entailment": "neutral"}}, "nothing becomes entails"),
    ({f"{OTHER}.labels": None, f"{OTHER}.metric": "pearson"}, "has labels, the other scores"),
    ({"labels": ["a", "b", "c"]}, "'entailment' is no label of the task: 0 (a), 1 (b), 2 (c)"),
]


@pytest.mark.parametrize(("changes", "words"), WRONG, ids=lambda v: str(v)[:60])
def test_a_task_s_setting_is_refused_in_a_sentence(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(BadInput) as error:
        run(changes)
    message = str(error.value)
    assert words in message and "\n" not in message


def test_a_task_as_it_stands_is_allowed() -> None:
    assert run({}).task == Task(**composed()["task"])


@pytest.mark.parametrize(
    "label_map",
    [
        {"ENTAILMENT": "Entails", "neutral": "neutral", "contradiction": "neutral"},
        {0: "entails", 1: 1, 2: 1},
    ],
)
def test_a_label_map_is_read_by_the_rule_of_labels(label_map: dict[Any, Any]) -> None:
    assert run({f"{OTHER}.label_map": label_map}).task.ood["scitail"]["label_map"] == MAP


def test_names_that_differ_in_case_or_punctuation_alone_are_two() -> None:
    assert run({"labels": ["C", "c", "C++", "C#", -1, 1], "ood": None}).task.labels == [
        *("C", "c", "C++", "C#"),
        *("-1", "1"),
    ]


def test_scores_may_have_any_range_or_none() -> None:
    for score_range in (None, [-1, 0.5]):
        assert run(SCORES | {"score_range": score_range}).task.score_range == score_range
