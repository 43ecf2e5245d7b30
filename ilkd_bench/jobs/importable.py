"""Whether the Python of plugins can be imported, found out before the first run begins."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

from ilkd_bench.jobs.job import Job
from ilkd_bench.plumbing import processes
from ilkd_bench.plumbing.fork_server import own_folder
from ilkd_bench.records.read import read_record
from ilkd_bench.settings import groups, plugins
from ilkd_bench.types import BadInput


def require_importable(jobs: Sequence[Job]) -> None:
    """Import what the runs need of plugins, in a process of its own as the runs are.

    Raises:
        BadInput: that is not possible.
    """
    targets = {
        group.constructor
        for job in jobs
        for group in (job.run.teacher, job.run.student, job.run.method)
        if plugins.of_plugins(group.constructor) and not job.is_done(read_record(job.folder))
    }
    if not targets:
        return
    with own_folder() as folder:
        message = folder / "message"
        code = processes.alone(_import, str(plugins.in_use()), sorted(targets), message)
        if code:
            known = message.is_file()
            why = message.read_text(encoding="utf-8") if known else processes.cause(code)
            raise BadInput(f"plugins={plugins.in_use()}: {why}")


def _import(folder: str, targets: Sequence[str], message: Path) -> None:
    try:
        plugins.use(folder)
        for target in targets:
            groups.resolve(target)
    except BadInput as error:
        message.write_text(str(error), encoding="utf-8")
        sys.exit(1)
