"""Compare knowledge-distillation methods for BERT-like teachers and smaller students.

    import ilkd_bench

    for job in ilkd_bench.plan(["-m", "method=vanilla,rail_l", "seed=0,1,2"]):
        record = ilkd_bench.execute(job)
    scores = ilkd_bench.load_results("results")

`import ilkd_bench` alone loads neither torch nor Hydra nor pandas.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilkd_bench.types import BadInput, Incompatible

if TYPE_CHECKING:
    import pandas as pd

    from ilkd_bench.jobs.job import Job
    from ilkd_bench.records.record import Measured, Record
    from ilkd_bench.settings.run import Run

    __version__: str

__all__ = [
    "BadInput",
    "Incompatible",
    "Job",
    "Run",
    "__version__",
    "execute",
    "load_results",
    "plan",
    "train",
]


def plan(words: Sequence[str]) -> list[Job]:
    """Return the runs of a command line, each once, in its order; nothing is run.

    Args:
        words: what follows `python -m ilkd_bench.run`, as in `["-m", "method=pkd,alp", "seed=0"]`.

    Raises:
        BadInput: a word is wrong; the message says what is allowed.
    """
    from ilkd_bench.jobs import plan, wandb_group

    if isinstance(words, str):
        raise BadInput(f"plan({words!r}): give a list of words, as in {words.split()!r}")
    flags = [word for word in words if word in ("-m", "--multirun")]
    others = [word for word in words if word not in flags]
    for word in others:
        if word.startswith("-"):
            raise BadInput(f"{word}: allowed are -m and key=value")
    return wandb_group.prepare(plan.plan([*flags, *others]), words)


def execute(job: Job) -> Record:
    """Do a run as the command does, and return its record.

    It has a process of its own, uses its own folder (`job.folder`), and is left alone if it is done
    already. Whatever happens to it is in the record: `status` is `done`, `failed` or `skipped`, and
    `reason` says why. The caller's script needs no `if __name__ == "__main__"`.
    """
    from ilkd_bench.jobs import job as jobs

    record = jobs.execute(job)
    return job.record if record is None else record  # None: only for those who do not wait


def train(run: Run, folder: Path | str) -> Measured:
    """Do a run in this process and return the measured part of its record.

    Args:
        run: the settings of a job, `job.run`.
        folder: takes the history, the predictions and the student.

    Raises:
        BadInput: something given is wrong, found before the first student step.
        Incompatible: the method cannot work for this pair.
    """
    from ilkd_bench.training import train

    return train.train(run, Path(folder))


def load_results(results_dir: Path | str = "results") -> pd.DataFrame:
    """Return the scores of all runs that are done: one row per run, split and metric.

    Columns: teacher, student, method, task, seed, lr, batch_size, split, metric, value, section,
    limited, id, folder (`comparison.scores.load_results` says what they hold).

    Raises:
        BadInput: there are no runs.
    """
    from ilkd_bench.comparison import scores

    return scores.load_results(results_dir)


def __getattr__(name: str) -> Any:
    """Import the other names when they are first used."""
    if name == "Job":
        return import_module("ilkd_bench.jobs.job").Job
    if name == "Run":
        return import_module("ilkd_bench.settings.run").Run
    if name == "__version__":
        return import_module("importlib.metadata").version("ilkd_bench")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
