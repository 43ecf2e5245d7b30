"""The bar of a training, gone when it is over; a line now and then where there is no terminal."""

from __future__ import annotations

import logging
from types import TracebackType
from typing import Any

import pytorch_lightning as pl

from ilkd_bench.plumbing.terminal import Bars

log = logging.getLogger(__name__)


class Bar(pl.Callback):
    """Show the title, the steps, the epoch and the last dev score."""

    def __init__(self, title: str, epochs: int) -> None:
        self._title, self._epochs = title, epochs
        self._begun = False
        self._progress = Bars()
        self._task = self._progress.add_task(title, total=None, state="")

    def __enter__(self) -> Bar:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def on_train_epoch_start(self, trainer: pl.Trainer, module: Any) -> None:
        """Set the length once the loader's is known; what a resumed training did is behind it."""
        steps = trainer.num_training_batches
        total, done = self._epochs * steps, (module.first_epoch + module.current_epoch) * steps
        if done and not self._begun:
            log.info("%s: goes on after step %d of %d", self._title, done, total)
        self._begun = True
        self._progress.update(self._task, total=total, completed=done)

    def on_train_batch_end(self, trainer: pl.Trainer, *args: Any) -> None:
        """Move on by one step."""
        self._progress.advance(self._task)

    def on_train_epoch_end(self, trainer: pl.Trainer, module: Any) -> None:
        """Tell the epoch and its dev score, or how far the student is from its teacher."""
        epoch = module.first_epoch + module.current_epoch + 1
        score = trainer.callback_metrics.get("monitor", float("nan"))
        state = f"epoch {epoch}/{self._epochs}, dev {score:.4f}"
        if module.without_labels:
            state = f"look {epoch}/{self._epochs}, loss {-score:.4f}"
        self._progress.update(self._task, state=state)
