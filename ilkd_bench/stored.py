"""Stored students: which run is meant, whether its student is there, and how it loads.

No torch until a student is loaded.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilkd_bench import store
from ilkd_bench.types import BadInput

if TYPE_CHECKING:
    from ilkd_bench.models import Model

CANDIDATES = 10
"""Runs that a message about an ambiguous id names."""


def find(typed: str, results_dir: Path) -> Path:
    """Return the folder of a run, given as its folder, its id or the beginning of its id.

    Raises:
        BadInput: there is no such run, or more than one.
    """
    if (Path(typed) / "record.json").is_file():
        return Path(typed)
    folders = store.run_folders(results_dir)
    found = [f for f in folders if f.name.partition("-")[2].startswith(typed)] if typed else []
    if not found:
        raise BadInput(
            f"no run in {results_dir / 'runs'} has an id that begins with {typed!r}, and it is no "
            f"folder of a run; python -m ilkd_bench.runs --results-dir {results_dir} lists them"
        )
    if len(found) > 1:
        names = [str(folder) for folder in found[:CANDIDATES]]
        names += [f"{len(found) - CANDIDATES} more"] if len(found) > CANDIDATES else []
        raise BadInput(f"{typed!r} begins {len(found)} ids: {', '.join(names)}. Type more of it")
    return found[0]


def finished(folder: Path) -> dict[str, Any]:
    """Return the record of a run that is done.

    Raises:
        BadInput: it is not, or its record cannot be read; the message says what to type.
    """
    try:
        record = store.examine(folder)
    except (store.Damaged, OSError) as error:
        raise BadInput(f"{folder}/record.json cannot be used: {error}") from error
    if record["status"] == "done":
        return record
    reason = f" ({record['reason']})" if record.get("reason") else ""
    raise BadInput(
        f"run {record.get('id')} is {record['status']}{reason}, so it has no student. "
        f"Run it first: {repeat(record)}"
    )


def require_student(folder: Path, record: dict[str, Any]) -> None:
    """Refuse a run whose student is not on the disk.

    Raises:
        BadInput: that is so; the message has the line that makes it again.
    """
    if not (folder / "student" / "model.safetensors").is_file():
        raise BadInput(
            f"the student of run {record['id']} was not kept ({folder}/student). Make it again: "
            f"{repeat(record, 'force=true', 'keep_student=all')}"
        )


def repeat(record: dict[str, Any], *more: str) -> str:
    """Return the line that repeats a run, with more settings at its end."""
    replaced = tuple(f"{word.partition('=')[0]}=" for word in more)
    words = [word for word in map(str, record.get("argv") or []) if not word.startswith(replaced)]
    return shlex.join(["python", "-m", "ilkd_bench.run", *words, *more])


def load(folder: Path, labels: Sequence[str] | None) -> Model:
    """Load the student of a run: safetensors only, no code from its folder, no network.

    Args:
        folder: of the run, or of an export; the student is in its folder `student`, or itself.
        labels: of the task; None: a regression.

    Raises:
        BadInput: it cannot be loaded, or has other labels than the task.
    """
    import torch
    from transformers import AutoModelForSequenceClassification, AutoTokenizer
    from transformers.utils import logging as transformers_logging

    from ilkd_bench.models import Model, label_order

    transformers_logging.disable_progress_bar()  # the weights are there in a moment
    source = folder / "student" if (folder / "student").is_dir() else folder
    how: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **how)
        hf, info = AutoModelForSequenceClassification.from_pretrained(
            source, **how, dtype=torch.float32, use_safetensors=True, output_loading_info=True
        )
    except Exception as error:  # safetensors, tokenizers and transformers have no common base
        raise BadInput(f"the student in {source} cannot be loaded: {error}") from error
    if info["missing_keys"]:
        raise BadInput(f"the student in {source} lacks {', '.join(sorted(info['missing_keys']))}")
    model = Model(hf, tokenizer)
    if model.spec.classes != (1 if labels is None else len(labels)):
        raise BadInput(f"the student in {source} has {model.spec.classes} outputs, not the task's")
    if label_order(hf.config.id2label, labels, str(source)) is not None:
        raise BadInput(f"the student in {source} has its labels in another order than its task")
    return model.eval()
