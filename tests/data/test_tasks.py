"""Rows from files and from the grammar: formats, errors, limits, fingerprints."""

from __future__ import annotations

import csv
import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import toys

from ilkd_bench.data import tasks
from ilkd_bench.data.tasks import Task
from ilkd_bench.types import BadInput

TASK = Task(
    name="mine",
    text_columns=["a", "b"],
    label_column="label",
    labels=["no", "yes"],
    score_range=None,
    metric="accuracy",
    also=[],
    splits={"train": "train", "dev": "validation", "test": "test"},
    hidden=["test"],
    hub=None,
    ood={},
)
SCORE = replace(TASK, labels=None, score_range=[0, 5], metric="pearson")

TEXTS = [
    ("NA", 'she said "no", twice'),
    ("null", "None"),
    ("", "nan"),
    ("1", "007"),
    ("emoji \U0001f600 ü", "2024-01-31"),
    ("a 'quote", "true"),
]
ROWS = [{"a": a, "b": b, "label": i % 2} for i, (a, b) in enumerate(TEXTS)]


def write(
    folder: Path,
    split: str,
    rows: Sequence[dict[str, Any]],
    kind: str = "jsonl",
    *,
    task: str = "mine",
) -> Path:
    """Write rows as the formats that people have."""
    path = folder / task / f"{split}.{kind}"
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    elif kind == "parquet":
        pd.DataFrame(rows).to_parquet(path)
    elif kind == "csv":
        with path.open("w", encoding="utf-8-sig", newline="") as file:  # with a byte-order mark
            table = csv.DictWriter(file, list(rows[0]))
            table.writeheader()
            table.writerows(rows)
    else:  # GLUE's own files: no quoting at all
        lines = ["\t".join(map(str, row)) for row in [list(rows[0]), *(r.values() for r in rows)]]
        path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def refused(folder: Path, task: Task = TASK, split: str = "train") -> str:
    with pytest.raises(BadInput) as error:
        tasks.read(task, split, data_dir=folder)
    return str(error.value)


# --------------------------------------------------------------------------------------- formats


@pytest.mark.parametrize("kind", tasks.FORMATS)
def test_every_format_gives_the_same_rows_and_leaves_texts_alone(kind: str, tmp_path: Path) -> None:
    write(tmp_path, "train", ROWS, kind)
    rows = tasks.read(TASK, "train", data_dir=tmp_path)
    assert rows.texts == [[a for a, _ in TEXTS], [b for _, b in TEXTS]]
    assert rows.labels.tolist() == [0, 1] * 3 and rows.labels.dtype == np.int64
    assert rows.index.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("kind", tasks.FORMATS)
def test_scores_are_read_from_every_format(kind: str, tmp_path: Path) -> None:
    write(tmp_path, "train", [r | {"label": i / 2} for i, r in enumerate(ROWS)], kind)
    rows = tasks.read(SCORE, "train", data_dir=tmp_path)
    assert rows.labels.tolist() == [0, 0.5, 1, 1.5, 2, 2.5] and rows.labels.dtype == np.float32


@pytest.mark.parametrize("kind", ["jsonl", "csv"])
def test_labels_may_be_names(kind: str, tmp_path: Path) -> None:
    write(tmp_path, "train", [r | {"label": ["yes", "no"][r["label"]]} for r in ROWS], kind)
    assert tasks.read(TASK, "train", data_dir=tmp_path).labels.tolist() == [1, 0] * 3


def test_duplicate_rows_all_stay(tmp_path: Path) -> None:
    write(tmp_path, "train", ROWS + ROWS)
    assert len(tasks.read(TASK, "train", data_dir=tmp_path)) == 12


# ----------------------------------------------------------------------------------------- errors


def test_a_missing_file_is_named_with_the_columns_that_are_needed(tmp_path: Path) -> None:
    write(tmp_path, "train", ROWS)
    with pytest.raises(BadInput) as error:
        tasks.available(TASK, tmp_path)
    assert str(error.value) == (
        f"no file {tmp_path}/mine/validation.{{parquet,jsonl,csv,tsv}} for task=mine: data_dir= "
        "needs one file per split with the columns a, b, label"
    )


def test_a_missing_file_tells_what_lies_there_instead(tmp_path: Path) -> None:
    write(tmp_path, "train", ROWS)
    write(tmp_path, "dev", ROWS, "tsv")
    (tmp_path / "mine/validation.json").write_text("[]")
    with pytest.raises(BadInput) as error:
        tasks.available(TASK, tmp_path)
    assert str(error.value).endswith(
        "label; there is dev.tsv, validation.json, which would be read by the name of a split "
        "(task.splits.dev=NAME is another) and one of these formats"
    )
    dev = replace(TASK, splits=TASK.splits | {"dev": "dev"})
    assert tasks.available(dev, tmp_path) == ["train", "dev"]


def test_a_missing_folder_tells_those_that_are_there(tmp_path: Path) -> None:
    write(tmp_path, "train", ROWS, task="CoLA")
    with pytest.raises(BadInput, match="; the folders there are CoLA"):
        tasks.available(TASK, tmp_path)


def test_a_file_s_name_that_no_disk_takes_is_a_sentence(tmp_path: Path) -> None:
    write(tmp_path, "validation", ROWS)
    task = replace(TASK, splits={"train": "x" * 300, "dev": "validation"}, hidden=[])
    with pytest.raises(BadInput, match="cannot be read"):
        tasks.available(task, tmp_path)


def test_a_split_that_is_optional_may_be_absent(tmp_path: Path) -> None:
    for split in ("train", "validation"):
        write(tmp_path, split, ROWS)
    assert tasks.available(TASK, tmp_path) == ["train", "dev"]
    write(tmp_path, "test", ROWS)
    assert tasks.available(TASK, tmp_path) == ["train", "dev", "test"]


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    assert refused(tmp_path / "nowhere") == f"data_dir={tmp_path / 'nowhere'} is no folder"


def test_two_formats_side_by_side_are_refused(tmp_path: Path) -> None:
    first, second = write(tmp_path, "train", ROWS), write(tmp_path, "train", ROWS, "csv")
    assert refused(tmp_path) == f"more than one file for one split: {first}, {second}"


def test_a_missing_column_is_named_with_those_that_are_there(tmp_path: Path) -> None:
    path = write(tmp_path, "train", [{"a": "x", "text": "y", "label": 0}])
    assert refused(tmp_path) == f"{path}: no column b; found are a, text, label"


def test_a_missing_label_column_is_named(tmp_path: Path) -> None:
    path = write(tmp_path, "train", [{"a": "x", "b": "y", "gold": 0}])
    assert refused(tmp_path) == f"{path}: no column label; found are a, b, gold"


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_missing_text_is_named_by_row(kind: str, tmp_path: Path) -> None:
    path = write(tmp_path, "train", [ROWS[0], ROWS[1] | {"b": None}], kind)
    message = refused(tmp_path)
    assert message.startswith(f"{path}: column b of row 1 is ") and message.endswith(", no text")


def test_a_number_is_no_text(tmp_path: Path) -> None:
    path = write(tmp_path, "train", [{"a": 3, "b": "y", "label": 0}, ROWS[1]])
    assert refused(tmp_path) == f"{path}: column a of row 0 is 3, no text"


@pytest.mark.parametrize("kind", tasks.FORMATS)
@pytest.mark.parametrize("label", [2, -2, "maybe", 0.5])
def test_a_label_that_is_none_of_the_task_s_is_named_by_row(
    kind: str, label: Any, tmp_path: Path
) -> None:
    if kind == "parquet" and isinstance(label, str):
        rows = [r | {"label": str(r["label"])} for r in ROWS]  # one type per column
    else:
        rows = [dict(r) for r in ROWS]
    rows[3]["label"] = label
    path = write(tmp_path, "train", rows, kind)
    message = refused(tmp_path)
    assert message.startswith(f"{path}: the label of row 3 is ")
    assert str(label) in message
    assert message.endswith("; allowed are 0 (no), 1 (yes)")


@pytest.mark.parametrize("label", [None, "", float("inf")])
def test_an_absent_or_infinite_label_is_refused(label: Any, tmp_path: Path) -> None:
    write(tmp_path, "train", [*ROWS, ROWS[0] | {"label": label}])
    assert "the label of row 6 is " in refused(tmp_path)


@pytest.mark.parametrize("label", [5.5, -0.5, "high", None, float("nan")])
def test_a_score_out_of_its_range_is_named_by_row(label: Any, tmp_path: Path) -> None:
    path = write(tmp_path, "train", [*ROWS, ROWS[0] | {"label": label}])
    message = refused(tmp_path, SCORE)
    assert message.startswith(f"{path}: the label of row 6 is ")
    assert message.endswith("; allowed are numbers from 0 to 5")


@pytest.mark.parametrize("split", ["train", "dev"])
def test_one_class_can_neither_train_nor_select(split: str, tmp_path: Path) -> None:
    path = write(tmp_path, TASK.splits[split], [r | {"label": 1} for r in ROWS])
    assert refused(tmp_path, split=split) == f"{path}: all 6 rows have the label 1"


def test_a_test_split_of_one_class_can_be_scored(tmp_path: Path) -> None:
    write(tmp_path, "test", [r | {"label": 1} for r in ROWS])
    assert tasks.read(TASK, "test", data_dir=tmp_path).labels.tolist() == [1] * 6


@pytest.mark.parametrize("split", ["train", "dev"])
@pytest.mark.parametrize("task", [TASK, SCORE], ids=["classes", "scores"])
def test_hidden_labels_can_neither_train_nor_select(split: str, task: Task, tmp_path: Path) -> None:
    path = write(tmp_path, TASK.splits[split], [ROWS[0], ROWS[1], ROWS[0] | {"label": -1}])
    message = refused(tmp_path, task, split)
    assert message == f"{path}: rows with the label -1 (hidden) cannot train or select"


def test_hidden_labels_are_read_for_the_submission(tmp_path: Path) -> None:
    write(tmp_path, "test", [r | {"label": -1} for r in ROWS])
    for task in (TASK, SCORE):
        assert tasks.read(task, "test", data_dir=tmp_path).labels.tolist() == [-1] * 6


@pytest.mark.parametrize("kind", ["parquet", "csv", "tsv"])
def test_no_rows_is_an_error(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "mine" / f"train.{kind}"
    path.parent.mkdir()
    empty = pd.DataFrame({"a": [], "b": [], "label": []})
    if kind == "parquet":
        empty.to_parquet(path)
    else:
        empty.to_csv(path, index=False, sep="\t" if kind == "tsv" else ",")
    assert refused(tmp_path) == f"{path}: the split has no rows"


@pytest.mark.parametrize("kind", tasks.FORMATS)
def test_a_file_of_no_bytes_is_an_error_that_names_it(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "mine" / f"train.{kind}"
    path.parent.mkdir()
    path.touch()
    assert str(path) in refused(tmp_path)


@pytest.mark.parametrize(
    ("kind", "content"), [("jsonl", '{"a": "x", "b'), ("parquet", "PAR1 and then nothing")]
)
def test_a_damaged_file_is_an_error_that_names_it(kind: str, content: str, tmp_path: Path) -> None:
    path = tmp_path / "mine" / f"train.{kind}"
    path.parent.mkdir()
    path.write_text(content, encoding="utf-8")
    assert refused(tmp_path).startswith(f"{path} cannot be read: ")


# ----------------------------------------------------------------------------------------- limits


def test_a_limit_draws_from_the_whole_split_the_same_rows_each_time(tmp_path: Path) -> None:
    """IMDb is sorted by class at its source: the first rows would be of one class."""
    rows = [{"a": f"text {i}", "b": "", "label": int(i >= 100)} for i in range(200)]
    write(tmp_path, "train", rows)
    first, second = (tasks.read(TASK, "train", data_dir=tmp_path, limit=40) for _ in range(2))
    assert first.index.tolist() == second.index.tolist() == sorted(set(first.index.tolist()))
    assert len(first) == 40
    assert first.texts[0] == [f"text {i}" for i in first.index]
    assert first.labels.tolist() == [int(i >= 100) for i in first.index]
    assert 8 <= first.labels.sum() <= 32


def test_a_limit_beyond_the_rows_keeps_all(tmp_path: Path) -> None:
    write(tmp_path, "train", ROWS)
    assert len(tasks.read(TASK, "train", data_dir=tmp_path, limit=100)) == 6


def test_a_row_beyond_the_limit_is_checked_all_the_same(tmp_path: Path) -> None:
    rows = [*ROWS * 5, ROWS[0] | {"label": 7}]
    write(tmp_path, "train", rows)
    with pytest.raises(BadInput, match="the label of row 30 is 7"):
        tasks.read(TASK, "train", data_dir=tmp_path, limit=2)


# ----------------------------------------------------------------------------------- fingerprints


def test_fingerprints_are_of_the_content_not_of_the_place(tmp_path: Path) -> None:
    here, there, cache = tmp_path / "here", tmp_path / "there", tmp_path / "cache"
    for split in ("train", "validation"):
        write(here, split, ROWS)
    shutil.copytree(here, there)
    first = tasks.fingerprints(TASK, here, cache)
    assert set(first) == {"train", "dev"}
    assert tasks.fingerprints(TASK, there, cache) == first
    write(there, "validation", ROWS[:4])
    second = tasks.fingerprints(TASK, there, cache)
    assert second["train"] == first["train"] and second["dev"] != first["dev"]


def test_fingerprints_include_the_sets_of_other_domains(tmp_path: Path) -> None:
    task = Task(**toys.config("task=sst2")["task"])
    for name, column in (("sst2", "sentence"), ("imdb", "text")):
        for split in ("train", "validation", "test"):
            rows = [{column: f"{name} {split}", "label": label} for label in (0, 1)]
            write(tmp_path, split, rows, task=name)
    found = tasks.fingerprints(task, tmp_path, tmp_path / "cache")
    assert set(found) == {"train", "dev", "ood/imdb/test"}  # hidden labels are never read
    assert len(set(found.values())) == 3


def test_the_hub_counts_by_its_revision() -> None:
    task = Task(**toys.config("task=mrpc")["task"])
    other = replace(task, hub=task.hub | {"revision": "abc"})
    first, second = (tasks.fingerprints(t, None, Path("unused")) for t in (task, other))
    assert all("@abc" in value for value in second.values())
    assert all(task.hub["revision"] in value for value in first.values())


def test_a_task_without_a_source_asks_for_a_folder() -> None:
    task = Task(**toys.config("task=custom")["task"])
    with pytest.raises(BadInput, match="task=custom has no source of its own: give data_dir=DIR"):
        tasks.fingerprints(task, None, Path("unused"))


def test_the_hub_without_a_network_names_data_dir() -> None:
    task = replace(
        Task(**toys.config("task=mrpc")["task"]),
        hub={"path": "ilkd-bench-tests/nothing", "config": "mrpc", "revision": "0" * 40},
    )
    with pytest.raises(BadInput) as error:
        tasks.read(task, "train", data_dir=None)
    message = str(error.value)
    assert "ilkd-bench-tests/nothing:mrpc" in message and "cannot be loaded from the hub" in message
    assert "data_dir=DIR with DIR/mrpc/train.{parquet,jsonl,csv,tsv}" in message


def test_rows_of_the_hub_are_read_by_the_same_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    rows = {"sentence1": ["a", "c"], "sentence2": ["b", "d"], "label": [1.0, 0.0], "idx": [7, 8]}
    found = datasets.Dataset.from_dict(rows)
    monkeypatch.setattr(datasets, "load_dataset", lambda *_, **__: found)
    task = Task(**toys.config("task=mrpc")["task"])
    read = tasks.read(task, "train", data_dir=None)
    assert read.texts == [["a", "c"], ["b", "d"]] and read.labels.tolist() == [1, 0]
    with pytest.raises(BadInput, match="split train: no column x; found are sentence1, "):
        tasks.read(replace(task, label_column="x"), "train", data_dir=None)


# ------------------------------------------------------------------------------------------ tasks


def test_scitail_has_no_contradiction_and_mnli_s_goes_to_neutral() -> None:
    mnli = Task(**toys.config("task=mnli")["task"])
    part = tasks.ood_task(mnli, "scitail")
    assert mnli.labels == ["entailment", "neutral", "contradiction"]
    assert part.labels == ["entails", "neutral"] and part.name == "scitail"
    assert mnli.ood["scitail"]["label_map"] == {
        "entailment": "entails",
        "neutral": "neutral",
        "contradiction": "neutral",
    }
    assert mnli.ood["scitail"]["collapse"] == "argmax"


@pytest.mark.parametrize(
    ("name", "labels"),
    [
        ("cola", ["unacceptable", "acceptable"]),
        ("sst2", ["negative", "positive"]),
        ("mrpc", ["not_equivalent", "equivalent"]),
        ("qqp", ["not_duplicate", "duplicate"]),
        ("qnli", ["entailment", "not_entailment"]),
        ("rte", ["entailment", "not_entailment"]),
        ("mnli", ["entailment", "neutral", "contradiction"]),
        ("stsb", None),
    ],
)
def test_glue_tasks_have_the_label_order_of_the_hub_and_hide_their_test_labels(
    name: str, labels: list[str] | None
) -> None:
    task = Task(**toys.config(f"task={name}")["task"])
    assert task.labels == labels
    assert {"test"} <= set(task.hidden) <= {"test", "test_mismatched"}


@pytest.mark.parametrize(
    ("name", "metrics"),
    [
        ("cola", ["mcc"]),
        ("sst2", ["accuracy"]),
        ("mrpc", ["f1", "accuracy"]),
        ("qqp", ["accuracy", "f1"]),
        ("stsb", ["pearson", "spearman"]),
        ("mnli", ["accuracy"]),
        ("qnli", ["accuracy"]),
        ("rte", ["accuracy"]),
    ],
)
def test_glue_tasks_report_glue_s_metrics(name: str, metrics: list[str]) -> None:
    task = Task(**toys.config(f"task={name}")["task"])
    assert set(metrics) <= {task.metric, *task.also}


@pytest.mark.parametrize(
    "name", ["demo_sentiment", "demo_paraphrase", "demo_nli", "demo_similarity"]
)
def test_demo_tasks_read_and_have_a_twin_of_another_domain(name: str) -> None:
    task = Task(**toys.config(f"task={name}")["task"])
    dev = tasks.read(task, "dev", data_dir=None, limit=50)
    assert len(dev) == 50 and len(dev.texts) == len(task.text_columns)
    twin = tasks.ood_task(task, f"{name}_ood")
    shifted = tasks.read(twin, tasks.available(twin, None)[0], data_dir=None, limit=50)
    assert twin.labels == task.labels and len(shifted) == 50
    assert not set(map(tuple, zip(*dev.texts, strict=True))) & set(
        map(tuple, zip(*shifted.texts, strict=True))
    )


def test_labels_named_by_numbers_are_matched_by_name(tmp_path: Path) -> None:
    found = [{"sentence": "a", "label": 1}, {"sentence": "b", "label": 0}]
    write(tmp_path, "train", found, task="custom")
    task = replace(Task(**toys.config("task=custom")["task"]), labels=["1", "0"])
    assert tasks.read(task, "train", data_dir=tmp_path).labels.tolist() == [0, 1]


def test_minus_one_is_a_score_where_the_range_has_it(tmp_path: Path) -> None:
    found = [{"sentence": "a", "label": -1.0}, {"sentence": "b", "label": 2.5}]
    write(tmp_path, "train", found, task="custom")
    task = replace(
        Task(**toys.config("task=custom")["task"] | {"labels": None, "metric": "pearson"}),
        score_range=[-5, 5],
    )
    assert tasks.read(task, "train", data_dir=tmp_path).labels.tolist() == [-1.0, 2.5]
    with pytest.raises(BadInput, match="hidden"):
        tasks.read(replace(task, score_range=[0, 5]), "train", data_dir=tmp_path)
