"""Figures from the records: `python -m ilkd_bench.figures [--figure NAME]`.

`results/figures/NAME.{svg,pdf,csv}` for each figure that has data; the CSV holds the numbers behind
it. Runs of different pairs, settings or tasks never share a figure: where there are several, the
file's name says which, as `NAME--tiny12-tiny6--demo_nli.svg`. The files are the same bytes from run
to run. What needs a model is in the folders of the runs: `python -m ilkd_bench.analyse`. No torch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
from matplotlib.figure import Figure

from ilkd_bench.plumbing.command import FIRST_WORDS, line, run_line
from ilkd_bench.records import cells
from ilkd_bench.reporting.figures import plots, style
from ilkd_bench.reporting.figures.data import (
    Records,
    attention,
    cka,
    cosine,
    curves,
    distance,
    layers,
    ood,
    paper_pairs,
    pca,
    seeds,
    time,
)

RUN = run_line(FIRST_WORDS)
ANALYSE = line("analyse")
SECTION, TASK, POOLING = ("section",), ("section", "task"), ("section", "task", "pooling")
IN_WORDS = {"cls": "first token", "mean": "mean over tokens"}


@dataclass(frozen=True)
class Entry:
    """A figure: its numbers, its drawing, and what to type where there are none."""

    name: str
    title: str
    prepare: Callable[[Path, Records], pd.DataFrame]
    draw: Callable[[pd.DataFrame, str], Figure]
    apart: tuple[str, ...]
    """Columns whose values never share a figure."""
    missing: str


def _metric(words: str, column: str = "metric") -> Callable[[pd.DataFrame], str]:
    """Return the label of an axis with the metrics of its rows."""
    return lambda t: words + " or ".join(map(style.metric_in_words, sorted(t[column].unique())))


NO_COSINE = (
    f"no run of a pair of equal widths is analysed: type {ANALYSE} (it needs stored students: "
    "keep_student=all); for unequal widths there is cka"
)
NO_RUN = f"no run is done: type {RUN}"
FIGURES = (
    Entry(
        "similarity",
        "Cosine similarity of teacher and student layers, mean over dev rows and seeds",
        cosine,
        plots.heat("cosine", "cosine similarity", 1),
        POOLING,
        NO_COSINE,
    ),
    Entry(
        "similarity_pairs",
        "Cosine similarity of three pairs of layers (as RAIL-KD's Figure 2)",
        paper_pairs,
        plots.dots("cosine", lambda _: "cosine similarity", plots.pair_of_layers, 1),
        POOLING,
        NO_COSINE,
    ),
    Entry(
        "cka",
        "Linear CKA of teacher and student layers, mean over seeds",
        cka,
        plots.heat("cka", "linear CKA", 1),
        POOLING,
        f"no run is analysed: type {ANALYSE} (it needs stored students: keep_student=all)",
    ),
    Entry(
        "distance",
        "Distance of student layers to their teacher layers, vectors of length 1 (as ALP-KD)",
        distance,
        plots.dots("distance", lambda _: "Euclidean distance", plots.pair_of_layers, 1),
        POOLING,
        NO_COSINE,
    ),
    Entry(
        "attention",
        "Attention of student layers to teacher layers, mean over training rows and seeds "
        "(as RAIL-KD's Figure 3)",
        attention,
        plots.heat("weight", "attention weight", None),
        TASK,
        f"no run of a method that attends to layers is analysed: type {RUN} and {ANALYSE}",
    ),
    Entry(
        "pca",
        "Intermediate layers on their first two principal components, one seed per method",
        pca,
        plots.pca,
        POOLING,
        f"no run is analysed: type {ANALYSE} (it needs stored students: keep_student=all)",
    ),
    Entry(
        "time",
        "Score against training time, mean over seeds",
        time,
        plots.points(
            "seconds",
            "score std",
            lambda t: t["task"].str.partition("#")[0],
            lambda t: ("seconds of training steps", _metric("dev ")(t)),
            (1, 100),
        ),
        SECTION,
        NO_RUN,
    ),
    Entry(
        "ood",
        "In domain against out of domain, mean over seeds",
        ood,
        plots.points(
            "score_dev std_dev",
            "score_ood std_ood",
            lambda t: t["task"].str.partition("#")[0] + ", " + t["split"].str.removeprefix("ood/"),
            lambda t: (
                _metric("dev ", "metric_dev")(t),
                _metric("out of domain ", "metric_ood")(t),
            ),
            (100, 100),
        ),
        SECTION,
        f"no done run was scored out of domain: type {RUN} (demo_sentiment has such text)",
    ),
    Entry(
        "seeds",
        "Scores of all seeds and their means",
        seeds,
        plots.dots("value", _metric(""), plots.task_and_split, 100),
        SECTION,
        NO_RUN,
    ),
    Entry(
        "curves",
        "Training curves, mean over seeds and their range",
        curves,
        plots.curves,
        TASK,
        NO_RUN,
    ),
    Entry(
        "layers",
        "Teacher layers that were drawn per epoch; the number is the student layer they teach",
        layers,
        plots.layers,
        TASK,
        f"no done run drew layers: type {run_line(['method=rail_l'])}",
    ),
)


def subtitles(records: Records) -> dict[str, str]:
    """Return for each section its pair, its settings, and whether its runs are limited."""
    settings = {r.place["section"]: cells.setting(r.config) for r in records}
    texts = {}
    for section, setting in settings.items():
        pair = _pair(setting)
        same_pair = [other for other in settings.values() if _pair(other) == pair]
        apart = cells.difference(setting, same_pair)
        limits = ", ".join(f"{k}={setting[k]}" for k in cells.LIMITS if setting[k] is not None)
        words = [f"{pair[0]} to {pair[1]}", f"{setting['epochs']} epochs"]
        words += [f"LIMITED RUNS ({limits}), not for comparing"] if limits else []
        words += [f"apart from others of this pair: {apart}"] if apart else []
        texts[section] = "; ".join(words)
    return texts


def _pair(setting: dict[str, Any]) -> tuple[str, str]:
    return setting["teacher"]["name"], setting["student"]["name"]


def parts(table: pd.DataFrame, apart: Sequence[str]) -> Iterator[tuple[list[str], pd.DataFrame]]:
    """Yield what belongs into one figure, with the words that its file's name needs.

    Only what differs is named: the pair, the section where a pair has several, the task, its data
    where a task has several; the pooling always.
    """
    pair = table["teacher"] + "-" + table["student"]
    task, _, data = (table["task"].str.partition("#")[i] for i in range(3))
    words: dict[str, pd.Series] = {"pair": pair, "section": table["section"]}
    several = {
        "pair": pair.nunique() > 1,
        "section": table["section"].groupby(pair).nunique().max() > 1,
    }
    if "task" in apart:
        words["task"], words["data"] = task, data
        several["task"] = task.nunique() > 1
        several["data"] = data.groupby(task).nunique().max() > 1
    if "pooling" in apart:
        words["pooling"] = table["pooling"]
        several["pooling"] = True
    for key, part in table.groupby(list(words.values()), sort=True):
        named = [str(word) for name, word in zip(words, key, strict=True) if several[name]]
        yield named, part.reset_index(drop=True)


def title(entry: Entry, part: pd.DataFrame, subtitle: str) -> str:
    """Return the heading of a figure: what it shows, and of which runs."""
    first = part.iloc[0]
    words = [subtitle]
    if "task" in entry.apart:
        words.insert(0, first["task"].partition("#")[0])
    if "pooling" in entry.apart:
        words.append(IN_WORDS.get(first["pooling"], first["pooling"]))
    return f"{entry.title}\n{'; '.join(words)}"
