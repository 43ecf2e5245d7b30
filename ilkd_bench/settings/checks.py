"""What the values of settings may be: types of fields that say what is allowed."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, Any

from pydantic import AfterValidator, PlainValidator, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from ilkd_bench.plumbing.command import home
from ilkd_bench.settings import groups
from ilkd_bench.types import BadInput

PRECISIONS = ("auto", "32-true", "16-mixed", "bf16-mixed")

LONGEST_NAME = 100
"""Bytes of a name: two of them are the name of a folder."""

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


def at_most(most: int) -> AfterValidator:
    """Return the check of an upper bound on a whole number, if it is one."""

    def check(value: int | None) -> int | None:
        if value is not None and value > most:
            raise PydanticCustomError(
                "allowed", "allowed is {what}", {"what": f"a whole number of at most {most}"}
            )
        return value

    return AfterValidator(check)


def whole(least: int, *, none: bool = False) -> PlainValidator:
    """Return the check of a whole number."""
    return allowed(
        lambda v: (none and v is None) or (is_number(v) and isinstance(v, int) and v >= least),
        f"a whole number of at least {least}" + (", or null" if none else ""),
    )


def one_of(*words: str) -> PlainValidator:
    """Return the check of a word."""
    return allowed(lambda v: isinstance(v, str) and v in words, f"one of {', '.join(words)}")


MANY = 2**31 - 1
"""More rows, epochs or tokens than any computer sees, and a number that every library takes."""

Seed = Annotated[int, whole(0), at_most(2**32 - 1)]
Number = Annotated[int, whole(0), at_most(MANY)]
Count = Annotated[int, whole(1), at_most(MANY)]
AutoOrCount = Annotated[
    int | str,
    allowed(
        lambda v: v == "auto" or (_is_whole(v) and 1 <= v <= MANY),
        "auto, or a whole number from 1",
    ),
]
Limit = Annotated[int | None, whole(1, none=True), at_most(MANY)]
Length = Annotated[int, whole(4), at_most(MANY)]
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


def place(what: str, *, none: bool) -> Any:
    """Return the type of a text that names a folder; `~` is the home folder."""
    kind = f"a folder{what}" + (", or null" if none else "")

    def check(value: Any) -> Any:
        if none and value is None:
            return None
        if isinstance(value, int | float) and not isinstance(value, bool):
            kind_of = f"{kind}; a name that reads as a number is typed in quotes"
            raise PydanticCustomError("allowed", "allowed is {what}", {"what": kind_of})
        if not isinstance(value, str) or not value.strip() or "\0" in value:
            raise PydanticCustomError("allowed", "allowed is {what}", {"what": kind})
        return home(value)

    return PlainValidator(check)


Folder = Annotated[str, place("", none=False)]
FolderOrNone = Annotated[str | None, place("", none=True)]
Model = Annotated[str, place(" or a hub id", none=False)]
Checkpoint = Annotated[str | None, place(" or a hub id", none=True)]
Text = Annotated[str, allowed(lambda v: isinstance(v, str) and v != "", "a word")]
TextOrNone = Annotated[
    str | None, allowed(lambda v: v is None or isinstance(v, str), "a word, or null")
]
ListOrText = Annotated[  # what a text may be, `Task` says
    Any, allowed(lambda v: v is None or isinstance(v, list | str), "a list, or null")
]
LabelMap = Annotated[  # whether the labels are there, `Task` says
    dict[Any, Any] | None,
    allowed(lambda v: v is None or isinstance(v, dict), "LABEL: LABEL of the set, ..., or null"),
]
Size = Annotated[
    float | None,
    allowed(lambda v: v is None or (is_number(v) and v > 0), "a number above 0, or null"),
]


def _are_layers(value: Any) -> bool:
    return isinstance(value, list) and all(_is_whole(n) and n >= 1 for n in value) and value != []


def _is_whole(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


Layers = Annotated[
    list[int] | None,
    allowed(
        lambda v: v is None or _are_layers(v),
        "a list of layers counted from 1, as in [1,3], or null",
    ),
]
Name = Annotated[
    str,
    allowed(
        lambda v: (
            isinstance(v, str)
            and groups.NAME.fullmatch(v) is not None
            and len(v.encode()) <= LONGEST_NAME
        ),
        f"a word of letters, digits and . _ + -, up to {LONGEST_NAME} of them",
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


def some_weight(weights: dict[str, float]) -> dict[str, float]:
    """Require that something is learned."""
    if not any(weights.values()):
        what = "a number above 0 for at least one term, as nothing is learned otherwise"
        raise PydanticCustomError("allowed", "allowed is {what}", {"what": what})
    return weights


ARGUMENTS: dict[str, TypeAdapter[Any]] = {
    "path": TypeAdapter(Model),
    "like": TypeAdapter(FolderOrNone),
    "revision": TypeAdapter(TextOrNone),
    "keep_layers": TypeAdapter(Layers),
}
"""Arguments of what constructs our models that mean the same in all of them."""


def shown(value: Any) -> str:
    """Return a value as it is typed."""
    return "null" if value is None else str(value)


def finite(settings: Any, *path: str) -> None:
    """Require that all numbers are finite, down to the last list.

    Raises:
        BadInput: one is not.
    """
    if isinstance(settings, float) and not math.isfinite(settings):
        raise BadInput(f"{'.'.join(path)}={settings}: allowed are finite numbers")
    if isinstance(settings, dict):
        for key, value in settings.items():
            finite(value, *path, str(key))
    elif isinstance(settings, list):
        for value in settings:
            finite(value, *path)


def arguments(settings: Any) -> Any:
    """Check those of `ARGUMENTS` that the settings of one of our models have."""
    ours = isinstance(settings, dict) and str(settings.get("_target_")).startswith("ilkd_bench.")
    if not ours:
        return settings
    known = {}
    for key in ARGUMENTS.keys() & settings.keys():
        try:
            known[key] = ARGUMENTS[key].validate_python(settings[key])
        except ValidationError as error:
            first = error.errors()[0]
            told = {"key": key, "value": shown(settings[key]), "what": first["msg"]}
            raise PydanticCustomError("argument", "{key}={value}: {what}", told) from error
    return settings | known


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
    path = [*above, *(str(part) for part in first["loc"] if part != "[key]")]
    if path[0] == "logger":
        path = path[:1] + path[2:]  # pydantic says which of the loggers it is
    key = ".".join(path)
    if first["type"] == "missing":
        return BadInput(f"{key} is missing: the YAML of the group must have it")
    if first["type"] == "extra_forbidden":
        return BadInput(f"{key} is no setting, so it would have no effect")
    found = shown(first["input"])
    if first["type"] == "allowed":
        return BadInput(f"{key}={found}: {first['msg']}")
    if first["type"] == "argument":
        return BadInput(f"{key}.{first['msg']}")
    what = KINDS.get(first["type"], first["msg"][:1].lower() + first["msg"][1:])
    return BadInput(f"{key}={found}: allowed is {what}")
