"""What is found before anything is trained."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any

import pytest
from families import save
from safetensors.torch import load_file, save_file

from ilkd_bench.data import tasks
from ilkd_bench.jobs.plan import plan
from ilkd_bench.training import check as checking
from ilkd_bench.training.check import Checks
from ilkd_bench.types import BadInput, Incompatible


def check(*words: str) -> None:
    """Ask all runs of a command line."""
    checks = Checks()
    for job in plan(["-m", *words]):
        checks.check(job.run, here=True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["max_length=129"], "max_length=129 is beyond the student's 128 positions"),
        (["precision=16-mixed", "trainer.accelerator=cpu"], "16-mixed needs a GPU"),
        (["method=vanilla", "method.temperature=0"], "method.temperature=0: allowed is"),
        (["method=pro_kd", "epochs=1"], "two phases and needs at least 2 epochs"),
        (["method=minilm", "compile=true"], "compile=true: method=minilm needs keys"),
        (["student.teacher_layers=[1,2]"], "the student has 6 layers"),
        (["student.teacher_layers=[1,2,3,4,5,13]"], "allowed are distinct numbers from 1 to 12"),
        (["method=takd", "method.assistants=nobody"], "no student is called nobody"),
        (["student.width=100000000"], r"student\.width=100000000: allowed is"),
        (["student.layers=100000000"], r"student\.layers=100000000: allowed is"),
        (["student.initializer_range=1e38"], r"student\.initializer_range=1e\+38: allowed is"),
        (["method=finetune", "method.weights.ce=1e299"], r"method\.weights\.ce=1e\+299: with it"),
        (["method=vanilla", "method.weights.kd=1e38"], r"method\.weights\.kd=1e\+38: with it"),
        (["teacher.layers=0"], r"teacher\.layers=0: allowed is"),
        (["student.width=48"], "family, width, heads and vocabulary must be the teacher's"),
    ],
    ids=lambda v: v[-1] if isinstance(v, list) else "",
)
def test_is_found_without_training(words: list[str], message: str) -> None:
    with pytest.raises(BadInput, match=message):
        check(*words)


def test_weights_that_are_too_large_are_found_without_training(tmp_path: Path) -> None:
    """Those of a folder may all be finite."""
    folder = save(tmp_path / "m", "bert", labels=["negative", "positive"])
    weights = load_file(folder / "model.safetensors")
    for name in ("bert.pooler.dense.weight", "classifier.weight"):
        weights[name].fill_(3e38)
    save_file(weights, folder / "model.safetensors")
    words = ["method=vanilla", f"cache_dir={tmp_path}/cache", "max_length=24"]
    with pytest.raises(BadInput, match="the teacher answers no finite numbers"):
        check(*words, f"teacher.checkpoint={folder}")


def test_a_gpu_that_is_not_here_may_be_where_the_runs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    (job,) = plan(["trainer.accelerator=gpu", "precision=32-true"])
    Checks().check(job.run, here=False)
    with pytest.raises(BadInput, match="no CUDA device here"):
        Checks().check(job.run, here=True)


def test_what_cannot_work_for_a_pair_is_told_apart() -> None:
    with pytest.raises(Incompatible, match="do not lie between"):
        check("method=takd", "method.assistants=[3,5]")


def test_every_method_can_teach_the_demo_pair() -> None:
    check("method=glob(*)", "task=demo_nli", "limit_train=64", "limit_eval=64")


def test_what_runs_share_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    for module, name in ((checking, "build_student"), (checking, "build_teacher"), (tasks, "read")):
        monkeypatch.setattr(module, name, counted(getattr(module, name), made))
    words = "method=vanilla,pkd,rail_l task=demo_sentiment,demo_nli seed=0,1 lr=1e-5,1e-4"
    check(*words.split(), "limit_train=64", "limit_eval=64")
    for build in ("build_student", "build_teacher"):
        assert made.count(build) == 3, "once with its weights, once for the labels of each task"
    splits = sum(len(job.run.data) for job in plan(["-m", "task=demo_sentiment,demo_nli"]))
    assert made.count("read") == splits


def counted(function: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    """The function, which notes when it is called."""

    @wraps(function)
    def noting(*arguments: Any, **named: Any) -> Any:
        calls.append(function.__name__)
        return function(*arguments, **named)

    return noting


def test_rows_are_read_before_training(tmp_path: Path) -> None:
    folder = tmp_path / "custom"
    folder.mkdir()
    rows = [{"sentence": f"the coffee was {w}", "label": w} for w in ("charming", "horrible") * 4]
    for split in ("train", "validation"):
        (folder / f"{split}.jsonl").write_text("\n".join(map(json.dumps, rows)))
    words = ["task=custom", f"data_dir={tmp_path}", "task.labels=[horrible,charming]"]
    check(*words)
    with pytest.raises(BadInput, match="no column words; found are sentence, label"):
        check(*words, "task.text_columns=[words]")
    with pytest.raises(BadInput, match=r"the label of row 0 is .charming.; allowed are"):
        check(*words[:2], "task.labels=[horrible,great]")
