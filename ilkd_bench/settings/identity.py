"""What identifies a run, a teacher and an assistant: what they are, not where anything lies.

Schema 2 leaves `_target_` and `teacher.allow_weak` out, and has the precision that was used in
place of `auto`. What schema 1 made is still found under the names that it gave (`former`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ilkd_bench.data.tasks import fingerprints
from ilkd_bench.plumbing.files import FileHash, digest, file_hash, verified_hash
from ilkd_bench.settings import packages
from ilkd_bench.settings.groups import student_settings
from ilkd_bench.settings.model_files import descriptions, weights_file
from ilkd_bench.settings.schema import SCHEMA
from ilkd_bench.types import BadInput

if TYPE_CHECKING:
    from ilkd_bench.settings.run import Run, StudentSettings

NO_SCIENCE = {
    "teacher": ("_target_", "allow_weak"),
    "student": ("_target_", "recommended"),
    "method": ("_target_",),
}
"""Keys of a group that change no number."""

TRAINING = ("checkpoint", "recipe")
"""Keys of a teacher that do not count before it is fine-tuned."""


def model_source(path: str) -> Path | str:
    """Turn a model's `path` into a local folder, or return it unchanged as a hub id.

    `package:NAME/PLACE` is a folder inside an installed Python package, or a file that is
    converted into one.

    Raises:
        BadInput: the package is not installed or lacks it, or a path that can be no hub id does
            not exist.
    """
    if path.startswith(packages.PREFIX):
        return packages.located(path)
    if Path(path).is_dir():
        return Path(path)
    if Path(path).is_file():
        raise _a_file(path)
    if path.startswith(("/", ".")) or path.count("/") > 1:
        raise BadInput(f"no model folder at {path}")
    return path


def model_folder(path: str) -> Path | str:
    """Return what `model_source` does, where that is a folder or at the hub.

    Raises:
        BadInput: as `model_source`, or it is a file.
    """
    source = model_source(path)
    if isinstance(source, Path) and source.is_file():
        raise _a_file(path)
    return source


def _a_file(path: str) -> BadInput:
    return BadInput(f"{path} is a file: give the folder that it is in, with config.json")


def reference(checkpoint: str) -> tuple[str, str | None]:
    """Split `ID@REVISION`, which a model at the hub may be given as; a folder has no revision."""
    path, at, revision = checkpoint.rpartition("@")
    if not at or Path(checkpoint).is_dir() or checkpoint.startswith(("/", ".", "package:")):
        return checkpoint, None
    return path, revision or None


CONVERSION = 1
"""Raised when a file of a package is converted into other numbers than before."""


def model_fingerprint(
    path: str, revision: str | None, cache_dir: Path, hash_of: FileHash = file_hash
) -> str:
    """Return what identifies a model's weights: the content of a folder, or hub id and revision.

    Of a file that is converted it is its content, and how it is converted.

    Raises:
        BadInput: the folder has no weights, or the content of a package is not the known one.
    """
    source = model_source(path)
    if isinstance(source, str):
        return f"{source}@{revision}"
    if path.startswith(packages.PREFIX):
        packages.require_pinned(path, cache_dir, hash_of)
    if source.is_file():
        return digest({"file": hash_of(source, cache_dir), "conversion": CONVERSION})
    weights = sorted([*source.glob("*.safetensors"), *source.glob("pytorch_model*.bin")])
    weights_file(source, str(source))  # BadInput now
    files = [*weights, *descriptions(source)]
    return digest({file.name: hash_of(file, cache_dir) for file in files})


def identity(run: Run) -> dict[str, Any]:
    """Return what defines a run, free of paths."""
    return run.plain | run.essence | {"data": run.data, "schema": SCHEMA}


def essence(run: Run, hash_of: FileHash) -> dict[str, Any]:
    """Return what the groups of a run are, free of paths.

    Args:
        hash_of: of the files of its models.
    """
    groups: dict[str, Any] = {
        "teacher": _model("teacher", run.teacher.model_dump(by_alias=True), run.cache, hash_of),
        "student": _student(run.student, run, hash_of),
        "method": _essential("method", run.method.model_dump(by_alias=True)),
        "task": asdict(run.task),
    }
    if run.assisted:
        groups["assistants"] = _assistants(run, hash_of)
    return groups


def require_unchanged(run: Run) -> None:
    """Read the files of a run's data and models once, and refuse other ones than it was named for.

    Raises:
        BadInput: a file is damaged, or has changed since the command was given.
    """
    data_dir = None if run.data_dir is None else Path(run.data_dir)
    data = fingerprints(run.task, data_dir, run.cache, verified_hash) if run.data else {}
    now = essence(run, verified_hash) | {"data": data}
    changed = [name for name, value in now.items() if run.identity[name] != value]
    if changed:
        raise BadInput(
            f"the files of {' and '.join(changed)} have changed since this command was typed: type "
            "it again for a run with what they hold now"
        )


def _model(
    group: str, settings: dict[str, Any], cache_dir: Path, hash_of: FileHash
) -> dict[str, Any]:
    """Replace where a model lies by what it is."""
    if settings.get("checkpoint") is not None:
        fingerprint = model_fingerprint(*reference(settings["checkpoint"]), cache_dir, hash_of)
        return {"name": settings["name"], "checkpoint": fingerprint}
    kept = _essential(group, settings)
    if "path" in settings:
        kept.pop("revision", None)
        path, revision = settings["path"], settings.get("revision")
        kept["path"] = model_fingerprint(path, revision, cache_dir, hash_of)
    if kept.get("like") is not None:
        kept["like"] = model_fingerprint(kept["like"], None, cache_dir, hash_of)
    return kept


def _student(settings: StudentSettings, run: Run, hash_of: FileHash) -> dict[str, Any]:
    """Return what a student is; a general stage is no part of one that has none."""
    general = settings.general
    plain = settings.model_dump(by_alias=True, exclude={"general"})
    student = _model("student", plain, run.cache, hash_of)
    if general is None:
        return student
    before = run.taught_before(general).model_dump(by_alias=True, exclude=set(TRAINING))
    corpus = general.corpus.corpus(run.data_dir).fingerprint(run.cache, hash_of)
    stage = general.model_dump() | {
        "teacher": _model("teacher", before, run.cache, hash_of),
        "method": _essential("method", general.group("method") | {"weights": general.weights}),
        "corpus": corpus,
    }
    return student | {"general": stage}


def _essential(group: str, settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in NO_SCIENCE[group]}


def _assistants(run: Run, hash_of: FileHash) -> dict[str, Any]:
    """Return what assistants depend on besides the teacher, the method and the data.

    Raises:
        BadInput: there is no student of that name.
    """
    assistants = run.method.arguments["assistants"]
    chain = assistants if isinstance(assistants, list) else [assistants]
    names = [name for name in chain if isinstance(name, str) and assistants != "auto"]
    students = {name: _student(run.other_student(name), run, hash_of) for name in names}
    return {"recipe": run.teacher.recipe.model_dump(), "students": students}


def run_id(identity: dict[str, Any]) -> str:
    """Return a run's id: ten hexadecimal digits of the hash of its identity."""
    return digest(identity)[:10]


def assistant_key(identity: dict[str, Any], name: str, number: int) -> str:
    """Return the identity of a method's assistant: its teacher's, its recipe, and how it is taught.

    Args:
        identity: of a run, of this schema or a former one.
        name: of the assistant; the ones above it are told by the method's settings.
        number: its place in the chain, from 1.
    """
    rows = identity["data"]["train"]  # the teacher may have had others
    parts = [rows, identity["method"], identity["assistants"], number]
    teacher = teacher_key(identity)
    return f"{name}-{identity['task']['name']}-{digest([teacher, name, *parts])[:10]}"


def teacher_precision(precision: str) -> str:
    """Return the precision that teachers and assistants are trained in.

    One in 32 bit serves the students in bfloat16 too.

    Args:
        precision: of the student's training.
    """
    return "32-true" if precision == "bf16-mixed" else precision


def general_key(student: dict[str, Any], precision: str) -> str:
    """Return the identity of a student's general stage: what it starts from, and how it learns.

    Args:
        student: as a run's identity has it.
    """
    return f"{student['name']}-general-{digest([student, precision])[:10]}"


def teacher_key(identity: dict[str, Any]) -> str:
    """Return the identity of a fine-tuned teacher: its recipe, its task and the data it saw.

    Args:
        identity: of a run, of this schema or a former one.
    """
    task = {k: v for k, v in identity["task"].items() if k != "ood"}
    seen = ("max_length", "gradient_clip", "precision", "limit_train", "limit_eval", "schema")
    part = {key: identity[key] for key in seen}
    part["precision"] = teacher_precision(identity["precision"])
    part["teacher"] = {k: v for k, v in identity["teacher"].items() if k != "allow_weak"}
    data = identity["data"]
    part["data"] = {"train": data.get("teacher", data["train"]), "dev": data["dev"]}
    return f"{identity['teacher']['name']}-{task['name']}-{digest([part, task])[:10]}"


# --- schema 1


def former(run: Run) -> Iterator[dict[str, Any]]:
    """Yield the identities that schema 1 may have given this run.

    It had the precision as it was typed (`auto` comes last), whether weak teachers were allowed,
    and label names as they were typed, numbers among them.
    """
    targets = {"_target_": run.teacher.constructor}
    for precision in dict.fromkeys((run.precision, "auto")):
        for allow_weak in (run.teacher.allow_weak, not run.teacher.allow_weak):
            for labels in _as_typed(run.task.labels):
                old = run.identity | {"schema": 1, "precision": precision}
                checkpoint = run.teacher.checkpoint is not None
                old["teacher"] = run.identity["teacher"] | {"allow_weak": allow_weak}
                old["teacher"] |= {} if checkpoint else targets
                old["student"] = run.identity["student"] | {"_target_": run.student.constructor}
                old["method"] = run.identity["method"] | {"_target_": run.method.constructor}
                old["task"] = run.identity["task"] | {"labels": labels}
                if run.assisted:
                    students = {
                        name: settings | {"_target_": student_settings(name)["_target_"]}
                        for name, settings in run.identity["assistants"]["students"].items()
                    }
                    old["assistants"] = run.identity["assistants"] | {"students": students}
                yield old


def _as_typed(labels: Any) -> list[Any]:
    """Return label names as text, and as the numbers and truth values that they may have been."""
    if labels is None:
        return [labels]
    names, values = list(labels), [_value(label) for label in labels]
    return [names] if values == names else [names, values]


def _value(label: str) -> Any:
    """Return the value that a label's name is the text of."""
    for kind in (int, float):
        try:
            if str(kind(label)) == label:
                return kind(label)
        except ValueError:
            pass  # it is no such number
    return {"True": True, "False": False}.get(label, label)


def upgraded(config: dict[str, Any], precision: str | None) -> dict[str, Any]:
    """Return the identity of schema 1 as this schema has it.

    Args:
        precision: that the run used; None: its record does not say.
    """
    new = config | {"schema": SCHEMA, "precision": precision or config["precision"]}
    for group in ("teacher", "student", "method"):
        new[group] = _essential(group, config[group])
    labels = config["task"].get("labels")
    if labels is not None:
        new["task"] = config["task"] | {"labels": [str(label) for label in labels]}
    if "assistants" in config:
        students = config["assistants"]["students"]
        students = {name: _essential("student", settings) for name, settings in students.items()}
        new["assistants"] = config["assistants"] | {"students": students}
    return new
