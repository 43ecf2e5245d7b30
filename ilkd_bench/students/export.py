"""A student as a folder for the hub: `ilkd-bench export RUN_ID DIR`.

Weights (safetensors), configuration, tokenizer, model card and record; on request an ONNX file.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ilkd_bench.plumbing import files, own_files
from ilkd_bench.records.card import card, language_of
from ilkd_bench.records.find import find
from ilkd_bench.records.public import is_path, public
from ilkd_bench.records.read import finished
from ilkd_bench.records.record import Record
from ilkd_bench.settings.task import task_of
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

HEAD = "architectures model_type dtype problem_type id2label label2id num_labels"
TOKENS = "bos_token eos_token unk_token sep_token pad_token cls_token mask_token"
MORE_TOKENS = "additional_special_tokens extra_special_tokens"
SPLITTING = "do_lower_case do_basic_tokenize never_split tokenize_chinese_chars strip_accents"
KNOWN = {
    "config.json": f"{HEAD} transformers_version",
    "tokenizer.json": "version truncation padding added_tokens normalizer pre_tokenizer "
    "post_processor decoder model",
    "tokenizer_config.json": f"{TOKENS} {MORE_TOKENS} {SPLITTING} added_tokens_decoder backend "
    "tokenizer_class model_max_length model_input_names padding_side truncation_side "
    "clean_up_tokenization_spaces split_special_tokens add_prefix_space trim_offsets errors "
    "max_length stride truncation_strategy pad_to_multiple_of pad_token_type_id",
    "special_tokens_map.json": f"{TOKENS} {MORE_TOKENS}",
}
"""JSON file -> the keys that it keeps; `config.json` has those of its kind of model besides."""

NAMED_FREELY = ("id2label", "label2id", "added_tokens_decoder", *TOKENS.split())
"""Keys whose values are names of a task or a tokenizer, which may look like anything."""

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
    _require_files(target)
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
    task = task_of(record.config["task"])
    for name in FILES:
        try:
            file = own_files.open_file(folder, f"student/{name}")
        except FileNotFoundError:
            continue
        with file:
            if name in KNOWN:
                files.write_text(aside / name, _cleaned(name, file.read()))
            else:
                with (aside / name).open("xb") as copy:
                    shutil.copyfileobj(file, copy)
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
    try:
        text = card(facts, licence=licence, language=language, inputs=inputs)
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        why = f"{type(error).__name__}: {error}"
        raise BadInput(
            f"{folder}/record.json lacks something that the model card tells ({why})"
        ) from error
    files.write_text(aside / "README.md", text)
    files.write_json(aside / "record.json", facts)


def _cleaned(name: str, content: bytes) -> str:
    """Return a JSON file of a student without what is nobody's business: unknown keys, and paths.

    Raises:
        BadInput: it is no JSON, or describes no model that transformers has.
    """
    try:
        settings = dict(json.loads(content))
        known = {*KNOWN[name].split(), *(_usual(settings) if name == "config.json" else ())}
    except (ValueError, TypeError, LookupError, RecursionError) as error:
        raise BadInput(f"the student's {name} is damaged: {error}") from error
    kept = {
        key: value
        for key, value in settings.items()
        if key in known and (key in NAMED_FREELY or name == "tokenizer.json" or _harmless(value))
    }
    return json.dumps(kept, indent=2, ensure_ascii=False) + "\n"


def _usual(settings: dict[str, Any]) -> Iterable[str]:
    """Return the keys that the configuration of a kind of model has."""
    from transformers import AutoConfig

    return AutoConfig.for_model(settings["model_type"]).to_dict().keys() - {"_name_or_path"}


def _harmless(value: Any) -> bool:
    """Tell whether no text in a value is a path."""
    if isinstance(value, list | dict):
        return all(map(_harmless, value.values() if isinstance(value, dict) else value))
    return not (isinstance(value, str) and is_path(value))


def _move(aside: Path, target: Path) -> None:
    """Give a folder its name, or put its files into the folder that has the name already."""
    if not target.is_dir():
        files.put_folder(aside, target)
        return
    _require_files(target)  # they may have changed meanwhile
    for name in (*FILES, *WRITTEN):
        path = target / name
        try:
            if (aside / name).is_file():
                os.replace(aside / name, path)
            else:
                path.unlink(missing_ok=True)  # of another student
        except OSError as error:
            error.filename, error.filename2 = str(path), None  # not the place aside
            raise


def _require_files(target: Path) -> None:
    """Refuse a folder in which the files of an export cannot all be replaced, before any is.

    Raises:
        BadInput: one of the names is that of a folder, or nothing can be written there.
    """
    for name in (*FILES, *WRITTEN):
        path = target / name
        if path.is_dir() and not path.is_symlink():
            raise BadInput(
                f"{path} is a folder, and an export has a file of that name: move it away, or give "
                "another folder"
            )
    if target.is_dir() and not os.access(target, os.W_OK | os.X_OK):
        raise BadInput(f"{target} may not be written: give another folder")
