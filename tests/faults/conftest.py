"""What the sweeps with faults are compared with."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from driving import REAL, Stage

SWEEP = ("-m", *REAL, "cache_dir=cache", "method=rail_l,pkd,vanilla,finetune,pro_kd", "seed=0,1")


def _undisturbed(folder: Path) -> dict[str, Any]:
    return Stage(folder).run(*SWEEP)


@pytest.fixture(scope="session")
def undisturbed(once: Any) -> Path:
    """The folder after a sweep that nothing happened to."""
    folder, said = once("undisturbed", _undisturbed)
    assert said["code"] == 0, said["err"]
    return folder
