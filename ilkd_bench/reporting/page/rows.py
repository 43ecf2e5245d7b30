"""What the report shows of the runs that are done: a row per score, the runs behind it, where.

A record's settings and scores are checked when it is read (`scores.flaw`). Its other fields are
taken as they come, so that whatever they hold is shown or left blank and breaks nothing.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from statistics import median
from typing import Any

from ilkd_bench.comparison import differences, scores
from ilkd_bench.comparison.results import Results
from ilkd_bench.records import listing
from ilkd_bench.records.cells import SWEPT, task_name
from ilkd_bench.records.record import Done


@dataclass(frozen=True)
class Score:
    """A row of the report's table: a method on a split, over its seeds.

    Attributes:
        pair: teacher, student and, where a pair has several settings, which of them.
        low, high: 95 % bootstrap interval of the mean over seeds; NaN for one seed.
        bold: the best of a column and what the tests do not tell from it, as `Results.best`.
        to_best, to_vanilla: a row of `Results.compared`; None where there is nothing to compare.
        seconds: of training, the median over the runs; None where no record says.
    """

    section: str
    pair: str
    task: str
    split: str
    metric: str
    method: str
    mean: float
    std: float
    n: int
    low: float
    high: float
    bold: bool
    to_best: Any
    to_vanilla: Any
    seconds: float | None
    lr: float
    batch_size: float
    ids: tuple[str, ...]


def number(value: Any) -> float | None:
    """Return a finite number as it is; None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number and abs(value) < 1e300 else None


# --- names


def section_names(sections: Iterable[str], titles: Iterable[str]) -> dict[str, str]:
    """Return what each section is called: its title, and its hash where several share a title."""
    by_section = dict(zip(sections, titles, strict=True))
    count = Counter(by_section.values())
    return {
        key: f"{title}, setting {key}" if count[title] > 1 else title
        for key, title in by_section.items()
    }


def task_names(results: Results) -> dict[str, str]:
    """Return what each task is called: its name, with the hash of its data where it has several."""
    tasks = sorted({record.place["task"] for record in results.records})
    count = Counter(map(task_name, tasks))
    return {task: task if count[task_name(task)] > 1 else task_name(task) for task in tasks}


# --- scores


def table(results: Results, names: Mapping[str, str]) -> list[Score]:
    """Return a row per section, task, split and method, the best of a column first."""
    main = results.summary[results.summary["main"]]
    tasks, seconds = task_names(results), _seconds(results)
    tests = {
        (row.section, row.task, row.split, row.metric, row.method, row.against): row
        for row in scores.rows(results.compared)
    }
    rows = []
    for column, part in main.groupby(differences.COLUMN, sort=True):
        best = differences.best_method(part.set_index("method")["mean"])
        for row in scores.rows(part):
            cell = (*column, row.method)
            ids = tuple(row.ids.split())
            rows.append(
                Score(
                    section=row.section,
                    pair=names[row.section],
                    task=tasks[row.task],
                    split=row.split,
                    metric=row.metric,
                    method=row.method,
                    mean=row.mean,
                    std=row.std,
                    n=row.n,
                    low=row.low,
                    high=row.high,
                    bold=cell in results.best,
                    to_best=tests.get((*cell, best)),
                    to_vanilla=tests.get((*cell, differences.BASELINE)),
                    seconds=_median(seconds, ids),
                    lr=row.lr,
                    batch_size=row.batch_size,
                    ids=ids,
                )
            )
    return sorted(rows, key=_order(list(names)))


def tested(test: Any) -> bool:
    """Tell whether a row of `Results.compared`, if there is one, has a p."""
    return test is not None and test.p_holm == test.p_holm


def _order(sections: list[str]) -> Callable[[Score], tuple[Any, ...]]:
    """Return what sorts scores: sections as they stand, dev first, then the best first."""

    def key(row: Score) -> tuple[Any, ...]:
        place = (sections.index(row.section), row.task, row.split != "dev", row.split, row.metric)
        return (*place, -row.mean, row.method)

    return key


def _seconds(results: Results) -> dict[str, float | None]:
    return {
        record.id: record.seconds.get("train")
        for record in results.records
        if isinstance(record, Done)
    }


def _median(seconds: Mapping[str, float | None], ids: Iterable[str]) -> float | None:
    known = [value for value in map(seconds.get, ids) if value is not None]
    return median(known) if known else None


def tried(results: Results, names: Mapping[str, str]) -> list[dict[str, Any]]:
    """Return the learning rates and batch sizes of cells that have several, chosen ones marked."""
    keys = [*scores.CELL, "lr", "batch_size"]
    monitored = results.scores[results.scores["monitor"]]
    means = monitored.groupby(keys, as_index=False).agg(mean=("value", "mean"), n=("value", "size"))
    several = means.groupby(scores.CELL)["n"].transform("size") > 1
    chosen = set(results.runs[keys].itertuples(index=False, name=None))
    tasks = task_names(results)
    return [
        {
            "pair": names[row.section],
            "task": tasks[row.task],
            "chosen": tuple(row)[: len(keys)] in chosen,
        }
        | {"method": row.method, "lr": row.lr, "batch_size": row.batch_size}
        | {"mean": row.mean, "n": row.n}
        for row in scores.rows(means[several])
    ]


# --- the runs behind a score


def details(results: Results, ids: Iterable[str]) -> dict[str, Any]:
    """Return what the page tells of some runs, in a form that JSON can hold.

    Settings repeat themselves from run to run: `texts` has every value once, `settings` every set
    of them, as key and number of the text; a run names its set.
    """
    wanted = set(ids)
    texts: dict[str, int] = {}
    settings: dict[tuple[tuple[str, int], ...], int] = {}
    runs = {}
    for record in results.records:
        if record.id not in wanted or not isinstance(record, Done):
            continue
        shared = tuple(
            (key, texts.setdefault(json.dumps(value, indent=1, sort_keys=True), len(texts)))
            for key, value in sorted(record.config.items())
            if key not in SWEPT
        )
        place = settings.setdefault(shared, len(settings))
        runs[record.id] = _run_details(record) | {"settings": place}
    return {"runs": runs, "settings": [dict(shared) for shared in settings], "texts": list(texts)}


def _run_details(record: Done) -> dict[str, Any]:
    swept: dict[str, Any] = {key: record.config[key] for key in SWEPT}
    return swept | {
        "scores": record.scores,
        "monitor": record.monitor,
        "epoch": record.best_epoch,
        "seconds": record.seconds,
        "folder": record.folder,
        "device": record.device,
        "command": listing.command(record.argv),
    }


# --- where it was measured


def environment(results: Results) -> list[tuple[str, str, int]]:
    """Return what the runs were measured with, as (what, value, number of runs)."""
    count: Counter[tuple[str, str]] = Counter()
    for record in results.records:
        if isinstance(record, Done):
            count.update(_measured_with(record))
    return [(what, value, number) for (what, value), number in sorted(count.items())]


def _measured_with(record: Done) -> list[tuple[str, str]]:
    commit = "not recorded"
    if record.git is not None:
        commit = f"{record.git.get('sha')}{' with changes' if record.git.get('dirty') else ''}"
    versions = [(str(name), str(version)) for name, version in record.versions.items()]
    return [
        ("commit", commit),
        ("device", record.device or "not recorded"),
        ("precision", record.precision or "not recorded"),
        *versions,
    ]
