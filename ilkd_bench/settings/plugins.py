"""Methods, tasks, teachers and students of one's own: a folder outside the package.

    DIR/conf/method/NAME.yaml   also task/, teacher/, student/: as in conf/ of the package
    DIR/NAME.py                 what `_target_: NAME.Class` in the YAML names
    DIR/sweeps/NAME.yaml        a preset for +sweeps=NAME

`plugins=DIR` on a command line or the environment variable `ILKD_BENCH_PLUGINS` names it. The
variable tells all parts of this process, and every process that it starts.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ilkd_bench.plumbing.command import home
from ilkd_bench.settings import groups
from ilkd_bench.types import BadInput

GROUPS = ("method", "student", "task", "teacher")
"""What plugins may add to."""


def use(folder: str | None) -> None:
    """Have this process find what a folder of plugins offers; None: no plugins.

    Raises:
        BadInput: the folder is not as it should be; the message says where.
    """
    wanted = None if folder is None else str(Path(home(folder)).absolute())
    before = os.environ.get(groups.PLUGINS)
    if before and before != wanted and before in sys.path:
        _forget(Path(before))
    if wanted is None:
        os.environ.pop(groups.PLUGINS, None)
        return
    known = wanted in sys.path
    if not known:
        sys.path.append(wanted)  # the last: what is installed keeps its names
    importlib.invalidate_caches()
    try:
        _check(Path(wanted))
    except BadInput:
        if not known:
            sys.path.remove(wanted)
        raise
    os.environ[groups.PLUGINS] = wanted


def in_use() -> Path | None:
    """Return the folder of plugins that this process uses."""
    folder = os.environ.get(groups.PLUGINS)
    return Path(folder) if folder else None


def of_plugins(target: str) -> bool:
    """Tell whether a `_target_` lies in the plugins that this process uses."""
    folder = in_use()
    return folder is not None and _lies_in(folder, target.partition(".")[0])


def _forget(folder: Path) -> None:
    """Forget what was imported from a folder: another one may have modules of the same names."""
    sys.path.remove(str(folder))
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        if file is not None and Path(file).is_relative_to(folder):
            del sys.modules[name]


def _lies_in(folder: Path, module: str) -> bool:
    return (folder / f"{module}.py").is_file() or (folder / module).is_dir()


def _check(folder: Path) -> None:
    for path in _files(folder):
        group, name = path.parent.name, path.stem
        if (groups.ROOT / "conf" / group / path.name).is_file():
            raise BadInput(
                f"{path}: there is a built-in {group} named {name}. Give this one another name, "
                "in the file's name and in the file"
            )
        try:
            settings = OmegaConf.load(path)
        except (YAMLError, OmegaConfBaseException, UnicodeDecodeError, OSError) as error:
            raise BadInput(f"{path} cannot be read: {error}") from error
        if not isinstance(settings, DictConfig) or settings.get("name") != name:
            raise BadInput(f"{path} must say name: {name}, as the file is called")
        if "_target_" in settings:
            _check_target(path, str(settings["_target_"]), folder)


def _files(folder: Path) -> Iterator[Path]:
    conf = groups.folders(str(folder))[-1]
    for group in sorted(path for path in conf.iterdir() if path.is_dir()):
        if group.name not in GROUPS:
            raise BadInput(f"{group}: plugins have no such group. Allowed are {', '.join(GROUPS)}")
        yield from sorted(group.glob("*.yaml"))


def _check_target(path: Path, target: str, folder: Path) -> None:
    module = target.partition(".")[0]
    spec = find_spec(module) if module.isidentifier() else None
    if spec is None:
        raise BadInput(f"{path}: _target_ is {target}, and there is no {module}.py in {folder}")
    places = [spec.origin or "", *(spec.submodule_search_locations or ())]
    if _lies_in(folder, module) and not any(Path(p).is_relative_to(folder) for p in places):
        raise BadInput(
            f"{folder / module}.py has the name of an installed module ({spec.origin}), which "
            "would be imported in its place. Give it another name"
        )
