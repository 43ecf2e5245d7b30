"""Banks of tokens: the real tokens of all rows end to end, padded anew for every batch."""

from __future__ import annotations

import errno
import json
import logging
import os
import shutil
import signal
import tracemalloc
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import toys
from closeness import close
from torch import Tensor
from transformers import ConvBertConfig, ConvBertForSequenceClassification

from ilkd_bench.data.batches import Split
from ilkd_bench.models.model import Model
from ilkd_bench.plumbing.files import digest
from ilkd_bench.plumbing.full_disk import NoSpace
from ilkd_bench.settings.run import Run
from ilkd_bench.teachers import bank as bank_files
from ilkd_bench.teachers import banked as banked_teacher
from ilkd_bench.teachers.bank import NoRoom
from ilkd_bench.teachers.banked import BankTeacher, banked
from ilkd_bench.teachers.live import LiveTeacher, Teacher
from ilkd_bench.training import inputs
from ilkd_bench.types import BadInput, Outputs, Phase

CPU = torch.device("cpu")
LENGTHS = [5, 2, 9, 3, 7, 2, 8, 4, 6, 2]
LAYERS, WIDTH, HEADS = 3, 8, 2
INSIDE = frozenset({"hidden", "queries", "keys", "values"})
BOTH = Phase("p", 1, frozenset({"hidden", "queries", "keys", "logits"}), teacher_layers=(0, 2))
WHOLE = Phase("p", 1, INSIDE)


def live(**how: Any) -> LiveTeacher:
    return LiveTeacher(toys.model(layers=LAYERS, **how))


def split(lengths: list[int] = LENGTHS) -> Split:
    """Rows of different lengths, whose numbers have gaps."""
    tokens, count = toys.encoded(lengths), len(lengths)
    return Split(torch.arange(count) % 2, 5 + 3 * torch.arange(count), tokens, tokens)


def build(
    teacher: LiveTeacher,
    rows: Split,
    root: Path,
    *phases: Phase,
    dtype: str = "float32",
    batch_size: int = 4,
    share: float = 1,
) -> BankTeacher:
    return banked(
        teacher,
        rows,
        phases or (BOTH,),
        about={"teacher": "toy", "task": "words", "split": "train"},
        dtype=dtype,
        batch_size=batch_size,
        device=CPU,
        cache_dir=root,
        share=share,
    )


def count_rows(
    teacher: LiveTeacher, then: Callable[[int], None] = lambda number: None
) -> list[int]:
    """A list that grows by the rows of each call; `then` is called before with its number."""
    rows: list[int] = []

    def hook(module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        then(len(rows))
        rows.append(len(kwargs["input_ids"]))

    teacher.model.hf.register_forward_pre_hook(hook, with_kwargs=True)
    return rows


def batches(rows: Split) -> Iterator[dict[str, Any]]:
    """All rows in mixed order, and some of them, one twice: several paddings."""
    order = np.random.default_rng(0).permutation(len(rows))
    for chosen in (order, order[:3], np.array([1]), np.array([3, 6, 3, 0]), np.array([9, 1])):
        yield rows[chosen]


def real(x: Tensor, mask: Tensor) -> Tensor:
    """The vectors of real tokens, [tokens, H], of [B, T, H] or of [B, A, T, D]."""
    joined = x if x.ndim == 3 else x.transpose(1, 2).flatten(2)
    return joined[mask == 1]


def same(found: Outputs, expected: Outputs, phase: Phase, *, half: bool = False) -> None:
    """Compare the real tokens of the layers that a phase asks for; of the others there is none."""
    assert torch.equal(found.mask, expected.mask)
    close(found.logits, expected.logits)
    named = range(LAYERS + 1) if phase.teacher_layers is None else phase.teacher_layers
    for name in INSIDE:
        mine, theirs = getattr(found, name), getattr(expected, name)
        assert len(mine) == len(theirs) == (name in phase.needs) * len(theirs)
        for number, (a, b) in enumerate(zip(mine, theirs, strict=True), start=name != "hidden"):
            assert (a is not None) == (number in named)
            if a is not None:
                assert a.shape == b.shape and a.dtype == torch.float32 and a.isfinite().all()
                close(real(a, found.mask), real(b, found.mask), half=half, name=f"{name} {number}")


def arrays(root: Path) -> list[dict[str, np.ndarray]]:
    folders = [path for path in (root / "banks").iterdir() if path.is_dir()]
    return [{p.stem: np.load(p) for p in sorted(folder.glob("*.npy"))} for folder in folders]


def contents(root: Path) -> dict[str, bytes]:
    files = [path for path in (root / "banks").rglob("*") if path.is_file()]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


# --------------------------------------------------------------------------------------- agreement


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    "phase",
    [
        BOTH,
        WHOLE,
        Phase("p", 1, frozenset({"logits", "hidden"}), teacher_layers=(3,)),
        Phase("p", 1, frozenset({"queries", "keys", "values"}), teacher_layers=(1, 3)),
    ],
    ids=["some", "all", "last", "heads"],
)
@pytest.mark.parametrize("resident", [False, True], ids=["disk", "resident"])
def test_tokens_are_those_of_the_live_teacher_whatever_the_padding(
    resident: bool, phase: Phase, dtype: str, tmp_path: Path
) -> None:
    teacher, rows = live(), split()
    bank = build(teacher, rows, tmp_path, phase, dtype=dtype)
    if resident:
        bank.keep_on(CPU)
    calls = count_rows(teacher)
    shown = [(batch, bank.outputs(batch, phase.needs)) for batch in batches(rows)]
    assert calls == [] and len({batch["teacher"]["input_ids"].shape[1] for batch, _ in shown}) > 2
    for batch, found in shown:
        same(found, teacher.outputs(batch, phase.needs), phase, half=dtype == "float16")


def test_the_wrong_token_would_be_noticed_by_these_tests() -> None:
    """The tokens of the toy teacher differ by far more than the tolerance."""
    batch = split()[np.arange(len(LENGTHS))]
    shown = live().outputs(batch, INSIDE)
    for x in (shown.hidden[0], shown.hidden[2], shown.queries[1], shown.keys[1], shown.values[1]):
        tokens = real(x, shown.mask)
        gaps = torch.cdist(tokens, tokens)[~torch.eye(len(tokens), dtype=torch.bool)]
        assert (gaps > 0.01 * x.abs().max()).float().mean() > 0.9


def test_what_is_kept_are_the_real_tokens_of_the_layers_that_are_asked_for(tmp_path: Path) -> None:
    build(live(), split(), tmp_path, dtype="float16")
    (kept,) = arrays(tmp_path)
    assert {name: (x.shape, x.dtype.name) for name, x in kept.items()} == {
        "logits": ((10, 2), "float32"),
        "hidden": ((48, 2, 8), "float16"),  # 48 is the sum of the lengths
        "queries": ((48, 1, 8), "float16"),  # the embeddings, 0, have none
        "keys": ((48, 1, 8), "float16"),
    }
    shown = live().outputs(split()[np.array([2])], frozenset({"hidden"}))
    expected = torch.stack([shown.hidden[0][0], shown.hidden[2][0]], dim=1)
    close(kept["hidden"][7:16].astype(np.float32), expected, half=True)  # after 5 + 2 tokens, 9


def test_rows_fields_and_tokens_may_be_asked_for_at_once(tmp_path: Path) -> None:
    """By two phases, each with its own layers."""
    first = Phase("a", 1, frozenset({"hidden", "mean"}), teacher_layers=(1,))
    second = Phase("b", 1, frozenset({"values", "logits"}), teacher_layers=(3,))
    teacher, rows = live(), split()
    bank = build(teacher, rows, tmp_path, first, second)
    both = Phase("c", 1, first.needs | second.needs, teacher_layers=(1, 3))
    for batch in batches(rows):
        found, expected = (x.outputs(batch, both.needs) for x in (bank, teacher))
        same(found, expected, both)
        close(found.mean, expected.mean)


def test_queries_may_be_narrower_than_the_model(tmp_path: Path) -> None:
    """ConvBERT's attention has half its width."""
    config = ConvBertConfig(
        vocab_size=len(toys.WORDS) + 5,
        num_hidden_layers=2,
        hidden_size=16,
        embedding_size=16,
        num_attention_heads=4,
        intermediate_size=32,
        max_position_embeddings=24,
    )
    hf = ConvBertForSequenceClassification(config).eval()
    teacher, rows = LiveTeacher(Model(hf, toys.model().tokenizer)), split()
    banked_one = build(teacher, rows, tmp_path, Phase("p", 1, frozenset({"queries", "keys"})))
    batch = rows[np.array([0, 3])]
    needs = frozenset({"queries", "keys"})
    expected, found = (x.outputs(batch, needs) for x in (teacher, banked_one))
    real = batch["teacher"]["attention_mask"].bool()
    for name in needs:
        for a, b in zip(getattr(expected, name), getattr(found, name), strict=True):
            assert a.shape == b.shape
            close(b.transpose(1, 2)[real], a.transpose(1, 2)[real])


def test_what_does_not_fit_into_a_draft_is_an_error(tmp_path: Path) -> None:
    draft = bank_files.Draft(tmp_path / "d", {"cls": ((3, 2), "float32")})
    with pytest.raises(ValueError, match="cls"):
        draft.write(np.array([0, 1]), {"cls": np.zeros((2, 1))})
    with pytest.raises(ValueError, match="cls"):
        draft.write(np.array([0, 1]), {"cls": np.zeros((3, 2))})
    draft.close()


@pytest.mark.parametrize("layers", [(-1,), (4,), (0, 9)])
def test_a_layer_that_the_teacher_does_not_have_is_an_error(
    layers: tuple[int, ...], tmp_path: Path
) -> None:
    phase = Phase("p", 1, frozenset({"hidden"}), teacher_layers=layers)
    with pytest.raises(ValueError, match="teacher_layers of a phase"):
        build(live(), split(), tmp_path, phase)


def test_a_row_that_is_not_in_the_bank_is_an_error(tmp_path: Path) -> None:
    bank = build(live(), split(), tmp_path)
    batch = split()[np.arange(2)]
    with pytest.raises(LookupError, match="6"):
        bank.outputs(batch | {"index": torch.tensor([5, 6])}, BOTH.needs)


# ---------------------------------------------------------------------------------------- identity


CHANGES: dict[str, Phase] = {
    "other layers": replace(BOTH, teacher_layers=(0, 1)),
    "more layers": replace(BOTH, teacher_layers=(0, 1, 2)),
    "all layers": replace(BOTH, teacher_layers=None),
    "fewer fields": replace(BOTH, needs=frozenset({"hidden", "queries", "logits"})),
}


@pytest.mark.parametrize("phase", CHANGES.values(), ids=CHANGES)
def test_what_another_method_asks_for_is_another_bank(phase: Phase, tmp_path: Path) -> None:
    rows = split()
    build(live(), rows, tmp_path)
    teacher = live()
    calls = count_rows(teacher)
    bank = build(teacher, rows, tmp_path, phase)
    assert sum(calls) == len(LENGTHS) and len(arrays(tmp_path)) == 2
    for batch in batches(rows):
        same(bank.outputs(batch, phase.needs), live().outputs(batch, phase.needs), phase)
    for one in (BOTH, phase):
        again = live()
        calls = count_rows(again)
        build(again, rows, tmp_path, one, batch_size=3)
        assert calls == [], "both are kept"


def test_banks_of_rows_keep_their_place(tmp_path: Path) -> None:
    """What earlier versions have built is found again: the key is made of the same things."""
    rows, row = split(), frozenset({"logits", "mean"})
    build(live(), rows, tmp_path, Phase("p", 1, row), dtype="float16")
    kind = ["cls", "logits", "mean", "float16"]
    key = digest([1, live().fingerprint(None), rows.teacher.fingerprint, kind])[:16]
    build(live(), rows, tmp_path, dtype="float16")
    folders = {path.name for path in (tmp_path / "banks").iterdir() if path.is_dir()}
    assert key in folders and len(folders) == 2, "tokens have a bank of their own"
    meta = json.loads((tmp_path / "banks" / key / "meta.json").read_text())
    assert set(meta) == {"teacher", "task", "split", "epoch", "format", "rows", "files"}


def test_a_bank_of_tokens_says_which_layers_it_has(tmp_path: Path) -> None:
    build(live(), split(), tmp_path)
    (meta,) = (json.loads(p.read_text()) for p in (tmp_path / "banks").rglob("meta.json"))
    assert meta["layers"] == [0, 2] and meta["rows"] == len(LENGTHS)


# ---------------------------------------------------------------------------------------- building


@pytest.mark.parametrize("name", ["hidden", "keys", "logits"])
def test_a_damaged_bank_is_noticed_and_built_again(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    teacher, rows = live(), split()
    build(teacher, rows, tmp_path)
    whole = contents(tmp_path)
    (path,) = (tmp_path / "banks").rglob(f"{name}.npy")
    content = bytearray(path.read_bytes())
    content[-9] ^= 4
    path.write_bytes(content)
    os.utime(path, ns=(1, 1))
    calls = count_rows(teacher)
    build(teacher, rows, tmp_path)
    assert sum(calls) == len(LENGTHS) and "damaged" in caplog.text
    assert contents(tmp_path) == whole


def killed_before(root: Path, number: int) -> None:
    """Build in another process, which dies of signal 9 before a call of the teacher."""

    def die(call: int) -> None:
        if call == number:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:  # no `finally` and no `atexit` of pytest's may run here
        try:
            teacher = live()
            count_rows(teacher, die)
            build(teacher, split(), root, batch_size=1)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    assert not [p for p in (root / "banks").iterdir() if p.is_dir() and p.name[0] != "."]


@pytest.mark.parametrize("spoilt", [False, True], ids=["whole", "spoilt"])
def test_a_killed_build_is_gone_on_with_where_its_tokens_are_what_was_written(
    spoilt: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(banked_teacher, "FLUSH", 3)
    killed_before(tmp_path, 8)  # of 10 rows, the longest first; 6 are safe
    if spoilt:
        (path,) = (tmp_path / "banks").rglob("keys.npy")
        content = bytearray(path.read_bytes())
        content[128 + 7 * WIDTH * 4 + 1] ^= 4  # the first token of the row that is 9 long
        path.write_bytes(content)
    teacher = live()
    calls = count_rows(teacher)
    build(teacher, split(), tmp_path, batch_size=1)
    assert sum(calls) == (10 if spoilt else 4) and ("damaged" in caplog.text) == spoilt
    build(live(), split(), tmp_path / "undisturbed", batch_size=1)
    assert contents(tmp_path) == contents(tmp_path / "undisturbed")


def test_states_beyond_float16_are_refused_and_float32_takes_them(tmp_path: Path) -> None:
    teacher, rows = live(), split()
    with torch.no_grad():
        teacher.model.hf.bert.encoder.layer[1].attention.self.key.weight.mul_(1e6)
    shown = teacher.outputs(rows[np.arange(10)], INSIDE)
    assert shown.keys[1].abs().max() > 65504 > shown.hidden[2].abs().max()
    with pytest.raises(BadInput, match=r"keys is not finite in float16.* bank_dtype=float32"):
        build(teacher, rows, tmp_path, dtype="float16")
    assert arrays(tmp_path) == []
    found = build(teacher, rows, tmp_path).outputs(rows[np.arange(10)], BOTH.needs)
    close(real(found.keys[1], found.mask), real(shown.keys[1], shown.mask), of=shown.keys[1])


def traced(work: Callable[[], Any]) -> int:
    """The most bytes that Python and numpy hold at once during some work."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def fill(folder: Path, rows: int) -> bank_files.Draft:
    """A draft of rows of ten tokens, of 768 bytes each, flushed now and then."""
    offsets = {"keys": np.arange(0, 10 * rows + 1, 10)}
    shapes = {"logits": ((rows, 2), "float32"), "keys": ((10 * rows, 3, 128), "float16")}
    draft = bank_files.Draft(folder, shapes, offsets=offsets)
    part = {"logits": np.ones((8, 2)), "keys": np.ones((80, 3, 128))}
    for start in range(draft.done, rows, 8):
        draft.write(np.arange(start, start + 8), part)
        if start % 128 == 0:
            draft.flush(start + 8)
    draft.close()
    return draft


def test_memory_does_not_grow_with_the_rows(tmp_path: Path) -> None:
    """Neither does it where half of a bank is looked at again."""
    fill(tmp_path / "warm", 64)
    for again in (False, True):
        few, many = (traced(lambda n=n: fill(tmp_path / f"{n}", n)) for n in (128, 1024))
        assert many - few < 0.2 * few, again
        assert many < 1024 * 10 * 768 / 8


# -------------------------------------------------------------------------------------------- room


TAKEN = 10 * 2 * 4 + 48 * (2 + 1 + 1) * WIDTH * 2
"""Bytes of `BOTH` in float16: logits of 10 rows, and of 48 tokens two layers of hidden states, and
one of queries and of keys."""


def disk(monkeypatch: pytest.MonkeyPatch, free: int) -> None:
    usage = SimpleNamespace(total=10**12, used=10**12 - free, free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)


def answering(root: Path, mode: str, teacher: LiveTeacher) -> Teacher:
    """Who answers in a run of this `bank=`."""
    run: Run = toys.run(f"bank={mode}", f"cache_dir={root}", "trainer.accelerator=cpu")
    return inputs.answering(run, teacher, {"train": split()}, "train", [BOTH])


def test_the_size_is_told_before_the_build(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "ilkd_bench"):
        build(live(), split(), tmp_path, dtype="float16")
    (said,) = [r.getMessage() for r in caplog.records if "building the bank" in r.getMessage()]
    assert f"10 rows, {TAKEN / 1000:.1f} kB on disk" in said


@pytest.mark.parametrize(("share", "free"), [(1, TAKEN), (0.5, 2 * TAKEN)])
def test_a_bank_of_tokens_takes_its_share_of_the_disk_and_no_more(
    share: float, free: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    teacher = live()
    calls = count_rows(teacher)
    disk(monkeypatch, free - 1)
    with pytest.raises(NoRoom) as error:
        build(teacher, split(), tmp_path, dtype="float16", share=share)
    assert calls == [] and arrays(tmp_path) == []
    assert ("of which it may take 50%" in str(error.value)) == (share == 0.5)
    disk(monkeypatch, free)
    build(teacher, split(), tmp_path, dtype="float16", share=share)
    assert sum(calls) == 10


@pytest.mark.parametrize(("share", "told"), [(0.5, NoRoom), (1, NoSpace)])
def test_a_disk_that_fills_up_meanwhile_is_told(
    share: float, told: type[BadInput], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another run began a bank in the same room; what was begun here gives its own part back."""

    def full(*about: Any) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(BadInput, match="no space left on the disk") as error:
        build(live(), split(), tmp_path, share=share)
    assert type(error.value) is told
    drafts = [path for path in (tmp_path / "banks").iterdir() if path.is_dir()]
    assert (drafts == []) == (told is NoRoom)


def test_a_small_disk_has_the_teacher_run_at_every_step_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    teacher = live()
    disk(monkeypatch, 2 * TAKEN - 1)
    assert answering(tmp_path, "auto", teacher) is teacher
    (said,) = [r.getMessage() for r in caplog.records if r.levelno == logging.WARNING]
    for part in ("the teacher is run at every step", f"needs {TAKEN / 1000:.1f} kB", "cache_dir="):
        assert part in said
    assert answering(tmp_path, "on", teacher).source == "bank, float16", "it was asked for"
    disk(monkeypatch, 0)
    assert answering(tmp_path, "auto", teacher).source == "bank, float16", "it is there"


def test_what_is_asked_for_and_has_no_room_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk(monkeypatch, TAKEN - 1)
    with pytest.raises(BadInput, match="bank=off"):
        answering(tmp_path, "on", live())
    assert answering(tmp_path, "off", teacher := live()) is teacher
    assert arrays(tmp_path) == []
