"""Tasks and where their rows come from: a folder, the hub, or the demo grammar."""

from __future__ import annotations

import csv
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ilkd_bench.data import grammar
from ilkd_bench.plumbing.files import FileHash, file_hash
from ilkd_bench.types import BadInput

if TYPE_CHECKING:
    import pandas as pd

FORMATS = ("parquet", "jsonl", "csv", "tsv")
CLASS_METRICS = ("accuracy", "f1", "mcc")
SCORE_METRICS = ("pearson", "spearman")
HIDDEN = -1
"""The label of rows whose true label is not public."""


@dataclass(frozen=True)
class Task:
    """What is asked of a text, as `conf/task/*.yaml` states it."""

    name: str
    text_columns: Sequence[str]
    label_column: str
    labels: Sequence[str] | None  # in the canonical order; None: a regression
    score_range: Sequence[float] | None  # of a regression's labels; None: any
    metric: str  # selects the best epoch and the settings
    also: Sequence[str]  # other metrics that are reported
    splits: dict[str, str]  # ours -> the source's name; `teacher`: its own training rows, if any
    hidden: Sequence[str]  # splits whose labels are never scored
    hub: dict[str, Any] | None
    ood: dict[str, dict[str, Any]]  # evaluation sets of other domains, by name

    def __post_init__(self) -> None:
        """Check what the rows are not needed for.

        Raises:
            BadInput: a metric, a label name or the text columns are not what a task can have.
        """
        columns = self.text_columns
        if isinstance(columns, str) or not 1 <= len(columns) <= 2:
            raise BadInput(
                f"task.text_columns={columns}: allowed is a list of one or two columns, e.g. [a,b]"
            )
        if self.labels is not None and (
            isinstance(self.labels, str) or len({str(v) for v in self.labels}) < 2
        ):
            raise BadInput(
                f"task.labels={self.labels}: allowed is a list of two or more different names, "
                "or null for a score"
            )
        if self.labels is not None:
            object.__setattr__(self, "labels", [str(name) for name in self.labels])
            if len(set(self.labels or ())) < len(self.labels or ()):
                raise BadInput(f"task.labels={self.labels}: a name stands there twice")
        allowed = SCORE_METRICS if self.labels is None else CLASS_METRICS
        for key, names in (("metric", [self.metric]), ("also", self.also)):
            for name in names:
                if name not in allowed:
                    raise BadInput(
                        f"task.{key}={name}: allowed for task={self.name} are {', '.join(allowed)}"
                    )


@dataclass(frozen=True)
class TextRows:
    """One split in memory."""

    texts: list[list[str]]  # one list of N strings per text column
    labels: np.ndarray  # [N], int64 classes or float32 scores
    index: np.ndarray  # [N], row number in the source

    def __len__(self) -> int:
        return len(self.labels)


def is_demo(task: Task) -> bool:
    """Tell whether the rows come from the embedded grammar."""
    return task.hub is None and task.name.removesuffix("_ood") in grammar.TASKS


def find_file(task: Task, split: str, data_dir: Path) -> Path | None:
    """Return the file of a split below `data_dir`, None where there is none.

    Raises:
        BadInput: several formats lie side by side, or the folder is missing.
    """
    if not data_dir.is_dir():
        raise BadInput(f"data_dir={data_dir} is no folder")
    stem = data_dir / task.name / task.splits[split]
    files = [path for ext in FORMATS if (path := Path(f"{stem}.{ext}")).is_file()]
    if len(files) > 1:
        raise BadInput(f"more than one file for one split: {', '.join(map(str, files))}")
    return files[0] if files else None


def available(task: Task, data_dir: Path | None) -> list[str]:
    """Return the splits of a task that exist; train and dev (or a lone test split) must.

    Raises:
        BadInput: a split that the run cannot do without has no file.
    """
    if is_demo(task) or data_dir is None:
        return list(task.splits)
    required = [s for s in ("teacher", "train", "dev") if s in task.splits] or list(task.splits)[:1]
    present = []
    for split, source in task.splits.items():
        if find_file(task, split, data_dir) is not None:
            present.append(split)
        elif split in required:
            raise BadInput(
                f"no file {data_dir / task.name / source}.{{{','.join(FORMATS)}}} for task="
                f"{task.name}: data_dir= needs one file per split with the columns "
                f"{', '.join([*task.text_columns, task.label_column])}"
                + ("" if "train" in task.splits else " (task.ood=null scores no other domain)")
            )
    return present


def fingerprints(
    task: Task, data_dir: Path | None, cache_dir: Path, hash_of: FileHash = file_hash
) -> dict[str, str]:
    """Return what identifies the rows of each split, out-of-domain sets included.

    A file counts by its content, the hub by its pinned revision, the grammar by its version.

    Args:
        hash_of: of a file; by default the hash that is remembered, without reading.
    """
    result = {}
    for prefix, part in [("", task), *((f"ood/{n}/", ood_task(task, n)) for n in task.ood)]:
        for split in available(part, data_dir):
            if split in part.hidden:  # never read
                continue
            if is_demo(part):
                value = f"grammar {grammar.VERSION} {part.name} {split}"
            elif data_dir is not None:
                path = find_file(part, split, data_dir)
                value = hash_of(path, cache_dir) if path else ""
            else:
                value = _hub_name(part)
            result[prefix + split] = value
    return result


def ood_task(task: Task, name: str) -> Task:
    """Return an out-of-domain set of a task as a task of its own."""
    settings = {k: v for k, v in task.ood[name].items() if k not in ("label_map", "collapse")}
    return Task(**settings)


def _hub_name(task: Task) -> str:
    if task.hub is None:
        raise BadInput(
            f"task={task.name} has no source of its own: give data_dir=DIR with "
            f"DIR/{task.name}/{{{','.join(task.splits.values())}}}.{{{','.join(FORMATS)}}}"
        )
    return f"{task.hub['path']}:{task.hub['config']}@{task.hub['revision']}"


def read(task: Task, split: str, *, data_dir: Path | None, limit: int | None = None) -> TextRows:
    """Read and check one split.

    Args:
        limit: keep so many rows, drawn at random with a fixed seed, in their original order.

    Raises:
        BadInput: the split is empty or lacks a column, a text is missing, or a label is not one of
            the task's.
    """
    where = f"task={task.name}, split {split}"
    if is_demo(task):
        source = task.splits[split]
        if source not in grammar.SPLITS:
            raise BadInput(
                f"task.splits.{split}={source}: the grammar has {', '.join(grammar.SPLITS)}"
            )
        frame = _frame(grammar.rows(task.name.removesuffix("_ood"), source))
    elif data_dir is not None:
        path = find_file(task, split, data_dir)
        if path is None:
            raise BadInput(f"{where}: no file {task.splits[split]} in {data_dir / task.name}")
        where = str(path)
        frame = _read_file(path)
    else:
        frame = _read_hub(task, split)
    return _check(task, split, frame, where, limit)


def _frame(rows: list[dict[str, Any]]) -> pd.DataFrame:
    import pandas as pd  # in functions only: it takes long, and planning runs reads no rows

    return pd.DataFrame(rows)


def _read_file(path: Path) -> pd.DataFrame:
    import pandas as pd

    with warnings.catch_warnings():
        warnings.simplefilter("error", pd.errors.ParserWarning)  # more fields than the header
        return _parse(path)


def _parse(path: Path) -> pd.DataFrame:
    import pandas as pd

    try:
        if path.suffix == ".parquet":
            return pd.read_parquet(path)
        if path.suffix == ".jsonl":
            return pd.read_json(path, lines=True, dtype=False)
        plain = path.suffix == ".tsv"
        return pd.read_csv(
            path,
            sep="\t" if plain else ",",
            quoting=csv.QUOTE_NONE if plain else csv.QUOTE_MINIMAL,
            encoding="utf-8-sig",
            keep_default_na=False,
            dtype=str,
            index_col=False,
        )
    except (ValueError, OSError, pd.errors.ParserWarning) as error:  # parsers raise ValueErrors
        raise BadInput(f"{path} cannot be read: {error}") from error


def _read_hub(task: Task, split: str) -> pd.DataFrame:
    name = _hub_name(task)
    from datasets import load_dataset  # only here: it takes a second to import

    hub = task.hub or {}
    try:
        data = load_dataset(
            hub["path"], hub["config"], revision=hub["revision"], split=task.splits[split]
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise BadInput(
            f"{name} cannot be loaded from the hub ({type(error).__name__}: {error}). Without a "
            f"network give data_dir=DIR with DIR/{task.name}/{task.splits[split]}."
            f"{{{','.join(FORMATS)}}}"
        ) from error
    return data.to_pandas()


def _check(task: Task, split: str, frame: pd.DataFrame, where: str, limit: int | None) -> TextRows:
    if frame.empty:
        raise BadInput(f"{where}: the split has no rows")
    missing = [c for c in (*task.text_columns, task.label_column) if c not in frame.columns]
    if missing:
        raise BadInput(
            f"{where}: no column {', '.join(missing)}; found are {', '.join(map(str, frame))}"
        )
    for column in task.text_columns:
        bad = frame.index[~frame[column].map(lambda text: isinstance(text, str))]
        if len(bad):
            raise BadInput(
                f"{where}: column {column} of row {bad[0]} is {frame[column][bad[0]]!r}, no text"
            )
    index = np.arange(len(frame))
    if limit is not None and limit < len(frame):
        index = np.sort(np.random.default_rng(0).choice(index, size=limit, replace=False))
    labels = _labels(task, frame[task.label_column], where)
    if split in ("teacher", "train", "dev"):
        _check_variety(task, labels, where)
    chosen = frame.iloc[index]
    texts = [chosen[column].tolist() for column in task.text_columns]
    return TextRows(texts, labels[index], index)


def _labels(task: Task, column: pd.Series, where: str) -> np.ndarray:
    if task.labels is None:
        import pandas as pd

        scores = pd.to_numeric(column, errors="coerce").to_numpy(dtype=np.float32)
        low, high = task.score_range or (-np.inf, np.inf)
        bad = ~np.isfinite(scores) | (((scores < low) | (scores > high)) & (scores != HIDDEN))
        if bad.any():
            row = int(np.flatnonzero(bad)[0])
            raise BadInput(
                f"{where}: the label of row {row} is {column.iloc[row]}; allowed are numbers "
                f"from {low:g} to {high:g}"
            )
        return scores
    names = {name: number for number, name in enumerate(task.labels)}
    numbers = {str(number): number for number in names.values()}
    named = any(name.lstrip("-").isdigit() for name in names)  # then a number is a name
    known = {str(HIDDEN): HIDDEN} | ({} if named else numbers) | names
    values = column.map(lambda value: known.get(_word(value)))
    unknown = column.index[values.isna()]
    if len(unknown):
        row = unknown[0]
        allowed = ", ".join(f"{number} ({name})" for name, number in names.items())
        raise BadInput(
            f"{where}: the label of row {row} is {_word(column[row])}; allowed are {allowed}"
        )
    return values.to_numpy(dtype=np.int64)


def _word(label: Any) -> str:
    """Return a label as text, a whole number without its point: 1.0 and 1 are "1"."""
    return str(int(label)) if isinstance(label, float) and label.is_integer() else str(label)


def is_hidden(task: Task, labels: np.ndarray) -> bool:
    """Tell whether some labels of a split are not public; -1 may be a true score."""
    low = task.score_range[0] if task.score_range is not None else -np.inf
    return bool((labels == HIDDEN).any()) and (task.labels is not None or low > HIDDEN)


def _check_variety(task: Task, labels: np.ndarray, where: str) -> None:
    if is_hidden(task, labels):
        raise BadInput(f"{where}: rows with the label {HIDDEN} (hidden) cannot train or select")
    if len(np.unique(labels)) < 2:
        raise BadInput(f"{where}: all {len(labels)} rows have the label {labels[0]}")
