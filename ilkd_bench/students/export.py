"""A student as a folder for the hub: `ilkd-bench export RUN_ID DIR`.

Weights (safetensors), configuration, tokenizer, model card and record; on request an ONNX file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path

from ilkd_bench.data.tasks import Task
from ilkd_bench.plumbing import files
from ilkd_bench.records.card import card, language_of
from ilkd_bench.records.find import find
from ilkd_bench.records.public import public
from ilkd_bench.records.read import finished
from ilkd_bench.records.record import Record
from ilkd_bench.students import load
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

WRITTEN = ("README.md", "record.json", "model.onnx")
"""What is written beside them."""

LEFT_OUT = frozenset(
    "_name_or_path name_or_path auto_map custom_pipelines is_local local_files_only".split()
)
"""Keys of the JSON files that tell of folders of the machine, or name code to run."""

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
        BadInput: there is no such run or student, the target may not be written, or the ONNX file
            does not compute what the student does.
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
    with files.folder_aside(target) as aside:
        _fill(aside, folder, record, licence=licence, language=language, onnx=onnx)
        _move(aside, target)
    return folder


def _fill(
    aside: Path,
    folder: Path,
    record: Record,
    *,
    licence: str,
    language: str | None,
    onnx: bool,
) -> None:
    task = Task(**record.config["task"])
    for name in FILES:
        source = folder / "student" / name
        if source.suffix == ".json" and source.is_file():
            files.write_text(aside / name, _cleaned(source))
        elif source.is_file():
            shutil.copyfile(source, aside / name)
    model = load.load(aside, task.labels)  # what is given away is what was tried
    inputs = None
    if onnx:
        from ilkd_bench.students.onnx import Differs, write

        try:
            inputs = write(model, aside / "model.onnx")
        except Differs as error:
            raise BadInput(str(error)) from error
    facts = public(record.content())
    language = language or language_of(task)
    text = card(facts, licence=licence, language=language, inputs=inputs)
    files.write_text(aside / "README.md", text)
    files.write_json(aside / "record.json", facts)


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
    """Give a folder its name, or put its files into the folder that has the name already."""
    if not target.is_dir():
        files.put_folder(aside, target)
        return
    for name in (*FILES, *WRITTEN):
        if (aside / name).is_file():
            os.replace(aside / name, target / name)
        else:
            (target / name).unlink(missing_ok=True)  # of another student
