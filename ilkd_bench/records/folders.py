"""Where the records of runs lie, and what their files hold."""

from __future__ import annotations

import json
import logging
import os
import re
from pathlib import Path
from typing import Any

from ilkd_bench.plumbing import own_files
from ilkd_bench.settings.schema import SCHEMA

log = logging.getLogger(__name__)

SCHEMAS = (1, SCHEMA)
STATUSES = ("done", "failed", "skipped", "running")

RUN_FOLDER = ("task", "pair", "method", "run")
"""Levels of folders between `runs/` and a record."""


def set_aside(folder: Path) -> None:
    """Rename a run's record, if it has one, to the first free `record-<n>.json`.

    A link or a pipe in its place is no record, and removed.
    """
    path = folder / "record.json"
    if path.is_symlink() or not (path.is_file() or path.is_dir()):
        path.unlink(missing_ok=True)
    else:
        number = 1
        while os.path.lexists(folder / f"record-{number}.json"):
            number += 1
        os.replace(path, folder / f"record-{number}.json")


def run_folder(results_dir: Path, config: dict[str, Any], run_id: str) -> Path:
    """Return the folder of a run: task, pair, method, then seed and identity."""
    pair = f"{config['teacher']['name']}-{config['student']['name']}"
    run = f"s{config['seed']}-{run_id}"
    return results_dir / "runs" / config["task"]["name"] / pair / config["method"]["name"] / run


SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")
"""What may be half a letter in JSON, which no file or table can hold."""


def _whole_letters(text: str) -> str:
    """Return JSON in which half a letter is written as JSON escapes it."""
    return re.sub("[\ud800-\udfff]", lambda half: f"\\\\u{ord(half[0]):04x}", text)


class Damaged(ValueError):
    """A record that is not whole, or of a layout that this version does not know."""


class Unreadable(Damaged):
    """A record that may be whole, but that cannot be read here and now."""


DEEPEST = 50
"""Levels of lists and dictionaries in a record; those of runs have less than ten."""


def _require_shallow(value: Any) -> None:
    """Refuse what is nested too deeply for what works level by level."""
    level = [value]
    for _ in range(DEEPEST):
        parts = [part.values() if isinstance(part, dict) else part for part in level]
        level = [item for part in parts for item in part if isinstance(item, dict | list)]
        if not level:
            return
    raise ValueError(f"more than {DEEPEST} levels lie within each other")


def examine(folder: Path) -> dict[str, Any]:
    """Return what a run's record holds, as it was written.

    Raises:
        FileNotFoundError: there is none.
        Unreadable: the disk or the rights do not let us read it.
        Damaged: there is one, but it is not whole; the message says why.
    """
    try:
        text = own_files.read_file(folder, "record.json").decode()
    except FileNotFoundError:
        raise
    except UnicodeDecodeError as error:
        raise Damaged(f"it is no JSON: {error}") from error
    except OSError as error:
        kind = Damaged if error.errno in own_files.NO_FILE else Unreadable
        raise kind(f"{error.strerror or error}") from error
    try:
        record = json.loads(text)
        if text.count("{") + text.count("[") > DEEPEST:
            _require_shallow(record)
        if SURROGATE.search(text):
            record = json.loads(_whole_letters(json.dumps(record, ensure_ascii=False)))
    except (ValueError, RecursionError) as error:
        raise Damaged(f"it is no JSON: {error}") from error
    if not isinstance(record, dict):
        raise Damaged(f"it holds no record but {type(record).__name__}")
    if record.get("schema") not in SCHEMAS:
        raise Damaged(f"its schema is {record.get('schema')!r}; this version reads 1 to {SCHEMA}")
    if record.get("status") not in STATUSES:
        raise Damaged(f"its status is {record.get('status')!r}; known are {', '.join(STATUSES)}")
    return record


def run_folders(results_dir: Path) -> list[Path]:
    """Return every folder below `results_dir` that has a record, whole or not, ordered by path.

    Raises:
        OSError: a folder may not be read; leaving its runs out would give another table.
    """
    folders = [results_dir / "runs"] if (results_dir / "runs").exists() else []
    for _ in RUN_FOLDER:
        folders = [child for folder in folders for child in _folders(folder)]
    return sorted(folder for folder in folders if _has_record(folder))


def _folders(parent: Path) -> list[Path]:
    try:
        with os.scandir(parent) as entries:
            return [parent / entry.name for entry in entries if _is_folder(entry)]
    except FileNotFoundError:  # removed meanwhile
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads into a circle, or to a disk that is gone
        return False


def _has_record(folder: Path) -> bool:
    try:
        os.lstat(folder / "record.json")
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:  # it has one for all that can be told: `examine` says more
        return True
    return True
