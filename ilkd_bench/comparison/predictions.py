"""The stored predictions of a run, as answers that can be compared."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa

from ilkd_bench.data.collapse import collapse
from ilkd_bench.plumbing import own_files
from ilkd_bench.plumbing.command import reason
from ilkd_bench.records.record import Record

log = logging.getLogger("ilkd_bench")

DAMAGED = (OSError, ValueError, LookupError, TypeError, AttributeError, pa.ArrowException)
"""What reading a file, or a task's labels, of any content may raise."""


@dataclass(frozen=True)
class Answers:
    """A run's predictions on a split, in the order of its rows.

    Attributes:
        index, labels: [n], row number and label.
        values: [n], the predicted class, or the predicted score.
    """

    index: np.ndarray
    labels: np.ndarray
    values: np.ndarray


Reader = Callable[[str, str], Answers | None]
"""(folder of the run, split) -> its answers; None where they are not stored or not whole."""


def reader(results_dir: Path, records: Mapping[str, Record]) -> Reader:
    """Return what reads stored predictions, each file once.

    Args:
        records: by folder.
    """
    by_file: dict[tuple[str, str], Answers | None] = {}

    def read(folder: str, split: str) -> Answers | None:
        key = (folder, split)
        if key not in by_file:
            run = results_dir / folder
            path = run / "predictions" / f"{split}.parquet"
            by_file[key] = answers(path, records[folder].config["task"], split, inside=run)
        return by_file[key]

    return read


def answers(
    path: Path, task: dict[str, Any], split: str, *, inside: Path | None = None
) -> Answers | None:
    """Return what a file of predictions says; None where there is none or it is damaged.

    What is damaged is logged: differences that need it are told by seeds alone.

    Args:
        inside: the folder that it must lie in; None: its own.
    """
    folder = inside or path.parent
    try:
        with own_files.open_file(folder, str(path.relative_to(folder))) as file:
            stored = pd.read_parquet(file).sort_values("index")
        columns = [name for name in stored.columns if name.startswith("logit_")]
        logits = stored[columns].to_numpy(dtype=float)
        labels = stored["label"].to_numpy(dtype=float)
        if not (len(labels) and np.isfinite(logits).all() and np.isfinite(labels).all()):
            raise ValueError("numbers are missing")
        index = stored["index"].to_numpy(dtype=np.int64)
        return Answers(index, labels, decisions(logits, task, split))
    except FileNotFoundError:
        return None
    except DAMAGED as error:
        log.warning("%s: not used, the predictions are damaged: %s", path, reason(error))
        return None


def decisions(logits: np.ndarray, task: dict[str, Any], split: str) -> np.ndarray:
    """Return the predicted score [N], or the predicted class in the labels of the split.

    Args:
        logits: [N, C] of the student, in the labels of its task.
    """
    if logits.shape[1] == 1:
        return logits[:, 0]
    other = task["ood"][split.removeprefix("ood/")] if split.startswith("ood/") else {}
    if other.get("label_map") is None:
        return logits.argmax(axis=1).astype(float)
    probabilities = collapse(
        logits, task["labels"], other["labels"], other["label_map"], rule=other["collapse"]
    )
    return probabilities.argmax(axis=1).astype(float)
