"""Plain text as a stream: what is read, both ways, and what never is."""

from __future__ import annotations

import errno
import json
import os
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ilkd_bench.data import grammar, tasks, token_stream
from ilkd_bench.data.batches import EpochBatches, PlainText, batch_order
from ilkd_bench.data.corpus import LONGEST, Corpus, batched, files
from ilkd_bench.data.token_stream import AT_ONCE, encode_corpus
from ilkd_bench.models.build import word_tokenizer
from ilkd_bench.plumbing.files import file_hash
from ilkd_bench.plumbing.full_disk import NoSpace
from ilkd_bench.settings.general import _task
from ilkd_bench.types import BadInput


def corpus(**given: Any) -> Corpus:
    nothing: dict[str, Any] = {"tasks": [], "data_dir": None, "folder": None, "hub": None}
    return Corpus(**nothing | {"columns": ["text"]} | given)


def texts(folder: Path, name: str, content: str | bytes, **given: Any) -> list[Any]:
    data = content.encode() if isinstance(content, str) else content
    (folder / name).write_bytes(data)
    return list(corpus(folder=folder, **given).texts())


def test_running_text_gives_sentences_and_neighbours(tmp_path: Path) -> None:
    found = texts(tmp_path, "a.txt", "One. Two! Three?\n\nFour.\n")
    assert found == [
        *[("One.",), ("Two!",), ("Three?",)],
        *[("One.", "Two!"), ("Two!", "Three?")],
        ("Four.",),
    ]


def test_a_row_of_two_columns_is_a_pair_and_each_of_its_texts(tmp_path: Path) -> None:
    rows = [{"a": "x", "b": "y", "label": 1}, {"a": "z", "b": " "}]
    content = "".join(json.dumps(row) + "\n" for row in rows)
    found = texts(tmp_path, "a.jsonl", content, columns=["a", "b"])
    assert found == [("x", "y"), ("x",), ("y",), ("z",)]


def test_files_lie_at_any_depth_and_are_read_in_the_order_of_their_names(tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "b.txt").write_text("B")
    (tmp_path / "c.csv").write_text("nothing")
    assert texts(tmp_path, "a.txt", b"\xef\xbb\xbfA") == [("A",), ("B",)]


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("a.txt", b"fine\ncaf\xe9\n", r"line 2 is not UTF-8 \(byte 0xe9\).* iconv -f LATIN1"),
        ("a.txt", "One. Two.\n".encode("utf-16"), r"line 1 is not UTF-8 .* iconv -f UTF-16"),
        ("a.txt", "One. Two.\n".encode("utf-16-le"), "line 1 has a NUL byte"),
        ("a.jsonl", '{"text": "x"}\n'.encode("utf-16"), r"line 1 is not UTF-8 .* iconv -f UTF-16"),
        ("a.jsonl", b'{"text": "x"}\n{"text": \n', "line 2 is no JSON object"),
        ("a.jsonl", b'{"other": "x"}\n', "line 1: there is no text in column text"),
        ("a.jsonl", b'{"text": 3}\n', "line 1: there is no text in column text"),
        ("a.jsonl", b"[1, 2]\n", "line 1: there is no text in column text"),
        ("a.jsonl", b'{"text": "\\ud800"}\n', "half of a character"),
        ("a.csv", b"text\nx\n", r"there is no \*\.txt"),
    ],
)
def test_what_cannot_be_read_is_named(
    name: str, content: bytes, words: str, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match=words):
        texts(tmp_path, name, content)


def test_a_folder_that_is_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="is no folder"):
        list(corpus(folder=tmp_path / "nowhere").texts())


def test_a_folder_is_none_of_its_files_whatever_its_name(tmp_path: Path) -> None:
    (tmp_path / "b.txt").mkdir()
    (tmp_path / "b.txt" / "c.txt").write_text("C")
    assert texts(tmp_path, "a.txt", "A") == [("A",), ("C",)]


def test_what_is_no_file_is_named(tmp_path: Path) -> None:
    """Reading a pipe would wait for ever."""
    (tmp_path / "a.txt").write_text("A")
    os.mkfifo(tmp_path / "b.jsonl")
    with pytest.raises(BadInput, match=r"b\.jsonl is no file that can be read"):
        files(tmp_path)
    (tmp_path / "b.jsonl").unlink()
    (tmp_path / "c.txt").symlink_to(tmp_path / "nowhere")
    with pytest.raises(BadInput, match=r"c\.txt is no file that can be read"):
        files(tmp_path)


def test_a_file_that_may_not_be_read_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def denied(path: Path, *args: Any) -> Any:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    (tmp_path / "a.txt").write_text("A")
    monkeypatch.setattr(Path, "open", denied)  # root may read anything
    with pytest.raises(BadInput, match=r"a\.txt cannot be read: Permission denied"):
        list(corpus(folder=tmp_path).texts())


def test_a_line_of_ten_megabytes_is_cut(tmp_path: Path) -> None:
    (found,) = texts(tmp_path, "a.txt", "x" * 10_000_000)
    assert found == ("x" * LONGEST,)
    (tmp_path / "a.txt").unlink()
    (found,) = texts(tmp_path, "a.jsonl", json.dumps({"text": "y" * 10_000_000}))
    assert found == ("y" * LONGEST,)


def test_a_line_of_many_sentences_is_read_as_a_whole(tmp_path: Path) -> None:
    many = 100_000
    found = texts(tmp_path, "a.txt", "One two. " * many)
    assert found == [("One two.",)] * many + [("One two.", "One two.")] * (many - 1)


def test_training_rows_once_and_nothing_of_the_other_splits(tmp_path: Path) -> None:
    def rows(*pairs: tuple[str, str]) -> str:
        return "".join(
            json.dumps({"sentence1": a, "sentence2": b, "label": number % 2}) + "\n"
            for number, (a, b) in enumerate(pairs)
        )

    folder = tmp_path / "mrpc"
    folder.mkdir()
    (folder / "train.jsonl").write_text(
        rows(
            ("one", "two"), ("one", "three"), ("secret", "four"), ("five", "asked"), ("one", "two")
        )
    )
    (folder / "validation.jsonl").write_text(rows(("secret", "six"), ("seven", "eight")))
    hidden = json.dumps({"sentence1": "asked", "sentence2": "nine", "label": -1})
    (folder / "test.jsonl").write_text(hidden + "\n")
    found = list(corpus(tasks=[_task("mrpc")], data_dir=tmp_path).texts())
    assert found == [("one", "two"), ("one",), ("two",), ("one", "three"), ("three",)]


def test_the_grammar_needs_no_data() -> None:
    found = list(corpus(tasks=[_task("demo_nli"), _task("demo_sentiment")]).texts())
    known = set(grammar.vocabulary())
    assert {len(text) for text in found} == {1, 2}
    assert all(word in known for text in found for part in text for word in part.split())
    scored = {t for c in tasks.read(_task("demo_nli"), "dev", data_dir=None).texts for t in c}
    assert scored and scored.isdisjoint(part for text in found for part in text)


def test_the_fingerprint_tells_contents_not_places(tmp_path: Path) -> None:
    def fingerprint(name: str, content: str) -> Any:
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "a.txt").write_text(content)
        return corpus(folder=tmp_path / name).fingerprint(tmp_path / "cache", file_hash)

    assert fingerprint("x", "same") == fingerprint("y", "same") != fingerprint("z", "other")


# ------------------------------------------------------------------------------------- as numbers


def test_batched() -> None:
    assert list(batched(iter([("a",), ("b",), ("c",)]), 2)) == [[("a",), ("b",)], [("c",)]]


def test_token_numbers_are_those_of_the_tokenizer_and_stay_on_the_disk(tmp_path: Path) -> None:
    words = "one two three four".split()
    tokenizer = word_tokenizer(words, 128)
    (tmp_path / "a.txt").write_text("one two. three four one.\n" * 3)
    source = corpus(folder=tmp_path)

    def encode() -> Any:
        return encode_corpus(
            source, tokenizer, about="x", max_length=7, cache_dir=tmp_path / "cache"
        )

    encoded, pairs = encode()
    assert pairs == 3 and isinstance(encoded.ids, np.memmap)
    found = sorted(
        encoded.ids[start:end].tolist() + encoded.types[start:end].tolist()
        for start, end in zip(encoded.offsets[:-1], encoded.offsets[1:], strict=True)
    )
    expected = []
    for text in source.texts():
        of = tokenizer(*text, truncation=True, max_length=7, return_token_type_ids=True)
        expected.append(of["input_ids"] + of["token_type_ids"])
    assert found == sorted(expected)
    again, _ = encode()
    assert np.array_equal(again.ids, encoded.ids)

    (ids,) = (tmp_path / "cache/tokens").glob("*/ids.npy")
    content = bytearray(ids.read_bytes())
    content[-1] ^= 1
    ids.write_bytes(content)
    repaired, _ = encode()
    assert np.array_equal(repaired.offsets, encoded.offsets)


@pytest.mark.parametrize("step", ["appending", "giving a header"])
def test_a_full_disk_while_tokenising_is_told_and_leaves_nothing(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*args: Any) -> Any:
        raise OSError(errno.ENOSPC, "No space left on device")

    def encode() -> int:
        encoded, _ = encode_corpus(
            corpus(folder=tmp_path / "texts"),
            word_tokenizer(["one"], 128),
            about="x",
            max_length=7,
            cache_dir=tmp_path / "cache",
        )
        return len(encoded.lengths)

    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/a.txt").write_text("one.\n" * 2 * AT_ONCE)
    with monkeypatch.context() as patch:
        if step == "appending":  # the second lot; what is written first is there already
            lots: list[int] = []
            real = token_stream._append

            def append(*args: Any) -> None:
                lots.append(len(args[1]))
                if len(lots) == 2:
                    full()
                real(*args)

            patch.setattr(token_stream, "_append", append)
        else:
            patch.setattr(token_stream.shutil, "copyfileobj", full)
        expected = r"no space left on the disk of .*give a larger disk \(cache_dir=DIR\), then type"
        with pytest.raises(NoSpace, match=expected):
            encode()
    left = [path.name for path in (tmp_path / "cache/tokens").iterdir()]
    assert [name for name in left if not name.endswith(".lock")] == []
    assert encode() == 2 * AT_ONCE


def test_memory_does_not_grow_with_the_corpus(tmp_path: Path) -> None:
    def peak(lines: int) -> int:
        folder = tmp_path / str(lines)
        folder.mkdir()
        (folder / "a.txt").write_text("one two. three four.\n" * lines)
        tracemalloc.start()
        encode_corpus(
            corpus(folder=folder),
            word_tokenizer(["one", "two", "three", "four"], 128),
            about=lines,
            max_length=16,
            cache_dir=tmp_path / "cache",
        )
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return most

    few, many = peak(1_000), peak(5_000)
    text = 3 * 4_000 * 8 * 3  # lengths and offsets of what came on top, and their sum
    assert many < few + text + 700_000, "12,000 texts more as Python objects take above 2 MB"


def test_rows_of_a_text_are_those_that_were_taken() -> None:
    ids = np.arange(10, dtype=np.int32)
    offsets = np.array([0, 1, 3, 6, 10])
    from ilkd_bench.data.tokens import Encoded

    part = PlainText(Encoded(ids, np.zeros(10, np.int8), offsets, 99), np.array([1, 3]))
    assert len(part) == 2 and part.lengths.tolist() == [2, 4]
    batch = part[np.array([1, 0])]
    assert batch["student"] is batch["teacher"]
    assert batch["student"]["input_ids"].tolist() == [[6, 7, 8, 9], [1, 2, 99, 99]]
    assert batch["index"].tolist() == [3, 1]


def test_stretches_of_a_long_text_follow_one_another() -> None:
    lengths = np.random.default_rng(0).integers(1, 30, 50)

    def of(epoch: int) -> list[list[int]]:
        batches = EpochBatches(lengths, 4, seed=7, first_epoch=0, steps=5)
        batches.set_epoch(epoch)
        assert len(batches) == 5
        return [rows.tolist() for rows in batches]

    whole = [
        rows.tolist()
        for passage in range(2)
        for rows in batch_order(lengths, 4, seed=7, epoch=passage)
    ]
    assert len(whole) == 26
    assert [rows for epoch in range(5) for rows in of(epoch)] == whole[:25]
