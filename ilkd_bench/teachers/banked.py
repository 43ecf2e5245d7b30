"""A teacher that answers from its bank: what it showed before, row by row."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ilkd_bench.data.batches import Split, sorted_batches, to_device
from ilkd_bench.models.layers import projection_width
from ilkd_bench.plumbing.cores import all_cores
from ilkd_bench.plumbing.files import digest
from ilkd_bench.plumbing.shared import discard
from ilkd_bench.plumbing.terminal import track
from ilkd_bench.teachers.bank import FORMAT, Draft, half_built, obtain
from ilkd_bench.teachers.live import LOGITS, LiveTeacher, snapshot_at
from ilkd_bench.teachers.per_token import PER_TOKEN, Tokens, layers_of
from ilkd_bench.types import Outputs, Phase, Spec, TrainingBatch

log = logging.getLogger(__name__)
BANKED = frozenset({"logits", "cls", "mean"})
"""What a bank for all methods keeps: few numbers per row. Of snapshots it keeps the logits only."""

KEPT = BANKED | PER_TOKEN
"""What banks can keep; of tokens, which take much room, what is asked for and no more."""

RESIDENT = 0.1
"""The share of a GPU's free memory up to which a bank is kept there."""

FLUSH = 32
"""Batches between two flushes of a bank that is being built."""


class BankTeacher:
    """A frozen teacher that shows what it showed before, row by row.

    Args:
        arrays: of its best epoch, `logits` [N, C] and maybe `cls` and `mean` [N, L+1, H].
        index: the row number within the split of each of the N rows.
        snapshots: logits [N, C] after an epoch of its training, by number of the snapshot.
        count: of all snapshots of its training.
        tokens: where the tokens are; None: there are none.
    """

    def __init__(
        self,
        arrays: dict[str, np.ndarray],
        index: Tensor,
        *,
        snapshots: dict[int, np.ndarray] | None = None,
        count: int = 0,
        tokens: Tokens | None = None,
    ) -> None:
        self._arrays: dict[Any, Any] = {**arrays, **(snapshots or {})}  # by field, or by snapshot
        self._count = count
        self._tokens = tokens
        dtypes = {array.dtype.name for array in self._arrays.values()}
        self.source = f"bank, {'float16' if 'float16' in dtypes else 'float32'}"
        self._place = torch.full((int(index.max()) + 1,), -1)  # row number -> place in the bank
        self._place[index] = torch.arange(len(index))

    def to(self, device: torch.device) -> None:
        """Keep the bank on a device if it is small against the memory that is free there."""
        if device.type != "cuda":
            return
        size = sum(array.nbytes for array in self._arrays.values())
        if self._place.device != device and fits(size, torch.cuda.mem_get_info(device)[0]):
            self.keep_on(device)

    def keep_on(self, device: torch.device) -> None:
        """Copy the whole bank to a device, from where rows are then taken."""
        self._place = self._place.to(device)
        if self._tokens is not None:
            self._tokens = replace(self._tokens, offsets=self._tokens.offsets.to(device))
        for name, array in self._arrays.items():
            self._arrays[name] = torch.from_numpy(np.array(array)).to(device)

    def outputs(
        self, batch: TrainingBatch, needs: frozenset[str], at: float | None = None
    ) -> Outputs:
        """Return what the teacher showed for these rows; see `LiveTeacher.outputs`.

        Raises:
            LookupError: a row is not in the bank.
        """
        mask = batch["teacher"]["attention_mask"]
        index = batch["index"].to(self._place.device)  # to the CPU it is read at once
        place = self._place[index]
        if place.device.type == "cpu" and (place < 0).any():  # elsewhere the test would wait
            raise LookupError(f"rows {index[place < 0].tolist()} are not in the teacher's bank")
        if at is not None:
            logits = self._arrays[snapshot_at(at, self._count)]
            return Outputs(_rows(logits, place, mask.device).float(), mask)
        fields: dict[str, Any] = {
            name: _rows(self._arrays[name], place, mask.device).float()
            for name in (needs - PER_TOKEN) | LOGITS
        }
        if self._tokens is not None:
            places = self._tokens.places(place, mask.shape[1])
            for name in needs & PER_TOKEN:
                rows = _rows(self._arrays[name], places, mask.device)
                fields[name] = self._tokens.spread(name, rows)
        return Outputs(mask=mask, **fields)


def fits(size: int, free: int) -> bool:
    """Tell whether a bank of `size` bytes should take up room on a device."""
    return size <= RESIDENT * free


def _rows(array: np.ndarray | Tensor, place: Tensor, device: torch.device) -> Tensor:
    """Return some rows, or tokens, on a device, in the dtype of the bank."""
    if isinstance(array, Tensor):
        return array[place]
    rows = torch.from_numpy(array[place.numpy()])
    if device.type == "cuda":
        rows = rows.pin_memory()
    return rows.to(device, non_blocking=True)


def can_bank(phases: Iterable[Phase]) -> bool:
    """Tell whether banks hold all that the phases need of the teacher."""
    return all(p.needs <= (KEPT if p.teacher_at is None else LOGITS) for p in phases)


def has_tokens(phases: Iterable[Phase]) -> bool:
    """Tell whether a bank for these phases has tokens."""
    return any(phase.needs & PER_TOKEN for phase in phases)


def banked(
    live: LiveTeacher,
    split: Split,
    phases: Sequence[Phase],
    *,
    about: Mapping[str, Any],
    dtype: str,
    batch_size: int,
    device: torch.device,
    cache_dir: Path,
    share: float = 1,
) -> BankTeacher:
    """Return a teacher that answers from banks, which are built where they are missing.

    Args:
        phases: what will be asked of it.
        about: what the listing of banks says of them: teacher, task, split.
        dtype: of the features; logits are float32.
        batch_size: of the rows that are computed together.
        share: of the free disk that a bank of tokens may take.

    Raises:
        NoRoom: too little space.
        BadInput: features beyond the range of `dtype`.
    """
    offsets = split.teacher.offsets
    plain = [phase.needs for phase in phases if phase.teacher_at is None]
    asked = frozenset().union(*plain)
    widths = {
        name: live.spec.width if name == "hidden" else projection_width(live.model.hf, name)
        for name in asked & PER_TOKEN
    }
    tokens = Tokens(layers_of(phases, live.spec), live.spec, torch.from_numpy(offsets), widths)

    def bank(fields: frozenset[str], at: float | None = None) -> dict[str, np.ndarray]:
        def fill(draft: Draft) -> None:
            live.to(device)
            with all_cores(live.model.size):
                _fill(draft, live, split, fields, tokens, at, batch_size, device)
            live.to(torch.device("cpu"))

        asked, folder = fields, where(fields, at)
        if at is None and fields <= BANKED and where(BANKED, at).is_dir():  # it has the logits too
            if half_built(folder).is_dir():  # by a run that was killed
                discard(half_built(folder), folder.name)
            fields, folder = BANKED, where(BANKED, at)
        by_token = fields & PER_TOKEN
        shapes = _shapes(live.spec, len(split), fields, tokens, dtype)
        epoch = None if at is None else snapshot_at(at, len(live.snapshots)) + 1
        known = dict(about) | {"epoch": epoch} | ({"layers": tokens.layers} if by_token else {})
        arrays = obtain(
            folder,
            shapes,
            known,
            fill,
            offsets=dict.fromkeys(by_token, offsets),
            share=share if by_token else 1,
        )
        return {name: arrays[name] for name in asked}

    def where(fields: frozenset[str], at: float | None) -> Path:
        teacher, rows = live.fingerprint(at), split.teacher.fingerprint
        kind: list[Any] = [*sorted(fields), dtype if fields - LOGITS else "float32"]
        kind += [tokens.layers] if fields & PER_TOKEN else []
        key = digest([FORMAT, teacher, rows, kind])[:16]
        return cache_dir / "banks" / key

    fields = asked | LOGITS if asked & PER_TOKEN else BANKED if asked - LOGITS else LOGITS
    moments = {
        snapshot_at(phase.teacher_at(epoch), len(live.snapshots)): phase.teacher_at(epoch)
        for phase in phases
        if phase.teacher_at is not None
        for epoch in range(phase.epochs)
    }
    return BankTeacher(
        bank(fields) if asked else {},
        split.index,
        snapshots={n: bank(LOGITS, at)["logits"] for n, at in sorted(moments.items())},
        count=len(live.snapshots),
        tokens=tokens,
    )


def _shapes(
    spec: Spec, rows: int, fields: frozenset[str], tokens: Tokens, dtype: str
) -> dict[str, tuple[tuple[int, ...], str]]:
    features = (rows, spec.layers + 1, spec.width)
    return {"logits": ((rows, spec.classes), "float32")} | {
        name: (tokens.shape(name) if name in PER_TOKEN else features, dtype)
        for name in sorted(fields - LOGITS)
    }


def _fill(
    draft: Draft,
    live: LiveTeacher,
    split: Split,
    fields: frozenset[str],
    tokens: Tokens,
    at: float | None,
    batch_size: int,
    device: torch.device,
) -> None:
    """Run the teacher once over all rows that the draft does not have yet, in 32 bit.

    Rows go by length, so the first `draft.done` of that order are there, whatever the batch size.
    """
    batches = sorted_batches(split.teacher.lengths, batch_size)
    for number in track(range(draft.done // batch_size, len(batches)), "the teacher's bank"):
        rows = batches[number]
        outputs = live.outputs(to_device(split[rows], device), fields, at)
        shown = {name: getattr(outputs, name) for name in fields - PER_TOKEN}
        shown |= {name: tokens.end_to_end(outputs, name) for name in fields & PER_TOKEN}
        draft.write(rows, {name: x.cpu().numpy() for name, x in shown.items()})
        if (number + 1) % FLUSH == 0:
            draft.flush((number + 1) * batch_size)
