"""Where a run belongs in the tables: section, row and column."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ilkd_bench.plumbing import files
from ilkd_bench.settings.groups import defaults

SWEPT = ("seed", "lr", "batch_size")
"""What a cell of a table averages over or selects."""

LIMITS = ("limit_train", "limit_eval")


def cell(science: dict[str, Any]) -> str:
    """Return what the runs of one cell of the table have in common."""
    return files.digest({key: value for key, value in science.items() if key not in SWEPT})


def flat(settings: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested settings as one level of dotted keys; lists become text."""
    result: dict[str, Any] = {}
    for key, value in settings.items():
        if isinstance(value, dict):
            result |= flat(value, f"{prefix}{key}.")
        else:
            result[prefix + key] = str(value) if isinstance(value, list) else value
    return result


def difference(settings: dict[str, Any], others: Iterable[dict[str, Any]]) -> str:
    """Return the settings that are not the same in all of `others`, as `key=value` words."""
    flat_settings, flat_others = flat(settings), [flat(other) for other in others]
    absent = object()
    keys = [
        key
        for key, value in flat_settings.items()
        if any(other.get(key, absent) != value for other in flat_others)
    ]
    return " ".join(f"{key}={flat_settings[key]}" for key in sorted(keys))


def setting(config: dict[str, Any]) -> dict[str, Any]:
    """Return what all runs of one section share: all but task, method, and what is swept.

    A given teacher is a checkpoint of its own for every task, and belongs to the task here; what
    assistants are made of belongs to the method.
    """
    elsewhere = ("method", "assistants", "task", "data", *SWEPT)
    shared = {k: v for k, v in config.items() if k not in elsewhere}
    return shared | {"teacher": {k: v for k, v in config["teacher"].items() if k != "checkpoint"}}


def place(config: dict[str, Any]) -> dict[str, str]:
    """Return the section, row and column of a run: runs with other settings never share a cell."""
    method, task = config["method"], config["task"]
    known = defaults("method", method["name"])
    changed = difference({k: v for k, v in method.items() if k != "name"}, [known])
    checkpoint = config["teacher"].get("checkpoint")
    if checkpoint is not None and "assistants" in config:  # else the recipe is the section's
        usual = defaults("teacher", config["teacher"]["name"]).get("recipe", {})
        recipe = difference({"recipe": config["assistants"]["recipe"]}, [{"recipe": usual}])
        changed = f"{changed} {recipe}".strip()
    seen = [task, config["data"], *([] if checkpoint is None else [checkpoint])]
    return {
        "section": files.digest(setting(config))[:8],
        "method": f"{method['name']} ({changed})" if changed else method["name"],
        "task": f"{task['name']}#{files.digest(seen)[:6]}",
    }


def task_name(task: str) -> str:
    """Return a column's task without the hash of its data."""
    return task.partition("#")[0]
