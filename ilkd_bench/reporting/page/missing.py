"""What the scores lack: runs that are not done, and seeds that were not run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ilkd_bench.comparison.results import Findings
from ilkd_bench.plumbing.command import run_line
from ilkd_bench.records import listing
from ilkd_bench.records.listing import Run
from ilkd_bench.reporting.page.rows import task_names

ERROR_LINES = 30
"""Of a failed run's traceback, counted from its end."""


@dataclass(frozen=True)
class Gap:
    """A cell of the tables that lacks seeds which others of its section have."""

    pair: str
    task: str
    method: str
    seeds: tuple[int, ...]
    command: str | None
    reason: str


def unfinished(found: Findings) -> list[tuple[Run, str]]:
    """Return the failed, skipped, running and stopped runs, with the end of their traceback."""
    told = []
    for record in found.records:
        if record["status"] != "done":
            folder = Path(record["folder"])
            seen = listing.look(found.folder / folder)
            state = record["status"] if seen is None else seen.state
            run = listing.described(folder, record, state, when=None, reason=record.get("reason"))
            told.append((run, _traceback(found.folder / folder) if state == "failed" else ""))
    return told


def _traceback(folder: Path) -> str:
    try:
        lines = (folder / "error.txt").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:  # there is none: the process was killed
        return ""
    return "\n".join(lines[-ERROR_LINES:])


def missing(found: Findings, names: Mapping[str, str]) -> list[Gap]:
    """Return the cells that lack seeds which others of their section have."""
    made, tasks = [], task_names(found)
    ends: dict[tuple[str, str, str], str] = {}
    for record in found.records:
        if record["status"] != "done":
            place = record["place"]
            told = f"{record['status']}: {record.get('reason') or 'no reason given'}"
            ends.setdefault((place["section"], place["method"], place["task"]), told)
    lines = {record["id"]: record.get("argv") for record in found.records}
    for section, own in found.runs.groupby("section", sort=False):
        seeds = {int(seed) for seed in own["seed"]}
        cells = {key: cell for key, cell in own.groupby(["method", "task"])}
        for task in sorted(own["task"].unique()):
            for method in sorted(own["method"].unique()):
                cell = cells.get((method, task))
                there = set() if cell is None else {int(seed) for seed in cell["seed"]}
                lacking = tuple(sorted(seeds - there))
                line = None if cell is None else _filling(lines[cell["id"].iloc[0]], lacking)
                reason = ends.get((str(section), method, task), "")
                if lacking:
                    made.append(
                        Gap(names[str(section)], tasks[task], method, lacking, line, reason)
                    )
    return made


def _filling(words: Any, seeds: Iterable[int]) -> str | None:
    """Return the command of a run with other seeds."""
    if not isinstance(words, list):
        return None
    return run_line(["-m", *words], f"seed={','.join(map(str, seeds))}")
