"""Records as they are read: with their settings as of today, or what is wrong with them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from ilkd_bench.plumbing.command import run_line
from ilkd_bench.plumbing.files import digest, write_json
from ilkd_bench.records.cells import setting
from ilkd_bench.records.folders import Damaged, examine, run_folders
from ilkd_bench.records.record import Done, Record, whole_settings
from ilkd_bench.settings.identity import run_id, upgraded
from ilkd_bench.settings.schema import SCHEMA
from ilkd_bench.types import BadInput


def record_of(content: dict[str, Any], folder: str = "") -> Record:
    """Return a record from what its file holds, its settings as the present schema has them.

    Raises:
        Damaged: something is missing that every reader relies on; the message says what.
    """
    config = content.get("config")
    kind: type[Record] = Record
    try:
        if content["schema"] != SCHEMA:
            config = upgraded(whole_settings(config), content.get("precision"))
        if content["status"] == "done":
            kind = Done
            content = {"scores": None, "monitor": None} | content  # what is missing is a flaw
        return kind.model_validate(content | {"config": config, "folder": folder})
    except ValidationError as error:
        raise Damaged(_sentence(error)) from error
    except PydanticCustomError as flaw:
        raise Damaged(flaw.message()) from flaw
    except (ValueError, KeyError, TypeError, AttributeError, ArithmeticError) as error:
        raise Damaged(f"it is not whole ({type(error).__name__}: {error})") from error


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    if first["type"] == "flaw":
        return first["msg"]
    where = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"its {where} is missing"
    return f"its {where} is wrong: {first['msg']}"


def read_record(folder: Path) -> Record | None:
    """Return a run's record; None where there is none or it is not whole."""
    try:
        return record_of(examine(folder))
    except (FileNotFoundError, Damaged):
        return None


def write_record(folder: Path, record: Record) -> None:
    """Write a run's record."""
    write_json(folder / "record.json", record.content())


@dataclass(frozen=True)
class Stored:
    """The records below a results folder, and what is wrong with others."""

    records: list[Record]
    flaws: list[str]  # one sentence for every record that cannot be used


def load_records(results_dir: Path) -> Stored:
    """Return every record that can be used, ordered by path, and name the others.

    Of several that are one run, one that is done counts, else the first.
    """
    records: list[Record] = []
    flaws = []
    for folder in run_folders(results_dir):
        name = folder.relative_to(results_dir).as_posix()
        try:
            records.append(_usable(examine(folder), name))
        except (Damaged, FileNotFoundError, PermissionError) as error:
            flaws.append(f"{name}: not used, {error}")
    kept: dict[str, Record] = {}
    records = _precisions_known(records)
    for record in sorted(records, key=lambda record: not isinstance(record, Done)):
        identity = record.id if record.schema_ == SCHEMA else run_id(record.config)
        same = kept.setdefault(identity, record)
        if same is not record:
            why = "has the id of" if same.id == record.id else "is the same run as"
            flaws.append(f"{record.folder}: not used, it {why} {same.folder}")
    counting = {record.folder for record in kept.values()}
    return Stored([record for record in records if record.folder in counting], sorted(flaws))


def _usable(content: dict[str, Any], folder: str) -> Record:
    """Return a record whose settings give its id, and which has a place in the tables.

    Raises:
        Damaged: that is not so.
    """
    record = record_of(content, folder)
    try:
        identity = run_id(content["config"])
        "".join(record.place.values()).encode()
    except (ValueError, ArithmeticError) as error:
        raise Damaged(f"its settings have no identity: {error}") from error
    if identity != record.id:
        raise Damaged("its settings do not give its id (was it edited by hand?)")
    return record


def _precisions_known(records: Sequence[Record]) -> list[Record]:
    """Return the records, those of schema 1 that tell no precision with that of their section.

    Schema 1 had `auto` in the settings; only runs that are done say what it was.
    """
    unknown = [
        record
        for record in records
        if record.config["precision"] == "auto" and not isinstance(record, Done)
    ]
    if not unknown:
        return list(records)
    sections: dict[str, Counter[str]] = defaultdict(Counter)
    for record in records:
        if isinstance(record, Done):
            sections[_section(record)][record.config["precision"]] += 1
    known = {
        record.folder: sections[_section(record)].most_common(1)[0][0]
        for record in unknown
        if sections[_section(record)]
    }
    return [_with(record, known.get(record.folder)) for record in records]


def _with(record: Record, precision: str | None) -> Record:
    """Return a record with another precision in its settings; None: as it is."""
    if precision is None:
        return record
    config = record.config | {"precision": precision}
    return Record.model_validate(record.content() | {"config": config, "folder": record.folder})


def _section(record: Record) -> str:
    """Return what a section's runs have in common, but for the precision."""
    return digest(setting(record.config) | {"precision": None})


def finished(folder: Path) -> Done:
    """Return the record of a run that is done.

    Raises:
        BadInput: it is not, or its record cannot be read; the message says what to type.
    """
    try:
        record = record_of(examine(folder))
    except (Damaged, OSError) as error:
        raise BadInput(f"{folder}/record.json cannot be used: {error}") from error
    if isinstance(record, Done):
        return record
    reason = f" ({record.reason})" if record.reason else ""
    raise BadInput(
        f"run {record.id} is {record.status}{reason}, so it has no student. "
        f"Run it first: {run_line(record.words)}"
    )
