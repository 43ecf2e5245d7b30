"""Predictions and scores of a whole split, and the files that a student leaves."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from math import isfinite
from pathlib import Path
from typing import Any

import pandas as pd
import torch
from safetensors.torch import save_file
from torch import Tensor

from ilkd_bench.data import metrics, tasks
from ilkd_bench.data.batches import Split, sorted_batches, to_device
from ilkd_bench.data.tasks import Task
from ilkd_bench.methods.base import Method
from ilkd_bench.models.model import Model
from ilkd_bench.plumbing.files import follow_umask, whole_file
from ilkd_bench.plumbing.terminal import track
from ilkd_bench.teachers.bank import not_finite
from ilkd_bench.teachers.live import Teacher
from ilkd_bench.training.module import Score
from ilkd_bench.training.output_order import better_order, is_reversed
from ilkd_bench.types import BadInput, Outputs, TrainingBatch

log = logging.getLogger(__name__)


def predict(
    outputs: Callable[[TrainingBatch], Outputs], split: Split, batch_size: int, device: Any
) -> Tensor:
    """Return the logits of a whole split in row order, [N, C] on the CPU.

    Args:
        outputs: what the model shows for a batch; the model is in eval mode and on `device`.
    """
    batches = sorted_batches(split.lengths, batch_size)
    logits = []
    with torch.inference_mode():
        for rows in track(batches, "scoring"):
            batch = to_device(split[rows], device)
            logits.append(outputs(batch).logits.float().cpu())
    joined = torch.cat(logits)
    ordered = torch.empty_like(joined)
    ordered[torch.as_tensor([int(row) for rows in batches for row in rows])] = joined
    return ordered


def scorer(task: Task) -> Score:
    """Return the function that scores predictions for a task."""
    names = [task.metric, *task.also]
    return lambda logits, labels: metrics.compute(names, logits, labels)


def measure_teacher(
    teacher: Teacher,
    task: Task,
    dev: Split,
    *,
    allow_weak: bool,
    whose: str = "the teacher",
    given: Sequence[int] | None = None,
    device: torch.device,
    batch_size: int,
) -> dict[str, float]:
    """Score the teacher on dev as this run sees it.

    Args:
        given: for each label of the task, which output of a given checkpoint is taken for it;
            None: the teacher was trained on the task's labels, so that nothing is to be doubted.

    Raises:
        BadInput: its logits are not finite; or it is no better than a constant answer, and
            `allow_weak` is not set; or the outputs of a given checkpoint are clearly in another
            order, or of the other sign.
    """
    teacher.to(device)
    needs = frozenset({"logits"})
    logits = predict(lambda batch: teacher.outputs(batch, needs), dev, batch_size, device)
    if not torch.isfinite(logits).all():
        raise BadInput(not_finite(whose, "logits", logits.numpy(), "float32"))
    scores = scorer(task)(logits, dev.labels)
    if given is not None:
        _refuse_other_order(logits, dev.labels, task, given, whose)
    guard = task.metric if task.labels is None else "accuracy"
    score = metrics.compute([guard], logits, dev.labels)[guard]
    constant = metrics.constant_score(guard, dev.labels)
    if not score > constant and not allow_weak:
        raise BadInput(
            f"{whose} scores {score:.4f} ({guard}) on dev, no better than always "
            f"giving one answer ({constant:.4f}). Give a better teacher.checkpoint=, more "
            "teacher.recipe.epochs=, or teacher.allow_weak=true"
        )
    return scores


def _refuse_other_order(
    logits: Tensor, labels: Tensor, task: Task, given: Sequence[int], whose: str
) -> None:
    """Refuse a given checkpoint whose outputs mean something else than it is said."""
    if task.labels is None:
        score = metrics.compute(["pearson"], logits, labels)["pearson"]
        if score < 0 and is_reversed(logits[:, 0].numpy(), labels.numpy()):
            raise BadInput(
                f"{whose} scores {score:.4f} (pearson) on dev, and {-score:.4f} with the sign of "
                "its output reversed: its scores fall where the labels rise. Negate weight and "
                "bias of its last layer, or give another teacher.checkpoint="
            )
        return
    order = better_order(logits.argmax(-1).numpy(), labels.numpy(), len(task.labels))
    if order is None:
        return
    stated, other = (
        metrics.compute(["accuracy"], some, labels)["accuracy"]
        for some in (logits, logits[:, order])
    )
    if not other > metrics.constant_score("accuracy", labels):
        return
    moved = [n for n, output in enumerate(order) if output != n]
    names = {str(given[order[n]]): task.labels[n] for n in moved}
    raise BadInput(
        f"{whose} scores {stated:.4f} (accuracy) on dev, and {other:.4f} with its outputs in "
        f"another order, so the names of its outputs are wrong or missing. Correct id2label (and "
        f"label2id) in its config.json: {json.dumps(dict(sorted(names.items())))}"
    )


def evaluate(
    student: Model,
    task: Task,
    splits: dict[str, Split],
    *,
    folder: Path,
    device: torch.device,
    batch_size: int,
) -> dict[str, dict[str, float]]:
    """Score the student on every split that nobody trains on, and store its predictions."""
    student.eval().to(device)
    scores = {}
    for name, split in splits.items():
        if name in ("teacher", "train"):
            continue
        logits = predict(
            lambda batch: student.outputs(batch["student"], frozenset()), split, batch_size, device
        )
        if not torch.isfinite(logits).all():
            raise FloatingPointError(f"the logits on {name} are not finite: try a lower lr=")
        save_predictions(folder / "predictions" / f"{name}.parquet", logits, split)
        if name.startswith("ood/"):
            scores[name] = _score_ood(task, name.removeprefix("ood/"), logits, split.labels)
        else:
            scores[name] = scorer(task)(logits, split.labels)
    student.cpu()
    wrong = [f"{s}/{n}" for s, part in scores.items() for n, v in part.items() if not isfinite(v)]
    if wrong:
        raise FloatingPointError(f"scores that are no numbers: {', '.join(wrong)}; try a lower lr=")
    return scores


def _score_ood(task: Task, name: str, logits: Tensor, labels: Tensor) -> dict[str, float]:
    part = tasks.ood_task(task, name)
    label_map = task.ood[name].get("label_map")
    if label_map is not None and task.labels is not None and part.labels is not None:
        rule = task.ood[name]["collapse"]
        logits = metrics.collapsed(logits, task.labels, part.labels, label_map, rule=rule)
    return metrics.compute([part.metric, *part.also], logits, labels)


def save_predictions(path: Path, logits: Tensor, split: Split) -> None:
    """Write row number, label and logits of a split."""
    frame = pd.DataFrame({"index": split.index.numpy(), "label": split.labels.numpy()})
    for column in range(logits.shape[1]):
        frame[f"logit_{column}"] = logits[:, column].numpy()
    with whole_file(path) as aside:
        frame.to_parquet(aside)


def save_student(folder: Path, student: Model, method: Method) -> None:
    """Write the student as transformers loads it, and the method's parameters."""
    student.hf.save_pretrained(folder / "student")
    student.tokenizer.save_pretrained(folder / "student")
    for path in (folder / "student").iterdir():
        follow_umask(path)
    state = {name: value.detach().contiguous().cpu() for name, value in method.named_parameters()}
    if state:
        with whole_file(folder / "method.safetensors") as aside:
            save_file(state, aside)
