"""Where a run was measured: device, versions, commit."""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import platform
import re
import statistics
import subprocess
import sys
import time
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilkd_bench.types import BadInput

if TYPE_CHECKING:
    import torch

log = logging.getLogger(__name__)

BFLOAT16 = ("avx512_bf16", "amx_bf16")
"""Instructions that multiply bfloat16, as both torch and Linux call them."""

SIDE = 512
"""Of the matrices by which bfloat16 is measured."""


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


def multiplies_bfloat16() -> bool:
    """Tell whether the processor multiplies bfloat16 in hardware; else torch emulates it.

    torch tells it. A process without torch, which takes seconds to import, asks Linux instead.
    """
    if "torch" not in sys.modules:
        listed = _instructions()
        if listed:
            return any(name in listed for name in BFLOAT16)
    import torch

    if not hasattr(torch.cpu, "get_capabilities"):  # an older torch
        return False
    told = torch.cpu.get_capabilities()
    return any(name in told and bool(told[name]) for name in BFLOAT16)


@cache
def _instructions() -> frozenset[str]:
    """Return the instructions that Linux lists; empty where it lists none."""
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as lines:
            found = (line.partition(":")[2] for line in lines if line.startswith("flags"))
            return frozenset(next(found, "").split())
    except OSError:
        return frozenset()


def precision_used(precision: str, accelerator: str) -> str:
    """Return the precision that `auto` means on this machine.

    16-mixed on CUDA, bf16-mixed on a processor that multiplies bfloat16, else 32-true.
    """
    if precision != "auto":
        return precision
    if auto_before(accelerator) == "16-mixed":
        return "16-mixed"
    return "bf16-mixed" if multiplies_bfloat16() else "32-true"


def auto_before(accelerator: str) -> str:
    """Return what `auto` meant on this machine when records did not settle it (schema 1)."""
    return "16-mixed" if accelerator != "cpu" and has_gpu() else "32-true"


def warn_of_emulation(precision: str, accelerator: str) -> None:
    """Say how slow 16 bits are on a processor that emulates them, as measured now."""
    on_cpu = device_here(accelerator).type == "cpu"
    if on_cpu and precision == "bf16-mixed" and not multiplies_bfloat16():
        log.warning(
            "precision=bf16-mixed: this processor does not multiply bfloat16 in hardware; a "
            "product of matrices took %.1f times as long as in float32 just now. Type "
            "precision=32-true",
            bfloat16_cost(),
        )


def bfloat16_cost() -> float:
    """Return how long a product of bfloat16 matrices takes here, in times of float32."""
    import torch

    seconds = []
    for dtype in (torch.float32, torch.bfloat16):
        matrix = torch.ones(SIDE, SIDE, dtype=dtype)
        taken = []
        for _ in range(6):
            started = time.perf_counter()
            matrix @ matrix
            taken.append(time.perf_counter() - started)
        seconds.append(statistics.median(taken[1:]))  # the first also chooses the code
    return seconds[1] / seconds[0]


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
