"""Files that are whole or absent, and the records of runs."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

log = logging.getLogger(__name__)

SCHEMA = 1
"""Version of the record's layout; part of every run's identity."""

STATUSES = ("done", "failed", "skipped", "running")


def write_text(path: Path, text: str) -> None:
    """Write a file aside, flush it to the disk and rename it, so that no reader sees a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with aside.open("w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)
    finally:
        aside.unlink(missing_ok=True)


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON; NaN and infinity are errors, since no JSON reader must take them."""
    write_text(path, json.dumps(value, indent=1, sort_keys=True, allow_nan=False) + "\n")


def digest(value: Any) -> str:
    """Return a hash of a JSON-like value that does not depend on key order or on 1 versus 1.0."""
    text = json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _canonical(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value


def file_hash(path: Path, cache_dir: Path) -> str:
    """Return the SHA-256 of a file's content, remembered by path, size and modification time."""
    stat = path.stat()
    key = digest([str(path.resolve()), stat.st_size, stat.st_mtime_ns])
    remembered = cache_dir / "hashes" / key
    if remembered.is_file():
        return remembered.read_text(encoding="utf-8")
    with path.open("rb") as file:
        value = hashlib.file_digest(file, "sha256").hexdigest()
    write_text(remembered, value)
    return value


class Held(Exception):
    """Another process holds the lock."""


@contextmanager
def locked(folder: Path, waiting: str, *, wait: bool = True) -> Iterator[None]:
    """Hold the lock of a folder, which need not exist; the lock dies with its process.

    Args:
        waiting: what to say while another process holds it.
        wait: for the other process; else `Held` is raised.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(_lock_path(folder))
    try:
        lock.acquire(timeout=0)
    except Timeout:
        if not wait:
            raise Held(waiting) from None
        log.info("waiting: %s", waiting)
        lock.acquire()
    try:
        yield
    finally:
        lock.release()


def _lock_path(folder: Path) -> Path:
    return folder.with_name(f".{folder.name}.lock")


def held(folder: Path) -> bool:
    """Tell whether a process holds the lock of a folder; true also where that cannot be told."""
    path = _lock_path(folder)
    if not path.exists():
        return False
    try:
        with FileLock(path).acquire(timeout=0):
            return False
    except OSError:  # Timeout: it is held; or somebody else's file, which we may not open
        return True


def set_aside(folder: Path) -> None:
    """Rename a run's record, if it has one, to the first free `record-<n>.json`."""
    if (folder / "record.json").is_file():
        number = 1
        while (folder / f"record-{number}.json").exists():
            number += 1
        os.replace(folder / "record.json", folder / f"record-{number}.json")


def run_folder(results_dir: Path, config: dict[str, Any], run_id: str) -> Path:
    """Return the folder of a run: task, pair, method, then seed and identity."""
    pair = f"{config['teacher']['name']}-{config['student']['name']}"
    run = f"s{config['seed']}-{run_id}"
    return results_dir / "runs" / config["task"]["name"] / pair / config["method"]["name"] / run


class Damaged(ValueError):
    """A record that is not whole, or of a layout that this version does not know."""


def examine(folder: Path) -> dict[str, Any]:
    """Return a run's record.

    Raises:
        FileNotFoundError: there is none.
        Damaged: there is one, but it is not whole; the message says why.
    """
    try:
        record = json.loads((folder / "record.json").read_text(encoding="utf-8"))
    except (ValueError, RecursionError) as error:
        raise Damaged(f"it is no JSON: {error}") from error
    if not isinstance(record, dict):
        raise Damaged(f"it holds no record but {type(record).__name__}")
    if record.get("schema") != SCHEMA:
        raise Damaged(f"its schema is {record.get('schema')!r}; this version reads {SCHEMA}")
    if record.get("status") not in STATUSES:
        raise Damaged(f"its status is {record.get('status')!r}; known are {', '.join(STATUSES)}")
    return record


def read_record(folder: Path) -> dict[str, Any] | None:
    """Return a run's record; None where there is none or it is not whole."""
    try:
        return examine(folder)
    except (FileNotFoundError, Damaged):
        return None


def write_record(folder: Path, record: dict[str, Any]) -> None:
    """Write a run's record."""
    write_json(folder / "record.json", record)


def run_folders(results_dir: Path) -> list[Path]:
    """Return every folder below `results_dir` that has a record, whole or not, ordered by path."""
    return [path.parent for path in sorted((results_dir / "runs").glob("*/*/*/*/record.json"))]
