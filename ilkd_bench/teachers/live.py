"""Whatever answers for the teacher; here by running the model on every batch."""

from __future__ import annotations

import hashlib
import logging
import math
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Protocol

import torch
from safetensors.torch import load_file

from ilkd_bench.models.model import Model
from ilkd_bench.plumbing.files import content_hash, digest
from ilkd_bench.types import Outputs, Spec, TrainingBatch

log = logging.getLogger(__name__)

LOGITS = frozenset({"logits"})

IRRELEVANT = frozenset(
    "_name_or_path architectures dtype id2label label2id problem_type transformers_version".split()
)
"""Settings of a model that change nothing of what it computes."""


class LiveTeacher:
    """A frozen teacher that is run on every batch.

    It is no `nn.Module`, so that no optimiser, checkpoint or `.train()` of the student's module can
    reach it.

    Args:
        model: the teacher at its best epoch; or before its training, after which `settle` is
            called.
        label_order: for each label of the task, the teacher's output of that name; None: the same.
        snapshots: its weights after each epoch of its training, oldest first; empty: none.
        name: what the listing of banks calls it.
    """

    source = "live"

    def __init__(
        self,
        model: Model,
        *,
        label_order: list[int] | None = None,
        snapshots: Sequence[Path] = (),
        name: str = "",
    ) -> None:
        self.name = name
        self._model = model
        self.label_order = label_order
        self._at: float | None = None
        self.settle(snapshots)

    def settle(self, snapshots: Sequence[Path]) -> None:
        """Freeze the model, whose weights are now those of the teacher's best epoch.

        Args:
            snapshots: its weights after each epoch of its training, oldest first; empty: none.
        """
        self._model.eval().requires_grad_(False)
        self.snapshots = list(snapshots)
        best = self._model.hf.state_dict()
        self._best = {k: v.clone() for k, v in best.items()} if snapshots else best

    @property
    def spec(self) -> Spec:
        """The teacher's sizes."""
        return self._model.spec

    @property
    def model(self) -> Model:
        """The model at its best epoch, e.g. to copy layers from."""
        self._go_to(None)
        return self._model

    def to(self, device: torch.device) -> None:
        """Move the teacher to a device."""
        self._model.to(device)

    @torch.no_grad()
    def outputs(
        self, batch: TrainingBatch, needs: frozenset[str], at: float | None = None
    ) -> Outputs:
        """Return what the teacher shows for a batch, its logits in the task's label order.

        Args:
            at: fraction (0, 1] of the teacher's training; None: its best epoch.
        """
        self._go_to(at)
        outputs = self._model.outputs(batch["teacher"], needs)
        if self.label_order is None:
            return outputs
        return replace(outputs, logits=outputs.logits[:, self.label_order])

    def _go_to(self, at: float | None) -> None:
        if at == self._at:
            return
        weights = self._best if at is None else load_file(self._snapshot(at))
        self._model.hf.load_state_dict(weights)
        self._at = at

    def _snapshot(self, at: float) -> Path:
        return self.snapshots[snapshot_at(at, len(self.snapshots))]

    def fingerprint(self, at: float | None) -> str:
        """Return what identifies all that the teacher shows: architecture, weights, label order."""
        config = self._model.hf.config.to_dict()
        about = {k: v for k, v in sorted(config.items()) if k not in IRRELEVANT}
        weights = self._weights if at is None else content_hash(self._snapshot(at))
        return digest([type(self._model.hf).__name__, repr(about), self.label_order, weights])

    @cached_property
    def _weights(self) -> str:
        content = hashlib.sha256()
        for name, value in self.model.hf.state_dict().items():
            content.update(name.encode())
            content.update(value.cpu().contiguous().numpy().data)
        return content.hexdigest()


def snapshot_at(at: float, count: int) -> int:
    """Return the number of the first of `count` snapshots at or after a fraction of a training."""
    return max(0, math.ceil(at * count - 1e-9) - 1)


class Teacher(Protocol):
    """Whatever answers for the teacher."""

    source: str  # "live", or "bank" and the dtype of what it keeps

    def to(self, device: torch.device) -> None: ...

    def outputs(
        self, batch: TrainingBatch, needs: frozenset[str], at: float | None = None
    ) -> Outputs: ...
