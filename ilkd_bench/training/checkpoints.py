"""The files that a training leaves while it runs: to go on after a kill, and its best epoch."""

from __future__ import annotations

import logging
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytorch_lightning as pl
import torch
from lightning_fabric.plugins.io import TorchCheckpointIO
from pytorch_lightning.callbacks import EarlyStopping, ModelCheckpoint

from ilkd_bench.plumbing.files import content_hash, remove_folder, whole_file
from ilkd_bench.teachers.finetuned import save_weights

log = logging.getLogger(__name__)

FORMAT = 2
"""Of the checkpoints of an epoch. 2: AdamW's moments are of the words that the rows have."""


def load(path: Path) -> dict[str, Any]:
    """Return what a checkpoint holds, on the CPU."""
    loaded: dict[str, Any] = torch.load(path, weights_only=True, map_location="cpu")
    return loaded


@contextmanager
def kept_for_resume(folder: Path, snapshots: Path | None = None) -> Iterator[None]:
    """Remove the checkpoints at the end, unless the training was interrupted.

    Args:
        snapshots: a folder with the weights of earlier epochs. Where one of them, or a checkpoint,
            is damaged or of another `FORMAT`, the training starts again.
    """
    paths = sorted(folder.glob("*.ckpt"), key=lambda path: (len(path.stem), path.stem))
    ends = [path for path in paths if not path.stem.endswith("best")]  # of phases, in their order
    if not all(map(_whole, paths)) or (ends and not _of_use(snapshots, ends[-1])):
        log.warning(
            "the checkpoints in %s are damaged, or those of another version of ilkd_bench: the "
            "training starts again",
            folder,
        )
        remove_folder(folder)
    try:
        yield
    except Exception:
        remove_folder(folder)
        raise
    remove_folder(folder)


def _of_use(snapshots: Path | None, path: Path) -> bool:
    """Tell if a checkpoint is of this format, and the snapshots it names are there, undamaged."""
    content = torch.load(path, weights_only=True, mmap=True, map_location="cpu")
    if content.get("format") != FORMAT:
        return False
    if snapshots is None:
        return True
    hashes = content.get("callbacks", {}).get(Snapshots.__name__, {}).get("hashes", {})
    files = [snapshots / name for name in hashes]
    return hashes == {file.name: content_hash(file) for file in files if file.is_file()}


def _whole(path: Path) -> bool:
    """Tell whether a file is what was written; torch reads over flipped bytes."""
    try:
        with zipfile.ZipFile(path) as file:
            return file.testzip() is None
    except (OSError, zipfile.BadZipFile):
        return False


class Snapshots(pl.Callback):
    """Keep the weights after every epoch, and their hashes in the checkpoint of that epoch."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._hashes: dict[str, str] = {}

    def on_train_epoch_end(self, trainer: pl.Trainer, module: Any) -> None:
        """Write this epoch's weights."""
        path = self._folder / f"epoch-{trainer.current_epoch + 1:03d}.safetensors"
        save_weights(module.student, path)
        self._hashes[path.name] = content_hash(path)

    def state_dict(self) -> dict[str, Any]:
        """Return the hash of each snapshot so far."""
        return {"hashes": dict(self._hashes)}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Take over the hashes of the snapshots before."""
        self._hashes = dict(state_dict["hashes"])


class WholeFiles(TorchCheckpointIO):
    """Write checkpoints aside, flush and rename them."""

    def save_checkpoint(
        self, checkpoint: dict[str, Any], path: str | Path, storage_options: Any = None
    ) -> None:
        """Save so that a reader finds the whole file, or the one before."""
        with whole_file(Path(path)) as aside, aside.open("wb") as file:
            torch.save(checkpoint, file)


def every_epoch(path: Path) -> ModelCheckpoint:
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


def best_epoch(path: Path, patience: int | None) -> list[pl.Callback]:
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
