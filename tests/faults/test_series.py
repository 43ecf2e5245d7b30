"""Hundreds of kills at random moments: whatever is hit, the results are those without any."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
from conftest import SWEEP
from driving import Stage, held, litter, record, runs, said, wait
from measured import measured
from test_kills import compare

from ilkd_bench import tables
from ilkd_bench.jobs import plan
from ilkd_bench.records.read import write_record

SEED = 20260131

LIGHT = ("-m", "cache_dir=cache", "method=pkd,alp")
"""Runs without training; seeds follow."""

SECONDS = 0.1
"""That each of them takes."""

Kill = tuple[str, signal.Signals]

KILLS: dict[Kill, int] = {
    ("run", signal.SIGKILL): 3,
    ("server", signal.SIGKILL): 3,
    ("sweep", signal.SIGKILL): 3,
    ("run", signal.SIGTERM): 1,
    ("sweep", signal.SIGTERM): 1,
    ("sweep", signal.SIGINT): 1,
}
"""Who is hit by what, and how often in relation to the others."""

FEW: dict[Kill, int] = {
    ("run", signal.SIGKILL): 4,
    ("run", signal.SIGTERM): 1,
    ("server", signal.SIGKILL): 3,
    ("sweep", signal.SIGKILL): 1,
    ("sweep", signal.SIGINT): 1,
}
"""Ten of them."""

CHAIN = ("sweep", "server", "run")
"""Each starts the next."""

CODES = {
    *(0, 1, -signal.SIGKILL, 128 + signal.SIGTERM, 128 + signal.SIGINT),
    *(-signal.SIGTERM, -signal.SIGINT),  # as the interpreter ends
}


@dataclass
class Series:
    """Sweeps over one folder, and the signals that end their processes at random moments."""

    stage: Stage
    words: Sequence[str]
    draw: np.random.Generator
    span: float  # seconds between two signals, at most
    done: dict[str, bytes] = field(default_factory=dict)  # records by run

    @property
    def environment(self) -> dict[str, str]:
        return {"TMPDIR": str(self.stage.root / "tmp"), "SABOTAGE_SECONDS": str(SECONDS)}

    def go_on(self, kills: list[Kill], *, at_once: int = 1) -> None:
        """Start sweeps and kill what they consist of, until they or the kills end.

        Args:
            kills: those that were done are taken out.
        """
        sweeps = [self._start() for _ in range(at_once)]
        while kills and any(sweep.poll() is None for sweep in sweeps):
            time.sleep(self.draw.uniform(0, self.span))
            while any(sweep.poll() is None for sweep in sweeps):
                if self._hit([sweep.pid for sweep in sweeps if sweep.poll() is None], *kills[0]):
                    kills.pop(0)
                    break
            self.intact()
        for end in map(said, sweeps):
            nothing_begun = "cannot start" in end["err"] or "could not be checked" in end["err"]
            assert end["code"] in CODES or nothing_begun, end
            assert "Traceback" not in end["out"] + end["err"], end["err"]
        self.stage.nobody_left()
        self.intact()
        assert held(self.stage.root) == []
        assert self.stage.log("twice") == []

    def _start(self) -> subprocess.Popen[str]:
        sweep = self.stage.start(*self.words, **self.environment)
        begun = self.stage.notes / f"begun-{sweep.pid}"
        wait(lambda: begun.exists() or sweep.poll() is not None, "signals are handled")
        return sweep

    def _hit(self, sweeps: list[int], who: str, number: signal.Signals) -> bool:
        """Send a signal to a process of a kind, if there is one."""
        parents, found = self.stage.parents(), sweeps
        for _ in range(CHAIN.index(who)):
            found = sorted(pid for pid, parent in parents.items() if parent in found)
        if who != "sweep":
            time.sleep(self.draw.uniform(0, SECONDS))
        if not found:
            return False
        try:
            os.kill(found[self.draw.integers(len(found))], number)
        except ProcessLookupError:  # it has just ended
            return False
        return True

    def intact(self) -> None:
        """No record is lost, there twice, or changed once its run is done."""
        found = runs(self.stage.root)
        assert set(self.done) <= set(found)
        for name, folder in found.items():
            content = (folder / "record.json").read_bytes()
            if name in self.done:
                assert content == self.done[name], name
            elif record(folder)["status"] == "done":
                self.done[name] = (folder / "record.json").read_bytes()

    def end(self) -> None:
        """Do what is left, undisturbed."""
        end = self.stage.run(*self.words, **self.environment)
        assert end["code"] == 0 and "Traceback" not in end["err"], end
        self.stage.nobody_left()
        self.intact()
        assert len(self.done) == len(runs(self.stage.root))
        assert held(self.stage.root) == [] and litter(self.stage.root) == []
        left = Path(self.environment["TMPDIR"]).iterdir()
        assert [path for path in left if not is_probe(path)] == []


def is_probe(path: Path) -> bool:
    """Say if Python wrote this file to see whether it can write there.

    `tempfile` does so once a process, under a name of eight characters, and a kill may come before
    it takes the file away. What is made with `tempfile` has a prefix.
    """
    return len(path.name) == 8 and path.is_file() and path.read_bytes() in (b"", b"blat")


def tables_of(root: Path, aside: Path) -> dict[str, bytes]:
    """Return the tables of the runs in a folder, by name."""
    shutil.copytree(root / "results/runs", aside / "runs")
    assert tables.main(["--results-dir", str(aside)]) == 0
    return {path.name: path.read_bytes() for path in (aside / "tables").iterdir()}


def series(folder: Path, seed: int, words: Sequence[str], *, span: float, light: bool) -> Series:
    (folder / "tmp").mkdir(parents=True)
    stage = Stage(folder, light=light)
    return Series(stage, words, np.random.default_rng([SEED, seed]), span)


def drawn(number: int, seed: int) -> list[Kill]:
    """Return some kills in an order of chance."""
    draw = np.random.default_rng([SEED, seed])
    chances = np.array(list(KILLS.values())) / sum(KILLS.values())
    return [list(KILLS)[i] for i in draw.choice(len(KILLS), size=number, p=chances)]


def expected(root: Path, words: Sequence[str], monkeypatch: pytest.MonkeyPatch) -> dict[str, bytes]:
    """Write the records of runs without training as they must be, and return them by name."""
    root.mkdir()
    monkeypatch.chdir(root)
    for job in plan.plan(words):
        found = measured(job.run.seed).model_dump()
        write_record(job.folder, job.record_with(**found, status="done", reason=None))
    return {name: (folder / "record.json").read_bytes() for name, folder in runs(root).items()}


@pytest.mark.parametrize("parallel", [1, 2])
def test_ten_kills_leave_no_trace(
    parallel: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Half of them hit runs, so that few sweeps have to be started."""
    words = (*LIGHT, "seed=range(6)", f"parallel={parallel}")
    one = series(tmp_path / "killed", 0, words, span=0.1, light=True)
    kills = [who for who, times in FEW.items() for _ in range(times)]
    one.draw.shuffle(kills)
    assert len(kills) == 10
    while kills:
        one.go_on(kills)
    one.end()
    assert one.done == expected(tmp_path / "plain", words, monkeypatch)


@pytest.mark.kills
@pytest.mark.parametrize("number", range(1, 11))
def test_hundreds_of_kills_leave_no_trace(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """26 kills each, of one sweep or two at once; where all is done, another folder is begun.

    The sweeps of every second series carry out two or three runs at once.
    """
    words = (*LIGHT, "seed=range(12)", f"parallel={(1, 2, 1, 3)[number % 4]}")
    plain = expected(tmp_path / "plain", words, monkeypatch)
    kills = drawn(26, number)
    while kills:
        root = tmp_path / str(len(kills))
        one = series(root, 1000 * number + len(kills), words, span=0.5, light=True)
        while kills and len(one.done) < len(plain):
            one.go_on(kills, at_once=int(one.draw.integers(1, 3)))
        one.end()
        assert one.done == plain
        assert tables_of(root, root / "a") == tables_of(tmp_path / "plain", root / "b")


@pytest.mark.kills
@pytest.mark.parametrize("number", range(2))
def test_kills_of_trainings_leave_no_trace(number: int, undisturbed: Path, tmp_path: Path) -> None:
    root = tmp_path / "killed"
    words = (*SWEEP, f"parallel={1 + number}")
    one = series(root, number, words, span=3.0, light=False)
    kills = drawn(20, number)
    while kills and len(one.done) < len(runs(undisturbed)):
        one.go_on(kills, at_once=int(one.draw.integers(1, 3)))
    one.end()
    compare(root, undisturbed)
    assert tables_of(root, tmp_path / "a") == tables_of(undisturbed, tmp_path / "b")
    assert not kills, "all were done before the last run was"
