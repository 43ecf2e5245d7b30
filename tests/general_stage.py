"""A general stage of a second, made in a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import toys
from torch import nn

from ilkd_bench.jobs import plan
from ilkd_bench.training import general
from ilkd_bench.training.inputs import build_student

STAGE = (
    "student=tiny6_general",
    "student.layers=3",
    "student.general.held_out=20",
    "student.general.batch_size=16",
    "student.general.every=6",
    "student.general.limit_steps=12",
    "student.general.max_length=16",
    "teacher.layers=6",
)
"""A stage of a second: 3 layers learn from the 6 of the teacher."""


def job(folder: Path, *words: str) -> Any:
    (job,) = plan.plan(toys.small(folder, *STAGE, *words))
    return job


def started(folder: Path, *words: str) -> tuple[nn.Module, Any]:
    run = job(folder, *words).run
    student = build_student(run)
    return student, general.start(student, run)


def folder_of(tmp_path: Path) -> Path:
    (folder,) = (tmp_path / "cache/teachers").glob("tiny6_general-general-??????????")
    return folder
