"""Published numbers beside ours, and the claims as a checklist."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import made
import numpy as np
import pytest
import scipy.stats
from made import record, seeds

from ilkd_bench.reporting.tables import claims, papers, published
from ilkd_bench.settings import groups

pytestmark = pytest.mark.runs

HEAD = "source,table,split,teacher,student,method,setting,task,metric,value,verified\n"
PAIR = {"teacher": "bert_base", "student": "bert_6"}
BERT = {"teacher": "bert_base", "student": "distilbert"}


@pytest.fixture
def publish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """`publish(line, ...)`: these are the published numbers."""

    def write(*lines: str) -> None:
        (tmp_path / "results").mkdir(exist_ok=True)
        text = HEAD + "".join(f"{line}\n" for line in lines)
        (tmp_path / "results" / "reference.csv").write_text(text)

    monkeypatch.setattr(published, "ROOT", tmp_path)
    return write


def told(root: Path, items: list[dict[str, Any]]) -> dict[str, dict[str, str]]:
    grid = published.beside(made.load(root, items))
    return {
        label: {column: str(cell) for column, cell in row.items()}
        for label, row in grid.rows.items()
    }


LINE = "A paper,Table 1,dev,BERT12,BERT6,pkd,,mrpc,accuracy,84.0,yes"


def test_the_difference_is_ours_minus_published_in_points(publish: Any, tmp_path: Path) -> None:
    publish(LINE)
    assert told(tmp_path, seeds([0.84, 0.86, 0.88], "pkd", **PAIR)) == {
        "bert_base -> bert_6, pkd, mrpc dev accuracy": {
            "ours": "86.0 ± 2.0 (3)",
            "published": "84.0",
            "difference": "+2.0",
            "source": "A paper, Table 1",
            "verified": "yes",
        }
    }


STUDY = "A study,README,test,BERT12,BERT3,{},student: 3 {} layers,sst2,accuracy,{},yes"


def test_the_study_s_students_and_matchings_are_ours(publish: Any, tmp_path: Path) -> None:
    publish(
        STUDY.format("forward", "random", 80),
        STUDY.format("reverse", "random", 81),
        STUDY.format("all_to_one", "copied", 82),
        STUDY.format("random_matching", "copied", 83),
        "PKD,T1,test,,BERT3,pkd,,sst2,accuracy,84,yes",
    )
    table = published.published().set_index("points")
    assert table["student"].to_dict() == {
        80: "bert_3_random",
        81: "bert_3_random",
        82: "bert_3_copied",
        83: "bert_3_copied",
        84: "bert_3",
    }
    assert table["method"].to_dict() == {
        80: "pkd",
        81: "pkd_reversed",
        82: "pkd_all_to_last",
        83: "pkd_permuted",
        84: "pkd",
    }


def test_one_seed_has_no_spread_and_less_is_negative(publish: Any, tmp_path: Path) -> None:
    publish(LINE.replace(",yes", ",no"))
    (row,) = told(tmp_path, [record("pkd", dev=0.8, **PAIR)]).values()
    assert (row["ours"], row["difference"], row["verified"]) == ("80.0 (1)", "-4.0", "no")


@pytest.mark.parametrize(
    "line",
    [
        LINE.replace("BERT12", "RoBERTa24"),
        LINE.replace("BERT12", "BERT-large"),  # another teacher, and not "no teacher"
        LINE.replace("BERT6", "BERT3"),
        LINE.replace("BERT6", "BERT6[Large]"),
        LINE.replace("pkd", "pkd_last"),
        LINE.replace("mrpc", "rte"),
        LINE.replace("accuracy", "f1"),
        LINE.replace(",dev,", ",test,"),
        LINE.replace("84.0", ""),
    ],
)
def test_pair_method_task_metric_and_split_must_agree(
    line: str, publish: Any, tmp_path: Path
) -> None:
    publish(line)
    grid = published.beside(made.load(tmp_path, [record("pkd", **PAIR)]))
    assert grid.rows == {}
    assert grid.caption == "No run of a published pair, task, metric and split is done."


def test_without_a_teacher_any_teacher_s_fine_tuning_is_meant(publish: Any, tmp_path: Path) -> None:
    publish("P,T,dev,,BERT6,finetune,,mrpc,accuracy,80.0,yes")
    items = [record("finetune", teacher=name, student="bert_6") for name in ("bert_base", "big")]
    assert len(told(tmp_path, items)) == 2


def test_other_names_of_metrics_are_understood(publish: Any, tmp_path: Path) -> None:
    publish("P,T,dev,BERT12,BERT6,pkd,,cola,matthews,42.0,yes")
    (row,) = told(tmp_path, [record("pkd", "cola", dev=0.5, metric="mcc", **PAIR)]).values()
    assert row["difference"] == "+8.0"


def test_metrics_that_no_table_shows_are_compared_too(publish: Any, tmp_path: Path) -> None:
    publish(LINE.replace("accuracy", "f1"))
    one = record("pkd", splits={"dev": {"accuracy": 0.5, "f1": 0.9, "n": 4}}, **PAIR)
    (row,) = told(tmp_path, [one]).values()
    assert row["difference"] == "+6.0"


def test_mismatched_mnli_is_a_split_of_mnli(publish: Any, tmp_path: Path) -> None:
    publish(
        "P,T,dev,BERT12,BERT6,pkd,,mnli_mismatched,accuracy,81.0,yes",
        "P,T,dev,BERT12,BERT6,pkd,,mnli,accuracy,80.0,yes",
        "P,T,test,BERT12,BERT6,pkd,,mnli_mismatched,accuracy,70.0,yes",
    )
    both = {"dev_mismatched": {"accuracy": 0.83, "n": 4}, "test": {"accuracy": 0.1, "n": 4}}
    found = told(tmp_path, [record("pkd", "mnli", dev=0.84, splits=both, **PAIR)])
    assert {label.rpartition(", ")[2]: row["difference"] for label, row in found.items()} == {
        "mnli dev accuracy": "+4.0",
        "mnli dev_mismatched accuracy": "+2.0",
    }


def test_several_published_numbers_of_one_cell_are_all_shown(publish: Any, tmp_path: Path) -> None:
    publish(LINE, LINE.replace("Table 1", "Table 2").replace("84.0", "85.0"))
    found = told(tmp_path, [record("pkd", dev=0.86, **PAIR)])
    assert sorted((row["published"], row["difference"]) for row in found.values()) == [
        ("84.0", "+2.0"),
        ("85.0", "+1.0"),
    ]


def test_limited_runs_are_no_attempt_at_a_published_number(publish: Any, tmp_path: Path) -> None:
    publish(LINE)
    assert told(tmp_path, [record("pkd", limit_train=64, **PAIR)]) == {}


def test_the_published_numbers_of_pkd_are_found(tmp_path: Path) -> None:
    """PKD's repository, MRPC on dev: 82.84 on average, 84.80 at best."""
    found = told(tmp_path, [record("vanilla", dev=0.84, **PAIR)])
    assert sorted((row["published"], row["difference"]) for row in found.values()) == [
        ("82.8", "+1.2"),
        ("84.8", "-0.8"),
    ]
    assert all(row["source"].startswith("PKD (arXiv 1908.09355)") for row in found.values())


def test_every_published_number_is_of_a_known_pair_and_in_points() -> None:
    table = published.published()
    assert len(table) > 300
    names = papers.declared().names
    assert set(table["teacher"]) <= {"", *names.teachers.values()}
    starts = {"bert_3_random", "bert_3_copied"}
    assert starts <= set(table["student"]) <= set(names.students.values()) | starts
    plain = table[~table["metric"].str.startswith("difference")]
    assert plain["points"].between(0, 100).all() and plain["points"].median() > 20
    assert table["verified"].isin(["yes", "no"]).all()
    assert not (table["task"] == "mnli_mismatched").any()


# ------------------------------------------------------------------------------------------ claims


def verdicts(
    root: Path, items: list[dict[str, Any]], text: str = "ALP-KD beats PKD"
) -> dict[str, str]:
    grid = claims.claims(made.load(root, items))
    (row,) = [row for label, row in grid.rows.items() if label.startswith(text)]
    return {column: str(cell) for column, cell in row.items()}


def two_tasks(method: str, first: list[float], second: list[float]) -> list[dict[str, Any]]:
    return seeds(first, method, "mrpc", **BERT) + seeds(second, method, "rte", **BERT)


PKD = ([0.70, 0.72, 0.71], [0.60, 0.64, 0.62])
"""Averages over both tasks: 0.65, 0.68, 0.665."""


@pytest.mark.parametrize(
    ("alp", "verdict"),
    [
        (([0.80, 0.82, 0.83], [0.70, 0.75, 0.71]), "holds"),  # +10, +10.5, +10.5
        (([0.60, 0.61, 0.62], [0.50, 0.55, 0.50]), "does not hold"),
        (([0.70, 0.73, 0.70], [0.61, 0.62, 0.65]), "not shown"),
    ],
)
def test_a_claim_is_checked_by_the_paired_t_test_over_averages(
    alp: tuple[list[float], list[float]], verdict: str, tmp_path: Path
) -> None:
    found = verdicts(tmp_path, two_tasks("pkd", *PKD) + two_tasks("alp", *alp))
    ours, theirs = np.mean(alp, axis=0), np.mean(PKD, axis=0)
    test = scipy.stats.ttest_rel(ours, theirs)
    low, high = 100 * np.array(test.confidence_interval(0.95))
    assert found["ours"] == (
        f"{100 * (ours - theirs).mean():+.1f} [{low:+.1f}, {high:+.1f}] (alp minus pkd, 3 seeds)"
    )
    assert found["verdict"] == verdict
    assert found["published"] == "+0.2 (bert_base -> distilbert)"


@pytest.mark.parametrize("shift", [0.0, 1e-9, -1e-9])
def test_equal_scores_show_nothing(shift: float, tmp_path: Path) -> None:
    alp = [[value + shift for value in values] for values in PKD]
    found = verdicts(tmp_path, two_tasks("pkd", *PKD) + two_tasks("alp", *alp))
    assert found["verdict"] == "not shown"


@pytest.mark.parametrize(
    ("alp", "verdict"),
    [
        ([], "not enough runs"),
        (seeds([0.8, 0.9, 0.7], "alp", "mrpc", **BERT), "not enough runs"),  # no rte
        (two_tasks("alp", [0.9], [0.9]), "not enough runs (1 shared seeds)"),
        (two_tasks("alp", [0.8, 0.82, 0.81], [0.7, 0.74, 0.72]), "not enough runs"),  # no spread
    ],
    ids=["none", "a task is missing", "one seed", "no spread"],
)
def test_too_few_runs_say_so(alp: list[dict[str, Any]], verdict: str, tmp_path: Path) -> None:
    assert verdicts(tmp_path, two_tasks("pkd", *PKD) + alp)["verdict"] == verdict


def test_of_several_methods_the_best_average_counts(tmp_path: Path) -> None:
    items = two_tasks("pkd", *PKD) + two_tasks("alp", [0.5, 0.51, 0.52], [0.5, 0.52, 0.53])
    items += two_tasks("rail_l", [0.5, 0.4, 0.3], [0.5, 0.4, 0.3])
    items += two_tasks("rail_c", [0.9, 0.91, 0.93], [0.9, 0.92, 0.9])
    found = verdicts(tmp_path, items, "RAIL-KD beats PKD and ALP-KD")
    assert "(rail_c minus pkd, 3 seeds)" in found["ours"] and found["verdict"] == "holds"


def test_claims_out_of_domain_use_the_other_domains_only(tmp_path: Path) -> None:
    items = [
        record(method, "qqp", seed, dev, ood={"paws": score}, **BERT)
        for method, dev, values in (
            ("rail_c", 0.1, [0.50, 0.52, 0.51]),
            ("rail_l", 0.9, [0.40, 0.41, 0.42]),
        )
        for seed, score in enumerate(values)
    ]
    found = verdicts(tmp_path, items, "RAIL-KD (c) beats (l) out of domain")
    assert found["ours"].startswith("+10.0 [") and found["verdict"] == "holds"


def test_mismatched_mnli_does_not_count_twice(tmp_path: Path) -> None:
    def of(method: str, values: list[float], other: float) -> list[dict[str, Any]]:
        splits = {"dev_mismatched": {"accuracy": other, "n": 4}}
        return seeds(values, method, "mnli", splits=splits, **BERT)

    items = of("pkd", [0.7, 0.71, 0.72], 0.9) + of("alp", [0.8, 0.82, 0.81], 0.1)
    assert verdicts(tmp_path, items)["ours"].startswith("+10.0 [")


def test_each_pair_and_setting_has_its_own_line(tmp_path: Path) -> None:
    items = [record("alp", **BERT), record("alp", limit_train=64, **BERT)]
    items += [record("alp", teacher="roberta_large", student="distilroberta")]
    found = made.load(tmp_path, items)
    grid = claims.claims(found)
    labels = [label for label in grid.rows if label.startswith("ALP-KD beats PKD")]
    sections = {
        (r.teacher_name, r.config["limit_train"]): r.place["section"] for r in found.records
    }
    assert sorted(labels) == sorted(
        [
            f"ALP-KD beats PKD (dev; bert_base -> distilbert, {sections['bert_base', None]})",
            "ALP-KD beats PKD (dev; bert_base -> distilbert, limited, "
            f"{sections['bert_base', 64]})",
            "ALP-KD beats PKD (dev; roberta_large -> distilroberta, "
            f"{sections['roberta_large', None]})",
        ]
    )
    own = [label for label in grid.rows if "beats all others" in label]
    assert len(own) == 1 and "roberta_large -> distilroberta" in own[0]


def test_the_claims_name_methods_that_there_are() -> None:
    for claim in papers.declared().claims:
        for method in (*claim.methods, *claim.against):
            assert groups.defaults("method", method)
        assert not set(claim.methods) & set(claim.against) and claim.split in ("dev", "ood")
