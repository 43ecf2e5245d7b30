"""Fine-tuned teachers on disk: `cache_dir/teachers/<key>/`, made once and shared by all runs."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ilkd_bench.models.model import Model
from ilkd_bench.plumbing.files import file_hash, locked, put_folder, whole_file, write_json
from ilkd_bench.types import BadInput, Incompatible

log = logging.getLogger(__name__)


def obtain(
    folder: Path, make: Callable[[Path, bool], dict[str, Any]], *, snapshots: bool, cache_dir: Path
) -> dict[str, Any]:
    """Return the facts of a stored teacher, fine-tuning it first where it is missing or damaged.

    Whoever comes second waits for the first; the lock dies with the process that holds it.

    Args:
        folder: where the teacher is, or will be.
        make: fine-tunes the teacher into a folder (with a snapshot per epoch, if asked) and
            returns its facts.
    """
    with locked(folder, f"another run is fine-tuning the teacher {folder.name}"):
        facts = _facts(folder, snapshots, cache_dir)
        if facts is None:
            facts = _make(folder, make, snapshots, cache_dir)
        return facts


def _make(
    folder: Path, make: Callable[[Path, bool], dict[str, Any]], snapshots: bool, cache_dir: Path
) -> dict[str, Any]:
    # Under the lock this folder is ours alone. It outlives a kill, and the training goes on in it.
    aside = folder.with_name(f".{folder.name}.{'snapshots' if snapshots else 'best'}")
    aside.mkdir(exist_ok=True)
    try:
        facts = make(aside, snapshots)
        stored = _facts(folder, False, cache_dir)
        if stored is not None:  # the teacher of earlier runs stays; only its snapshots are added
            put_folder(aside / "snapshots", folder / "snapshots")
            facts = stored | {"snapshots": facts["snapshots"]}
            write_json(folder / "teacher.json", facts | {"files": _hashes(folder, cache_dir)})
        else:
            write_json(aside / "teacher.json", facts | {"files": _hashes(aside, cache_dir)})
            put_folder(aside, folder)
    except Exception:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    shutil.rmtree(aside, ignore_errors=True)
    return facts


def _hashes(folder: Path, cache_dir: Path) -> dict[str, str]:
    weights = sorted(folder.rglob("*.safetensors"))
    return {str(file.relative_to(folder)): file_hash(file, cache_dir) for file in weights}


def _facts(folder: Path, snapshots: bool, cache_dir: Path) -> dict[str, Any] | None:
    """Return what `teacher.json` says; None where it is absent, damaged or lacks snapshots."""
    try:
        facts = json.loads((folder / "teacher.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError:  # no JSON, or no text
        facts = {}
    if not facts or facts.get("files") != _hashes(folder, cache_dir):
        log.warning("the stored teacher %s is damaged and is made again", folder.name)
        return None
    return facts if facts["snapshots"] or not snapshots else None


def save_weights(model: Model, path: Path) -> None:
    """Write a snapshot, with the names of transformers."""
    with whole_file(path) as aside:
        save_file({k: v.contiguous() for k, v in model.hf.state_dict().items()}, aside)


def load_weights(model: Model, path: Path) -> None:
    """Read a snapshot, or what `save_pretrained` wrote.

    Raises:
        BadInput: the file is damaged or belongs to another architecture.
    """
    try:
        model.hf.load_state_dict(load_file(path))
    except (SafetensorError, RuntimeError, OSError) as error:
        raise BadInput(f"{path} does not hold this model's weights: {error}") from error


def snapshot_paths(folder: Path) -> list[Path]:
    """Return the snapshots of a stored teacher, oldest first."""
    return sorted((folder / "snapshots").glob("*.safetensors"))


def require_snapshots(checkpoint: str | None, wanted: bool) -> None:
    """Refuse a method that follows the teacher's training where only its result was given.

    Raises:
        Incompatible: the teacher is a given checkpoint.
    """
    if wanted and checkpoint is not None:
        raise Incompatible(
            "the method follows the teacher's training, and teacher.checkpoint has no snapshots"
        )
