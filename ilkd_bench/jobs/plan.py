"""From a command line to the list of its runs, each checked before the first one starts."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra._internal.utils import get_args_parser
from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.core.plugins import Plugins
from hydra.errors import HydraException
from hydra.plugins.search_path_plugin import SearchPathPlugin
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from ilkd_bench.data import tasks
from ilkd_bench.jobs import best_setting
from ilkd_bench.jobs.job import Job
from ilkd_bench.plumbing.command import nearest, run_line
from ilkd_bench.plumbing.hardware import precision_used
from ilkd_bench.settings import plugins
from ilkd_bench.settings.groups import ROOT
from ilkd_bench.settings.run import PLUMBING, SCIENCE, Run, require_effect
from ilkd_bench.types import BadInput

OmegaConf.register_new_resolver("root", lambda: str(ROOT), replace=True)


class PluginFolder(SearchPathPlugin):
    """Where Hydra finds the YAMLs of plugins."""

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        folder = plugins.in_use()
        if folder is not None:
            search_path.append("plugins", f"file://{folder / 'conf'}")
            if (folder / "sweeps").is_dir():
                search_path.append("plugins", f"file://{folder}")


Plugins.instance().register(PluginFolder)


def job(
    config: dict[str, Any],
    typed: set[str] | None = None,
    words: Sequence[str] = (),
    *,
    here: bool = True,
) -> Job:
    """Check a resolved configuration and find its identity.

    Args:
        typed: dotted keys that the user set.
        words: the overrides that select this run.
        here: the run takes place on this machine, which says what `precision=auto` is.

    Raises:
        BadInput: a value is not allowed, or has no effect, or there is no data for it.
    """
    words = _with_plugins(config["plugins"], words)
    undecided = [key for key in best_setting.KEYS if config[key] == best_setting.BEST]
    run = Run.of(config | dict.fromkeys(undecided, 1))
    require_effect(run, typed or set())
    data_dir = None if run.data_dir is None else Path(run.data_dir)
    run = run.but(data=tasks.fingerprints(run.task, data_dir, run.cache))
    if here:
        run = run.but(precision=precision_used(run.precision, run.trainer.accelerator))
    if undecided:
        best = best_setting.best(run, undecided)
        run = run.but(**best)
        decided = {f"{key}={best_setting.BEST}": f"{key}={best[key]}" for key in undecided}
        words = [decided.get(word, word) for word in words]
    return Job(run, tuple(words))


def asks_for_information(argv: Sequence[str]) -> bool:
    """Tell whether the command line only asks Hydra something (help, version, configuration)."""
    args = get_args_parser().parse_args(argv)
    return bool(args.help or args.hydra_help or args.cfg or args.info or args.shell_completion)


def uses_other_launcher(argv: Sequence[str]) -> bool:
    """Tell whether another launcher than Hydra's default carries the runs out."""
    return any(w.startswith("hydra/launcher=") and w != "hydra/launcher=basic" for w in argv)


def repeats(argv: Sequence[str]) -> bool:
    """Tell whether more runs follow from what those of `plan` will have measured."""
    return any(word == "protocol=select_then_repeat" for word in argv)


def plan(argv: Sequence[str], *, repeat: bool = False) -> list[Job]:
    """Return the runs of a command line, each once, in its order.

    Configurations are composed once per choice of groups; plain values are then applied.

    Args:
        repeat: where the grid has one seed only (`protocol=select_then_repeat`), return the runs
            with the other seeds at the best setting of the first.

    Raises:
        BadInput: a key, choice or value is wrong, or several values are given without `-m`.
    """
    args = get_args_parser().parse_args(argv)
    use_plugins(argv)
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        try:
            return _plan(
                args.overrides,
                multirun=bool(args.multirun),
                repeat=repeat,
                here=not uses_other_launcher(argv),
            )
        except (HydraException, OmegaConfBaseException) as error:
            reason = str(error).partition("\nConfig search path")[0].partition("\nSee https")[0]
            raise BadInput(reason) from error


def use_plugins(argv: Sequence[str]) -> None:
    """Find the plugins that a command line names, or the environment where it names none.

    Raises:
        BadInput: their folder is not as it should be.
    """
    typed = [w for w in get_args_parser().parse_args(argv).overrides if w.startswith("plugins=")]
    try:
        overrides = OverridesParser.create().parse_overrides(typed)
    except HydraException as error:
        raise BadInput(str(error).partition("\nSee https")[0]) from error
    if any(override.is_sweep_override() for override in overrides):
        raise BadInput(f"{typed[0]}: allowed is one folder for all runs of a command")
    folder = overrides[-1].value() if overrides else plugins.in_use()
    plugins.use(None if folder is None else str(folder))


def _with_plugins(folder: str | None, words: Sequence[str]) -> Sequence[str]:
    """Return the words of a run with the plugins that it was planned with, and use these."""
    if folder is None:
        return words
    if plugins.in_use() != Path(folder).absolute():  # in a process that a launcher started
        plugins.use(folder)
    if any(word.startswith("plugins=") for word in words):
        return words
    if re.fullmatch(r"[\w./+-]+", folder) is None:
        folder = "'" + folder.replace("\\", "\\\\").replace("'", "\\'") + "'"
    return [*words, f"plugins={folder}"]


def _plan(typed: Sequence[str], *, multirun: bool, repeat: bool, here: bool) -> list[Job]:
    parser = OverridesParser.create(config_loader=GlobalHydra.instance().config_loader())
    overrides = parser.parse_overrides(list(typed))
    _check_keys(overrides)
    presets = [_line(o) for o in overrides if o.key_or_group == "sweeps"]
    hydra = compose("config", overrides=presets, return_hydra_config=True).hydra
    keys = {o.key_or_group for o in overrides}  # what is typed replaces what the preset sweeps
    params = {k: v for k, v in (hydra.sweeper.params or {}).items() if k not in keys}
    swept = [o for o in overrides if o.is_sweep_override()]
    if swept and not (multirun or hydra.sweeper.params):
        raise BadInput(
            f"{_line(swept[0])} gives several values: add -m to run them all "
            f"({run_line(['-m', *typed])})"
        )
    lines = [f"{key}={value}" for key, value in params.items()] + list(typed)
    if repeats(typed):
        lines = _stage(parser.parse_overrides(lines), repeat=repeat)
    batches = BasicSweeper.split_arguments(parser.parse_overrides(lines), None)
    composed: dict[tuple[str, ...], DictConfig] = {}
    parsed: dict[str, Override] = {}
    as_typed = {o.key_or_group: _line(o) for o in overrides if o not in swept}
    jobs: dict[str, Job] = {}
    for job_lines in [job_lines for batch in batches for job_lines in batch]:
        for line in job_lines:
            if line not in parsed:
                parsed[line] = parser.parse_override(line)
        planned = _job([parsed[line] for line in job_lines], composed, as_typed, here)
        jobs.setdefault(planned.id, planned)
    return list(jobs.values())


def _stage(overrides: Sequence[Override], *, repeat: bool) -> list[str]:
    """Return the words of one of the two stages: the grid with the first seed, or the repetition.

    Raises:
        BadInput: there is no grid, or there are no seeds to repeat it with.
    """
    swept = {o.key_or_group: _values(o) for o in overrides if o.is_sweep_override()}
    if "seed" not in swept or not swept.keys() & set(best_setting.KEYS):
        raise BadInput(
            "protocol=select_then_repeat needs several seeds and several lr or batch_size, e.g. "
            "-m protocol=select_then_repeat seed=0,1,2,3,4 lr=1e-5,2e-5,5e-5"
        )
    first, *others = swept["seed"]
    lines = []
    for override in overrides:
        key = override.key_or_group
        if key == "seed":
            lines.append(f"seed={','.join(map(str, others)) if repeat else first}")
        elif repeat and key in best_setting.KEYS and key in swept:
            lines.append(f"{key}={best_setting.BEST}")
        else:
            lines.append(_line(override))
    return lines


def _job(
    overrides: Sequence[Override],
    composed: dict[tuple[str, ...], DictConfig],
    as_typed: dict[str, str],
    here: bool,
) -> Job:
    plain = [o for o in overrides if _is_plain(o)]
    structure = tuple(_line(o) for o in overrides if not _is_plain(o))
    if structure not in composed:
        composed[structure] = compose("config", overrides=list(structure))
    config = composed[structure].copy()
    for override in plain:
        _apply(config, override)
    resolved: dict[str, Any] = OmegaConf.to_container(config, resolve=True)  # type: ignore[assignment]
    words = [
        as_typed.get(o.key_or_group, _line(o))
        for o in overrides
        if o.key_or_group not in ("sweeps", "protocol")
    ]
    return job(resolved, {o.key_or_group for o in plain}, words, here=here)


def _line(override: Override) -> str:
    return override.input_line or ""


def _options(group: str) -> list[str]:
    return _options_with(group, plugins.in_use())


@cache
def _options_with(group: str, folder: Path | None) -> list[str]:
    return list(GlobalHydra.instance().config_loader().get_group_options(group))


def _is_plain(override: Override) -> bool:
    """Tell a plain value from what changes the composition (groups and presets)."""
    key = override.key_or_group
    return not (key == "sweeps" or key.startswith("hydra") or _options(key))


def _check_keys(overrides: Sequence[Override]) -> None:
    """Refuse unknown choices and top-level keys before Hydra does, naming the nearest ones."""
    keys = sorted(SCIENCE | PLUMBING)
    for override in overrides:
        key = override.key_or_group
        top = key.split(".")[0]
        if key == "sweeps" or top == "hydra" or key.startswith("hydra/"):
            continue
        if override.is_add() or override.is_delete():
            raise BadInput(
                f"{_line(override)}: settings are neither added nor removed; type {key}=VALUE"
            )
        if top not in keys:
            raise BadInput(f"{key} is no setting: {nearest(top, keys)}")
        options = _options(key)
        for value in _values(override) if options else []:
            if str(value) not in options:
                raise BadInput(f"{key}={value} is unknown: {nearest(str(value), options)}")


def _values(override: Override) -> list[Any]:
    if override.is_sweep_override():
        return list(override.sweep_string_iterator())
    return [override.value()]


def _apply(config: DictConfig, override: Override) -> None:
    """Set a plain value as Hydra does: a dictionary is merged into the one that is there."""
    key = override.key_or_group
    *parents, last = key.split(".")
    node = config
    for part in parents:
        if part not in node or not isinstance(node[part], DictConfig):
            break
        node = node[part]
    else:
        if last in node:
            OmegaConf.update(config, key, override.value(), merge=True)
            return
        part = last
    group = config[parents[0]] if parents and parents[0] in config else None
    whose = f" for {parents[0]}={group.name}" if isinstance(group, DictConfig) else ""
    raise BadInput(
        f"{key} is no setting{whose}, so it would have no effect: "
        f"{nearest(part, sorted(map(str, node)))}"
    )


def require_writable(jobs: Sequence[Job]) -> None:
    """Make the folders that runs write to, and try to write there.

    Raises:
        BadInput: that is not possible.
    """
    for key in ("results_dir", "cache_dir"):
        for folder in {getattr(job.run, key) for job in jobs}:
            check_writable(key, Path(folder))


def check_writable(key: str, folder: Path) -> None:
    """Make the folder that a setting names and try to write there.

    Raises:
        BadInput: that is not possible.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder) as file:  # without a name: a kill leaves nothing
            file.write(b"x")
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        raise BadInput(f"{key}={folder} cannot be written: {error.strerror}") from error
