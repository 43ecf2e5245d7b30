"""The files that rows come in: parquet, jsonl, csv and tsv. Nothing in them is guessed or mended.

Only the columns that are asked for are read, so that the others may hold anything.
"""

from __future__ import annotations

import codecs
import csv
import io
import json
import logging
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilkd_bench.types import BadInput

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

Columns = dict[str, Sequence[Any]]
"""What stands in each column, row by row: texts, numbers, truth values, None, ..."""

FIELD = r'(?:"[^"]*(?:""[^"]*)*"|[^",\r\n]*)'
RECORD = re.compile(rf"{FIELD}(?:,{FIELD})*(?:\r\n|\r|\n)?")
"""A row of a csv by RFC 4180; the line may end as it does on any system."""

QUOTES = (
    "its quotes are not those of a csv (RFC 4180): a text with a quote, a comma or a line break in "
    'it stands in quotes, and a quote in it is written twice, as in "she said ""no"", twice"'
)
COUNTS = {
    "csv": 'a text with a comma in it stands in quotes, as in "well, yes"',
    "tsv": "a text cannot have a tab or a line break in it",
}

GLUE = (
    (["#1 String", "#2 String"], "Quality"),
    (["question1", "question2"], "is_duplicate"),
    (["sentence1", "sentence2"], "gold_label"),
    (["sentence1", "sentence2"], "score"),
)
"""Text and label columns of GLUE's own files, where they are not those of the hub."""

DIGITS = 18
"""A whole number of more digits is read as a decimal, which is as exact and has no limit."""


def read_file(path: Path, wanted: Sequence[str]) -> Columns:
    """Read some columns of a file; its suffix says in which format it is.

    Raises:
        BadInput: it cannot be read, breaks the rules of its format, has a column twice, or lacks
            one; the message has the line.
    """
    try:
        return READERS[path.suffix.removeprefix(".")](path, wanted)
    except OSError as error:
        raise _unreadable(path, str(error).partition("\n")[0]) from error


def from_arrow(table: pa.Table, wanted: Sequence[str], where: str) -> Columns:
    """Return columns of a table in memory.

    Raises:
        BadInput: it lacks one, or has one twice.
    """
    require(where, wanted, table.column_names)
    return {name: _entries(table.column(name)) for name in wanted}


def from_rows(rows: Sequence[dict[str, Any]], wanted: Sequence[str], where: str) -> Columns:
    """Return columns of rows; a row that lacks a value has None there.

    Raises:
        BadInput: all rows lack one.
    """
    if rows:
        require(where, wanted, list(dict.fromkeys(name for row in rows for name in row)))
    return {name: [row.get(name) for row in rows] for name in wanted}


def require(where: str, wanted: Sequence[str], found: Sequence[str]) -> None:
    """Refuse a source that lacks a column, or has one twice.

    Raises:
        BadInput: that is so.
    """
    missing = [name for name in wanted if name not in found]
    if missing:
        names = ", ".join(name if len(name) <= 40 else f"{name[:40]}..." for name in found)
        raise BadInput(f"{where}: no column {', '.join(missing)}; found are {names}{_hint(found)}")
    twice = [name for name, count in Counter(found).items() if count > 1 and name]
    if twice:
        raise BadInput(f"{where}: the column {twice[0]} is there twice; rename one or leave it out")


def _hint(found: Sequence[str]) -> str:
    """Return what to do about a header that is not the task's, where it is a known one."""
    for texts, label in GLUE:
        if {*texts, label} <= set(found):
            listed = ",".join(f'"{name}"' if " " in name else name for name in texts)
            return (
                ". These are the columns of GLUE's own file: type "
                f"'task.text_columns=[{listed}]' task.label_column={label}"
            )
    if len(found) == 4 and found[1] in ("0", "1") and found[2] in ("", "*"):
        return (
            ". This is a row of GLUE's own CoLA file, which does not name its columns: put a first "
            "line there with source, label, star and sentence, with tabs between them"
        )
    if len(found) == 1 and any(mark in found[0] for mark in ",;\t"):
        return ". A csv has commas between its columns, a tsv has tabs"
    return ""


def _unreadable(path: Path, why: str) -> BadInput:
    return BadInput(f"{path} cannot be read: {why}")


# ------------------------------------------------------------------------------------------- text


def _text(path: Path) -> str:
    """Return the content of a text file without its byte-order mark."""
    data = path.read_bytes().removeprefix(codecs.BOM_UTF8)
    try:
        text = data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        code = "UTF-16" if data[:2] in (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE) else "LATIN1"
        raise _unreadable(
            path,
            f"line {line} is not UTF-8 (byte {data[error.start]:#04x}). Convert the file, perhaps "
            f"with: iconv -f {code} -t UTF-8",
        ) from error
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise _unreadable(path, f"line {line} has a NUL byte: it is damaged, or not UTF-8")
    return text


def _csv(path: Path, wanted: Sequence[str]) -> Columns:
    text = _text(path)
    csv.field_size_limit(max(csv.field_size_limit(), len(text)))
    return _table(path, _csv_rows(path, text), wanted)


def _csv_rows(path: Path, text: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each row with the lines it stands in, blank lines left out."""
    raw: list[str] = []

    def lines() -> Iterator[str]:
        for line in io.StringIO(text, newline=""):  # keeps the line breaks as they are
            raw.append(line)
            yield line

    width = 0  # of the header
    reader = csv.reader(lines(), strict=True)
    while True:
        first = reader.line_num + 1
        raw.clear()
        try:
            row = next(reader, None)
        except csv.Error as error:
            raise _unreadable(path, f"{_lines(first, reader.line_num)}: {QUOTES}") from error
        if row is None:
            return
        where = _lines(first, reader.line_num)
        record = "".join(raw)
        if '"' in record and not RECORD.fullmatch(record):  # a quote in a field without quotes
            raise _unreadable(path, f"{where}: {QUOTES}")
        if record.strip():
            if len(raw) > 1 and all(line.count(",") + 1 == width for line in raw):
                log.warning(
                    "%s: %s are one row, with line breaks in a text, though each looks like a row; "
                    "if they are rows, a quote is not closed",
                    path,
                    where,
                )
            width = width or len(row)
            yield where, row


def _lines(first: int, last: int) -> str:
    return f"line {first}" if last <= first else f"lines {first} to {last}"


def _tsv(path: Path, wanted: Sequence[str]) -> Columns:
    """Read a file without quoting: every quote is part of a text, as in GLUE's own files."""
    lines = enumerate(_text(path).split("\n"), 1)
    whole = ((number, line.removesuffix("\r")) for number, line in lines)
    return _table(path, ((f"line {n}", line.split("\t")) for n, line in whole if line), wanted)


def _table(path: Path, rows: Iterator[tuple[str, list[str]]], wanted: Sequence[str]) -> Columns:
    """Return columns of a table whose first row names them."""
    _, header = next(rows, ("", []))
    if not header:
        raise _unreadable(path, "it is empty; its first line names the columns")
    require(str(path), wanted, header)
    places = [header.index(name) for name in wanted]
    columns: list[list[str]] = [[] for _ in wanted]
    for where, row in rows:
        if len(row) != len(header):
            fields = f"{len(row)} field{'s' * (len(row) != 1)}"
            raise _unreadable(
                path,
                f"{where} has {fields} where the header has {len(header)}: "
                f"{COUNTS[path.suffix.removeprefix('.')]}. Correct the row or leave it out",
            )
        for column, place in zip(columns, places, strict=True):
            column.append(row[place])
    return dict(zip(wanted, columns, strict=True))


# ------------------------------------------------------------------------------------------- json


def _jsonl(path: Path, wanted: Sequence[str]) -> Columns:
    text = _text(path)
    if text.lstrip()[:1] == "[":
        raise _unreadable(
            path,
            "it is one JSON array. A jsonl file has an object per line; this makes one: python -c "
            "'import json,sys; [print(json.dumps(row)) for row in json.load(sys.stdin)]' "
            "< ARRAY > LINES",
        )
    decoder = json.JSONDecoder(object_pairs_hook=_object, parse_int=_whole)
    rows = []
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            row = decoder.decode(line)
        except json.JSONDecodeError as error:
            why = f"line {number}, column {error.colno}: {error.msg[:1].lower()}{error.msg[1:]}"
            raise _unreadable(path, f"{why}. Each line is one JSON object") from error
        except RecursionError as error:
            raise _unreadable(path, f"line {number}: it is nested too deep") from error
        if isinstance(row, _Repeated):
            twice = max(row, key=lambda name: row[name])
            raise _unreadable(path, f"line {number}: the column {twice} is there twice")
        if not isinstance(row, dict):
            raise _unreadable(path, f'line {number} is no JSON object, as {{"column": "text"}} is')
        rows.append(row)
    return from_rows(rows, wanted, str(path))


class _Repeated(dict[str, Any]):
    """An object that has a key twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    return row if len(row) == len(pairs) else _Repeated(Counter(name for name, _ in pairs))


def _whole(digits: str) -> int | Decimal:
    return int(digits) if len(digits) <= DIGITS else Decimal(digits)


# ---------------------------------------------------------------------------------------- parquet


def _parquet(path: Path, wanted: Sequence[str]) -> Columns:
    import pyarrow as pa  # in functions only: it takes long, and planning runs reads no rows
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            require(str(path), wanted, file.schema_arrow.names)
            return from_arrow(file.read(columns=list(wanted)), wanted, str(path))
    except (pa.ArrowException, ValueError, OverflowError) as error:
        raise _unreadable(path, str(error).partition("\n")[0]) from error


def _entries(column: pa.ChunkedArray) -> Sequence[Any]:
    """Return what stands in a column: bytes as the text they are, float32 as such."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        column = column.cast(pa.string())
    if pa.types.is_floating(column.type):
        return list(column.to_numpy())
    entries: list[Any] = column.to_pylist()
    return entries


READERS: dict[str, Callable[[Path, Sequence[str]], Columns]] = {
    "parquet": _parquet,
    "jsonl": _jsonl,
    "csv": _csv,
    "tsv": _tsv,
}
