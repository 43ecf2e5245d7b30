"""Small configurations, outputs, models and splits that the tests are made of."""

from __future__ import annotations

import copy
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf
from torch import Tensor
from transformers import BertConfig, BertForSequenceClassification

from ilkd_bench.data.batches import Split
from ilkd_bench.data.tokens import Encoded
from ilkd_bench.functional import features
from ilkd_bench.jobs import plan
from ilkd_bench.methods.base import Method
from ilkd_bench.models import build
from ilkd_bench.models.model import Model
from ilkd_bench.plumbing.files import write_json
from ilkd_bench.records.folders import Damaged, examine, run_folders
from ilkd_bench.settings import groups, plugins
from ilkd_bench.settings.run import MethodSettings, Run
from ilkd_bench.training.loop import FitSettings
from ilkd_bench.training.module import Optimisation
from ilkd_bench.types import Clock, Outputs, Phase, Rows, Spec

CONF = plan.ROOT / "conf"  # of `plan`, which tells Hydra what ${root:} is
VECTORS = Path(__file__).parent / "vectors"
plugins.use(os.environ.get(groups.PLUGINS) or None)
METHODS = groups.names("method")
"""The built-in ones, and those of the plugins that the environment names."""

CLOSE = 1e-5
HALF = 2.0**-11
"""The largest relative error of rounding to float16 (11 significant bits)."""

SMALL = (
    "teacher.layers=3",
    "student.layers=2",
    "student.teacher_layers=null",
    "teacher.recipe.epochs=1",
    "teacher.allow_weak=true",
    "limit_train=64",
    "limit_eval=64",
    "epochs=1",
    "precision=32-true",
)
"""Command-line words that shrink a run of the demo pair to about a second.

The precision that `auto` is depends on the processor.
"""


def config(*overrides: str) -> dict[str, Any]:
    """The configuration that Hydra composes, resolved."""
    with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
        composed = compose("config", overrides=list(overrides))
    return OmegaConf.to_container(composed, resolve=True)


def run(*overrides: str, data: dict[str, str] | None = None) -> Run:
    """The settings of a run, checked."""
    return Run.of(config(*overrides), data)


def small(folder: Path, *overrides: str) -> list[str]:
    """Command-line words of a shrunken run that writes below ``folder`` only."""
    where = f"results_dir={folder / 'results'}", f"cache_dir={folder / 'cache'}"
    return last(*SMALL, *where, *overrides)


def last(*words: str) -> list[str]:
    """Words of which the last one of each key counts: a command has each key once."""
    return list({word.partition("=")[0]: word for word in words}.values())


def write_record(folder: Path, content: dict[str, Any]) -> None:
    """Write what a record's file shall hold, whatever it is."""
    write_json(folder / "record.json", content)


def read_record(folder: Path) -> dict[str, Any] | None:
    """What a record's file holds; None where there is none or it is not whole."""
    try:
        return examine(folder)
    except (FileNotFoundError, Damaged):
        return None


def records(results_dir: Path) -> Iterator[dict[str, Any]]:
    """Every whole record below a folder, ordered by path, with its ``folder``."""
    for folder in run_folders(results_dir):
        record = read_record(folder)
        if record is not None:
            yield record | {"folder": folder.relative_to(results_dir).as_posix()}


# ------------------------------------------------------------------------------------- methods


def method_settings(name: str) -> dict[str, Any]:
    """The content of a method's YAML."""
    return copy.deepcopy(groups.defaults("method", name))


def method(name: str, student: Spec, teacher: Spec, **changes: Any) -> Method:
    """A method as its YAML states it, with some settings changed."""
    settings = MethodSettings(**method_settings(name) | changes)
    return settings.build(student=student, teacher=teacher)


def spec(layers: int, width: int = 4, classes: int = 3) -> Spec:
    return Spec(layers=layers, width=width, heads=2, vocabulary=11, classes=classes)


def clock(phase: Phase, *, epoch: int = 0, seed: int = 0) -> Clock:
    return Clock(phase=phase, epoch=epoch, step=epoch * 5, steps=phase.epochs * 5, seed=seed)


# ------------------------------------------------------------------------------------- outputs


PER_LAYER = ("hidden", "attention", "queries", "keys", "values")
"""The fields of `Outputs` with an entry per layer."""


@dataclass(frozen=True)
class Raw:
    """What a model computes, before anything is pooled."""

    logits: Tensor  # [B, C]
    mask: Tensor  # [B, T]
    hidden: tuple[Tensor, ...]  # L+1 of [B, T, H]
    attention: tuple[Tensor, ...] = ()  # L of [B, A, T, T]
    queries: tuple[Tensor, ...] = ()  # L of [B, A, T, D]
    keys: tuple[Tensor, ...] = ()  # L of [B, A, T, D]
    values: tuple[Tensor, ...] = ()  # L of [B, A, T, D]

    def outputs(self, needs: frozenset[str]) -> Outputs:
        """Show what ``needs`` names and nothing else."""
        pooled = {}
        if "cls" in needs:
            pooled["cls"] = features.cls(self.hidden)
        if "mean" in needs:
            pooled["mean"] = features.mean(self.hidden, self.mask)
        return Outputs(
            logits=self.logits,
            mask=self.mask,
            **{name: getattr(self, name) for name in needs & set(PER_LAYER)},
            **pooled,
        )

    def rows(self, chosen: Sequence[int]) -> Raw:
        """Some rows, in this order."""
        rows = torch.as_tensor(chosen)
        layers = {name: tuple(x[rows] for x in getattr(self, name)) for name in PER_LAYER}
        return Raw(self.logits[rows], self.mask[rows], **layers)

    def padded(self, length: int) -> Raw:
        """The same rows with more positions, whose states are large and mean nothing."""
        rows, old = self.mask.shape
        more = length - old

        def longer(states: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
            pad = torch.nn.functional.pad
            return tuple(
                pad(x, (0, 0, 0, more), value=1e3 * (-1) ** i) for i, x in enumerate(states)
            )

        return Raw(
            self.logits,
            torch.cat([self.mask, torch.zeros(rows, more, dtype=self.mask.dtype)], dim=1),
            longer(self.hidden),
            tuple(torch.nn.functional.pad(a, (0, more, 0, more)) for a in self.attention),
            longer(self.queries),
            longer(self.keys),
            longer(self.values),
        )

    def shifted(self, layer: int) -> Raw:
        """The same with other hidden states in one layer (0: the embedding output)."""
        hidden = list(self.hidden)
        ramp = torch.linspace(-2, 3, hidden[layer].shape[-1])
        hidden[layer] = hidden[layer] + ramp
        return replace(self, hidden=tuple(hidden))


def raw(model: Spec, generator: torch.Generator, *, lengths: Sequence[int] = (16, 9, 3, 1)) -> Raw:
    """Random hidden states of rows with these lengths; garbage where there is padding."""
    rows, longest = len(lengths), max(lengths)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator)

    mask = (torch.arange(longest) < torch.as_tensor(lengths)[:, None]).long()
    hidden = tuple(
        torch.where(mask[..., None] == 1, draw(rows, longest, model.width), torch.tensor(-700.0))
        for _ in range(model.layers + 1)
    )
    blocked = torch.where(mask == 1, 0.0, float("-inf"))[:, None, None, :]
    attention = tuple(
        torch.nan_to_num(torch.softmax(draw(rows, model.heads, longest, longest) + blocked, -1))
        for _ in range(model.layers)
    )
    logits = draw(rows, model.classes)
    real = mask[:, None, :, None] == 1
    projected = [
        tuple(
            torch.where(
                real,
                draw(rows, model.heads, longest, model.width // model.heads),
                torch.tensor(-700.0),
            )
            for _ in range(model.layers)
        )
        for _ in range(3)
    ]
    return Raw(logits, mask, hidden, attention, *projected)


def batch(rows: int, classes: int) -> Rows:
    """Labels of every kind, and row numbers."""
    index = torch.arange(rows)
    labels = index % classes if classes > 1 else torch.linspace(0, 5, rows)
    return Rows(labels=labels, index=index)


def rows_of(b: Rows, chosen: Sequence[int]) -> Rows:
    rows = torch.as_tensor(chosen)
    return Rows(labels=b.labels[rows], index=b.index[rows])


# -------------------------------------------------------------------------------------- models

WORDS = "good bad fine poor the a film cup was is very not red blue one two".split()


def model(
    *,
    layers: int = 2,
    width: int = 8,
    classes: int = 2,
    seed: int = 0,
    dropout: float = 0.1,
    positions: int = 24,
    labels: Sequence[str] | None = None,
) -> Model:
    """A BERT with random weights that reads ``WORDS``; in eval mode, like a loaded one."""
    tokenizer = build.word_tokenizer(WORDS, positions)
    config = BertConfig(
        vocab_size=len(tokenizer),
        num_hidden_layers=layers,
        hidden_size=width,
        num_attention_heads=2,
        intermediate_size=2 * width,
        max_position_embeddings=positions,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        initializer_range=0.3,
        num_labels=classes,
    )
    if labels is not None:
        config.id2label = dict(enumerate(labels))
        config.label2id = {name: number for number, name in enumerate(labels)}
    with build.seeded(seed):
        return Model(BertForSequenceClassification(config).eval(), tokenizer)


def encoded(lengths: Sequence[int], *, seed: int = 0, pad_id: int = 0) -> Encoded:
    """Random words of ``WORDS`` between [CLS] and [SEP]."""
    generator = np.random.default_rng(seed)
    rows = [[2, *generator.integers(5, 5 + len(WORDS), n - 2), 3] for n in lengths]
    return Encoded(
        ids=np.concatenate([np.asarray(row, np.int32) for row in rows]),
        types=np.zeros(sum(lengths), np.int8),
        offsets=np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64),
        pad_id=pad_id,
    )


def split(rows: int = 24, *, classes: int = 2, seed: int = 0) -> Split:
    """Rows of 3 to 12 tokens, both models reading the same."""
    lengths = np.random.default_rng(seed).integers(3, 13, rows).tolist()
    tokens = encoded(lengths, seed=seed)
    labels = torch.arange(rows) % classes if classes > 1 else torch.linspace(0, 5, rows)
    return Split(labels, torch.arange(rows), tokens, tokens)


def splits(rows: int = 24, *, classes: int = 2) -> dict[str, Split]:
    return {
        "train": split(rows, classes=classes, seed=1),
        "dev": split(10, classes=classes, seed=2),
    }


def fit_settings(**changes: Any) -> FitSettings:
    """How the toy models are trained."""
    chosen: dict[str, Any] = {
        "seed": 0,
        "batch_size": 8,
        "patience": None,
        "gradient_clip": 1.0,
        "precision": "32-true",
        "optimisation": Optimisation(lr=1e-2, weight_decay=0.01, warmup_ratio=0.1),
        "accelerator": "cpu",
        "workers": 0,
        "eval_batch_size": 4,
    }
    return FitSettings(**(chosen | changes))
