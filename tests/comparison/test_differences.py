"""Which differences hold, against scipy, statsmodels and counting by hand."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import made
import numpy as np
import pandas as pd
import pytest
import scipy.stats
from made import record

from ilkd_bench.comparison import differences, predictions, results, scores
from ilkd_bench.comparison.predictions import Answers
from ilkd_bench.records import cells
from ilkd_bench.reporting.tables import grid

SEEDS = {
    "vanilla": [0.700, 0.712, 0.690, 0.705, 0.708],
    "pkd": [0.742, 0.751, 0.729, 0.750, 0.744],
    "alp": [0.731, 0.722, 0.744, 0.719, 0.738],
    "rail_l": [0.751, 0.747, 0.732, 0.752, 0.753],
}


def nothing(folder: str, split: str) -> Answers | None:
    return None


def runs(root: Path, items: list[dict[str, Any]]) -> pd.DataFrame:
    return scores.chosen(made.read(root, items))


def compared(root: Path, items: list[dict[str, Any]]) -> pd.DataFrame:
    return differences.compare(runs(root, items), nothing)


def items(**given: Any) -> list[dict[str, Any]]:
    return [one for method, values in SEEDS.items() for one in made.seeds(values, method, **given)]


def of(table: pd.DataFrame, method: str, against: str) -> dict[str, Any]:
    """The row of one pair; pkd and vanilla have two, as the best and as the baseline."""
    part = table[(table["method"] == method) & (table["against"] == against)]
    (row,) = part.to_dict("records")
    return row


# -------------------------------------------------------------------------------------- over seeds


def test_the_paired_t_test_is_scipy_s(tmp_path: Path) -> None:
    table = compared(tmp_path, items()).set_index(["against", "method"])
    assert set(table.index) == {
        *(("rail_l", method) for method in ("vanilla", "pkd", "alp")),  # rail_l is the best
        *(("vanilla", method) for method in ("rail_l", "pkd", "alp")),
    }
    for (against, method), row in table.iterrows():
        test = scipy.stats.ttest_rel(SEEDS[method], SEEDS[against])
        interval = test.confidence_interval(0.95)
        assert row["p_seeds"] == pytest.approx(test.pvalue)
        assert (row["low"], row["high"]) == pytest.approx((interval.low, interval.high))
        assert row["difference"] == pytest.approx(np.mean(SEEDS[method]) - np.mean(SEEDS[against]))
        assert row["n"] == 5 and math.isnan(row["p_examples"]) and row["p"] == row["p_seeds"]


def test_the_correction_is_holm_s_over_the_methods_of_a_column(tmp_path: Path) -> None:
    table = compared(tmp_path, items())
    for against in ("rail_l", "vanilla"):
        part = table[table["against"] == against]
        p = sorted(scipy.stats.ttest_rel(SEEDS[m], SEEDS[against]).pvalue for m in part["method"])
        # by hand: the smallest times 3, the next times 2, the last as it is, never decreasing
        wanted = [min(1, 3 * p[0])]
        wanted.append(min(1, max(wanted[0], 2 * p[1])))
        wanted.append(min(1, max(wanted[1], p[2])))
        assert sorted(part["p_holm"]) == pytest.approx(wanted)
        assert (part["distinct"] == (part["p_holm"] < 0.05)).all()
    assert set(table[table["distinct"]]["method"] + "-" + table[table["distinct"]]["against"]) == {
        "vanilla-rail_l",
        "rail_l-vanilla",
        "pkd-vanilla",
        "alp-vanilla",
    }


def test_the_correction_is_that_of_statsmodels(tmp_path: Path) -> None:
    multitest = pytest.importorskip("statsmodels.stats.multitest")
    table = compared(tmp_path, items())
    part = table[table["against"] == "vanilla"]
    assert part["p_holm"].tolist() == pytest.approx(
        multitest.multipletests(part["p"], method="holm")[1]
    )


def test_seeds_are_paired_by_their_numbers_and_only_shared_ones_count(tmp_path: Path) -> None:
    mine = [record("pkd", seed=seed, dev=value) for seed, value in ((3, 0.8), (1, 0.7), (2, 0.85))]
    other = [
        record("vanilla", seed=s, dev=v) for s, v in ((1, 0.69), (2, 0.80), (3, 0.70), (9, 0.1))
    ]
    row = of(compared(tmp_path, mine + other), "pkd", "vanilla")
    test = scipy.stats.ttest_rel([0.7, 0.85, 0.8], [0.69, 0.80, 0.70])
    assert row["p_seeds"] == pytest.approx(test.pvalue) and row["n"] == 3
    assert row["difference"] == pytest.approx((0.01 + 0.05 + 0.10) / 3)


def test_methods_without_a_shared_seed_are_not_compared(tmp_path: Path) -> None:
    assert compared(tmp_path, [record("pkd", seed=0), record("vanilla", seed=1)]).empty


def test_one_seed_decides_nothing(tmp_path: Path) -> None:
    found = compared(tmp_path, [record("pkd", dev=0.9), record("vanilla", dev=0.1)])
    row = of(found, "vanilla", "pkd")
    assert row["n"] == 1
    assert row["difference"] == pytest.approx(-0.8)
    assert all(math.isnan(row[key]) for key in ("low", "high", "p_seeds", "p", "p_holm"))
    assert row["distinct"] is False


def test_equal_scores_are_no_difference(tmp_path: Path) -> None:
    found = compared(tmp_path, made.seeds([0.8] * 3, "pkd") + made.seeds([0.8] * 3, "alp"))
    (row,) = found.to_dict("records")
    assert (row["method"], row["against"]) == (
        "pkd",
        "alp",
    )  # the first by name stands for the best
    assert (row["difference"], row["low"], row["high"], row["p"]) == (0, 0, 0, 1)
    assert row["distinct"] is False


def test_columns_are_compared_each_for_itself(tmp_path: Path) -> None:
    given = made.seeds([0.7, 0.71, 0.72], "pkd", "mrpc") + made.seeds(
        [0.6, 0.61, 0.63], "alp", "mrpc"
    )
    given += made.seeds([0.2, 0.21, 0.22], "pkd", "rte") + made.seeds(
        [0.4, 0.41, 0.43], "alp", "rte"
    )
    table = compared(tmp_path, given)
    assert {(cells.task_name(r.task), r.method, r.against) for r in table.itertuples()} == {
        ("mrpc", "alp", "pkd"),
        ("rte", "pkd", "alp"),
    }


def test_the_same_runs_give_the_same_bytes_and_other_methods_change_no_p(tmp_path: Path) -> None:
    two = ["vanilla", "pkd"]
    labels, right = [0, 1] * 20, {"vanilla": 24, "pkd": 36, "rail_l": 39}

    def table(root: Path, methods: list[str]) -> pd.DataFrame:
        given = [one for m in methods for one in made.seeds(SEEDS[m], m)]
        for folder, one in zip(made.write(root, given), given, strict=True):
            hits = right[one["config"]["method"]["name"]] - one["config"]["seed"]
            answers = [y if i < hits else 1 - y for i, y in enumerate(labels)]
            made.predictions(folder, labels, made.one_hot(answers))
        return results.load(root).compared

    first, again = table(tmp_path / "a", two), table(tmp_path / "b", two)
    assert first.to_csv() == again.to_csv()
    assert 0 < first["p_examples"].iloc[0] < 0.05
    more = table(tmp_path / "c", [*two, "rail_l"])
    pair = more[(more["method"] == "pkd") & (more["against"] == "vanilla")]
    alone = first[first["method"] == "vanilla"]  # pkd is the best: the other way round
    assert (
        pair[["p_seeds", "p_examples"]].values.tolist()
        == alone[["p_seeds", "p_examples"]].values.tolist()
    )
    assert pair["difference"].iloc[0] == pytest.approx(-alone["difference"].iloc[0])


# ----------------------------------------------------------------------------------- over examples

TASK = {"labels": ["no", "yes"], "ood": {}}


def written(root: Path, answers: dict[str, list[list[int]]], labels: list[int]) -> pd.DataFrame:
    """Compare runs whose scores are the accuracies of these answers, per method and seed."""
    given, folders = [], []
    for method, per_seed in answers.items():
        values = [np.mean([a == y for a, y in zip(one, labels, strict=True)]) for one in per_seed]
        given += made.seeds([float(value) for value in values], method)
    folders = made.write(root, given)
    for folder, one in zip(
        folders, [one for runs in answers.values() for one in runs], strict=True
    ):
        made.predictions(folder, labels, made.one_hot(one))
    return results.load(root).compared


def hits(labels: list[int], wrong: range) -> list[int]:
    return [1 - y if i in wrong else y for i, y in enumerate(labels)]


def test_a_difference_counts_only_if_both_tests_find_it(tmp_path: Path) -> None:
    """Over seeds alone it holds clearly, but two examples of a hundred make all of it."""
    labels = [0, 1] * 50
    few = {
        "pkd": [hits(labels, range(10))] * 5,
        "vanilla": [hits(labels, range(n)) for n in (11, 11, 12, 11, 11)],
    }
    row = of(written(tmp_path, few, labels), "pkd", "vanilla")
    assert row["difference"] == pytest.approx(0.012)
    assert row["p_seeds"] == pytest.approx(
        scipy.stats.ttest_rel([0.9] * 5, [0.89, 0.89, 0.88, 0.89, 0.89]).pvalue
    )
    assert row["p_seeds"] < 0.05 < row["p_examples"]
    assert row["p"] == row["p_examples"] and row["distinct"] is False


def test_where_both_find_it_the_larger_p_decides(tmp_path: Path) -> None:
    labels = [0, 1] * 50
    many = {
        "pkd": [hits(labels, range(0, 5)), hits(labels, range(0, 6)), hits(labels, range(0, 4))],
        "vanilla": [hits(labels, range(n)) for n in (41, 40, 42)],
    }
    row = of(written(tmp_path, many, labels), "pkd", "vanilla")
    assert row["p_examples"] == pytest.approx(1 / (differences.DRAWS + 1))  # no resample comes near
    assert row["p"] == max(row["p_seeds"], row["p_examples"]) < 0.05
    assert row["distinct"] is True


def test_the_p_over_examples_is_near_that_of_mcnemar_for_one_pair(tmp_path: Path) -> None:
    """30 examples tell them apart, 20 to 10: exact McNemar by the binomial distribution."""
    labels = [0, 1] * 100
    mine = hits(labels, range(0, 10))
    other = hits(labels, range(10, 30))
    found = differences.over_examples(
        "accuracy",
        [Answers(np.arange(200), np.array(labels, float), np.array(mine, float))],
        [Answers(np.arange(200), np.array(labels, float), np.array(other, float))],
        np.random.default_rng(0),
    )
    assert found == pytest.approx(scipy.stats.binomtest(10, 30).pvalue, abs=0.035)


def test_missing_predictions_of_one_run_leave_the_decision_to_the_seeds(tmp_path: Path) -> None:
    labels = [0, 1] * 50
    answers = {
        "pkd": [hits(labels, range(n)) for n in (10, 11, 12)],
        "vanilla": [hits(labels, range(n)) for n in (12, 13, 15)],
    }
    before = written(tmp_path, answers, labels)
    assert before["p_examples"].notna().all()
    next((tmp_path / "runs/mrpc/big-small/pkd").rglob("dev.parquet")).unlink()
    row = of(results.load(tmp_path).compared, "pkd", "vanilla")
    assert math.isnan(row["p_examples"]) and row["p"] == row["p_seeds"] < 0.05
    assert row["distinct"] is True


@pytest.mark.parametrize(
    "damage",
    [b"", b"no parquet", b"PAR1" * 8],
    ids=["empty", "text", "only the mark"],
)
def test_damaged_predictions_count_as_missing(damage: bytes, tmp_path: Path) -> None:
    path = tmp_path / "dev.parquet"
    path.write_bytes(damage)
    assert predictions.answers(path, TASK, "dev") is None
    assert predictions.answers(tmp_path / "nowhere.parquet", TASK, "dev") is None


def test_predictions_without_their_columns_or_with_nan_count_as_missing(tmp_path: Path) -> None:
    path = made.predictions(tmp_path, [0, 1], [[1.0, 0.0], [float("nan"), 1.0]])
    assert predictions.answers(path, TASK, "dev") is None
    pd.DataFrame({"label": [0]}).to_parquet(path)
    assert predictions.answers(path, TASK, "dev") is None
    pd.DataFrame({"index": [0], "label": [0]}).to_parquet(path)
    assert predictions.answers(path, TASK, "dev") is None


def test_answers_are_in_the_order_of_their_rows(tmp_path: Path) -> None:
    path = made.predictions(tmp_path, [1, 0, 0], made.one_hot([1, 1, 0]), index=[7, 2, 5])
    found = predictions.answers(path, TASK, "dev")
    assert found is not None
    assert found.index.tolist() == [2, 5, 7]
    assert found.labels.tolist() == [0, 0, 1] and found.values.tolist() == [1, 0, 1]


def answered(index: list[int], labels: list[float]) -> Answers:
    return Answers(np.array(index), np.array(labels, float), np.array(labels, float))


@pytest.mark.parametrize(
    "other",
    [
        answered([0, 1, 2], [0, 1, 1]),
        answered([0, 1, 3], [0, 1, 0]),
        answered([0, 1], [0, 1]),
        None,
    ],
    ids=["labels", "rows", "number", "none"],
)
def test_runs_that_saw_different_rows_are_not_compared(other: Answers | None) -> None:
    mine = answered([0, 1, 2], [0, 1, 0])
    rng = np.random.default_rng(0)
    assert math.isnan(differences.over_examples("accuracy", [mine], [other], rng))
    assert differences.over_examples("accuracy", [mine], [mine], rng) == 1


def test_a_metric_that_cannot_be_resampled_is_not_compared() -> None:
    mine = answered([0, 1], [0, 1])
    assert math.isnan(differences.over_examples("bleu", [mine], [mine], np.random.default_rng(0)))


# -------------------------------------------------------------------- predictions in other domains

NLI = {
    "labels": ["entailment", "neutral", "contradiction"],
    "ood": {
        "scitail": {
            "metric": "accuracy",
            "labels": ["entails", "neutral"],
            "label_map": {
                "entailment": "entails",
                "neutral": "neutral",
                "contradiction": "neutral",
            },
            "collapse": "argmax",
        },
        "same": {"metric": "accuracy", "label_map": None, "labels": ["a", "b", "c"]},
    },
}
LOGITS = np.array(
    [
        [2.0, 1.9, 1.9],  # argmax: entailment; sum: 0.36 against 0.64
        [5.0, 0.0, 0.0],  # both: entails
        [0.0, 0.1, 0.0],  # both: neutral
        [1.0, 2.0, 9.0],  # both: neutral, by contradiction
    ]
)


@pytest.mark.parametrize(("collapse", "wanted"), [("argmax", [0, 0, 1, 1]), ("sum", [1, 0, 1, 1])])
def test_three_classes_become_two_as_the_task_says(collapse: str, wanted: list[int]) -> None:
    domain = NLI["ood"]["scitail"] | {"collapse": collapse}
    task = NLI | {"ood": {"scitail": domain}}
    assert predictions.decisions(LOGITS, task, "ood/scitail").tolist() == wanted


def test_other_splits_keep_the_task_s_own_classes() -> None:
    for split in ("dev", "ood/same"):
        assert predictions.decisions(LOGITS, NLI, split).tolist() == [0, 0, 1, 2]


def test_a_label_map_may_change_the_order() -> None:
    domain = NLI["ood"]["scitail"] | {"labels": ["neutral", "entails"]}
    task = NLI | {"ood": {"scitail": domain}}
    assert predictions.decisions(LOGITS, task, "ood/scitail").tolist() == [1, 1, 0, 0]


def test_collapsing_agrees_with_how_the_score_was_measured() -> None:
    torch = pytest.importorskip("torch")
    from ilkd_bench.data import metrics

    logits = np.random.default_rng(3).normal(size=(50, 3))
    for rule in ("argmax", "sum"):
        domain = NLI["ood"]["scitail"] | {"collapse": rule}
        measured = metrics.collapsed(
            torch.tensor(logits), NLI["labels"], domain["labels"], domain["label_map"], rule=rule
        )
        found = predictions.decisions(logits, NLI | {"ood": {"scitail": domain}}, "ood/scitail")
        assert found.tolist() == measured.argmax(-1).tolist()


def test_a_regression_predicts_its_only_logit() -> None:
    found = predictions.decisions(np.array([[0.25], [4.5]]), {"labels": None, "ood": {}}, "dev")
    assert found.tolist() == [0.25, 4.5]


# --------------------------------------------------------------------------------------- standings


def test_standings_rank_on_dev_and_count_against_vanilla(tmp_path: Path) -> None:
    """Ranks by hand: mrpc pkd, alp, vanilla; rte alp, then pkd = vanilla, which share 2.5."""
    given = made.seeds([0.80, 0.81, 0.83], "pkd", "mrpc") + made.seeds(
        [0.70, 0.72, 0.71], "alp", "mrpc"
    )
    given += made.seeds([0.60, 0.61, 0.62], "vanilla", "mrpc")
    given += made.seeds([0.50, 0.51, 0.52], "pkd", "rte") + made.seeds(
        [0.9, 0.91, 0.90], "alp", "rte"
    )
    given += made.seeds([0.52, 0.50, 0.51], "vanilla", "rte")
    given += made.seeds([0.95, 0.96, 0.95], "rail_l", "rte")
    table = runs(tmp_path, given)
    found = differences.standings(table, differences.compare(table, nothing)).set_index("method")
    assert found["rank"].drop("rail_l").to_dict() == {"pkd": 1.75, "alp": 1.5, "vanilla": 2.75}
    assert math.isnan(found["rank"]["rail_l"])
    assert found["tasks"].to_dict() == {"pkd": 2, "alp": 2, "vanilla": 2, "rail_l": 1}
    told = found[["win", "tie", "loss", "untested"]]
    assert told.loc["pkd"].tolist() == [1, 1, 0, 0]
    assert told.loc["alp"].tolist() == [2, 0, 0, 0]
    assert told.loc["rail_l"].tolist() == [1, 0, 0, 0]
    assert told.loc["vanilla"].isna().all()


def test_one_seed_is_untested_in_the_standings(tmp_path: Path) -> None:
    table = runs(tmp_path, [record("pkd", dev=0.9), record("vanilla", dev=0.1)])
    found = differences.standings(table, differences.compare(table, nothing)).set_index("method")
    # vanilla is not the best, so that pkd is compared with it too
    assert found.loc["pkd", ["win", "tie", "loss", "untested"]].tolist() == [0, 0, 0, 1]


def test_sections_stand_apart(tmp_path: Path) -> None:
    given = [record("pkd"), record("alp", student="other")]
    table = runs(tmp_path, given)
    found = differences.standings(table, differences.compare(table, nothing))
    assert found["rank"].tolist() == [1, 1] and found["section"].nunique() == 2


# -------------------------------------------------------------------------------------------- bold


def bold(root: Path, given: list[dict[str, Any]]) -> set[str]:
    found = made.load(root, given)
    rows = found.summary[found.summary["main"]]
    return {
        row.method
        for row, cell in zip(rows.itertuples(), grid.cells(found, rows), strict=True)
        if cell.best
    }


def test_bold_are_the_best_and_what_the_tests_do_not_tell_from_it(tmp_path: Path) -> None:
    assert bold(tmp_path, items()) == {"rail_l", "pkd", "alp"}


def test_one_seed_is_never_bold(tmp_path: Path) -> None:
    assert bold(tmp_path, [record("pkd", dev=0.9), record("alp", dev=0.8)]) == set()


def test_a_method_alone_is_not_bold(tmp_path: Path) -> None:
    assert bold(tmp_path, made.seeds([0.8, 0.7], "pkd")) == set()


def test_what_was_not_tested_against_the_best_is_not_bold(tmp_path: Path) -> None:
    given = [*items(), record("pkd_last", seed=0, dev=0.3)]
    assert bold(tmp_path, given) == {"rail_l", "pkd", "alp"}


def test_the_best_is_not_taken_from_those_that_can_be_tested(tmp_path: Path) -> None:
    """pkd_last has the highest score, and no seed in common with any other."""
    assert bold(tmp_path, [*items(), record("pkd_last", seed=9, dev=0.99)]) == set()
