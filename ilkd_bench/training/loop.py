"""The training loop of a teacher and of a student: one `trainer.fit` per phase."""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.environments import LightningEnvironment
from pytorch_lightning.callbacks import ModelCheckpoint
from pytorch_lightning.utilities.exceptions import SIGTERMException
from torch import Tensor

from ilkd_bench.data.batches import EpochBatches, Split, loader, sorted_batches
from ilkd_bench.methods.base import Method
from ilkd_bench.models.layers import PROJECTIONS
from ilkd_bench.models.model import Model
from ilkd_bench.models.seen_words import seen_words
from ilkd_bench.plumbing.hardware import device_here, precision_here
from ilkd_bench.teachers.live import Teacher
from ilkd_bench.training.checkpoints import (
    Snapshots,
    WholeFiles,
    best_epoch,
    every_epoch,
    kept_for_resume,
    load,
)
from ilkd_bench.training.module import DistillModule, Optimisation, Score, weighted_sum
from ilkd_bench.training.progress import Bar
from ilkd_bench.types import BadInput, Clock, Outputs, Phase, Rows, Spec

log = logging.getLogger(__name__)


LARGEST_LOSS = 1e15
"""Above it the squares of the gradients, of which their norm is made, leave float32."""


@dataclass(frozen=True)
class FitSettings:
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
    steps: int | None = None  # of an epoch, which then is a stretch of the rows; None: all rows


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
    settings: FitSettings,
    score: Score | None,
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
    with (
        Bar(title, sum(phase.epochs for phase in phases)) as bar,
        kept_for_resume(scratch, snapshots),
        only_words_of(student, splits),
    ):
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
                callbacks += best_epoch(best_path, settings.patience if last else None)
            callbacks.append(every_epoch(path))  # last: it holds which epoch is the best so far
            module.train()  # a loaded model is in eval mode, and Lightning leaves it there
            saved = load(path) if path.is_file() else None
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
                best = load(best_path)
                module.load_state_dict(best["state_dict"])
            history += module.history
            first_epoch += phase.epochs
    return Fitted(
        history=history,
        best_epoch=module.first_epoch + best["epoch"] + 1,
        examples=sum(row["rows"] for row in history),
        seconds=sum(row["seconds"] for row in history),
    )


def only_words_of(student: Model, splits: dict[str, Split]) -> AbstractContextManager[None]:
    """Train on the embeddings of the words that the rows have, where these are not all."""
    words = [splits[name].words for name in ("train", "dev")]
    known = [numbers for numbers in words if numbers is not None]
    if len(known) < len(words):
        return nullcontext()
    return seen_words(student.hf, torch.from_numpy(np.concatenate(known)).long())


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


def loaders(
    splits: dict[str, Split], settings: FitSettings, first_epoch: int, *, done: int = 0
) -> tuple[Any, Any]:
    """Return the batches of a phase that starts at `first_epoch`, and those of dev.

    Args:
        done: epochs of the phase before a kill. Lightning asks for the first batches of a resumed
            training before it calls `set_epoch`.
    """
    train, dev = splits["train"], splits["dev"]
    pin = device_here(settings.accelerator).type == "cuda"
    batches = EpochBatches(
        train.lengths,
        settings.batch_size,
        seed=settings.seed,
        first_epoch=first_epoch,
        steps=settings.steps,
    )
    batches.set_epoch(done)
    return (
        loader(train, batches, workers=settings.workers, pin=pin),
        loader(dev, sorted_batches(dev.lengths, settings.eval_batch_size), workers=0, pin=pin),
    )


def trainer(
    settings: FitSettings, phase: Phase, callbacks: list[pl.Callback], logger: Any, folder: Path
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
    method: Method,
    weights: dict[str, float],
    phases: Sequence[Phase],
    student: Spec,
    teacher: Spec,
    rows: Rows,
) -> None:
    """Compute every phase's loss once, of made-up outputs, before anything is trained.

    Args:
        rows: a few of the training rows.

    Raises:
        BadInput: a term has no weight, a weight belongs to no term of any phase, or the loss is no
            number to train with.
    """
    losses: list[dict[str, Tensor]] = []
    with torch.no_grad():
        for phase in phases:
            clock = Clock(phase, epoch=0, step=0, steps=1, seed=0)
            s, t = (
                _made_up(spec, phase.needs, len(rows.labels), seed)  # a loss of equals may be 0
                for seed, spec in enumerate((student, teacher))
            )
            losses.append(dict(method.loss(s, t, rows, clock)))
    terms = {name for loss in losses for name in loss}
    for names, text in [
        (terms - set(weights), "the loss has terms without a weight"),
        (set(weights) - terms, "weights that no phase of the method uses"),
    ]:
        if names:
            raise BadInput(f"method.weights: {text}: {', '.join(sorted(names))}")
    for loss in losses:
        if any(term.is_meta for term in loss.values()):
            continue  # of a method without numbers
        for name, term in loss.items():
            if not term.isfinite():
                raise BadInput(
                    f"method: its loss term {name} is no finite number with these settings: give "
                    "ones nearer to those of its YAML"
                )
        if not weighted_sum(loss, weights).abs() <= LARGEST_LOSS:
            name = max(loss, key=lambda n: abs(weights[n]))
            raise BadInput(
                f"method.weights.{name}={weights[name]:g}: with it the loss is beyond "
                f"{LARGEST_LOSS:g}, where float32 cannot train: give a smaller weight"
            )


def _made_up(spec: Spec, needs: frozenset[str], rows: int, seed: int) -> Outputs:
    """Return outputs in the shapes that a model of these sizes shows, for rows of three tokens."""
    tokens = 3
    layers, width, heads = spec.layers, spec.width, spec.heads
    per_layer = {
        "hidden": (layers + 1, (rows, tokens, width)),
        "attention": (layers, (rows, heads, tokens, tokens)),
        **dict.fromkeys(PROJECTIONS, (layers, (rows, heads, tokens, width // heads))),
    }
    draw = torch.Generator().manual_seed(seed)
    shown: dict[str, Any] = {
        name: tuple(torch.rand(shape, generator=draw) for _ in range(count))
        for name, (count, shape) in per_layer.items()
        if name in needs
    }
    shown |= {
        name: torch.rand(rows, layers + 1, width, generator=draw)
        for name in needs & {"cls", "mean"}
    }
    logits = torch.rand(rows, spec.classes, generator=draw)
    return Outputs(logits, torch.ones(rows, tokens, dtype=torch.long), **shown)
