"""Where a run belongs in the tables: section, row and column."""

from __future__ import annotations

import json
import marshal
import os
import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Any

from ilkd_bench.plumbing import files
from ilkd_bench.settings.groups import PLUGINS, defaults

SWEPT = ("seed", "lr", "batch_size")
"""What a cell of a table averages over or selects."""

LIMITS = ("limit_train", "limit_eval")

PLAIN = re.compile(r"[A-Za-z_./+-][\w./+-]*")
"""Text that stands in a label as it is; it is taken for nothing else there."""


def cell(science: dict[str, Any]) -> str:
    """Return what the runs of one cell of the table have in common."""
    return _cell(_shared(science))


def _shared(science: dict[str, Any]) -> bytes:
    """Return the settings that the runs of a cell share, packed: thousands of runs share them."""
    return marshal.dumps({key: item for key, item in science.items() if key not in SWEPT}, 2)


@lru_cache(maxsize=4096)
def _cell(packed: bytes) -> str:
    return files.digest(marshal.loads(packed))


def flat(settings: dict[str, Any], prefix: str = "") -> dict[str, str]:
    """Return nested settings as one level of dotted keys; different values have different texts."""
    result: dict[str, str] = {}
    for key, value in settings.items():
        name = prefix + (key if PLAIN.fullmatch(key) and "." not in key else json.dumps(key))
        if isinstance(value, dict) and value:
            result |= flat(value, f"{name}.")
        else:
            result[name] = _text(value)
    return result


def _text(value: Any) -> str:
    if isinstance(value, str):
        plain = PLAIN.fullmatch(value) and value not in ("True", "False", "None")
        return value if plain else json.dumps(value, ensure_ascii=False)
    if isinstance(value, float) and value.is_integer():
        return str(int(value))  # as in the identity
    if isinstance(value, list):
        return f"[{', '.join(map(_text, value))}]"
    return str(value)


def difference(settings: dict[str, Any], others: Iterable[dict[str, Any]]) -> str:
    """Return the settings that are not the same in all of `others`, as `key=value` words.

    `no key` stands for what only the others have.
    """
    own, rest = flat(settings), [flat(other) for other in others]
    differing = [k for k, value in own.items() if any(o.get(k) != value for o in rest)]
    lacking = {key for other in rest for key in other} - own.keys()
    words = {key: f"{key}={own[key]}" for key in differing} | {k: f"no {k}" for k in lacking}
    return " ".join(words[key] for key in sorted(words))


def setting(config: dict[str, Any]) -> dict[str, Any]:
    """Return what all runs of one section share: all but task, method, and what is swept.

    A given teacher is a checkpoint of its own for every task, and belongs to the task here; what
    assistants are made of belongs to the method.
    """
    elsewhere = ("method", "assistants", "task", "data", *SWEPT)
    shared = {k: v for k, v in config.items() if k not in elsewhere}
    return shared | {"teacher": {k: v for k, v in config["teacher"].items() if k != "checkpoint"}}


def place(config: dict[str, Any]) -> dict[str, str]:
    """Return the section, row and column of a run.

    Settings of a method that its YAML has and the run lacks make a row of their own: nothing says
    that the run was made with the value that is usual now.
    """
    return _place(_shared(config), os.environ.get(PLUGINS))


@lru_cache(maxsize=4096)
def _place(packed: bytes, plugins: str | None) -> dict[str, str]:
    config = marshal.loads(packed)
    method, task = config["method"], config["task"]
    changed = difference(_options(method), [_options(defaults("method", method["name"]))])
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


def _options(method: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in method.items() if key not in ("name", "_target_")}


def task_name(task: str) -> str:
    """Return a column's task without the hash of its data."""
    return task.partition("#")[0]
