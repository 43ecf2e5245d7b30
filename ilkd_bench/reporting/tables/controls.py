"""The table of methods beside their controls."""

from __future__ import annotations

from collections.abc import Mapping

from ilkd_bench.comparison import statistics
from ilkd_bench.comparison.contrasts import WORDS, contrasts, controls, points, sentences
from ilkd_bench.comparison.results import Results
from ilkd_bench.reporting.tables.grid import Cell, Grid

TITLE = "Does the choice of layers matter?"


def layer_choice(results: Results) -> Grid:
    """Return every method that has controls beside them, for every pair and setting there is."""
    rows: dict[str, Mapping[str, Cell]] = {}
    notes = []
    by_method = controls()
    for section, records in results.sections().items():
        config = records[0].config
        runs = results.runs[(results.runs["section"] == section) & results.runs["main"]]
        pair = f"{config['teacher']['name']} -> {config['student']['name']}"
        limited = ", limited" if runs["limited"].any() else ""
        where = f"{pair}{limited}, {section}"
        for method, by_kind in by_method.items():
            differences = contrasts(runs, method, by_kind)
            if all(contrast.kind == "term" for contrast in differences):
                continue  # no control was run, only vanilla KD
            notes.append(f"{where}: {sentences(differences)}")
            for contrast in differences:
                texts = {
                    "beside": WORDS[contrast.kind],
                    "difference": _interval(contrast.test),
                    "tasks": str(contrast.tasks),
                    "seeds": str(contrast.test.n),
                    "verdict": contrast.verdict,
                }
                label = f"{method} minus {contrast.control} ({where})"
                rows[label] = {column: Cell(text=text) for column, text in texts.items()}
    caption = (
        "Dev scores times 100, the mean over the tasks that both were run on; the 95 % interval of "
        "the paired t test over seeds; verdicts after Holm's correction over a method's controls."
        if rows
        else "No method was run beside a control of it (+sweeps=controls)."
    )
    columns = ["beside", "difference", "tasks", "seeds", "verdict"]
    return Grid("layer_choice", TITLE, caption, "comparison", columns, rows, notes=notes)


def _interval(test: statistics.Comparison) -> str:
    if test.low != test.low:
        return points(test.difference)
    return f"{points(test.difference)} [{points(test.low)}, {points(test.high)}]"
