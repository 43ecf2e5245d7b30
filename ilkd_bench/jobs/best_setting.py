"""`lr=best batch_size=best`: the setting that the records of earlier runs choose.

With it the grid needs one seed only: the other seeds run at the best dev setting of that one
(`protocol=select_then_repeat`). That is another protocol than the full grid over all seeds.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ilkd_bench.records.cells import cell
from ilkd_bench.records.folders import run_folder
from ilkd_bench.records.record import Done, read_record
from ilkd_bench.settings.run import Run
from ilkd_bench.types import BadInput

BEST = "best"
KEYS = ("lr", "batch_size")


def best(run: Run, keys: Sequence[str]) -> dict[str, Any]:
    """Return the values of some of `KEYS` with the highest mean dev score over seeds.

    Only settings with the most seeds take part, as in the tables; at equal scores the smaller
    learning rate wins, then the smaller batch size.

    Args:
        run: whose values are wanted; its own values of `keys` do not matter.

    Raises:
        BadInput: no run that could choose is done.
    """
    folder = run_folder(Path(run.results_dir), run.identity, "").parent
    scores: dict[tuple[float, int], list[float]] = defaultdict(list)
    fixed = {key: getattr(run, key) for key in KEYS if key not in keys}
    for path in sorted(folder.glob("*/record.json")):
        record = read_record(path.parent)
        if not isinstance(record, Done):
            continue
        config = record.config
        if alike(config, run.identity) and all(config[key] == fixed[key] for key in fixed):
            scores[config["lr"], config["batch_size"]].append(record.dev_score)
    if not scores:
        words = " ".join(f"{key}={BEST}" for key in keys)
        raise BadInput(
            f"{words}: no run of method={run.method.name} on task={run.task.name} with these "
            "settings is done, so none can be chosen. "
            "Run the grid with one seed first, e.g. -m lr=1e-5,2e-5 seed=0"
        )
    most = max(map(len, scores.values()))
    lr, batch_size = min(
        (setting for setting, values in scores.items() if len(values) == most),
        key=lambda setting: (-sum(scores[setting]) / most, *setting),
    )
    return {key: value for key, value in zip(KEYS, (lr, batch_size), strict=True) if key in keys}


def alike(config: dict[str, Any], identity: dict[str, Any]) -> bool:
    """Tell whether two runs share a cell, of any precision where one's is not known yet."""
    if identity["precision"] == "auto":
        config = config | {"precision": "auto"}
    return cell(config) == cell(identity)
