"""The runs of a command line that is not carried out, done or not."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ilkd_bench.jobs.plan import plan
from ilkd_bench.plumbing.command import run_line
from ilkd_bench.records.listing import Listed, described, look
from ilkd_bench.types import BadInput


def planned(words: Sequence[str]) -> list[Listed]:
    """Return the runs of a command line of `ilkd_bench.run`, in its order.

    Raises:
        BadInput: a word is wrong.
    """
    flags = [word for word in words if word in ("-m", "--multirun")]
    for word in words:
        if word.startswith("-") and word not in flags:
            raise BadInput(
                f"{word} after --missing: allowed are the words of a run (-m, key=value); "
                "options of this command come before --missing"
            )
    runs = []
    for job in plan(flags + [word for word in words if word not in flags]):
        record = {"config": job.run.identity, "argv": list(job.words)}
        run = look(job.folder) or described(job.folder, record, "missing", when=None)
        runs.append(replace(run, command=run_line(job.words)))
    return runs
