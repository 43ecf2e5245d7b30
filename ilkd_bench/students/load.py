"""The stored student of a run."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ilkd_bench.plumbing.command import reason, run_line
from ilkd_bench.plumbing.own_files import has_file, require_own
from ilkd_bench.records.record import Record
from ilkd_bench.types import BadInput

if TYPE_CHECKING:
    from ilkd_bench.models.model import Model


def require_student(folder: Path, record: Record) -> None:
    """Refuse a run whose student is not on the disk, or not a folder of its own.

    Raises:
        BadInput: that is so; the message has the line that makes it again.
    """
    if not has_file(folder, "student/model.safetensors"):
        raise BadInput(
            f"the student of run {record.id} was not kept ({folder}/student). Make it again: "
            f"{run_line(record.words, 'force=true', 'keep_student=all')}"
        )
    try:
        require_own(folder / "student")
    except OSError as error:
        raise BadInput(f"the student of run {record.id} cannot be used: {reason(error)}") from error


def load(folder: Path, labels: Sequence[str] | None) -> Model:
    """Load the student of a run: safetensors only, no code from its folder, no network.

    Args:
        folder: of the run, or of an export; the student is in its folder `student`, or itself.
        labels: of the task; None: a regression.

    Raises:
        BadInput: it cannot be loaded, or has other labels than the task.
    """
    from transformers.utils import logging as transformers_logging

    from ilkd_bench.models.build import classifier
    from ilkd_bench.models.folder import Folder

    transformers_logging.disable_progress_bar()  # the weights are there in a moment
    source = folder / "student" if (folder / "student").is_dir() else folder
    name = f"the student in {source}"
    if not (source / "model.safetensors").is_file():
        raise BadInput(f"{name} cannot be loaded: there is no model.safetensors")
    model, order = classifier(Folder(source, name), labels=labels)
    if order is not None:
        raise BadInput(f"{name} has its labels in another order than its task")
    return model.eval()
