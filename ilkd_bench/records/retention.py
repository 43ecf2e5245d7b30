"""Which trained students stay on the disk, and how much room a sweep needs."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from ilkd_bench.records.cells import cell
from ilkd_bench.records.read import read_record
from ilkd_bench.records.record import Done
from ilkd_bench.settings.run import Run

CHECKPOINT = 7
"""Size of a run's checkpoints in students: weights and two moments of AdamW, twice while a new one
replaces the old one, and the best weights."""


def tidy(folder: Path, rule: str) -> None:
    """Remove the students that a finished run makes superfluous; the rule `best` looks at dev.

    Two runs that finish at once come to the same decision.
    """
    record = read_record(folder)
    if not isinstance(record, Done) or rule == "all":
        return
    if rule == "none":
        shutil.rmtree(folder / "student", ignore_errors=True)
        return
    its_cell = cell(record.config)
    siblings = {path.parent: read_record(path.parent) for path in folder.parent.glob("*/student")}
    rivals = {
        run: other
        for run, other in siblings.items()
        if isinstance(other, Done) and cell(other.config) == its_cell
    }
    best = max(rivals, key=lambda run: rivals[run].rank, default=folder)
    for run in rivals:
        if run != best:
            shutil.rmtree(run / "student", ignore_errors=True)


def room(runs: Sequence[Run], cells: int) -> float | None:
    """Return about how many megabytes the students of these runs and one run's checkpoints take.

    None where a student's size is not known before it is loaded.
    """
    sizes = [size for run in runs if (size := run.student.recommended.megabytes) is not None]
    if len(sizes) < len(runs) or not sizes:
        return None
    rule = runs[0].keep_student
    kept = {"all": sum(sizes), "best": cells * max(sizes), "none": 0}[rule]
    return kept + CHECKPOINT * max(sizes)
