"""All results, section by section: whatever pairs, tasks and settings there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from ilkd_bench.comparison import scores
from ilkd_bench.comparison.results import Results, limits, protocol, teacher_scores
from ilkd_bench.records import cells
from ilkd_bench.records.cells import task_name
from ilkd_bench.records.record import Record
from ilkd_bench.reporting.tables import grid
from ilkd_bench.reporting.tables.grid import DAGGER, Cell, Grid
from ilkd_bench.settings import groups

BOLD = (
    "Bold: the best of a column and what is not distinguishable from it (paired t test over seeds "
    "and paired bootstrap over examples, both at 5 % after Holm's correction)."
)


def sections(results: Results) -> list[tuple[str, str, list[Grid]]]:
    """Return heading, introduction and tables of every section."""
    by_section = results.sections()
    settings = {key: cells.setting(records[0].config) for key, records in by_section.items()}
    return [
        (
            *_heading(settings[key], list(settings.values()), results, key),
            _grids(results, key, records),
        )
        for key, records in by_section.items()
    ]


def _heading(
    setting: dict[str, Any], others: Sequence[dict[str, Any]], results: Results, key: str
) -> tuple[str, str]:
    limited = limits(setting)
    title = " -> ".join(_pair(setting)) + (" (limited)" if limited else "")
    apart = cells.difference(setting, [o for o in others if _pair(o) == _pair(setting)])
    sentences = [f"Limited runs ({limited}): for trying out, not for comparing."] if limited else []
    general = ", ".join(f"{k} {setting[k]}" for k in ("epochs", "max_length", "precision"))
    sentences.append(
        f"Settings: {general}{'; apart from others of this pair: ' + apart if apart else ''}."
    )
    scores = results.scores[results.scores["section"] == key]
    sentences.append(
        f"Scores times 100, mean ± standard deviation (number of seeds); {protocol(scores)}. {BOLD}"
    )
    return title, " ".join(sentences)


def _pair(setting: dict[str, Any]) -> tuple[str, str]:
    return setting["teacher"]["name"], setting["student"]["name"]


def _grids(results: Results, key: str, records: Sequence[Record]) -> list[Grid]:
    summary = results.summary[(results.summary["section"] == key) & results.summary["main"]]
    teacher = teacher_scores(records)
    dev, ood = summary["split"] == "dev", summary["split"].str.startswith("ood/")
    parts = (
        ("Dev", summary[dev]),
        ("Out of domain", summary[ood]),
        ("Other splits", summary[~ood & ~dev]),
    )
    grids = [
        _matrix(results, title, part, teacher if title == "Dev" else {})
        for title, part in parts
        if not part.empty
    ]
    if not summary.empty:
        grids += [_standings(results, key), _chosen(summary)]
    return grids


def _matrix(results: Results, title: str, part: pd.DataFrame, teacher: dict[str, float]) -> Grid:
    """Return methods x columns, with the teacher on top and the average at the right."""
    names = column_names(part)
    columns = list(dict.fromkeys(names))
    rows: dict[str, dict[str, Cell]] = {}
    if teacher:
        column_of = dict(zip(part["task"], names, strict=True))
        rows["teacher"] = {
            column_of[task]: Cell(mean=score)
            for task, score in teacher.items()
            if task in column_of
        }
    for name, row, cell in zip(names, scores.rows(part), grid.cells(results, part), strict=True):
        rows.setdefault(str(row.method), {})[name] = cell
    ordered = {k: rows[k] for k in sorted(rows, key=lambda method: (method != "teacher", method))}
    if len(columns) > 1:
        ordered = {label: _with_average(row, columns) for label, row in ordered.items()}
        columns = [*columns, "average"]
    few = any(cell.few for row in ordered.values() for cell in row.values())
    notes = [f"{DAGGER} fewer seeds than the other cells."] if few else []
    return Grid("", title, "", "method", columns, ordered, notes)


def _with_average(row: dict[str, Cell], columns: Sequence[str]) -> dict[str, Cell]:
    """Add the mean over all columns; a row with a hole has none."""
    if set(row) != set(columns):
        return row
    mean = sum(row[column].mean for column in columns) / len(columns)
    return row | {"average": Cell(text=f"{100 * mean:.1f}")}


def column_names(part: pd.DataFrame) -> list[str]:
    """Name the columns: task, split unless it is dev, metric; the data's hash only if it tells."""
    short = part["task"].map(task_name)
    variants = part.groupby(short)["task"].nunique()

    def name(row: Any) -> str:
        plain = task_name(row.task)
        column = row.task if variants[plain] > 1 else plain
        if row.split.startswith("ood/"):
            column += f" -> {row.split.removeprefix('ood/')}"
        elif row.split != "dev":
            column += f" {row.split}"
        return f"{column} {row.metric}"

    return [name(row) for row in scores.rows(part)]


def _standings(results: Results, key: str) -> Grid:
    standings = results.standings[results.standings["section"] == key]
    rows = {}
    for row in scores.rows(standings.sort_values(["rank", "method"])):
        texts = {"tasks": f"{row.tasks}"}
        if row.rank == row.rank:
            texts["average rank"] = f"{row.rank:.2f}"
        if row.win == row.win:
            untested = f", {row.untested:.0f} untested" if row.untested else ""
            texts["against vanilla"] = (
                f"{row.win:.0f} better, {row.tie:.0f} alike, {row.loss:.0f} worse{untested}"
            )
        rows[str(row.method)] = {column: Cell(text=text) for column, text in texts.items()}
    return Grid("", "Standing on dev", "", "method", _used(rows), rows)


def _used(rows: dict[str, dict[str, Cell]]) -> list[str]:
    order = ["average rank", "tasks", "against vanilla"]
    return [column for column in order if any(column in row for row in rows.values())]


def _chosen(summary: pd.DataFrame) -> Grid:
    dev = summary[summary["split"] == "dev"].drop_duplicates(["method", "task"])
    rows: dict[str, dict[str, Cell]] = {}
    names = column_names(dev)
    for name, row in zip(names, scores.rows(dev), strict=True):
        task = name.removesuffix(f" {row.metric}")
        rows.setdefault(str(row.method), {})[task] = Cell(
            text=f"lr {row.lr:g}, batch {row.batch_size}"
        )
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    return Grid("", "Chosen settings", "", "method", columns, dict(sorted(rows.items())))


def notes(results: Results) -> list[str]:
    """Return what is not in the tables: impossible, failed and unusable runs, each named."""
    impossible = {
        f"Not possible: {record.config['method']['name']} on {record.config['task']['name']}"
        f": {record.reason}."
        for record in results.records
        if record.status == "skipped"
    }
    sentences = sorted(impossible)
    unfinished = sorted(
        record.folder for record in results.records if record.status in ("failed", "running")
    )
    if unfinished:
        sentences.append(f"Not counted, failed or unfinished: {', '.join(unfinished)}.")
    strange = sorted(
        {
            record.method
            for record in results.records
            if not groups.defaults("method", record.method)
        }
    )
    if strange:
        methods = ", ".join(strange)
        sentences.append(f"This version has no method named {methods}; its runs are shown.")
    return sentences + [f"{flaw}." for flaw in results.flaws]
