"""Models in files of Python packages, converted once into normal folders in the cache."""

from __future__ import annotations

import json
import logging
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from ilkd_bench.models.containers import Contents, Unreadable, e5s1, onnx
from ilkd_bench.models.folder import Folder, read_config
from ilkd_bench.plumbing import shared
from ilkd_bench.plumbing.files import (
    content_hash,
    digest,
    folder_aside,
    put_folder,
    seal,
    write_json,
)
from ilkd_bench.plumbing.full_disk import full_disk_told
from ilkd_bench.settings import packages
from ilkd_bench.settings.identity import CONVERSION, model_fingerprint, model_source
from ilkd_bench.settings.model_files import descriptions
from ilkd_bench.types import BadInput

log = logging.getLogger(__name__)

READERS: dict[str, Callable[[Path], Contents]] = {".onnx": onnx, ".bin": e5s1}
"""What reads a file, by how its name ends."""

FACTS = "converted.json"


def convert(path: str, like: str | None, cache_dir: Path) -> Folder:
    """Return the folder of a model that a package has in another form, converted once.

    Args:
        path: `package:NAME/FILE`.
        like: folder of a model that has the same tokenizer, and the settings that the file does
            not tell; None: it tells all.

    Raises:
        BadInput: the file is not there, is not the known one, or cannot be read.
    """
    source = model_source(path)
    if not isinstance(source, Path) or not source.is_file() or source.suffix not in READERS:
        raise BadInput(
            f"path={path}: allowed is a file of a package that is converted, "
            f"package:NAME/FILE ending in {' or '.join(READERS)}. A folder is given to what is "
            "read as it is: teacher=minilm_l6 teacher.path=DIR, student=bert_tiny student.path=DIR"
        )
    packages.require_pinned(path, cache_dir, lambda file, _: content_hash(file))
    parts = {"file": content_hash(source), "conversion": CONVERSION}
    if like is not None:
        parts["like"] = model_fingerprint(like, None, cache_dir)
    folder = cache_dir / "models" / f"{source.stem}-{digest(parts)[:10]}"
    shared.obtain(
        folder,
        lambda: _stored(folder),
        lambda: _make(folder, path, source, like),
        waiting=f"another run is converting {source.name}",
    )
    return Folder(folder, path)


def _stored(folder: Path) -> bool | None:
    """Tell whether a converted model is there; None if not.

    Raises:
        Damaged: a file is not what was written.
    """
    try:
        facts = json.loads((folder / FACTS).read_text(encoding="utf-8"))
        whole = facts == seal(facts) and facts["files"] == _hashes(folder)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise shared.Damaged(f"the converted model {folder.name} is damaged and is made again")
    return True


def _hashes(folder: Path) -> dict[str, str]:
    paths = sorted(path for path in folder.iterdir() if not path.name.startswith("."))
    return {p.name: content_hash(p) for p in paths if p.name not in (FACTS, shared.USED)}


def _make(folder: Path, path: str, source: Path, like: str | None) -> None:
    log.info("converting %s, once for all runs", path)
    try:
        contents = READERS[source.suffix](source)
    except Unreadable as reason:
        raise BadInput(f"{path} cannot be converted: {reason}") from reason
    with (
        full_disk_told(folder.parent, "give a larger disk (cache_dir=DIR)"),
        folder_aside(folder) as aside,
    ):
        config = {"model_type": "bert"} | _described(aside, like) | contents.config
        write_json(aside / "config.json", config | {"architectures": ["BertModel"]})
        if contents.tokenizer is not None:
            contents.tokenizer.save_pretrained(aside)
        weights = {name: np.ascontiguousarray(x) for name, x in contents.weights.items()}
        save_file(weights, aside / "model.safetensors", metadata={"format": "pt"})
        write_json(aside / FACTS, seal({"source": path, "files": _hashes(aside)}))
        put_folder(aside, folder)


def _described(aside: Path, like: str | None) -> dict[str, Any]:
    """Copy the tokenizer of a model, and return its settings."""
    if like is None:
        return {}
    described = model_source(like)
    if not isinstance(described, Path):
        raise BadInput(f"like={like}: allowed is a folder with config.json and a tokenizer")
    for file in descriptions(described):
        if file.name != "config.json":
            shutil.copyfile(file, aside / file.name)
    settings = read_config(Folder(described, like), {}).to_diff_dict()
    return {key: value for key, value in settings.items() if not key.startswith("_")}
