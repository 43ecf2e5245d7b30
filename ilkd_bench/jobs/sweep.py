"""All runs of a command line, some at once, with a line that tells how far it is."""

from __future__ import annotations

import logging
import shutil
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from rich.filesize import decimal

from ilkd_bench.jobs.crew import Ended, crew
from ilkd_bench.jobs.job import Job, summary
from ilkd_bench.plumbing import files
from ilkd_bench.plumbing.command import line, reason, say
from ilkd_bench.plumbing.cores import runs_at_once
from ilkd_bench.plumbing.hardware import has_gpu
from ilkd_bench.plumbing.logs import terminal_lines
from ilkd_bench.plumbing.terminal import duration, track
from ilkd_bench.records import retention
from ilkd_bench.records.cells import cell
from ilkd_bench.records.read import read_record
from ilkd_bench.records.record import Done, Record

log = logging.getLogger("ilkd_bench")

NAMED = 50
"""Runs up to which a summary names each of them."""


class Sweep:
    """The runs of a command line and their states so far.

    Args:
        at_once: how many may go on beside each other.
    """

    def __init__(self, jobs: Sequence[Job], at_once: int = 1) -> None:
        self.jobs = list(jobs)
        self.states: dict[str, str] = {}
        self.failures: dict[str, str] = {}  # id of a run -> why
        self._most = at_once
        self._crew = crew(at_once)
        self._rest = deque(self.jobs)
        self._held: list[Job] = []  # another process is at them
        self._begun: dict[str, float] = {}  # id of a run -> when
        self._seconds: list[float] = []

    def carry_out(self) -> dict[str, str]:
        """Do every run that is not done; those that another process is at come last.

        Returns:
            Why runs failed, by their ids.

        Raises:
            OSError: not even the first run can be begun.
        """
        with self._crew:
            while self._rest or self._held or self._crew.busy:
                if self._rest and self._crew.busy < self._most:
                    self._take(self._rest.popleft())
                elif self._crew.busy:
                    self._conclude(self._crew.end())
                    self._rest.extend(self._held)  # the other process may have come to an end too
                    self._held.clear()
                else:  # nothing is left but what others are at
                    self._take(self._held.pop(0), wait=True)
        return self.failures

    def _take(self, job: Job, *, wait: bool = False) -> None:
        """Begin a run, unless it is over, or another process is at it and we do not wait."""
        if job.run.fail_fast and "failed" in self.states.values():
            return  # left as it is
        record = read_record(job.folder)
        if job.is_done(record):
            with terminal_lines():
                log.info("done before: %s", summary(record, job.folder))
            self.states[job.id] = "done"
        elif not wait and files.held(job.folder):
            self._held.append(job)
        else:
            self._begun[job.id] = time.monotonic()
            try:
                self._crew.begin(job, self.line(), wait=wait)
            except OSError as error:
                self._hindered(job, error)

    def _conclude(self, ended: Ended) -> None:
        """Note what has become of a run."""
        if ended.error is not None:
            self._hindered(ended.job, ended.error)
        elif ended.record is None:  # another sweep has begun it in the meantime
            self._held.append(ended.job)
        else:
            self._note(ended.job, ended.record)
        self._crew.tell(self.line())

    def _hindered(self, job: Job, error: OSError) -> None:
        """Have fewer runs at once where one cannot be begun; a single one fails.

        Raises:
            OSError: it is the first.
        """
        if self._crew.busy:
            self._most = self._crew.busy
            self._rest.appendleft(job)
            with terminal_lines():
                log.warning("%d at once from now on: %s", self._most, reason(error))
            return
        if not self._seconds:
            raise error
        failed = job.record_with(status="failed", reason=reason(error))
        with terminal_lines():  # memory may be short for a while: the next run is tried
            log.error(summary(failed, job.folder))
        self._note(job, failed)

    def _note(self, job: Job, record: Record) -> None:
        self.states[job.id] = record.status
        if record.status == "failed":
            self.failures[job.id] = str(record.reason)
        self._seconds.append(time.monotonic() - self._begun[job.id])

    def line(self) -> str:
        """Return how far the sweep is; empty for a single run."""
        if len(self.jobs) == 1:
            return ""
        remaining = len(self.jobs) - len(self.states)
        counts = [
            f"{count} {state}" for state, count in sorted(Counter(self.states.values()).items())
        ]
        counts.append(f"{remaining} left")
        if self._seconds:
            mean = sum(self._seconds) / len(self._seconds)
            counts.append(f"about {duration(remaining * mean / self._most)}")
        return ", ".join(counts)


def announce(jobs: Sequence[Job], parameters: int = 0) -> int:
    """Tell how many runs are left and how much room they need.

    Args:
        parameters: of the largest pair of models.

    Returns:
        How many runs may go on at once on this machine.
    """
    looked_for = track(jobs, "looking for what is done") if len(jobs) > 1 else jobs
    to_do = [job for job in looked_for if not job.is_done(read_record(job.folder))]
    if len(jobs) == 1 or not to_do:
        return 1
    first = jobs[0].run
    on_gpu = first.trainer.accelerator != "cpu" and has_gpu()
    with terminal_lines():
        at_once = runs_at_once(first.parallel, len(to_do), parameters, on_gpu=on_gpu)
    cells = len({cell(job.run.identity) for job in to_do})
    need = retention.room([job.run for job in to_do], cells, at_once)
    results_dir = Path(jobs[0].run.results_dir)
    free = shutil.disk_usage(results_dir).free
    room = (
        "" if need is None else f"students and checkpoints take about {decimal(int(need * 1e6))}, "
    )
    with terminal_lines():
        log.info(
            "%d runs, %d of them to do%s; %s%s are free in %s",
            *(len(jobs), len(to_do), f", {at_once} at once" if at_once > 1 else ""),
            *(room, decimal(free), results_dir),
        )
        if need is not None and need * 1e6 > free:
            log.warning("that is too little room: give results_dir=DIR or keep_student=none")
    return at_once


def report(jobs: Sequence[Job], failures: Mapping[str, str] = MappingProxyType({})) -> int:
    """Print the summary of a sweep and return the exit code.

    Args:
        failures: why runs failed here, by id. Of a forced run that could not begin only this tells:
            what was stored before stays.
    """
    reasons = {job.id: failures[job.id] for job in jobs if job.id in failures and job.run.force}
    records = [
        (job, job.record_with(status="failed", reason=reasons[job.id]))
        if job.id in reasons
        else (job, read_record(job.folder))
        for job in jobs
    ]
    counts = Counter("missing" if record is None else record.status for _, record in records)
    results_dir = Path(jobs[0].run.results_dir)
    if len(jobs) > 1:
        states = ", ".join(f"{count} {status}" for status, count in sorted(counts.items()))
        say(f"{len(jobs)} runs: {states}")
        for job, record in records:
            if record is None:
                say(f"  missing: {job.folder}")
            elif not isinstance(record, Done):
                say(f"  {record.status}: {job.folder}: {record.reason}")
            elif len(jobs) <= NAMED:
                say(f"  done: {job.folder}")
    if counts["done"]:
        where = [] if str(results_dir) == "results" else ["--results-dir", results_dir]
        say(f"records: {results_dir / 'runs'}; table: {line('tables', *where)}")
    return 0 if set(counts) <= {"done", "skipped"} else 1
