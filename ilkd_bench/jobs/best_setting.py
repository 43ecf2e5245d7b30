"""`lr=best batch_size=best`: the setting that the records of earlier runs choose.

With it the grid needs one seed only: the other seeds run at the best dev setting of that one
(`protocol=select_then_repeat`). That is another protocol than the full grid over all seeds.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ilkd_bench.records.cells import cell
from ilkd_bench.records.folders import run_folder
from ilkd_bench.records.read import load_some
from ilkd_bench.records.record import Done
from ilkd_bench.settings.run import Run
from ilkd_bench.types import BadInput

log = logging.getLogger("ilkd_bench")

BEST = "best"
KEYS = ("lr", "batch_size")


class Records:
    """The runs that are done, each read once."""

    def __init__(self) -> None:
        self._of: dict[Path, dict[str, list[Done]]] = {}

    def best(self, run: Run, keys: Sequence[str]) -> dict[str, Any]:
        """Return the values of some of `KEYS` that the tables would choose (`scores.chosen`).

        Args:
            run: whose values are wanted; its own values of `keys` do not matter.

        Raises:
            BadInput: no run that could choose is done.
        """
        fixed = {key: getattr(run, key) for key in KEYS if key not in keys}
        candidates = [
            record
            for record in self._alike(run)
            if all(record.config[key] == value for key, value in fixed.items())
        ]
        if not candidates:
            words = " ".join(f"{key}={BEST}" for key in keys)
            raise BadInput(
                f"{words}: no run of method={run.method.name} on task={run.task.name} with these "
                "settings is done, so none can be chosen. "
                "Run the grid with one seed first, e.g. -m lr=1e-5,2e-5 seed=0"
            )
        from ilkd_bench.comparison import scores  # only here: it imports pandas, which takes long

        one_cell = scores.frame(candidates).assign(**dict.fromkeys(scores.CELL, ""))
        setting = scores.chosen(one_cell).iloc[0]
        chosen = {"lr": float(setting["lr"]), "batch_size": int(setting["batch_size"])}
        return {key: chosen[key] for key in keys}

    def _alike(self, run: Run) -> list[Done]:
        """Return the runs that share a cell with a run."""
        folder = run_folder(Path(run.results_dir), run.identity, "").parent
        if folder not in self._of:
            stored = load_some([path.parent for path in folder.glob("*/record.json")], folder)
            for flaw in stored.flaws:
                log.warning("%s", flaw)
            self._of[folder] = {}
            for record in (r for r in stored.records if isinstance(r, Done)):
                unsettled = record.config | {"precision": "auto"}  # as a run's may still be
                for its_cell in {cell(record.config), cell(unsettled)}:
                    self._of[folder].setdefault(its_cell, []).append(record)
        return self._of[folder].get(cell(run.identity), [])
