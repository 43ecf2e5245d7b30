"""The training loop of a teacher and of a student: one `trainer.fit` per phase."""

from __future__ import annotations

import shutil
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from pytorch_lightning.utilities.exceptions import SIGTERMException
from rich.progress import track
from torch import Tensor

from ilkd_bench.checkpoints import save_weights
from ilkd_bench.data import EpochBatches, Split, loader, sorted_batches, to_device
from ilkd_bench.environment import device_here, precision_here
from ilkd_bench.methods.base import Method
from ilkd_bench.models import Model
from ilkd_bench.module import DistillModule, Optimisation, Score, Teacher, show
from ilkd_bench.progress import Bar
from ilkd_bench.terminal import console
from ilkd_bench.types import BadInput, Clock, Outputs, Phase


@dataclass(frozen=True)
class Settings:
    """How to train; the same for all methods."""

    seed: int
    batch_size: int
    patience: int | None  # epochs without a better dev score; None: no early stopping
    gradient_clip: float | None
    precision: str
    optimisation: Optimisation
    accelerator: str
    workers: int
    eval_batch_size: int


class Snapshots(pl.Callback):
    """Keep the weights after every epoch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def on_train_epoch_end(self, trainer: pl.Trainer, module: Any) -> None:
        """Write this epoch's weights."""
        path = self._folder / f"epoch-{trainer.current_epoch + 1:03d}.safetensors"
        save_weights(module.student, path)


@dataclass(frozen=True)
class Fitted:
    """What a training left behind, besides the student at its best epoch."""

    history: list[dict[str, Any]]
    best_epoch: int  # counted from 1 over all phases
    examples: int
    seconds: float  # of training steps, validation excluded


def fit(
    student: Model,
    method: Method,
    weights: dict[str, float],
    teacher: Teacher | None,
    splits: dict[str, Split],
    *,
    phases: Sequence[Phase],
    settings: Settings,
    score: Score,
    monitor: str,
    folder: Path,
    title: str,
    snapshots: Path | None = None,
    logger: Any = False,
) -> Fitted:
    """Train through all phases and load the best epoch of the last one into the student.

    The last weights are carried from phase to phase; early stopping watches the last phase only.

    Args:
        folder: takes the checkpoint while training.
        snapshots: where to keep the weights after every epoch.
    """
    history: list[dict[str, Any]] = []
    first_epoch = 0
    scratch = folder / "checkpoint"
    with Bar(title, sum(phase.epochs for phase in phases)) as bar, _removed(scratch):
        for phase in phases:
            module = DistillModule(
                student,
                method,
                weights,
                teacher,
                phase=phase,
                first_epoch=first_epoch,
                seed=settings.seed,
                optimisation=settings.optimisation,
                score=score,
                monitor=monitor,
            )
            callbacks: list[pl.Callback] = [bar]
            if snapshots is not None:
                callbacks.append(Snapshots(snapshots))
            if phase is phases[-1]:
                callbacks += _selection(scratch, settings.patience)
            module.train()  # a loaded model is in eval mode, and Lightning leaves it there
            with _interruptible():
                trainer(settings, phase, callbacks, logger, folder).fit(
                    module, *loaders(splits, settings, first_epoch)
                )
            history += module.history
            first_epoch += phase.epochs
        best = torch.load(scratch / "best.ckpt", weights_only=True, map_location="cpu")
    module.load_state_dict(best["state_dict"])
    return Fitted(
        history=history,
        best_epoch=module.first_epoch + best["epoch"] + 1,
        examples=sum(row["rows"] for row in history),
        seconds=sum(row["seconds"] for row in history),
    )


@contextmanager
def _interruptible() -> Iterator[None]:
    """Let Ctrl-C and SIGTERM end the whole sweep, not the one training as Lightning has it."""
    try:
        yield
    except SIGTERMException as error:
        raise KeyboardInterrupt from error
    except SystemExit as error:
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise
        signal.signal(signal.SIGINT, signal.default_int_handler)  # Lightning ignores it from now on
        raise KeyboardInterrupt from error


@contextmanager
def _removed(folder: Path) -> Iterator[None]:
    """Remove a folder before and after, also when something goes wrong in between."""
    shutil.rmtree(folder, ignore_errors=True)
    try:
        yield
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _selection(folder: Path, patience: int | None) -> list[pl.Callback]:
    """Keep the best epoch, from minus infinity on, and stop when it stays the best for long."""
    best = ModelCheckpoint(
        dirpath=folder,
        filename="best",
        monitor="monitor",
        mode="max",
        save_weights_only=True,
        enable_version_counter=False,
    )
    if patience is None:
        return [best]
    return [best, EarlyStopping("monitor", mode="max", patience=patience)]


def loaders(splits: dict[str, Split], settings: Settings, first_epoch: int) -> tuple[Any, Any]:
    """Return the batches of a phase that starts at `first_epoch`, and those of dev."""
    train, dev = splits["train"], splits["dev"]
    pin = device_here(settings.accelerator).type == "cuda"
    batches = EpochBatches(
        train.lengths, settings.batch_size, seed=settings.seed, first_epoch=first_epoch
    )
    return (
        loader(train, batches, workers=settings.workers, pin=pin),
        loader(dev, sorted_batches(dev.lengths, settings.eval_batch_size), workers=0, pin=pin),
    )


def trainer(
    settings: Settings, phase: Phase, callbacks: list[pl.Callback], logger: Any, folder: Path
) -> pl.Trainer:
    """Return Lightning's loop for a phase."""
    return pl.Trainer(
        max_epochs=phase.epochs,
        accelerator=device_here(settings.accelerator).type,
        devices=1,
        precision=precision_here(settings.precision, settings.accelerator),
        gradient_clip_val=settings.gradient_clip,
        callbacks=callbacks,
        logger=logger,
        default_root_dir=folder,
        num_sanity_val_steps=0,
        enable_checkpointing=any(isinstance(c, ModelCheckpoint) for c in callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        use_distributed_sampler=False,
    )


def check_terms(
    student: Model,
    method: Method,
    weights: dict[str, float],
    teacher: Teacher,
    split: Split,
    phases: Sequence[Phase],
    device: torch.device,
) -> None:
    """Compute every phase's loss once, on two rows, before anything is trained.

    Raises:
        BadInput: a term has no weight, or a weight belongs to no term of any phase.
    """
    rows = sorted_batches(split.lengths, 2)[-1]
    batch = to_device(split[rows], device)
    terms: set[str] = set()
    student.eval().to(device)
    method.to(device)
    with torch.no_grad():
        for phase in phases:
            clock = Clock(phase, epoch=0, step=0, steps=1, seed=0)
            terms |= set(method.loss(*show(student, teacher, batch, clock), clock))
    for names, text in [
        (terms - set(weights), "the loss has terms without a weight"),
        (set(weights) - terms, "weights that no phase of the method uses"),
    ]:
        if names:
            raise BadInput(f"method.weights: {text}: {', '.join(sorted(names))}")


def predict(
    outputs: Callable[[dict[str, Any]], Outputs], split: Split, batch_size: int, device: Any
) -> Tensor:
    """Return the logits of a whole split in row order, [N, C] on the CPU.

    Args:
        outputs: what the model shows for a batch; the model is in eval mode and on `device`.
    """
    batches = sorted_batches(split.lengths, batch_size)
    logits = []
    with torch.inference_mode():
        hidden = not console.is_terminal
        for rows in track(batches, "scoring", console=console, transient=True, disable=hidden):
            batch = to_device(split[rows], device)
            logits.append(outputs(batch).logits.float().cpu())
    joined = torch.cat(logits)
    ordered = torch.empty_like(joined)
    ordered[torch.as_tensor([int(row) for rows in batches for row in rows])] = joined
    return ordered
