"""The record of a run: one definition for whoever writes it and whoever reads it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, PlainValidator
from pydantic_core import PydanticCustomError

from ilkd_bench.plumbing.command import typable
from ilkd_bench.records.cells import LIMITS, SWEPT, place
from ilkd_bench.settings.checks import is_number


def _at(value: Any, path: str) -> Any:
    for key in path.split("."):
        value = value.get(key) if isinstance(value, dict) else None
    return value


def _flaw(sentence: str) -> PydanticCustomError:
    return PydanticCustomError("flaw", "{sentence}", {"sentence": sentence})


def whole_settings(config: Any) -> Any:
    """Require of a run's settings what every reader relies on."""
    for path in (
        "teacher.name",
        "student.name",
        "method.name",
        "task.name",
        "task.metric",
        "precision",
    ):
        if not isinstance(_at(config, path), str):
            raise _flaw(f"its config.{path} is missing")
    for path in ("task.ood", "data"):
        if not isinstance(_at(config, path), dict):
            raise _flaw(f"its config.{path} is missing")
    for key in SWEPT:
        if not is_number(config.get(key)):
            raise _flaw(f"its config.{key} is no number")
    for key in (*LIMITS, "epochs", "max_length"):
        if key not in config:
            raise _flaw(f"its config.{key} is missing")
        if not is_number(config[key]) and not (config[key] is None and key in LIMITS):
            raise _flaw(f"its config.{key} is no number")
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


def _kept(kind: Callable[[Any], bool], otherwise: Any) -> PlainValidator:
    """Take what is of a kind; of what is not, a reader can do without."""
    return PlainValidator(lambda value: value if kind(value) else otherwise)


def _numbers(value: Any) -> dict[str, Any]:
    entries = value.items() if isinstance(value, dict) else ()
    return {str(name): number for name, number in entries if is_number(number)}


def _all_text(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(word, str) for word in value)


MaybeText = Annotated[str | None, _kept(lambda v: isinstance(v, str), None)]
Words = Annotated[list[str] | None, _kept(_all_text, None)]
MaybeNumber = Annotated[int | float | None, _kept(is_number, None)]  # an int stays one
Numbers = Annotated[dict[str, int | float], PlainValidator(_numbers)]
Facts = Annotated[dict[str, Any], _kept(lambda v: isinstance(v, dict), {})]


class Record(BaseModel):
    """What is known of a run, whatever became of it.

    Attributes:
        id: of its settings, by the schema that it was written with.
        argv: the words that select the run.
        config: its identity as the present schema has it.
        identity: the id that the present schema gives these settings; not in the file.
        folder: where it was found, below the results folder; not in the file.
        mark: tells it from others whose settings have the same label; not in the file.
    """

    model_config = ConfigDict(frozen=True, extra="allow", populate_by_name=True)

    schema_: int = Field(alias="schema")
    id: str
    status: Literal["done", "failed", "skipped", "running"]
    reason: MaybeText = None
    argv: Words = None
    config: Annotated[dict[str, Any], PlainValidator(whole_settings)]
    identity: str = Field("", exclude=True)
    folder: str = Field("", exclude=True)
    mark: str = Field("", exclude=True)

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
        where = place(self.config)
        return where | {"method": f"{where['method']} {self.mark}"} if self.mark else where

    @property
    def words(self) -> list[str]:
        """The words that select it, as they may be typed; none where its file has none."""
        return typable(self.argv or [])

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

    scores: Annotated[dict[str, dict[str, int | float]], PlainValidator(_scores)]
    monitor: Annotated[str, PlainValidator(_monitor)]
    teacher: Facts = {}
    best_epoch: MaybeNumber = None
    data: Facts = {}
    parameters: Facts = {}
    seconds: Numbers = {}
    examples_per_second: MaybeNumber = None
    device: MaybeText = None
    precision: MaybeText = None
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
        measured = self.teacher.get("dev")
        if not isinstance(measured, dict):
            raise _flaw("it lacks the teacher's score on dev")
        wrong = [name for name, value in measured.items() if not is_number(value)]
        if wrong:
            raise _flaw(f"the teacher's score {wrong[0]} is no number: {measured[wrong[0]]!r}")

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
