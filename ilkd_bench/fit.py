"""The training loop of a teacher and of a student: one `trainer.fit` per phase."""

from __future__ import annotations

import logging
import os
import shutil
import signal
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments import LightningEnvironment
from lightning_fabric.plugins.io import TorchCheckpointIO
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint
from pytorch_lightning.utilities.exceptions import SIGTERMException
from torch import Tensor

from ilkd_bench.checkpoints import save_weights
from ilkd_bench.data import EpochBatches, Split, loader, sorted_batches, to_device
from ilkd_bench.environment import device_here, precision_here
from ilkd_bench.methods.base import Method
from ilkd_bench.models import Model
from ilkd_bench.module import DistillModule, Optimisation, Score, Teacher, show
from ilkd_bench.progress import Bar
from ilkd_bench.terminal import track
from ilkd_bench.types import BadInput, Clock, Outputs, Phase

log = logging.getLogger(__name__)


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

    A phase starts from the last weights of the one before, or from its best ones where that asks
    for it (`Phase.carry`). Early stopping watches the last phase only.
    A training that was killed or interrupted goes on from its last whole epoch, and ends as if
    nothing had happened.

    Args:
        folder: takes the checkpoints while training.
        snapshots: where to keep the weights after every epoch.
    """
    history: list[dict[str, Any]] = []
    first_epoch = 0
    scratch = folder / "checkpoint"
    with Bar(title, sum(phase.epochs for phase in phases)) as bar, _kept_for_resume(scratch):
        for number, phase in enumerate(phases):
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
            path, last = scratch / f"phase-{number + 1}.ckpt", phase is phases[-1]
            best_path = scratch / ("best.ckpt" if last else f"{path.stem}-best.ckpt")
            selects = last or phase.carry == "best"
            callbacks: list[pl.Callback] = [bar]
            if snapshots is not None:
                callbacks.append(Snapshots(snapshots))
            if selects:
                callbacks += _selection(best_path, settings.patience if last else None)
            callbacks.append(_every_epoch(path))  # last: it holds which epoch is the best so far
            module.train()  # a loaded model is in eval mode, and Lightning leaves it there
            saved = _load(path) if path.is_file() else None
            if saved is not None and saved["ended"]:
                module.load_state_dict(saved["state_dict"])
                module.on_load_checkpoint(saved)
            else:
                done = 0 if saved is None else len(saved["history"])
                with _interruptible():
                    trainer(settings, phase, callbacks, logger, folder).fit(
                        module,
                        *loaders(splits, settings, first_epoch, done=done),
                        ckpt_path=None if saved is None else path,
                        weights_only=True,
                    )
            if selects:
                best = _load(best_path)
                module.load_state_dict(best["state_dict"])
            history += module.history
            first_epoch += phase.epochs
    return Fitted(
        history=history,
        best_epoch=module.first_epoch + best["epoch"] + 1,
        examples=sum(row["rows"] for row in history),
        seconds=sum(row["seconds"] for row in history),
    )


def _load(path: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
    return loaded


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
def _kept_for_resume(folder: Path) -> Iterator[None]:
    """Remove the checkpoints at the end, unless the training was interrupted."""
    if not all(map(_whole, folder.glob("*.ckpt"))):
        log.warning("the checkpoints in %s are damaged: the training starts again", folder)
        _remove(folder)
    try:
        yield
    except Exception:
        _remove(folder)
        raise
    _remove(folder)


def _remove(folder: Path) -> None:
    """Remove a folder at once: a kill in between leaves no half of it under its name."""
    going = folder.with_name(f".{folder.name}")
    shutil.rmtree(going, ignore_errors=True)
    if folder.is_dir():
        os.replace(folder, going)
        shutil.rmtree(going, ignore_errors=True)


def _whole(path: Path) -> bool:
    """Tell whether a file is what was written; torch reads over flipped bytes."""
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False


class WholeFiles(TorchCheckpointIO):
    """Write checkpoints aside, flush and rename them."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Save so that a reader finds the whole file, or the one before."""
        path = Path(path)
        path.parent.mkdir(parents=True, exist_ok=True)
        aside = path.with_name(f".{path.name}.aside")
        with aside.open("wb") as file:
            torch.save(checkpoint, file)
            file.flush()
            os.fsync(file.fileno())
        os.replace(aside, path)


def _every_epoch(path: Path) -> ModelCheckpoint:
    """Keep all that the next epoch starts from."""
    return ModelCheckpoint(
        dirpath=path.parent,
        filename=path.stem,
        monitor=None,
        save_on_train_epoch_end=True,
        enable_version_counter=False,
    )


class Best(ModelCheckpoint):
    """The best epoch so far, also after the folder has moved."""

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over what was the best, where the file is now."""
        here, score = f"{self.dirpath}/{self.filename}.ckpt", state_dict["best_model_score"]
        moved = {
            "dirpath": self.dirpath,
            "best_model_path": here,
            "kth_best_model_path": here,
            "best_k_models": {} if score is None else {here: score},
        }
        super().load_state_dict(state_dict | moved)


def _selection(path: Path, patience: int | None) -> list[pl.Callback]:
    """Keep the best epoch, from minus infinity on, and stop when it stays the best for long."""
    best = Best(
        dirpath=path.parent,
        filename=path.stem,
        monitor="monitor",
        mode="max",
        save_weights_only=True,
        enable_version_counter=False,
    )
    if patience is None:
        return [best]
    return [best, EarlyStopping("monitor", mode="max", patience=patience)]


def loaders(
    splits: dict[str, Split], settings: Settings, first_epoch: int, *, done: int = 0
) -> tuple[Any, Any]:
    """Return the batches of a phase that starts at `first_epoch`, and those of dev.

    Args:
        done: epochs of the phase before a kill. Lightning asks for the first batches of a resumed
            training before it calls `set_epoch`.
    """
    train, dev = splits["train"], splits["dev"]
    pin = device_here(settings.accelerator).type == "cuda"
    batches = EpochBatches(
        train.lengths, settings.batch_size, seed=settings.seed, first_epoch=first_epoch
    )
    batches.set_epoch(done)
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
        plugins=[WholeFiles(), LightningEnvironment()],  # one process, also inside a Slurm job
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
    teacher.to(device)
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
        for rows in track(batches, "scoring"):
            batch = to_device(split[rows], device)
            logits.append(outputs(batch).logits.float().cpu())
    joined = torch.cat(logits)
    ordered = torch.empty_like(joined)
    ordered[torch.as_tensor([int(row) for rows in batches for row in rows])] = joined
    return ordered
