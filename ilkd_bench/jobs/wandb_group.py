"""What is settled once for all runs of a command at Weights & Biases: group and mode."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from ilkd_bench.jobs.job import Job
from ilkd_bench.plumbing.command import setting
from ilkd_bench.plumbing.files import digest
from ilkd_bench.settings.run import PLUMBING, Run, WandB
from ilkd_bench.training import wandb_process

log = logging.getLogger(__name__)

LONGEST_GROUP = 128
"""Characters; W&B refuses longer names."""

FIRST = ("method", "student", "task", "teacher")
"""What a person looks for in the name of a sweep."""

CHECK = 30
"""Seconds after which the question whether W&B takes runs, put once per sweep, counts as stuck."""


# ---------------------------------------------------------------------------- before the sweep


def prepare(jobs: Sequence[Job], words: Sequence[str]) -> list[Job]:
    """Settle group and mode of all runs of a command, with one warning if they stay offline.

    Args:
        words: the command line.
    """
    name = group(words)
    settled = [_settled(job, name) for job in jobs]
    online = any(_mode(job) == "online" for job in settled)
    reason = obstacle() if online else ""
    if reason:
        log.warning(
            "W&B: %s; the runs are kept offline, for `wandb sync` (docs/tracking.md)", reason
        )
        os.environ["WANDB_MODE"] = "offline"  # asked and told once, for what is started later too
        settled = [_with(job, mode="offline") if _mode(job) == "online" else job for job in settled]
    return settled


def _mode(job: Job) -> str | None:
    return job.run.logger.mode if isinstance(job.run.logger, WandB) else None


def _settled(job: Job, name: str) -> Job:
    logger = job.run.logger
    if not isinstance(logger, WandB):
        return job
    mode = os.environ.get("WANDB_MODE", "online") if logger.mode == "auto" else logger.mode
    return _with(job, mode=mode, group=name if logger.group is None else logger.group)


def _with(job: Job, **changes: Any) -> Job:
    """Return a job with other settings of its logger."""
    return replace(job, run=job.run.but(logger=job.run.logger.model_copy(update=changes)))


def group(typed: Sequence[str]) -> str:
    """Return what a person calls a sweep: its preset, then its other words but for the seed.

    Words that change no result (folders, logger, hardware) are left out; the order does not count.
    """
    presets, others = [], []
    for word in typed:
        key, equals, value = word.lstrip("+~").partition("=")
        top = re.split(r"[./]", key)[0]
        if not equals or top in {"seed", "hydra"} | PLUMBING:
            continue
        if top == "sweeps":
            presets.append(value)
        else:
            others.append(f"{key}={value}")
    others.sort(key=lambda word: (word.split("=")[0] not in FIRST, word))
    name = " ".join([*presets, *others]) or "defaults"
    if len(name) <= LONGEST_GROUP:
        return name
    mark = digest(name)[:8]
    return f"{name[: LONGEST_GROUP - len(mark) - 1]} {mark}"


def words(run: Run) -> list[str]:
    """Return what another launcher of Hydra has to be told: it composes the settings again."""
    if not isinstance(run.logger, WandB):
        return []
    return [
        f"logger.group={setting(run.logger.group or '', always=True)}",
        f"logger.mode={run.logger.mode}",
    ]


def obstacle() -> str:
    """Return why W&B takes no runs (no key, no network, key refused); empty if it does."""
    command = [sys.executable, "-P", wandb_process.__file__, "check"]
    try:
        checked = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,  # W&B's own process inherits it and may outlive this one
            text=True,
            timeout=CHECK,
            env=wandb_process.environment()
            | {"WANDB_MODE": "online", "WANDB_HTTP_TIMEOUT": "3", "WANDB_SILENT": "true"},
        )
    except subprocess.TimeoutExpired:
        return f"no answer within {CHECK} s"
    except OSError as error:
        return str(error)
    if checked.returncode == 0:
        return ""
    lines = checked.stdout.splitlines()
    return lines[-1] if lines else f"wandb ended with exit code {checked.returncode}"
