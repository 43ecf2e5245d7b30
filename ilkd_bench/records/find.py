"""A run by its folder, its id, or the beginning of its id."""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from ilkd_bench.plumbing.command import line
from ilkd_bench.records.folders import Damaged, examine, run_folders
from ilkd_bench.types import BadInput

CANDIDATES = 10
"""Runs that a message about an ambiguous id names."""


def find(typed: str, results_dir: Path, folders: Iterable[Path] | None = None) -> Path:
    """Return the folder of a run.

    Args:
        typed: its folder, its id, or the beginning of its id.
        folders: of the runs among which to look; None: all below `results_dir`.

    Raises:
        BadInput: there is no such run, or more than one.
    """
    if os.path.lexists(Path(typed) / "record.json"):
        return Path(typed)
    known = list(run_folders(results_dir) if folders is None else folders)
    fitting = [f for f in known if f.name.partition("-")[2].startswith(typed)] if typed else []
    if typed and not fitting:  # a run of schema 1 that went on has a later id than its folder
        fitting = [f for f in known if _id(f).startswith(typed)]
    if not fitting:
        raise BadInput(
            f"no run in {results_dir / 'runs'} has an id that begins with {typed!r}, and it is no "
            f"folder of a run; {line('runs', '--results-dir', results_dir)} lists them"
        )
    if len(fitting) > 1:
        names = [str(folder) for folder in fitting[:CANDIDATES]]
        names += [f"{len(fitting) - CANDIDATES} more"] if len(fitting) > CANDIDATES else []
        raise BadInput(f"{typed!r} begins {len(fitting)} ids: {', '.join(names)}. Type more of it")
    return fitting[0]


def _id(folder: Path) -> str:
    try:
        return str(examine(folder).get("id"))
    except (Damaged, FileNotFoundError):
        return ""
