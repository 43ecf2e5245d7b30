"""One run of a sweep: who it is, and an attempt at it that always leaves a record."""

from __future__ import annotations

import logging
import os
import shutil
import sys
import traceback
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

from ilkd_bench.plumbing import cores, files, own_files, processes, terminal
from ilkd_bench.plumbing.board import Sender
from ilkd_bench.plumbing.command import reason
from ilkd_bench.plumbing.hardware import auto_before
from ilkd_bench.plumbing.interrupts import not_lost
from ilkd_bench.plumbing.logs import crash_report, hush, logged, remove_empty, terminal_lines
from ilkd_bench.records import retention
from ilkd_bench.records.folders import Damaged, Unreadable, examine, run_folder, set_aside
from ilkd_bench.records.read import read_record, record_of, write_record
from ilkd_bench.records.record import Done, Record
from ilkd_bench.settings import plugins
from ilkd_bench.settings.checks import PRECISIONS
from ilkd_bench.settings.identity import former, run_id
from ilkd_bench.settings.run import Run
from ilkd_bench.settings.schema import SCHEMA
from ilkd_bench.types import BadInput, Incompatible

log = logging.getLogger("ilkd_bench")

HELD = 75
"""Exit code of a process that found another one at its run (EX_TEMPFAIL of sysexits.h)."""


@dataclass(frozen=True)
class Job:
    """One run: its settings, and the words that select it."""

    run: Run
    words: tuple[str, ...] = ()  # the command line that selects this run alone

    @property
    def id(self) -> str:
        """The run's identity."""
        return self.run.id

    @property
    def title(self) -> str:
        """What a person calls it, among those of a sweep that go on."""
        run = self.run
        return f"{run.task.name} {run.method.name} seed {run.seed}"

    @cached_property
    def folder(self) -> Path:
        """Where the run's files go: where it was begun already, by a former schema too.

        Where the precision is settled elsewhere, it is the run that was written last.
        """
        root = Path(self.run.results_dir)
        home = run_folder(root, self.run.identity, self.id)
        if self.run.precision != "auto":
            return _begun(self.run, root) or home
        precisions = (self.run.but(precision=precision) for precision in PRECISIONS[1:])
        folders = [folder for run in precisions if (folder := _begun(run, root)) is not None]
        return max(folders, key=lambda f: (f / "record.json").lstat().st_mtime, default=home)

    @property
    def record(self) -> Record:
        """What is known before the run begins."""
        return self.record_with(status="running", reason=None)

    def record_with(self, **outcome: Any) -> Record:
        """Return the run's record with what has become of it."""
        begun = {
            "schema": SCHEMA,
            "id": self.id,
            "argv": list(self.words),
            "config": self.run.identity,
        }
        return record_of(begun | outcome)

    def is_done(self, record: Record | None) -> TypeGuard[Done]:
        """Tell whether a record says that nothing is left to do."""
        return isinstance(record, Done) and not self.run.force


def _begun(run: Run, root: Path) -> Path | None:
    """Return the folder that a run has already; of those that schema 1 made, one that is done."""
    home = run_folder(root, run.identity, run.id)
    if os.path.lexists(home / "record.json"):
        return home
    if not _has_others(home):
        return None
    usual = auto_before(run.trainer.accelerator)
    begun: list[Path] = []
    for old in former(run):
        folder = run_folder(root, old, run_id(old))
        record = read_record(folder)
        if record is not None and record.config["precision"] in (run.precision, "auto"):
            if isinstance(record, Done):
                return folder
            if run.precision in (record.config["precision"], usual):  # of `auto`, what it was here
                begun.append(folder)
    return begun[0] if begun else None


def _has_others(home: Path) -> bool:
    """Tell whether a folder of another identity with the same seed lies beside a run's."""
    same_seed = home.name.partition("-")[0] + "-"
    try:
        names = os.listdir(home.parent)
    except FileNotFoundError:
        return False
    return any(name.startswith(same_seed) and name != home.name for name in names)


def execute(job: Job, heading: str = "", *, wait: bool = True) -> Record | None:
    """Do a run in a process of its own, unless it is done, and return its record.

    Whatever happens to the run ends up in its record (`failed`, with the reason); the caller goes
    on. Where another process is at the same run, this one waits, and finds it done.

    Args:
        heading: what to show above the run's bar.
        wait: where another process is at the run; else None is returned.

    Raises:
        OSError: no process can be started for the run, which stays as it is.
    """
    before = read_record(job.folder)
    code = processes.alone(attempt, job, Place(heading), wait)
    return conclude(job, code, before, wait=wait)


def conclude(job: Job, code: int, before: Record | None, *, wait: bool) -> Record | None:
    """Return the record of a run whose process has ended; None as of `execute`.

    Args:
        code: that the process exited with.
        before: the record before the process was started.
    """
    if code == HELD and not wait:
        return None
    record = read_record(job.folder) or job.record
    if code == 0 and record.status != "running":
        return record
    return _died(job, code, before)


def _died(job: Job, code: int, before: Record | None) -> Record:
    """Record the end of a run whose process could not do so itself.

    Args:
        before: the record before the process was started. A forced run that has not got to a new
            one did not begin: that is a failure, and what was stored stays.
    """
    with terminal_lines():
        try:
            with files.locked(job.folder, f"another process is at {job.folder}"):
                record = _earlier(job.folder) or job.record
                failed = job.record_with(status="failed", reason=processes.cause(code))
                if record.status == "running":
                    remove_empty(job.folder / "error.txt")
                    _write(write_record, job.folder, failed)
                elif not job.run.force or record != before:
                    return record  # another process did the run meanwhile
                log.error(summary(failed, job.folder))
                return failed
        except OSError as error:  # not even the lock can be made
            log.error("%s: %s", job.folder, reason(error))
            return job.record_with(status="failed", reason=reason(error))


@dataclass(frozen=True)
class Place:
    """Where a run's process stands among others.

    Attributes:
        heading: what to show above the run's bar.
        board: of those who run beside it, where its lines and bars go; None: to the terminal.
        at_once: how many share the cores.
    """

    heading: str = ""
    board: str | None = None
    at_once: int = 1


ALONE = Place()


def attempt(job: Job, place: Place = ALONE, wait: bool = True) -> None:
    """Do a run in this process, unless it is done, and write its record.

    Args:
        wait: where another process is at the run; else exit with `HELD`.
    """
    terminal.heading, cores.at_once = place.heading, place.at_once
    if place.board is not None:
        terminal.elsewhere = Sender(place.board, job.id)
    with terminal_lines():
        try:
            with files.locked(job.folder, f"another process is at {job.folder}", wait=wait):
                _attempt(job)
        except files.Held:
            sys.exit(HELD)
        except OSError as error:  # nothing can be written where the record belongs
            log.error("%s: %s", job.folder, reason(error))
            sys.exit(1)


def _attempt(job: Job) -> None:
    earlier = _earlier(job.folder)
    if job.is_done(earlier):
        log.info("done before: %s", summary(earlier, job.folder))
        return
    job.folder.mkdir(parents=True, exist_ok=True)
    try:
        own_files.require_own(job.folder)
    except OSError as error:
        _write(write_record, job.folder, job.record_with(status="failed", reason=reason(error)))
        raise
    if job.run.force and not _under_way(job, earlier):
        shutil.rmtree(job.folder / "checkpoint", ignore_errors=True)
        set_aside(job.folder)
    for path in job.folder.rglob(".*"):  # by an attempt that was killed
        if path.is_file():
            path.unlink()
    write_record(job.folder, job.record)
    with logged(job.folder / "run.log"):
        with crash_report(job.folder / "error.txt"):
            record = _outcome(job)
        write_record(job.folder, record)
        log.info(summary(record, job.folder))
    retention.tidy(job.folder, job.run.keep_student)


def _earlier(folder: Path) -> Record | None:
    """Return the record of an earlier attempt; what is damaged is set aside, and named.

    Raises:
        OSError: there is one that cannot be read: it may be whole, so nothing takes its place.
    """
    try:
        return record_of(examine(folder))
    except FileNotFoundError:
        return None
    except Unreadable as error:
        raise OSError(f"its record cannot be read: {error}") from error
    except Damaged as error:
        log.warning("%s: its record was damaged and is set aside: %s", folder, error)
        set_aside(folder)
        return None


def _under_way(job: Job, earlier: Record | None) -> bool:
    """Tell whether a run was begun, by force or not, and broken off: then it goes on."""
    if earlier is None or isinstance(earlier, Done):
        return False
    return earlier.status == "running" or (job.folder / "checkpoint").is_dir()


def _outcome(job: Job) -> Record:
    try:
        plugins.use(job.run.plugins)
        hush()
        from ilkd_bench.training import train  # only here: torch takes seconds to import

        with not_lost():
            measured = train.train(job.run, job.folder)
        return job.record_with(**measured.model_dump(), status="done", reason=None)
    except Incompatible as why:
        return job.record_with(status="skipped", reason=str(why))
    except (Exception, SystemExit) as error:
        kind = "" if isinstance(error, BadInput) else f"{type(error).__name__}: "
        _write(files.write_text, job.folder / "error.txt", traceback.format_exc())
        return job.record_with(status="failed", reason=f"{kind}{error}")


def _write(write: Callable[[Path, Any], None], path: Path, content: Any) -> None:
    """Write what tells of a run's end; a full disk must not take the rest of the sweep along."""
    try:
        write(path, content)
    except OSError as error:
        log.error("%s cannot be written: %s", path, error.strerror)


def summary(record: Record, folder: Path) -> str:
    """Return one line for a person: who, what came out, how long, and where it is."""
    pair = f"{record.teacher_name} -> {record.student}"
    who = f"{record.task}, {pair}, {record.method}, seed {record.config['seed']}"
    if not isinstance(record, Done):
        trace = folder / "error.txt"
        more = f" (traceback: {trace})" if trace.is_file() else ""
        return f"{who}: {record.status}, {record.reason}{more}"
    scores = ", ".join(
        f"{split} {name} {value:.4f}"
        for split, values in record.scores.items()
        for name, value in values.items()
        if name != "n"
    )
    return f"{who}: {scores}; {sum(record.seconds.values()):.1f} s; {folder}"
