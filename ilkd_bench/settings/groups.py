"""The groups of `conf/` on the disk, read without composing them."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from ilkd_bench.types import BadInput

PACKAGE = Path(__file__).resolve().parent.parent
ROOT = PACKAGE if (PACKAGE / "conf").is_dir() else PACKAGE.parent
"""Where conf/ and sweeps/ lie: beside the package in a checkout, inside it when installed."""


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
