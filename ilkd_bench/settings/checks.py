"""What the values of settings may be: types of fields that say what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import PlainValidator, ValidationError
from pydantic_core import PydanticCustomError

from ilkd_bench.settings import groups
from ilkd_bench.types import BadInput

PRECISIONS = ("auto", "32-true", "16-mixed", "bf16-mixed")

RULES = ("best", "all", "none")
"""`best`: of each cell of the table, over seeds, learning rates and batch sizes."""


def allowed(test: Callable[[Any], bool], description: str) -> PlainValidator:
    """Return what makes a type of those values that pass a test; they are taken as they are."""

    def check(value: Any) -> Any:
        if not test(value):
            raise PydanticCustomError("allowed", "allowed is {what}", {"what": description})
        return value

    return PlainValidator(check)


def is_number(value: Any) -> bool:
    """Tell whether a value is a finite number, and no truth value."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and (isinstance(value, int) or math.isfinite(value)) and abs(value) < 1e300


def whole(least: int, *, none: bool = False) -> PlainValidator:
    """Return the check of a whole number."""
    return allowed(
        lambda v: (none and v is None) or (is_number(v) and isinstance(v, int) and v >= least),
        f"a whole number of at least {least}" + (", or null" if none else ""),
    )


def one_of(*words: str) -> PlainValidator:
    """Return the check of a word."""
    return allowed(lambda v: isinstance(v, str) and v in words, f"one of {', '.join(words)}")


Seed = Annotated[int, whole(0)]
Count = Annotated[int, whole(1)]
Limit = Annotated[int | None, whole(1, none=True)]
Length = Annotated[int, whole(4)]
Positive = Annotated[float, allowed(lambda v: is_number(v) and v > 0, "a number above 0")]
FromZero = Annotated[float, allowed(lambda v: is_number(v) and v >= 0, "a number from 0")]
Ratio = Annotated[
    float, allowed(lambda v: is_number(v) and 0 <= v < 1, "a number from 0 to below 1")
]
Clip = Annotated[
    float | None,
    allowed(lambda v: v is None or (is_number(v) and v > 0), "a number above 0, or null for none"),
]
Flag = Annotated[bool, allowed(lambda v: isinstance(v, bool), "true or false")]
Folder = Annotated[str, allowed(lambda v: isinstance(v, str) and v != "", "a folder")]
FolderOrNone = Annotated[
    str | None,
    allowed(lambda v: v is None or (isinstance(v, str) and v != ""), "a folder, or null"),
]
Checkpoint = Annotated[
    str | None,
    allowed(
        lambda v: v is None or (isinstance(v, str) and v != ""), "a folder or a hub id, or null"
    ),
]
Text = Annotated[str, allowed(lambda v: isinstance(v, str) and v != "", "a word")]
TextOrNone = Annotated[
    str | None, allowed(lambda v: v is None or isinstance(v, str), "a word, or null")
]
ListOrText = Annotated[  # what a text may be, `Task` says
    Any, allowed(lambda v: v is None or isinstance(v, list | str), "a list, or null")
]
Size = Annotated[
    float | None,
    allowed(lambda v: v is None or (is_number(v) and v > 0), "a number above 0, or null"),
]
Layers = Annotated[
    list[int] | None,
    allowed(
        lambda v: v is None or (isinstance(v, list) and all(isinstance(n, int) for n in v)),
        "a list of layers counted from 1, or null",
    ),
]
Name = Annotated[
    str,
    allowed(
        lambda v: isinstance(v, str) and groups.NAME.fullmatch(v) is not None,
        "a word of letters, digits and . _ + -",  # it becomes a folder's
    ),
]
Target = Annotated[
    str,
    allowed(
        lambda v: isinstance(v, str) and v in groups.targets(),
        "what a YAML in conf/, or of plugins, has as _target_",
    ),
]
Precision = Annotated[str, one_of(*PRECISIONS)]
KeepStudent = Annotated[str, one_of(*RULES)]


KINDS = {
    "string_type": "a word",
    "list_type": "a list",
    "dict_type": "a group of settings",
    "model_type": "a group of settings",
    "model_attributes_type": "a group of settings",
    "union_tag_invalid": "one of the groups in conf/logger",
}
"""What is allowed where pydantic says it in its own words, by the kind of its error."""


def refusal(error: ValidationError, *above: str) -> BadInput:
    """Return what is wrong with a setting: its key, what was found, what is allowed.

    Args:
        above: keys of the groups that the settings are in.
    """
    first = error.errors()[0]
    path = [*above, *(str(part) for part in first["loc"])]
    if path[0] == "logger":
        path = path[:1] + path[2:]  # pydantic says which of the loggers it is
    key = ".".join(path)
    if first["type"] == "missing":
        return BadInput(f"{key} is missing: the YAML of the group must have it")
    if first["type"] == "extra_forbidden":
        return BadInput(f"{key} is no setting, so it would have no effect")
    if first["type"] == "allowed":
        return BadInput(f"{key}={first['input']}: {first['msg']}")
    what = KINDS.get(first["type"], first["msg"][:1].lower() + first["msg"][1:])
    return BadInput(f"{key}={first['input']}: allowed is {what}")
