"""Teaching assistants: which, how they are taught, and that each is made once."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pairs
import pytest
import torch
import toys
from closeness import close
from safetensors.torch import load_file
from transformers import AutoModelForSequenceClassification

from ilkd_bench.data import tasks
from ilkd_bench.jobs import plan as planning
from ilkd_bench.methods.takd import TAKD
from ilkd_bench.models import build
from ilkd_bench.records import cells
from ilkd_bench.settings import groups, identity
from ilkd_bench.settings.run import require_effect
from ilkd_bench.teachers.live import LiveTeacher
from ilkd_bench.training import make_teacher, train
from ilkd_bench.types import BadInput, Incompatible

CHAIN = ("method=takd", "student.layers=1")
"""3 layers teach 2, which teach 1."""

SIZES: dict[str, Any] = {
    **{"layers": 1, "width": 8, "heads": 1, "intermediate": 8, "positions": 128, "dropout": 0},
    **{"initializer_range": 0.1, "residual_scale": 0.1, "first_score": 0},
}


def takd(assistants: Any, student: int = 6, teacher: int = 12) -> TAKD:
    return TAKD(toys.spec(student), toys.spec(teacher), temperature=1, assistants=assistants)


@pytest.mark.parametrize(
    ("student", "teacher", "expected"), [(6, 12, 9), (3, 6, 5), (6, 24, 15), (2, 4, 3)]
)
def test_auto_is_one_assistant_halfway(student: int, teacher: int, expected: int) -> None:
    assert takd("auto", student, teacher).assistants == (expected,)


def test_a_chain_may_have_any_length_and_name_students() -> None:
    assert takd([11, 9, 7]).assistants == (11, 9, 7)
    assert takd("bert_6").assistants == takd(["bert_6"]).assistants == ("bert_6",)
    assert takd(9).assistants == takd([9]).assistants == (9,)
    assert takd([10, "bert_6"]).assistants == (10, "bert_6")


@pytest.mark.parametrize("wrong", [[7, 9], [12], [6], [13], [9, 9]])
def test_assistants_stand_between_teacher_and_student(wrong: list[int]) -> None:
    with pytest.raises(Incompatible, match="12 and a student of 6"):
        takd(wrong)


def test_a_pair_without_a_depth_between_is_incompatible() -> None:
    with pytest.raises(Incompatible, match="4 and a student of 3"):
        takd("auto", 3, 4)


@pytest.mark.parametrize("wrong", [[], 0, [2.5], [True], None, [-1], ["auto"], [9, "auto"]])
def test_other_values_are_bad_input(wrong: Any) -> None:
    with pytest.raises(BadInput, match=r"method\.assistants"):
        takd(wrong)


def plan(folder: Path, *words: str) -> Any:
    typed = {word.partition("=")[0] for word in words}
    chain = [word for word in CHAIN if word.partition("=")[0] not in typed]
    (job,) = planning.plan(toys.small(folder, *chain, *words))
    return job


def test_an_unknown_student_is_refused_before_anything_runs(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match=r"no student is called rob: allowed are .*roberta_base"):
        plan(tmp_path, "method.assistants=[rob]")


def key(job: Any) -> str:
    return identity.assistant_key(job.run.identity, "a", 1)


@pytest.mark.runs
def test_what_an_assistant_depends_on(tmp_path: Path) -> None:
    plain = plan(tmp_path)
    for same in ("seed=3", "lr=0.5", "batch_size=2", "epochs=7", "student.width=32"):
        assert key(plan(tmp_path, same)) == key(plain), same
        assert plan(tmp_path, same).id != plain.id, same
    for other in (
        *("method.temperature=3", "method.weights.kd=0.9", "method.assistants=[tiny3]"),
        *("teacher.recipe.epochs=2", "teacher.recipe.seed=5", "teacher.layers=4"),
        *("limit_train=32", "max_length=64"),
    ):
        assert key(plan(tmp_path, other)) != key(plain), other
        assert plan(tmp_path, other).id != plain.id, other


def test_an_assistant_depends_on_its_own_training_rows(tmp_path: Path) -> None:
    """Where the teacher has other ones than the student, as in the demo tasks."""
    job = plan(tmp_path)
    assert {"teacher", "train"} <= set(job.run.identity["data"])
    other = job.run.identity | {"data": job.run.identity["data"] | {"train": "others"}}
    assert identity.assistant_key(other, "a", 1) != key(job)
    assert identity.teacher_key(other) == identity.teacher_key(job.run.identity)


def test_methods_without_assistants_do_not_speak_of_them(tmp_path: Path) -> None:
    (job,) = planning.plan(toys.small(tmp_path, "method=vanilla"))
    assert "assistants" not in job.run.identity


def test_runs_with_and_without_assistants_share_a_table(tmp_path: Path) -> None:
    vanilla, *others = [
        cells.place(plan(tmp_path, *words).run.identity)
        for words in (["method=vanilla"], [], ["method.assistants=tiny3"])
    ]
    assert [other["method"] for other in others] == ["takd", "takd (assistants=tiny3)"]
    for other in others:
        assert (other["section"], other["task"]) == (vanilla["section"], vanilla["task"])


def test_the_recipe_counts_next_to_a_given_teacher(tmp_path: Path) -> None:
    run = toys.run("method=takd", "teacher.checkpoint=x")
    require_effect(run, {"teacher.recipe.epochs", "teacher.checkpoint"})
    with pytest.raises(BadInput, match=r"teacher\.layers has no effect"):
        require_effect(run, {"teacher.layers", "teacher.checkpoint"})


def test_recipes_next_to_a_given_teacher_are_told_apart(tmp_path: Path) -> None:
    """Elsewhere the recipe is that of the teacher, and of the whole table."""
    config = plan(tmp_path).run.identity
    given = config | {"teacher": {"name": "tiny12", "checkpoint": "abc"}}
    usual = groups.defaults("teacher", "tiny12")["recipe"]
    for recipe, told in ((usual, "takd"), (usual | {"epochs": 3}, "takd (recipe.epochs=3)")):
        made = given | {"assistants": config["assistants"] | {"recipe": recipe}}
        assert cells.place(made)["method"] == told


def test_a_weak_assistant_is_refused_by_name(tmp_path: Path) -> None:
    """A teacher that is accepted, and an assistant of random weights that has learned nothing."""
    words = ("teacher.allow_weak=false", "method.assistants=tiny3", "limit_eval=64")
    job = plan(tmp_path, *words, "teacher.layers=12", "teacher.recipe.epochs=1")
    model = build.tiny(**SIZES, labels=["a", "b"], seed=0)
    weak = LiveTeacher(model, name="tiny3")
    with torch.no_grad():
        model.hf.classifier.weight.zero_()
        model.hf.classifier.bias.copy_(torch.tensor([1.0, 0.0]))  # one answer
    with pytest.raises(BadInput, match=r"the assistant tiny3 scores .*teacher\.allow_weak=true"):
        make_teacher._refuse_weak(job.run, weak)
    allowing = job.run.teacher.model_copy(update={"allow_weak": True})
    make_teacher._refuse_weak(job.run.but(teacher=allowing), weak)


@pytest.mark.parametrize("family", ["bert", "roberta", "distilbert"])
def test_labels_in_another_order_are_put_right(family: str) -> None:
    """The outputs of a checkpoint whose labels are b, c, a are those of a, b, c afterwards."""
    model = copy.deepcopy(pairs.model(pairs.Side(family), 3, seed=0))
    rows = {"input_ids": torch.tensor([[5, 6, 7]]), "attention_mask": torch.ones(1, 3).long()}
    with torch.no_grad():
        before = model.hf.eval()(**rows).logits
        build.relabel(model.hf, [2, 0, 1], ["a", "b", "c"])
        after = model.hf(**rows).logits
    close(after, before[:, [2, 0, 1]])
    assert model.hf.config.id2label == {0: "a", 1: "b", 2: "c"}
    assert model.hf.config.label2id == {"a": 0, "b": 1, "c": 2}


def ran(job: Any) -> dict[str, Any]:
    return train.train(job.run, job.folder).model_dump()


@pytest.mark.runs
def test_a_chain_is_distilled_once_and_the_last_one_teaches(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each link learns the logits of the one above, whatever models they are."""
    taught: list[tuple[str, torch.Tensor]] = []
    real = make_teacher.fit
    chain = ("teacher.layers=12", "method.assistants=[2,tiny3]")

    def watching(pupil: Any, method: Any, weights: Any, teacher: Any, *args: Any, **rest: Any):
        if teacher is not None:  # the teacher itself learns from labels
            rows = args[0]["train"][np.arange(8)]
            taught.append((rest["title"], teacher.outputs(rows, frozenset({"logits"})).logits))
        return real(pupil, method, weights, teacher, *args, **rest)

    monkeypatch.setattr(make_teacher, "fit", watching)
    monkeypatch.setattr(train, "fit", watching)
    with caplog.at_level(logging.INFO):
        first, second = ran(plan(tmp_path, *chain)), ran(plan(tmp_path, *chain, "seed=1"))
    made = [line for line in caplog.messages if line.startswith("distilling the assistant")]
    assert made == [
        f"distilling the assistant {name} on demo_sentiment, once for all runs"
        for name in ("tiny12-2", "tiny3")
    ]
    assert first["teacher"]["assistants"] == second["teacher"]["assistants"]
    assert [one["name"] for one in first["teacher"]["assistants"]] == ["tiny12-2", "tiny3"]

    stored = {path.name.split("-demo")[0]: path for path in (tmp_path / "cache/teachers").iterdir()}
    assert set(stored) >= {"tiny12", "tiny12-2", "tiny3"}
    above = ["tiny12", "tiny12-2", "tiny3", "tiny3"]
    assert [title.split()[0] for title, _ in taught] == ["assistant", "assistant", "takd", "takd"]
    rows = batch(plan(tmp_path, *chain))
    for name, (title, shown) in zip(above, taught, strict=True):
        model = AutoModelForSequenceClassification.from_pretrained(stored[name]).eval()
        with torch.no_grad():
            expected = model(**rows).logits
        close(shown, expected, name=title)


def batch(job: Any) -> dict[str, torch.Tensor]:
    """The first 8 training rows as the demo models read them, made by the plain tokenizer."""
    task = job.run.task
    rows = tasks.read(task, "train", data_dir=None, limit=64)
    tokenizer = build.tiny(**SIZES, labels=task.labels, seed=0).tokenizer
    read = tokenizer(
        [text[0] for text in zip(*rows.texts, strict=True)][:8], padding=True, return_tensors="pt"
    )
    return dict(read)


def test_an_assistant_cut_from_the_teacher_starts_from_its_layers(tmp_path: Path) -> None:
    job = plan(tmp_path, "teacher.recipe.lr=1e-12", "method.assistants=[2]", "teacher.layers=3")
    ran(job)
    folders = {p.name.split("-demo")[0]: p for p in (tmp_path / "cache/teachers").iterdir()}
    teacher = load_file(folders["tiny12"] / "model.safetensors")
    cut = load_file(folders["tiny12-2"] / "model.safetensors")
    for mine, its in ((0, 0), (1, 2)):  # layers 1 and 3 of 3, from 0
        names = [n for n in cut if n.startswith(f"bert.encoder.layer.{mine}.")]
        assert names
        for name in names:
            other = name.replace(f"layer.{mine}.", f"layer.{its}.")
            torch.testing.assert_close(cut[name], teacher[other], rtol=0, atol=1e-8)
    torch.testing.assert_close(cut["classifier.weight"], teacher["classifier.weight"])
