"""What `precision=auto` means, and what is said of bfloat16 on a processor that is slow in it."""

from __future__ import annotations

import logging
import subprocess
import sys

import pytest
import torch

from ilkd_bench.plumbing import hardware

AMX = {"avx512_bf16": True, "avx512_fp16": True, "amx_bf16": True}
WITHOUT_AMX = AMX | {"amx_bf16": False}
"""As virtual machines show a processor whose AMX they hide."""

ZEN = {"avx512_f": True, "avx512_bf16": True, "avx512_fp16": False, "amx_bf16": False}
AVX2 = {"avx2": True, "avx512_bf16": False, "amx_bf16": False}


def has(monkeypatch: pytest.MonkeyPatch, told: dict[str, bool], *, gpu: bool = False) -> None:
    """Let torch tell of a machine."""
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: told)
    monkeypatch.setattr(hardware, "has_gpu", lambda: gpu)


@pytest.mark.parametrize(
    ("told", "wanted"),
    [
        (ZEN, "bf16-mixed"),
        (AMX, "bf16-mixed"),
        ({"avx512_bf16": True}, "bf16-mixed"),
        (WITHOUT_AMX, "32-true"),
        (AVX2, "32-true"),
        ({"neon": True}, "32-true"),
        ({}, "32-true"),
    ],
)
def test_auto_is_bfloat16_where_the_processor_is_fast_in_it(
    told: dict[str, bool], wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    has(monkeypatch, told)
    assert hardware.precision_used("auto", "auto") == wanted
    assert hardware.precision_used("auto", "cpu") == wanted
    assert hardware.auto_before("auto") == "32-true"


@pytest.mark.parametrize("told", [ZEN, AVX2])
def test_auto_is_float16_on_cuda_whatever_the_processor(
    told: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    has(monkeypatch, told, gpu=True)
    assert hardware.precision_used("auto", "auto") == "16-mixed"
    assert hardware.auto_before("auto") == "16-mixed"
    wanted = "bf16-mixed" if told is ZEN else "32-true"
    assert hardware.precision_used("auto", "cpu") == wanted


@pytest.mark.parametrize("told", [ZEN, AVX2])
@pytest.mark.parametrize("precision", ["32-true", "16-mixed", "bf16-mixed"])
def test_what_is_typed_is_taken(
    precision: str, told: dict[str, bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    has(monkeypatch, told)
    assert hardware.precision_used(precision, "cpu") == precision


def test_a_torch_that_does_not_tell_means_32_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert hardware.precision_used("auto", "cpu") == "32-true"


def test_linux_says_the_same_as_torch() -> None:
    listed = hardware._instructions()
    if not listed:
        pytest.skip("no list of instructions here")
    names = {"avx512_bf16", "avx512_fp16", "amx_bf16"}
    assert listed & names == hardware._capabilities() & names


def test_a_process_without_torch_tells_it_without_loading_it() -> None:
    if not hardware._instructions():
        pytest.skip("no list of instructions here")
    code = (
        "import sys; from ilkd_bench.plumbing import hardware; "
        "print(hardware.precision_used('auto', 'cpu'), 'torch' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.split() == [hardware.precision_used("auto", "cpu"), "False"]


# ------------------------------------------------------------------------------- typed bfloat16


def warnings(
    caplog: pytest.LogCaptureFixture, precision: str = "bf16-mixed", accelerator: str = "cpu"
) -> list[str]:
    with caplog.at_level(logging.WARNING):
        hardware.warn_of_slow_bfloat16(precision, accelerator)
    return [record.getMessage() for record in caplog.records]


@pytest.mark.parametrize("told", [AVX2, WITHOUT_AMX])
def test_bfloat16_on_a_slow_processor_is_taken_with_a_warning(
    told: dict[str, bool], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    has(monkeypatch, told)
    monkeypatch.setattr(hardware, "bfloat16_cost", lambda: 3.21)
    assert hardware.precision_here("bf16-mixed", "cpu") == "bf16-mixed"
    (said,) = warnings(caplog)
    assert "3.2 times as long" in said and "precision=32-true" in said


@pytest.mark.parametrize("told", [ZEN, AMX])
def test_a_fast_processor_is_not_measured(
    told: dict[str, bool], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    has(monkeypatch, told)
    monkeypatch.setattr(hardware, "bfloat16_cost", lambda: 1 / 0)
    assert warnings(caplog) == []


@pytest.mark.parametrize("precision", ["32-true", "auto"])
def test_32_bit_is_not_measured(
    precision: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    has(monkeypatch, AVX2)
    monkeypatch.setattr(hardware, "bfloat16_cost", lambda: 1 / 0)
    assert warnings(caplog, precision) == []


def test_a_processor_that_turns_out_fast_is_not_warned_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    has(monkeypatch, AVX2)
    monkeypatch.setattr(hardware, "bfloat16_cost", lambda: 0.6)
    assert warnings(caplog) == []


def test_the_cost_is_a_ratio_of_times_that_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a clock on which a product in float32 takes 2 s and one in bfloat16 takes 5 s."""
    now, taken = 0.0, iter([2.0, 5.0] * 6)

    def clock() -> float:
        nonlocal now, running
        running = not running
        if not running:
            now += next(taken)
        return now

    running = False
    monkeypatch.setattr(hardware.time, "perf_counter", clock)
    assert hardware.bfloat16_cost() == 2.5
