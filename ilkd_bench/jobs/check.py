"""All runs of a command asked, before the first one starts, what would end them before a step."""

from __future__ import annotations

import json
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ilkd_bench.jobs.job import Job
from ilkd_bench.plumbing import processes
from ilkd_bench.plumbing.command import run_line
from ilkd_bench.plumbing.files import write_json
from ilkd_bench.plumbing.fork_server import own_folder
from ilkd_bench.plumbing.logs import hush
from ilkd_bench.plumbing.terminal import track
from ilkd_bench.records.cells import cell
from ilkd_bench.records.read import read_record
from ilkd_bench.settings import plugins
from ilkd_bench.types import BadInput, Incompatible

NAMED = 5
"""Different reasons that a refusal lists."""


def require_possible(jobs: Sequence[Job], *, here: bool = True) -> int:
    """Refuse a command with a run that cannot be, without training anything.

    One run of every cell of the tables is asked, in a process of its own, which has torch. Runs
    that are done are left out; what cannot work for a pair of models is no error, it is skipped.

    Args:
        here: the runs take place on this machine.

    Returns:
        The parameters of the largest pair of models that was asked.

    Raises:
        BadInput: that is so; the message has the reasons.
    """
    asked: dict[str, Job] = {}
    for job in jobs:
        if not job.is_done(read_record(job.folder)):
            run = job.run
            carried_out = [run.bank, run.compile, run.trainer.accelerator, run.data_dir]
            asked.setdefault(f"{cell(run.identity)} {carried_out}", job)
    if not asked:
        return 0
    with own_folder() as folder:
        answer = folder / "refused.json"
        code = processes.alone(_ask, list(asked.values()), here, answer)
        if code != 0:
            raise BadInput(f"the runs could not be checked: {processes.cause(code)}")
        told: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
    if told["refused"]:
        raise BadInput(_sentence(told["refused"], len(jobs)))
    return int(told["parameters"])


def _sentence(refused: dict[str, list[str]], jobs: int) -> str:
    """Return the reasons, each with a line that has it where there are several runs."""
    reasons = [
        reason + (f" (e.g. {run_line(words)})" if jobs > 1 else "")
        for reason, words in refused.items()
    ]
    more = f"\n  and {len(reasons) - NAMED} other reasons" if len(reasons) > NAMED else ""
    if jobs == 1:
        return reasons[0]
    return "\n  ".join(["nothing was started:", *reasons[:NAMED]]) + more


def _ask(jobs: Sequence[Job], here: bool, answer: Path) -> None:
    """Write the reasons why runs cannot be, each with the words of the first that has it.

    And the parameters of the largest pair of models.
    """
    from ilkd_bench.training.check import Checks  # only here: torch takes seconds to import

    hush()
    checks = Checks()
    refused: dict[str, list[str]] = {}
    parameters = 0
    for job in track(jobs, "checking"):
        plugins.use(job.run.plugins)
        try:
            parameters = max(parameters, checks.check(job.run, here=here))
        except Incompatible:
            continue
        except BadInput as error:
            refused.setdefault(str(error), list(job.words))
        except Exception as error:  # of a plugin's code, or of a library's
            traceback.print_exc()
            refused.setdefault(f"{type(error).__name__}: {error}", list(job.words))
    write_json(answer, {"refused": refused, "parameters": parameters})
