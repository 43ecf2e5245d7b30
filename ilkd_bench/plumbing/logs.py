"""Where log lines go: our own to the terminal, everything to the log of the run."""

from __future__ import annotations

import faulthandler
import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from ilkd_bench.plumbing.own_files import open_to_write
from ilkd_bench.plumbing.terminal import Lines

log = logging.getLogger("ilkd_bench")


@contextmanager
def terminal_lines() -> Iterator[None]:
    """Show our own lines on the terminal; what libraries say never gets there."""
    root = logging.getLogger()
    before = [(logger, logger.handlers, logger.level) for logger in (root, log)]
    root.handlers, log.handlers = [logging.NullHandler()], [Lines()]
    root.setLevel(logging.INFO)
    log.setLevel(logging.INFO)
    logging.captureWarnings(True)
    try:
        yield
    finally:
        logging.captureWarnings(False)
        for logger, handlers, level in before:
            logger.handlers = handlers
            logger.setLevel(level)  # loggers below remember what is enabled until this is called


class RunLog(logging.FileHandler):
    """A file of log lines. On a full disk they are lost: what ends the run tells of the disk."""

    def _open(self) -> Any:
        return open_to_write(Path(self.baseFilename), self.mode)

    def handleError(self, record: logging.LogRecord) -> None:
        if not isinstance(sys.exception(), OSError):
            super().handleError(record)


@contextmanager
def logged(run_log: Path) -> Iterator[None]:
    """Keep what we and the libraries say in the run's log."""
    file = RunLog(run_log, encoding="utf-8")
    file.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logging.getLogger().addHandler(file)
    try:
        yield
    finally:
        logging.getLogger().removeHandler(file)
        file.close()


@contextmanager
def crash_report(path: Path) -> Iterator[None]:
    """Have the interpreter write where it was when it crashes; remove the file where it did not."""
    try:
        with open_to_write(path, "w") as file:
            faulthandler.enable(file)
            try:
                yield
            finally:
                faulthandler.disable()
    finally:
        remove_empty(path)


def remove_empty(path: Path) -> None:
    """Remove a file that has nothing in it."""
    if path.is_file() and path.stat().st_size == 0:
        path.unlink()


LIBRARIES = (
    *("transformers", "huggingface_hub", "pytorch_lightning", "lightning_fabric"),
    *("lightning.pytorch", "lightning.fabric"),
)
"""Loggers that come with handlers of their own for the terminal."""


def hush() -> None:
    """Send what libraries say to the log only, if there is one; no bars of transformers."""
    from transformers.utils import logging as hf

    hf.disable_progress_bar()
    root = logging.getLogger()
    if not root.handlers:  # else Python prints warnings that nobody handles
        root.addHandler(logging.NullHandler())
    for name in LIBRARIES:
        library = logging.getLogger(name)
        library.handlers, library.propagate = [], True
