"""Where a run was measured: device, versions, commit."""

from __future__ import annotations

import platform
import subprocess
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from ilkd_bench.types import BadInput


def device_here(accelerator: str) -> torch.device:
    """Return the device that runs use on this machine.

    Raises:
        BadInput: a GPU is asked for and there is none.
    """
    if accelerator == "gpu" and not torch.cuda.is_available():
        raise BadInput("trainer.accelerator=gpu: no CUDA device here; allowed are auto and cpu")
    return torch.device("cpu" if accelerator == "cpu" or not torch.cuda.is_available() else "cuda")


def precision_here(precision: str, accelerator: str) -> Any:
    """Return the precision that `auto` means on this machine: 16-bit mixed on CUDA, else 32.

    Raises:
        BadInput: 16-bit mixed on a CPU, where it would silently be another format.
    """
    cuda = device_here(accelerator).type == "cuda"
    if precision == "16-mixed" and not cuda:
        raise BadInput("precision=16-mixed needs a GPU; on a CPU: auto, 32-true or bf16-mixed")
    return ("16-mixed" if cuda else "32-true") if precision == "auto" else precision


def environment(precision: str, accelerator: str) -> dict[str, Any]:
    """Return what a record says about where it was measured."""
    device = device_here(accelerator)
    packages = ("torch", "transformers", "pytorch-lightning", "tokenizers", "numpy")
    name = torch.cuda.get_device_name() if device.type == "cuda" else platform.machine()
    return {
        "device": f"{device.type}: {name}, {torch.get_num_threads()} threads",
        "precision": precision_here(precision, accelerator),
        "versions": {p: version(p) for p in packages} | {"python": platform.python_version()},
        "git": _git(),
    }


def _git() -> dict[str, Any] | None:
    """Return the commit of the code; None outside a checkout of its own."""
    here = Path(__file__).resolve().parent.parent.parent
    if not (here / ".git").exists():
        return None

    def ask(*words: str) -> str:
        return subprocess.run(
            ["git", *words], cwd=here, capture_output=True, text=True, check=True, timeout=10
        ).stdout.strip()

    try:
        return {"sha": ask("rev-parse", "HEAD"), "dirty": bool(ask("status", "--porcelain"))}
    except (OSError, subprocess.SubprocessError):
        return None
