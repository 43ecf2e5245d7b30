"""All results, section by section: whatever pairs, tasks and settings there are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from ilkd_bench.comparison import results, scores
from ilkd_bench.comparison.results import Findings
from ilkd_bench.records import cells
from ilkd_bench.records.cells import task_name
from ilkd_bench.reporting.tables import grid
from ilkd_bench.reporting.tables.grid import DAGGER, Cell, Grid
from ilkd_bench.settings import groups

BOLD = (
    "Bold: the best of a column and what is not distinguishable from it (paired t test over seeds "
    "and paired bootstrap over examples, both at 5 % after Holm's correction)."
)


def sections(found: Findings) -> list[tuple[str, str, list[Grid]]]:
    """Return heading, introduction and tables of every section."""
    parts = found.sections()
    shared = {key: cells.setting(part[0]["config"]) for key, part in parts.items()}
    return [
        (*_heading(shared[key], list(shared.values()), found, key), _grids(found, key, part))
        for key, part in parts.items()
    ]


def _heading(
    shared: dict[str, Any], others: Sequence[dict[str, Any]], found: Findings, key: str
) -> tuple[str, str]:
    limited = results.limits(shared)
    title = " -> ".join(_pair(shared)) + (" (limited)" if limited else "")
    apart = cells.difference(shared, [o for o in others if _pair(o) == _pair(shared)])
    told = [f"Limited runs ({limited}): for trying out, not for comparing."] if limited else []
    general = ", ".join(f"{k} {shared[k]}" for k in ("epochs", "max_length", "precision"))
    told.append(
        f"Settings: {general}{'; apart from others of this pair: ' + apart if apart else ''}."
    )
    own = found.scores[found.scores["section"] == key]
    told.append(
        "Scores times 100, mean ± standard deviation (number of seeds); "
        f"{results.protocol(own)}. {BOLD}"
    )
    return title, " ".join(told)


def _pair(shared: dict[str, Any]) -> tuple[str, str]:
    return shared["teacher"]["name"], shared["student"]["name"]


def _grids(found: Findings, key: str, records: Sequence[dict[str, Any]]) -> list[Grid]:
    own = found.summary[(found.summary["section"] == key) & found.summary["main"]]
    teacher = results.teacher_scores(records)
    parts = (
        ("Dev", own[own["split"] == "dev"]),
        ("Out of domain", own[own["split"].str.startswith("ood/")]),
        ("Other splits", own[~own["split"].str.startswith("ood/") & (own["split"] != "dev")]),
    )
    grids = [
        _matrix(found, title, part, teacher if title == "Dev" else {})
        for title, part in parts
        if not part.empty
    ]
    if not own.empty:
        grids += [_standings(found, key), _chosen(own)]
    return grids


def _matrix(found: Findings, title: str, part: pd.DataFrame, teacher: dict[str, float]) -> Grid:
    """Return methods x columns, with the teacher on top and the average at the right."""
    names = column_names(part)
    columns = list(dict.fromkeys(names))
    rows: dict[str, dict[str, Cell]] = {}
    if teacher:
        known = dict(zip(part["task"], names, strict=True))
        rows["teacher"] = {
            known[task]: Cell(mean=score) for task, score in teacher.items() if task in known
        }
    for name, row, cell in zip(names, scores.rows(part), grid.cells(found, part), strict=True):
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
        told = row.task if variants[plain] > 1 else plain
        if row.split.startswith("ood/"):
            told += f" -> {row.split.removeprefix('ood/')}"
        elif row.split != "dev":
            told += f" {row.split}"
        return f"{told} {row.metric}"

    return [name(row) for row in scores.rows(part)]


def _standings(found: Findings, key: str) -> Grid:
    own = found.standings[found.standings["section"] == key].sort_values(["rank", "method"])
    rows = {}
    for row in scores.rows(own):
        told = {"tasks": f"{row.tasks}"}
        if row.rank == row.rank:
            told["average rank"] = f"{row.rank:.2f}"
        if row.win == row.win:
            untested = f", {row.untested:.0f} untested" if row.untested else ""
            told["against vanilla"] = (
                f"{row.win:.0f} better, {row.tie:.0f} alike, {row.loss:.0f} worse{untested}"
            )
        rows[str(row.method)] = {name: Cell(text=text) for name, text in told.items()}
    return Grid("", "Standing on dev", "", "method", _used(rows), rows)


def _used(rows: dict[str, dict[str, Cell]]) -> list[str]:
    order = ["average rank", "tasks", "against vanilla"]
    return [column for column in order if any(column in row for row in rows.values())]


def _chosen(own: pd.DataFrame) -> Grid:
    dev = own[own["split"] == "dev"].drop_duplicates(["method", "task"])
    rows: dict[str, dict[str, Cell]] = {}
    names = column_names(dev)
    for name, row in zip(names, scores.rows(dev), strict=True):
        task = name.removesuffix(f" {row.metric}")
        rows.setdefault(str(row.method), {})[task] = Cell(
            text=f"lr {row.lr:g}, batch {row.batch_size}"
        )
    columns = list(dict.fromkeys(column for row in rows.values() for column in row))
    return Grid("", "Chosen settings", "", "method", columns, dict(sorted(rows.items())))


def notes(found: Findings) -> list[str]:
    """Return what is not in the tables: impossible, failed and unusable runs, each named."""
    told = [
        f"Not possible: {record['config']['method']['name']} on {record['config']['task']['name']}"
        f": {record.get('reason')}."
        for record in found.records
        if record["status"] == "skipped"
    ]
    told = sorted(set(told))
    unfinished = sorted(
        record["folder"] for record in found.records if record["status"] in ("failed", "running")
    )
    if unfinished:
        told.append(f"Not counted, failed or unfinished: {', '.join(unfinished)}.")
    strange = sorted(
        {
            record["config"]["method"]["name"]
            for record in found.records
            if not groups.defaults("method", record["config"]["method"]["name"])
        }
    )
    if strange:
        told.append(f"This version has no method named {', '.join(strange)}; its runs are shown.")
    return told + [f"{flaw}." for flaw in found.flaws]
