"""What the scores lack: runs that are not done, and seeds that were not run."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from ilkd_bench.comparison.results import Results
from ilkd_bench.plumbing import own_files
from ilkd_bench.plumbing.command import run_line
from ilkd_bench.records import listing
from ilkd_bench.records.listing import Listed
from ilkd_bench.records.record import Done
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


def unfinished(results: Results) -> list[tuple[Listed, str]]:
    """Return the failed, skipped, running and stopped runs, with the end of their traceback."""
    runs = []
    for record in results.records:
        if not isinstance(record, Done):
            folder = Path(record.folder)
            run_now = listing.look(results.folder / folder)
            state = record.status if run_now is None else run_now.state
            run = listing.described(
                folder, record.content(), state, when=None, reason=record.reason
            )
            runs.append((run, _traceback(results.folder / folder) if state == "failed" else ""))
    return runs


def _traceback(folder: Path) -> str:
    try:
        lines = own_files.read_file(folder, "error.txt").decode("utf-8", "replace").splitlines()
    except OSError:  # there is none, since the process was killed; or it is no file
        return ""
    return "\n".join(lines[-ERROR_LINES:])


def missing(results: Results, names: Mapping[str, str]) -> list[Gap]:
    """Return the cells that lack seeds which others of their section have."""
    gaps, tasks = [], task_names(results)
    reasons: dict[tuple[str, str, str], str] = {}
    for record in results.records:
        if not isinstance(record, Done):
            place = record.place
            reason = f"{record.status}: {record.reason or 'no reason given'}"
            reasons.setdefault((place["section"], place["method"], place["task"]), reason)
    words = {record.id: record.words for record in results.records}
    for section, runs in results.runs.groupby("section", sort=False):
        seeds = {int(seed) for seed in runs["seed"]}
        cells = {key: cell for key, cell in runs.groupby(["method", "task"])}
        for task in sorted(runs["task"].unique()):
            for method in sorted(runs["method"].unique()):
                cell = cells.get((method, task))
                run_seeds = set() if cell is None else {int(seed) for seed in cell["seed"]}
                lacking = tuple(sorted(seeds - run_seeds))
                command = None if cell is None else _filling(words[cell["id"].iloc[0]], lacking)
                reason = reasons.get((str(section), method, task), "")
                if lacking:
                    gaps.append(
                        Gap(names[str(section)], tasks[task], method, lacking, command, reason)
                    )
    return gaps


def _filling(words: Sequence[str], seeds: Iterable[int]) -> str | None:
    """Return the command of a run with other seeds; None where its words are not known."""
    if not words:
        return None
    return run_line(["-m", *words], f"seed={','.join(map(str, seeds))}")
