"""The record of a run: one definition for whoever writes it and whoever reads it."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError
from pydantic_core import PydanticCustomError

from ilkd_bench.plumbing.command import run_line
from ilkd_bench.plumbing.files import write_json
from ilkd_bench.records.cells import LIMITS, SWEPT, place
from ilkd_bench.records.folders import Damaged, examine, run_folders
from ilkd_bench.settings.identity import run_id, upgraded
from ilkd_bench.settings.schema import SCHEMA
from ilkd_bench.types import BadInput


def is_number(value: Any) -> bool:
    """Tell whether a value is a finite number, and no truth value."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _flaw(sentence: str) -> PydanticCustomError:
    return PydanticCustomError("flaw", "{sentence}", {"sentence": sentence})


def _settings(config: Any) -> Any:
    """Require of a run's settings what every reader relies on."""
    for path in ("teacher.name", "student.name", "method.name", "task.name", "task.metric"):
        if not isinstance(_at(config, path), str):
            raise _flaw(f"its config.{path} is missing")
    for path in ("task.ood", "data"):
        if not isinstance(_at(config, path), dict):
            raise _flaw(f"its config.{path} is missing")
    for key in SWEPT:
        if not is_number(config.get(key)):
            raise _flaw(f"its config.{key} is no number")
    for key in (*LIMITS, "epochs", "max_length", "precision"):
        if key not in config:
            raise _flaw(f"its config.{key} is missing")
    return config


def _scores(scores: Any) -> Any:
    """Require that every score is a number."""
    if not isinstance(scores, dict) or not all(isinstance(v, dict) for v in scores.values()):
        raise _flaw("it is done and has no scores")
    for split, values in scores.items():
        wrong = [name for name, value in values.items() if not is_number(value)]
        if wrong:
            raise _flaw(f"its score {split}/{wrong[0]} is no number: {values[wrong[0]]!r}")
    return scores


def _monitor(monitor: Any) -> Any:
    """Require that the score that chose the epoch has a name."""
    if not isinstance(monitor, str):
        raise _unscored(monitor)
    return monitor


def _unscored(monitor: Any) -> PydanticCustomError:
    return _flaw(f"it lacks the score that chose its epoch, {monitor}")


def _kept(kind: Callable[[Any], bool], otherwise: Any) -> BeforeValidator:
    """Take what is of a kind; of what is not, a reader can do without."""
    return BeforeValidator(lambda value: value if kind(value) else otherwise)


def _numbers(value: Any) -> dict[str, Any]:
    entries = value.items() if isinstance(value, dict) else ()
    return {str(name): number for name, number in entries if is_number(number)}


def _all_text(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


Text = Annotated[str | None, _kept(lambda v: isinstance(v, str), None)]
Words = Annotated[list[str] | None, _kept(_all_text, None)]
Number = Annotated[int | float | None, _kept(is_number, None)]  # an int stays one
Numbers = Annotated[dict[str, int | float], BeforeValidator(_numbers)]
Facts = Annotated[dict[str, Any], _kept(lambda v: isinstance(v, dict), {})]


class Record(BaseModel):
    """What is known of a run, whatever became of it.

    Attributes:
        id: of its settings, by the schema that it was written with.
        argv: the words that select the run.
        config: its identity as the present schema has it.
        folder: where it was found, below the results folder; not in the file.
    """

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True)

    schema_: int = Field(alias="schema")
    id: str
    status: Literal["done", "failed", "skipped", "running"]
    reason: Text = None
    argv: Words = None
    config: Annotated[dict[str, Any], BeforeValidator(_settings)]
    folder: str = Field("", exclude=True)

    @property
    def task(self) -> str:
        """The task's name."""
        name: str = self.config["task"]["name"]
        return name

    @property
    def teacher_name(self) -> str:
        """The teacher's name."""
        name: str = self.config["teacher"]["name"]
        return name

    @property
    def student(self) -> str:
        """The student's name."""
        name: str = self.config["student"]["name"]
        return name

    @property
    def method(self) -> str:
        """The method's name."""
        name: str = self.config["method"]["name"]
        return name

    @cached_property
    def place(self) -> dict[str, str]:
        """Its section, row and column in the tables."""
        return place(self.config)

    @property
    def words(self) -> list[str]:
        """The words that select it; none where its file has none."""
        return self.argv or []

    @property
    def limited(self) -> bool:
        """Whether only a part of the rows was used."""
        return any(self.config[key] is not None for key in LIMITS)

    def content(self) -> dict[str, Any]:
        """Return what stands in the file."""
        return self.model_dump(by_alias=True, exclude_unset=True)


class Measured(BaseModel):
    """What a run measured.

    Attributes:
        scores: by split and metric, in the metric's own unit; `n` counts the rows.
        monitor: split and metric that chose the epoch, as `dev/accuracy`.
        teacher: its key, its score on dev, and how it came about.
        data: fingerprint of the splits, and their numbers of rows.
        parameters: numbers of the models' parameters.
        seconds: `setup`: models, rows and checks; `teacher`: its training, measuring and banks, and
            those of assistants; `train`: the student's steps; `evaluate`. In schema 1 `teacher`
            has the set-up too.
    """

    model_config = ConfigDict(frozen=True, extra="allow")

    scores: Annotated[dict[str, dict[str, int | float]], BeforeValidator(_scores)]
    monitor: Annotated[str, BeforeValidator(_monitor)]
    teacher: Facts = {}
    best_epoch: Number = None
    data: Facts = {}
    parameters: Facts = {}
    seconds: Numbers = {}
    examples_per_second: Number = None
    device: Text = None
    precision: Text = None
    versions: Facts = {}
    git: Annotated[dict[str, Any] | None, _kept(lambda v: isinstance(v, dict), None)] = None

    def model_post_init(self, _: Any) -> None:
        """Require the score that chose the epoch, and the teacher's.

        Raises:
            PydanticCustomError: one of them is missing.
        """
        split, _, metric = self.monitor.rpartition("/")
        if metric not in self.scores.get(split, {}):
            raise _unscored(self.monitor)
        if not isinstance(self.teacher.get("dev"), dict):
            raise _flaw("it lacks the teacher's score on dev")

    @property
    def dev_score(self) -> float:
        """The dev score that the run is chosen by."""
        split, _, metric = self.monitor.rpartition("/")
        return self.scores[split][metric]


class Done(Measured, Record):
    """The record of a run that is done."""

    @property
    def rank(self) -> tuple[float, str]:
        """What the best of several runs has the greatest of; of equal scores one is the best."""
        return self.dev_score, f"s{self.config['seed']}-{self.id}"

    def model_post_init(self, context: Any) -> None:
        """Require that the task has all splits that were scored.

        Raises:
            PydanticCustomError: it has not.
        """
        super().model_post_init(context)
        for split in self.scores:
            name = split.removeprefix("ood/")
            if name != split and not isinstance(
                _at(self.config["task"]["ood"], f"{name}.metric"), str
            ):
                raise _flaw(f"its task has no {split}")


def record_of(content: dict[str, Any], folder: str = "") -> Record:
    """Return a record from what its file holds, its settings as the present schema has them.

    Raises:
        Damaged: something is missing that every reader relies on; the message says what.
    """
    config = content.get("config")
    if content["schema"] != SCHEMA:
        try:
            config = upgraded(_settings(config), content.get("precision"))
        except PydanticCustomError as flaw:
            raise Damaged(flaw.message()) from flaw
        except (KeyError, TypeError, AttributeError) as error:
            raise Damaged(f"its settings are not whole ({error})") from error
    kind: type[Record] = Record
    if content["status"] == "done":
        kind = Done
        content = {"scores": None, "monitor": None} | content  # what is missing is told as a flaw
    try:
        return kind.model_validate(content | {"config": config, "folder": folder})
    except ValidationError as error:
        raise Damaged(_sentence(error)) from error


def _sentence(error: ValidationError) -> str:
    first = error.errors()[0]
    if first["type"] == "flaw":
        return first["msg"]
    where = ".".join(map(str, first["loc"]))
    if first["type"] == "missing":
        return f"its {where} is missing"
    return f"its {where} is wrong: {first['msg']}"


def read_record(folder: Path) -> Record | None:
    """Return a run's record; None where there is none or it is not whole."""
    try:
        return record_of(examine(folder))
    except (FileNotFoundError, Damaged):
        return None


def write_record(folder: Path, record: Record) -> None:
    """Write a run's record."""
    write_json(folder / "record.json", record.content())


@dataclass(frozen=True)
class Stored:
    """The records below a results folder, and what is wrong with others."""

    records: list[Record]
    flaws: list[str]  # one sentence for every record that cannot be used


def load_records(results_dir: Path) -> Stored:
    """Return every record that can be used, ordered by path, and name the others."""
    records: list[Record] = []
    flaws = []
    first: dict[str, str] = {}
    for folder in run_folders(results_dir):
        name = folder.relative_to(results_dir).as_posix()
        try:
            content = examine(folder)
            record = record_of(content, name)
            _require_identity(content)
        except (Damaged, FileNotFoundError, PermissionError) as error:
            flaws.append(f"{name}: not used, {error}")
            continue
        if record.id in first:
            flaws.append(f"{name}: not used, it has the id of {first[record.id]}")
            continue
        identity = record.id if record.schema_ == SCHEMA else run_id(record.config)
        if identity in first:
            flaws.append(f"{name}: not used, it is the same run as {first[identity]}")
            continue
        first[record.id] = first[identity] = name
        records.append(record)
    return Stored(records, flaws)


def _require_identity(content: dict[str, Any]) -> None:
    """Require that a record's settings give its id.

    Raises:
        Damaged: they do not.
    """
    try:
        identity = run_id(content["config"])
    except ValueError as error:
        raise Damaged(f"its settings have no identity: {error}") from error
    if identity != content["id"]:
        raise Damaged("its settings do not give its id (was it edited by hand?)")


def finished(folder: Path) -> Done:
    """Return the record of a run that is done.

    Raises:
        BadInput: it is not, or its record cannot be read; the message says what to type.
    """
    try:
        record = record_of(examine(folder))
    except (Damaged, OSError) as error:
        raise BadInput(f"{folder}/record.json cannot be used: {error}") from error
    if isinstance(record, Done):
        return record
    reason = f" ({record.reason})" if record.reason else ""
    raise BadInput(
        f"run {record.id} is {record.status}{reason}, so it has no student. "
        f"Run it first: {run_line(record.words)}"
    )
