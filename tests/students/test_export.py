"""Exported students: they load, say who they are, tell nothing private, and agree with ONNX."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
import toys
import yaml
from huggingface_hub import ModelCard
from transformers import pipeline

from ilkd_bench.data import tasks
from ilkd_bench.data.tasks import Task
from ilkd_bench.export import main
from ilkd_bench.jobs import plan
from ilkd_bench.records import card
from ilkd_bench.records.find import find
from ilkd_bench.records.public import is_path, public
from ilkd_bench.records.read import write_record
from ilkd_bench.settings.schema import SCHEMA
from ilkd_bench.students import onnx
from ilkd_bench.training import train
from ilkd_bench.types import BadInput

Once = Callable[[str, Callable[[Path], Any]], tuple[Path, Any]]
PAIR: dict[str, Any] = {
    "name": "mine",
    "text_columns": ["a", "b"],
    "label_column": "label",
    "labels": ["no", "yes"],
    "score_range": None,
    "metric": "f1",
    "also": ["accuracy"],
    "splits": {"train": "train", "dev": "validation"},
    "hidden": [],
    "hub": {"path": "nyu-mll/glue", "config": "mrpc", "revision": "abc"},
    "ood": {},
}


def record(**changes: Any) -> dict[str, Any]:
    """A made-up record of a run that is done."""
    config = {
        "teacher": {"name": "big", "checkpoint": "/home/me/secret/teacher"},
        "student": {"name": "small", "path": "org/encoder@12ab"},
        "method": {"name": "pkd", "temperature": 10, "weights": {"kd": 0.5}},
        "task": PAIR,
        "data": {"train": "nyu-mll/glue:mrpc@abc"},
        "seed": 3,
        "lr": 2e-5,
        "batch_size": 8,
        "epochs": 4,
        "max_length": 24,
        "patience": None,
        "warmup_ratio": 0.1,
        "weight_decay": 0.01,
        "precision": "32-true",
        "limit_train": None,
        "limit_eval": None,
    }
    return {
        "schema": SCHEMA,
        "id": "abcdef0123",
        "status": "done",
        "reason": None,
        "argv": ["task=mrpc", "lr=.5", "data_dir=/home/me", "teacher.checkpoint=/home/me/secret"],
        "limited": False,
        "config": config | changes.pop("config", {}),
        "scores": {"dev": {"f1": 0.8125, "accuracy": 0.75, "n": 408}},
        "monitor": "dev/f1",
        "best_epoch": 2,
        "teacher": {"key": "k", "dev": {"f1": 0.9, "accuracy": 0.85, "n": 408}},
        "data": {"train": 3668, "dev": 408, "fingerprint": {"train": "nyu-mll/glue:mrpc@abc"}},
        "parameters": {"teacher": 1234567, "student": 7654},
        "seconds": {"train": 12.5, "teacher": 3.0, "evaluate": 0.25},
        "examples_per_second": 990.4,
        "device": "cpu: x86_64, 1 threads",
        "precision": "32-true",
        "versions": {"python": "3.11"},
        "git": None,
        "hostname": "my-machine",
    } | changes


def made(root: Path, found: dict[str, Any], *, student: bool = True) -> Path:
    """Write a record, and a student with private things and code beside it."""
    folder = root / "runs/mine/big-small/pkd" / f"s3-{found['id']}"
    toys.write_record(folder, found)
    if student:
        model = toys.model(labels=found["config"]["task"]["labels"])
        model.hf.save_pretrained(folder / "student")
        model.tokenizer.save_pretrained(folder / "student")
        path = folder / "student/config.json"
        config = json.loads(path.read_text()) | {
            "_name_or_path": "/home/me/secret",
            "auto_map": {"AutoModelForSequenceClassification": "code.Evil"},
        }
        path.write_text(json.dumps(config))
        path = folder / "student/tokenizer_config.json"
        config = json.loads(path.read_text()) | {
            "local_files_only": True,
            "name_or_path": "/home/me",
        }
        path.write_text(json.dumps(config))
        (folder / "student/code.py").write_text("raise SystemExit")
        (folder / "student/pytorch_model.bin").write_bytes(b"a pickle")
    return folder


@pytest.fixture
def command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple]:
    """Types the command and returns its code and what it printed."""

    def typed(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main([*words, "--results-dir", f"{tmp_path}/results"])
        out, err = capsys.readouterr()
        return code, out, err

    return typed


def front_matter(text: str) -> dict[str, Any]:
    assert text.startswith("---\n")
    return yaml.safe_load(text.removeprefix("---\n").partition("\n---\n")[0])


# ------------------------------------------------------------------------------- from run to folder


def demo(folder: Path) -> str:
    """Do a run of the demo pair and return its folder."""
    (job,) = plan.plan(toys.small(folder, "method=vanilla", "trainer.accelerator=cpu"))
    job.folder.mkdir(parents=True)
    measured = train.train(job.run, job.folder).model_dump()
    write_record(job.folder, job.record_with(status="done", **measured))
    return str(job.folder.relative_to(folder))


@pytest.mark.runs
def test_a_run_becomes_a_folder_that_the_pipeline_loads(
    once: Once, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root, inside = once("exported-run", demo)
    run, target = root / inside, tmp_path / "deep/hub"
    found = toys.read_record(run)
    assert found is not None
    words = [found["id"][:7], str(target), "--results-dir", f"{root}/results", "--license", "mit"]
    assert main(words) == 0, capsys.readouterr().err

    rows = tasks.read(Task(**found["config"]["task"]), "dev", data_dir=None, limit=64)
    classify = pipeline("text-classification", model=str(target), device="cpu")
    answers = classify(rows.texts[0], top_k=1)
    predicted = pd.read_parquet(run / "predictions/dev.parquet")
    for (answer,), row in zip(answers, predicted.itertuples(), strict=True):
        logits = {"negative": row.logit_0, "positive": row.logit_1}
        best = max(logits, key=logits.__getitem__)
        assert answer["label"] == best
        total = sum(math.exp(logit) for logit in logits.values())
        assert answer["score"] == pytest.approx(math.exp(logits[best]) / total, abs=1e-5)

    names = {path.name for path in target.iterdir()}
    assert names == {
        *("README.md", "record.json", "config.json", "model.safetensors"),
        *("tokenizer.json", "tokenizer_config.json"),
    }
    for path in target.iterdir():
        assert str(root).encode() not in path.read_bytes(), f"{path.name} names a folder"
    text = (target / "README.md").read_text(encoding="utf-8")
    accuracy = found["scores"]["test"]["accuracy"]
    assert f"| demo\\_sentiment | test | accuracy | {accuracy:.4f} | 64 |" in text
    assert "A limited run" in text and front_matter(text)["license"] == "mit"
    assert [p.name for p in target.parent.iterdir()] == ["hub"], "nothing is left aside"


# ----------------------------------------------------------------------------------------- the card


def test_the_front_matter_says_what_the_hub_reads() -> None:
    text = card.card(public(record()), licence="mit", language="en", inputs=None)
    found = front_matter(text)
    (model,) = found.pop("model-index")
    assert found == {
        "license": "mit",
        "language": "en",
        "library_name": "transformers",
        "pipeline_tag": "text-classification",
        "tags": ["knowledge-distillation", "ilkd_bench", "pkd"],
        "base_model": "org/encoder",
        "datasets": ["nyu-mll/glue"],
        "metrics": ["accuracy", "f1"],
    }
    data = ModelCard(text).data  # the hub's own reader
    results = data.eval_results
    assert data.model_name == model["name"] == "small taught by big on mine with pkd"
    assert [(r.metric_type, r.metric_value) for r in results] == [
        ("accuracy", 0.75),
        ("f1", 0.8125),
    ]
    assert {r.dataset_type for r in results} == {"nyu-mll/glue"}
    assert {(r.dataset_config, r.dataset_split) for r in results} == {("mrpc", "validation")}


def test_the_text_has_scores_with_rows_cost_models_and_how_to_load() -> None:
    text = card.card(public(record()), licence="mit", language="en", inputs=None)
    for part in (
        "| mine | dev (validation) | f1 | 0.8125 | 408 |",
        "| teacher | big | 1,234,567 |",
        "| student | small | 7,654 |",
        "Training steps 12.5 s",
        "990 rows a second",
        "Trained on 3668 rows",
        "method **pkd** (run abcdef0123)",
        '"temperature": 10',
        "accuracy 0.8500, f1 0.9000 (408 rows)",
        'classify({"text": "One text.", "text_pair": "Another."}, truncation=True)',
        "python -m ilkd_bench.run task=mrpc lr=.5\n",
    ):
        assert part in text, part
    assert "limited" not in text and "onnx" not in text


def test_a_regression_says_what_its_answers_are() -> None:
    scores = {"dev": {"pearson": 0.5, "n": 8}}
    task = PAIR | {"labels": None, "score_range": [0, 5], "metric": "pearson", "also": []}
    found = record(config={"task": task}, scores=scores, monitor="dev/pearson")
    text = card.card(public(found), licence="mit", language="en", inputs=None)
    assert "Answers: a score from 0 to 5." in text and "answers with the score itself" in text
    assert front_matter(text)["metrics"] == ["pearsonr"]


def test_without_a_licence_the_card_says_that_one_must_be_chosen() -> None:
    text = card.card(public(record()), licence="other", language=None, inputs=None)
    found = front_matter(text)
    assert (found["license"], found["license_name"]) == ("other", "not-chosen")
    assert "language" not in found and "No licence was chosen yet" in text


def test_names_of_a_record_cannot_write_the_card() -> None:
    bad = "x\n---\nlicense: mit\n# T | <script>alert(1)<script> [a](http:b) `c` *d* ![e](f)"
    changed = {
        key: record()["config"][key] | {"name": bad} for key in ("teacher", "student", "task")
    }
    changed["method"] = {"name": bad, "note": "a\n```\n# not a head\n"}
    hostile = record(config=changed, device=bad, precision=bad, argv=["task=a\n```\nb"])
    text = card.card(public(hostile), licence="other", language=None, inputs=None)
    assert front_matter(text)["license"] == "other"
    assert bad in front_matter(text)["model-index"][0]["name"], "the hub gets it whole, as YAML"
    body = text.removeprefix("---\n").partition("\n---\n")[2]
    assert "<script" not in body.replace("\\<", "") and "[a](" not in body.replace("\\[", "")
    heads = [line for line in body.splitlines() if line.startswith("#")]
    assert [h.split()[1] for h in heads[1:]] == [
        *("Method", "Teacher", "Data", "Scores", "Cost", "Licence", "How"),
    ]
    assert heads[0].startswith("# x \\-".replace("\\-", "-")) and body.count("\n```") == 4


# ---------------------------------------------------------------------------------- what is private


def test_the_record_of_an_export_has_no_paths_and_no_unknown_keys() -> None:
    shown = public(record())
    assert "hostname" not in shown and "reason" not in shown
    assert shown["argv"] == ["task=mrpc", "lr=.5"]
    assert shown["config"]["teacher"]["checkpoint"] == "(a path)"
    assert shown["config"]["student"]["path"] == "org/encoder@12ab"
    assert shown["data"] == record()["data"]
    assert "/home" not in json.dumps(shown)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("/home/me", True),
        ("~/x", True),
        ("../shared/data", True),
        ("./x", True),
        ("C:\\Users\\me", True),
        ("results/runs/mrpc/a", True),
        ("'/my data'", True),
        ("org/model", False),
        ("org/model@main", False),
        (".5", False),
        ("[2,4]", False),
        ("cpu: x86_64, 1 threads", False),
    ],
)
def test_paths_are_told_from_hub_ids_and_numbers(text: str, expected: bool) -> None:
    assert is_path(text) is expected


def test_neither_code_nor_pickles_nor_private_keys_are_exported(
    tmp_path: Path, command: Callable[..., tuple]
) -> None:
    folder = made(tmp_path / "results", record())
    code, out, err = command("abc", f"{tmp_path}/hub")
    assert code == 0 and str(folder) in out and "--license" in err
    target = tmp_path / "hub"
    assert not {"code.py", "pytorch_model.bin"} & {path.name for path in target.iterdir()}
    config = json.loads((target / "config.json").read_text())
    assert not {"auto_map", "_name_or_path"} & set(config) and config["id2label"]["1"] == "yes"
    assert "local_files_only" not in json.loads((target / "tokenizer_config.json").read_text())
    for path in target.iterdir():
        assert b"/home/me" not in path.read_bytes()
    weights = (folder / "student/model.safetensors").read_bytes()
    assert (target / "model.safetensors").read_bytes() == weights


@pytest.mark.parametrize("labels", [["-1", "1"], ["C++", "C#"], ["LABEL_1", "LABEL_0"]])
def test_a_student_whose_labels_differ_in_marks_or_numbers_alone_is_exported(
    labels: list[str], tmp_path: Path, command: Callable[..., tuple]
) -> None:
    made(tmp_path / "results", record(config={"task": PAIR | {"labels": labels}}))
    code, _, err = command("abc", f"{tmp_path}/hub")
    assert code == 0, err
    exported = json.loads((tmp_path / "hub/config.json").read_text())
    assert list(exported["id2label"].values()) == labels


# -------------------------------------------------------------------------------- finding, refusing


def test_a_run_is_found_by_its_id_the_beginning_of_it_or_its_folder(tmp_path: Path) -> None:
    first = made(tmp_path, record(), student=False)
    second = made(tmp_path, record(id="abcd999999"), student=False)
    assert find("abcdef0123", tmp_path) == find("abcde", tmp_path) == first
    assert find(str(second), tmp_path) == second
    with pytest.raises(BadInput) as error:
        find("abcd", tmp_path)
    assert str(first) in str(error.value) and str(second) in str(error.value)
    for typed in ("", "bcd", "s3"):
        with pytest.raises(BadInput, match=r"no run in .* lists them"):
            find(typed, tmp_path)


@pytest.mark.parametrize(
    ("changes", "student", "expected"),
    [
        ({"status": "failed", "reason": "out of memory"}, True, "is failed (out of memory)"),
        ({"status": "running"}, True, "is running, so it has no student"),
        ({"status": "skipped", "reason": "other heads"}, False, "is skipped (other heads)"),
        ({}, False, "force=true keep_student=all"),
        ({"schema": 99}, True, "its schema is 99"),
    ],
)
def test_a_run_without_a_student_says_what_to_type(
    changes: dict[str, Any],
    student: bool,
    expected: str,
    tmp_path: Path,
    command: Callable[..., tuple],
) -> None:
    made(tmp_path / "results", record(**changes), student=student)
    code, _, err = command("abcdef0123", f"{tmp_path}/hub")
    assert code == 2 and expected in err and err.startswith("ilkd_bench: ")
    if "schema" not in changes:
        assert "python -m ilkd_bench.run task=mrpc" in err
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_a_folder_that_is_not_empty_is_left_alone_unless_forced(
    tmp_path: Path, command: Callable[..., tuple], monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "results", record())
    target = tmp_path / "hub"
    target.mkdir()
    monkeypatch.chdir(target)
    assert command("abc", ".")[0] == 0, "an empty folder will do"
    assert Path.cwd().samefile(target), "the folder is still the same one"
    (target / "README.md").write_text("old")
    (target / "notes.txt").write_text("mine")
    (target / "model.onnx").write_bytes(b"of another student")
    code, _, err = command("abc", str(target))
    assert code == 2 and "is not empty" in err and "--force" in err
    assert (target / "README.md").read_text() == "old"
    assert command("abc", str(target), "--force")[0] == 0
    assert (target / "README.md").read_text().startswith("---\n")
    assert (target / "notes.txt").read_text() == "mine"
    assert not (target / "model.onnx").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hub", "results"]


@pytest.mark.parametrize("name", ["config.json", "README.md", "vocab.txt", "model.onnx"])
def test_no_file_is_replaced_where_one_cannot_be(
    name: str, tmp_path: Path, command: Callable[..., tuple]
) -> None:
    made(tmp_path / "results", record())
    target = tmp_path / "hub"
    (target / name).mkdir(parents=True)
    (target / name / "notes.txt").write_text("mine")
    others = {"config.json", "model.safetensors", "tokenizer.json", "merges.txt"} - {name}
    for other in others:
        (target / other).write_text("old")
    code, _, err = command("abc", str(target), "--force")
    assert code == 2 and f"{target / name} is a folder" in err
    assert {other: (target / other).read_text() for other in others} == dict.fromkeys(others, "old")
    assert (target / name / "notes.txt").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["hub", "results"]


def test_links_in_the_place_of_files_are_replaced_and_not_followed(
    tmp_path: Path, command: Callable[..., tuple]
) -> None:
    made(tmp_path / "results", record())
    (tmp_path / "hub").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "hub/README.md").symlink_to(tmp_path / "elsewhere")
    assert command("abc", f"{tmp_path}/hub", "--force")[0] == 0
    assert (tmp_path / "hub/README.md").read_text().startswith("---\n")
    assert list((tmp_path / "elsewhere").iterdir()) == []


def test_a_file_that_cannot_be_replaced_is_named_by_its_own_path(
    tmp_path: Path, command: Callable[..., tuple], monkeypatch: pytest.MonkeyPatch
) -> None:
    made(tmp_path / "results", record())
    target = tmp_path / "hub"
    target.mkdir()
    (target / "README.md").write_text("old")
    replace = os.replace

    def refuse(source: Any, path: Any) -> None:
        if path == target / "README.md":
            raise PermissionError(1, "Operation not permitted", str(source), None, str(path))
        replace(source, path)

    monkeypatch.setattr(os, "replace", refuse)
    code, _, err = command("abc", str(target), "--force")
    assert code == 2 and err == f"ilkd_bench: {target / 'README.md'}: Operation not permitted\n"


def test_a_damaged_student_leaves_no_folder(tmp_path: Path, command: Callable[..., tuple]) -> None:
    folder = made(tmp_path / "results", record())
    (folder / "student/model.safetensors").write_bytes(b"half of it")
    code, _, err = command("abc", f"{tmp_path}/hub")
    assert code == 2 and "cannot be loaded" in err
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


@pytest.mark.parametrize("words", [("--license", "My licence"), ("--language", "English")])
def test_values_that_the_hub_does_not_take_are_refused(
    words: tuple[str, str], command: Callable[..., tuple]
) -> None:
    with pytest.raises(SystemExit) as end:
        command("abc", "hub", *words)
    assert end.value.code == 2


# ------------------------------------------------------------------------------------------- ONNX


def write_onnx(folder: Path) -> None:
    """Write a small student as ONNX; it takes seconds."""
    model = toys.model(layers=1)
    onnx.write(model, folder / "model.onnx")


@pytest.mark.onnx
def test_the_onnx_file_gives_the_student_s_logits_for_any_rows_and_tokens(once: Once) -> None:
    """Also that it says nothing of this machine."""
    runtime = pytest.importorskip("onnxruntime", reason="the extra [onnx] is not installed")
    pytest.importorskip("onnxscript", reason="the extra [onnx] is not installed")
    folder, _ = once("onnx", write_onnx)
    model = toys.model(layers=1)
    session = runtime.InferenceSession(folder / "model.onnx")
    names = [item.name for item in session.get_inputs()]
    assert names == ["input_ids", "token_type_ids", "attention_mask"]
    texts = ["good", "the film was very bad", "not a poor cup", "blue"]
    for chosen in (texts, texts[:1], texts[1:3]):
        encoded = model.tokenizer(chosen, chosen, padding=True, return_tensors="pt")
        with torch.inference_mode():
            expected = model.hf(**encoded).logits
        (found,) = session.run(["logits"], {n: encoded[n].numpy() for n in names})
        assert found == pytest.approx(expected.numpy(), abs=1e-5)
    content = (folder / "model.onnx").read_bytes()
    assert b"site-packages" not in content and str(Path.cwd()).encode() not in content
    with pytest.raises(onnx.Differs, match="gives other logits than the student"):
        onnx.compare(toys.model(layers=1, seed=1), folder / "model.onnx")


def test_a_wrong_onnx_file_is_never_kept(
    tmp_path: Path, command: Callable[..., tuple], monkeypatch: pytest.MonkeyPatch
) -> None:
    def differs(model: Any, path: Path) -> None:
        assert path.is_file()
        raise onnx.Differs("model.onnx gives other logits")

    made(tmp_path / "results", record())
    monkeypatch.setattr(onnx, "require", lambda: None)
    monkeypatch.setattr(onnx, "_write", lambda model, path, names: path.write_bytes(b"x"))
    monkeypatch.setattr(onnx, "compare", differs)
    code, _, err = command("abc", f"{tmp_path}/hub", "--onnx")
    assert (code, err) == (2, "ilkd_bench: model.onnx gives other logits\n")
    assert [path.name for path in tmp_path.iterdir()] == ["results"]


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx, "NEEDED", ("json", "no_such_package"))
    with pytest.raises(BadInput, match=r"--onnx needs no_such_package: pip install .*\[onnx\]"):
        onnx.require()


# --------------------------------------------------------------------- what a student's folder has


@pytest.mark.parametrize(
    "name", ["model.safetensors", "config.json", "vocab.txt", "tokenizer.json"]
)
def test_a_link_out_of_the_student_s_folder_is_not_followed(
    name: str, tmp_path: Path, command: Callable[..., tuple]
) -> None:
    folder = made(tmp_path / "results", record())
    secret = tmp_path / "secret"
    path = folder / "student" / name
    secret.write_bytes(path.read_bytes() if path.is_file() else b"secret")
    path.unlink(missing_ok=True)
    path.symlink_to(secret)
    code, _, err = command("abc", f"{tmp_path}/hub")
    assert code == 2 and ("it is a link" in err or "was not kept" in err)
    assert not (tmp_path / "hub").exists()


def test_nor_is_a_student_that_is_a_link(tmp_path: Path, command: Callable[..., tuple]) -> None:
    folder = made(tmp_path / "results", record())
    (folder / "student").rename(tmp_path / "elsewhere")
    (folder / "student").symlink_to(tmp_path / "elsewhere")
    assert command("abc", f"{tmp_path}/hub")[0] == 2
    assert not (tmp_path / "hub").exists()


def test_a_pipe_in_a_student_s_folder_is_not_waited_for(
    tmp_path: Path, command: Callable[..., tuple]
) -> None:
    folder = made(tmp_path / "results", record())
    (folder / "student/config.json").unlink()
    os.mkfifo(folder / "student/config.json")
    code, _, err = command("abc", f"{tmp_path}/hub")
    assert code == 2 and "config.json: it is a pipe" in err


def test_unknown_keys_and_paths_of_the_json_files_stay_at_home(
    tmp_path: Path, command: Callable[..., tuple]
) -> None:
    folder = made(tmp_path / "results", record())
    for name in ("config.json", "tokenizer_config.json", "tokenizer.json"):
        path = folder / "student" / name
        content = json.loads(path.read_text()) | {"my_notes": "secret words"}
        if name != "tokenizer.json":
            content |= {"hidden_act" if name == "config.json" else "errors": "/home/me/secret"}
        path.write_text(json.dumps(content))
    code, _, err = command("abc", f"{tmp_path}/hub")
    assert code == 0, err
    for path in (tmp_path / "hub").iterdir():
        assert b"secret words" not in path.read_bytes() and b"/home/me" not in path.read_bytes()


@pytest.mark.parametrize(
    "changes",
    [
        *({"parameters": {}}, {"seconds": {}}, {"examples_per_second": None}, {"data": {}}),
        *({"config": {"task": PAIR | {"splits": 5}}}, {"best_epoch": []}),
        {"teacher": {"dev": {"f1": "high", "n": 4}}},
    ],
    ids=repr,
)
def test_a_record_that_is_not_whole_gives_a_sentence(
    changes: dict[str, Any], tmp_path: Path, command: Callable[..., tuple]
) -> None:
    made(tmp_path / "results", record(**changes))
    code, _, err = command("abc", f"{tmp_path}/hub")
    assert code in (0, 2) and "Traceback" not in err
    assert (code == 0) == (tmp_path / "hub/README.md").is_file()
