"""From a command line to the list of its runs, each checked before the first one starts."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

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
from omegaconf import OmegaConf, open_dict
from omegaconf.errors import OmegaConfBaseException

from ilkd_bench.jobs import fill
from ilkd_bench.jobs import words as typed_words
from ilkd_bench.jobs.best_setting import BEST, KEYS, Records
from ilkd_bench.jobs.job import Job
from ilkd_bench.jobs.words import is_choice, is_hydra, values
from ilkd_bench.jobs.words import line as _line
from ilkd_bench.plumbing.command import home, run_line, setting
from ilkd_bench.plumbing.hardware import precision_used
from ilkd_bench.plumbing.terminal import track
from ilkd_bench.settings import plugins
from ilkd_bench.settings.groups import ROOT
from ilkd_bench.settings.run import Run, require_effect
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
    folder = config["plugins"]
    if folder is not None and plugins.in_use() != Path(home(str(folder))).absolute():
        plugins.use(folder)  # in a process that a launcher started
    run = fill.with_data(fill.checked(config))
    return _settled(run, typed or set(), words, Records(), here=here)


def _settled(run: Run, typed: set[str], words: Sequence[str], done: Records, *, here: bool) -> Job:
    """Return the job of a run, with precision, learning rate and batch size settled."""
    require_effect(run, typed)
    if here and run.precision == "auto":
        run = run.but(precision=precision_used(run.precision, run.trainer.accelerator))
    undecided = [key for key in KEYS if getattr(run, key) == BEST]
    if undecided:
        best = done.best(run, undecided)
        run = run.but(**best)
        decided = {f"{key}={BEST}": f"{key}={best[key]}" for key in undecided}
        words = [decided.get(word, word) for word in words]
    if run.plugins is not None and not any(word.startswith("plugins=") for word in words):
        words = [*words, f"plugins={setting(run.plugins)}"]
    return Job(run, tuple(words))


def flags(argv: Sequence[str]) -> Any:
    """Return what Hydra's own flags are.

    Raises:
        BadInput: one is unknown, or has no effect here.
    """
    parser = get_args_parser()

    def refuse(message: str) -> NoReturn:
        raise BadInput(f"{message}; allowed are -m, key=value, and what --help and --info tell of")

    setattr(parser, "error", refuse)  # noqa: B010 - Hydra's parser is no class of ours
    args = parser.parse_args(list(argv))
    typed_words.flags(args)
    return args


def asks_for_information(argv: Sequence[str]) -> bool:
    """Tell whether the command line only asks Hydra something (help, configuration).

    Raises:
        BadInput: what it asks about does not exist.
    """
    args = flags(argv)
    if not any(getattr(args, name) for name in typed_words.ABOUT):
        return False
    use_plugins(argv)
    if not args.shell_completion:  # its words are half typed
        with _hydra():
            _parsed(args.overrides)
    return True


def uses_other_launcher(argv: Sequence[str]) -> bool:
    """Tell whether another launcher than Hydra's default carries the runs out."""
    return any(w.startswith("hydra/launcher=") and w != "hydra/launcher=basic" for w in argv)


def repeats(argv: Sequence[str]) -> bool:
    """Tell whether more runs follow from what those of `plan` will have measured."""
    return any(word == "protocol=select_then_repeat" for word in argv)


def plan(argv: Sequence[str], *, repeat: bool = False) -> list[Job]:
    """Return the runs of a command line, each once, in its order.

    Args:
        repeat: where the grid has one seed only (`protocol=select_then_repeat`), return the runs
            with the other seeds at the best setting of the first.

    Raises:
        BadInput: a key, choice or value is wrong, or several values are given without `-m`.
    """
    argv = typed_words.at_home(argv)
    args = flags(argv)
    use_plugins(argv)
    with _hydra():
        return _plan(
            args.overrides,
            multirun=bool(args.multirun),
            repeat=repeat,
            here=not uses_other_launcher(argv),
        )


@contextmanager
def _hydra() -> Iterator[None]:
    """Have Hydra compose our settings; what it refuses is one sentence."""
    with initialize_config_dir(version_base="1.3", config_dir=str(ROOT / "conf")):
        try:
            yield
        except (HydraException, OmegaConfBaseException) as error:
            raise BadInput(one_line(error)) from error


def one_line(said: object) -> str:
    """Return what Hydra says of a word, without its hints on configuration files."""
    hints = r"\nConfig search path|\nSee https|\n *full_key|\nSet the environment variable"
    reason = re.split(hints, str(said))[0]
    return " ".join(reason.split())


def use_plugins(argv: Sequence[str]) -> None:
    """Find the plugins that a command line names, or the environment where it names none.

    Raises:
        BadInput: their folder is not as it should be.
    """
    typed = [word for word in typed_words.at_home(argv) if word.startswith("plugins=")]
    overrides = [_parse(OverridesParser.create(), word) for word in typed]
    if any(override.is_sweep_override() for override in overrides):
        raise BadInput(f"{typed[0]}: allowed is one folder for all runs of a command")
    folder = overrides[-1].value() if overrides else plugins.in_use()
    if folder == "":
        raise BadInput(f"{typed[-1]}: allowed is a folder, or null")
    plugins.use(None if folder is None else str(folder))


def _parse(parser: OverridesParser, word: str) -> Override:
    try:
        (override,) = parser.parse_overrides([word])
    except HydraException as error:
        raise typed_words.unreadable(word, one_line(error)) from error
    return override


def _parsed(words: Sequence[str]) -> list[Override]:
    """Return the words of a command line, each known to be right by itself.

    Raises:
        BadInput: one is not.
    """
    loader = GlobalHydra.instance().config_loader()
    parser = OverridesParser.create(config_loader=loader)
    overrides = [_parse(parser, word) for word in words]
    typed_words.check(overrides, lambda: loader.get_group_options("hydra/launcher"))
    return overrides


def _plan(typed: Sequence[str], *, multirun: bool, repeat: bool, here: bool) -> list[Job]:
    overrides = _parsed(typed)
    preset = [_line(o) for o in overrides if o.key_or_group == "sweeps"]
    about_hydra = [_line(o) for o in overrides if is_hydra(o)]
    usual = compose("config", overrides=preset + about_hydra, return_hydra_config=True)
    hydra = usual.hydra
    with open_dict(usual):
        del usual["hydra"]
    keys = {o.key_or_group for o in overrides}  # what is typed replaces what the preset sweeps
    params = {k: v for k, v in (hydra.sweeper.params or {}).items() if k not in keys}
    swept = [o for o in overrides if o.is_sweep_override()]
    if swept and not (multirun or hydra.sweeper.params):
        first = _line(swept[0])
        raise BadInput(
            f"{first} gives several values: add -m to run them all "
            f"({run_line(['-m', *typed])}){typed_words.as_one_folder(swept[0])}"
        )
    overrides = _parsed([f"{key}={value}" for key, value in params.items()]) + overrides
    if repeats(typed):
        overrides = _parsed(_stage(overrides, repeat=repeat))
    as_typed = {o.key_or_group: _line(o) for o in overrides if not o.is_sweep_override()}
    (batch,) = BasicSweeper.split_arguments(overrides, None)
    overrides = [o for o in overrides if o.key_or_group != "sweeps" and not is_hydra(o)]
    ready = fill.Fill(
        overrides, usual, lambda words: compose("config", overrides=[*preset, *words])
    )
    parsed: dict[str, Override] = {}
    done = Records()
    jobs: dict[str, Job] = {}
    for job_lines in track(batch, "planning") if len(batch) > 1 else batch:
        for line in job_lines:
            if line not in parsed:
                parsed[line] = OverridesParser.create().parse_override(line)
        own = [parsed[line] for line in job_lines]
        words = [
            as_typed.get(o.key_or_group, _line(o))
            for o in own
            if o.key_or_group not in ("sweeps", "protocol")
        ]
        settings = [o for o in own if o.key_or_group != "sweeps" and not is_hydra(o)]
        plain = {o.key_or_group for o in settings if not is_choice(o)}
        planned = _settled(ready.run(settings), plain, words, done, here=here)
        jobs.setdefault(planned.id, planned)
    return list(jobs.values())


def _stage(overrides: Sequence[Override], *, repeat: bool) -> list[str]:
    """Return the words of one of the two stages: the grid with the first seed, or the repetition.

    Raises:
        BadInput: there is no grid, or there are no seeds to repeat it with.
    """
    swept = {o.key_or_group: values(o) for o in overrides if o.is_sweep_override()}
    if "seed" not in swept or not swept.keys() & set(KEYS):
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
        elif repeat and key in KEYS and key in swept:
            lines.append(f"{key}={BEST}")
        else:
            lines.append(_line(override))
    return lines


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
