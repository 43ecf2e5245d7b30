"""The cores and the memory that are there, and how many threads whoever computes has of them."""

from __future__ import annotations

import logging
import os
import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path

from rich.filesize import decimal

from ilkd_bench.plumbing.files import locked

log = logging.getLogger("ilkd_bench")

SMALL = 5_000_000
"""Parameters below which a second thread makes no step faster."""

PROCESS = 600_000_000
"""Bytes of a run's process without its models: the libraries, the rows, the outputs of a step.

Measured: 1.2 GB where `minilm_l6` (22.7 million parameters) was fine-tuned with batches of 32 x 128
tokens for a student of 17.4 million; estimated: 1.8 GB.
"""

PER_PARAMETER = 30
"""Bytes: weights, gradients and two moments of AdamW, and what a checkpoint being written takes."""

at_once = 1
"""Runs that share the cores; set in the process of each."""


# ---------------------------------------------------------------------------------- what is there


def cores(groups: Path = Path("/sys/fs/cgroup")) -> int:
    """Return the cores that this process may use.

    Args:
        groups: where the kernel says which share of the time a container has (cgroup, version 2).
    """
    found = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    quota, _, period = _told(groups / "cpu.max").partition(" ")
    if quota.isdecimal() and period.isdecimal():
        return max(1, min(found or 1, int(quota) // int(period)))
    return found or 1


def free_memory(
    groups: Path = Path("/sys/fs/cgroup"), machine: Path = Path("/proc/meminfo")
) -> int | None:
    """Return the bytes that processes may still take; None where nothing tells (macOS)."""
    found = [
        int(line.split()[1]) * 1024
        for line in _told(machine).splitlines()
        if line.startswith("MemAvailable:")
    ]
    limit, used = (_told(groups / f"memory.{name}") for name in ("max", "current"))
    if limit.isdecimal() and used.isdecimal():
        kept = re.search(r"^inactive_file (\d+)$", _told(groups / "memory.stat"), re.MULTILINE)
        held = int(used) - (int(kept[1]) if kept else 0)  # the rest are files, and can go
        found.append(max(0, int(limit) - held))
    return min(found, default=None)


def _told(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8").strip()
    except OSError:  # another system, or no container
        return ""


# ---------------------------------------------------------------------------- how many runs at once


def runs_at_once(wanted: int | str, runs: int, parameters: int, *, on_gpu: bool) -> int:
    """Return how many runs are carried out at once, and tell it where memory is what limits them.

    Args:
        wanted: a number, or `auto`: one per core on a processor, one on a GPU.
        runs: that are to be done.
        parameters: of the models of the largest.
    """
    if wanted != "auto":
        return max(1, min(int(wanted), runs))
    if on_gpu:
        return 1
    most, free = max(1, min(cores(), runs)), free_memory()
    need = PROCESS + PER_PARAMETER * parameters
    room = most if free is None else max(1, min(most, free // need))
    if room < most:
        log.info(
            "%d at once and not %d: a run takes about %s of memory, and %s are free",
            *(room, most, decimal(need), decimal(free or 0)),
        )
    return room


# ---------------------------------------------------------------------------------------- threads


@cache
def _usual() -> int:
    """Return the threads that torch begins with: those of OMP_NUM_THREADS, or one per core."""
    import torch

    return torch.get_num_threads()


def threads(parameters: int, sharers: int) -> int:
    """Return how many threads train models with so many parameters.

    One for small ones, however many runs share the cores: that is fastest, and their numbers are
    the same to the last bit whatever `parallel` is.
    """
    if parameters < SMALL:
        return 1
    return max(1, min(_usual(), cores() // sharers))


@contextmanager
def as_before() -> Iterator[None]:
    """Give this process the threads back at the end that it had."""
    import torch

    _usual()  # asked before the first change
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)


def share(parameters: int) -> None:
    """Compute from now on with the threads that a run of such models has."""
    import torch

    torch.set_num_threads(threads(parameters, at_once))


@contextmanager
def all_cores(parameters: int) -> Iterator[None]:
    """Compute inside with all cores: other runs wait for what is made here.

    Of the runs of a sweep one at a time does so. Nothing inside may wait for another process.
    """
    import torch

    with as_before():
        count = threads(parameters, 1)
        if count == 1 or at_once == 1:
            torch.set_num_threads(count)
            yield
            return
        folder = Path(tempfile.gettempdir()) / "all-cores"  # the temporary folder is the sweep's
        with locked(folder, "another run uses all cores"):
            torch.set_num_threads(count)
            yield
