"""All runs of a command line, one after the other, with a line that tells how far it is."""

from __future__ import annotations

import logging
import shutil
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType

from rich.filesize import decimal

from ilkd_bench.jobs.job import Job, execute, summary
from ilkd_bench.plumbing import files
from ilkd_bench.plumbing.command import line, reason, say
from ilkd_bench.plumbing.logs import terminal_lines
from ilkd_bench.plumbing.terminal import track
from ilkd_bench.records import retention
from ilkd_bench.records.cells import cell
from ilkd_bench.records.read import read_record
from ilkd_bench.records.record import Done

log = logging.getLogger("ilkd_bench")

NAMED = 50
"""Runs up to which a summary names each of them."""


class Sweep:
    """The runs of a command line and their states so far."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        self.jobs = list(jobs)
        self.states: dict[str, str] = {}
        self.failures: dict[str, str] = {}  # id of a run -> why
        self._seconds: list[float] = []

    def carry_out(self) -> dict[str, str]:
        """Do every run that is not done; those that another process is at come last.

        Returns:
            Why runs failed, by their ids.

        Raises:
            OSError: not even the first run can be begun.
        """
        rest = self.jobs
        while rest:
            held = [job for job in rest if not self._pass(job, wait=False)]
            if len(held) == len(rest):  # nothing is left but what others are at
                self._pass(held.pop(0), wait=True)
            rest = held
        return self.failures

    def _pass(self, job: Job, *, wait: bool) -> bool:
        """Bring a run to its end; False if another process is at it and we do not wait."""
        if job.run.fail_fast and "failed" in self.states.values():
            return True  # left as it is
        record = read_record(job.folder)
        if job.is_done(record):
            with terminal_lines():
                log.info("done before: %s", summary(record, job.folder))
            self.states[job.id] = "done"
            return True
        if not wait and files.held(job.folder):
            return False
        started = time.monotonic()
        try:
            done = execute(job, self.line(), wait=wait)
        except OSError as error:  # memory may be short for a while: the next run is tried
            if not self._seconds:
                raise
            done = job.record_with(status="failed", reason=reason(error))
            with terminal_lines():
                log.error(summary(done, job.folder))
        if done is None:  # another sweep has begun it in the meantime
            return False
        self.states[job.id] = done.status
        if done.status == "failed":
            self.failures[job.id] = str(done.reason)
        self._seconds.append(time.monotonic() - started)
        return True

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
            counts.append(f"about {duration(remaining * sum(self._seconds) / len(self._seconds))}")
        return ", ".join(counts)


def duration(seconds: float) -> str:
    """Return a time span for a person."""
    minutes = round(seconds / 60)
    if minutes < 1:
        return f"{seconds:.0f} s"
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def announce(jobs: Sequence[Job]) -> None:
    """Tell how many runs are left and how much room they need."""
    looked_for = track(jobs, "looking for what is done") if len(jobs) > 1 else jobs
    to_do = [job for job in looked_for if not job.is_done(read_record(job.folder))]
    if len(jobs) == 1 or not to_do:
        return
    cells = len({cell(job.run.identity) for job in to_do})
    need = retention.room([job.run for job in to_do], cells)
    results_dir = Path(jobs[0].run.results_dir)
    free = shutil.disk_usage(results_dir).free
    room = (
        "" if need is None else f"students and checkpoints take about {decimal(int(need * 1e6))}, "
    )
    with terminal_lines():
        log.info(
            "%d runs, %d of them to do; %s%s are free in %s",
            *(len(jobs), len(to_do), room, decimal(free), results_dir),
        )
        if need is not None and need * 1e6 > free:
            log.warning("that is too little room: give results_dir=DIR or keep_student=none")


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
