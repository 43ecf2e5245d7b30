"""How many runs go on at once, and with how many threads."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
import torch

from ilkd_bench.plumbing import cores
from ilkd_bench.plumbing.cores import cores as counted
from ilkd_bench.plumbing.cores import free_memory, runs_at_once, threads
from ilkd_bench.plumbing.files import held

LARGE = 10 * cores.SMALL


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """16 cores, and room for any models."""
    monkeypatch.setattr(cores, "cores", lambda: 16)
    monkeypatch.setattr(cores, "free_memory", lambda: 10**15)
    monkeypatch.setattr(cores, "_usual", lambda: 16)


@pytest.mark.parametrize(
    ("wanted", "runs", "on_gpu", "expected"),
    [
        ("auto", 100, False, 16),
        ("auto", 5, False, 5),
        ("auto", 1, False, 1),
        ("auto", 0, False, 1),
        ("auto", 100, True, 1),
        (3, 100, False, 3),
        (3, 100, True, 3),
        (40, 100, False, 40),
        (40, 2, False, 2),
        (1, 100, False, 1),
    ],
)
def test_as_many_runs_as_cores_and_one_on_a_gpu(
    machine: None, wanted: int | str, runs: int, on_gpu: bool, expected: int
) -> None:
    assert runs_at_once(wanted, runs, 1_000_000, on_gpu=on_gpu) == expected


def test_fewer_where_memory_would_not_hold_them_and_that_is_told(
    machine: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Of models of a billion parameters: 30 GB for the parameters, and the process itself."""
    caplog.set_level("INFO")
    monkeypatch.setattr(cores, "free_memory", lambda: 100 * 10**9)
    assert runs_at_once("auto", 100, 10**9, on_gpu=False) == 3
    told = "3 at once and not 16: a run takes about 30.6 GB of memory, and 100.0 GB are free"
    assert caplog.messages == [told]
    assert runs_at_once("auto", 100, 10**10, on_gpu=False) == 1, "one is always tried"
    assert runs_at_once(5, 100, 10**9, on_gpu=False) == 5, "who gives a number has decided"
    caplog.clear()
    monkeypatch.setattr(cores, "free_memory", lambda: None)
    assert runs_at_once("auto", 100, 10**9, on_gpu=False) == 16
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("quota", "expected"),
    [
        (None, 3),
        ("max 100000", 3),
        ("200000 100000", 2),
        ("250000 100000", 2),
        ("50000 100000", 1),
        ("800000 100000", 3),
        ("nonsense", 3),
    ],
)
def test_cores_are_those_that_this_process_may_use(
    quota: str | None, expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0, 5, 7}, raising=False)
    if quota is not None:
        (tmp_path / "cpu.max").write_text(f"{quota}\n")
    assert counted(tmp_path) == expected


def test_memory_is_what_the_machine_and_the_container_leave(tmp_path: Path) -> None:
    assert free_memory(tmp_path, tmp_path / "meminfo") is None
    (tmp_path / "meminfo").write_text("MemTotal: 9000 kB\nMemAvailable:    2000 kB\n")
    assert free_memory(tmp_path, tmp_path / "meminfo") == 2_048_000
    (tmp_path / "memory.max").write_text("max\n")
    (tmp_path / "memory.current").write_text("500000\n")
    assert free_memory(tmp_path, tmp_path / "meminfo") == 2_048_000
    (tmp_path / "memory.max").write_text("1500000\n")
    assert free_memory(tmp_path, tmp_path / "meminfo") == 1_000_000
    (tmp_path / "memory.stat").write_text("file 400000\ninactive_file 300000\nslab 1\n")
    assert free_memory(tmp_path, tmp_path / "meminfo") == 1_300_000, "files can go"
    (tmp_path / "memory.max").write_text("100000\n")
    assert free_memory(tmp_path, tmp_path / "meminfo") == 0


def test_runs_share_the_cores_and_small_models_have_one_however_many_there_are(
    machine: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert [threads(LARGE, sharers) for sharers in (1, 2, 5, 16, 40)] == [16, 8, 3, 1, 1]
    assert {threads(cores.SMALL - 1, sharers) for sharers in (1, 2, 16)} == {1}
    monkeypatch.setattr(cores, "_usual", lambda: 4)  # OMP_NUM_THREADS=4
    assert [threads(LARGE, sharers) for sharers in (1, 2, 5, 16)] == [4, 4, 3, 1]


def test_what_others_wait_for_is_made_with_all_cores_by_one_at_a_time(
    machine: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(cores, "at_once", 8)
    lock = tmp_path / "all-cores"
    with cores.as_before():
        before = torch.get_num_threads()
        cores.share(LARGE)
        assert torch.get_num_threads() == 2
        with cores.all_cores(LARGE):
            assert torch.get_num_threads() == 16 and held(lock)
        assert torch.get_num_threads() == 2 and not held(lock)
        with cores.all_cores(cores.SMALL - 1):
            assert torch.get_num_threads() == 1 and not held(lock), "others need not wait"
        monkeypatch.setattr(cores, "at_once", 1)
        with cores.all_cores(LARGE):
            assert torch.get_num_threads() == 16 and not held(lock)
        torch.set_num_threads(2)
    assert torch.get_num_threads() == before
