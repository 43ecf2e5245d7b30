"""What happens inside jobs at chosen moments. The fork server imports it, so every job has it.

The environment variable `SABOTAGE` names a folder with `plan.json`: for each job (`pkd-0`: method
and seed) a list of `[moment, count, deed]`. At the `count`-th time of the first moment of the list
that was not reached before (a file in the folder tells), its deed is done.
"""

from __future__ import annotations

import fcntl
import json
import logging
import os
import shutil
import signal
import sys
import time
import types
from pathlib import Path
from typing import Any

from measured import measured

from ilkd_bench.jobs import job as jobs
from ilkd_bench.records.record import Measured
from ilkd_bench.teachers import bank

FOLDER = Path(os.environ["SABOTAGE"])
PLAN: dict[str, list[Any]] = json.loads((FOLDER / "plan.json").read_text())
SWEEP = os.getppid()
"""Who has started the fork server, in which this is imported."""

LIGHT = "SABOTAGE_LIGHT" in os.environ
SECONDS = float(os.environ.get("SABOTAGE_SECONDS", "0"))
"""That a run without training takes."""

PATIENCE = 400
"""Seconds until a pause ends that nobody has ended."""

state: dict[str, Any] = {"job": "-", "who": "student", "counts": {}}


def note(what: str) -> None:
    """Append a line to the log of all jobs."""
    line = f"{state['job']} {what}\n".encode()
    file = os.open(FOLDER / "log", os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, line)
    os.close(file)


def due(moment: str) -> str | None:
    """Tell what to do now, once."""
    counts = state["counts"]
    counts[moment] = counts.get(moment, 0) + 1
    for number, (when, count, deed) in enumerate(PLAN.get(state["job"], [])):
        mark = FOLDER / f"{state['job']}.{number}"
        if mark.exists():
            continue
        if when == moment and count == counts[moment]:
            os.close(os.open(mark, os.O_CREAT | os.O_EXCL))
            return deed
        return None  # one after the other
    return None


def at(moment: str) -> None:
    """Do what is due now."""
    deed = due(moment)
    if deed is not None:
        do(deed, moment)


def do(deed: str, moment: str) -> None:
    note(f"{deed} at {moment}")
    if deed == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif deed == "kill sweep":
        os.kill(SWEEP, signal.SIGKILL)
        pause(lambda: False)
        note("orphan")
    elif deed == "segv":
        os.kill(os.getpid(), signal.SIGSEGV)
    elif deed == "raise":
        raise RuntimeError("on purpose")
    elif deed == "memory":
        raise MemoryError
    elif deed.startswith("exit "):
        sys.exit(int(deed.split()[1]))
    elif deed.startswith("_exit "):
        os._exit(int(deed.split()[1]))
    elif deed == "pause":  # until a signal comes
        (FOLDER / "paused").touch()
        pause(lambda: False)
    elif deed == "wait":  # until the test says so
        (FOLDER / "paused").touch()
        pause((FOLDER / "go").exists)
        (FOLDER / "go").unlink()
    elif deed == "wait for the other":  # until another sweep has begun a run too
        pause(lambda: len({line.split()[-1] for line in lines("attempt")}) > 1)
    else:
        raise ValueError(deed)


def pause(over: Any) -> None:
    end = time.monotonic() + PATIENCE
    while not over() and time.monotonic() < end:
        time.sleep(0.02)


def lines(kind: str) -> list[str]:
    """Lines of the log of one kind."""
    log = FOLDER / "log"
    found = log.read_text().splitlines() if log.exists() else []
    return [line for line in found if line.split()[1] == kind]


# -------------------------------------------------------------------------------------- any job

real_attempt, real_outcome, real_build = jobs._attempt, jobs._outcome, bank._build
real_replace, real_rmtree = os.replace, shutil.rmtree


def attempt(job: Any) -> None:
    state["job"] = f"{job.run.method.name}-{job.run.seed}"
    real_attempt(job)


def outcome(job: Any) -> dict[str, Any]:
    note(f"attempt {SWEEP}")
    with (FOLDER / f"at-{state['job']}").open("w") as file:  # a lock that ends with its process
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            note("twice")
        return real_outcome(job)


def replace(source: Any, target: Any) -> None:
    """Every file that counts comes into being by a rename."""
    kind = kind_of(Path(target))
    at(f"before {kind}")
    real_replace(source, target)
    at(f"after {kind}")


def kind_of(path: Path) -> str:
    if path.suffix == ".ckpt":
        return "best" if path.stem == "best" else "checkpoint"
    if path.parent.name in ("banks", "teachers", "predictions"):
        return path.parent.name
    return path.name


def rmtree(path: Any, *args: Any, **rest: Any) -> None:
    """A removal may be killed after its first file."""
    for kind, first in (("checkpoints", "best.ckpt"), ("a student", "config.json")):
        if (Path(path) / first).is_file():
            deed = due(f"removal of {kind}")
            if deed is not None:
                (Path(path) / first).unlink()
                do(deed, f"removal of {kind}")
    real_rmtree(path, *args, **rest)


def waiting(message: logging.LogRecord) -> bool:
    """Note that a job waits for a lock."""
    if message.getMessage().startswith("waiting: "):
        note("waits")
    return True


def build(folder: Path, *args: Any, **rest: Any) -> None:
    note(f"bank {folder.name}")
    real_build(folder, *args, **rest)


jobs._attempt, jobs._outcome, bank._build = attempt, outcome, build
logging.getLogger("ilkd_bench.plumbing.files").addFilter(waiting)
os.replace, shutil.rmtree = replace, rmtree


# ------------------------------------------------------------------------------------- training


def in_training() -> None:
    import torch

    from ilkd_bench.teachers import banked
    from ilkd_bench.training import general, inputs, make_teacher, train
    from ilkd_bench.training.module import DistillModule

    banked.FLUSH = 1  # so that a bank of few rows is flushed several times
    fit, save_student, save = train.fit, train.save_student, torch.save
    step, epoch_start = DistillModule.training_step, DistillModule.on_train_epoch_start
    write = bank.Draft.write

    def fitted(*args: Any, **rest: Any) -> Any:
        kind = rest["title"].split()[0]
        state["who"] = kind if kind in ("teacher", "assistant", "general") else "student"
        note(f"fit {state['who']}")
        try:
            return fit(*args, **rest)
        finally:
            state["who"] = "student"

    def training_step(self: Any, *args: Any) -> Any:
        at(f"{state['who']} step")
        return step(self, *args)

    def on_train_epoch_start(self: Any) -> None:
        note(f"epoch {state['who']} {self.first_epoch + self.current_epoch}")
        epoch_start(self)

    def half_saved(content: Any, file: Any, *args: Any, **rest: Any) -> None:
        save(content, file, *args, **rest)
        deed = due(f"half a checkpoint of the {state['who']}")
        if deed is not None:
            file.flush()
            os.ftruncate(file.fileno(), file.tell() // 2)
            do(deed, "half a checkpoint")

    def half_a_student(folder: Path, *args: Any) -> None:
        save_student(folder, *args)
        deed = due("half a student")
        if deed is not None:
            weights = folder / "student" / "model.safetensors"
            os.truncate(weights, weights.stat().st_size // 2)
            do(deed, "half a student")

    def written(self: Any, *args: Any) -> None:
        write(self, *args)
        at("bank write")

    train.fit = inputs.fit = make_teacher.fit = general.fit = fitted
    train.save_student, torch.save = half_a_student, half_saved
    DistillModule.training_step = training_step  # type: ignore[method-assign]
    DistillModule.on_train_epoch_start = on_train_epoch_start  # type: ignore[method-assign]
    bank.Draft.write = written  # type: ignore[method-assign]


# ---------------------------------------------------------------------------------- no training


def without_training() -> None:
    """Put a run that does nothing in place of the training."""

    def train(run: Any, folder: Path) -> Measured:
        at("run")
        time.sleep(SECONDS / 2)
        (folder / "student").mkdir(exist_ok=True)
        (folder / "student" / "model.safetensors").write_bytes(b"weights")
        (folder / "student" / "config.json").write_text("{}")
        if "SABOTAGE_BYTES" in os.environ:  # to fill a disk
            (folder / "student" / "more").write_bytes(b"x" * int(os.environ["SABOTAGE_BYTES"]))
        time.sleep(SECONDS / 2)
        at("end")
        return measured(run.seed)

    import ilkd_bench.training

    fake: Any = types.ModuleType("ilkd_bench.training.train")
    fake.train = train
    sys.modules["ilkd_bench.training.train"] = ilkd_bench.training.train = fake  # type: ignore[attr-defined]
    jobs.hush = lambda: None


if LIGHT:
    without_training()
else:
    in_training()
