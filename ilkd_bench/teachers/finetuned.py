"""Fine-tuned teachers on disk: `cache_dir/teachers/<key>/`, made once and shared by all runs."""

from __future__ import annotations

import json
import logging
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from ilkd_bench.models.model import Model
from ilkd_bench.plumbing import shared
from ilkd_bench.plumbing.files import content_hash, put_folder, seal, whole_file, write_json
from ilkd_bench.plumbing.full_disk import full_disk_told
from ilkd_bench.teachers.bank import MORE_ROOM
from ilkd_bench.types import BadInput, Incompatible

log = logging.getLogger(__name__)


FACTS = "teacher.json"

HIDDEN = re.compile(r"(^|/)\.")
"""In the name of a file that no teacher has: what a kill left."""

BEST, SNAPSHOTS = "best", "snapshots"
"""What a half training keeps: the best epoch alone, or the weights of every epoch too."""


def obtain(
    folder: Path, make: Callable[[Path, bool], dict[str, Any]], *, snapshots: bool
) -> dict[str, Any]:
    """Return the facts of a stored teacher, fine-tuning it first where it is missing or damaged.

    A training that was killed goes on, whoever asks; one that keeps snapshots serves both who need
    them and who do not. What nobody can go on with any more is removed.

    Args:
        folder: where the teacher is, or will be.
        make: fine-tunes the teacher into a folder (with a snapshot per epoch, if asked) and
            returns its facts.
    """
    return shared.obtain(
        folder,
        lambda: stored_facts(folder, snapshots=snapshots),
        lambda: _make(folder, make, snapshots),
        waiting=f"another run is training {folder.name}",
        half_done=_useful,
    )


def _useful(facts: dict[str, Any] | None) -> tuple[str, ...]:
    """Return which half trainings may be gone on with beside a stored teacher."""
    if facts is None:
        return BEST, SNAPSHOTS
    return () if facts["snapshots"] else (SNAPSHOTS,)


def _make(folder: Path, make: Callable[[Path, bool], dict[str, Any]], snapshots: bool) -> None:
    # Under the lock this folder is ours alone. It outlives a kill, and the training goes on in it.
    best, every = (folder.with_name(f".{folder.name}.{kind}") for kind in (BEST, SNAPSHOTS))
    aside = every if snapshots or every.is_dir() else best
    if aside is every:
        shutil.rmtree(best, ignore_errors=True)
    aside.mkdir(exist_ok=True)
    try:
        with full_disk_told(folder.parent, MORE_ROOM):
            facts = make(aside, aside is every)
            _put(aside, folder, facts)
    except Exception:
        shutil.rmtree(aside, ignore_errors=True)
        raise
    shutil.rmtree(aside, ignore_errors=True)


def _put(aside: Path, folder: Path, facts: dict[str, Any]) -> None:
    """Give a new teacher its name; one of earlier runs stays, and only gets the snapshots."""
    try:
        stored = stored_facts(folder)
    except shared.Damaged:
        stored = None
    if stored is None:
        _describe(aside, facts)
        put_folder(aside, folder)
    else:
        put_folder(aside / "snapshots", folder / "snapshots")
        _describe(folder, stored | {"snapshots": facts["snapshots"]})


def _describe(folder: Path, facts: dict[str, Any]) -> None:
    """Write what is known of a teacher, with the hashes of its files and of itself."""
    write_json(folder / FACTS, seal(facts | {"files": _hashes(folder)}))


def _hashes(folder: Path) -> dict[str, str]:
    """Return the hash of each file of a teacher: weights, snapshots, configuration, tokenizer."""
    paths = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*"))}
    return {
        name: content_hash(path)
        for name, path in paths.items()
        if path.is_file() and name not in (FACTS, shared.USED) and not HIDDEN.search(name)
    }


def stored_facts(folder: Path, *, snapshots: bool = False) -> dict[str, Any] | None:
    """Return what `teacher.json` says; None where the teacher is absent or lacks snapshots.

    Of a teacher that an earlier version made it knows the weights only, and has no seal: the rest
    is taken as it is, and noted.

    Raises:
        Damaged: a file is not what was written.
    """
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        hashes = _hashes(folder)
    except FileNotFoundError:
        return None
    except (OSError, ValueError):  # a disk that cannot be read; no JSON, or no text
        facts, hashes = None, {}
    weights = {name: value for name, value in hashes.items() if name.endswith(".safetensors")}
    if not isinstance(facts, dict) or not {"files", "snapshots"} <= facts.keys():
        whole = False
    elif "seal" in facts:  # no more weights than were written, else they are another training's
        files = facts["files"]
        same = files == {name: hashes.get(name) for name in files}
        whole = facts == seal(facts) and same and weights.keys() <= files.keys()
    else:
        whole = facts["files"] == weights
        if whole:
            _describe(folder, facts)
    if not whole:
        raise shared.Damaged(f"the stored teacher {folder.name} is damaged and is made again")
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
