"""Whole runs in one process: other families, own rows, and the same numbers every time."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
import toys
from families import save
from safetensors.torch import load_file

from ilkd_bench.data import batches
from ilkd_bench.jobs import plan
from ilkd_bench.jobs.job import Job
from ilkd_bench.models import build
from ilkd_bench.training import inputs, train
from ilkd_bench.types import BadInput, Incompatible

pytestmark = pytest.mark.runs

ROBERTA_WORDS = [*reversed(toys.WORDS), "more", "words", "here"]


def write_rows(folder: Path, *, count: int = 40, hidden: bool = False) -> Path:
    """`custom` rows: a sentence is `yes` when it says good or fine."""
    generator = random.Random(0)
    (folder / "custom").mkdir(parents=True)
    for split, rows in (("train", count), ("validation", 16), ("test", 10)):
        lines = []
        for number in range(rows):
            word = ("bad", "poor", "good", "fine")[2 * (number % 2) + generator.randrange(2)]
            filler = " ".join(generator.choices(("the", "a", "film", "cup", "was"), k=number % 7))
            label = -1 if hidden and split == "test" else number % 2
            lines.append(json.dumps({"sentence": f"{filler} {word}".strip(), "label": label}))
        (folder / "custom" / f"{split}.jsonl").write_text("\n".join(lines))
    return folder


def own(folder: Path, teacher: Path, student: Path, *words: str) -> Job:
    """A run on own rows with the models of two folders."""
    (job,) = plan.plan(
        toys.last(
            "task=custom",
            "task.hidden=[]",
            f"data_dir={folder / 'data'}",
            "teacher=roberta_base",
            f"teacher.path={teacher}",
            "student=distilbert",
            f"student.path={student}",
            "teacher.allow_weak=true",
            "teacher.recipe.epochs=2",
            "teacher.recipe.lr=0.01",
            "lr=0.005",
            "epochs=2",
            "batch_size=8",
            "max_length=16",
            "trainer.accelerator=cpu",
            f"results_dir={folder / 'results'}",
            f"cache_dir={folder / 'cache'}",
            *words,
        )
    )
    return job


def go(job: Job) -> dict[str, Any]:
    job.folder.mkdir(parents=True, exist_ok=True)
    return train.train(job.run, job.folder).model_dump()


@pytest.fixture
def models_on_disk(tmp_path: Path) -> tuple[Path, Path]:
    teacher = save(tmp_path / "teacher", "roberta", layers=4, width=12, words=ROBERTA_WORDS, seed=1)
    return teacher, save(tmp_path / "student", "distilbert", layers=2, width=8, seed=2)


@pytest.mark.parametrize("method", ["rail_l", "pkd", "alp", "pro_kd"])
def test_a_roberta_teaches_a_distilbert_of_another_width_with_other_words(
    method: str, tmp_path: Path, models_on_disk: tuple[Path, Path]
) -> None:
    write_rows(tmp_path / "data")
    job = own(tmp_path, *models_on_disk, f"method={method}")
    record = go(job)
    assert set(record["scores"]) == {"dev", "test"}
    assert record["scores"]["dev"]["n"] == 16 and record["scores"]["test"]["n"] == 10
    assert record["data"]["train"] == 40
    history = pd.read_csv(job.folder / "history.csv")
    assert history["epoch"].tolist() == [1, 2]
    assert np.isfinite(history["loss/total"]).all()
    weights = job.run.method.weights
    assert {c for c in history if c.startswith("loss/")} == {
        "loss/total",
        *(f"loss/{term}" for term in weights),
    }
    for name, folder in zip(("teacher", "student"), models_on_disk, strict=True):
        stored = load_file(folder / "model.safetensors").values()
        assert record["parameters"][name] == sum(value.numel() for value in stored)
    labels = json.loads((job.folder / "student/config.json").read_text())["id2label"]
    assert labels == {"0": "no", "1": "yes"}


@pytest.mark.parametrize("method", ["minilm", "tinybert"])
def test_a_roberta_does_not_teach_a_distilbert_token_by_token(
    method: str, tmp_path: Path, models_on_disk: tuple[Path, Path]
) -> None:
    write_rows(tmp_path / "data")
    with pytest.raises(Incompatible, match=f"{method} compares the models token by token"):
        go(own(tmp_path, *models_on_disk, f"method={method}"))
    assert not (tmp_path / "cache/teachers").exists(), "found before the teacher is fine-tuned"


def test_both_models_read_the_text_of_their_rows(
    tmp_path: Path, models_on_disk: tuple[Path, Path]
) -> None:
    write_rows(tmp_path / "data")
    run = own(tmp_path, *models_on_disk, "method=pkd").run
    teacher, student = (
        build.pretrained(labels=run.task.labels, seed=0, path=str(p), revision=None)
        for p in models_on_disk
    )
    lines = (tmp_path / "data/custom/train.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines]
    split = inputs.read_splits(run, student, teacher)["train"]
    batch = split[batches.batch_order(split.lengths, 8, seed=0, epoch=0)[0]]
    assert len(batch["index"]) == 8
    for number, index in enumerate(batch["index"].tolist()):
        assert batch["labels"][number] == rows[index]["label"]
        for name, model in (("student", student), ("teacher", teacher)):
            mask = batch[name]["attention_mask"][number] == 1
            text = model.tokenizer.decode(
                batch[name]["input_ids"][number][mask], skip_special_tokens=True
            )
            assert text == rows[index]["sentence"], name


def test_hidden_labels_give_no_score_and_no_prediction_file(
    tmp_path: Path, models_on_disk: tuple[Path, Path]
) -> None:
    write_rows(tmp_path / "data", hidden=True)
    for words in (["task.hidden=[test]"], ["task.hidden=[]"]):  # by name, and by their -1
        job = own(tmp_path, *models_on_disk, "method=finetune", "epochs=1", *words)
        assert set(go(job)["scores"]) == {"dev"}
        assert not (job.folder / "predictions/test.parquet").exists()


def test_a_max_length_beyond_the_positions_is_refused_before_training(
    tmp_path: Path, models_on_disk: tuple[Path, Path]
) -> None:
    write_rows(tmp_path / "data")
    job = own(tmp_path, *models_on_disk, "max_length=25", "method=pkd")
    with pytest.raises(BadInput) as error:
        go(job)
    assert str(error.value) == (
        "max_length=25 is beyond the student's 24 positions: allowed is max_length=24 or less"
    )
    assert not (tmp_path / "cache/teachers").exists()


def test_a_weak_teacher_is_refused_before_the_student_trains(
    tmp_path: Path, models_on_disk: tuple[Path, Path]
) -> None:
    write_rows(tmp_path / "data")
    job = own(
        tmp_path,
        *models_on_disk,
        "method=vanilla",
        "teacher.allow_weak=false",
        "teacher.recipe.lr=1e-12",
        "teacher.recipe.epochs=1",
        "teacher.recipe.seed=3",
    )
    with pytest.raises(BadInput, match="no better than always giving one answer"):
        go(job)
    assert not (job.folder / "history.csv").exists()


# ------------------------------------------------------------------------------ given checkpoints


def test_a_given_teacher_is_used_as_it_is_in_the_task_s_label_order(
    tmp_path: Path, models_on_disk: tuple[Path, Path]
) -> None:
    """The same weights with the two labels swapped, in names and in the classifier, are equal."""
    write_rows(tmp_path / "data")
    plain = save(tmp_path / "plain", "bert", layers=3, width=8, seed=4, labels=["no", "yes"])
    swapped = save(tmp_path / "swapped", "bert", layers=3, width=8, seed=4, labels=["YES", "no"])
    model = build.checkpoint(str(swapped), labels=["no", "yes"])[0]
    with torch.no_grad():
        for part in (model.hf.classifier.weight, model.hf.classifier.bias):
            part.copy_(part.flip(0))
    model.hf.save_pretrained(swapped)
    before = {path: path.read_bytes() for path in swapped.iterdir()}
    results = []
    for number, folder in enumerate((plain, swapped)):
        (job,) = plan.plan(
            [
                *(w for w in _words(tmp_path) if not w.startswith("teacher.")),
                "teacher.allow_weak=true",
                f"teacher.checkpoint={folder}",
                f"student.path={models_on_disk[1]}",
                f"results_dir={tmp_path / str(number)}",
                "method=vanilla",
                "epochs=1",
            ]
        )
        record = go(job)
        history = pd.read_csv(job.folder / "history.csv").filter(like="loss/")
        tables = sorted((job.folder / "predictions").rglob("*.parquet"))
        logits = [pd.read_parquet(path).filter(like="logit_") for path in tables]
        results.append((record["teacher"]["dev"], history.to_numpy(), logits))
    # Two sums change places in the classifier, so the last bit may differ; five steps of AdamW at
    # 0.005 move a parameter whose gradient is rounding by 0.05 at most, the loss by its square.
    (dev, losses, logits), (other_dev, other_losses, other_logits) = results
    assert dev == other_dev
    np.testing.assert_allclose(losses, other_losses, rtol=(2 * 0.005 * 5) ** 2)
    for a, b in zip(logits, other_logits, strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=2 * 0.005 * 5)
    assert {path: path.read_bytes() for path in swapped.iterdir()} == before
    assert not (tmp_path / "cache/teachers").exists(), "nothing was fine-tuned"


def _words(folder: Path) -> list[str]:
    return [
        "task=custom",
        "task.hidden=[]",
        f"data_dir={folder / 'data'}",
        "teacher=bert_base",
        "student=distilbert",
        "lr=0.005",
        "batch_size=8",
        "max_length=16",
        "trainer.accelerator=cpu",
        f"cache_dir={folder / 'cache'}",
    ]


def test_following_a_teacher_s_training_needs_a_recipe(
    tmp_path: Path, models_on_disk: tuple[Path, Path]
) -> None:
    write_rows(tmp_path / "data")
    given = save(tmp_path / "given", "bert", labels=["no", "yes"])
    words = [f"teacher.checkpoint={given}", f"student.path={models_on_disk[1]}", "method=pro_kd"]
    (job,) = plan.plan([*_words(tmp_path), *words, f"results_dir={tmp_path / 'r'}", "epochs=2"])
    with pytest.raises(Incompatible, match=r"teacher\.checkpoint has no snapshots"):
        go(job)


# ------------------------------------------------------------------------- the same numbers again


def facts(job: Job, record: dict[str, Any]) -> tuple[Any, ...]:
    """All that a run measured, without times; the same to the last bit in this process."""
    history = pd.read_csv(job.folder / "history.csv").drop(columns="seconds")
    predictions = {
        path.name: path.read_bytes() for path in (job.folder / "predictions").rglob("*.parquet")
    }
    return record["scores"], record["best_epoch"], history.to_csv(), predictions


@pytest.mark.parametrize("method", ["rail_l", "pro_kd", "codir"])
def test_a_run_does_not_depend_on_what_the_process_drew_before(method: str, tmp_path: Path) -> None:
    """Nor on whether the teacher was made in this run; projections come from the seed too."""
    found = []
    for number in range(2):
        words = ["student.width=32", "epochs=2", f"method={method}"]
        (job,) = plan.plan(toys.small(tmp_path, *words, f"results_dir={tmp_path / str(number)}"))
        torch.manual_seed(1234 + number)
        np.random.seed(number)
        random.seed(number)
        found.append(facts(job, go(job)))
    assert found[0] == found[1]


def test_projections_differ_between_seeds_and_are_saved(tmp_path: Path) -> None:
    stored = []
    for seed in (0, 1):
        (job,) = plan.plan(toys.small(tmp_path, "method=rail_l", f"seed={seed}"))
        torch.manual_seed(7)
        go(job)
        stored.append(load_file(job.folder / "method.safetensors"))
    assert set(stored[0]) == {
        f"{side}_projection.{part}"
        for side in ("student", "teacher")
        for part in ("weight", "bias")
    }
    # they start from the seed and hardly move in two steps
    a, b = (s["teacher_projection.weight"] for s in stored)
    assert (a - b).abs().mean() > 0.02


def test_workers_change_nothing_but_the_speed(tmp_path: Path) -> None:
    found = []
    for workers in (0, 2):
        where = [f"results_dir={tmp_path / str(workers)}", f"trainer.workers={workers}"]
        (job,) = plan.plan(toys.small(tmp_path, "method=vanilla", *where))
        torch.manual_seed(0)
        found.append(facts(job, go(job)))
    assert found[0] == found[1]


def test_a_student_of_copied_layers_starts_from_the_fine_tuned_teacher(tmp_path: Path) -> None:
    words = ["student.layers=3", "student.teacher_layers=[1,2,3]", "method=finetune", "lr=1e-12"]
    (job,) = plan.plan(toys.small(tmp_path, *words))
    record = go(job)
    (stored,) = (tmp_path / "cache/teachers").glob("*/model.safetensors")
    teacher, student = load_file(stored), load_file(job.folder / "student/model.safetensors")
    for name, value in student.items():
        if "embeddings" in name or "layer" in name:
            torch.testing.assert_close(value, teacher[name], rtol=0, atol=1e-6)
    assert record["teacher"]["best_epoch"] == 1
