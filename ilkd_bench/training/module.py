"""One phase of one method as a LightningModule."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import pytorch_lightning as pl
import torch
from torch import Tensor

from ilkd_bench.data.batches import to_device
from ilkd_bench.functional.schedules import linear_warmup
from ilkd_bench.methods.base import Method
from ilkd_bench.models.model import Model
from ilkd_bench.teachers.live import Teacher
from ilkd_bench.training.checkpoints import FORMAT
from ilkd_bench.types import Clock, Outputs, Phase, Rows, TrainingBatch

Score = Callable[[Tensor, Tensor], dict[str, float]]
"""(logits [N, C], labels [N]) -> metrics by name."""

CLOSENESS = "closeness"
"""What selects the best epoch where there are no labels: minus the loss on dev."""


@dataclass(frozen=True)
class Optimisation:
    """How weights are updated, equal for all methods."""

    lr: float
    weight_decay: float
    warmup_ratio: float
    lr_key: str = "lr"  # the setting that the learning rate comes from


def weighted_sum(terms: Mapping[str, Tensor], weights: Mapping[str, float]) -> Tensor:
    """Return the sum of the terms times their weights.

    Raises:
        ValueError: a term has no weight.
    """
    unweighted = sorted(set(terms) - set(weights))
    if unweighted:
        raise ValueError(
            f"no weight for the loss term {', '.join(unweighted)}: add it to the method's weights"
        )
    return sum((weights[name] * term for name, term in terms.items()), start=torch.tensor(0.0))


class Distance:
    """How far a student is from its teacher: the mean of each loss term over rows."""

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        self._sums: dict[str, float] = {}
        self._rows = 0

    def add(self, terms: Mapping[str, Tensor], rows: int) -> None:
        """Take in the loss terms of some rows, each a mean over them."""
        self._rows += rows
        for name, value in (*terms.items(), ("total", weighted_sum(terms, self._weights))):
            self._sums[name] = self._sums.get(name, 0.0) + float(value) * rows

    def scores(self) -> dict[str, float]:
        """Return the mean of each term, and `CLOSENESS`."""
        means = {name: total / self._rows for name, total in self._sums.items()}
        return {CLOSENESS: -means.pop("total")} | means


def both_outputs(
    student: Model, teacher: Teacher | None, batch: TrainingBatch, clock: Clock
) -> tuple[Outputs, Outputs, Rows]:
    """Return what the student, the teacher (None where not needed) and the batch give a loss.

    The teacher answers in 32 bit, as its bank does, whatever the student computes in.
    """
    phase, t = clock.phase, None
    if phase.needs and teacher is not None:
        at = None if phase.teacher_at is None else phase.teacher_at(clock.epoch)
        with torch.autocast(batch["labels"].device.type, enabled=False):
            t = teacher.outputs(batch, phase.needs, at)
    s = student.outputs(batch["student"], phase.needs)
    return s, cast(Outputs, t), Rows(batch["labels"], batch["index"])


class DistillModule(pl.LightningModule):
    """Train a student for one phase. Names no method.

    Args:
        student, method: what is optimised; both carry over from phase to phase.
        teacher: not a module and not registered as one.
        phase: what to train now.
        first_epoch: of this phase, counted over the whole run.
        seed: every random number of an epoch derives from it and the epoch.
        score: computes the dev metrics; None: there are no labels, and what counts on dev is how
            close the student is to the teacher.
        monitor: the metric among them that selects the best epoch.
    """

    def __init__(
        self,
        student: Model,
        method: Method,
        weights: Mapping[str, float],
        teacher: Teacher | None,
        *,
        phase: Phase,
        first_epoch: int,
        seed: int,
        optimisation: Optimisation,
        score: Score | None,
        monitor: str,
    ) -> None:
        super().__init__()
        self.student = student
        self.method = method
        self.weights = dict(weights)
        self.phase = phase
        self.first_epoch = first_epoch
        self.seed = seed
        self.history: list[dict[str, Any]] = []
        self._teacher = [teacher]  # in a list: Lightning must not see it
        self._optimisation = optimisation
        self._score = score
        self._monitor = monitor
        self._steps = 0

    @property
    def without_labels(self) -> bool:
        """Whether what counts on dev is how close the student is to the teacher."""
        return self._score is None

    @property
    def clock(self) -> Clock:
        """The present moment of this phase."""
        return Clock(
            phase=self.phase,
            epoch=self.current_epoch,
            step=self.global_step,
            steps=self._steps,
            seed=self.seed,
        )

    def configure_optimizers(self) -> Any:
        """AdamW without decay on biases and norms, linear warm-up and decay per step."""
        o, named = self._optimisation, list(self.named_parameters())
        groups = [
            {"params": [p for _, p in named if p.ndim > 1], "weight_decay": o.weight_decay},
            {"params": [p for _, p in named if p.ndim <= 1], "weight_decay": 0.0},
        ]
        lr = (o.lr if self.phase.lr is None else self.phase.lr) * self.phase.lr_factor
        optimizer = torch.optim.AdamW(groups, lr=lr, fused=True)
        # Fused AdamW could undo the loss scale of 16-bit training itself, after the clipping;
        # Lightning then refuses to clip. Without this mark the scale is undone before.
        optimizer._step_supports_amp_scaling = False
        steps = self._steps = int(self.trainer.estimated_stepping_batches)
        warmup = math.ceil(o.warmup_ratio * steps)
        schedule = torch.optim.lr_scheduler.LambdaLR(
            optimizer, lambda step: linear_warmup(step, steps=steps, warmup=warmup)
        )
        return {
            "optimizer": optimizer,
            "lr_scheduler": {"scheduler": schedule, "interval": "step"},
        }

    def transfer_batch_to_device(
        self, batch: TrainingBatch, device: torch.device, dataloader_idx: int
    ) -> TrainingBatch:
        """Move a batch, what both models share once."""
        return to_device(batch, device)

    def on_fit_start(self) -> None:
        """Bring the teacher to the student's device."""
        if self._teacher[0] is not None:
            self._teacher[0].to(self.device)

    def on_train_epoch_start(self) -> None:
        """Draw everything of this epoch from (seed, epoch); switch the student to train mode."""
        epoch = self.first_epoch + self.current_epoch
        torch.manual_seed(self.seed * 1_000_003 + epoch)
        self.train()
        self._sums: dict[str, Tensor] = {}
        self._rows = 0
        self._diagnosis: dict[str, Any] = {}
        self._started = time.perf_counter()

    def training_step(self, batch: TrainingBatch, number: int) -> Tensor:
        """Return the weighted loss of a batch."""
        terms = self.terms(batch, diagnose=number == 0)
        total = weighted_sum(terms, self.weights)
        rows = len(batch["index"])
        self._rows += rows
        for name, value in (*terms.items(), ("total", total)):
            self._sums[name] = self._sums.get(name, 0) + value.detach() * rows
        return total

    def terms(self, batch: TrainingBatch, *, diagnose: bool = False) -> dict[str, Tensor]:
        """Return the method's unweighted terms for a batch, computed in float32.

        The method may then remember the batch, so this is called once per training step.
        """
        clock = self.clock
        s, t, rows = both_outputs(self.student, self._teacher[0], batch, clock)
        with torch.autocast(self.device.type, enabled=False):
            if diagnose:
                with torch.no_grad():
                    self._diagnosis = self.method.diagnose(s, t, rows, clock)
            terms = self.method.loss(s, t, rows, clock)
            with torch.no_grad():
                self.method.remember(s, t, rows, clock)
        return terms

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Keep the history, and whether this phase is over."""
        checkpoint["format"] = FORMAT
        checkpoint["history"] = self.history
        last = self.current_epoch + 1 >= self.phase.epochs
        checkpoint["ended"] = last or bool(self.trainer.should_stop)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Take the history over."""
        self.history = checkpoint["history"]

    def on_validation_epoch_start(self) -> None:
        """Note when training paused, and start collecting."""
        if self.device.type == "cuda":
            torch.cuda.synchronize()  # what is queued belongs to the training
        self._paused = time.perf_counter()
        self._logits: list[Tensor] = []
        self._labels: list[Tensor] = []
        self._distance = Distance(self.weights)

    def validation_step(self, batch: TrainingBatch, number: int) -> None:
        """Collect predictions in 32 bit; scores are never means over batches."""
        with torch.autocast(self.device.type, enabled=False):
            if self._score is None:
                s, t, rows = both_outputs(self.student, self._teacher[0], batch, self.clock)
                self._distance.add(self.method.loss(s, t, rows, self.clock), len(rows.index))
                return
            logits = self.student.outputs(batch["student"], frozenset()).logits
        self._logits.append(logits.cpu())
        self._labels.append(batch["labels"].cpu())

    def on_validation_epoch_end(self) -> None:
        """Score the whole dev set."""
        if self._score is None:
            scores = self._distance.scores()
            self._answers = all(map(math.isfinite, scores.values()))
        else:
            logits = torch.cat(self._logits)
            self._answers = bool(torch.isfinite(logits).all())
            scores = self._score(logits, torch.cat(self._labels))
        self._dev = {f"dev/{name}": float(value) for name, value in scores.items()}
        self.log("monitor", scores[self._monitor], logger=False)

    def on_train_epoch_end(self) -> None:
        """Append the epoch to the history.

        Raises:
            FloatingPointError: a loss term, or an answer on dev, is not finite any more.
        """
        losses = {name: (value / self._rows).item() for name, value in self._sums.items()}
        wrong = [name for name, value in losses.items() if not math.isfinite(value)]
        if wrong or not self._answers:
            what = f"the loss ({', '.join(wrong)}) is" if wrong else "the logits on dev are"
            raise FloatingPointError(
                f"{what} not finite in epoch {self.current_epoch + 1} of phase {self.phase.name}: "
                f"try a lower {self._optimisation.lr_key}="
            )
        row: dict[str, Any] = (
            {
                "phase": self.phase.name,
                "epoch": self.first_epoch + self.current_epoch + 1,
                "seconds": self._paused - self._started,
                "rows": self._rows,
                "lr": self.trainer.optimizers[0].param_groups[0]["lr"],
            }
            | {f"loss/{name}": value for name, value in losses.items()}
            | self._dev
            | self._diagnosis
        )
        self.history.append(row)
        if self.logger is not None:
            self.logger.log_metrics(row, step=row["epoch"])
