"""The runs below a results folder as rows for a person, and as csv and json."""

from __future__ import annotations

import csv
import io
import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ilkd_bench.plumbing import files
from ilkd_bench.plumbing.command import no_runs, run_line, typable
from ilkd_bench.plumbing.own_files import has_file
from ilkd_bench.plumbing.table import table
from ilkd_bench.plumbing.text import cell, plain
from ilkd_bench.records.folders import Damaged, examine, run_folders
from ilkd_bench.types import BadInput

STATES = {
    "done": "green",
    "running": "cyan",
    "stopped": "yellow",
    "failed": "red",
    "skipped": "dim",
    "missing": "yellow",
    "damaged": "bold red",
}
"""State -> its colour. `stopped`: begun, and no process is at it now; `missing`: only planned."""

FILTERS = ("task", "method", "teacher", "student")


@dataclass(frozen=True)
class Listed:
    """A run as the command lists it; the fields are the columns of the csv and json formats.

    None: its record does not say.
    """

    state: str
    task: str
    teacher: str | None
    student: str | None
    method: str
    seed: float | None
    lr: float | None
    batch_size: float | None
    metric: str | None  # chose the best epoch on dev
    dev: float | None
    teacher_dev: float | None
    seconds: float | None  # of all parts together
    when: str | None  # the record was written
    id: str
    reason: str | None
    folder: str
    error: str | None  # the file with the traceback
    command: str | None  # the line that repeats it

    @property
    def pair(self) -> str:
        """Teacher and student; of a damaged record the folder's name, which has both."""
        if self.teacher is None or self.student is None:
            return Path(self.folder).parts[-3]
        return f"{self.teacher} -> {self.student}"


def described(
    folder: Path, record: dict[str, Any], state: str, *, when: float | None, reason: Any = None
) -> Listed:
    """Return a run from its record; what the record lacks comes from the folder's path, or is None.

    Args:
        record: empty if it is damaged.
        when: it was written, seconds since 1970.
    """
    task, _, method, name = folder.parts[-4:]
    seed, _, identity = name.removeprefix("s").partition("-")
    monitor = _at(record, "monitor")
    metric = monitor.rpartition("/")[2] if isinstance(monitor, str) else None
    parts = _at(record, "seconds")
    seconds = [_number(v) for v in parts.values()] if isinstance(parts, dict) else []
    return Listed(
        state=state,
        task=_text(_at(record, "config", "task", "name")) or task,
        teacher=_text(_at(record, "config", "teacher", "name")),
        student=_text(_at(record, "config", "student", "name")),
        method=_text(_at(record, "config", "method", "name")) or method,
        seed=int(seed) if seed.isdecimal() else _number(_at(record, "config", "seed")),
        lr=_number(_at(record, "config", "lr")),
        batch_size=_number(_at(record, "config", "batch_size")),
        metric=metric,
        dev=_number(_at(record, "scores", "dev", metric)),
        teacher_dev=_number(_at(record, "teacher", "dev", metric)),
        seconds=sum(s for s in seconds if s is not None) if seconds else None,
        when=None if when is None else _moment(when),
        id=_text(_at(record, "id")) or identity,
        reason=None if reason is None else str(reason),
        folder=str(folder),
        error=str(folder / "error.txt")
        if state == "failed" and has_file(folder, "error.txt")
        else None,
        command=command(_at(record, "argv")),
    )


def _at(value: Any, *keys: Any) -> Any:
    """Return what lies under these keys; None where one of them is missing."""
    for key in keys:
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _number(value: Any) -> float | None:
    """Return a number as it is; None for anything else, infinity and NaN included."""
    return value if isinstance(value, int | float) and -1e300 < value < 1e300 else None


def _moment(seconds: float) -> str | None:
    try:
        moment = datetime.fromtimestamp(seconds)
    except (ValueError, OverflowError, OSError):  # a file's time may be any number
        return None
    return moment.astimezone().isoformat(timespec="seconds")


def command(words: Any) -> str | None:
    """Return the line that runs the words of a record; None where it has none."""
    return run_line(typable(map(str, words))) if isinstance(words, list) else None


def look(folder: Path) -> Listed | None:
    """Return the run of a folder; None if it has no record, or none any more."""
    when = None
    try:
        when = (folder / "record.json").lstat().st_mtime
        record = examine(folder)
        state = record["status"]
        if state == "running" and not files.held(folder):
            record = examine(folder)  # it may have ended between the two looks
            state = "stopped" if record["status"] == "running" else record["status"]
    except FileNotFoundError:
        return None
    except (Damaged, OSError) as error:
        return described(folder, {}, "damaged", when=when, reason=error)
    return described(folder, record, state, when=when, reason=record.get("reason"))


def load(results_dir: Path) -> list[Listed]:
    """Return every run below a folder, the seeds of one setting side by side.

    Raises:
        BadInput: there is no such folder.
    """
    if not (results_dir / "runs").is_dir():
        raise no_runs(results_dir)
    runs = [run for run in map(look, run_folders(results_dir)) if run is not None]
    return sorted(runs, key=_order)


def _order(run: Listed) -> tuple[Any, ...]:
    numbers = (run.lr, run.batch_size, run.seed)
    known = (-1 if number is None else number for number in numbers)
    return (run.task, run.pair, run.method, *known, run.folder)


def fits(run: Listed, filters: dict[str, list[str]]) -> bool:
    """Tell whether a run matches one pattern of each filter."""
    return all(any(_match(run, key, p) for p in patterns) for key, patterns in filters.items())


def _match(run: Listed, key: str, pattern: str) -> bool:
    value = getattr(run, key)
    if value is None:  # the folder's name says `teacher-student`, and either may have a hyphen
        value = run.pair
        pattern = f"{pattern}-*" if key == "teacher" else f"*-{pattern}"
    return fnmatchcase(value, pattern)


# --------------------------------------------------------------------------------------- the output


def _text_of(number: float | None, form: str) -> str:
    return "" if number is None else format(number, form)


COLUMNS: dict[str, Callable[[Listed], str]] = {
    "state": lambda run: run.state,
    "task": lambda run: run.task,
    "pair": lambda run: run.pair,
    "method": lambda run: run.method,
    "seed": lambda run: _text_of(run.seed, "g"),
    "lr": lambda run: _text_of(run.lr, "g"),
    "batch": lambda run: _text_of(run.batch_size, "g"),
    "dev": lambda run: _text_of(run.dev, ".4f"),
    "teacher": lambda run: _text_of(run.teacher_dev, ".4f"),
    "seconds": lambda run: _text_of(run.seconds, ".1f"),
    "when": lambda run: (run.when or "")[:16].replace("T", " "),
    "id": lambda run: run.id,
}
NUMBERS = frozenset("seed lr batch dev teacher seconds".split())
FOLDED = ("task", "pair", "method")
DROPPED = ("when", "seconds", "teacher")
"""Columns that a narrow terminal does without, in this order."""


def rows(runs: Sequence[Listed], width: int | None) -> list[str]:
    """Return a line per run, after a head, and why records are damaged.

    Args:
        width: of the terminal; None: whole lines.
    """
    if not runs:
        return []
    lines = table(
        runs,
        COLUMNS,
        width=width,
        numbers=NUMBERS,
        folded=FOLDED,
        dropped=DROPPED,
        instead="a wider terminal or --format csv shows them",
    )
    damaged = [run for run in runs if run.state == "damaged"]
    return lines + [plain(f"damaged: {run.folder}/record.json: {run.reason}") for run in damaged]


def why_failed(run: Listed) -> str:
    """Return one line with the reason and where the traceback is."""
    where = f" (traceback: {run.error})" if run.error else f" ({run.folder})"
    who = [run.task, run.pair, run.method]
    who += [
        f"{name} {COLUMNS[name](run)}" for name in ("seed", "lr", "batch") if COLUMNS[name](run)
    ]
    return plain(f"{run.id}  {', '.join(who)}: {run.reason or 'no reason given'}{where}")


def counts(runs: Sequence[Listed]) -> str:
    """Return how many runs are in each state."""
    number = Counter(run.state for run in runs)
    return ", ".join(f"{number[state]} {state}" for state in STATES if number[state])


def total(runs: Sequence[Listed], number: int, results_dir: Path) -> str:
    """Return the line below a listing.

    Args:
        number: of all runs in the folder.
    """
    of = "" if len(runs) == number else f" of {number}"
    states = f": {counts(runs)}" if runs else ""
    return f"{len(runs)}{of} runs in {results_dir / 'runs'}{states}"


def to_do(runs: Sequence[Listed], states: Sequence[str]) -> list[str]:
    """Return the command of each run of a command line that is not done, and how many are.

    Args:
        states: patterns; only these have a line.
    """
    rest = [run for run in runs if run.state != "done"]
    lines = [f"{run.state:<8} {run.command}" for run in in_states(rest, states)]
    summary = f"{len(runs) - len(rest)} of {len(runs)} runs are done"
    return [*lines, f"{summary}; {counts(rest)}" if rest else summary]


def in_states(runs: Sequence[Listed], patterns: Sequence[str]) -> list[Listed]:
    """Return the runs whose state matches one of some patterns."""
    return [run for run in runs if any(fnmatchcase(run.state, p) for p in patterns)]


def as_csv(runs: Sequence[Listed]) -> str:
    """Return all fields of the runs, numbers unrounded."""
    text = io.StringIO()
    writer = csv.DictWriter(text, [field.name for field in fields(Listed)], lineterminator="\n")
    writer.writeheader()
    writer.writerows({k: cell(v) for k, v in vars(run).items()} for run in runs)
    return text.getvalue()


def as_json(runs: Sequence[Listed]) -> str:
    """Return a list with an object per run."""
    return json.dumps([vars(run) for run in runs], indent=1, allow_nan=False) + "\n"


def command_of(folder: Path) -> str:
    """Return the line that repeats the run of a folder.

    Raises:
        BadInput: its record does not say.
    """
    run = look(folder)
    if run is None or run.command is None:
        why = f": {run.reason}" if run and run.state == "damaged" else " has no argv"
        raise BadInput(f"the record in {folder} does not tell its command{why}")
    return run.command
