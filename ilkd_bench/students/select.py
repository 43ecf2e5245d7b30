"""The run that stands for each task: chosen on dev as the tables choose, or named.

No torch here.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from ilkd_bench.comparison import scores
from ilkd_bench.plumbing import text
from ilkd_bench.plumbing.command import no_runs
from ilkd_bench.records import cells
from ilkd_bench.records.find import find
from ilkd_bench.records.read import finished, load_records
from ilkd_bench.records.record import Done, Record
from ilkd_bench.types import BadInput

CHOICES = ("teacher", "student", "method")


def choose(
    records: Sequence[Record], names: dict[str, str | None], *, limited: bool
) -> dict[str, Done]:
    """Return the run of each task, chosen on dev as the tables do.

    Learning rate and batch size by the mean over seeds, then the best seed; of equal ones the one
    that `retention.tidy` keeps.

    Args:
        records: with their `folder`, as `load_records` returns them.
        names: teacher, student and method, None where nothing was typed.
        limited: take limited runs of tasks that have no other.

    Raises:
        BadInput: several pairs, methods or settings are stored, or only limited runs.
    """
    done = [record for record in records if isinstance(record, Done)]
    for key in CHOICES:
        done = _only(done, key, names[key])
    if len({who(record) for record in done}) > 1:
        raise BadInput(
            f"several are stored: {_listed(done)}. Choose with --teacher, --student and --method"
        )
    grouped: dict[str, list[Done]] = {}
    for record in done:
        grouped.setdefault(record.task, []).append(record)
    return {task: _best(task, _unlimited(task, runs, limited)) for task, runs in grouped.items()}


def who(record: Record) -> tuple[str, str, str]:
    """Return teacher, student and method, the latter with what differs from its YAML."""
    return record.teacher_name, record.student, record.place["method"]


def _only(records: list[Done], key: str, name: str | None) -> list[Done]:
    if name is None:
        return records
    exact = [record for record in records if who(record)[CHOICES.index(key)] == name]
    named = exact or [record for record in records if record.config[key]["name"] == name]
    if records and not named:
        raise BadInput(f"no run has {key} {name}; stored are: {_listed(records)}")
    return named


def _listed(records: Sequence[Record]) -> str:
    """Return teacher, student and method of all that is stored, with the tasks."""
    tasks: dict[tuple[str, str, str], set[str]] = {}
    for record in records:
        tasks.setdefault(who(record), set()).add(record.task)
    return "; ".join(
        f"{' '.join(map(text.word, _options(names)))} ({', '.join(sorted(tasks[names]))})"
        for names in sorted(tasks)
    )


def _options(names: Sequence[str]) -> list[str]:
    return [word for key, name in zip(CHOICES, names, strict=True) for word in (f"--{key}", name)]


def _unlimited(task: str, records: list[Done], limited: bool) -> list[Done]:
    """Return the runs on all rows; the limited ones only where there are no others."""
    unlimited = [record for record in records if not record.limited]
    if not unlimited and not limited:
        raise BadInput(
            f"all {len(records)} runs of {task} are limited (limit_train, limit_eval), for trying "
            "out. Run it on all rows, or type --limited to take them"
        )
    return unlimited or records


def _best(task: str, records: list[Done]) -> Done:
    ids = {record.id: record for record in records}
    summary = scores.summarise(scores.frame(records))
    best = [
        max(map(ids.__getitem__, row.split()), key=lambda record: record.rank)
        for row in summary[summary["monitor"]]["ids"]
    ]
    if len(best) == 1:
        return best[0]
    configs = [{k: v for k, v in r.config.items() if k not in cells.SWEPT} for r in best]
    choices = [
        f"{record.id} ({cells.difference(config, configs)})"
        for record, config in zip(best, configs, strict=True)
    ]
    raise BadInput(
        f"runs of {task} with different settings are stored; the best of each on dev: "
        f"{', '.join(choices)}. Choose with --run ID"
    )


def named(
    typed: Sequence[str], results_dir: Path, wanted: Collection[str], *, limited: bool
) -> dict[str, Done]:
    """Return the runs that were typed, by task, with their `folder`.

    Args:
        typed: folders, ids, or beginnings of ids.
        wanted: names of the tasks.
        limited: allow limited runs.

    Raises:
        BadInput: one of them does not exist, is not done, is limited, is of no such task, or is the
            second of its task.
    """
    chosen: dict[str, Done] = {}
    for word in typed:
        folder = find(word, results_dir)
        record = finished(folder)
        task = record.task
        if task not in wanted:
            raise BadInput(f"--run {word} is a run of {task}; allowed are {', '.join(wanted)}")
        if task in chosen:
            raise BadInput(f"--run {word} is a second run of {task}: give one for each task")
        _unlimited(task, [record], limited)
        chosen[task] = record.model_copy(update={"folder": str(folder.resolve())})
    return chosen


def to_analyse(results_dir: Path, typed: Sequence[str]) -> list[Record]:
    """Return the records of the runs that were typed; of all done ones where none was.

    Args:
        typed: folders, ids, or beginnings of ids.

    Raises:
        BadInput: there are no records, or one of the runs does not exist or cannot be used.
    """
    stored = load_records(results_dir)
    if not stored.records and not typed:
        raise no_runs(results_dir)
    if not typed:
        return [record for record in stored.records if isinstance(record, Done)]
    records = {(results_dir / record.folder).resolve(): record for record in stored.records}
    folders = [find(word, results_dir).resolve() for word in typed]
    for word, folder in zip(typed, folders, strict=True):
        if folder not in records:
            flaws = [flaw for flaw in stored.flaws if folder.name in flaw]
            raise BadInput(f"{word}: {'; '.join(flaws) or f'{folder} is not in {results_dir}'}")
    return [record for folder, record in records.items() if folder in folders]
