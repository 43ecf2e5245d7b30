"""Commands in processes of their own, told what shall happen to their jobs; and what they leave."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import toys

from ilkd_bench.settings.groups import ROOT

HERE = Path(__file__).parent
FOUND = f"{HERE}{os.pathsep}{ROOT}"
"""Where modules are found: `sabotage`, and the package that is under test here."""

PATIENCE = 400
"""Seconds that anything here may take."""

REAL = (
    *(word for word in toys.SMALL if not word.startswith(("epochs=", "teacher.recipe.epochs="))),
    *("teacher.recipe.epochs=3", "epochs=3", "patience=2", "batch_size=16"),
    *("trainer.eval_batch_size=8", "keep_student=all"),
)
"""A run of 3 epochs with 4 steps each, whose banks are written in 8 pieces."""

Plan = Mapping[str, Sequence[tuple[str, int, str]]]


class Stage:
    """A folder to run commands in, and what shall happen to their jobs."""

    def __init__(self, root: Path, plan: Plan | None = None, *, light: bool = False) -> None:
        self.root = root
        self.notes = root / "sabotage"
        self.notes.mkdir(parents=True)
        self.light = light
        self.plan(plan or {})

    def plan(self, plan: Plan) -> None:
        """Say what shall happen; what did happen is forgotten."""
        for file in self.notes.iterdir():
            file.unlink()
        (self.notes / "plan.json").write_text(json.dumps(plan))

    def start(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """Start a command of ours, whose jobs are told what shall happen, one at a time usually."""
        if not any(word.startswith("parallel=") for word in words):
            words += ("parallel=1",)
        return self.start_program(sys.executable, str(HERE / "sweep.py"), *words, **environment)

    def start_program(self, *words: str, **environment: str) -> subprocess.Popen[str]:
        """Start a program at the head of a process group, as a shell does."""
        given = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
        given |= {"SABOTAGE": str(self.notes), "PYTHONPATH": FOUND, "OMP_NUM_THREADS": "1"}
        given |= {"COLUMNS": "80"} | ({"SABOTAGE_LIGHT": "1"} if self.light else {})
        return subprocess.Popen(
            words,
            cwd=self.root,
            env=given | environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            preexec_fn=_hear_ctrl_c,
        )

    def run(self, *words: str, **environment: str) -> dict[str, Any]:
        """Run a command to its end and say how it went."""
        return said(self.start(*words, **environment))

    @property
    def happened(self) -> list[str]:
        """Names of the events that the plan had and that came about, `pkd-0.1`."""
        known = json.loads((self.notes / "plan.json").read_text())
        marks = [f"{job}.{number}" for job, list_ in known.items() for number in range(len(list_))]
        return [mark for mark in marks if (self.notes / mark).exists()]

    def log(self, kind: str) -> list[list[str]]:
        """Words of the jobs' notes of one kind: job, kind, more."""
        log = self.notes / "log"
        found = [line.split() for line in (log.read_text().splitlines() if log.exists() else [])]
        return [words for words in found if words[1] == kind]

    def until(self, name: str) -> None:
        """Wait for a file that a job makes."""
        wait(lambda: (self.notes / name).exists() or not self.processes(), name)
        assert (self.notes / name).exists(), "the command ended before"

    def processes(self) -> list[int]:
        """Return the processes of these commands that are alive."""
        return list(self.parents())

    def parents(self) -> dict[int, int]:
        """Return the processes of these commands that are alive, each with its parent."""
        alive, mark = {}, f"SABOTAGE={self.notes}".encode()
        for folder in Path("/proc").glob("[0-9]*"):
            try:
                ours = mark in (folder / "environ").read_bytes().split(b"\0")
                state, parent = (folder / "stat").read_text().rpartition(") ")[2].split()[:2]
            except OSError:
                continue
            if ours and state not in "ZX":
                alive[int(folder.name)] = int(parent)
        return alive

    def nobody_left(self) -> None:
        """Wait until no process is left; that takes the polls of a fork server and its tracker."""
        wait(lambda: not self.processes(), "the processes end")


def _hear_ctrl_c() -> None:
    """Undo what a shell does to its background jobs, the tests perhaps among them."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def said(process: subprocess.Popen[str]) -> dict[str, Any]:
    """Wait for a command and return its exit code and what it printed."""
    try:
        out, err = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        out, err = process.communicate()
        raise AssertionError(f"the command hangs:\n{out}\n{err}") from None
    return {"code": process.returncode, "out": out, "err": err}


def wait(over: Callable[[], bool], what: str) -> None:
    """Poll until something is so."""
    end = time.monotonic() + PATIENCE
    while not over():
        assert time.monotonic() < end, f"in vain: {what}"
        time.sleep(0.05)


def runs(root: Path) -> dict[str, Path]:
    """Return the folder of every run with a record, by method and seed."""
    found: dict[str, Path] = {}
    for path in sorted((root / "results/runs").rglob("record.json")):
        config = record(path.parent)["config"]
        name = f"{config['method']['name']}-{config['seed']}"
        assert name not in found
        found[name] = path.parent
    return found


def record(folder: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((folder / "record.json").read_text())
    return content


def states(root: Path) -> dict[str, str]:
    """Return the status of every run, by method and seed."""
    return {name: record(folder)["status"] for name, folder in runs(root).items()}


def outcome(folder: Path) -> dict[str, Any]:
    """Return all that a run measured and made, by name."""
    found = record(folder)
    for key in ("seconds", "examples_per_second", "versions", "git", "argv"):
        found.pop(key)
    found["teacher"].pop("seconds")
    history = pd.read_csv(folder / "history.csv").drop(columns="seconds")
    files = {
        path.relative_to(folder).as_posix(): path.read_bytes()
        if path.suffix in (".safetensors", ".parquet")
        else b""  # it is there
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }
    return {"record": found, "history": history.to_csv()} | files


def differences(found: Path, expected: Path) -> list[str]:
    """Return what differs between two runs."""
    one, other = outcome(found), outcome(expected)
    names = sorted(one.keys() | other.keys())
    return [f"{found.name}: {n}" for n in names if one.get(n) != other.get(n)]


def litter(root: Path) -> list[str]:
    """Return what only a dead process can have left in results and cache."""
    found = []
    for path in [*(root / "results").rglob("*"), *(root / "cache").rglob("*")]:
        hidden = path.name.startswith(".") and path.suffix != ".lock"
        if hidden or path.name == "checkpoint" or path.suffix in (".ckpt", ".aside"):
            found.append(path.relative_to(root).as_posix())
    return sorted(found)


def held(root: Path) -> list[str]:
    """Return the locks that somebody holds."""
    from filelock import FileLock, Timeout

    found = []
    for path in root.rglob(".*.lock"):
        try:
            with FileLock(path).acquire(timeout=0):
                pass
        except Timeout:
            found.append(str(path))
    return found
