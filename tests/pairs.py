"""Small students and teachers of every family, and what methods make of them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
import toys
from families import load, save
from torch import Tensor
from transformers import AutoModelForSequenceClassification

from ilkd_bench.data.batches import Split
from ilkd_bench.data.tasks import TextRows
from ilkd_bench.data.tokens import Encoded, encode
from ilkd_bench.methods.base import Method
from ilkd_bench.models import build
from ilkd_bench.models.model import Model
from ilkd_bench.settings.run import MethodSettings
from ilkd_bench.teachers import finetuned
from ilkd_bench.teachers.live import LiveTeacher
from ilkd_bench.training import inputs
from ilkd_bench.training.module import both_outputs
from ilkd_bench.types import Clock, Phase

method_settings = cache(toys.method_settings)

EPOCHS = 8
"""Enough for every method's phases."""

_folder = tempfile.TemporaryDirectory(prefix="pairs-")
FOLDER = Path(_folder.name)
"""For tokens, snapshots and banks; it goes with the process."""


class Side(NamedTuple):
    """A model's family and sizes."""

    family: str = "bert"
    layers: int = 6
    width: int = 8
    heads: int = 2


@dataclass(frozen=True, eq=False)
class Pair:
    """Two models and the rows that both read."""

    student: Model
    teacher: LiveTeacher
    split: Split


@cache
def pair(student: Side, teacher: Side, classes: int) -> Pair:
    """A student, a teacher with two snapshots, and six rows of two sentences each.

    The teacher's model is its own: it goes from snapshot to snapshot.
    """
    s, t = model(student, classes, seed=1), model(teacher, classes, seed=2)
    live = LiveTeacher(deepcopy(t), snapshots=_snapshots(teacher, classes))
    labels = torch.arange(6) % classes if classes > 1 else torch.linspace(0, 5, 6)
    return Pair(s, live, Split(labels, torch.arange(6), _read(s), _read(t)))


def method(name: str, of: Pair) -> Method:
    """A method as its YAML states it that has seen the rows, its projections the same each time.

    Raises:
        Incompatible: it refuses the sizes of the pair.
    """
    sizes = {"student": of.student.spec, "teacher": of.teacher.spec}
    with build.seeded(0):
        chosen: Method = MethodSettings(**method_settings(name)).build(**sizes)
        chosen.prepare(of.split.labels, of.split.index)
    return chosen


def check_tokens(chosen: Method, of: Pair) -> None:
    """Refuse, as a run does, what compares tokens where the models read other ones."""
    inputs.check_tokens("the method", chosen, of.split)


def terms(
    chosen: Method, of: Pair, *, teacher: object = None, split: Split | None = None
) -> Iterator[tuple[Phase, dict[str, Tensor]]]:
    """Every phase with its unweighted terms on all rows of the split, in its first epoch."""
    batch = (split or of.split)[np.arange(6)]
    for phase in chosen.phases(EPOCHS):
        clock: Clock = toys.clock(phase)
        s, t, rows = both_outputs(of.student, teacher or of.teacher, batch, clock)  # type: ignore[arg-type]
        yield phase, chosen.loss(s, t, rows, clock)


@cache
def model(side: Side, classes: int, seed: int) -> Model:
    config, tokenizer = _saved(side.family, side.layers, side.width)
    config = deepcopy(config)
    config.num_attention_heads = side.heads
    config.num_labels = classes
    with build.seeded(seed):
        hf = AutoModelForSequenceClassification.from_config(config)
    return Model(hf.eval(), tokenizer)


@cache
def _saved(family: str, layers: int, width: int) -> tuple[Any, Any]:
    with tempfile.TemporaryDirectory() as folder:
        loaded = load(save(Path(folder), family, layers=layers, width=width))
    return loaded.hf.config, loaded.tokenizer


@cache
def _snapshots(side: Side, classes: int) -> list[Path]:
    folder = Path(tempfile.mkdtemp(dir=FOLDER))
    paths = [folder / f"epoch-{number + 1:03d}.safetensors" for number in range(2)]
    for number, path in enumerate(paths):
        finetuned.save_weights(model(side, classes, seed=3 + number), path)
    return paths


def _read(model: Model) -> Encoded:
    generator = np.random.default_rng(4)
    texts = [
        [" ".join(generator.choice(toys.WORDS, length)) for length in lengths]
        for lengths in ((1, 6, 3, 2, 5, 4), (4, 1, 2, 6, 3, 1))
    ]
    rows = TextRows(texts, np.zeros(6, np.int64), np.arange(6))
    return encode(rows, model.tokenizer, max_length=20, cache_dir=FOLDER)
