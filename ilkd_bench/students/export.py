"""A student as a folder for the hub: `python -m ilkd_bench.export RUN_ID DIR`.

Weights (safetensors), configuration, tokenizer, model card and record; on request an ONNX file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import Any

from ilkd_bench.data import tasks
from ilkd_bench.data.tasks import Task
from ilkd_bench.plumbing import files
from ilkd_bench.records.record import find, finished
from ilkd_bench.settings.run import SCIENCE
from ilkd_bench.students import card, load
from ilkd_bench.types import BadInput

FILES = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
)
"""What is taken from a student's folder, where it is there. No code and no pickles."""

MADE = ("README.md", "record.json", "model.onnx")
"""What is made beside them."""

LEFT_OUT = frozenset(
    "_name_or_path name_or_path auto_map custom_pipelines is_local local_files_only".split()
)
"""Keys of the JSON files that tell of folders of the machine, or name code to run."""

PUBLIC = (
    "schema id status limited config scores monitor best_epoch teacher data parameters seconds"
    " examples_per_second device precision versions git"
).split()
"""Keys of a record that anybody may see."""

LICENCE = re.compile(r"[a-z0-9][a-z0-9.+-]*")
LANGUAGE = re.compile(r"[a-z]{2,3}")


def export(
    typed: str,
    target: Path,
    *,
    results_dir: Path,
    licence: str,
    language: str | None = None,
    force: bool = False,
    onnx: bool = False,
) -> Path:
    """Write the student of a run as a folder that transformers and the hub read; return the run's.

    It is made aside and renamed.

    Args:
        typed: id of the run, the beginning of it, or its folder.
        target: absent or empty, unless `force`; then earlier files of an export are replaced and
            others stay.
        licence: the hub's id, e.g. `apache-2.0`.
        language: of the text, e.g. `en`; None: English where the task's text is known.
        onnx: add `model.onnx`.

    Raises:
        BadInput: there is no such run or student, or the target may not be written.
        onnx_export.Differs: the ONNX file does not compute what the student does.
    """
    target = target.resolve()  # "." has no name to put a folder beside
    if target.exists() and not target.is_dir():
        raise BadInput(f"{target} is a file; give a folder")
    if target.is_dir() and any(target.iterdir()) and not force:
        raise BadInput(
            f"{target} is not empty: give another folder, or --force to replace the files of an "
            "earlier export in it (others stay)"
        )
    folder = find(typed, results_dir)
    record = finished(folder)
    load.require_student(folder, record)
    target.parent.mkdir(parents=True, exist_ok=True)
    aside = target.with_name(f".{target.name}.{os.getpid()}")
    aside.mkdir()
    try:
        _fill(aside, folder, record, licence=licence, language=language, onnx=onnx)
        _move(aside, target)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return folder


def _fill(
    aside: Path,
    folder: Path,
    record: dict[str, Any],
    *,
    licence: str,
    language: str | None,
    onnx: bool,
) -> None:
    task = Task(**record["config"]["task"])
    for name in FILES:
        source = folder / "student" / name
        if source.suffix == ".json" and source.is_file():
            files.write_text(aside / name, _cleaned(source))
        elif source.is_file():
            shutil.copyfile(source, aside / name)
    model = load.load(aside, task.labels)  # what is given away is what was tried
    inputs = None
    if onnx:
        from ilkd_bench.students.onnx import write

        inputs = write(model, aside / "model.onnx")
    if language is None and (task.hub is not None or tasks.is_demo(task)):
        language = "en"
    shown = public(record)
    text = card.card(shown, licence=licence, language=language, inputs=inputs)
    files.write_text(aside / "README.md", text)
    files.write_json(aside / "record.json", shown)


def _cleaned(source: Path) -> str:
    """Return a JSON file without the keys that are nobody's business.

    Raises:
        BadInput: it is no JSON.
    """
    try:
        content = json.loads(source.read_text(encoding="utf-8"))
    except ValueError as error:
        raise BadInput(f"{source} is damaged: {error}") from error
    if source.name in ("config.json", "tokenizer_config.json"):
        content = {key: value for key, value in content.items() if key not in LEFT_OUT}
        return json.dumps(content, indent=2, sort_keys=True, ensure_ascii=False) + "\n"
    return source.read_text(encoding="utf-8")


def _move(aside: Path, target: Path) -> None:
    """Give a made folder its name, or put its files into the folder that has the name already."""
    if not target.is_dir():
        os.replace(aside, target)
        return
    for name in (*FILES, *MADE):
        if (aside / name).is_file():
            os.replace(aside / name, target / name)
        else:
            (target / name).unlink(missing_ok=True)  # of another student


# --------------------------------------------------------------------------------- what is private


def public(record: dict[str, Any]) -> dict[str, Any]:
    """Return a record without what belongs to this machine: paths, and settings that have some."""
    shown = {key: _hidden(record[key]) for key in PUBLIC if key in record}
    words = [word for word in map(str, record.get("argv") or []) if _is_science(word)]
    return shown | {"argv": [word for word in words if not is_path(word.partition("=")[2])]}


def _is_science(word: str) -> bool:
    return re.split(r"[.=]", word.lstrip("+~"))[0] in SCIENCE


def _hidden(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _hidden(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_hidden(item) for item in value]
    return "(a path)" if isinstance(value, str) and is_path(value) else value


def is_path(text: str) -> bool:
    """Tell whether a text is the path of a file or folder; a hub id is none."""
    plain = text.strip("'\"")
    return (
        plain.startswith(("~", "./", "../", "file:"))
        or PurePosixPath(plain).is_absolute()
        or PureWindowsPath(plain).is_absolute()
        or plain.partition("@")[0].count("/") > 1
    )
