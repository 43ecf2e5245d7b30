"""The answer to a task in the fewer labels of another set: by hand, in numpy."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from ilkd_bench.data.collapse import collapse

NLI, SCITAIL = ["entailment", "neutral", "contradiction"], ["entails", "neutral"]
MAP = {"entailment": "entails", "neutral": "neutral", "contradiction": "neutral"}
LOGITS = np.log([[0.4, 0.3, 0.3], [0.7, 0.1, 0.2], [0.1, 0.2, 0.7]])


def test_sum_adds_the_probabilities_of_the_classes_that_share_a_label() -> None:
    probabilities = collapse(LOGITS, NLI, SCITAIL, MAP, rule="sum")
    assert probabilities == pytest.approx(np.array([[0.4, 0.6], [0.7, 0.3], [0.1, 0.9]]))


def test_argmax_gives_all_to_the_most_probable_class() -> None:
    probabilities = collapse(LOGITS, NLI, SCITAIL, MAP, rule="argmax")
    assert probabilities.tolist() == [[1, 0], [1, 0], [0, 1]]


def test_columns_are_those_of_the_target() -> None:
    for rule in ("argmax", "sum"):
        there = collapse(LOGITS, NLI, SCITAIL, MAP, rule=rule)
        assert np.array_equal(collapse(LOGITS, NLI, SCITAIL[::-1], MAP, rule=rule), there[:, ::-1])


def test_float32_is_summed_in_float64_and_large_logits_do_not_overflow() -> None:
    logits = np.array([[1e4, 0, 0], [0, -1e4, 1e4]], dtype=np.float32)
    probabilities = collapse(logits, NLI, SCITAIL, MAP, rule="sum")
    assert probabilities.dtype == np.float64
    assert probabilities.tolist() == [[1, 0], [0, 1]]


def test_another_rule_is_refused() -> None:
    with pytest.raises(ValueError, match="collapse=mean is not one of: argmax, sum"):
        collapse(LOGITS, NLI, SCITAIL, MAP, rule="mean")


def test_it_needs_no_torch() -> None:
    code = "import sys, ilkd_bench.data.collapse; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
