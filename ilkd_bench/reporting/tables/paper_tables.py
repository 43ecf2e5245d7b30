"""The papers' tables filled from the records; what is missing is a dash and a command."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import pandas as pd

from ilkd_bench.comparison import results
from ilkd_bench.comparison.results import Findings
from ilkd_bench.plumbing.command import run_line
from ilkd_bench.records.cells import LIMITS, task_name
from ilkd_bench.reporting.tables import grid, overview
from ilkd_bench.reporting.tables.grid import DAGGER, Cell, Grid
from ilkd_bench.reporting.tables.papers import Column, Row, Table

SEEDS = 5
"""Of the papers' tables."""


def build(table: Table, found: Findings) -> Grid:
    """Return a paper's table from the records.

    Limited runs are left out, unless the pair has no others. Where a pair was run in several
    settings, the section that fills most of the table is taken and the others are named.
    """
    students = dict.fromkeys(row.student or table.student for row in table.rows)
    own = pd.concat([_section(table, found, student) for student in students])
    rows = {row.label: _row(table, row, own, found) for row in table.rows}
    columns = [column.label for column in table.columns]
    if table.shows == "properties":
        columns = ["Mapping", "Limitation", "Cost"]
    else:
        rows = _as_compared(rows)
    columns += [name for name in (table.average, table.speed) if name is not None]
    return Grid(
        name=table.name,
        title=f"{table.paper}, {table.title}",
        caption=_caption(table, own, found),
        corner="Method",
        columns=columns,
        rows=rows,
        notes=_notes(table, own, found, rows),
    )


def _section(table: Table, found: Findings, student: str) -> pd.DataFrame:
    """Return the summary of the setting that fills most of the table for one student."""
    wanted = _wanted(table, found, student)
    whole = wanted[~wanted["limited"]]
    candidates = wanted if whole.empty else whole
    if candidates.empty:
        return candidates
    sizes = candidates.groupby("section").agg(cells=("mean", "size"), runs=("n", "sum"))
    best = sizes.sort_values(["cells", "runs"], ascending=False, kind="stable").index[0]
    return candidates[candidates["section"] == best]


def _wanted(table: Table, found: Findings, student: str) -> pd.DataFrame:
    """Return the rows of the summary that the table could show, of whatever settings."""
    summary = found.summary
    return summary[
        (summary["teacher"] == table.teacher)
        & (summary["student"] == student)
        & summary["main"]
        & summary["method"].isin([row.method for row in table.rows])
        & summary["task"].map(task_name).isin([column.task for column in table.columns])
    ]


def _row(table: Table, row: Row, own: pd.DataFrame, found: Findings) -> dict[str, Cell]:
    mine = own[(own["method"] == row.method) & (own["student"] == (row.student or table.student))]
    cells: dict[str, Cell] = {}
    for column in table.columns:
        cell = _cell(column, mine, found)
        if cell is not None:
            cells[column.label] = cell
    if table.shows == "properties":
        return _properties(row, mine, found)
    cells |= _average(table, cells)
    if table.shows == "deviations":
        cells = {
            label: Cell(text=f"{100 * cell.std:.1f} ({cell.n})", ids=cell.ids)
            for label, cell in cells.items()
            if cell.n > 1
        }
    if table.speed is not None and table.speed_of is not None:
        times = speed(found, row.method, table.speed_of, own)
        cells |= {} if times is None else {table.speed: Cell(text=f"{times:.2f}x")}
    return cells


def _cell(column: Column, mine: pd.DataFrame, found: Findings) -> Cell | None:
    rows = results.rows_of(mine, column.task, column.split).sort_values("n", kind="stable")
    return None if rows.empty else grid.cells(found, rows.tail(1))[0]


def _average(table: Table, cells: dict[str, Cell]) -> dict[str, Cell]:
    """Return the mean over the columns that it is of; a row with a hole has none."""
    of = table.averaged or [column.label for column in table.columns]
    if table.average is None or not set(of) <= set(cells):
        return {}
    mean = sum(cells[label].mean for label in of) / len(of)
    return {table.average: Cell(text=f"{100 * mean:.1f}")}


def _as_compared(rows: dict[str, dict[str, Cell]]) -> dict[str, dict[str, Cell]]:
    """Mark cells with fewer seeds than the most in the table."""
    most = max((cell.n for row in rows.values() for cell in row.values()), default=0)
    return {
        label: {
            name: cell if cell.text is not None else _marked(cell, most)
            for name, cell in row.items()
        }
        for label, row in rows.items()
    }


def _marked(cell: Cell, most: int) -> Cell:
    return Cell(cell.mean, cell.std, cell.n, cell.best, cell.n < most, cell.ids)


def _properties(row: Row, mine: pd.DataFrame, found: Findings) -> dict[str, Cell]:
    told = dict(zip(("Mapping", "Limitation"), row.facts, strict=True))
    if len(mine):
        cost = speed(found, "finetune", row.method, mine)
        told |= {} if cost is None else {"Cost": f"{cost:.2f}x"}
    return {name: Cell(text=text) for name, text in told.items()}


def speed(found: Findings, method: str, other: str, own: pd.DataFrame) -> float | None:
    """Return how many times as fast as `other` a method trains, the mean over shared tasks.

    From the medians of `examples_per_second` over the runs of each (section, task); None where
    there is no task that both were run on.
    """
    sections = set(own["section"])
    rows = [
        (r["place"]["task"], r["place"]["method"], r["examples_per_second"])
        for r in found.records
        if r["status"] == "done"
        and r["place"]["section"] in sections
        and isinstance(r.get("examples_per_second"), int | float)
    ]
    frame = pd.DataFrame(rows, columns=["task", "method", "speed"])
    medians = frame.pivot_table(index="task", columns="method", values="speed", aggfunc="median")
    if method not in medians or other not in medians:
        return None
    ratios = (medians[method] / medians[other]).dropna()
    return float(ratios.mean()) if len(ratios) else None


def _caption(table: Table, own: pd.DataFrame, found: Findings) -> str:
    if own.empty:
        return "No runs yet."
    frame = found.scores[
        found.scores["section"].isin(own["section"])
        & found.scores["method"].isin(own["method"])
        & found.scores["task"].isin(own["task"])
    ]
    pair = f"{table.teacher} -> {', '.join(sorted(set(own['student'])))}"
    what = {
        "scores": "Scores times 100, mean ± standard deviation (number of seeds)",
        "deviations": "Standard deviation over seeds (their number), scores times 100",
        "properties": "Properties of the methods",
    }[table.shows]
    metrics = ", ".join(
        f"{column.label} {metric}"
        for column in table.columns
        for metric in sorted(set(results.rows_of(own, column.task, column.split)["metric"]))
    )
    told = f"{pair}. {what}; {metrics}. Protocol: {results.protocol(frame)}."
    return f"{told} {overview.BOLD}" if table.shows == "scores" else told


def _notes(
    table: Table, own: pd.DataFrame, found: Findings, rows: dict[str, dict[str, Cell]]
) -> list[str]:
    told = [table.note] if table.note else []
    configs = [r["config"] for r in found.records if r["place"]["section"] in set(own["section"])]
    limited = {results.limits(config) for config in configs} - {""}
    if limited:
        told.append(f"Limited runs ({'; '.join(sorted(limited))}): not the paper's experiment.")
    if set(_wanted(table, found, table.student)["section"]) - set(own["section"]):
        told.append("Runs of this pair with other settings are in overview.md.")
    if table.shows == "properties":
        return told
    told += _skipped(table, found)
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
        told.append(f"{DAGGER} fewer seeds than elsewhere: {', '.join(few)}.")
    missing = [f"{label} on {', '.join(names)}" for label, names in holes.items() if names]
    if missing:
        told.append(f"Missing (n = 0): {'; '.join(missing)}.")
    if missing or few:
        told.append(f"To fill it: {'; and: '.join(_commands(table, configs, rows))}")
    return told


def _skipped(table: Table, found: Findings) -> list[str]:
    """Return why cells cannot be filled for this pair."""
    methods = {row.method: row.label for row in table.rows}
    tasks = {column.task for column in table.columns}
    return sorted(
        {
            f"{methods[r['place']['method']]} on {r['config']['task']['name']} is not possible: "
            f"{r.get('reason')}."
            for r in found.records
            if r["status"] == "skipped"
            and r["place"]["method"] in methods
            and r["config"]["task"]["name"] in tasks
            and r["config"]["teacher"]["name"] == table.teacher
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
    most = max((cell.n for row in rows.values() for cell in row.values()), default=0)
    lacking: dict[str, list[tuple[Row, Column]]] = {}
    for row in table.rows:
        for column in table.columns:
            cell = rows[row.label].get(column.label)
            if cell is None or cell.n < most:
                changed = row.method.partition(" (")[2].removesuffix(")")
                lacking.setdefault(changed, []).append((row, column))
    shown = ("epochs", "max_length", "patience", *LIMITS)
    given = [f"{k}={configs[0][k]}" for k in shown if configs and configs[0].get(k) is not None]
    if table.sweep is None:
        given.insert(0, f"seed={','.join(map(str, range(most or SEEDS)))}")
    return [
        run_line([*_words(table, changed, pairs), *given]) for changed, pairs in lacking.items()
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
