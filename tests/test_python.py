"""The Python face: `import ilkd_bench`."""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import made
import printed
import pytest

import ilkd_bench
from ilkd_bench.settings.groups import ROOT

SCRIPTS = printed.texts(printed.EXTENDING, "From Python", "python")


def test_every_name_is_there() -> None:
    for name in ilkd_bench.__all__:
        assert getattr(ilkd_bench, name) is not None
        assert name in dir(ilkd_bench)
    assert ilkd_bench.__version__ == version("ilkd_bench")
    with pytest.raises(AttributeError, match="has no attribute 'trian'"):
        _ = ilkd_bench.trian


def test_jobs_are_planned_as_on_the_command_line() -> None:
    jobs = ilkd_bench.plan(["-m", "method=vanilla,pkd", "seed=0,1"])
    assert len(jobs) == len({job.id for job in jobs}) == 4
    with pytest.raises(ilkd_bench.BadInput, match="did you mean pkd"):
        ilkd_bench.plan(["method=pdk"])
    with pytest.raises(ilkd_bench.BadInput, match=r"give a list of words, as in \['method=pkd'\]"):
        ilkd_bench.plan("method=pkd")
    assert len(ilkd_bench.plan(["method=vanilla,pkd", "-m"])) == 2
    with pytest.raises(ilkd_bench.BadInput, match="--help: allowed are -m and key=value"):
        ilkd_bench.plan(["--help"])


@pytest.mark.runs
@pytest.mark.parametrize("number", range(len(SCRIPTS)))
def test_a_printed_example_runs_as_a_script(number: int, tmp_path: Path) -> None:
    """As it stands, from a file, without a guard: the jobs' processes must not begin it again."""
    (tmp_path / "script.py").write_text("print('begun')\n" + SCRIPTS[number], encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "script.py"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("begun") == 1
    if "execute" in SCRIPTS[number]:
        assert done.stdout.count("\ndone 0.") == 2
        assert "vanilla" in done.stdout.splitlines()[-1]


def test_results_are_a_tidy_frame(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    records = [
        *made.seeds([0.5, 0.75], method="pkd"),
        made.record(method="alp", dev=0.25, changes={"temperature": 3}),
        made.record(method="alp", seed=7, status="failed"),
    ]
    made.read(tmp_path, records)
    scores = ilkd_bench.load_results(tmp_path)
    columns = "teacher student method task seed lr batch_size split metric value section limited"
    assert list(scores.columns) == [*columns.split(), "id", "folder"]
    dev = scores[(scores["split"] == "dev") & (scores["metric"] == "accuracy")]
    values = dev.set_index(["method", "seed"])["value"].to_dict()
    assert values == {("pkd", 0): 0.5, ("pkd", 1): 0.75, ("alp (temperature=3)", 0): 0.25}
    assert set(scores["task"]) == {"mrpc"} and set(scores["teacher"]) == {"big"}
    assert all((tmp_path / folder / "record.json").is_file() for folder in scores["folder"])

    (tmp_path / scores["folder"][0] / "record.json").write_text("{")
    assert len(ilkd_bench.load_results(tmp_path)) < len(scores)
    assert "not used" in caplog.text
    with pytest.raises(ilkd_bench.BadInput, match="no runs in"):
        ilkd_bench.load_results(tmp_path / "none")
