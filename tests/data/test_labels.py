"""Which label is meant: names, numbers, spellings, and the outputs of checkpoints."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from ilkd_bench.data.labels import allowed, finder, is_missing, label_order, number, shown
from ilkd_bench.types import BadInput

YES = ["no", "yes"]
SIGNS = ["-1", "0", "1"]
STARS = ["0.5", "1.0", "1.5", "2.0"]
THREE = ["entailment", "neutral", "contradiction"]
NLI = ["entailment", "not_entailment"]


@pytest.mark.parametrize(
    ("names", "label", "wanted"),
    [
        (YES, "yes", 1),
        (YES, "YES", 1),
        (YES, " Yes ", 1),
        (YES, "ye s", None),
        (YES, "yes!", None),
        (YES, 1, 1),
        (YES, 1.0, 1),
        (YES, "1", 1),
        (YES, "1.0", 1),
        (YES, "1e0", 1),
        (YES, np.int8(1), 1),
        (YES, np.float32(1), 1),
        (YES, Decimal("1.00"), 1),
        (YES, 2, None),
        (YES, -1, None),
        (YES, 0.5, None),
        (YES, True, None),
        (YES, np.bool_(True), None),
        (YES, "True", None),
        (YES, None, None),
        (YES, float("nan"), None),
        (YES, float("inf"), None),
        (YES, "1_0", None),
        (YES, "1e" + "9" * 30, None),
        (YES, ["yes"], None),
        (YES, {"yes": 1}, None),
        (["None", "nan"], None, None),
        (["None", "nan"], float("nan"), None),
        (["None", "nan"], "nan", 1),
        (["False", "True"], True, 1),
        (["False", "True"], "true", 1),
        (["false", "true"], True, 1),
        (["false", "true"], 1, 1),
        (SIGNS, "-1", 0),
        (SIGNS, "1", 2),
        (SIGNS, -1.0, 0),
        (SIGNS, "-1.0", 0),
        (SIGNS, 2, None),
        (STARS, 2.0, 3),
        (STARS, 2, 3),
        (STARS, "2", 3),
        (STARS, "0.50", 0),
        (STARS, ".5", 0),
        (STARS, np.float32(1.5), 2),
        (STARS, 3, None),
        (STARS, 0, None),
        (["0.1", "0.3"], np.float32(0.1), 0),
        (["0.1", "0.3"], np.float16(0.3), 1),
        (["1e3", "1e-3"], 1000, 0),
        (["1e3", "1e-3"], "0.001", 1),
        (["one", "2"], 1, None),  # 2 is a name, so that 1 counts nothing
        (["one", "2"], 2, 1),
        (["1", "1.0"], "1.0", 1),
        (["1", "1.0"], 1.0, None),
        (["1", "1.0"], "1.00", None),
        (["C++", "C#", "C"], "C++", 0),
        (["C++", "C#", "C"], "c#", 1),
        (["C++", "C#", "C"], "c", 2),
        (["C++", "C#"], "C", None),
        (["a", "A"], "A", 1),
        (["us", "US", "uk"], "Us", None),
        (["us", "US", "uk"], "UK", 2),
        (NLI, "NOT ENTAILMENT", 1),
        (NLI, "not-entailment", 1),
        (NLI, "notentailment", None),
        (["a-b", "a_b"], "a b", None),
        (["a-b", "a_b"], "a_b", 1),
        (["A", "A-", "A+"], "a-", 1),
        (["stra\u00dfe", "weg"], "STRASSE", 0),
        (["caf\u00e9", "bar"], "cafe\u0301", 0),
        (["-", "_"], "_", 1),
    ],
)
def test_a_label_means_one_name_or_none(names: list[str], label: Any, wanted: int | None) -> None:
    assert finder(names)(label) == wanted


@pytest.mark.parametrize(
    ("label", "value"),
    [
        ("1e3", 1000),
        (" 7 ", 7),
        ("+2.", 2),
        ("0x1", None),
        ("1,5", None),
        ("\u0661", None),
        ("", None),
    ],
)
def test_a_number_is_what_looks_like_one(label: str, value: int | None) -> None:
    assert number(label) == value


def test_messages_show_labels_on_one_short_line() -> None:
    assert allowed(YES) == "0 (no), 1 (yes)"
    assert allowed(SIGNS) == "-1, 0, 1"
    assert allowed([f"n{i}" for i in range(30)]).endswith(", 19 (n19), ...")
    assert shown("a\nb") == r"'a\nb'" and shown(None) == shown(np.float32("nan")) == "missing"
    assert len(shown("x" * 1000)) < 70 and shown(2) == "2"
    assert is_missing(None) and not is_missing("")


# ----------------------------------------------------------------------------------- checkpoints


@pytest.mark.parametrize(
    ("names", "labels", "wanted"),
    [
        (["CONTRADICTION", "Entailment", "neutral"], THREE, [1, 2, 0]),
        (["entailment", "NEUTRAL", "contradiction"], THREE, None),
        (["NOT_Entailment", "entailment"], ["entailment", "not entailment"], [1, 0]),
        (SIGNS, SIGNS, None),
        (["1", "0", "-1"], SIGNS, [2, 1, 0]),
        (["C#", "C++"], ["C++", "C#"], [1, 0]),
        (["a", "A"], ["A", "a"], [1, 0]),
        (["2", "1.5", "1", "0.50"], STARS, [3, 2, 1, 0]),
        (["1", "0"], YES, [1, 0]),
        (["LABEL_0", "LABEL_1"], YES, None),
        (["LABEL_0", "LABEL_1"], ["LABEL_1", "LABEL_0"], [1, 0]),
        (["LABEL_0", "LABEL_1"], ["0", "1"], None),
        (["LABEL_0"], None, None),
    ],
)
def test_the_order_of_outputs_is_found_by_their_names(
    names: list[str], labels: list[str] | None, wanted: list[int] | None
) -> None:
    assert label_order(dict(enumerate(names)), labels, "x") == wanted


@pytest.mark.parametrize(
    ("names", "labels"),
    [
        (["cat", "dog"], YES),
        (["yes", "Yes"], YES),
        (["LABEL_1", "LABEL_0"], YES),
        (["LABEL_0", "yes"], YES),
        (["us", "Us"], ["us", "US"]),
        (["C", "C#"], ["C++", "C#"]),
        (["0", "1", "2"], SIGNS),
    ],
)
def test_other_names_are_refused(names: list[str], labels: list[str]) -> None:
    with pytest.raises(BadInput) as error:
        label_order(dict(enumerate(names)), labels, "folder")
    assert str(error.value) == (
        f"folder has the labels {', '.join(names)}; the task has {', '.join(labels)}. "
        "Rename them in the checkpoint's config.json (id2label)"
    )


@pytest.mark.parametrize("labels", [SIGNS, ["1", "2", "3"], ["2", "1", "0"]])
def test_placeholders_do_not_say_which_number_they_are(labels: list[str]) -> None:
    with pytest.raises(BadInput, match="a LABEL_n does not say which of these numbers it is"):
        label_order({n: f"LABEL_{n}" for n in range(3)}, labels, "folder")


def test_numbers_of_outputs_that_are_not_there_are_refused() -> None:
    with pytest.raises(BadInput, match="folder has the labels no, yes; the task has no, yes"):
        label_order({1: "no", 2: "yes"}, YES, "folder")
