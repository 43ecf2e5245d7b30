"""What of a record anybody may see."""

from __future__ import annotations

import re
from pathlib import PurePosixPath, PureWindowsPath
from typing import Any

from ilkd_bench.plumbing.command import typable
from ilkd_bench.settings.run import SCIENCE

PUBLIC = (
    "schema id status limited config scores monitor best_epoch teacher data parameters seconds"
    " examples_per_second device precision versions git"
).split()
"""Keys of a record that anybody may see."""


def public(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record without what belongs to this machine: paths, and settings that have some."""
    facts = {key: _hidden(record[key]) for key in PUBLIC if key in record}
    if record.get("argv") is None:
        return facts
    words = [word for word in typable(map(str, record["argv"])) if _is_science(word)]
    return facts | {"argv": [word for word in words if not is_path(word.partition("=")[2])]}


def _is_science(word: str) -> bool:
    return re.split(r"[.=]", word.lstrip("+~"))[0] in SCIENCE


def _hidden(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _hidden(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_hidden(item) for item in value]
    return "(a path)" if isinstance(value, str) and is_path(value) else value


def is_path(text: str) -> bool:
    """Tell whether a text is the path of a file or folder; a hub id is none."""
    plain = text.strip("'\"")
    return (
        plain.startswith(("~", "./", "../", "file:"))
        or PurePosixPath(plain).is_absolute()
        or PureWindowsPath(plain).is_absolute()
        or plain.partition("@")[0].count("/") > 1
    )
