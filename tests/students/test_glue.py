"""The GLUE zip: which run stands for a task, what is in the files, and what is refused."""

from __future__ import annotations

import json
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toys
from closeness import close, decided
from toys import read_record, write_record

from ilkd_bench import submit
from ilkd_bench.data.tasks import Task
from ilkd_bench.plumbing import files
from ilkd_bench.records import retention
from ilkd_bench.records.folders import run_folder
from ilkd_bench.records.read import load_records, record_of
from ilkd_bench.records.record import Done, Record
from ilkd_bench.settings import identity
from ilkd_bench.settings.schema import SCHEMA
from ilkd_bench.students import glue as sheets
from ilkd_bench.students import select
from ilkd_bench.students.glue import SHEETS
from ilkd_bench.types import BadInput

pytestmark = pytest.mark.runs

TASKS = ("cola", "sst2", "mrpc", "stsb", "qqp", "mnli", "qnli", "rte", "wnli")
OFFICIAL = {
    "CoLA.tsv": 1063,
    "SST-2.tsv": 1821,
    "MRPC.tsv": 1725,
    "STS-B.tsv": 1379,
    "QQP.tsv": 390965,
    "MNLI-m.tsv": 9796,
    "MNLI-mm.tsv": 9847,
    "QNLI.tsv": 5463,
    "RTE.tsv": 3000,
    "WNLI.tsv": 146,
    "AX.tsv": 1104,
}


@pytest.fixture(scope="module")
def science() -> dict[str, dict[str, Any]]:
    """The settings of a run of each task."""
    found = {}
    for name in TASKS:
        words = (f"task={name}", "method=vanilla", "max_length=24", "precision=32-true")
        found[name] = toys.run(*words, data={"train": name}).identity
    return found


def record(config: dict[str, Any], score: float, **changes: Any) -> dict[str, Any]:
    """A record of a done run with this dev score."""
    status = changes.pop("status", "done")
    for key in ("teacher", "student", "method"):
        if key in changes:
            changes[key] = config[key] | changes[key]
    config = config | changes
    metric = config["task"]["metric"]
    return {
        "schema": SCHEMA,
        "id": files.digest(config)[:10],
        "folder": "made up",
        "status": status,
        "reason": "out of memory" if status == "failed" else None,
        "argv": [f"seed={config['seed']}", "keep_student=none", "results_dir=/my results"],
        "limited": config["limit_train"] is not None,
        "config": config,
        "scores": {"dev": {metric: score, "n": 4}},
        "monitor": f"dev/{metric}",
        "teacher": {"dev": {metric: 0.9, "n": 4}},
    }


def stored(root: Path, found: dict[str, Any], *, seed: int = 0) -> dict[str, Any]:
    """Write a record with a student of random weights beside it."""
    folder = run_folder(root, found["config"], found["id"])
    write_record(folder, found)
    labels = found["config"]["task"]["labels"]
    model = toys.model(classes=len(labels or [0]), labels=labels, seed=seed)
    if labels is None:
        model.hf.config.problem_type = "regression"
        with torch.no_grad():
            model.hf.classifier.weight.mul_(20)
            model.hf.classifier.bias.fill_(2.5)
    model.hf.save_pretrained(folder / "student")
    model.tokenizer.save_pretrained(folder / "student")
    return found | {"model": model.hf, "tokenizer": model.tokenizer}


def glue(root: Path, task: Task, split: str, rows: int = 9) -> list[list[str]]:
    """Write rows with hidden labels and return their texts."""
    generator = np.random.default_rng([ord(c) for c in task.name + split])
    texts = [
        [
            " ".join(generator.choice(toys.WORDS, generator.integers(1, 9)))
            for _ in task.text_columns
        ]
        for _ in range(rows)
    ]
    path = root / task.name / f"{task.splits[split]}.jsonl"
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [
        json.dumps(dict(zip(task.text_columns, row, strict=True)) | {"label": -1, "idx": i})
        for i, row in enumerate(texts)
    ]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return texts


def one_by_one(run: dict[str, Any], texts: list[list[str]]) -> list[list[float]]:
    """The logits of each row on its own: no batch, no padding, no sorting."""
    with torch.inference_mode():
        return [
            run["model"](**run["tokenizer"](*row, return_tensors="pt")).logits[0].tolist()
            for row in texts
        ]


def sheet(path: Path, name: str) -> list[str]:
    """The answers of a file, after a look at its head and its numbering."""
    with zipfile.ZipFile(path) as archive:
        text = archive.read(name).decode("utf-8")
    assert text.endswith("\n") and "\r" not in text
    head, *lines = text.removesuffix("\n").split("\n")
    assert head == "index\tprediction"
    cells = [line.split("\t") for line in lines]
    assert [index for index, _ in cells] == [str(number) for number in range(len(cells))]
    return [answer for _, answer in cells]


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple]:
    """Types the command and returns its code and what it printed."""

    def typed(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        base = ["--results-dir", f"{tmp_path}/results", "--data-dir", f"{tmp_path}/data"]
        base += ["--cache-dir", f"{tmp_path}/cache", "--out", f"{tmp_path}/out/glue.zip"]
        code = submit.main([*base, "--accelerator", "cpu", "--batch-size", "4", *words])
        out, err = capsys.readouterr()
        return code, out, err

    return typed


# --------------------------------------------------------------------------------------- the files


def test_the_files_have_what_each_student_says_of_each_row_in_the_server_s_words(
    tmp_path: Path, science: dict[str, Any], command: Callable[..., tuple]
) -> None:
    seeds = {"mrpc": 0, "stsb": 3, "mnli": 18, "rte": 0}  # whose answers differ from row to row
    tasks = {name: Task(**science[name]["task"]) for name in seeds}
    runs = {
        name: stored(tmp_path / "results", record(science[name], 0.5), seed=seed)
        for name, seed in seeds.items()
    }
    data = tmp_path / "data"
    texts = {name: glue(data, tasks[name], "test") for name in ("mrpc", "stsb", "mnli")}
    ax = replace(tasks["mnli"], name="ax", splits={"test": "test"}, hidden=["test"])
    texts |= {"AX": glue(data, ax, "test"), "mm": glue(data, tasks["mnli"], "test_mismatched")}

    code, out, err = command()
    path = tmp_path / "out/glue.zip"
    with zipfile.ZipFile(path) as archive:
        assert archive.namelist() == "MRPC.tsv STS-B.tsv MNLI-m.tsv MNLI-mm.tsv AX.tsv".split()

    for rows, of in (("mrpc", "mrpc"), ("mnli", "mnli"), ("mm", "mnli"), ("AX", "mnli")):
        decided(one_by_one(runs[of], texts[rows]))
    best = [str(int(np.argmax(row))) for row in one_by_one(runs["mrpc"], texts["mrpc"])]
    assert sheet(path, "MRPC.tsv") == best and set(best) == {"0", "1"}
    names = ["entailment", "neutral", "contradiction"]
    for file, rows in (("MNLI-m.tsv", "mnli"), ("MNLI-mm.tsv", "mm"), ("AX.tsv", "AX")):
        best = [names[int(np.argmax(row))] for row in one_by_one(runs["mnli"], texts[rows])]
        assert sheet(path, file) == best and len(set(best)) > 1
    raw = [row[0] for row in one_by_one(runs["stsb"], texts["stsb"])]
    assert min(raw) < 0 or max(raw) > 5, "clipping has something to do"
    found = [float(answer) for answer in sheet(path, "STS-B.tsv")]
    close(found, [min(5.0, max(0.0, score)) for score in raw], of=raw)

    assert code == 1, "the server would not take it"
    assert "MRPC.tsv has 9 rows, the server expects 1725" in err
    assert "RTE.tsv is missing: no file " in err and "rte/test.{" in err
    assert "CoLA.tsv is missing: no finished run of cola" in err
    assert f"run {runs['mnli']['id']}" in out and "5 of 11 files" in out


def test_the_same_answers_are_the_same_bytes_and_no_part_is_left(
    tmp_path: Path, science: dict[str, Any], command: Callable[..., tuple]
) -> None:
    stored(tmp_path / "results", record(science["wnli"], 0.5))
    glue(tmp_path / "data", Task(**science["wnli"]["task"]), "test")
    path = tmp_path / "out/glue.zip"
    command()
    first = path.read_bytes()
    command("--batch-size", "1")
    assert path.read_bytes() == first
    assert [p.name for p in path.parent.iterdir()] == ["glue.zip"]
    with zipfile.ZipFile(path) as archive:
        assert {entry.date_time for entry in archive.infolist()} == {(1980, 1, 1, 0, 0, 0)}


@pytest.mark.runs
def test_a_placeholder_fills_the_files_without_a_run_only_on_request(
    tmp_path: Path, science: dict[str, Any], command: Callable[..., tuple]
) -> None:
    stored(tmp_path / "results", record(science["wnli"], 0.5))
    glue(tmp_path / "data", Task(**science["wnli"]["task"]), "test", rows=146)
    code, out, err = command("--placeholder")
    assert (code, err) == (0, "")
    path = tmp_path / "out/glue.zip"
    constant = {name: "0" for name in ("CoLA.tsv", "SST-2.tsv", "MRPC.tsv", "QQP.tsv")}
    constant |= dict.fromkeys(
        "MNLI-m.tsv MNLI-mm.tsv QNLI.tsv RTE.tsv AX.tsv".split(), "entailment"
    )
    for name, rows in OFFICIAL.items():
        answers = sheet(path, name)
        assert len(answers) == rows
        if name in constant:
            assert set(answers) == {constant[name]}
            assert f"{name:<12} {rows} rows, placeholder" in out
    assert {float(answer) for answer in sheet(path, "STS-B.tsv")} == {0.0}


def test_class_one_of_every_task_is_called_what_the_server_calls_it(
    science: dict[str, Any],
) -> None:
    expected = dict.fromkeys(OFFICIAL, "1")
    expected |= dict.fromkeys(("MNLI-m.tsv", "MNLI-mm.tsv", "AX.tsv"), "neutral")
    expected |= {"QNLI.tsv": "not_entailment", "RTE.tsv": "not_entailment", "STS-B.tsv": "5.000000"}
    for item in SHEETS:
        task = Task(**science[item.learned]["task"])
        logits = [[7.5]] if task.labels is None else [[0.0, 2.0, 1.0][: len(task.labels)]]
        assert sheets.words(item, task, torch.tensor(logits)) == [expected[item.file]]
    assert {item.file: item.rows for item in sheets.SHEETS} == OFFICIAL


def test_entailment_of_winograd_is_class_one(science: dict[str, Any]) -> None:
    """The hub's WNLI has the labels the other way round than its RTE."""
    assert science["wnli"]["task"]["labels"] == ["not_entailment", "entailment"]
    assert science["rte"]["task"]["labels"] == ["entailment", "not_entailment"]


# --------------------------------------------------------------------------------- which run counts


def picked(records: Sequence[Record], limited: bool = False, **given: str) -> dict[str, Done]:
    names = dict.fromkeys(("teacher", "student", "method")) | given
    return select.choose(records, names, limited=limited)


def read(contents: Sequence[dict[str, Any]]) -> list[Record]:
    return [record_of(content) for content in contents]


def test_settings_are_chosen_by_the_mean_over_seeds_and_then_the_best_seed(
    science: dict[str, Any],
) -> None:
    scores = {1e-5: (0.70, 0.74, 0.72), 2e-5: (0.90, 0.40, 0.50)}  # means 0.72 and 0.60
    records = [
        record(science["rte"], score, lr=lr, seed=seed)
        for lr, row in scores.items()
        for seed, score in enumerate(row)
    ]
    records.append(record(science["rte"], 0.99, lr=1e-5, seed=9, status="failed"))
    found = picked(read(records))["rte"].config
    assert (found["lr"], found["seed"]) == (1e-5, 1)


def test_of_equal_seeds_the_one_is_taken_whose_student_is_kept(
    tmp_path: Path, science: dict[str, Any]
) -> None:
    for seed in (1, 0, 2):
        found = stored(tmp_path, record(science["rte"], 0.7, seed=seed))
        retention.tidy(run_folder(tmp_path, found["config"], found["id"]), "best")
    (kept,) = tmp_path.glob("runs/*/*/*/*/student")
    best = picked(load_records(tmp_path).records)["rte"]
    assert tmp_path / best.folder / "student" == kept


def test_several_methods_or_pairs_must_be_chosen_from_a_list(science: dict[str, Any]) -> None:
    warm = {"temperature": 5}
    records = read(
        [
            record(science["rte"], 0.6),
            record(science["mrpc"], 0.6, student={"name": "other"}),
            record(science["rte"], 0.5, method=warm),
        ]
    )
    with pytest.raises(BadInput) as error:
        picked(records)
    listed = "--teacher tiny12 --student tiny6 --method"
    assert f"{listed} vanilla (rte)" in str(error.value)
    assert f"{listed} 'vanilla (temperature=5)' (rte)" in str(error.value)
    assert "--student other --method vanilla (mrpc)" in str(error.value)
    assert set(picked(records, student="other")) == {"mrpc"}
    assert picked(records, student="tiny6", method="vanilla") == {"rte": records[0]}
    assert picked(records, method="vanilla (temperature=5)") == {"rte": records[2]}
    with pytest.raises(BadInput, match="no run has method pkd; stored are: --teacher tiny12"):
        picked(records, method="pkd")


def test_runs_with_other_settings_are_told_apart_and_one_is_named(science: dict[str, Any]) -> None:
    short, long = read([record(science["rte"], 0.6, epochs=epochs) for epochs in (3, 40)])
    with pytest.raises(BadInput) as error:
        picked([short, long])
    assert f"{short.id} (epochs=3)" in str(error.value)
    assert f"{long.id} (epochs=40)" in str(error.value) and "--run ID" in str(error.value)


def test_limited_runs_count_only_on_request_and_never_beside_whole_ones(
    science: dict[str, Any],
) -> None:
    (limited,) = read([record(science["rte"], 0.9, limit_train=64)])
    with pytest.raises(BadInput, match=r"all 1 runs of rte are limited.* type --limited"):
        picked([limited])
    assert picked([limited], limited=True) == {"rte": limited}
    (whole,) = read([record(science["rte"], 0.6)])
    assert picked([limited, whole], limited=True) == {"rte": whole}


def test_a_named_run_stands_for_its_task(
    tmp_path: Path, science: dict[str, Any], command: Callable[..., tuple]
) -> None:
    root = tmp_path / "results"
    good, other = (record(science["rte"], s, epochs=e) for s, e in ((0.9, 3), (0.5, 40)))
    for found in (good, other):
        stored(root, found)
    glue(tmp_path / "data", Task(**science["rte"]["task"]), "test")
    code, out, _ = command("--run", other["id"][:6])
    assert code == 1 and f"run {other['id']}" in out and good["id"] not in out
    code, _, err = command("--run", "nothing")
    assert code == 2 and "no run in" in err and "begins with 'nothing'" in err
    code, _, err = command("--run", good["id"], other["id"])
    assert code == 2 and "is a second run of rte" in err


# --------------------------------------------------------------------------------------- what fails


def test_a_student_that_was_not_kept_is_made_again_with_the_line_that_is_told(
    tmp_path: Path, science: dict[str, Any], command: Callable[..., tuple]
) -> None:
    """Also with --placeholder: a constant must not stand for a task that was done."""
    root = tmp_path / "results"
    for name in ("rte", "mrpc"):
        found = record(science[name], 0.5)
        write_record(run_folder(root, found["config"], found["id"]), found)
        glue(tmp_path / "data", Task(**science[name]["task"]), "test")
    code, _, err = command("--placeholder")
    assert code == 2 and not (tmp_path / "out").exists()
    line = "ilkd_bench.run seed=0 'results_dir=/my results' force=true keep_student=all"
    assert err.count(line) == 2 and "rte: the student of run" in err and "mrpc: the" in err


def test_a_damaged_student_is_one_readable_message(
    tmp_path: Path, science: dict[str, Any], command: Callable[..., tuple]
) -> None:
    found = stored(tmp_path / "results", record(science["rte"], 0.5))
    folder = run_folder(tmp_path / "results", found["config"], found["id"])
    (folder / "student/model.safetensors").write_bytes(b"half of it")
    glue(tmp_path / "data", Task(**science["rte"]["task"]), "test")
    code, out, err = command()
    assert code == 2 and "submission:" not in out and not list((tmp_path / "out").iterdir())
    assert err.startswith("ilkd_bench: the student in ") and "cannot be loaded" in err


def test_a_student_of_other_labels_is_refused(
    tmp_path: Path, science: dict[str, Any], command: Callable[..., tuple]
) -> None:
    swapped = science["rte"]["task"] | {"labels": ["not_entailment", "entailment"]}
    found = stored(tmp_path / "results", record(science["rte"], 0.5))
    folder = run_folder(tmp_path / "results", found["config"], found["id"])
    whole = read_record(folder)
    assert whole is not None
    config = whole["config"] | {"task": swapped}
    write_record(folder, whole | {"config": config, "id": identity.run_id(config)})
    glue(tmp_path / "data", Task(**swapped), "test")
    code, _, err = command()
    assert code == 2 and "its labels in another order than its task" in err


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_predicted(
    tmp_path: Path, science: dict[str, Any], command: Callable[..., tuple]
) -> None:
    stored(tmp_path / "results", record(science["rte"], 0.5))
    glue(tmp_path / "data", Task(**science["rte"]["task"]), "test")
    code, out, err = command("--out", str(tmp_path))
    assert (code, out) == (2, "") and f"{tmp_path} cannot be written: give --out" in err


def test_nothing_to_submit_says_why(
    tmp_path: Path, science: dict[str, Any], command: Callable[..., tuple]
) -> None:
    code, _, err = command()
    assert code == 2 and f"no runs in {tmp_path}/results: give --results-dir" in err
    stored(tmp_path / "results", record(science["rte"], 0.5))
    (tmp_path / "data").mkdir()
    code, _, err = command("--placeholder")
    assert code == 2 and "nothing to submit. " in err and "RTE.tsv: no file" in err
