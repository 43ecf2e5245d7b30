"""Where a run was measured: device, versions, commit."""

from __future__ import annotations

import ctypes
import importlib.util
import logging
import math
import platform
import re
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


def fast_bfloat16() -> bool:
    """Tell whether the processor multiplies bfloat16 faster than float32.

    AMX does. AVX-512 BF16 does on processors that have no AVX-512 FP16; those that have it are
    fast with AMX only, which virtual machines may hide (a training step then takes 1.4 times as
    long). torch tells what is there; a process without it, which takes seconds to import, asks
    Linux instead.
    """
    has = _instructions() if "torch" not in sys.modules else frozenset()
    has = has or _capabilities()
    return "amx_bf16" in has or ("avx512_bf16" in has and "avx512_fp16" not in has)


def _capabilities() -> frozenset[str]:
    """Return the instructions that torch finds; empty where it is too old to tell."""
    import torch

    if not hasattr(torch.cpu, "get_capabilities"):
        return frozenset()
    return frozenset(name for name, there in torch.cpu.get_capabilities().items() if there)


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

    16-mixed on CUDA, bf16-mixed on a processor that is fast in bfloat16, else 32-true.
    """
    if precision != "auto":
        return precision
    if auto_before(accelerator) == "16-mixed":
        return "16-mixed"
    return "bf16-mixed" if fast_bfloat16() else "32-true"


def auto_before(accelerator: str) -> str:
    """Return what `auto` meant on this machine when records did not settle it (schema 1)."""
    return "16-mixed" if accelerator != "cpu" and has_gpu() else "32-true"


def warn_of_slow_bfloat16(precision: str, accelerator: str) -> None:
    """Say what 16 bits cost on a processor that is not made for them, as measured now."""
    if precision != "bf16-mixed" or device_here(accelerator).type != "cpu" or fast_bfloat16():
        return
    cost = bfloat16_cost()
    if cost > 1:
        log.warning(
            "precision=bf16-mixed is slow on this processor: a product of matrices took %.1f times "
            "as long in bfloat16 as in float32 just now. Type precision=32-true",
            cost,
        )


def bfloat16_cost() -> float:
    """Return how long a product of bfloat16 matrices takes here, in times of float32."""
    import torch

    seconds = {torch.float32: math.inf, torch.bfloat16: math.inf}
    for _ in range(6):
        for dtype in seconds:
            matrix = torch.ones(SIDE, SIDE, dtype=dtype)
            started = time.perf_counter()
            matrix @ matrix
            seconds[dtype] = min(seconds[dtype], time.perf_counter() - started)
    return seconds[torch.bfloat16] / seconds[torch.float32]


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
