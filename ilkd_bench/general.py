"""The general stage of a student, made without a run: `ilkd-bench general student=NAME`."""

from __future__ import annotations

if __name__ == "__main__":  # before what takes a while to import
    from ilkd_bench.plumbing.command import begin

    begin("general")

import argparse
import sys
from collections.abc import Sequence
from typing import Any

from ilkd_bench.jobs import plan
from ilkd_bench.plumbing import command, processes
from ilkd_bench.plumbing.interrupts import exit_code, not_lost
from ilkd_bench.plumbing.logs import hush, terminal_lines
from ilkd_bench.settings import groups, plugins
from ilkd_bench.settings.run import Run
from ilkd_bench.types import BadInput

EXAMPLE = ("student=minilm_l3_general", "data_dir=DIR")


def _parser() -> argparse.ArgumentParser:
    parser = command.parser(
        "general",
        "Distils a student from its pre-trained teacher on plain text, before any task: what its "
        "YAML has under `general`. A run does it by itself where it is missing; here it is done "
        "alone, and kept for all runs. A stage that was broken off goes on.",
        on_results=False,
    )
    parser.add_argument(
        "settings",
        nargs="+",
        metavar="KEY=VALUE",
        help=f"as for `run`: {' '.join(EXAMPLE)} student.general.limit_steps=100",
    )
    return parser


@command.verb
def main(argv: Sequence[str]) -> int:
    """Make the stage, or say that it is there; return the exit code.

    Raises:
        BadInput: the student has no general stage, or a setting is wrong.
    """
    settings = _parser().parse_args(argv).settings
    jobs = plan.plan(_with_its_teacher(settings))
    if len(jobs) != 1:
        raise BadInput(f"{len(jobs)} students were asked for: a stage is made for one at a time")
    run = jobs[0].run
    if run.student.general is None:
        raise BadInput(
            f"student={run.student.name} has no general stage; e.g. "
            f"{command.line('general', *EXAMPLE)}"
        )
    _require_its_teacher(run)
    try:
        code = processes.alone(_make, run)
    except KeyboardInterrupt as interrupt:
        command.complain("stopped; type the same command again to go on")
        return exit_code(interrupt)
    if code not in (0, 2):
        command.complain(processes.cause(code))
        return 1
    return code


def _with_its_teacher(words: Sequence[str]) -> list[str]:
    """Return words that name the stage's own teacher where none is named: `teacher.path` is its."""
    plan.use_plugins(words)
    typed = {key: value for key, _, value in (word.partition("=") for word in words)}
    general = groups.defaults("student", typed.get("student", "")).get("general") or {}
    name = typed.get("student.general.teacher", general.get("teacher"))
    if "teacher" in typed or name not in groups.names("teacher"):
        return list(words)
    return [f"teacher={name}", *words]


def _require_its_teacher(run: Run) -> None:
    """Refuse a teacher that has no part in the stage.

    Raises:
        BadInput: there is one.
    """
    general = run.student.general
    if general is not None and run.teacher.name != general.teacher:
        raise BadInput(
            f"teacher={run.teacher.name} has no part in this stage: student={run.student.name} is "
            f"taught by {general.teacher}. Leave the word out, or type student.general.teacher="
            f"{run.teacher.name} too"
        )


def _make(run: Run) -> None:
    """Make the stage in a process of its own; what is wrong is one line and exit code 2."""
    from ilkd_bench.settings.identity import require_unchanged
    from ilkd_bench.training import general  # only here: torch takes seconds to import
    from ilkd_bench.training.inputs import build_student

    hush()
    plugins.use(run.plugins)
    with terminal_lines():
        try:
            with not_lost():
                require_unchanged(run)
                general.check(run)
                facts: Any = general.start(build_student(run), run)  # this one has a stage
        except (BadInput, OSError, FloatingPointError) as error:
            command.complain(command.reason(error))
            sys.exit(2)
    for name, value in _told(run, facts).items():
        command.say(
            f"{name:<12} {value:.4g}" if isinstance(value, float) else f"{name:<12} {value}"
        )


def _told(run: Run, facts: dict[str, Any]) -> dict[str, Any]:
    """Return what is known of a stage, in words for a person."""
    place = {"folder": run.cache / "teachers" / facts["key"]}
    names = {"began": "loss before", "ended": "loss after", "held_out": "held out"}
    return place | {names.get(name, name): facts[name] for name in facts if name != "key"}
