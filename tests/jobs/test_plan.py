"""What a command line plans: one source of truth for what is run."""

from __future__ import annotations

import contextlib
import random
import subprocess
from collections.abc import Iterator, Sized
from pathlib import Path
from typing import Any

import pytest
import toys
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import OmegaConf

from ilkd_bench.data import tasks
from ilkd_bench.jobs import plan as planning
from ilkd_bench.jobs.job import Job
from ilkd_bench.plumbing.command import run_line, setting
from ilkd_bench.plumbing.text import word as quoted
from ilkd_bench.settings import plugins
from ilkd_bench.types import BadInput


def plan(folder: Path, *words: str) -> list[Job]:
    return planning.plan([*words, f"results_dir={folder}/results", f"cache_dir={folder}/cache"])


def test_the_words_of_a_job_select_it_alone(tmp_path: Path) -> None:
    jobs = plan(tmp_path, "-m", "method=pkd,alp", "seed=0,1", "teacher.allow_weak=true", "lr=1e-4")
    assert len({job.id for job in jobs}) == 4
    for job in jobs:
        (again,) = planning.plan(job.words)
        assert again.id == job.id


def test_a_preset_is_spelt_out_and_typed_keys_replace_what_it_sweeps(tmp_path: Path) -> None:
    rows = "\n".join(
        f'{{"sentence1": "a {n}", "sentence2": "b", "sentence": "a {n}", "label": {n}}}'
        for n in (0, 1)
    )
    tasks = ("rte", "cola", "mrpc", "stsb")
    for task in tasks:
        for split in ("train", "validation"):
            path = tmp_path / "data" / task / f"{split}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(rows)
    words = ["+sweeps=minilm_small", f"data_dir={tmp_path}/data", "teacher=tiny12", "student=tiny6"]
    jobs = plan(tmp_path, *words, "seed=7", "method=pkd,alp")
    found = {(job.run.task.name, job.run.method.name) for job in jobs}
    assert found == {(t, m) for t in tasks for m in ("pkd", "alp")}
    assert {job.run.seed for job in jobs} == {7}
    assert len(jobs) == 8
    assert not any(word.startswith("+sweeps") for word in jobs[0].words)


def test_a_dictionary_is_merged_as_hydra_does(tmp_path: Path) -> None:
    (job,) = plan(tmp_path, "method=pkd", "method.weights={ce: 0.25}")
    default = toys.method_settings("pkd")["weights"]
    assert job.run.method.weights == default | {"ce": 0.25}


# ----------------------------------------------------------- composed once, filled with the rest

PARTS = {
    "elsewhere": "defaults: [/method/vanilla@_here_, _self_]\nname: elsewhere\n",
    "looking": "defaults: [vanilla, _self_]\nname: looking\ntemperature: ${seed}\n",
}
"""Methods of plugins: one whose defaults may say anything, one that looks at the seed."""

SWEEPS = {
    "choices and values": (
        "method=pkd,alp,takd",
        "task=demo_nli,demo_similarity",
        "student=tiny6,tiny3",
        "teacher.recipe.lr=1e-4,1e-3",
        "task.ood=null",
        "lr=1e-3,2e-3",
        "batch_size=16,32",
        "seed=range(2)",
    ),
    "what the student recommends": (
        "method=vanilla,rail_c",
        "student=tiny6,tiny3,tiny3_random",
        "student.recommended.epochs=3,4",
        "method.temperature=2,4",
        "seed=0,1",
    ),
    "values that look at others": (
        "method=vanilla,minilm",
        "method.temperature=${batch_size}",
        "method.weights={ce: 0.25}",
        "method.weights.kd=0.5,${method.weights.ce}",
        "batch_size=${seed},3",
        "limit_train=null,${limit_eval}",
        "limit_eval=${batch_size}",
        "epochs=3,4",
        "seed=1,2",
    ),
    "one inside the other": (
        "method=vanilla,pkd",
        "method.weights.ce=0.1,0.2",
        "method.weights={ce: 0.7},{kd: 0.7}",
        "student.teacher_layers=[1,2,3,4,5,6],null",
        "patience=null,3",
    ),
    "a choice with defaults of other groups": (
        "method=elsewhere,looking",
        "task=demo_nli,demo_sentiment",
        "batch_size=2,3",
        "seed=1,2",
    ),
    "a choice that looks at a value": ("method=looking,pkd", "seed=1,2", "lr=1,2"),
}


@pytest.fixture
def swept(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[list[Job]]:
    words = [*SWEEPS[request.param], f"results_dir={tmp_path}/r", "cache_dir=${results_dir}/c"]
    if "looking" in words[0]:
        folder = tmp_path / "plugins" / "conf" / "method"
        folder.mkdir(parents=True)
        for name, text in PARTS.items():
            (folder / f"{name}.yaml").write_text(text)
        words.append(f"plugins={tmp_path}/plugins")
    yield planning.plan(["-m", *words])
    plugins.use(None)


def check(job: Job) -> None:
    """Compare a run with what Hydra composes of its words, all at once."""
    whole = toys.run(*job.words).but(data=job.run.data, precision=job.run.precision)
    assert job.run == whole, job.words
    assert job.run.identity == whole.identity and job.id == whole.id


@pytest.mark.parametrize("swept", list(SWEEPS)[2:5], indirect=True)
def test_a_run_of_a_plan_is_what_hydra_composes(swept: list[Job]) -> None:
    assert len({job.id for job in swept}) == len(swept) > 4
    for job in random.Random(0).sample(swept, 2):
        check(job)


@pytest.mark.runs
@pytest.mark.parametrize("swept", SWEEPS, indirect=True)
def test_every_run_of_a_plan_is_what_hydra_composes(swept: list[Job]) -> None:
    for job in swept:
        check(job)


def test_what_a_preset_sets_itself_holds_for_every_run(tmp_path: Path) -> None:
    folder = tmp_path / "plugins"
    (folder / "conf").mkdir(parents=True)
    (folder / "sweeps").mkdir()
    preset = "# @package _global_\nhydra: {mode: MULTIRUN, sweeper: {params: {seed: '0,1'}}}\n"
    preset += "patience: 3\nmethod: {temperature: 4}\n"
    (folder / "sweeps" / "mine.yaml").write_text(preset)
    jobs = plan(tmp_path, f"plugins={folder}", "+sweeps=mine", "method=pkd,vanilla")
    plugins.use(None)
    assert [job.run.patience for job in jobs] == [3] * 4
    assert [job.run.method.arguments["temperature"] for job in jobs] == [4] * 4


def test_a_plan_composes_once_for_each_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ten thousand runs are planned in seconds: nothing slow is done once for each."""
    composed, read = [], []
    compose, fingerprints = planning.compose, tasks.fingerprints

    def counted(*given: Any, **named: Any) -> Any:
        composed.append(named["overrides"])
        return compose(*given, **named)

    def looked(task: tasks.Task, *where: Any) -> dict[str, str]:
        read.append(task.name)
        return fingerprints(task, *where)

    monkeypatch.setattr(planning, "compose", counted)
    monkeypatch.setattr(tasks, "fingerprints", looked)
    words = ["method=pkd,alp", "task=demo_nli,demo_sentiment", "student=tiny6", "lr=1e-3,2e-3"]
    jobs = plan(tmp_path, "-m", *words, "epochs=1,2", "seed=range(25)")
    assert len(jobs) == 2 * 2 * 2 * 2 * 25
    assert len(composed) == 1 + 2 + 2 + 1  # the defaults, and each choice
    assert len(read) == 2 * 2
    assert len({id(job.run.essence) for job in jobs}) == 2 * 2


def test_a_long_plan_has_a_bar(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = []

    def track(items: Sized, title: str) -> Any:
        shown.append((title, len(items)))
        return items

    monkeypatch.setattr(planning, "track", track)
    plan(tmp_path)
    assert shown == []
    plan(tmp_path, "-m", "seed=range(3)")
    assert shown == [("planning", 3)]


# ------------------------------------------------------------------------------------- odd folders

ODD = ["é", "a#b", "a&b", "it's", "a=b", "a b", "a@b", "(a)", "a,b", "[a]", "{a}", "2024", "null",
       'a"b', "a`b", "$HOME", "a\\b'", "a\\", "a;b", "${a}", "a:b", "*", "~a"]  # fmt: skip


def value(word: str) -> Any:
    """What Hydra and OmegaConf make of `key=value`; of several values, that they are."""
    (override,) = OverridesParser.create().parse_overrides([word])
    if override.is_sweep_override():
        return ...
    return OmegaConf.create({"key": override.value()}).key


def in_bash(*typed: str) -> list[str]:
    """The words that bash makes of what is typed."""
    line = f"printf '%s\\0' {' '.join(typed)}"
    said = subprocess.run(["bash", "-c", line], capture_output=True, check=True)
    return said.stdout.decode().split("\0")[:-1]


def test_a_folder_of_any_name_can_be_typed() -> None:
    words = [f"results_dir={setting(name)}" for name in ODD]
    assert [value(word) for word in words] == ODD
    assert in_bash(*map(quoted, words)) == words
    assert in_bash(*run_line(words).split(" ", 3)[3:]) == words


def test_a_word_that_hydra_cannot_read_is_shown_as_it_is_typed() -> None:
    unread = 0
    for name in set(ODD) - {"${a}"}:  # which is read as another setting
        with contextlib.suppress(HydraException):
            value(f"cache_dir=/x/{name}")
            continue
        with pytest.raises(BadInput) as error:
            planning.plan([f"cache_dir=/x/{name}"])
        assert str(error.value).startswith(f"cache_dir=/x/{name}: the value cannot be read")
        (word,) = in_bash(str(error.value).rpartition(" typed ")[2])
        assert value(word) == f"/x/{name}"
        unread += 1
    assert unread > 8


def test_a_tilde_is_the_home_folder_in_every_setting_that_names_a_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "it's é, home"
    monkeypatch.setenv("HOME", str(home))
    for name in ("model", "plugins/conf"):
        (home / name).mkdir(parents=True)
    (home / "model" / "model.safetensors").write_bytes(b"weights")
    words = ["results_dir=~/r", "cache_dir='~/c'", "data_dir=~", "plugins=~/plugins"]
    words += ["teacher=bert_base", "teacher.checkpoint=~/model"]
    words += ["student=bert_3", "student.path=~/model", "student.teacher_layers=null"]
    (job,) = planning.plan(words)
    plugins.use(None)
    run = job.run
    assert (run.results_dir, run.cache_dir) == (f"{home}/r", f"{home}/c")
    assert (run.data_dir, run.plugins) == (str(home), f"{home}/plugins")
    assert run.teacher.checkpoint == run.student.arguments["path"] == f"{home}/model"
    (again,) = planning.plan(job.words)
    assert again.run == run
    plugins.use(None)


def test_a_home_of_nobody_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="there is no home folder ~nobody-here; a folder of that"):
        plan(tmp_path, "data_dir=~nobody-here/x")


def test_an_at_sign_in_a_folder_is_no_revision(tmp_path: Path) -> None:
    folder = tmp_path / "a@b"
    folder.mkdir()
    (folder / "model.safetensors").write_bytes(b"weights")
    (job,) = plan(tmp_path, f"teacher.checkpoint={folder}")
    assert len(job.run.identity["teacher"]["checkpoint"]) == 64
    (job,) = plan(tmp_path, "teacher.checkpoint=org/name@abc")
    assert job.run.identity["teacher"]["checkpoint"] == "org/name@abc"
    with pytest.raises(BadInput, match="no model folder at /no/such@model"):
        plan(tmp_path, "teacher.checkpoint=/no/such@model")


def test_other_domains_can_be_left_out(tmp_path: Path) -> None:
    (job,) = plan(tmp_path, "task.ood=null")
    assert job.run.task.ood == {}
    assert set(job.run.identity["data"]) == {"teacher", "train", "dev", "test"}


@pytest.mark.parametrize("key", ["results_dir", "cache_dir"])
@pytest.mark.parametrize("value", ["null", "FILE"])
def test_a_folder_that_cannot_be_written_is_refused(key: str, value: str, tmp_path: Path) -> None:
    file = tmp_path / "FILE"
    file.write_text("")
    with pytest.raises(BadInput, match=f"{key}="):
        planning.require_writable(planning.plan([f"{key}={file if value == 'FILE' else value}"]))


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["task.text_columns=sentence"], "a list of one or two columns"),
        (["task.text_columns=[a,b,c]"], "a list of one or two columns"),
        (["task.labels=[no]"], "two or more different names"),
        (["task.labels=[no,no]"], "two or more different names"),
        (["trainer.accelerator=tpu"], "one of auto, cpu, gpu"),
        (["teacher.name=../up"], "a word of letters"),
    ],
)
def test_values_are_checked_before_anything_runs(
    words: list[str], message: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=message):
        plan(tmp_path, *words)


def test_only_a_named_launcher_leaves_the_process() -> None:
    assert not planning.uses_other_launcher(["-m", "seed=0,1"])
    assert not planning.uses_other_launcher(["hydra/launcher=basic"])
    assert planning.uses_other_launcher(["hydra/launcher=joblib", "-m"])


def test_a_plan_alone_makes_no_folder_of_results(tmp_path: Path) -> None:
    planning.plan([f"results_dir={tmp_path}/results", f"cache_dir={tmp_path}/cache"])
    assert not (tmp_path / "results").exists()
