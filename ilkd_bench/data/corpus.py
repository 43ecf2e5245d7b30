"""Plain text that a student learns from before any task: single texts and pairs, read as a stream.

A model that never saw two segments has no attention across them and learns no task of pairs, so
whatever comes in pairs is given both ways: the pair, and each of its texts alone.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice, pairwise
from pathlib import Path
from typing import Any

from ilkd_bench.data import tasks
from ilkd_bench.data.tasks import Task
from ilkd_bench.plumbing.files import FileHash
from ilkd_bench.types import BadInput

Text = tuple[str] | tuple[str, str]
"""One text, or a pair that a model reads as two segments."""

LONGEST = 20_000
"""Characters of a text that are read; what a model reads of it is shorter still."""

SUFFIXES = (".jsonl", ".txt")

SENTENCE = re.compile(r"(?<=[.!?])[\"')\]]*\s+")
"""What ends a sentence of running text; an abbreviation that is cut does no harm here."""


@dataclass(frozen=True)
class Corpus:
    """Where the texts come from.

    Attributes:
        tasks: whose training rows are taken, without their labels.
        data_dir: where these tasks lie; None: at the hub, or in the demo grammar.
        folder: with text files (`*.txt`, running text: sentences and neighbouring ones) and
            `*.jsonl`.
        hub: a data set's path, config, revision and split.
        columns: of jsonl files and of the hub: one text, or the two of a pair.
    """

    tasks: Sequence[Task]
    data_dir: Path | None
    folder: Path | None
    hub: dict[str, Any] | None
    columns: Sequence[str]

    def texts(self) -> Iterator[Text]:
        """Yield the texts, each pair followed by its parts.

        Raises:
            BadInput: a source cannot be read; the message has the file and the line.
        """
        yield from _of_tasks(self.tasks, self.data_dir)
        if self.folder is not None:
            for path in files(self.folder):
                yield from _of_file(path, self.columns)
        if self.hub is not None:
            yield from _of_hub(self.hub, self.columns)

    def fingerprint(self, cache_dir: Path, hash_of: FileHash) -> dict[str, Any]:
        """Return what identifies the texts, free of paths."""
        of_tasks = {
            task.name: tasks.fingerprints(task, self.data_dir, cache_dir, hash_of)
            for task in self.tasks
        }
        folder: dict[str, str] = {}
        if self.folder is not None:
            for path in files(self.folder):
                folder[path.relative_to(self.folder).as_posix()] = hash_of(path, cache_dir)
        return {
            "tasks": of_tasks,
            "folder": folder,
            "hub": self.hub,
            "columns": list(self.columns),
        }


def files(folder: Path) -> list[Path]:
    """Return the text files of a folder and the folders in it.

    Raises:
        BadInput: it is no folder, or has none, or something else of such a name.
    """
    if not folder.is_dir():
        raise BadInput(f"student.general.corpus.folder={folder} is no folder")
    named = (path for suffix in SUFFIXES for path in folder.rglob(f"*{suffix}"))
    found = sorted(path for path in named if not path.is_dir())
    if not found:
        raise BadInput(
            f"student.general.corpus.folder={folder}: there is no *.txt and no *.jsonl in it"
        )
    strange = [path for path in found if not path.is_file()]
    if strange:
        raise BadInput(f"{strange[0]} is no file that can be read, or a link to none: remove it")
    return found


def _clipped(*texts: str) -> Text:
    """Return one text or a pair, as long as anything is read of it."""
    first, *rest = (text[:LONGEST] for text in texts)
    return (first, rest[0]) if rest else (first,)


def _both_ways(texts: Sequence[str]) -> Iterator[Text]:
    """Yield a row: the pair, and each text alone; empty texts are left out."""
    kept = [text for text in texts if text.strip()]
    if len(kept) == 2:
        yield _clipped(*kept)
    for text in kept:
        yield _clipped(text)


# ------------------------------------------------------------------------------------------ tasks


def _of_tasks(known: Sequence[Task], data_dir: Path | None) -> Iterator[Text]:
    """Yield the texts of the training rows, each once, and none that another split has too."""
    scored = set(chain.from_iterable(_scored(task, data_dir) for task in known))
    given: set[Text] = set()
    for task in known:
        for row in _rows(task, "train", data_dir):
            if scored.isdisjoint(row):
                for text in _both_ways(row):
                    if text not in given:
                        given.add(text)
                        yield text


def _scored(task: Task, data_dir: Path | None) -> Iterator[str]:
    """Yield the texts that students are chosen by, scored on, or asked for by a leaderboard."""
    for split in tasks.available(task, data_dir):
        if split not in ("train", "teacher"):
            yield from chain.from_iterable(_rows(task, split, data_dir))


def _rows(task: Task, split: str, data_dir: Path | None) -> Iterator[tuple[str, ...]]:
    yield from zip(*tasks.read(task, split, data_dir=data_dir).texts, strict=True)


# ------------------------------------------------------------------------------------------ files


def _of_file(path: Path, columns: Sequence[str]) -> Iterator[Text]:
    """Yield the texts of a file, which is never in memory as a whole.

    Raises:
        BadInput: it cannot be read.
    """
    try:
        lines = _lines(path)
        yield from _of_rows(path, lines, columns) if path.suffix == ".jsonl" else _running(lines)
    except OSError as error:
        raise BadInput(f"{path} cannot be read: {error.strerror}") from error


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Yield number and text of each line in UTF-8."""
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            try:
                text = line.removeprefix(codecs.BOM_UTF8 if number == 1 else b"").decode()
            except UnicodeDecodeError as error:
                utf16 = number == 1 and line[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)
                raise BadInput(
                    f"{path} cannot be read: line {number} is not UTF-8 (byte "
                    f"{line[error.start]:#04x}). Convert the file, perhaps with: iconv -f "
                    f"{'UTF-16' if utf16 else 'LATIN1'} -t UTF-8"
                ) from error
            if "\0" in text:
                raise BadInput(
                    f"{path} cannot be read: line {number} has a NUL byte: it is damaged, or not "
                    "UTF-8"
                )
            yield number, text


def _of_rows(
    path: Path, lines: Iterator[tuple[int, str]], columns: Sequence[str]
) -> Iterator[Text]:
    """Yield the columns of a jsonl file; what is no text, or missing, is refused."""
    for number, line in lines:
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except (ValueError, RecursionError) as error:
            raise BadInput(
                f"{path} cannot be read: line {number} is no JSON object: {error}"
            ) from error
        yield from _both_ways(_taken(row, columns, f"{path}, line {number}"))


def _taken(row: Any, columns: Sequence[str], where: str) -> list[str]:
    texts = []
    for name in columns:
        value = row.get(name) if isinstance(row, dict) else None
        if not isinstance(value, str):
            raise BadInput(
                f"{where}: there is no text in column {name}; type the columns that have one as "
                "student.general.corpus.columns=[NAME] or [NAME,NAME]"
            )
        if not _is_whole(value):
            raise BadInput(f"{where}: column {name} has half of a character (a lone surrogate)")
        texts.append(value)
    return texts


def _is_whole(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _running(lines: Iterator[tuple[int, str]]) -> Iterator[Text]:
    """Yield the sentences of running text, and neighbours within a line as pairs."""
    for _, line in lines:
        sentences = [part for part in SENTENCE.split(line.strip()) if part]
        yield from (_clipped(sentence) for sentence in sentences)
        yield from (_clipped(*pair) for pair in pairwise(sentences))


def _of_hub(hub: dict[str, Any], columns: Sequence[str]) -> Iterator[Text]:
    from datasets import load_dataset  # only here: it takes a second to import

    name = f"{hub['path']}:{hub['config']}@{hub['revision']}"
    try:
        rows = load_dataset(
            hub["path"],
            hub["config"],
            revision=hub["revision"],
            split=hub["split"],
            streaming=True,
        )
        for number, row in enumerate(rows):
            yield from _both_ways(_taken(row, columns, f"{name}, row {number}"))
    except (OSError, ValueError, RuntimeError) as error:
        raise BadInput(
            f"{name} cannot be loaded from the hub ({type(error).__name__}: {error}). Without a "
            "network give student.general.corpus.folder=DIR"
        ) from error


# ------------------------------------------------------------------------------------- as numbers


def batched(texts: Iterator[Text], size: int) -> Iterator[list[Text]]:
    """Yield the texts in lists of at most `size`."""
    while some := list(islice(texts, size)):
        yield some
