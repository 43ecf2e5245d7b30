"""A teacher that answers from a bank shows what the live one shows, and no other teacher's."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
import toys
from closeness import close, tolerance

from ilkd_bench.data.batches import Split
from ilkd_bench.data.tasks import TextRows
from ilkd_bench.data.tokens import Encoded, encode
from ilkd_bench.models.build import word_tokenizer
from ilkd_bench.models.model import Model
from ilkd_bench.teachers import banked as banked_teacher
from ilkd_bench.teachers import finetuned
from ilkd_bench.teachers.banked import BankTeacher, banked, can_bank, fits
from ilkd_bench.teachers.live import LiveTeacher
from ilkd_bench.types import BadInput, Outputs, Phase

LOGITS = frozenset({"logits"})
ALL = frozenset({"logits", "cls", "mean"})
CPU = torch.device("cpu")


def plain(*needs: str) -> Phase:
    return Phase("p", 1, frozenset(needs or ALL))


def build(
    live: LiveTeacher,
    split: Split,
    root: Path,
    phases: Sequence[Phase] = (plain(),),
    *,
    dtype: str = "float32",
    batch_size: int = 4,
) -> BankTeacher:
    return banked(
        live,
        split,
        phases,
        about={"teacher": "toy", "task": "words", "split": "train"},
        dtype=dtype,
        batch_size=batch_size,
        device=CPU,
        cache_dir=root,
    )


@dataclass
class Calls:
    """How many rows the teacher's model read in each call; `then` is called before each."""

    then: Callable[[int], None] = lambda number: None
    rows: list[int] = field(default_factory=list)

    def __call__(self, module: Any, args: Any, kwargs: dict[str, Any]) -> None:
        self.then(len(self.rows))
        self.rows.append(len(kwargs["input_ids"]))


def watch(live: LiveTeacher, then: Callable[[int], None] = lambda number: None) -> Calls:
    calls = Calls(then)
    live.model.hf.register_forward_pre_hook(calls, with_kwargs=True)
    return calls


def stop_at(at: int) -> Callable[[int], None]:
    def then(number: int) -> None:
        if number == at:
            raise RuntimeError("stopped")

    return then


def stored(root: Path) -> dict[str, list[str]]:
    """The banks of a cache folder and their arrays."""
    folders = [path for path in (root / "banks").iterdir() if path.is_dir()]
    return {f.name: sorted(path.stem for path in f.glob("*.npy")) for f in folders}


def contents(root: Path) -> dict[str, bytes]:
    files = [path for path in (root / "banks").rglob("*") if path.is_file()]
    return {path.relative_to(root).as_posix(): path.read_bytes() for path in files}


def shuffled(split: Split, seed: int = 0) -> list[dict[str, Any]]:
    """Batches of several sizes in mixed order, some with a row twice."""
    generator = np.random.default_rng(seed)
    everything = generator.permutation(len(split))
    some = [generator.integers(0, len(split), n) for n in (1, 2, 5)]
    twice = np.array([3, 7, 3, 0, 7])
    return [split[rows] for rows in (everything, everything[-7:], *some, twice)]


def same(
    found: Outputs, expected: Outputs, needs: frozenset[str] = ALL, *, half: bool = False
) -> None:
    """Compare field by field; features that were kept in float16 may be off by its rounding."""
    for name in ("logits", "cls", "mean"):
        value, wanted = getattr(found, name), getattr(expected, name)
        if name not in needs | LOGITS:
            assert value is None, f"nobody asked for {name}"
            continue
        assert value.dtype == torch.float32 and not value.requires_grad
        close(value, wanted, half=half and name != "logits", name=name)
    assert torch.equal(found.mask, expected.mask)
    assert found.hidden == () and found.attention == ()


def renumbered(split: Split) -> Split:
    """The same rows as a subset of a larger source, whose row numbers have gaps."""
    return Split(split.labels, 5 + 3 * torch.arange(len(split)), split.student, split.teacher)


# --------------------------------------------------------------------------------------- agreement


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize(
    ("classes", "order"),
    [(2, None), (3, [2, 0, 1]), (1, None)],
    ids=["classes", "permuted", "regression"],
)
def test_bank_and_live_teacher_agree_whatever_the_batch(
    classes: int, order: list[int] | None, dtype: str, tmp_path: Path
) -> None:
    split = renumbered(toys.split(24, classes=classes))
    live = LiveTeacher(toys.model(layers=3, classes=classes), label_order=order)
    bank = build(live, split, tmp_path, dtype=dtype)
    calls = watch(live)
    batches = shuffled(split)
    assert len({b["teacher"]["input_ids"].shape[1] for b in batches}) > 2, "several paddings"
    found = [bank.outputs(batch, ALL) for batch in batches]
    assert calls.rows == [], "the teacher is not run any more"
    for batch, outputs in zip(batches, found, strict=True):
        assert outputs.logits.shape == (len(batch["index"]), classes)
        assert outputs.cls.shape == outputs.mean.shape == (len(batch["index"]), 4, 8)
        same(outputs, live.outputs(batch, ALL), half=dtype == "float16")


def test_a_bank_of_float16_is_rounded_once(tmp_path: Path) -> None:
    """It holds the float16 numbers nearest to the float32 bank's; logits are not rounded."""
    split = toys.split(24)
    fine, coarse = (
        build(LiveTeacher(toys.model()), split, tmp_path, dtype=d).outputs(
            split[np.arange(24)], ALL
        )
        for d in ("float32", "float16")
    )
    assert torch.equal(coarse.cls, fine.cls.half().float())
    assert torch.equal(coarse.mean, fine.mean.half().float())
    assert torch.equal(coarse.logits, fine.logits)


@pytest.mark.parametrize(
    "needs", [["logits"], ["cls"], ["mean"], ["logits", "mean"], ["cls", "mean"]], ids=" ".join
)
def test_a_bank_shows_what_is_asked_for_and_nothing_else(needs: list[str], tmp_path: Path) -> None:
    split, live = toys.split(12), LiveTeacher(toys.model())
    asked = frozenset(needs)
    for phases in ([plain()], [plain(*needs)]):
        bank = build(live, split, tmp_path, phases)
        for batch in shuffled(split):
            same(bank.outputs(batch, asked), live.outputs(batch, asked), asked)


def test_a_row_that_is_not_in_the_bank_is_an_error(tmp_path: Path) -> None:
    split, live = toys.split(12), LiveTeacher(toys.model())
    bank = build(live, renumbered(split), tmp_path)
    batch = renumbered(split)[np.arange(3)]
    for wrong in (4, 6, 5 + 3 * 12, 10_000):  # before, between, after, far away
        strange = batch | {"index": torch.tensor([5, wrong, 8])}
        for needs in (LOGITS, ALL):
            with pytest.raises(LookupError):
                bank.outputs(strange, needs)
    with pytest.raises(LookupError, match="6"):
        bank.outputs(batch | {"index": torch.tensor([5, 6, 8])}, ALL)


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_bank_that_is_kept_on_the_device_shows_the_same(dtype: str, tmp_path: Path) -> None:
    split, paths = renumbered(toys.split(24, classes=3)), snapshots(tmp_path, 2, classes=3)
    live = LiveTeacher(toys.model(classes=3), snapshots=paths)
    phases = [plain(), Phase("q", 1, LOGITS, teacher_at=lambda epoch: 0.5)]
    disk, resident = (build(live, split, tmp_path, phases, dtype=dtype) for _ in range(2))
    resident.keep_on(CPU)
    for batch in shuffled(split):
        a, b = disk.outputs(batch, ALL), resident.outputs(batch, ALL)
        assert all(torch.equal(getattr(a, n), getattr(b, n)) for n in (*ALL, "mask"))
        assert b.cls.dtype == torch.float32
        a, b = disk.outputs(batch, LOGITS, 0.5), resident.outputs(batch, LOGITS, 0.5)
        assert torch.equal(a.logits, b.logits)


def test_what_a_bank_shows_can_be_written_to_without_harm(tmp_path: Path) -> None:
    split = toys.split(12)
    bank = build(LiveTeacher(toys.model()), split, tmp_path)
    before = bank.outputs(split[np.arange(12)], ALL).mean.clone()
    bank.outputs(split[np.arange(12)], ALL).mean.zero_()
    assert torch.equal(bank.outputs(split[np.arange(12)], ALL).mean, before)


# ---------------------------------------------------------------------------------- never mixed up


def texts(count: int = 12) -> TextRows:
    generator = np.random.default_rng(5)
    lines = [" ".join(generator.choice(toys.WORDS, 2 + n % 9)) for n in range(count)]
    return TextRows([lines], np.arange(count) % 2, np.arange(count))


def test_every_row_is_the_right_one_for_two_teachers_tokenizers_and_lengths(
    tmp_path: Path,
) -> None:
    """One cache folder, filled in one order and read in another; the student reads other tokens."""
    rows, order = texts(), np.random.default_rng(1)
    tokenizers = [word_tokenizer(words, 24) for words in (toys.WORDS, toys.WORDS[::-1])]
    cases = [(s, t, n) for s in (0, 1) for t in (0, 1) for n in (6, 10)]

    def case(seed: int, tokenizer: int, length: int) -> tuple[LiveTeacher, Split]:
        own, other = (
            encode(rows, tokenizers[t], max_length=length, cache_dir=tmp_path)
            for t in (tokenizer, 1 - tokenizer)
        )
        index = torch.from_numpy(rows.index)
        live = LiveTeacher(toys.model(seed=seed))
        return live, Split(torch.from_numpy(rows.labels), index, student=other, teacher=own)

    for number in order.permutation(8):
        build(*case(*cases[number]), tmp_path, dtype="float32", batch_size=5)
    assert len(stored(tmp_path)) == 8
    shown = []
    for number in order.permutation(8):
        live, split = case(*cases[number])
        fresh = LiveTeacher(toys.model(seed=cases[number][0]))
        calls = watch(live)
        bank = build(live, split, tmp_path, dtype="float32", batch_size=3)
        assert calls.rows == [], "it was built before"
        for batch in shuffled(split, seed=int(number)):
            same(bank.outputs(batch, ALL), fresh.outputs(batch, ALL))
        shown.append(bank.outputs(split[np.arange(12)], ALL).mean)
    assert all(not torch.allclose(a, b) for i, a in enumerate(shown) for b in shown[:i])
    assert len(stored(tmp_path)) == 8


def made(**changes: Any) -> Model:
    model = toys.model(layers=2, classes=3)
    for name, value in changes.items():
        assert hasattr(model.hf.config, name)
        setattr(model.hf.config, name, value)
    if changes:  # the parts of a model read the configuration when they are made
        made_anew = type(model.hf)(model.hf.config).eval()
        made_anew.load_state_dict(model.hf.state_dict())
        model = Model(made_anew, model.tokenizer)
    return model


def nudged(name: str) -> Model:
    """The model with one single weight moved by the smallest step there is."""
    model = made()
    flat = model.hf.state_dict()[name].view(-1)
    flat[-1] = torch.nextafter(flat[-1], torch.tensor(9.0))
    return model


TOKENS = toys.encoded([5, 7, 4, 9, 6, 3, 8, 5])


def tokens(**arrays: np.ndarray) -> Encoded:
    return replace(TOKENS, **arrays)


def one_changed(array: np.ndarray, place: int, value: int) -> np.ndarray:
    copy = array.copy()
    assert copy[place] != value
    copy[place] = value
    return copy


def cut_elsewhere() -> Encoded:
    """The same tokens end to end; the first row ends one later."""
    return tokens(offsets=TOKENS.offsets + np.array([0, 1, *[0] * 7]))


def swapped() -> Encoded:
    """The same rows, the last two in the other order."""
    o = TOKENS.offsets
    moved = np.concatenate([TOKENS.ids[: o[6]], TOKENS.ids[o[7] :], TOKENS.ids[o[6] : o[7]]])
    return tokens(ids=moved, offsets=np.array([*o[:7], o[6] + 5, o[8]]))


LAST = "bert.encoder.layer.1.output.LayerNorm.bias"
CHANGES: dict[str, dict[str, Any]] = {
    "a weight": {"model": lambda: nudged("classifier.weight")},
    "a weight of an embedding": {"model": lambda: nudged("bert.embeddings.word_embeddings.weight")},
    "a weight of a norm": {"model": lambda: nudged(LAST)},
    "epsilon": {"model": lambda: made(layer_norm_eps=1e-3)},
    "activation": {"model": lambda: made(hidden_act="relu")},
    "heads": {"model": lambda: made(num_attention_heads=4)},
    "label order": {"order": [0, 2, 1]},
    "a token": {"tokens": lambda: tokens(ids=one_changed(TOKENS.ids, 2, 19))},
    "a segment": {"tokens": lambda: tokens(types=one_changed(TOKENS.types, 3, 1))},
    "a length": {"tokens": cut_elsewhere},
    "two rows": {"tokens": swapped},
    "fewer rows": {
        "tokens": lambda: tokens(
            ids=TOKENS.ids[:-5], types=TOKENS.types[:-5], offsets=TOKENS.offsets[:-1]
        )
    },
    "dtype": {"dtype": "float16"},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_a_bank_is_never_served_when_one_thing_differs(
    change: dict[str, Any], tmp_path: Path
) -> None:
    def setting(
        model: Callable[[], Model] = made,
        order: list[int] | None = None,
        tokens: Callable[[], Encoded] = lambda: TOKENS,
        dtype: str = "float32",
    ) -> tuple[LiveTeacher, Split, str]:
        read = tokens()
        count = len(read.lengths)
        split = Split(torch.zeros(count), torch.arange(count), TOKENS, read)
        return LiveTeacher(model(), label_order=order), split, dtype

    for number, given in enumerate(({}, change), start=1):
        live, split, dtype = setting(**given)
        calls = watch(live)
        bank = build(live, split, tmp_path, dtype=dtype)
        assert sum(calls.rows) == len(split), "it is computed"
        assert len(stored(tmp_path)) == number
        fresh = setting(**given)[0]
        batch = split[np.arange(len(split))[::-1].copy()]
        same(bank.outputs(batch, ALL), fresh.outputs(batch, ALL), half=dtype == "float16")
    for given in (change, {}):
        live, split, dtype = setting(**given)
        calls = watch(live)
        build(live, split, tmp_path, dtype=dtype)
        assert calls.rows == [] and len(stored(tmp_path)) == 2, "and both are kept"


def test_the_wrong_rows_would_be_noticed_by_these_tests() -> None:
    """The toy teacher's rows differ by far more than the tolerance."""
    split, live = toys.split(24), LiveTeacher(toys.model(layers=3))
    shown = live.outputs(split[np.arange(24)], ALL)
    for value in (shown.logits, shown.mean):
        gaps = torch.cdist(value.flatten(1), value.flatten(1))
        different = ~torch.eye(24, dtype=torch.bool)
        assert (gaps[different] > 10 * tolerance(value)).float().mean() > 0.95


def test_name_and_task_are_no_part_of_the_identity(tmp_path: Path) -> None:
    """Neither are label names, where the model lies, and the labels of the rows."""
    split, model = toys.split(12), toys.model(labels=["no", "yes"])
    build(LiveTeacher(model), split, tmp_path)
    other = toys.model(labels=["nein", "ja"])
    other.hf.config.name_or_path = "/elsewhere"
    live = LiveTeacher(other)
    calls = watch(live)
    relabelled = Split(1 - split.labels, split.index + 9, split.student, split.teacher)
    bank = build(live, relabelled, tmp_path, batch_size=7)
    assert calls.rows == []
    batch = relabelled[np.array([4, 1])]
    same(bank.outputs(batch, ALL), live.outputs(batch, ALL))


# ---------------------------------------------------------------------------------------- building


def test_a_build_reads_each_row_once_and_a_second_run_reads_none(tmp_path: Path) -> None:
    split, live = toys.split(22), LiveTeacher(toys.model())
    calls = watch(live)
    build(live, split, tmp_path)
    assert sorted(calls.rows) == [2, 4, 4, 4, 4, 4]
    build(LiveTeacher(toys.model()), split, tmp_path)
    build(live, split, tmp_path, batch_size=9)
    assert sum(calls.rows) == 22
    assert list(stored(tmp_path).values()) == [["cls", "logits", "mean"]]


def test_a_damaged_bank_is_built_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    split, live = toys.split(22), LiveTeacher(toys.model())
    build(live, split, tmp_path)
    (mean,) = (tmp_path / "banks").rglob("mean.npy")
    content = bytearray(mean.read_bytes())
    content[-300] ^= 0x40
    mean.write_bytes(content)
    os.utime(mean, ns=(1, 1))
    calls = watch(live)
    bank = build(live, split, tmp_path)
    assert sum(calls.rows) == 22 and "damaged" in caplog.text
    batch = split[np.arange(22)]
    same(bank.outputs(batch, ALL), live.outputs(batch, ALL))


def broken_off(split: Split, root: Path, at: int, **how: Any) -> LiveTeacher:
    """A teacher whose build stopped before its call number `at`."""
    live = LiveTeacher(toys.model())
    watch(live, stop_at(at))
    with pytest.raises(RuntimeError, match="stopped"):
        build(live, split, root, **how)
    return LiveTeacher(toys.model())


def test_a_build_that_was_broken_off_computes_only_what_was_not_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(banked_teacher, "FLUSH", 5)
    split = toys.split(40)
    live = broken_off(split, tmp_path, 12, batch_size=2)  # of 20
    calls = watch(live)
    bank = build(live, split, tmp_path, batch_size=2)
    assert calls.rows == [2] * 10
    # bytes: what was left to do is read in the same batches as without the break
    batch = split[np.random.default_rng(0).permutation(40)]
    same(bank.outputs(batch, ALL), live.outputs(batch, ALL))
    build(live, split, tmp_path / "undisturbed", batch_size=2)
    assert contents(tmp_path) == contents(tmp_path / "undisturbed")


def test_a_killed_build_is_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Signal 9 in a process of its own, in the middle of the teacher's 13th call.

    Both processes compute the rest in the same batches, so that the bytes are the same.
    """
    monkeypatch.setattr(banked_teacher, "FLUSH", 5)
    split, live = toys.split(40), LiveTeacher(toys.model())

    def die(number: int) -> None:
        if number == 12:
            os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:  # no `finally` and no `atexit` of pytest's may run here
        try:
            watch(live, die)
            build(live, split, tmp_path, batch_size=2)
        finally:
            os._exit(1)
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL
    calls = watch(live)
    build(live, split, tmp_path, batch_size=2)
    assert calls.rows == [2] * 10
    build(live, split, tmp_path / "undisturbed", batch_size=2)
    assert contents(tmp_path) == contents(tmp_path / "undisturbed")


@pytest.mark.parametrize("batch_size", [1, 4, 40])
def test_a_build_may_be_gone_on_with_in_other_batches(
    batch_size: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second run was given another trainer.eval_batch_size."""
    monkeypatch.setattr(banked_teacher, "FLUSH", 5)
    split = toys.split(40)
    live = broken_off(split, tmp_path, 12, batch_size=2)
    bank = build(live, split, tmp_path, batch_size=batch_size)
    batch = split[np.arange(40)]
    same(bank.outputs(batch, ALL), live.outputs(batch, ALL))


def large() -> Model:
    """Its hidden states of the second layer reach 1e5 and more; its logits are ordinary."""
    model = toys.model(layers=3)
    with torch.no_grad():
        model.hf.bert.encoder.layer[1].output.LayerNorm.weight.mul_(1e5)
    return model


def test_hidden_states_beyond_float16_are_refused_and_float32_takes_them(tmp_path: Path) -> None:
    split, live = toys.split(12), LiveTeacher(large())
    batch = split[np.arange(12)]
    shown = live.outputs(batch, ALL)
    assert shown.mean.abs().max() > 65504 > 100 > shown.logits.abs().max()
    with pytest.raises(BadInput, match="bank_dtype=float32"):
        build(live, split, tmp_path, dtype="float16")
    found = build(live, split, tmp_path, dtype="float32").outputs(batch, ALL)
    same(found, shown)  # but for what cancels: each array within its own scale
    logits = build(live, split, tmp_path, [plain("logits")], dtype="float16")
    same(logits.outputs(batch, LOGITS), shown, LOGITS)


def test_too_little_space_is_told_before_the_teacher_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    split, live = toys.split(24), LiveTeacher(toys.model())  # 2 layers of width 8, 2 classes
    needed = 24 * (2 * 4 + 2 * 3 * 8 * 2)
    calls = watch(live)
    usage = SimpleNamespace(total=10**9, used=0, free=needed - 1)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    with pytest.raises(BadInput) as error:
        build(live, split, tmp_path, dtype="float16")
    for part in ("toy", "train", "2.5 kB", str(tmp_path), "cache_dir=", "bank=off"):
        assert part in str(error.value)
    assert calls.rows == [] and stored(tmp_path) == {}
    usage.free = needed
    build(live, split, tmp_path, dtype="float16")
    assert sum(calls.rows) == 24


# --------------------------------------------------------------------------------------- snapshots


def snapshots(root: Path, count: int, **model: Any) -> list[Path]:
    paths = [root / "snapshots" / f"epoch-{n + 1:03d}.safetensors" for n in range(count)]
    for number, path in enumerate(paths):
        finetuned.save_weights(toys.model(seed=20 + number, **model), path)
    return paths


def following(epochs: int, *needs: str) -> Phase:
    return Phase(
        "follow", epochs, frozenset(needs or LOGITS), teacher_at=lambda epoch: (epoch + 1) / epochs
    )


LABELS = Phase("labels", 2, frozenset())


@pytest.mark.parametrize("order", [None, [1, 2, 0]], ids=["same", "permuted"])
@pytest.mark.parametrize(("epochs", "count"), [(4, 4), (3, 5), (7, 2)])
def test_snapshots_show_the_logits_of_every_moment(
    epochs: int, count: int, order: list[int] | None, tmp_path: Path
) -> None:
    split = renumbered(toys.split(16, classes=3))
    paths = snapshots(tmp_path, count, classes=3)
    live = LiveTeacher(toys.model(classes=3), label_order=order, snapshots=paths)
    calls = watch(live)
    bank = build(live, split, tmp_path, [following(epochs), LABELS])
    passes = min(epochs, count)
    assert sum(calls.rows) == 16 * passes, "each snapshot reads each row once"
    assert list(stored(tmp_path).values()) == [["logits"]] * passes, "and its best epoch is not run"
    fresh = LiveTeacher(toys.model(classes=3), label_order=order, snapshots=paths)
    moments = [(epoch + 1) / epochs for epoch in range(epochs)]
    for at in reversed(moments):
        for batch in shuffled(split):
            found = bank.outputs(batch, LOGITS, at)
            same(found, fresh.outputs(batch, LOGITS, at), LOGITS)
    shown = [bank.outputs(split[np.arange(16)], LOGITS, at).logits for at in moments]
    assert sum(not torch.equal(a, b) for a, b in pairwise(shown)) == passes - 1
    again = LiveTeacher(toys.model(classes=3), label_order=order, snapshots=paths)
    calls = watch(again)
    build(again, split, tmp_path, [following(epochs), LABELS])
    assert calls.rows == []


def test_best_epoch_and_snapshots_are_kept_apart(tmp_path: Path) -> None:
    """The last snapshot may even have the weights of the best epoch."""
    split, paths = toys.split(16), snapshots(tmp_path, 2)
    live = LiveTeacher(toys.model(seed=20), snapshots=paths)
    bank = build(live, split, tmp_path, [plain("mean"), following(2), plain("logits")])
    assert sorted(stored(tmp_path).values()) == [["cls", "logits", "mean"], ["logits"], ["logits"]]
    fresh = LiveTeacher(toys.model(seed=20), snapshots=paths)
    for at in (1.0, None, 0.5, None):
        for batch in shuffled(split):
            needs = LOGITS if at else frozenset({"mean"})
            same(bank.outputs(batch, needs, at), fresh.outputs(batch, needs, at), needs)


def test_other_snapshots_are_other_banks(tmp_path: Path) -> None:
    split, paths = toys.split(16), snapshots(tmp_path, 2)
    build(LiveTeacher(toys.model(), snapshots=paths), split, tmp_path, [following(2)])
    finetuned.save_weights(toys.model(seed=77), paths[0])
    os.utime(paths[0], ns=(1, 1))
    live = LiveTeacher(toys.model(), snapshots=paths)
    calls = watch(live)
    bank = build(live, split, tmp_path, [following(2)])
    assert sum(calls.rows) == 16, "one of the two is new"
    batch = split[np.arange(16)]
    expected = LiveTeacher(toys.model(seed=77)).outputs(batch, LOGITS)
    same(bank.outputs(batch, LOGITS, 0.5), expected, LOGITS)


def test_after_building_the_live_teacher_is_at_its_best_epoch(tmp_path: Path) -> None:
    split, paths = toys.split(16), snapshots(tmp_path, 2)
    live = LiveTeacher(toys.model(), snapshots=paths)
    build(live, split, tmp_path, [following(2)])
    batch = split[np.arange(16)]
    expected = LiveTeacher(toys.model()).outputs(batch, ALL)
    same(live.outputs(batch, ALL), expected)
    assert torch.equal(live.model.hf.classifier.weight, toys.model().hf.classifier.weight)


# ---------------------------------------------------------------------------------- which bank when


@pytest.mark.parametrize("dtype", ["float32", "float16"])
def test_a_full_bank_serves_who_needs_logits_only(dtype: str, tmp_path: Path) -> None:
    split, live = toys.split(16), LiveTeacher(toys.model())
    build(live, split, tmp_path, [plain("mean")], dtype=dtype)
    calls = watch(live)
    bank = build(live, split, tmp_path, [plain("logits")], dtype=dtype)
    assert calls.rows == [] and len(stored(tmp_path)) == 1
    for batch in shuffled(split):
        same(bank.outputs(batch, LOGITS), live.outputs(batch, LOGITS), LOGITS)


def test_half_a_bank_that_a_full_one_makes_needless_is_removed(tmp_path: Path) -> None:
    split = toys.split(16)
    live = broken_off(split, tmp_path, 2, phases=[plain("logits")], batch_size=4)
    build(live, split, tmp_path, [plain("mean")])
    folders = list((tmp_path / "banks").glob(".*"))
    assert len([path for path in folders if path.is_dir()]) == 1, "half of the logits"
    build(live, split, tmp_path, [plain("logits")])
    assert [path for path in (tmp_path / "banks").glob(".*") if path.is_dir()] == []


def test_who_needs_features_after_logits_gets_a_bank_of_them(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    split, live = toys.split(16), LiveTeacher(toys.model())
    build(live, split, tmp_path, [plain("logits")])
    assert list(stored(tmp_path).values()) == [["logits"]]
    calls = watch(live)
    bank = build(live, split, tmp_path, [plain("logits"), plain("logits", "cls")])
    assert sum(calls.rows) == 16 and "damaged" not in caplog.text
    assert sorted(stored(tmp_path).values()) == [["cls", "logits", "mean"], ["logits"]]
    for needs in (LOGITS, ALL):
        for batch in shuffled(split):
            same(bank.outputs(batch, needs), live.outputs(batch, needs), needs)


def test_nothing_is_built_for_who_needs_nothing(tmp_path: Path) -> None:
    live = LiveTeacher(toys.model())
    calls = watch(live)
    build(live, toys.split(8), tmp_path, [LABELS])
    assert calls.rows == [] and not list(tmp_path.rglob("*.npy"))


@pytest.mark.parametrize(
    ("phases", "expected"),
    [
        ([plain()], True),
        ([plain("logits"), plain("cls"), LABELS], True),
        ([following(4), LABELS], True),
        ([plain("mean"), following(4)], True),
        ([plain("logits", "hidden")], True),
        ([plain("queries", "keys"), LABELS, plain("values")], True),
        ([plain("attention")], False),
        ([plain(), LABELS, plain("hidden", "attention")], False),
        ([following(4, "logits", "cls")], False),
        ([following(4, "mean"), plain()], False),
        ([following(4, "hidden"), plain()], False),
    ],
    ids=range(11),
)
def test_banks_hold_all_but_attention_maps_and_of_snapshots_logits(
    phases: list[Phase], expected: bool
) -> None:
    assert can_bank(phases) is expected


@pytest.mark.parametrize(
    ("size", "free", "expected"),
    [(0, 0, True), (99, 1000, True), (101, 1000, False), (1, 0, False)],
)
def test_a_bank_takes_a_tenth_of_the_free_memory_at_most(
    size: int, free: int, expected: bool
) -> None:
    assert fits(size, free) is expected


def test_tokens_tell_rows_apart_by_content_alone() -> None:
    """Read anew or from the cache: the same fingerprint."""
    assert (
        tokens().fingerprint
        == Encoded(
            TOKENS.ids.copy(), TOKENS.types.copy(), TOKENS.offsets.copy(), TOKENS.pad_id
        ).fingerprint
    )
    assert tokens(ids=one_changed(TOKENS.ids, 0, 4)).fingerprint != TOKENS.fingerprint
