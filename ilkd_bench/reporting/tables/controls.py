"""The table of methods beside their controls."""

from __future__ import annotations

from collections.abc import Mapping

from ilkd_bench.comparison import statistics
from ilkd_bench.comparison.contrasts import CONTROLS, WORDS, contrasts, points, told
from ilkd_bench.comparison.results import Findings
from ilkd_bench.reporting.tables.grid import Cell, Grid

TITLE = "Does the choice of layers matter?"


def layer_choice(found: Findings) -> Grid:
    """Return every method that has controls beside them, for every pair and setting there is."""
    rows: dict[str, Mapping[str, Cell]] = {}
    notes = []
    for section, records in found.sections().items():
        config = records[0]["config"]
        runs = found.runs[(found.runs["section"] == section) & found.runs["main"]]
        pair = f"{config['teacher']['name']} -> {config['student']['name']}"
        limited = ", limited" if runs["limited"].any() else ""
        for method in CONTROLS:
            made = contrasts(runs, method)
            if all(one.kind == "term" for one in made):
                continue  # no control was run, only vanilla KD
            where = f"{pair}{limited}, {section}"
            notes.append(f"{where}: {told(made)}")
            for one in made:
                cells = {
                    "beside": WORDS[one.kind],
                    "difference": _interval(one.found),
                    "tasks": str(one.tasks),
                    "seeds": str(one.found.n),
                    "verdict": one.verdict,
                }
                rows[f"{method} minus {one.control} ({where})"] = {
                    name: Cell(text=text) for name, text in cells.items()
                }
    caption = (
        "Dev scores times 100, the mean over the tasks that both were run on; the 95 % interval of "
        "the paired t test over seeds; verdicts after Holm's correction over a method's controls."
        if rows
        else "No method was run beside a control of it (+sweeps=controls)."
    )
    columns = ["beside", "difference", "tasks", "seeds", "verdict"]
    return Grid("layer_choice", TITLE, caption, "comparison", columns, rows, notes=notes)


def _interval(found: statistics.Comparison) -> str:
    if found.low != found.low:
        return points(found.difference)
    return f"{points(found.difference)} [{points(found.low)}, {points(found.high)}]"
