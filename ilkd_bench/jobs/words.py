"""The words of a command line of `run`, looked at before Hydra composes them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from ilkd_bench.plumbing.command import home, nearest, run_line, setting
from ilkd_bench.plumbing.text import word as quoted
from ilkd_bench.settings import groups, plugins
from ilkd_bench.settings.run import FOLDERS, PLUMBING, SCIENCE
from ilkd_bench.types import BadInput

if TYPE_CHECKING:
    from hydra.core.override_parser.types import Override

INSTEAD = {
    "config_name": "settings are those of conf/config.yaml; type key=value, or +sweeps=NAME",
    "config_path": "settings of your own lie in a folder that plugins=DIR names",
    "config_dir": "settings of your own lie in a folder that plugins=DIR names",
    "experimental_rerun": f"{run_line(())} takes the words that `runs --command ID` prints",
    "run": "leave it out; without -m there is one run",
}
"""Hydra's flags that have no place here, and what to type."""

ABOUT = ("help", "hydra_help", "cfg", "info", "shell_completion")
"""Hydra's flags that ask for information."""

ALONE = ("multirun", "cfg", "info")
"""Hydra's flags of which a command has one at most."""

LAUNCHERS = "hydra/launcher"


def flags(args: Any) -> None:
    """Refuse flags that Hydra knows and that would have no effect.

    Args:
        args: what Hydra's parser made of the command line.

    Raises:
        BadInput: there is one.
    """
    for name, instead in INSTEAD.items():
        if getattr(args, name):
            raise BadInput(f"--{name.replace('_', '-')} has no effect here: {instead}")
    asked = [name for name in ALONE if getattr(args, name)]
    if len(asked) > 1:
        raise BadInput(f"{' and '.join(f'--{name}' for name in asked)}: give one of them")
    for name in ("package", "resolve"):
        if getattr(args, name) and not args.cfg:
            raise BadInput(f"--{name} goes with --cfg job, which shows the settings of a run")


def at_home(words: Sequence[str]) -> list[str]:
    """Return words in which `~` at the beginning of a folder is the home folder.

    A shell leaves it alone after `key=`, and Hydra cannot read it.

    Raises:
        BadInput: there is no such user.
    """
    result = []
    for word in words:
        key, equals, value = word.partition("=")
        if equals and key in FOLDERS and re.match(r"~|[^'\"\[{(]*,~", value):
            value = ",".join(setting(home(part)) for part in value.split(","))
        result.append(f"{key}{equals}{value}")
    return result


def unreadable(word: str, why: str) -> BadInput:
    """Return what is wrong with a word that Hydra's grammar does not know."""
    key, equals, value = word.partition("=")
    if not equals:
        return BadInput(f"{word!r} is no setting: type key=value, e.g. {word.strip() or 'seed'}=1")
    if re.fullmatch(r"[+~]*[\w.]+([/@][\w.]+)*", key) is None:
        return BadInput(f"{word!r}: {key!r} is no key; type key=value, without blanks around the =")
    _, evaluated, reason = why.partition("while evaluating ")
    hint = f" ({reason})" if evaluated else ""
    if not evaluated and set(value) & set("[]{}"):
        hint = " (a list is [1,2], a group of settings {a: 1, b: 2})"
    text = quoted(f"{key}={setting(value, always=True)}")
    return BadInput(f"{word}: the value cannot be read{hint}. As a text it is typed {text}")


def as_one_folder(override: Override) -> str:
    """Return how a folder with a comma in its name is typed; empty for a key of another kind."""
    key, _, value = line(override).partition("=")
    if key not in FOLDERS:
        return ""
    return f". A folder of this name is typed {quoted(f'{key}={setting(value, always=True)}')}"


def check(overrides: Sequence[Override], launchers: Callable[[], Sequence[str]]) -> None:
    """Refuse unknown keys and choices, keys typed twice, and sweeps without a value.

    Args:
        launchers: the names that `hydra/launcher=` may have.

    Raises:
        BadInput: there is one; the message names the nearest that is allowed.
    """
    for override in overrides:
        _check_key(override)
        _check_values(override, launchers)
    first: dict[str, Override] = {}
    for override in overrides:
        key = override.key_or_group
        other = first.setdefault(key, override)
        if other is not override:
            several = "" if key == "sweeps" else f"; several values are typed -m {key}=A,B"
            raise BadInput(
                f"{key} is given twice, {line(other)} and {line(override)}: leave one out{several}"
            )
        if key.startswith("hydra.launcher.") and LAUNCHERS not in map(_key, overrides):
            raise BadInput(f"{line(override)} has no effect without hydra/launcher=NAME")


def _key(override: Override) -> str:
    return override.key_or_group


def line(override: Override) -> str:
    """Return a word as it was typed."""
    return override.input_line or ""


def values(override: Override) -> list[Any]:
    """Return the values of a word, one or several."""
    if override.is_discrete_sweep():
        return list(override.sweep_string_iterator())
    return [override.value()]


def is_choice(override: Override) -> bool:
    """Tell whether a word chooses one of a group."""
    return override.key_or_group in groups.CHOICES


def is_hydra(override: Override) -> bool:
    """Tell whether a word is about how Hydra carries runs out."""
    return re.match(r"hydra\b", override.key_or_group) is not None


def _changes(override: Override) -> bool:
    """Tell `key=value` from `+key=value`, `++key=value`, `~key` and `key@package=value`."""
    added = override.is_add() or override.is_force_add() or override.is_delete()
    return not added and override.package is None


def _check_key(override: Override) -> None:
    key = override.key_or_group
    if is_hydra(override):
        if "_target_" in line(override):  # it would construct something in place of Hydra's parts
            raise BadInput(
                f"{line(override)}: Hydra's parts are chosen by name, as in hydra/launcher=joblib"
            )
        if key != LAUNCHERS and not key.startswith("hydra.launcher."):
            raise BadInput(
                f"{line(override)}: of Hydra's own settings there are hydra/launcher=NAME and "
                "hydra.launcher.KEY=VALUE (docs/scaling.md); where files go, results_dir=DIR and "
                "cache_dir=DIR say"
            )
        return
    if key == "sweeps":
        if not override.is_add():
            raise BadInput(f"{line(override)}: a preset is typed +sweeps=NAME")
        return
    if not _changes(override):
        raise BadInput(
            f"{line(override)}: settings are neither added nor removed; type {key}=VALUE"
        )
    group, _, rest = key.partition(".")
    if rest == "name" and str(override.value()) in groups.names(group):
        raise BadInput(f"{line(override)} is another choice: type {group}={override.value()}")
    keys = sorted(SCIENCE | PLUMBING)
    if group not in keys:
        raise BadInput(f"{key or line(override)} is no setting: {nearest(group, keys)}")


def _check_values(override: Override, launchers: Callable[[], Sequence[str]]) -> None:
    key, typed = override.key_or_group, line(override)
    if override.is_sweep_override() and not override.is_discrete_sweep():
        raise BadInput(f"{typed}: there is no end of values in it; give them, as in {key}=1,2,3")
    found = values(override)
    options: Sequence[str] = ()
    if key == "sweeps":
        options = presets()
    elif key == LAUNCHERS:
        options = launchers()
    elif is_choice(override):
        options = groups.names(key)
    if not found:
        hint = f": allowed are {', '.join(options)}" if options else f"; type {key}=VALUE"
        raise BadInput(f"{typed} gives no value at all{hint}")
    if options and override.is_sweep_override() and not is_choice(override):
        raise BadInput(f"{typed}: allowed is one for all runs of a command")
    for value in found if options else ():
        if str(value) not in options:
            raise BadInput(f"{key}={value} is unknown: {nearest(str(value), options)}")
    if override.is_sweep_override() and key.partition(".")[0] in PLUMBING - {"data_dir"}:
        raise BadInput(
            f"{typed}: it makes no other run, so allowed is one value for all of them"
            f"{as_one_folder(override)}"
        )


def presets() -> list[str]:
    """Return what `+sweeps=` may name."""
    roots = [folder for folder in (groups.ROOT, plugins.in_use()) if folder is not None]
    return sorted({path.stem for root in roots for path in (root / "sweeps").glob("*.yaml")})
