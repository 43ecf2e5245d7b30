"""The run that stands for each task: chosen on dev as the tables choose, or named.

No torch here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from ilkd_bench.comparison import scores
from ilkd_bench.records import cells
from ilkd_bench.records.record import find, finished
from ilkd_bench.types import BadInput

CHOICES = ("teacher", "student", "method")


def choose(
    records: Sequence[dict[str, Any]], given: dict[str, str | None], *, limited: bool
) -> dict[str, dict[str, Any]]:
    """Return the run of each task, chosen on dev as the tables do.

    Learning rate and batch size by the mean over seeds, then the best seed; of equal ones the one
    that `students.tidy` keeps.

    Args:
        records: with their `folder`, as `scores.read` returns them.
        given: teacher, student and method, None where nothing was typed.
        limited: take limited runs of tasks that have no other.

    Raises:
        BadInput: several pairs, methods or settings are stored, or only limited runs.
    """
    done = [record for record in records if record["status"] == "done"]
    for key in CHOICES:
        done = _only(done, key, given[key])
    if len({who(record) for record in done}) > 1:
        raise BadInput(
            f"several are stored: {_listed(done)}. Choose with --teacher, --student and --method"
        )
    grouped: dict[str, list[dict[str, Any]]] = {}
    for record in done:
        grouped.setdefault(record["config"]["task"]["name"], []).append(record)
    return {task: _best(task, _whole(task, own, limited)) for task, own in grouped.items()}


def who(record: dict[str, Any]) -> tuple[str, str, str]:
    """Return teacher, student and method, the latter with what differs from its YAML."""
    config = record["config"]
    return config["teacher"]["name"], config["student"]["name"], cells.place(config)["method"]


def _only(records: list[dict[str, Any]], key: str, name: str | None) -> list[dict[str, Any]]:
    if name is None:
        return records
    exact = [record for record in records if who(record)[CHOICES.index(key)] == name]
    found = exact or [record for record in records if record["config"][key]["name"] == name]
    if records and not found:
        raise BadInput(f"no run has {key} {name}; stored are: {_listed(records)}")
    return found


def _listed(records: Sequence[dict[str, Any]]) -> str:
    """Return teacher, student and method of all that is stored, with the tasks."""
    found: dict[tuple[str, str, str], set[str]] = {}
    for record in records:
        found.setdefault(who(record), set()).add(record["config"]["task"]["name"])
    return "; ".join(
        f"--teacher {teacher} --student {student} --method '{method}' ({', '.join(sorted(names))})"
        for (teacher, student, method), names in sorted(found.items())
    )


def _whole(task: str, records: list[dict[str, Any]], limited: bool) -> list[dict[str, Any]]:
    """Return the runs on all rows; the limited ones only where there are no others."""
    whole = [record for record in records if not record["limited"]]
    if not whole and not limited:
        raise BadInput(
            f"all {len(records)} runs of {task} are limited (limit_train, limit_eval), for trying "
            "out. Run it on all rows, or type --limited to take them"
        )
    return whole or records


def _best(task: str, records: list[dict[str, Any]]) -> dict[str, Any]:
    ids = {record["id"]: record for record in records}
    summary = scores.summarise(scores.frame(records))
    best = [
        max(
            map(ids.__getitem__, row.split()),
            key=lambda r: (cells.dev_score(r), f"s{r['config']['seed']}-{r['id']}"),
        )
        for row in summary[summary["monitor"]]["ids"]
    ]
    if len(best) == 1:
        return best[0]
    configs = [{k: v for k, v in r["config"].items() if k not in cells.SWEPT} for r in best]
    told = [
        f"{record['id']} ({cells.difference(config, configs)})"
        for record, config in zip(best, configs, strict=True)
    ]
    raise BadInput(
        f"runs of {task} with different settings are stored; the best of each on dev: "
        f"{', '.join(told)}. Choose with --run ID"
    )


def named(
    typed: Sequence[str], results_dir: Path, wanted: Collection[str], *, limited: bool
) -> dict[str, dict[str, Any]]:
    """Return the runs that were typed, by task, with their `folder`.

    Args:
        typed: folders, ids, or beginnings of ids.
        wanted: names of the tasks.
        limited: allow limited runs.

    Raises:
        BadInput: one of them does not exist, is not done, is limited, is of no such task, or is the
            second of its task.
    """
    found: dict[str, dict[str, Any]] = {}
    for word in typed:
        folder = find(word, results_dir)
        record = finished(folder)
        task = record["config"]["task"]["name"]
        if task not in wanted:
            raise BadInput(f"--run {word} is a run of {task}; allowed are {', '.join(wanted)}")
        if task in found:
            raise BadInput(f"--run {word} is a second run of {task}: give one for each task")
        _whole(task, [record], limited)
        found[task] = record | {"folder": str(folder.resolve())}
    return found
