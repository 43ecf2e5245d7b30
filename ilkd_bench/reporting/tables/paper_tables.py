"""The papers' tables filled from the records; what is missing is a dash and a command."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pandas as pd

from ilkd_bench.comparison.results import Results, limits, protocol, rows_of
from ilkd_bench.plumbing.command import run_line
from ilkd_bench.records.cells import LIMITS, task_name
from ilkd_bench.records.record import Done
from ilkd_bench.reporting.tables import grid, overview
from ilkd_bench.reporting.tables.grid import DAGGER, Cell, Grid
from ilkd_bench.reporting.tables.papers import Column, Row, Table

SEEDS = 5
"""Of the papers' tables."""


def build(table: Table, results: Results) -> Grid:
    """Return a paper's table from the records.

    Limited runs are left out, unless the pair has no others. Where a pair was run in several
    settings, the section that fills most of the table is taken and the others are named.
    """
    students = dict.fromkeys(row.student or table.student for row in table.rows)
    summary = pd.concat([_section(table, results, student) for student in students])
    rows = {row.label: _row(table, row, summary, results) for row in table.rows}
    columns = [column.label for column in table.columns]
    if table.shows == "properties":
        columns = ["Mapping", "Limitation", "Cost"]
    else:
        rows = _as_compared(rows)
    columns += [name for name in (table.average, table.speed) if name is not None]
    return Grid(
        name=table.name,
        title=f"{table.paper}, {table.title}",
        caption=_caption(table, summary, results),
        corner="Method",
        columns=columns,
        rows=rows,
        notes=_notes(table, summary, results, rows),
    )


def _section(table: Table, results: Results, student: str) -> pd.DataFrame:
    """Return the summary of the setting that fills most of the table for one student."""
    candidates = _candidates(table, results, student)
    unlimited = candidates[~candidates["limited"]]
    candidates = candidates if unlimited.empty else unlimited
    if candidates.empty:
        return candidates
    sizes = candidates.groupby("section").agg(cells=("mean", "size"), runs=("n", "sum"))
    best = sizes.sort_values(["cells", "runs"], ascending=False, kind="stable").index[0]
    return candidates[candidates["section"] == best]


def _candidates(table: Table, results: Results, student: str) -> pd.DataFrame:
    """Return the rows of the summary that the table could show, of whatever settings."""
    summary = results.summary
    return summary[
        (summary["teacher"] == table.teacher)
        & (summary["student"] == student)
        & summary["main"]
        & summary["method"].isin([row.method for row in table.rows])
        & summary["task"].map(task_name).isin([column.task for column in table.columns])
    ]


def _row(table: Table, row: Row, summary: pd.DataFrame, results: Results) -> dict[str, Cell]:
    student = row.student or table.student
    of_row = summary[(summary["method"] == row.method) & (summary["student"] == student)]
    if table.shows == "properties":
        return _properties(row, of_row, results)
    cells: dict[str, Cell] = {}
    for column in table.columns:
        cell = _cell(column, of_row, results)
        if cell is not None:
            cells[column.label] = cell
    cells |= _average(table, cells)
    if table.shows == "deviations":
        cells = {
            label: Cell(text=f"{100 * cell.std:.1f} ({cell.n})", ids=cell.ids)
            for label, cell in cells.items()
            if cell.n > 1
        }
    if table.speed is not None and table.speed_of is not None:
        ratio = speed(results, row.method, table.speed_of, summary)
        cells |= {} if ratio is None else {table.speed: Cell(text=f"{ratio:.2f}x")}
    return cells


def _cell(column: Column, of_row: pd.DataFrame, results: Results) -> Cell | None:
    rows = rows_of(of_row, column.task, column.split).sort_values("n", kind="stable")
    return None if rows.empty else grid.cells(results, rows.tail(1))[0]


def _average(table: Table, cells: dict[str, Cell]) -> dict[str, Cell]:
    """Return the mean over the columns that it is of; a row with a hole has none."""
    labels = table.averaged or [column.label for column in table.columns]
    if table.average is None or not set(labels) <= set(cells):
        return {}
    mean = sum(cells[label].mean for label in labels) / len(labels)
    return {table.average: Cell(text=f"{100 * mean:.1f}")}


def _as_compared(rows: dict[str, dict[str, Cell]]) -> dict[str, dict[str, Cell]]:
    """Mark cells with fewer seeds than the most in the table."""
    most_seeds = max((cell.n for row in rows.values() for cell in row.values()), default=0)
    return {
        label: {
            name: cell if cell.text is not None else replace(cell, few=cell.n < most_seeds)
            for name, cell in row.items()
        }
        for label, row in rows.items()
    }


def _properties(row: Row, of_row: pd.DataFrame, results: Results) -> dict[str, Cell]:
    texts = dict(zip(("Mapping", "Limitation"), row.facts, strict=True))
    if len(of_row):
        cost = speed(results, "finetune", row.method, of_row)
        texts |= {} if cost is None else {"Cost": f"{cost:.2f}x"}
    return {column: Cell(text=text) for column, text in texts.items()}


def speed(results: Results, method: str, other: str, summary: pd.DataFrame) -> float | None:
    """Return how many times as fast as `other` a method trains, the mean over shared tasks.

    From the medians of `examples_per_second` over the runs of each (section, task); None where
    there is no task that both were run on.
    """
    sections = set(summary["section"])
    rows = [
        (r.place["task"], r.place["method"], r.examples_per_second)
        for r in results.records
        if isinstance(r, Done)
        and r.place["section"] in sections
        and isinstance(r.examples_per_second, int | float)
    ]
    frame = pd.DataFrame(rows, columns=["task", "method", "speed"])
    medians = frame.pivot_table(index="task", columns="method", values="speed", aggfunc="median")
    if method not in medians or other not in medians:
        return None
    ratios = (medians[method] / medians[other]).dropna()
    return float(ratios.mean()) if len(ratios) else None


def _caption(table: Table, summary: pd.DataFrame, results: Results) -> str:
    if summary.empty:
        return "No runs yet."
    scores = results.scores[
        results.scores["section"].isin(summary["section"])
        & results.scores["method"].isin(summary["method"])
        & results.scores["task"].isin(summary["task"])
    ]
    pair = f"{table.teacher} -> {', '.join(sorted(set(summary['student'])))}"
    what = {
        "scores": "Scores times 100, mean ± standard deviation (number of seeds)",
        "deviations": "Standard deviation over seeds (their number), scores times 100",
        "properties": "Properties of the methods",
    }[table.shows]
    metrics = ", ".join(
        f"{column.label} {metric}"
        for column in table.columns
        for metric in sorted(set(rows_of(summary, column.task, column.split)["metric"]))
    )
    sections = set(summary["section"])
    precisions = {r.config["precision"] for r in results.records if r.place["section"] in sections}
    caption = (
        f"{pair}. {what}; {metrics}. Protocol: {protocol(scores)}; "
        f"precision {', '.join(sorted(precisions))}."
    )
    return f"{caption} {overview.BOLD}" if table.shows == "scores" else caption


def _notes(
    table: Table, summary: pd.DataFrame, results: Results, rows: dict[str, dict[str, Cell]]
) -> list[str]:
    notes = [" ".join(table.note)] if table.note else []
    sections = set(summary["section"])
    configs = [r.config for r in results.records if r.place["section"] in sections]
    limited = {limits(config) for config in configs} - {""}
    if limited:
        notes.append(f"Limited runs ({'; '.join(sorted(limited))}): not the paper's experiment.")
    if set(_candidates(table, results, table.student)["section"]) - sections:
        notes.append("Runs of this pair with other settings are in overview.md.")
    if table.shows == "properties":
        return notes
    notes += _skipped(table, results)
    holes = {
        row.label: [c.label for c in table.columns if c.label not in rows[row.label]]
        for row in table.rows
    }
    few = [
        f"{label} on {name} ({cell.n})"
        for label, row in rows.items()
        for name, cell in row.items()
        if cell.few
    ]
    if few:
        notes.append(f"{DAGGER} fewer seeds than elsewhere: {', '.join(few)}.")
    missing = [f"{label} on {', '.join(names)}" for label, names in holes.items() if names]
    if missing:
        notes.append(f"Missing (n = 0): {'; '.join(missing)}.")
    if missing or few:
        notes.append(f"To fill it: {'; and: '.join(_commands(table, configs, rows))}")
    return notes


def _skipped(table: Table, results: Results) -> list[str]:
    """Return why cells cannot be filled for this pair."""
    methods = {row.method: row.label for row in table.rows}
    tasks = {column.task for column in table.columns}
    return sorted(
        {
            f"{methods[r.place['method']]} on {r.config['task']['name']} is not possible: "
            f"{r.reason}."
            for r in results.records
            if r.status == "skipped"
            and r.place["method"] in methods
            and r.task in tasks
            and r.teacher_name == table.teacher
        }
    )


def _commands(
    table: Table, configs: Sequence[dict[str, Any]], rows: dict[str, dict[str, Cell]]
) -> list[str]:
    """Return the lines that would fill what is missing, one for each change of a method's settings.

    Where there are runs, in their settings; runs that are done are skipped by the lines.
    """
    if table.sweep is not None and not configs:
        return [run_line([f"+sweeps={table.sweep}"])]
    most_seeds = max((cell.n for row in rows.values() for cell in row.values()), default=0)
    lacking: dict[str, list[tuple[Row, Column]]] = {}
    for row in table.rows:
        for column in table.columns:
            cell = rows[row.label].get(column.label)
            if cell is None or cell.n < most_seeds:
                changed = row.method.partition(" (")[2].removesuffix(")")
                lacking.setdefault(changed, []).append((row, column))
    kept = ("epochs", "max_length", "patience", "precision", *LIMITS)
    settings = [f"{k}={configs[0][k]}" for k in kept if configs and configs[0].get(k) is not None]
    if table.sweep is None:
        settings.insert(0, f"seed={','.join(map(str, range(most_seeds or SEEDS)))}")
    return [
        run_line([*_words(table, changed, pairs), *settings]) for changed, pairs in lacking.items()
    ]


def _words(table: Table, changed: str, pairs: Sequence[tuple[Row, Column]]) -> list[str]:
    """Return the words that choose some cells of a table."""
    students = dict.fromkeys(row.student or table.student for row, _ in pairs)
    methods = dict.fromkeys(row.method.partition(" (")[0] for row, _ in pairs)
    tasks = dict.fromkeys(column.task for _, column in pairs)
    if table.sweep is not None:
        words = [f"+sweeps={table.sweep}"]
    else:
        words = ["-m", f"teacher={table.teacher}"]
    if table.sweep is None or list(students) != [table.student]:
        words.append(f"student={','.join(students)}")
    words += [f"method={','.join(methods)}", f"task={','.join(tasks)}"]
    return words + [f"method.{word}" for word in re.split(r" (?=[\w.]+=)", changed) if word]
