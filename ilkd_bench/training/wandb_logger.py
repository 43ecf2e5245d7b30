"""The mirror of a run at Weights & Biases. The record on disk is the truth; a mirror only warns.

W&B lives in a process of its own (`wandb_process`), one per run. Messages are handed over without
waiting; only at its end a run waits for a few seconds.
"""

from __future__ import annotations

import json
import logging
import os
import select
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import IO, Any, cast

from pytorch_lightning.loggers.logger import Logger

from ilkd_bench.records.cells import place
from ilkd_bench.settings.run import Run, WandB
from ilkd_bench.training import wandb_process

log = logging.getLogger(__name__)

LONGEST_TAG = 64
"""Characters; W&B refuses a run with a longer tag."""


@contextmanager
def tracker(run: Run, folder: Path) -> Iterator[Any]:
    """Give Lightning's `logger` for a run: False, or its mirror, closed at the end."""
    if not isinstance(run.logger, WandB):
        yield False
        return
    mirrored = Mirror(run.logger, folder)
    mirrored.send("start", opening(run, run.logger, folder))
    try:
        yield mirrored
    except BaseException as error:
        mirrored.send("summary", {"status": "failed", "reason": f"{type(error).__name__}: {error}"})
        mirrored.close(1)
        raise
    mirrored.close(0)


def opening(run: Run, choice: WandB, folder: Path) -> dict[str, Any]:
    """Return what a W&B run starts with.

    Beside the whole configuration it has `section`, `row` and `column`: runs that agree in these
    and in `lr` and `batch_size` differ in their seed only.
    """
    task, method = run.task.name, run.method.name
    pair = f"{run.teacher.name}-{run.student.name}"
    cell = place(run.identity)
    return {
        "mode": choice.mode,
        "timeout": choice.timeout,
        "upload": choice.upload,
        "init": {
            "project": choice.project,
            "entity": choice.entity,
            "group": choice.group,
            "name": f"{task} {method} {folder.name}",
            "tags": [tag[:LONGEST_TAG] for tag in (method, task, pair)],
            "dir": str(folder.resolve()),
            "config": run.model_dump(by_alias=True)
            | {"task": asdict(run.task)}
            | {"section": cell["section"], "row": cell["method"], "column": cell["task"]},
        },
    }


def flat(record: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """Return nested values as one level of keys such as `scores/dev/accuracy`."""
    result: dict[str, Any] = {}
    for key, value in record.items():
        if isinstance(value, dict):
            result |= flat(value, f"{prefix}{key}/")
        else:
            result[prefix + key] = value
    return result


def numbers(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of the history with its lists of numbers also as numbers, which can be plotted.

    `layers: 2 5` becomes `layers/1: 2` and `layers/2: 5` too.
    """
    plottable = dict(row)
    for key, value in row.items():
        parts = value.split() if isinstance(value, str) else []
        if all(part.isdigit() for part in parts):
            plottable |= {f"{key}/{place}": int(part) for place, part in enumerate(parts, 1)}
    return plottable


class Mirror(Logger):
    """What a run tells W&B. No method raises or waits, but for `close`.

    Args:
        choice: the settings of the logger.
        folder: of the run; `folder/wandb` takes what W&B keeps.
    """

    def __init__(self, choice: WandB, folder: Path) -> None:
        super().__init__()
        self._choice = choice
        self._folder = folder
        self._unsent = bytearray()
        self._epochs: set[int] = set()
        self._warned = False
        self._process: subprocess.Popen[bytes] | None = None
        try:
            self._process = self._started()
        except OSError as error:
            self._warn(f"W&B: {error}")

    def _started(self) -> subprocess.Popen[bytes]:
        logs = self._folder / "wandb"
        logs.mkdir(parents=True, exist_ok=True)
        with (logs / "mirror.log").open("ab") as file:
            process = subprocess.Popen(
                [sys.executable, "-P", wandb_process.__file__],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=file,
                bufsize=0,
                env=wandb_process.environment(),
                start_new_session=True,  # Ctrl-C is for the run, which then says how it ended
            )
        self._input = cast(IO[bytes], process.stdin)
        self._answers = cast(IO[bytes], process.stdout)
        for pipe in (self._input, self._answers):
            os.set_blocking(pipe.fileno(), False)
        return process

    @property
    def name(self) -> str:
        """The kind of logger."""
        return "wandb"

    @property
    def version(self) -> str:
        """The run."""
        return self._folder.name

    def log_hyperparams(self, *args: Any, **kwargs: Any) -> None:
        """Do nothing: the configuration is there from the start."""

    def log_metrics(self, metrics: Mapping[str, Any], step: int | None = None) -> None:
        """Tell an epoch's row of the history."""
        if step is not None:
            self._epochs.add(step)
        self.send("log", numbers(metrics))

    def finish(self, record: Mapping[str, Any], history: Sequence[Mapping[str, Any]]) -> None:
        """Tell the record as summary, the epochs before an interruption, and give the student.

        Args:
            record: the measured part.
            history: of all epochs.
        """
        for row in history:
            if row["epoch"] not in self._epochs:
                self.log_metrics(row, step=row["epoch"])
        self.send("summary", {"status": "done"} | flat(record))
        student = self._folder / "student"
        if self._choice.artifact and student.is_dir():
            try:
                kept = _linked(student, self._folder / "wandb" / "student")
            except OSError as error:
                self._warn(f"W&B gets no student: {error}")
                return
            name = f"student-{self._folder.name}"
            about = {"scores": record["scores"]}
            self.send("student", {"name": name, "folder": str(kept), "metadata": about})

    def send(self, kind: str, value: Any) -> None:
        """Hand a message over, as far as the pipe takes it now."""
        if self._process is not None:
            self._unsent += json.dumps([kind, value], default=str).encode() + b"\n"
            self._flush()
            self._listen()

    def _flush(self) -> None:
        try:
            while self._unsent:
                written = self._input.write(self._unsent)
                if not written:
                    return  # the pipe is full
                del self._unsent[:written]
        except OSError:  # it ended; what it told says why
            self._unsent.clear()

    def _listen(self) -> None:
        answers = self._answers.read() or b""
        for line in answers.decode(errors="replace").splitlines():
            self._warn(line)

    def _warn(self, text: str) -> None:
        """Warn once per run; the rest is in the log of the process."""
        if not self._warned:
            log.warning(text)
        self._warned = True

    def close(self, code: int) -> None:
        """Say how the run ended, and wait a few seconds for W&B."""
        self.send("finish", code)
        process, self._process = self._process, None
        if process is None:
            return
        deadline = time.monotonic() + self._choice.wait

        def remaining() -> float:
            return max(0.0, deadline - time.monotonic())

        while self._unsent and select.select([], [self._input], [], remaining())[1]:
            self._flush()
        self._input.close()
        try:
            ended: int | None = process.wait(remaining())
        except subprocess.TimeoutExpired:
            ended = None
        self._listen()
        self._answers.close()
        if ended is None:
            threading.Thread(target=process.wait, daemon=True).start()  # leaves no zombie
            self._warn(
                f"W&B is not done {self._choice.wait:g} s after the run and goes on in the "
                f"background; what does not arrive: wandb sync {self._folder}/wandb/*run-*"
            )
        elif ended != 0:
            self._warn(f"W&B ended early ({ended}): {self._folder}/wandb/mirror.log")


def _linked(student: Path, aside: Path) -> Path:
    """Return a copy of the student that outlives it, without taking room where that is possible."""
    shutil.rmtree(aside, ignore_errors=True)
    try:
        shutil.copytree(student, aside, copy_function=os.link)
    except (OSError, shutil.Error):  # the file system knows no hard links
        shutil.rmtree(aside, ignore_errors=True)
        shutil.copytree(student, aside)
    return aside.resolve()
