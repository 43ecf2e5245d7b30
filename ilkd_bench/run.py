"""The command line: `python -m ilkd_bench.run [-m] key=value ...`."""

from __future__ import annotations

if __name__ == "__main__":  # before what takes a while to import
    from ilkd_bench.plumbing.command import begin

    begin("run")

import contextlib
import io
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from ilkd_bench.jobs import plan, wandb_group, words
from ilkd_bench.jobs.check import require_possible
from ilkd_bench.jobs.importable import require_importable
from ilkd_bench.jobs.job import execute
from ilkd_bench.jobs.sweep import Sweep, announce, report
from ilkd_bench.plumbing import command
from ilkd_bench.plumbing.interrupts import exit_code, not_lost, terminable
from ilkd_bench.settings import groups
from ilkd_bench.types import BadInput


@hydra.main(version_base="1.3", config_path=str(groups.ROOT / "conf"), config_name="config")
def hydra_main(config: DictConfig) -> None:
    """Do the run that Hydra composed, where one of its launchers carries the runs out."""
    os.chdir(HydraConfig.get().runtime.cwd)  # Ray's workers are somewhere else
    resolved: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    with terminable():
        execute(plan.job(resolved, words=list(HydraConfig.get().overrides.task)))


def answer() -> int:
    """Print what Hydra tells of itself and of the settings.

    Kept back until it is whole: Hydra takes a reader that has enough for an error.

    Raises:
        BadInput: Hydra cannot tell; the message says why.
    """
    text, errors = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(text), contextlib.redirect_stderr(errors):
        try:
            hydra_main()
        except SystemExit as ended:
            if ended.code:
                raise BadInput(plan.one_line(errors.getvalue())) from ended
        except HydraException as error:
            raise BadInput(plan.one_line(error)) from error
    print(text.getvalue(), end="")
    return 0


@command.verb
def main(argv: Sequence[str]) -> int:
    """Plan, run, and say how it went.

    Returns:
        0: every run is done (or not possible for its pair); 1: some failed; 2: nothing was started;
        130: stopped by Ctrl-C; 143: by SIGTERM.
    """
    if "--version" in argv:  # else Hydra tells its own
        print(command.version())
        return 0
    # Waiting threads give their core away: on a busy machine they slow training down otherwise.
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")  # read when torch is loaded
    flags = [word for word in argv if word in ("-m", "--multirun")]
    argv = flags + [word for word in argv if word not in flags]  # wherever -m was typed
    argv = words.at_home(argv)
    sys.argv[1:] = argv
    if plan.asks_for_information(argv):
        return answer()
    elsewhere = plan.uses_other_launcher(argv)
    if elsewhere and any(word.startswith("parallel=") for word in argv):
        raise BadInput(
            "parallel has no effect on another launcher: joblib has hydra.launcher.n_jobs=, for "
            "others see docs/scaling.md"
        )
    if elsewhere and plan.repeats(argv):
        raise BadInput(
            "protocol=select_then_repeat is one command on Hydra's default launcher only. Type "
            "two here: the grid with seed=0, and when it is done the other seeds with lr=best "
            "batch_size=best"
        )
    jobs = plan.plan(argv)
    plan.require_writable(jobs)
    require_importable(jobs)
    failures: dict[str, str] = {}
    try:
        with terminable(), not_lost():
            parameters = require_possible(jobs, here=not elsewhere)
            jobs = wandb_group.prepare(jobs, argv)
            at_once = announce(jobs, parameters)
            if elsewhere:
                sys.argv += wandb_group.words(jobs[0].run)
                hydra_main()
                jobs = [replace(job) for job in jobs]  # where they lie now: `auto` was told there
            else:
                failures |= Sweep(jobs, at_once).carry_out()
            if plan.repeats(argv):
                try:
                    repetition = plan.plan(argv, repeat=True)
                except BadInput as error:  # nothing is done that could choose
                    report(jobs, failures)
                    command.complain(error)
                    return 1
                repetition = wandb_group.prepare(repetition, argv)
                parameters = parameters or require_possible(repetition)  # the grid was done before
                at_once = announce(repetition, parameters)
                failures |= Sweep(repetition, at_once).carry_out()
                known = {job.id for job in jobs}
                jobs += [job for job in repetition if job.id not in known]
    except KeyboardInterrupt as interrupt:
        command.complain("stopped; type the same command again to go on")
        return exit_code(interrupt)
    return report(jobs, failures)
