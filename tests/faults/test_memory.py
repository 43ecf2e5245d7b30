"""What a sweep itself keeps of its jobs: nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from driving import Stage, said, wait

pytestmark = pytest.mark.kills

JOBS = 24


def resident(pid: int) -> int:
    """Bytes of a process in memory."""
    pages = Path(f"/proc/{pid}/statm").read_text().split()[1]
    return int(pages) * 4096


@pytest.mark.parametrize("parallel", [1, 2])
def test_the_memory_of_a_sweep_is_flat(parallel: int, tmp_path: Path) -> None:
    """Between the fourth and the last of many jobs; each stops there until it was looked at."""
    stage = Stage(
        tmp_path,
        {"pkd-3": [("run", 1, "wait")], f"pkd-{JOBS - 1}": [("run", 1, "wait")]},
        light=True,
    )
    words = ("-m", "cache_dir=cache", "method=pkd", f"seed=range({JOBS})")
    process = stage.start(*words, f"parallel={parallel}")
    seen = []
    for _ in range(2):
        stage.until("paused")
        open_files = len(list(Path(f"/proc/{process.pid}/fd").iterdir()))
        seen.append((resident(process.pid), open_files))
        (stage.notes / "paused").unlink()
        (stage.notes / "go").touch()
        wait(lambda: not (stage.notes / "go").exists() or process.poll() is not None, "it goes on")
    last = said(process)
    assert last["code"] == 0, last
    (early, files), (late, more) = seen
    assert late - early < 5e6, f"{(late - early) / 1e6:.1f} MB more"
    assert more <= files
