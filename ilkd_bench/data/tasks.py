"""Tasks and where their rows come from: a folder, the hub, or the demo grammar."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ilkd_bench.data import collapse, formats, grammar
from ilkd_bench.data.collapse import RULES
from ilkd_bench.data.formats import Columns
from ilkd_bench.data.labels import MOST, allowed, finder, number, shown
from ilkd_bench.data.task_values import check_columns, check_range, label_names
from ilkd_bench.plumbing.files import FileHash, file_hash
from ilkd_bench.types import BadInput

FORMATS = tuple(formats.READERS)
CLASS_METRICS = ("accuracy", "f1", "mcc")
SCORE_METRICS = ("pearson", "spearman")
REQUIRED = ("teacher", "train", "dev")
"""Splits whose labels somebody learns from or selects by."""
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
            BadInput: a value is not what a task can have, or two do not go together.
        """
        if self.labels is not None:
            object.__setattr__(self, "labels", label_names(self.labels))
        check_columns(self.text_columns, self.label_column)
        check_range(self.score_range, self.labels)
        known = SCORE_METRICS if self.labels is None else CLASS_METRICS
        for key, names in (("metric", [self.metric]), ("also", self.also)):
            for name in names:
                if name not in known:
                    raise BadInput(
                        f"task.{key}={name}: allowed for task={self.name} are {', '.join(known)}"
                    )
        for split in self.hidden:
            if split not in self.splits or split in REQUIRED:
                others = [name for name in self.splits if name not in REQUIRED]
                raise BadInput(
                    f"task.hidden={split}: allowed is a list of splits that nobody trains on or "
                    f"selects by; task={self.name} has {', '.join(others) or 'none'}"
                )
        object.__setattr__(self, "ood", {name: self._other(name) for name in self.ood})

    def _other(self, name: str) -> dict[str, Any]:
        """Return the settings of an out-of-domain set, its label map in the very names."""
        key = f"task.ood.{name}"
        settings = self.ood[name]
        try:
            part = ood_task(self, name)
        except BadInput as error:
            raise BadInput(f"{key}: {error}") from error
        if settings["collapse"] not in RULES:
            raise BadInput(
                f"{key}.collapse={settings['collapse']}: allowed is one of {', '.join(RULES)}"
            )
        if not part.splits or next(iter(part.splits)) in part.hidden:
            raise BadInput(f"{key}.splits={part.splits}: the first one must be there to be scored")
        where = f"{key}.label_map"
        label_map = collapse.resolve(settings["label_map"], self.labels, part.labels, where)
        return settings | {"label_map": label_map}


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
        BadInput: several formats lie side by side, or the folder is missing or cannot be read.
    """
    stem = data_dir / task.name / task.splits[split]
    try:
        if not data_dir.is_dir():
            raise BadInput(f"data_dir={data_dir} is no folder")
        files = [path for ext in FORMATS if (path := Path(f"{stem}.{ext}")).is_file()]
    except OSError as error:
        raise BadInput(f"data_dir={data_dir} cannot be read: {error}") from error
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
    required = [s for s in REQUIRED if s in task.splits] or list(task.splits)[:1]
    present = []
    for split, source in task.splits.items():
        if find_file(task, split, data_dir) is not None:
            present.append(split)
        elif split in required:
            raise BadInput(
                f"no file {data_dir / task.name / source}.{{{','.join(FORMATS)}}} for task="
                f"{task.name}: data_dir= needs one file per split with the columns "
                f"{', '.join([*task.text_columns, task.label_column])}"
                + _other_names(task, split, data_dir)
                + ("" if "train" in task.splits else " (task.ood=null scores no other domain)")
            )
    return present


def _other_names(task: Task, split: str, data_dir: Path) -> str:
    """Return what lies where a split's file should be, and how it would be read."""
    folder = data_dir / task.name
    try:
        if not folder.is_dir():
            found = sorted(path.name for path in data_dir.iterdir() if path.is_dir())
            return f"; the folders there are {', '.join(found[:MOST])}" if found else ""
        known = {f"{stem}.{ext}" for stem in task.splits.values() for ext in FORMATS}
        found = sorted(path.name for path in folder.iterdir() if path.name not in known)
    except OSError as error:
        raise BadInput(f"data_dir={data_dir} cannot be read: {error}") from error
    if not found:
        return ""
    return (
        f"; there is {', '.join(found[:MOST])}, which would be read by the name of a split "
        f"(task.splits.{split}=NAME is another) and one of these formats"
    )


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
    wanted = [*task.text_columns, task.label_column]
    if is_demo(task):
        source = task.splits[split]
        if source not in grammar.SPLITS:
            raise BadInput(
                f"task.splits.{split}={source}: the grammar has {', '.join(grammar.SPLITS)}"
            )
        rows = grammar.rows(task.name.removesuffix("_ood"), source)
        columns = formats.from_rows(rows, wanted, where)
    elif data_dir is not None:
        path = find_file(task, split, data_dir)
        if path is None:
            raise BadInput(f"{where}: no file {task.splits[split]} in {data_dir / task.name}")
        where = str(path)
        columns = formats.read_file(path, wanted)
    else:
        columns = _read_hub(task, split, wanted, where)
    return _check(task, split, columns, where, limit)


def _read_hub(task: Task, split: str, wanted: Sequence[str], where: str) -> Columns:
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
    return formats.from_arrow(data.with_format("arrow")[:], wanted, where)


def _check(task: Task, split: str, columns: Columns, where: str, limit: int | None) -> TextRows:
    found = columns[task.label_column]
    if not len(found):
        raise BadInput(f"{where}: the split has no rows")
    for column in task.text_columns:
        _check_texts(columns[column], f"{where}: column {column}")
    index = np.arange(len(found))
    if limit is not None and limit < len(found):
        index = np.sort(np.random.default_rng(0).choice(index, size=limit, replace=False))
    labels = _scores(task, found, where) if task.labels is None else _classes(task, found, where)
    if split in REQUIRED:
        _check_variety(task, labels, where)
    texts = [[columns[column][row] for row in index.tolist()] for column in task.text_columns]
    return TextRows(texts, labels[index], index)


def _check_texts(texts: Sequence[Any], where: str) -> None:
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise BadInput(f"{where} of row {row} is {shown(text)}, no text")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BadInput(
                f"{where} of row {row} is {shown(text)}, which has half of a character (a lone "
                f"surrogate) at place {error.start}"
            ) from error


def _scores(task: Task, column: Sequence[Any], where: str) -> np.ndarray:
    """Return the labels of a regression, float32."""
    values = [number(label) for label in column]
    scores = np.array([np.nan if value is None else float(value) for value in values])
    low, high = task.score_range or (-np.inf, np.inf)
    bad = ~(np.abs(scores) <= np.finfo(np.float32).max)
    bad |= ((scores < low) | (scores > high)) & (scores != HIDDEN)
    if bad.any():
        row = int(np.flatnonzero(bad)[0])
        raise BadInput(
            f"{where}: the label of row {row} is {shown(column[row])}; allowed are "
            + ("numbers" if task.score_range is None else f"numbers from {low:g} to {high:g}")
        )
    return scores.astype(np.float32)


def _classes(task: Task, column: Sequence[Any], where: str) -> np.ndarray:
    """Return the labels as numbers of the task's names, int64."""
    names = task.labels or ()
    find = finder(names)
    classes = []
    for row, label in enumerate(column):
        position = find(label)
        if position is None and number(label) == HIDDEN:
            position = HIDDEN
        if position is None:
            raise BadInput(
                f"{where}: the label of row {row} is {shown(label)}; allowed are {allowed(names)}"
            )
        classes.append(position)
    return np.array(classes, dtype=np.int64)


def is_hidden(task: Task, labels: np.ndarray) -> bool:
    """Tell whether some labels of a split are not public; -1 may be a true score."""
    low = task.score_range[0] if task.score_range is not None else -np.inf
    return bool((labels == HIDDEN).any()) and (task.labels is not None or low > HIDDEN)


def _check_variety(task: Task, labels: np.ndarray, where: str) -> None:
    if is_hidden(task, labels):
        raise BadInput(f"{where}: rows with the label {HIDDEN} (hidden) cannot train or select")
    if len(np.unique(labels)) < 2:
        raise BadInput(f"{where}: all {len(labels)} rows have the label {labels[0]}")
