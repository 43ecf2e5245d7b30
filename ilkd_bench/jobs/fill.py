"""The settings of many runs: composed once per choice of a group, then filled with the rest.

Composing takes a tenth of a second and a check of all settings a millisecond, while the runs of a
sweep differ in a few values. So every distinct choice is composed once, every distinct value is
checked once, and a run is put together from them. What an interpolation (`${...}`) may look at
is left to Hydra and OmegaConf as a whole.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import ConfigKeyError, ConfigTypeError, OmegaConfBaseException

from ilkd_bench.data import tasks
from ilkd_bench.jobs.best_setting import BEST, KEYS
from ilkd_bench.jobs.words import is_choice, line, values
from ilkd_bench.plumbing.command import nearest
from ilkd_bench.settings import groups
from ilkd_bench.settings.run import DATA, PLUMBING, SCIENCE, Run
from ilkd_bench.types import BadInput

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

Lines = tuple[str, ...]


class Fill:
    """What the runs of one command line are made of.

    Args:
        overrides: of the command line; a run has one value of each.
        usual: the settings where nothing is chosen.
        compose: words that choose of groups -> the composed settings.
    """

    def __init__(
        self,
        overrides: Sequence[Override],
        usual: DictConfig,
        compose: Callable[[Lines], DictConfig],
    ) -> None:
        self._compose = compose
        self._composed: dict[Lines, DictConfig] = {(): usual}
        self._bases: dict[Lines, tuple[dict[str, Any], Run]] = {}
        self._values: dict[tuple[Lines, Lines], Any] = {}
        self._with_data: dict[tuple[Lines, Lines], Run] = {}
        self._bound = self._looked_at(overrides)

    def run(self, overrides: Sequence[Override]) -> Run:
        """Return the run of some words, checked, and with the fingerprints of its data.

        A learning rate or batch size that is yet to be chosen stays `best`.

        Raises:
            BadInput: a key or value is wrong, or there is no data for it.
        """
        bound: list[Override] = []
        of_top: dict[str, list[Override]] = {}
        for override in overrides:
            name = top(override)
            if name in self._bound:
                bound.append(override)
            else:
                of_top.setdefault(name, []).append(override)
        key = lines(bound)
        if key not in self._bases:
            self._bases[key] = self._base(bound)
        settings, base = self._bases[key]
        slow = lines([o for name in of_top if name in DATA for o in of_top[name]])
        values = {name: self._value(key, settings, words) for name, words in of_top.items()}
        if (key, slow) not in self._with_data:
            self._with_data[key, slow] = with_data(
                base.but(**{name: value for name, value in values.items() if name in DATA})
            )
        changes = {name: value for name, value in values.items() if name not in DATA}
        return self._with_data[key, slow].but(**changes)

    # ------------------------------------------------------------------ composed as a whole

    def _looked_at(self, overrides: Sequence[Override]) -> frozenset[str]:
        """Return the top-level keys that an interpolation looks at, or that have one."""
        choices = [(o.key_or_group, str(v)) for o in overrides if is_choice(o) for v in values(o)]
        if not all(groups.stands_alone(group, name) for group, name in choices):
            return SCIENCE | PLUMBING
        replaced = {o.key_or_group for o in overrides}
        contents: list[Any] = [OmegaConf.to_container(self._of(()), resolve=False)]
        contents += [{group: self._choice(group, name)} for group, name in choices]
        found = [
            (path, text)
            for content in contents
            for path, text in _leaves(content)
            if path not in replaced
        ]
        typed = zip(overrides, lines(overrides), strict=True)
        found += [(top(o), line.partition("=")[2]) for o, line in typed if "${" in line]
        if any(re.search(r"\$\{[^}]*\$\{", text) for _, text in found):
            return SCIENCE | PLUMBING  # it looks where another one says
        named = {word for _, text in found for word in re.findall(r"\w+", text)}
        looked_at = {top(o) for o in overrides if named & set(o.key_or_group.split("."))}
        return frozenset(looked_at | {path.partition(".")[0] for path, _ in found})

    def _base(self, bound: Sequence[Override]) -> tuple[dict[str, Any], Run]:
        """Compose and check what is bound; the rest is as it is by default."""
        config = self._of(lines([o for o in bound if is_choice(o)])).copy()
        for override in bound:
            if not is_choice(override):
                apply(config, override)
        settings = resolved(config)
        return settings, checked(settings)

    def _of(self, words: Lines) -> DictConfig:
        if words not in self._composed:
            self._composed[words] = self._compose(words)
        return self._composed[words]

    # ------------------------------------------------------------------------------ filled in

    def _choice(self, group: str, name: str) -> Any:
        return OmegaConf.to_container(self._of((f"{group}={name}",))[group], resolve=False)

    def _value(self, base: Lines, settings: dict[str, Any], words: Sequence[Override]) -> Any:
        """Return what some words make of one top-level key, checked."""
        key = base, lines(words)
        if key not in self._values:
            name = top(words[0])
            chosen = [self._choice(name, str(o.value())) for o in words if is_choice(o)]
            config = OmegaConf.create({name: chosen[-1] if chosen else settings[name]})
            OmegaConf.set_struct(config, True)
            for override in words:
                if not is_choice(override):
                    apply(config, override)
            self._values[key] = getattr(checked(settings | resolved(config)), name)
        return self._values[key]


def checked(settings: dict[str, Any]) -> Run:
    """Return the run of some settings, in which the values that are yet to be chosen stay `best`.

    Raises:
        BadInput: a value is not allowed.
    """
    undecided = [key for key in KEYS if settings[key] == BEST]
    return Run.of(settings | dict.fromkeys(undecided, 1)).but(**dict.fromkeys(undecided, BEST))


def with_data(run: Run) -> Run:
    """Return a run with the fingerprints of its rows and of what its groups are made of."""
    data_dir = None if run.data_dir is None else Path(run.data_dir)
    run = run.but(data=tasks.fingerprints(run.task, data_dir, run.cache, run.hash_of))
    _ = run.essence  # once for all runs that are made of it
    return run


# ------------------------------------------------------------------------------------ the words


def lines(overrides: Sequence[Override]) -> Lines:
    """Return words as they were typed."""
    return tuple(map(line, overrides))


def top(override: Override) -> str:
    """Return the top-level key that a word is about."""
    return override.key_or_group.partition(".")[0]


def _leaves(content: Any, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the interpolations of some settings with their dotted keys."""
    if isinstance(content, dict):
        for key, value in content.items():
            yield from _leaves(value, f"{path}.{key}" if path else str(key))
    elif isinstance(content, list):
        for value in content:
            yield from _leaves(value, path)
    elif isinstance(content, str) and "${" in content:
        yield path, content


def apply(config: DictConfig, override: Override) -> None:
    """Set a plain value as Hydra does: a dictionary is merged into the one that is there.

    Raises:
        BadInput: there is no such key, or the value is of another kind.
    """
    key = override.key_or_group
    *parents, last = key.split(".")
    node: Any = config
    for part in parents:
        if part not in node or not isinstance(node[part], DictConfig):
            raise _no_setting(config, key, part, node)
        node = node[part]
    if last not in node:
        raise _no_setting(config, key, last, node)
    try:
        OmegaConf.update(config, key, override.value(), merge=True)
    except ConfigKeyError as error:
        full_key = str(error.full_key)
        above, _, part = full_key.rpartition(".")
        raise _no_setting(config, full_key, part, OmegaConf.select(config, above)) from error
    except ConfigTypeError as error:
        raise BadInput(
            f"{lines([override])[0]}: allowed is a group of settings, as in {key}.NAME=VALUE"
        ) from error


def _no_setting(config: DictConfig, key: str, part: str, node: DictConfig) -> BadInput:
    top = key.partition(".")[0]
    group = config[top] if top != key else None
    whose = f" for {top}={group.name}" if isinstance(group, DictConfig) else ""
    offered = sorted(str(name) for name in node if name != "_target_")  # code is chosen in a YAML
    return BadInput(
        f"{key} is no setting{whose}, so it would have no effect: {nearest(part, offered)}"
    )


def resolved(config: DictConfig) -> dict[str, Any]:
    """Return settings with every interpolation in them resolved.

    Raises:
        BadInput: one of them leads nowhere.
    """
    try:
        settings: Any = OmegaConf.to_container(config, resolve=True)
    except OmegaConfBaseException as error:
        key, why = str(error.full_key), str(error.msg).strip().splitlines()[0]
        unresolved: Any = OmegaConf.to_container(config, resolve=False)
        for part in key.split("."):
            unresolved = unresolved.get(part) if isinstance(unresolved, dict) else None
        raise BadInput(f"{key}={unresolved} has no value: {why}") from error
    return dict(settings)
