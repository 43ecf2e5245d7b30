"""Which trained students stay on the disk, and how much room a sweep needs."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Sequence
from pathlib import Path

from ilkd_bench.records.cells import cell
from ilkd_bench.records.read import load_some, read_record
from ilkd_bench.records.record import Done
from ilkd_bench.settings.run import Run

log = logging.getLogger("ilkd_bench")

CHECKPOINT = 7
"""Size of a run's checkpoints in students: weights and two moments of AdamW, twice while a new one
replaces the old one, and the best weights."""


def tidy(folder: Path, rule: str) -> None:
    """Remove the students that a finished run makes superfluous; the rule `best` looks at dev.

    Two runs that finish at once come to the same decision. What a link leads to is left alone, and
    so is the student of a run whose record cannot be used; that is named.
    """
    record = read_record(folder)
    if not isinstance(record, Done) or rule == "all":
        return
    if rule == "none":
        shutil.rmtree(folder / "student", ignore_errors=True)
        return
    runs = [path.parent for path in folder.parent.glob("*/student") if not path.is_symlink()]
    stored = load_some([run for run in runs if not run.is_symlink()], folder.parent)
    for flaw in stored.flaws:
        log.warning("%s", flaw)
    rivals = [
        other
        for other in stored.records
        if isinstance(other, Done) and cell(other.config) == cell(record.config)
    ]
    best = max(rivals, key=lambda other: other.rank, default=None)
    for other in rivals:
        if other is not best:
            shutil.rmtree(folder.parent / other.folder / "student", ignore_errors=True)


def room(runs: Sequence[Run], cells: int, at_once: int = 1) -> float | None:
    """Return about how many megabytes the students of runs take, and the checkpoints of some.

    None where a student's size is not known before it is loaded.

    Args:
        cells: of the tables, that the runs belong to.
        at_once: runs that have checkpoints at the same time.
    """
    sizes = [size for run in runs if (size := run.student.recommended.megabytes) is not None]
    if len(sizes) < len(runs) or not sizes:
        return None
    rule = runs[0].keep_student
    kept = {"all": sum(sizes), "best": cells * max(sizes), "none": 0}[rule]
    return kept + at_once * CHECKPOINT * max(sizes)
