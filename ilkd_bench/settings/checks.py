"""What the values of a configuration may be."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

from ilkd_bench.settings.identity import GIVEN_TEACHER
from ilkd_bench.types import BadInput

RULES = ("best", "all", "none")
"""`best`: of each cell of the table, over seeds, learning rates and batch sizes."""


def _number(value: Any, *, whole: bool = False) -> bool:
    kinds = (int,) if whole else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value)


def _whole(least: int, none: bool = False) -> tuple[Callable[[Any], bool], str]:
    def allowed(value: Any) -> bool:
        return (none and value is None) or (_number(value, whole=True) and value >= least)

    return allowed, f"a whole number of at least {least}" + (", or null" if none else "")


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
    "plugins": (lambda v: v is None or (isinstance(v, str) and v != ""), "a folder, or null"),
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
