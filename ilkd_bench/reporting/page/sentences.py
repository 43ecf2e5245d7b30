"""What the scores say, in sentences: the best method of a task, how sure that is, what it costs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from statistics import median
from typing import Any

from ilkd_bench.comparison.results import Results, teacher_scores
from ilkd_bench.records.record import Done
from ilkd_bench.reporting.page.rows import Score, task_names, tested

COST_OF = "finetune"
"""Training speed is told as a multiple of this method's: a student trained without a teacher."""

FEW = 5
"""With fewer seeds than this the tests find large differences only, and the sentence says so."""

NAMED = 6
"""Methods that a sentence names before it counts the others; the table has them all."""


@dataclass(frozen=True)
class Conclusion:
    """What is known of one task.

    Attributes:
        verdict: in a few words; `sure` says whether a test told the best one from all others.
        sentences: the best method, how sure, against vanilla KD, cost.
        rows: the scores it is about, the best first.
    """

    task: str
    metric: str
    verdict: str
    sure: bool
    sentences: Sequence[str]
    rows: Sequence[Score]


@dataclass(frozen=True)
class Speed:
    """Examples per second of the runs of a cell, and the devices they ran on."""

    rate: float
    devices: frozenset[str]


def conclude(results: Results, table: Sequence[Score]) -> dict[str, list[Conclusion]]:
    """Return by section what each task's dev scores say."""
    speeds, teachers = _speeds(results), _teachers(results)
    conclusions: dict[str, list[Conclusion]] = {section: [] for section in results.sections()}
    dev = [row for row in table if row.split == "dev"]
    for (section, task, metric), rows in groupby(dev, lambda r: (r.section, r.task, r.metric)):
        column = list(rows)
        verdict, certainty = sureness(column)
        sentences = [
            best(column, teachers.get((section, task))),
            *certainty,
            *against_vanilla(column[0]),
            *cost(column[0].method, {m: speeds.get((section, task, m)) for m in _methods(column)}),
        ]
        sure = verdict == "clear winner"
        conclusions[section].append(Conclusion(task, metric, verdict, sure, sentences, column))
    return conclusions


def _methods(column: Sequence[Score]) -> list[str]:
    return [row.method for row in column]


def _teachers(results: Results) -> dict[tuple[str, str], float]:
    """Return the teacher's dev score by section and task's name."""
    names = task_names(results)
    return {
        (section, names[task]): score
        for section, records in results.sections().items()
        for task, score in teacher_scores(records).items()
    }


def _speeds(results: Results) -> dict[tuple[str, str, str], Speed]:
    names = task_names(results)
    rates: dict[tuple[str, str, str], list[float]] = {}
    devices: dict[tuple[str, str, str], set[str]] = {}
    for record in results.records:
        if not isinstance(record, Done):
            continue
        rate = record.examples_per_second
        if rate is not None and rate > 0:
            place = record.place
            key = (place["section"], names[place["task"]], place["method"])
            rates.setdefault(key, []).append(rate)
            devices.setdefault(key, set()).add(str(record.device))
    return {key: Speed(median(rates[key]), frozenset(devices[key])) for key in rates}


def listed(names: Iterable[str]) -> str:
    """Return names as they stand in a sentence."""
    words = list(names)
    if len(words) > NAMED:
        return f"{', '.join(words[:NAMED])} and {len(words) - NAMED} others"
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _seeds(n: int) -> str:
    return "1 seed" if n == 1 else f"{n} seeds"


def points(value: float, sign: str = "") -> str:
    """Return a score times 100."""
    return f"{100 * value:{sign}.1f}"


def best(column: Sequence[Score], teacher: float | None) -> str:
    """Return the sentence on the best method of a column, the best first."""
    first = column[0]
    beside = "" if teacher is None else f"; the teacher scores {points(teacher)}"
    if len(column) > 1 and column[-1].mean == first.mean:
        return f"All {len(column)} methods score {points(first.mean)}{beside}."
    spread = f" ± {points(first.std)}" if first.std == first.std else ""
    seeds = f"{'over' if first.n > 1 else 'with'} {_seeds(first.n)}"
    score = f"{points(first.mean)}{spread} {seeds}{beside}"
    if len(column) == 1:
        return f"Only {first.method} was run: {score}."
    level = [row.method for row in column[1:] if row.mean == first.mean]
    if level:
        return f"{listed([first.method, *level])} have the best mean: {score}."
    return f"{first.method} has the best mean: {score}."


def sureness(column: Sequence[Score]) -> tuple[str, list[str]]:
    """Return a verdict in a few words and what the tests say of the best method and the others."""
    if len(column) == 1:
        return "nothing to compare", []
    worse: list[str] = []
    alike: list[str] = []
    untested: list[str] = []
    for row in column[1:]:
        test = row.to_best
        (untested if not tested(test) else worse if test.distinct else alike).append(row.method)
    sentences = []
    if not untested and not alike:
        sentences.append("Better than every other method, after correction for their number.")
    elif worse:
        sentences.append(f"Better than {listed(worse)}.")
    if alike:
        sentences.append(f"Not distinguishable from {listed(alike)}.")
    if untested:
        sentences.append(
            f"Not tested against {listed(untested)}: they share fewer than two seeds, or the "
            "difference was the same at each."
        )
    most_seeds = max(row.n for row in column)
    if most_seeds == 1:
        sentences = ["With 1 seed nothing can be said about chance: run more seeds."]
    elif most_seeds < FEW:
        sentences.append(f"With {_seeds(most_seeds)} only large differences can be found.")
    if worse and not alike and not untested:
        return "clear winner", sentences
    return ("no clear winner" if alike else "not tested"), sentences


def against_vanilla(row: Score) -> list[str]:
    """Return the difference of the best method to vanilla KD, if both were run."""
    test = row.to_vanilla
    if test is None:
        return []
    difference = f"Against {test.against}: {points(test.difference, '+')} points"
    if not tested(test):
        return [f"{difference}, not tested."]
    span = f"95 % interval over seeds [{points(test.low, '+')}, {points(test.high, '+')}]"
    if test.low != test.low:
        span = "no interval over seeds"
    source = "seeds" if test.p_examples != test.p_examples else "seeds and examples"
    outcome = "the difference counts" if test.distinct else "not distinguishable"
    p = f"p {probability(test.p_holm)} over {source}, corrected"
    return [f"{difference} ({span}; {p}): {outcome}."]


def probability(p: float) -> str:
    """Return a p with two digits that tell."""
    return "<0.001" if p < 0.001 else f"{p:.3f}" if p < 0.1 else f"{p:.2f}"


def cost(method: str, speeds: Mapping[str, Speed | None]) -> list[str]:
    """Return how fast a method trains beside fine-tuning without a teacher."""
    speed, plain = speeds.get(method), speeds.get(COST_OF)
    if speed is None or plain is None or method == COST_OF:
        return []
    if speed.devices != plain.devices or len(speed.devices) > 1:
        return [f"Its cost is not told: it and {COST_OF} ran on different devices."]
    return [f"It trains at {speed.rate / plain.rate:.2f} times the speed of {COST_OF}."]


def standing(results: Results, section: str, conclusions: Sequence[Any]) -> str | None:
    """Return the sentence over all tasks of a section; None where it has one task."""
    standings = results.standings
    ranked = standings[standings["section"] == section].dropna(subset=["rank"])
    if len(conclusions) < 2 or len(ranked) < 2:
        return None
    lowest = ranked["rank"].min()
    first = ranked[ranked["rank"] == lowest]["method"].tolist()
    has = "has" if len(first) == 1 else "have"
    return (
        f"Over {ranked['tasks'].iloc[0]} tasks {listed(first)} {has} the best average rank, "
        f"{lowest:.2f}, among {len(ranked)} methods that were run on all."
    )
