"""The benchmark's parts still run; what they measure is in benchmarks/README.md."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import __main__ as benchmarks
from benchmarks import job, peers, report

pytestmark = pytest.mark.runs


@pytest.mark.parametrize("part", ["peak", "operators", "step", "methods", "sweep", "growth"])
def test_a_part_is_measured_and_told(
    part: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept, page = tmp_path / "results.json", tmp_path / "README.md"
    page.write_text(f"<!-- {part} -->\n<!-- end -->\n")
    words = ["bench", "--quick", "--only", part, "--results", str(kept), "--report", str(page)]
    monkeypatch.setattr("sys.argv", words)
    benchmarks.main()
    found = json.loads(kept.read_text())[part]
    assert found["quick"] and found["rows"]
    assert report.tables({part: found})[part] in page.read_text()


def test_our_own_contender_trains_the_job(tmp_path: Path) -> None:
    """The toolkits beside it need an environment of their own."""
    ours = [c for c in peers.CONTENDERS if c.name in ("ours", "ours_live_padded", "ours_bf16")]
    prepared = peers.prepare(tmp_path / "job", job.stand_in(tmp_path / "text"), "mrpc", 64, 0)
    rows = peers.measure({"mrpc": prepared}, ours, 2)
    assert [row["steps"] for row in rows] == [2] * 6
    first, second = (sum(r["loss"] for r in rows if r["repetition"] == n) for n in (0, 1))
    assert second < first
