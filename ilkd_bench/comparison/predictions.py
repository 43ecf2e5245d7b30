"""The stored predictions of a run, as answers that can be compared."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from ilkd_bench.data.collapse import collapse
from ilkd_bench.records.record import Record


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
            path = results_dir / folder / "predictions" / f"{split}.parquet"
            by_file[key] = answers(path, records[folder].config["task"], split)
        return by_file[key]

    return read


def answers(path: Path, task: dict[str, Any], split: str) -> Answers | None:
    """Return what a file of predictions says; None where there is none or it is damaged."""
    try:
        stored = pd.read_parquet(path).sort_values("index")
        columns = [name for name in stored.columns if name.startswith("logit_")]
        logits = stored[columns].to_numpy(dtype=float)
        if not np.isfinite(logits).all():
            return None
        return Answers(
            stored["index"].to_numpy(),
            stored["label"].to_numpy(dtype=float),
            decisions(logits, task, split),
        )
    except (OSError, ValueError, KeyError):  # pyarrow's errors are ValueErrors
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
