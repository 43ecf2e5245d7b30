"""Where a run was measured: device, versions, commit."""

from __future__ import annotations

import ctypes
import importlib.util
import platform
import re
import subprocess
import sys
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilkd_bench.types import BadInput

if TYPE_CHECKING:
    import torch


@cache
def has_gpu() -> bool:
    """Tell whether torch finds a CUDA device here, without importing it where that can be told."""
    spec = importlib.util.find_spec("torch")
    if "torch" not in sys.modules and spec is not None and spec.origin is not None:
        about = Path(spec.origin).with_name("version.py")
        text = about.read_text(encoding="utf-8") if about.is_file() else ""
        built = dict(re.findall(r"^(cuda|hip)\b[^=]*= *(.+?) *$", text, re.MULTILINE))
        if built == {"cuda": "None", "hip": "None"} or (
            sys.platform == "linux" and built.get("hip") == "None" and not _driver_has_device()
        ):
            return False
    import torch

    return torch.cuda.is_available()


def _driver_has_device() -> bool:
    """Ask NVIDIA's driver for a device; a machine without one has no such library."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return False
    count = ctypes.c_int(0)
    return driver.cuInit(0) == 0 and driver.cuDeviceGetCount(ctypes.byref(count)) == 0 < count.value


def precision_used(precision: str, accelerator: str) -> str:
    """Return the precision that `auto` means on this machine: 16-bit mixed on CUDA, else 32."""
    if precision != "auto":
        return precision
    return "16-mixed" if accelerator != "cpu" and has_gpu() else "32-true"


def device_here(accelerator: str) -> torch.device:
    """Return the device that runs use on this machine.

    Raises:
        BadInput: a GPU is asked for and there is none.
    """
    import torch

    if accelerator == "gpu" and not torch.cuda.is_available():
        raise BadInput("trainer.accelerator=gpu: no CUDA device here; allowed are auto and cpu")
    return torch.device("cpu" if accelerator == "cpu" or not torch.cuda.is_available() else "cuda")


def precision_here(precision: str, accelerator: str) -> Any:
    """Return the precision as Lightning takes it.

    Raises:
        BadInput: 16-bit mixed on a CPU, where it would silently be another format.
    """
    cuda = device_here(accelerator).type == "cuda"
    if precision == "16-mixed" and not cuda:
        raise BadInput("precision=16-mixed needs a GPU; on a CPU: auto, 32-true or bf16-mixed")
    return precision_used(precision, accelerator)


def environment(precision: str, accelerator: str) -> dict[str, Any]:
    """Return what a record says about where it was measured."""
    import torch

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
