"""Records as they are read: with their settings as of today, or what is wrong with them."""

from __future__ import annotations

import errno
import marshal
import sys
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError
from pydantic_core import PydanticCustomError

from ilkd_bench.plumbing.command import run_line
from ilkd_bench.plumbing.files import digest, write_json
from ilkd_bench.plumbing.text import plain
from ilkd_bench.records.cells import cell, place, setting
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
    kind: type[Record] = Record
    try:
        config = whole_settings(content.get("config"))
        if content["schema"] != SCHEMA:
            config = upgraded(config, content.get("precision"))
        if content["status"] == "done":
            kind = Done
            content = {"scores": None, "monitor": None} | content  # what is missing is a flaw
        known = {"config": config, "identity": run_id(config), "folder": folder, "mark": ""}
        return _slim(kind.model_validate(content | known))
    except ValidationError as error:
        raise Damaged(_sentence(error)) from error
    except PydanticCustomError as flaw:
        raise Damaged(flaw.message()) from flaw
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise Damaged(f"it is not whole ({type(error).__name__}: {error})") from error


_FIELDS: dict[frozenset[str], set[str]] = {}


def _slim(record: Record) -> Record:
    """Return the record, its set of given fields shared with others: it takes 2 kB."""
    fields = _FIELDS.setdefault(frozenset(record.model_fields_set), record.model_fields_set)
    object.__setattr__(record, "__pydantic_fields_set__", fields)
    return record


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    if first["type"] == "flaw":
        return first["msg"]
    where = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"its {where} is missing"
    return f"its {where} is wrong: {first['msg']}"


def read_record(folder: Path) -> Record | None:
    """Return a run's record; None where there is none, or none that can be used."""
    try:
        return record_of(examine(folder))
    except (FileNotFoundError, Damaged):
        return None


def write_record(folder: Path, record: Record) -> None:
    """Write a run's record.

    Raises:
        OSError: it cannot be written, or the folder is a link.
    """
    if folder.is_symlink():
        raise OSError(errno.EINVAL, "it is a link, and nothing is written through links", folder)
    write_json(folder / "record.json", record.content())


@dataclass(frozen=True)
class Stored:
    """Some records, and what is wrong with others."""

    records: list[Record]
    flaws: list[str]  # one sentence for every record that cannot be used


def load_records(results_dir: Path) -> Stored:
    """Return every record below a results folder that can be used, and name the others."""
    return load_some(run_folders(results_dir), results_dir)


def load_some(folders: Iterable[Path], results_dir: Path) -> Stored:
    """Return the records of some runs that can be used, ordered by path, and name the others.

    Of several that are one run, one that is done counts, else the first. Runs with different
    settings never have the same place in the tables.

    Args:
        folders: of the runs, below `results_dir`.
    """
    records: list[Record] = []
    flaws = []
    shared: dict[bytes, Any] = {}
    for folder in sorted(folders):
        name = folder.relative_to(results_dir).as_posix()
        try:
            records.append(_usable(_sharing(examine(folder), shared), name))
        except (Damaged, FileNotFoundError) as error:
            flaws.append(plain(f"{name}: not used, {error}"))
    kept: dict[str, Record] = {}
    records = _precisions_known(records)
    for record in sorted(records, key=lambda record: not isinstance(record, Done)):
        same = kept.setdefault(record.identity, record)
        if same is not record:
            why = "has the id of" if same.id == record.id else "is the same run as"
            flaws.append(plain(f"{record.folder}: not used, it {why} {same.folder}"))
    counting = {record.folder for record in kept.values()}
    return Stored(_marked([r for r in records if r.folder in counting]), sorted(flaws))


OWN = ("scores", "seconds", "config", "argv")
"""What no two records have in common as a whole; versions, data and the like many have."""


def _sharing(content: dict[str, Any], shared: dict[bytes, Any]) -> dict[str, Any]:
    """Return a record that holds what others hold too as the same objects: memory for one of them.

    Args:
        shared: what the records before it held; is filled.
    """

    def known(value: Any) -> Any:
        if isinstance(value, str):
            return sys.intern(value)
        kept = isinstance(value, dict | list)
        return shared.setdefault(marshal.dumps(value, 2), value) if kept else value

    shares = {key: known(value) for key, value in content.items() if key not in OWN}
    if isinstance(content.get("config"), dict):
        shares["config"] = {sys.intern(k): known(v) for k, v in content["config"].items()}
    if isinstance(content.get("argv"), list):
        shares["argv"] = list(map(known, content["argv"]))
    return content | shares


def _usable(content: dict[str, Any], folder: str) -> Record:
    """Return a record whose settings give its id, and which has a place in the tables.

    Raises:
        Damaged: that is not so.
    """
    record = record_of(content, folder)
    try:
        identity = record.identity if record.schema_ == SCHEMA else run_id(content["config"])
        "".join((folder, *place(record.config).values())).encode()
    except (ValueError, LookupError, TypeError, AttributeError, ArithmeticError) as error:
        raise Damaged(f"its settings have no place in the tables: {error}") from error
    if identity != record.id:
        raise Damaged("its settings do not give its id (was it edited by hand?)")
    return record


def _marked(records: Sequence[Record]) -> list[Record]:
    """Return the records, those marked whose settings differ and whose places would be the same.

    What a label does not tell apart is a part of a run's identity that it does not name.
    """
    cells: dict[tuple[str, ...], set[str]] = defaultdict(set)
    for record in records:
        cells[tuple(place(record.config).values())].add(cell(record.config))
    return [
        record.model_copy(update={"mark": f"#{cell(record.config)[:6]}"})
        if len(cells[tuple(place(record.config).values())]) > 1
        else record
        for record in records
    ]


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
    return record_of(
        record.content() | {"config": record.config | {"precision": precision}}, record.folder
    )


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
    except FileNotFoundError as error:
        raise BadInput(f"{folder} has no record any more") from error
    except Damaged as error:
        raise BadInput(f"{folder}/record.json cannot be used: {error}") from error
    if isinstance(record, Done):
        return record
    reason = f" ({record.reason})" if record.reason else ""
    raise BadInput(
        f"run {record.id} is {record.status}{reason}, so it has no student. "
        f"Run it first: {run_line(record.words)}"
    )
