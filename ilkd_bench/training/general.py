"""The general stage: a student is distilled from its pre-trained teacher on plain text.

It is done once for all runs, before any task, and stored and locked like a teacher. What it leaves
is the encoder only: the pooler and the classifier are each run's own, as before.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sized
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import nn

from ilkd_bench.data import corpus
from ilkd_bench.data.batches import PlainText, Split, sorted_batches, to_device
from ilkd_bench.data.masking import MaskedText, rarity
from ilkd_bench.data.token_stream import encode_corpus
from ilkd_bench.data.tokens import Encoded, tokenizer_fingerprint
from ilkd_bench.methods.base import Method
from ilkd_bench.models.build import seeded
from ilkd_bench.models.folder import find
from ilkd_bench.models.masked import MaskedModel, copy_head, with_head
from ilkd_bench.models.model import Model
from ilkd_bench.models.support import check_needs
from ilkd_bench.plumbing.cores import all_cores
from ilkd_bench.plumbing.hardware import device_here
from ilkd_bench.settings.general import GeneralSettings
from ilkd_bench.settings.identity import general_key
from ilkd_bench.settings.run import MethodSettings, Run, StudentSettings, TeacherSettings
from ilkd_bench.teachers.finetuned import obtain
from ilkd_bench.teachers.live import LiveTeacher
from ilkd_bench.training.loop import FitSettings, check_terms, fit
from ilkd_bench.training.module import CLOSENESS, Distance, Optimisation, both_outputs
from ilkd_bench.types import BadInput, Clock, Incompatible, Phase, Rows

log = logging.getLogger(__name__)

OWN = ("pooler.",)
"""Parts of an encoder that no objective reaches: each run draws or loads its own."""

FEWEST = 64
"""Texts below which a corpus is taken for a mistake."""


def start(student: Model, run: Run) -> dict[str, Any] | None:
    """Give a student what its general stage has taught it, which is made first where need be.

    Returns:
        What the record says of it; None where it has no general stage.

    Raises:
        BadInput: it cannot be made, or ended no closer to the teacher than it began.
    """
    if run.student.general is None:
        return None
    folder = run.cache / "teachers" / general_key(run.identity["student"], run.precision)
    facts = obtain(folder, partial(_make, run.student, run.student.general, run), snapshots=False)
    if not facts["ended"] < facts["began"]:
        raise BadInput(
            f"the general stage of student={run.student.name} ended no closer to its teacher than "
            f"it began (loss on the texts held out {facts['began']:.4g}, then "
            f"{facts['ended']:.4g}), and is not used. It lies in {folder} for a look; type "
            "another student.general.lr=, or more student.general.limit_steps="
        )
    _load(student, folder / "model.safetensors")
    told = ("began", "ended", "texts", "pairs", "held_out", "steps", "rows", "seconds")
    return {"key": folder.name} | {name: facts[name] for name in told}


def _load(student: Model, path: Path) -> None:
    """Load an encoder's weights but those that are each run's own.

    Raises:
        BadInput: they are not this encoder's.
    """
    weights = {k: v for k, v in load_file(path).items() if not k.startswith(OWN)}
    base: nn.Module = student.hf.base_model
    missing, surplus = base.load_state_dict(weights, strict=False)
    wrong = [name for name in missing if not name.startswith(OWN)] + surplus
    if wrong:
        raise BadInput(f"{path} does not hold this student's weights: {', '.join(wrong[:3])}")


# ------------------------------------------------------------------------------- what it is made of


def parts(
    settings: StudentSettings, general: GeneralSettings, run: Run
) -> tuple[Model, LiveTeacher, Method, dict[str, float]]:
    """Return student and teacher before the stage, and the method with its weights.

    Raises:
        BadInput: they do not go together.
    """
    student: Model = settings.build_model(run.cache, labels=None, seed=general.seed)
    chosen = run.taught_before(general)
    teacher = LiveTeacher(
        chosen.build_model(run.cache, labels=None, seed=general.seed), name=chosen.name
    )
    method_settings = MethodSettings(**general.group("method") | {"weights": general.weights})
    with seeded(general.seed):
        try:
            method: Method = method_settings.build(student=student.spec, teacher=teacher.spec)
            phase = method.general(1)
            for whose, model in (("the student", student), ("the teacher", teacher.model)):
                check_needs(model, phase.needs - {"hidden", "logits"}, whose)
        except Incompatible as reason:
            raise BadInput(
                f"student.general.method={general.method} for student={settings.name} and "
                f"teacher={general.teacher}: {reason}"
            ) from reason
        if "logits" in phase.needs:  # without a task they are those of the tokens
            student, teacher = _masked(student, teacher, chosen)
    for model in (student, teacher.model):
        if general.max_length > model.max_tokens:
            raise BadInput(
                f"student.general.max_length={general.max_length}: allowed is "
                f"{model.max_tokens} or less"
            )
    if tokenizer_fingerprint(student.tokenizer) != tokenizer_fingerprint(teacher.model.tokenizer):
        raise BadInput(
            f"student={settings.name} and student.general.teacher={general.teacher} read other "
            "tokens of the same text, and a general stage compares them token by token"
        )
    rows = Rows(torch.zeros(2, dtype=torch.long), torch.arange(2))
    check_terms(method, general.weights, [phase], student.spec, teacher.spec, rows)
    return student, teacher, method, general.weights


def _masked(
    student: Model, teacher: LiveTeacher, chosen: TeacherSettings
) -> tuple[MaskedModel, LiveTeacher]:
    """Give both models a masked-language head: the teacher its own, the student the same if it can.

    Raises:
        BadInput: one of them has none.
    """
    if student.tokenizer.mask_token_id is None:
        raise BadInput(
            f"teacher={chosen.name} has a tokenizer without a mask token, so none can be hidden: "
            "give another student.general.method="
        )
    path, revision = chosen.arguments.get("path"), chosen.arguments.get("revision")
    folder = None if path is None else find(path, revision)
    whole = with_head(teacher.model, folder, f"teacher={chosen.name}")
    begun = with_head(student, None, "the student")
    copy_head(begun, whole)
    return begun, LiveTeacher(whole, name=teacher.name)


def check(run: Run) -> None:
    """Refuse a general stage that cannot be, without training it: `parts`, and its first texts.

    Raises:
        BadInput: that is so.
    """
    if run.student.general is None:
        return
    with torch.device("meta"):
        parts(run.student, run.student.general, run)
    source = run.student.general.corpus.corpus(run.data_dir)
    _require_texts(next(corpus.batched(source.texts(), FEWEST), []))


def _require_texts(texts: Sized) -> None:
    if len(texts) < FEWEST:
        raise BadInput(
            f"student.general.corpus has {len(texts)} texts; a general stage needs at least "
            f"{FEWEST}, and learns from tens of thousands"
        )


# ------------------------------------------------------------------------------------- the training


def _make(
    settings: StudentSettings, general: GeneralSettings, run: Run, aside: Path, snapshots: bool
) -> dict[str, Any]:
    """Train the student into a folder and return what is known of it."""
    student, teacher, method, weights = parts(settings, general, run)
    _without_dropout(student)
    encoded, pairs = encode_corpus(
        general.corpus.corpus(run.data_dir),
        student.tokenizer,
        about=run.identity["student"]["general"]["corpus"],
        max_length=general.max_length,
        cache_dir=run.cache,
    )
    splits = _split(encoded, general, student)
    batches = math.ceil(len(splits["train"]) / general.batch_size) * general.epochs
    wanted = min(batches, general.limit_steps or batches)
    stretches = math.ceil(wanted / general.every)
    steps = math.ceil(wanted / stretches)
    phase = method.general(stretches)
    log.info(
        "general stage of %s, once for all runs: %s teaches it on %d texts in %d steps of %d "
        "texts; what was done is kept every %d steps, in case it is killed",
        *(settings.name, general.teacher, len(splits["train"]), steps * stretches),
        *(general.batch_size, steps),
    )
    distance = partial(_distance, student, teacher, method, weights, splits["dev"], phase, run=run)
    with all_cores(student.size + teacher.model.size):
        began = distance()
        fitted = fit(
            student.requires_grad_(True),
            method,
            weights,
            teacher,
            splits,
            phases=[phase],
            settings=FitSettings(
                seed=general.seed,
                batch_size=general.batch_size,
                patience=None,
                gradient_clip=general.gradient_clip,
                precision=run.precision,
                optimisation=Optimisation(
                    general.lr, general.weight_decay, general.warmup_ratio, "student.general.lr"
                ),
                accelerator=run.trainer.accelerator,
                workers=run.trainer.workers,
                eval_batch_size=run.trainer.eval_batch_size,
                steps=steps,
            ),
            score=None,
            monitor=CLOSENESS,
            folder=aside,
            title=f"general stage of {settings.name}",
        )
        ended = distance()
    base: Any = student.hf.base_model
    base.save_pretrained(aside)
    student.tokenizer.save_pretrained(aside)
    log.info(
        "the general stage of %s saw %d rows of %d texts (%d of them pairs) in %d steps; its loss "
        "on %d texts held out fell from %.4g to %.4g",
        *(settings.name, fitted.examples, len(encoded.lengths), pairs, steps * stretches),
        *(len(splits["dev"]), began, ended),
    )
    return {
        "began": began,
        "ended": ended,
        "texts": len(encoded.lengths),
        "pairs": pairs,
        "held_out": len(splits["dev"]),
        "steps": steps * stretches,
        "rows": fitted.examples,
        "seconds": fitted.seconds,
        "snapshots": False,
        "history": fitted.history,
    }


def _without_dropout(student: Model) -> None:
    """Switch dropout off: a student that imitates needs none, and a step is faster."""
    for module in student.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0


def _split(encoded: Encoded, general: GeneralSettings, student: Model) -> dict[str, Split]:
    """Return the texts to learn from, and those that are held out, drawn by the seed.

    Of a student that predicts tokens some are hidden.

    Raises:
        BadInput: there are too few.
    """
    texts = len(encoded.lengths)
    _require_texts(range(texts))
    order = np.random.default_rng(general.seed).permutation(texts)
    held_out = min(general.held_out, texts // 10)
    parts = {"train": np.sort(order[held_out:]), "dev": np.sort(order[:held_out])}
    if not isinstance(student, MaskedModel):
        return {name: PlainText(encoded, rows) for name, rows in parts.items()}
    tokenizer = student.tokenizer
    readiness = rarity(encoded.ids, student.spec.vocabulary, tokenizer.all_special_ids)
    mask = int(tokenizer.mask_token_id)
    return {
        name: MaskedText(encoded, rows, readiness=readiness, mask=mask, seed=general.seed)
        for name, rows in parts.items()
    }


@torch.no_grad()
def _distance(
    student: Model,
    teacher: LiveTeacher,
    method: Method,
    weights: dict[str, float],
    dev: Split,
    phase: Phase,
    *,
    run: Run,
) -> float:
    """Return the loss on the texts held out."""
    device = device_here(run.trainer.accelerator)
    student.to(device)
    method.to(device)
    teacher.to(device)
    student.eval()
    clock = Clock(phase, epoch=0, step=0, steps=1, seed=0)
    distance = Distance(weights)
    for numbers in sorted_batches(dev.lengths, run.trainer.eval_batch_size):
        s, t, rows = both_outputs(student, teacher, to_device(dev[numbers], device), clock)
        distance.add(method.loss(s, t, rows, clock), len(numbers))
    return -distance.scores()[CLOSENESS]
