"""Every YAML composes; mistyped words are answered with the right ones; sweeps have their size."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import pytest
import toys
from omegaconf import OmegaConf

from ilkd_bench.jobs import plan
from ilkd_bench.settings import groups
from ilkd_bench.types import BadInput

GROUPS = ("teacher", "student", "method", "task", "trainer", "logger")
CHOICES = [
    (group, path.stem) for group in GROUPS for path in sorted((toys.CONF / group).glob("*.yaml"))
]
SWEEPS = sorted(path.stem for path in (groups.ROOT / "sweeps").glob("*.yaml"))
EVALUATION_ONLY = {
    "scitail",
    "paws",
    "imdb",
    *(f"demo_{t}_ood" for t in ("sentiment", "paraphrase", "nli", "similarity")),
}


def refused(*argv: str) -> str:
    with pytest.raises(BadInput) as error:
        plan.require_writable(plan.plan(argv))
    return str(error.value)


# ------------------------------------------------------------------------------------- every YAML


def test_the_names_that_the_mission_fixes_are_there() -> None:
    expected = {
        "method": "finetune vanilla pkd pkd_last alp rail_l rail_c pro_kd",
        "teacher": "tiny12 minilm_l6 e5_small bert_base roberta_base roberta_large",
        "student": "tiny6 minilm_l3 minilm_l3_cut bert_tiny e5_small_6 e5_small_3"
        " distilbert distilroberta bert_6 bert_4 bert_2",
        "task": "cola sst2 mrpc stsb qqp mnli qnli rte scitail paws imdb custom"
        " demo_sentiment demo_paraphrase demo_nli demo_similarity",
    }
    for group, names in expected.items():
        assert set(names.split()) <= {name for g, name in CHOICES if g == group}
    assert {"rail_table2", "rail_table3", "rail_table4", "rail_table6", "minilm_small"} <= set(
        SWEEPS
    )


@pytest.mark.parametrize(
    ("group", "name"),
    [
        pytest.param(*choice, marks=[pytest.mark.runs] * (choice[0] in ("task", "student")))
        for choice in CHOICES
    ],
)
def test_every_yaml_composes_into_a_run_and_is_named_like_its_file(
    group: str, name: str, tmp_path: Path
) -> None:
    words = [f"{group}={name}", f"results_dir={tmp_path}/r", f"cache_dir={tmp_path}/c"]
    if group == "task" and name in EVALUATION_ONLY:
        assert f"task={name} is for evaluation only" in refused(*words)
        assert toys.config(*words)["task"]["name"] == name
        return
    if name == "custom":
        (tmp_path / "custom").mkdir()
        for split in ("train", "validation"):
            (tmp_path / "custom" / f"{split}.jsonl").write_text("{}")
        words.append(f"data_dir={tmp_path}")
    (job,) = plan.plan(words)
    assert getattr(job.run, group).name == name


@pytest.mark.parametrize("group", GROUPS)
def test_every_choice_of_a_group_has_the_same_keys(group: str) -> None:
    """So that code never has to guess whether a key is there."""
    files = {
        name: OmegaConf.load(toys.CONF / group / f"{name}.yaml")
        for g, name in CHOICES
        if g == group
    }
    keys = {name: set(file) - {"defaults"} for name, file in files.items()}
    if group in ("trainer", "task"):
        assert len(set(map(frozenset, keys.values()))) == 1
    always = {
        "teacher": {"name", "_target_", "checkpoint", "allow_weak", "recipe"},
        "student": {"name", "_target_", "teacher_layers", "recommended"},
        "method": {"name", "_target_", "weights"},
    }.get(group, {"name"})
    for name, found in keys.items():
        assert always <= found, name


@pytest.mark.parametrize("name", [name for group, name in CHOICES if group == "student"])
def test_learning_rate_and_epochs_are_what_the_student_recommends(name: str) -> None:
    composed = toys.config(f"student={name}")
    assert composed["lr"] == composed["student"]["recommended"]["lr"] > 0
    assert composed["epochs"] == composed["student"]["recommended"]["epochs"] >= 1


def test_the_default_is_the_embedded_pair() -> None:
    composed = toys.config()
    names = {group: composed[group]["name"] for group in GROUPS}
    assert names["teacher"] == "tiny12" and names["student"] == "tiny6"
    assert names["task"] == "demo_sentiment" and names["logger"] == "none"
    assert composed["teacher"]["layers"] == 12 and composed["student"]["layers"] == 6
    assert composed["student"]["teacher_layers"] == [2, 4, 6, 8, 10, 12]


# ----------------------------------------------------------------------------------------- sweeps


def sweep(name: str) -> tuple[str, dict[str, Any]]:
    text = (groups.ROOT / "sweeps" / f"{name}.yaml").read_text(encoding="utf-8")
    return text, OmegaConf.to_container(OmegaConf.create(text), resolve=False)


@pytest.mark.parametrize("name", SWEEPS)
def test_the_head_of_a_sweep_says_how_many_runs_it_is(name: str) -> None:
    text, content = sweep(name)
    head = "".join(line for line in text.splitlines(True) if line.startswith("#"))
    assert head.startswith("# @package _global_\n")
    assert content["hydra"]["mode"] == "MULTIRUN"
    stated = re.search(r"([\d,]+) runs", head)
    assert stated is not None
    params = content["hydra"]["sweeper"]["params"]
    values = {key: str(value).split(",") for key, value in params.items()}
    assert all(len(set(v)) == len(v) for v in values.values())
    assert int(stated[1].replace(",", "")) == math.prod(map(len, values.values()))


@pytest.mark.runs
@pytest.mark.parametrize("name", SWEEPS)
def test_the_choices_of_a_sweep_exist_and_its_first_run_composes(name: str, tmp_path: Path) -> None:
    params = sweep(name)[1]["hydra"]["sweeper"]["params"]
    values = {key: str(value).split(",") for key, value in params.items()}
    for group in set(GROUPS) & set(values):
        assert {(group, choice) for choice in values[group]} <= set(CHOICES)
    words = [f"{key}={value[0]}" for key, value in values.items()]
    (job,) = plan.plan([*words, f"results_dir={tmp_path}/r", f"cache_dir={tmp_path}/c"])
    assert str(job.run.epochs) == values["epochs"][0]


@pytest.mark.runs
def test_a_preset_expands_to_its_runs(tmp_path: Path) -> None:
    words = [f"results_dir={tmp_path}/r", f"cache_dir={tmp_path}/c"]
    jobs = plan.plan(["+sweeps=minilm_small", "max_length=64", *words])
    assert len(jobs) == len({job.folder for job in jobs}) == 3 * 4 * 8
    assert {job.run.task.name for job in jobs} == {"mrpc", "rte", "cola", "stsb"}
    assert {job.run.epochs for job in jobs} == {4}
    assert {job.run.max_length for job in jobs} == {64}, "what is typed wins"
    assert {job.run.student.arguments["keep_layers"][1] for job in jobs} == {4}


@pytest.mark.parametrize(
    ("name", "runs"),
    [("rail_table2", 2880), ("rail_table3", 2880), ("rail_table4", 2100), ("rail_table6", 1080)],
)
def test_the_paper_s_grid(name: str, runs: int) -> None:
    """4 learning rates, 3 batch sizes, 5 seeds, 40 epochs (RAIL-KD, section 4)."""
    params = sweep(name)[1]["hydra"]["sweeper"]["params"]
    assert sorted(map(float, params["lr"].split(","))) == [4e-6, 1e-5, 2e-5, 5e-5]
    assert params["batch_size"] == "8,16,32"
    assert params["seed"] == "0,1,2,3,4"
    assert params["epochs"] == 40
    assert {"finetune", "vanilla", "rail_l", "rail_c"} <= set(params["method"].split(","))
    pairs = {
        "rail_table2": ("bert_base", "distilbert"),
        "rail_table3": ("roberta_large", "distilroberta"),
        "rail_table4": ("roberta_base", "distilroberta"),
        "rail_table6": ("bert_base", "distilbert"),
    }
    assert (params["teacher"], params["student"]) == pairs[name]
    assert ("stsb" in params["task"]) == (name in ("rail_table2", "rail_table3"))
    assert math.prod(len(str(v).split(",")) for v in params.values()) == runs


# ------------------------------------------------------------------------------------ wrong words


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["method=rail_k"], ["method=rail_k is unknown", "did you mean rail_", "vanilla"]),
        (["method=RAIL_L"], ["method=RAIL_L is unknown", "rail_l"]),
        (["task=mrcp"], ["task=mrcp is unknown", "did you mean mrpc"]),
        (["teacher=bert_bas"], ["teacher=bert_bas is unknown", "did you mean bert_base"]),
        (["student=tiny5"], ["student=tiny5 is unknown", "did you mean tiny6"]),
        (["-m", "method=pkd,alpp"], ["method=alpp is unknown", "did you mean alp"]),
        (["epoch=3"], ["epoch is no setting", "did you mean epochs"]),
        (["learning_rate=1"], ["learning_rate is no setting", "lr"]),
        (["batchsize=3"], ["batchsize is no setting", "did you mean batch_size"]),
        (["+epochs=3"], ["+epochs=3: settings are neither added nor removed; type epochs=VALUE"]),
        (["~method"], ["~method: settings are neither added nor removed"]),
        (["method=pkd", "+method.projection=shared"], ["+method.projection=shared: settings are"]),
        (
            ["method.temprature=3"],
            ["method.temprature is no setting for method=rail_l", "did you mean temperature"],
        ),
        (
            ["method.weights.kdd=3"],
            ["method.weights.kdd is no setting", "did you mean kd"],
        ),
        (["teacher.recipe.epoch=3"], ["teacher.recipe.epoch is no setting", "did you mean epochs"]),
        (["lr.warm=3"], ["lr.warm is no setting"]),
        (["+sweeps=rail_tabel2"], ["rail_table2"]),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else None,
)
def test_a_mistyped_word_is_answered_with_the_right_one(
    words: list[str], expected: list[str]
) -> None:
    message = refused(*words)
    for part in expected:
        assert part in message


@pytest.mark.parametrize(
    ("words", "setting"),
    [
        (["method=finetune", "method.temperature=5"], "method.temperature"),
        (["method=vanilla", "method.projection_width=64"], "method.projection_width"),
        (["method=rail_c", "method.projection=per_layer"], "method.projection"),
        (["method=vanilla", "method.weights.rail=1"], "method.weights.rail"),
        (["student=distilbert", "student.layers=3"], "student.layers"),
    ],
)
def test_a_setting_without_effect_for_the_choice_is_refused(
    words: list[str], setting: str, tmp_path: Path
) -> None:
    message = refused(*words, f"results_dir={tmp_path}/r", f"cache_dir={tmp_path}/c")
    assert f"{setting} is no setting for {words[0]}" in message
    assert "no effect" in message


@pytest.mark.parametrize(
    "words", [["method=rail_l,pkd"], ["seed=0,1", "method=pkd"], ["lr=1e-5,2e-5"]]
)
def test_several_values_without_m_say_what_to_type(words: list[str]) -> None:
    message = refused(*words)
    swept = next(word for word in words if "," in word)
    assert f"{swept} gives several values: add -m" in message
    assert f"python -m ilkd_bench.run -m {' '.join(words)}" in message


@pytest.mark.parametrize(
    ("word", "part"),
    [("method=", "method="), ("seed", "seed"), ("lr=[1", "[1"), ("seed={a", "{a")],
)
def test_a_word_that_hydra_cannot_read_is_one_readable_message(word: str, part: str) -> None:
    message = refused(word)
    assert part in message and "Traceback" not in message


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["batch_size=0"], "batch_size=0: allowed is a whole number of at least 1"),
        (["lr=-1"], "lr=-1: allowed is a number above 0"),
        (["epochs=many"], "epochs=many: allowed is a whole number of at least 1"),
        (["-m", "seed=0,-1"], "seed=-1: allowed is a whole number of at least 0"),
    ],
)
def test_a_wrong_value_is_refused_before_anything_is_written(
    words: list[str], expected: str, tmp_path: Path
) -> None:
    assert refused(*words, f"results_dir={tmp_path}/r", f"cache_dir={tmp_path}/c") == expected
    assert not (tmp_path / "r").exists()


def test_a_results_folder_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    message = refused(f"results_dir={tmp_path}/file/r", f"cache_dir={tmp_path}/c")
    assert message.startswith(f"results_dir={tmp_path}/file/r cannot be written: ")


def test_a_full_disk_is_noticed_before_anything_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(plan.os, "fsync", full)
    message = refused(f"results_dir={tmp_path}/r", f"cache_dir={tmp_path}/c")
    assert message == f"results_dir={tmp_path}/r cannot be written: No space left on device"


# --------------------------------------------------------------------------------------- the plan


def test_a_plan_has_each_run_once_in_the_order_typed(tmp_path: Path) -> None:
    words = toys.small(tmp_path, "method=pkd,rail_l", "seed=1,0,1")
    jobs = plan.plan(["-m", *words])
    assert [(j.run.method.name, j.run.seed) for j in jobs] == [
        ("pkd", 1),
        ("pkd", 0),
        ("rail_l", 1),
        ("rail_l", 0),
    ]


def test_the_plan_is_what_hydra_composes(tmp_path: Path) -> None:
    """Plain values are applied without composing again; the result must be the same."""
    words = toys.small(tmp_path, "method=pkd", "task=demo_nli", "lr=3e-4", "patience=null")
    (job,) = plan.plan(words)
    assert job.run.but(data={}) == toys.run(*words)


def test_values_with_commas_and_slashes_stay_whole(tmp_path: Path) -> None:
    words = toys.small(tmp_path, "student.teacher_layers=[1,3]", "student.layers=2")
    (job,) = plan.plan(words)
    assert job.run.student.teacher_layers == [1, 3]
    assert job.folder.parent.name == "rail_l"
