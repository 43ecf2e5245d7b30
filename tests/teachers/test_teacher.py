"""Teachers: made once, checked, kept, and asked for their outputs."""

from __future__ import annotations

import json
import logging
import math
import multiprocessing
import os
from fractions import Fraction
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toys
from safetensors.torch import load_file

from ilkd_bench.data.batches import Split
from ilkd_bench.data.tasks import Task
from ilkd_bench.plumbing.files import log
from ilkd_bench.teachers import finetuned
from ilkd_bench.teachers.finetuned import obtain
from ilkd_bench.teachers.live import LiveTeacher, snapshot_at
from ilkd_bench.training import evaluation
from ilkd_bench.types import BadInput, Incompatible

LOGITS = frozenset({"logits"})


class Maker:
    """Makes a teacher whose weights tell how often one was made."""

    def __init__(self, epochs: int = 3) -> None:
        self.made = 0
        self.epochs = epochs

    def __call__(self, aside: Path, snapshots: bool) -> dict[str, Any]:
        self.made += 1
        finetuned.save_weights(toys.model(seed=self.made), aside / "model.safetensors")
        for epoch in range(self.epochs if snapshots else 0):
            path = aside / "snapshots" / f"epoch-{epoch + 1:03d}.safetensors"
            finetuned.save_weights(toys.model(seed=100 * self.made + epoch), path)
        return {"best_epoch": 2, "seconds": 1.5, "snapshots": snapshots}


def get(root: Path, make: Any, snapshots: bool = False) -> dict[str, Any]:
    return obtain(root / "teachers" / "t", make, snapshots=snapshots)


def contents(folder: Path) -> dict[str, bytes]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def rot(path: Path) -> None:
    """Flip a bit, and put the time back."""
    content, stat = bytearray(path.read_bytes()), path.stat()
    content[len(content) // 2] ^= 4
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def batch(count: int = 6) -> dict[str, Any]:
    return toys.split(count)[np.arange(count)]


# ------------------------------------------------------------------------------------------ storing


def test_a_teacher_is_made_once_and_then_read(tmp_path: Path) -> None:
    make = Maker()
    first = get(tmp_path, make)
    before = contents(tmp_path / "teachers/t")
    second = get(tmp_path, make)
    assert make.made == 1
    assert {k: second[k] for k in first} == first
    assert contents(tmp_path / "teachers/t") == before
    assert set(before) == {"model.safetensors", "teacher.json", "used"}


@pytest.mark.parametrize(
    "damage",
    ["flipped", "rotten", "truncated", "missing", "half_json", "no_json", "empty_json", "facts"],
)
def test_a_damaged_teacher_is_noticed_and_made_again(damage: str, tmp_path: Path) -> None:
    make = Maker()
    get(tmp_path, make)
    folder = tmp_path / "teachers/t"
    weights, facts = folder / "model.safetensors", folder / "teacher.json"
    content = weights.read_bytes()
    if damage == "flipped":
        weights.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        os.utime(weights, ns=(1, 1))
    elif damage == "rotten":
        rot(weights)
    elif damage == "facts":
        facts.write_text(facts.read_text().replace('"best_epoch": 2', '"best_epoch": 3'))
    elif damage == "truncated":
        weights.write_bytes(content[:-10])
    elif damage == "missing":
        weights.unlink()
    elif damage == "half_json":
        facts.write_bytes(facts.read_bytes()[:20])
    elif damage == "no_json":
        facts.unlink()
    else:
        facts.write_text("{}")
    assert get(tmp_path, make)["best_epoch"] == 2
    assert make.made == 2
    assert torch.equal(
        load_file(weights)["classifier.weight"], toys.model(seed=2).hf.classifier.weight
    )
    get(tmp_path, make)
    assert make.made == 2, "and then it is whole"


def with_tokenizer(make: Maker) -> Any:
    def both(aside: Path, snapshots: bool) -> dict[str, Any]:
        toys.model().tokenizer.save_pretrained(aside)
        (aside / "config.json").write_text("{}")
        return make(aside, snapshots)

    return both


@pytest.mark.parametrize("name", ["tokenizer.json", "config.json"])
def test_every_file_of_a_teacher_is_verified(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    make = Maker()
    get(tmp_path, with_tokenizer(make))
    (tmp_path / "teachers/t/README.md").write_text("a note of the user")
    get(tmp_path, with_tokenizer(make))
    assert make.made == 1 and not caplog.records
    rot(tmp_path / "teachers/t" / name)
    get(tmp_path, with_tokenizer(make))
    assert make.made == 2 and "the stored teacher t is damaged and is made again" in caplog.text


def test_a_teacher_of_an_earlier_version_stays_and_its_hashes_are_added(tmp_path: Path) -> None:
    make, folder = Maker(), tmp_path / "teachers/t"
    get(tmp_path, with_tokenizer(make))
    facts = json.loads((folder / "teacher.json").read_text())
    del facts["seal"]
    facts["files"] = {"model.safetensors": facts["files"]["model.safetensors"]}
    (folder / "teacher.json").write_text(json.dumps(facts))
    get(tmp_path, with_tokenizer(make))
    assert make.made == 1
    rot(folder / "tokenizer.json")
    get(tmp_path, with_tokenizer(make))
    assert make.made == 2


class Stop(KeyboardInterrupt):
    """A kill, which leaves what is there."""


class Halved(Maker):
    """Is killed after half a training, and goes on with it; it notes where it found one."""

    def __init__(self) -> None:
        super().__init__()
        self.kill = True
        self.found: list[str] = []

    def __call__(self, aside: Path, snapshots: bool) -> dict[str, Any]:
        if (aside / "half").exists():
            self.found.append(aside.name)
        (aside / "half").touch()
        if self.kill:
            raise Stop
        (aside / "half").unlink()
        return super().__call__(aside, snapshots)


def killed(root: Path, make: Halved, *, snapshots: bool) -> None:
    with pytest.raises(Stop):
        get(root, make, snapshots)


def left(root: Path) -> list[str]:
    return sorted(p.name for p in (root / "teachers").iterdir() if p.is_dir())


def test_a_half_training_with_snapshots_serves_who_needs_none(tmp_path: Path) -> None:
    make = Halved()
    killed(tmp_path, make, snapshots=True)
    killed(tmp_path, make, snapshots=False)
    assert left(tmp_path) == [".t.snapshots"]
    make.kill = False
    assert get(tmp_path, make)["snapshots"] and make.found == [".t.snapshots"] * 2
    assert left(tmp_path) == ["t"]
    get(tmp_path, make, snapshots=True)
    assert make.made == 1


def test_a_half_training_that_nobody_can_go_on_with_is_removed(tmp_path: Path) -> None:
    make = Halved()
    killed(tmp_path, make, snapshots=False)
    assert left(tmp_path) == [".t.best"]
    killed(tmp_path, make, snapshots=True)
    assert left(tmp_path) == [".t.snapshots"]
    make.kill = False
    get(tmp_path, make, snapshots=True)
    assert left(tmp_path) == ["t"]
    (tmp_path / "teachers/.t.snapshots").mkdir()
    (tmp_path / "teachers/.t.best").mkdir()
    get(tmp_path, make)
    assert left(tmp_path) == ["t"]


def test_half_the_snapshots_of_a_stored_teacher_wait_for_who_needs_them(tmp_path: Path) -> None:
    make = Halved()
    make.kill = False
    get(tmp_path, make)
    make.kill = True
    killed(tmp_path, make, snapshots=True)
    get(tmp_path, make)
    assert left(tmp_path) == [".t.snapshots", "t"]
    make.kill = False
    get(tmp_path, make, snapshots=True)
    assert make.found == [".t.snapshots"] and left(tmp_path) == ["t"]


def test_snapshots_are_added_and_the_stored_teacher_stays_as_it_is(tmp_path: Path) -> None:
    make, folder = Maker(), tmp_path / "teachers/t"
    get(tmp_path, make)
    weights = (folder / "model.safetensors").read_bytes()
    facts = get(tmp_path, make, snapshots=True)
    assert make.made == 2 and facts["snapshots"]
    assert (folder / "model.safetensors").read_bytes() == weights
    assert [p.name for p in finetuned.snapshot_paths(folder)] == [
        f"epoch-00{i}.safetensors" for i in (1, 2, 3)
    ]
    before = contents(folder)
    get(tmp_path, make, snapshots=True)
    get(tmp_path, make, snapshots=False)
    assert make.made == 2 and contents(folder) == before


def test_damaged_snapshots_are_noticed(tmp_path: Path) -> None:
    make, folder = Maker(), tmp_path / "teachers/t"
    get(tmp_path, make, snapshots=True)
    finetuned.snapshot_paths(folder)[1].unlink()
    get(tmp_path, make, snapshots=True)
    assert make.made == 2 and len(finetuned.snapshot_paths(folder)) == 3


def test_a_teacher_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    def fail(aside: Path, snapshots: bool) -> dict[str, Any]:
        (aside / "half.safetensors").write_bytes(b"x")
        raise RuntimeError("out of memory")

    with pytest.raises(RuntimeError, match="out of memory"):
        get(tmp_path, fail)
    assert not [p for p in (tmp_path / "teachers").iterdir() if p.is_dir()]
    make = Maker()
    get(tmp_path, make)
    assert make.made == 1, "and the lock is free"


def _hold(root: Path, started: Event, other_waits: Event) -> None:
    """In another process: make the teacher, but not before the other one waits for it."""

    def make(aside: Path, snapshots: bool) -> dict[str, Any]:
        started.set()
        assert other_waits.wait(120)
        return Maker()(aside, snapshots)

    get(root, make)


@pytest.mark.runs
def test_two_processes_make_a_teacher_once(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    started, waiting = context.Event(), context.Event()
    process = context.Process(target=_hold, args=(tmp_path, started, waiting))
    process.start()
    try:
        assert started.wait(120)

        class Waits(logging.Handler):
            def emit(self, record: logging.LogRecord) -> None:
                if record.getMessage().startswith("waiting: another run is training"):
                    waiting.set()

        handler = Waits()
        log.addHandler(handler)
        level = log.level
        log.setLevel(logging.INFO)
        make = Maker()
        try:
            facts = get(tmp_path, make)
        finally:
            log.removeHandler(handler)
            log.setLevel(level)
        process.join(120)
        assert process.exitcode == 0
        assert waiting.is_set() and make.made == 0 and facts["best_epoch"] == 2
    finally:
        if process.is_alive():
            process.kill()
        process.join()


def test_weights_of_another_model_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "w.safetensors"
    finetuned.save_weights(toys.model(layers=3), path)
    with pytest.raises(BadInput, match="does not hold this model's weights"):
        finetuned.load_weights(toys.model(layers=2), path)
    path.write_bytes(path.read_bytes()[:-7])
    with pytest.raises(BadInput, match=str(path)):
        finetuned.load_weights(toys.model(layers=3), path)


# ---------------------------------------------------------------------------------------- answering


def test_a_live_teacher_is_frozen_in_eval_mode_and_shows_no_graph() -> None:
    model = toys.model().train()
    live = LiveTeacher(model)
    assert not any(part.training for part in model.modules())
    assert not any(p.requires_grad for p in model.parameters())
    first, second = (live.outputs(batch(), frozenset({"logits", "cls", "mean"})) for _ in (0, 1))
    assert not first.logits.requires_grad and not first.mean.requires_grad
    assert torch.equal(first.logits, second.logits), "no dropout"
    assert not isinstance(live, torch.nn.Module)
    assert live.spec == model.spec


def test_logits_come_in_the_task_s_label_order() -> None:
    model = toys.model(classes=3)
    plain = LiveTeacher(model).outputs(batch(), LOGITS).logits
    ordered = LiveTeacher(model, label_order=[2, 0, 1]).outputs(batch(), LOGITS).logits
    assert torch.equal(ordered, torch.stack([plain[:, 2], plain[:, 0], plain[:, 1]], dim=1))


@pytest.mark.parametrize(
    ("at", "epoch"),
    [(0.01, 0), (0.25, 0), (0.26, 1), (0.5, 1), (0.75, 2), (0.76, 3), (1.0, 3), (None, "best")],
)
def test_a_moment_of_training_is_the_first_snapshot_at_or_after_it(
    at: float | None, epoch: int | str, tmp_path: Path
) -> None:
    paths, expected = [], {}
    for number in range(4):
        kept = toys.model(seed=10 + number)
        paths.append(tmp_path / f"epoch-{number + 1:03d}.safetensors")
        finetuned.save_weights(kept, paths[-1])
        expected[number] = kept.outputs(batch()["teacher"], LOGITS).logits
    model = toys.model(seed=1)
    expected["best"] = model.outputs(batch()["teacher"], LOGITS).logits
    live = LiveTeacher(model, snapshots=paths)
    assert torch.equal(live.outputs(batch(), LOGITS, at).logits, expected[epoch])
    assert torch.equal(live.outputs(batch(), LOGITS).logits, expected["best"]), "and back"


def test_rounding_never_skips_a_snapshot() -> None:
    """A fraction of two whole numbers is not exact in binary; the rule holds for the exact one."""
    for count in range(1, 13):
        for epochs in range(1, 41):
            found = [snapshot_at((epoch + 1) / epochs, count) for epoch in range(epochs)]
            exact = [math.ceil(Fraction(epoch + 1, epochs) * count) - 1 for epoch in range(epochs)]
            assert found == exact


def test_layers_are_copied_from_the_best_epoch(tmp_path: Path) -> None:
    path = tmp_path / "epoch-001.safetensors"
    finetuned.save_weights(toys.model(seed=9), path)
    live = LiveTeacher(toys.model(seed=1), snapshots=[path])
    live.outputs(batch(), LOGITS, 1.0)
    expected = toys.model(seed=1).hf.classifier.weight
    assert torch.equal(live.model.hf.classifier.weight, expected)


def test_following_a_training_needs_snapshots() -> None:
    finetuned.require_snapshots(None, True)
    finetuned.require_snapshots("folder", False)
    with pytest.raises(Incompatible, match=r"teacher\.checkpoint has no snapshots"):
        finetuned.require_snapshots("folder", True)


# ---------------------------------------------------------------------------------------- measuring


class Answers:
    """A teacher that gives fixed predictions by row number."""

    def __init__(self, answers: list[int], classes: int = 2) -> None:
        self.logits = torch.nn.functional.one_hot(torch.tensor(answers), classes).float()

    def to(self, device: torch.device) -> None: ...

    def outputs(self, batch: Any, needs: Any, at: Any = None) -> Any:
        return toys.Outputs(self.logits[batch["index"]], batch["teacher"]["attention_mask"])


def measure(answers: list[int], labels: list[int], metric: str, weak: bool = False) -> Any:
    task = Task("t", ["a"], "label", ["no", "yes"], None, metric, ["accuracy"], {}, [], None, {})
    tokens = toys.encoded([4 + i for i in range(len(labels))])
    dev = Split(torch.tensor(labels), torch.arange(len(labels)), tokens, tokens)
    return evaluation.measure_teacher(
        Answers(answers), task, dev, allow_weak=weak, device=torch.device("cpu"), batch_size=3
    )


LABELS = [0, 0, 0, 1, 1, 1, 1, 1, 1, 1]  # 70 % are 1


def test_a_teacher_is_measured_on_dev() -> None:
    scores = measure([0, 0, 1, *[1] * 7], LABELS, "mcc")
    assert scores["accuracy"] == pytest.approx(0.9) and scores["n"] == 10
    assert scores["mcc"] == pytest.approx((7 * 2 - 1 * 0) / (8 * 7 * 3 * 2) ** 0.5)


@pytest.mark.parametrize("metric", ["accuracy", "mcc", "f1"])
@pytest.mark.parametrize("answers", [[1] * 10, [0, 0, 0, 0, 0, 0, 1, 1, 1, 1]], ids=["one", "70%"])
def test_a_teacher_no_better_than_one_answer_is_refused_unless_allowed(
    metric: str, answers: list[int]
) -> None:
    with pytest.raises(BadInput) as error:
        measure(answers, LABELS, metric)
    message = str(error.value)
    assert "no better than always giving one answer (0.7000)" in message
    for word in ("teacher.checkpoint=", "teacher.recipe.epochs=", "teacher.allow_weak=true"):
        assert word in message
    assert measure(answers, LABELS, metric, weak=True)["accuracy"] == pytest.approx(0.7)


@pytest.mark.parametrize(("value", "what"), [(math.nan, "NaN"), (math.inf, "infinite numbers")])
def test_a_teacher_that_answers_with_no_numbers_is_refused_even_if_weak_ones_are_allowed(
    value: float, what: str
) -> None:
    task = Task("t", ["a"], "label", ["no", "yes"], None, "accuracy", [], {}, [], None, {})
    broken = Answers([0, 1, 0, 1])
    broken.logits[2, 0] = value
    how = {"device": torch.device("cpu"), "batch_size": 3}
    with pytest.raises(BadInput) as error:
        evaluation.measure_teacher(broken, task, toys.split(4), allow_weak=True, **how)
    message = str(error.value)
    assert f"the teacher answers with {what} (logits)" in message
    assert "teacher.checkpoint=" in message and "teacher.recipe.lr=" in message


def test_a_weak_teacher_of_scores_is_refused() -> None:
    task = Task("t", ["a"], "label", None, [0, 5], "pearson", ["spearman"], {}, [], None, {})
    dev = toys.split(8, classes=1)

    class Constant(Answers):
        def __init__(self) -> None:
            self.logits = torch.full((8, 1), 2.5)

    how = {"device": torch.device("cpu"), "batch_size": 3}
    with pytest.raises(BadInput, match=r"the teacher scores 0\.0000 \(pearson\) on dev"):
        evaluation.measure_teacher(Constant(), task, dev, allow_weak=False, **how)


def test_facts_of_a_stored_teacher_tell_the_files_they_belong_to(tmp_path: Path) -> None:
    get(tmp_path, Maker(), snapshots=True)
    stored = json.loads((tmp_path / "teachers/t/teacher.json").read_text())
    assert set(stored["files"]) == {
        "model.safetensors",
        *(f"snapshots/epoch-00{i}.safetensors" for i in (1, 2, 3)),
    }
