"""The settings of a run: one frozen object, checked when it is made."""

from __future__ import annotations

import inspect
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    InstanceOf,
    SerializerFunctionWrapHandler,
    ValidationError,
    model_serializer,
    model_validator,
)

from ilkd_bench.data.tasks import Task
from ilkd_bench.plumbing.files import FileHash, file_hash, hash_anew
from ilkd_bench.settings import identity
from ilkd_bench.settings.checks import (
    AutoOrCount,
    Checkpoint,
    Clip,
    Count,
    Flag,
    Folder,
    FolderOrNone,
    FromZero,
    KeepStudent,
    Layers,
    Length,
    Limit,
    Name,
    Number,
    Positive,
    Precision,
    Ratio,
    Seed,
    Size,
    Target,
    Text,
    TextOrNone,
    arguments,
    finite,
    one_of,
    refusal,
    some_weight,
)
from ilkd_bench.settings.general import GeneralSettings
from ilkd_bench.settings.groups import resolve, student_settings
from ilkd_bench.settings.task import Frozen, task_of
from ilkd_bench.types import BadInput


def _names_code(value: Any) -> bool:
    if isinstance(value, dict):
        return "_target_" in value or any(map(_names_code, value.values()))
    return isinstance(value, list | tuple) and any(map(_names_code, value))


class Constructed(Frozen):
    """What `_target_` constructs; keys that are not declared are its arguments."""

    model_config = ConfigDict(extra="allow")

    name: Name
    constructor: Target = Field(alias="_target_")

    def model_post_init(self, _: Any) -> None:
        """Refuse places of code within the arguments.

        Raises:
            BadInput: there is one.
        """
        if _names_code(self.arguments):
            raise BadInput(
                f"{self.name}: _target_ stands within a setting, which constructs nothing"
            )

    @property
    def arguments(self) -> dict[str, Any]:
        """The keyword arguments of `_target_`."""
        return dict(self.model_extra or {})

    def build(self, **more: Any) -> Any:
        """Call what `_target_` names."""
        return resolve(self.constructor)(**self.arguments, **more)


class Recipe(Frozen):
    """How a teacher is fine-tuned."""

    seed: Seed
    lr: Positive
    batch_size: Count
    epochs: Count
    warmup_ratio: Ratio
    weight_decay: FromZero


class Encoder(Constructed):
    """What constructs a model."""

    @model_validator(mode="before")
    @classmethod
    def _arguments(cls, settings: Any) -> Any:
        return arguments(settings)

    def build_model(self, cache_dir: Path, **more: Any) -> Any:
        """Call what `_target_` names, with the folder of the caches where it asks for one."""
        asks = "cache_dir" in inspect.signature(resolve(self.constructor)).parameters
        return self.build(**more, **({"cache_dir": cache_dir} if asks else {}))


class TeacherSettings(Encoder):
    """A group of conf/teacher."""

    checkpoint: Checkpoint  # of a model that is fine-tuned already
    allow_weak: Flag
    recipe: Recipe


class Recommended(Frozen):
    """What a student's YAML suggests."""

    lr: Positive
    epochs: Count
    megabytes: Size  # on disk; None: not known


class StudentSettings(Encoder):
    """A group of conf/student.

    Raises:
        BadInput: it starts from the fine-tuned teacher, which would undo its general stage.
    """

    teacher_layers: Layers  # to start from, counted from 1
    recommended: Recommended
    general: GeneralSettings | None = None  # what it learns before any task

    @model_serializer(mode="wrap")
    def _without_none(self, serialise: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Do not speak of a general stage where there is none."""
        settings: dict[str, Any] = serialise(self)
        return {k: v for k, v in settings.items() if k != "general" or v is not None}

    def model_post_init(self, context: Any) -> None:
        super().model_post_init(context)
        if self.general is not None and self.teacher_layers is not None:
            raise BadInput(
                f"student.teacher_layers={self.teacher_layers} would undo the general stage of "
                f"student={self.name}: type student.teacher_layers=null or student.general=null"
            )


class MethodSettings(Constructed):
    """A group of conf/method."""

    weights: Annotated[dict[str, FromZero], AfterValidator(some_weight)]  # by loss term


class TrainerSettings(Frozen):
    """A group of conf/trainer: how a run is carried out."""

    name: str
    accelerator: Annotated[str, one_of("auto", "cpu", "gpu")]
    workers: Number
    eval_batch_size: Count


class NoLogger(Frozen):
    """Records on disk only."""

    name: Literal["none"]


class WandB(Frozen):
    """A mirror at Weights & Biases."""

    name: Literal["wandb"]
    mode: Annotated[str, one_of("auto", "online", "offline", "disabled")]
    project: Text
    entity: TextOrNone
    group: TextOrNone
    artifact: Flag
    timeout: Positive  # seconds, as the two below
    wait: Positive
    upload: Positive


class Science(Frozen):
    """Settings that change what a run measures: they make its identity."""

    teacher: TeacherSettings
    student: StudentSettings
    method: MethodSettings
    task: InstanceOf[Task]
    seed: Seed
    lr: Positive
    batch_size: Count
    epochs: Count
    max_length: Length
    patience: Limit
    warmup_ratio: Ratio
    weight_decay: FromZero
    gradient_clip: Clip
    precision: Precision  # `auto` until it is known where the run takes place
    limit_train: Limit
    limit_eval: Limit

    @property
    def plain(self) -> dict[str, Any]:
        """The settings that are no groups: they stand in the identity as they are."""
        groups = ("teacher", "student", "method", "task")
        return {key: getattr(self, key) for key in Science.model_fields if key not in groups}


class Run(Science):
    """All settings of a run; those declared here change no more than the last digits of a float."""

    data_dir: FolderOrNone
    cache_dir: Folder
    results_dir: Folder
    bank: Annotated[str, one_of("auto", "on", "off")]
    bank_dtype: Annotated[str, one_of("float16", "float32")]
    compile: Flag
    keep_student: KeepStudent
    force: Flag
    fail_fast: Flag
    protocol: Annotated[str, one_of("full", "select_then_repeat")]
    parallel: AutoOrCount
    plugins: FolderOrNone
    trainer: TrainerSettings
    logger: NoLogger | WandB = Field(discriminator="name")
    data: dict[str, str] = Field(exclude=True)  # fingerprint of each split

    @classmethod
    def of(cls, config: dict[str, Any], data: dict[str, str] | None = None) -> Run:
        """Check a resolved configuration.

        Args:
            config: as it is composed.
            data: fingerprint of each split, as `tasks.fingerprints` gives them.

        Raises:
            BadInput: a value is not allowed; the message names the key, the value and what is.
        """
        try:
            run = cls(**config | {"task": task_of(config["task"])}, data=data or {})
        except ValidationError as error:
            raise refusal(error) from error
        finite(config)
        if "train" not in run.task.splits:
            raise BadInput(
                f"task={run.task.name} is for evaluation only: it has no training split. "
                "It is scored at the end of the runs of the task that names it under `ood`"
            )
        if "dev" not in run.task.splits:
            raise BadInput(
                f"task={run.task.name} has no dev split, by which the best epoch is chosen: type "
                "+task.splits.dev=NAME"
            )
        return run

    def but(self, **changes: Any) -> Run:
        """Return a copy with other values, which are taken as checked."""
        fields = {name: getattr(self, name) for name in type(self).model_fields}
        run = type(self).model_construct(self.model_fields_set, **fields | changes)
        if "essence" in vars(self) and not changes.keys() & DATA:
            vars(run)["essence"] = self.essence
        return run

    @cached_property
    def essence(self) -> dict[str, Any]:
        """What the groups are, free of paths; it is the same for all runs that share them."""
        return identity.essence(self, self.hash_of)

    @property
    def identity(self) -> dict[str, Any]:
        """What defines the experiment, free of paths: what is hashed, and kept in the record."""
        return identity.identity(self)

    @property
    def hash_of(self) -> FileHash:
        """How the files are hashed that the run is named for."""
        return hash_anew if self.force else file_hash

    @cached_property
    def id(self) -> str:
        """Ten hexadecimal digits of the hash of the identity."""
        return identity.run_id(self.identity)

    @property
    def cache(self) -> Path:
        """The folder of teachers, banks and tokenised data."""
        return Path(self.cache_dir)

    @property
    def limited(self) -> bool:
        """Whether only a part of the rows is used."""
        return self.limit_train is not None or self.limit_eval is not None

    def taught_before(self, general: GeneralSettings) -> TeacherSettings:
        """Return who teaches a general stage: the run's teacher where it is of that name.

        So what is typed of that, such as `teacher.path`, holds for both. Another one is as its
        YAML has it.

        Raises:
            BadInput: there is none of this name.
        """
        if general.teacher == self.teacher.name:
            return self.teacher
        return TeacherSettings(**general.group("teacher"))

    def other_student(self, name: str) -> StudentSettings:
        """Return the settings of a student that is not the run's: an assistant.

        Raises:
            BadInput: there is none of this name.
        """
        return StudentSettings(**student_settings(name))

    @property
    def assisted(self) -> bool:
        """Whether the method trains assistants by the teacher's recipe."""
        return "assistants" in self.method.arguments


BESIDE_A_CHECKPOINT = ("name", "checkpoint", "allow_weak")
"""What still counts of a teacher's settings once `teacher.checkpoint` is given."""


def require_effect(run: Run, typed: set[str]) -> None:
    """Refuse settings that were typed but would change nothing.

    Args:
        typed: dotted keys that the user set.

    Raises:
        BadInput: one of them has no effect next to the others.
    """
    if run.teacher.checkpoint is None:
        return
    for key in sorted(typed):
        if key.startswith("teacher.recipe.") and run.assisted:
            continue  # they are trained by it
        if key.startswith("teacher.") and key.removeprefix("teacher.") not in BESIDE_A_CHECKPOINT:
            raise BadInput(
                f"{key} has no effect next to teacher.checkpoint={run.teacher.checkpoint}, which "
                "is already fine-tuned; leave one of the two out"
            )


SCIENCE = frozenset(Science.model_fields)
PLUMBING = frozenset(Run.model_fields) - SCIENCE - {"data"}
DATA = frozenset({"teacher", "student", "method", "task", "data_dir", "cache_dir", "force"})
"""Settings that say what a run is made of: files are read to tell who it is, by force all anew."""
FOLDERS = frozenset(
    ["data_dir", "cache_dir", "results_dir", "plugins"]
    + [f"{group}.{key}" for group in ("teacher", "student") for key in ("path", "checkpoint")]
)
"""Settings that name a folder."""
