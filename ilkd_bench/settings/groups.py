"""The groups of `conf/` on the disk, ours and those of plugins, read without composing them."""

from __future__ import annotations

import os
import pkgutil
import re
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from ilkd_bench.types import BadInput

PACKAGE = Path(__file__).resolve().parent.parent
ROOT = PACKAGE if (PACKAGE / "conf").is_dir() else PACKAGE.parent
"""Where conf/ and sweeps/ lie: beside the package in a checkout, inside it when installed."""

CHOICES = frozenset(path.name for path in (ROOT / "conf").iterdir() if path.is_dir())
"""The groups of which a run has one choice each."""
NAME = re.compile(r"\w[\w.+-]*")
"""What a task, teacher, student or method is called: it becomes the name of files and folders."""

YAML: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

PLUGINS = "ILKD_BENCH_PLUGINS"
"""The environment variable that names the folder of plugins in use (`settings.plugins`)."""


def student_settings(name: str) -> dict[str, Any]:
    """Return the settings of a student's YAML.

    Raises:
        BadInput: there is none of this name.
    """
    known = names("student")
    if name not in known:
        raise BadInput(f"no student is called {name}: allowed are {', '.join(known)}")
    return defaults("student", name)


def defaults(group: str, name: str) -> dict[str, Any]:
    """Return the settings of a YAML in conf/; empty if there is none (any more).

    Args:
        name: of the YAML; it may come from anybody's record.
    """
    if NAME.fullmatch(name) is None:
        return {}
    return _defaults(group, name, os.environ.get(PLUGINS))


@cache
def _defaults(group: str, name: str, plugins: str | None) -> dict[str, Any]:
    for folder in folders(plugins):
        path = folder / group / f"{name}.yaml"
        if os.path.isfile(path):  # false also where the name is too long for one
            settings: Any = OmegaConf.load(path)
            bases = [base for base in settings.pop("defaults", ()) if isinstance(base, str)]
            above = [_defaults(group, base, plugins) for base in bases if base != "_self_"]
            whole: Any = OmegaConf.to_container(OmegaConf.merge(*above, settings))
            return whole
    return {}


def names(group: str) -> list[str]:
    """Return what a group offers."""
    where = [folder / group for folder in folders(os.environ.get(PLUGINS))]
    return sorted({path.stem for folder in where for path in folder.glob("*.yaml")})


def stands_alone(group: str, name: str) -> bool:
    """Tell whether a YAML says what is below its own group only, whatever else is chosen."""
    return _stands_alone(group, name, os.environ.get(PLUGINS))


@cache
def _stands_alone(group: str, name: str, plugins: str | None) -> bool:
    paths = [folder / group / f"{name}.yaml" for folder in folders(plugins)]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        return False
    text = path.read_text(encoding="utf-8")
    settings: Any = OmegaConf.to_container(OmegaConf.create(text), resolve=False)
    bases = [base for base in settings.get("defaults", ()) if base != "_self_"]
    plain = all(isinstance(base, str) and re.fullmatch(r"\w+(@[\w.]+)?", base) for base in bases)
    return (
        plain
        and re.search(r"^#\s*@package", text, re.MULTILINE) is None
        and all(_stands_alone(group, base.partition("@")[0], plugins) for base in bases)
    )


def folders(plugins: str | None) -> list[Path]:
    """Return where groups lie: conf/ of the package, then that of a folder of plugins.

    Raises:
        BadInput: the plugins have none.
    """
    if not plugins:
        return [ROOT / "conf"]
    conf = Path(plugins) / "conf"
    if not conf.is_dir():
        raise BadInput(
            f"plugins={plugins}: there is no folder {conf}; it holds method/NAME.yaml, "
            "task/NAME.yaml and the like (docs/extending.md)"
        )
    return [ROOT / "conf", conf]


CONSTRUCTED = ("teacher", "student", "method")
"""Groups whose YAMLs name by `_target_` what is constructed."""


def targets() -> frozenset[str]:
    """Return all that `_target_` may name: what a YAML of conf/, or of the plugins in use, does.

    A record, a file beside it, or a word that was typed adds nothing to them.
    """
    return _targets(os.environ.get(PLUGINS))


@cache
def _targets(plugins: str | None) -> frozenset[str]:
    files = [path for f in folders(plugins) for g in CONSTRUCTED for path in (f / g).glob("*.yaml")]
    loaded = [yaml.load(path.read_text(encoding="utf-8"), YAML) for path in files]
    return frozenset(str(part["_target_"]) for part in loaded if "_target_" in part)


def resolve(target: str) -> Any:
    """Return what a `_target_` names.

    Raises:
        BadInput: no YAML names it, or it cannot be imported, for whatever reason.
    """
    if target not in targets():
        raise BadInput(
            f"_target_={target}: no YAML in conf/ names it, nor one of the plugins in use"
        )
    try:
        return pkgutil.resolve_name(target)
    except Exception as error:
        why = f"{type(error).__name__}: {error}"
        raise BadInput(f"_target_={target} cannot be imported: {why}") from error
