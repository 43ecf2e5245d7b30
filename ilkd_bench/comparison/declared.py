"""Read what the YAML files beside the published numbers declare; a mistake names its place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from functools import cache
from pathlib import Path
from types import UnionType
from typing import Any, Literal, get_args, get_origin, get_type_hints

import yaml

from ilkd_bench.types import BadInput

KINDS: dict[Any, tuple[Any, str]] = {
    str: (str, "text"),
    float: (int | float, "a number"),
    tuple: (list, "a list"),
    Sequence: (list, "a list"),
    Mapping: (dict, "a mapping"),
}
"""An annotation -> what YAML must have there, and its name in a message."""


class _Loader(getattr(yaml, "CSafeLoader", yaml.SafeLoader)):  # type: ignore[misc]
    """YAML's safe types, and no key twice."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        keys = set()
        for key, _ in node.value:
            if key.value in keys:
                problem = f"the key {key.value} is there twice"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
            keys.add(key.value)
        return super().construct_mapping(node, deep=deep)


def read(path: Path, kind: Any) -> Any:
    """Return what a YAML file declares, as `construct` makes it.

    Raises:
        BadInput: it is no YAML, or its content is not of that kind.
    """
    try:
        with path.open(encoding="utf-8") as file:
            content = yaml.load(file, _Loader)
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise BadInput(f"{path} cannot be read: {error}") from error
    return construct(kind, content, str(path))


def construct(kind: Any, value: Any, where: str) -> Any:
    """Return a value from YAML as an annotation says.

    Args:
        kind: a dataclass of these kinds, a list or mapping of one, text, a number, or a choice.
        where: file and entry, for the message.

    Raises:
        BadInput: it is of another kind, or a dataclass lacks a key or has one too many.
    """
    if is_dataclass(kind):
        return _construct_dataclass(kind, value, where)
    if isinstance(kind, UnionType):  # an option: text, or nothing
        return construct(get_args(kind)[0], value, where)
    if get_origin(kind) is Literal:
        if value not in get_args(kind):
            raise BadInput(f"{where} must be one of {', '.join(get_args(kind))}, not {value!r}")
        return value
    origin, parts = get_origin(kind) or kind, get_args(kind)
    if origin is Any:
        return value
    _check(origin, value, where)
    if origin is Mapping:
        for key in value:
            _check(str, key, f"{where}, the key {key}")
        return {key: construct(parts[1], part, f"{where}, {key}") for key, part in value.items()}
    if isinstance(value, list):
        names = [_name(part, number) for number, part in enumerate(value, start=1)]
        return tuple(
            construct(parts[0], part, f"{where}, {name}")
            for name, part in zip(names, value, strict=True)
        )
    return value


def _construct_dataclass(kind: Any, value: Any, where: str) -> Any:
    _check(Mapping, value, where)
    hints, needed = _keys(kind)
    unknown = [str(key) for key in value if key not in hints]
    if unknown:
        raise BadInput(f"{where}: unknown {', '.join(unknown)}; allowed are {', '.join(hints)}")
    missing = [key for key in needed if key not in value]
    if missing:
        raise BadInput(f"{where}: {', '.join(missing)} must be there")
    return kind(
        **{name: construct(hints[name], part, f"{where}, {name}") for name, part in value.items()}
    )


@cache
def _keys(kind: Any) -> tuple[dict[str, Any], list[str]]:
    """Return the annotation of each field of a dataclass, and the fields that must be there."""
    needed = [field.name for field in fields(kind) if field.default is MISSING]
    return get_type_hints(kind), needed


def _check(kind: Any, value: Any, where: str) -> None:
    types, words = KINDS[kind]
    if not isinstance(value, types) or isinstance(value, bool):
        raise BadInput(f"{where} must be {words}, not {value!r}")


def _name(value: Any, number: int) -> str:
    """Return what a message calls an entry of a list: its name, or its number."""
    entry = value if isinstance(value, dict) else {}
    return str(entry.get("name") or entry.get("label") or entry.get("text") or number)
