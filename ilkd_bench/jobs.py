"""One run of a sweep: who it is, and an attempt at it that always leaves a record."""

from __future__ import annotations

import faulthandler
import logging
import shutil
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, TypeGuard

from ilkd_bench import processes, settings, store, students, terminal
from ilkd_bench.terminal import Lines
from ilkd_bench.types import BadInput, Incompatible

log = logging.getLogger("ilkd_bench")

HELD = 75
"""Exit code of a process that found another one at its run (EX_TEMPFAIL of sysexits.h)."""


@dataclass(frozen=True)
class Job:
    """One run: its configuration, resolved and checked, and who it is."""

    config: dict[str, Any]
    science: dict[str, Any]
    words: tuple[str, ...] = ()  # the command line that selects this run alone

    @cached_property
    def id(self) -> str:
        """The run's identity."""
        return settings.run_id(self.science)

    @property
    def folder(self) -> Path:
        """Where the run's files go."""
        return store.run_folder(Path(self.config["results_dir"]), self.config, self.id)

    @property
    def record(self) -> dict[str, Any]:
        """What is known before the run begins."""
        return {
            "schema": store.SCHEMA,
            "id": self.id,
            "status": "running",
            "reason": None,
            "argv": list(self.words),
            "config": self.science,
        }

    def is_done(self, record: dict[str, Any] | None) -> TypeGuard[dict[str, Any]]:
        """Tell whether a record says that nothing is left to do."""
        return record is not None and record["status"] == "done" and not self.config["force"]


def execute(job: Job, heading: str = "", *, wait: bool = True) -> dict[str, Any] | None:
    """Do a run in a process of its own, unless it is done, and return its record.

    Whatever happens to the run ends up in its record (`failed`, with the reason); the caller goes
    on. Where another process is at the same run, this one waits, and finds it done.

    Args:
        heading: what to show above the run's bar.
        wait: where another process is at the run; else None is returned.
    """
    code = processes.alone(attempt, job, heading, wait)
    if code == HELD and not wait:
        return None
    record = store.read_record(job.folder) or job.record
    return record if code == 0 and record["status"] != "running" else _died(job, code)


def _died(job: Job, code: int) -> dict[str, Any]:
    """Record the end of a run whose process could not do so itself."""
    with terminal_lines():
        try:
            with store.locked(job.folder, f"another process is at {job.folder}"):
                return _record_death(job, processes.cause(code))
        except OSError as error:  # not even the lock can be made
            log.error("%s: %s", job.folder, error)
            return job.record | {"status": "failed", "reason": str(error)}


def _record_death(job: Job, reason: str) -> dict[str, Any]:
    record = store.read_record(job.folder) or job.record
    if record["status"] == "running":  # else another process did the run meanwhile
        record |= {"status": "failed", "reason": reason}
        _remove_empty(job.folder / "error.txt")
        _write(store.write_record, job.folder, record)
        log.error(summary(record, job.folder))
    return record


def attempt(job: Job, heading: str = "", wait: bool = True) -> None:
    """Do a run in this process, unless it is done, and write its record.

    Args:
        wait: where another process is at the run; else exit with `HELD`.
    """
    terminal.heading = heading
    with terminal_lines():
        try:
            with store.locked(job.folder, f"another process is at {job.folder}", wait=wait):
                _attempt(job)
        except store.Held:
            sys.exit(HELD)
        except OSError as error:  # nothing can be written where the record belongs
            log.error("%s: %s", job.folder, error)
            sys.exit(1)


def _attempt(job: Job) -> None:
    earlier = store.read_record(job.folder)
    if job.is_done(earlier):
        log.info("done before: %s", summary(earlier, job.folder))
        return
    job.folder.mkdir(parents=True, exist_ok=True)
    if job.config["force"]:
        store.set_aside(job.folder)
        shutil.rmtree(job.folder / "checkpoint", ignore_errors=True)
    for left in job.folder.rglob(".*"):  # by an attempt that was killed
        if left.is_file():
            left.unlink()
    store.write_record(job.folder, job.record)
    with logged(job.folder / "run.log"):
        with crash_report(job.folder / "error.txt"):
            record = job.record | _outcome(job)
        store.write_record(job.folder, record)
        log.info(summary(record, job.folder))
    students.tidy(job.folder, job.config["keep_student"])


def _outcome(job: Job) -> dict[str, Any]:
    try:
        hush()
        from ilkd_bench import train  # only here: torch takes seconds to import

        return {"status": "done"} | train.run(job.config, job.science, job.folder)
    except Incompatible as reason:
        return {"status": "skipped", "reason": str(reason)}
    except (Exception, SystemExit) as error:
        kind = "" if isinstance(error, BadInput) else f"{type(error).__name__}: "
        _write(store.write_text, job.folder / "error.txt", traceback.format_exc())
        return {"status": "failed", "reason": f"{kind}{error}"}


def _write(write: Callable[[Path, Any], None], path: Path, content: Any) -> None:
    """Write what tells of a run's end; a full disk must not take the rest of the sweep along."""
    try:
        write(path, content)
    except OSError as error:
        log.error("%s cannot be written: %s", path, error.strerror)


def summary(record: dict[str, Any], folder: Path) -> str:
    """Return one line for a person: who, what came out, how long, and where it is."""
    config = record["config"]
    pair = f"{config['teacher']['name']} -> {config['student']['name']}"
    who = f"{config['task']['name']}, {pair}, {config['method']['name']}, seed {config['seed']}"
    if record["status"] != "done":
        trace = folder / "error.txt"
        more = f" (traceback: {trace})" if trace.is_file() else ""
        return f"{who}: {record['status']}, {record['reason']}{more}"
    scores = ", ".join(
        f"{split} {name} {value:.4f}"
        for split, values in record["scores"].items()
        for name, value in values.items()
        if name != "n"
    )
    return f"{who}: {scores}; {sum(record['seconds'].values()):.1f} s; {folder}"


@contextmanager
def terminal_lines() -> Iterator[None]:
    """Show our own lines on the terminal; what libraries say never gets there."""
    root = logging.getLogger()
    before = [(logger, logger.handlers, logger.level) for logger in (root, log)]
    root.handlers, root.level = [logging.NullHandler()], logging.INFO
    log.handlers, log.level = [Lines()], logging.INFO
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        for logger, handlers, level in before:
            logger.handlers, logger.level = handlers, level


class RunLog(logging.FileHandler):
    """A file of log lines. On a full disk they are lost: what ends the run tells of the disk."""

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


@contextmanager
def logged(run_log: Path) -> Iterator[None]:
    """Keep what we and the libraries say in the run's log."""
    file = RunLog(run_log, encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(file)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(file)
        file.close()


@contextmanager
def crash_report(path: Path) -> Iterator[None]:
    """Have the interpreter write where it was when it crashes; remove the file where it did not."""
    try:
        with path.open("w", encoding="utf-8") as file:
            faulthandler.enable(file)
            try:
                yield
            finally:
                faulthandler.disable()
    finally:
        _remove_empty(path)


def _remove_empty(path: Path) -> None:
    if path.is_file() and path.stat().st_size == 0:
        path.unlink()


LIBRARIES = (
    *("transformers", "huggingface_hub", "pytorch_lightning", "lightning_fabric"),
    *("lightning.pytorch", "lightning.fabric"),
)
"""Loggers that come with handlers of their own for the terminal."""


def hush() -> None:
    """Send what libraries say to the log only, and switch the bars of transformers off."""
    from transformers.utils import logging as hf

    hf.disable_progress_bar()
    for name in LIBRARIES:
        library = logging.getLogger(name)
        library.handlers, library.propagate = [], True
