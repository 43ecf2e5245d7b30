"""The job in torchdistill, after its GLUE example.

That is examples/hf_transformers/general_language_understanding.py with the configurations
configs/sample/glue/*/kd/*.yaml. As there: rows padded to the longest of their batch by
DataCollatorWithPadding, random order, a distillation box from a configuration, Accelerate for the
backward pass, clipped gradients, and a loop that hands the box no targets. Without targets KDLoss
is the KL divergence alone: its `alpha` and its T^2 do nothing. The batch holds the labels, so both
models compute a cross-entropy that nothing uses.

Other than there: matches of hidden states are added the way its configurations for vision add
them (forward hooks and SimpleLossWrapper), with a distance on the first token that is registered
here; the learning rate is constant, since the job says so.
"""

from __future__ import annotations

from typing import Any

import torch
import vision  # noqa: F401
from accelerate import Accelerator
from datasets import Dataset
from protocol import GRADIENT_CLIP, MATCHES, TEMPERATURE, WEIGHT_DECAY, Job, Row, Train, serve
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.utils.data import RandomSampler
from torchdistill.core.distillation import DistillationBox, get_distillation_box
from torchdistill.datasets.registry import register_collate_func
from torchdistill.losses.registry import register_low_level_loss
from torchdistill.misc.log import MetricLogger
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
)


@register_low_level_loss
class FirstTokenDistance(nn.Module):
    """PKD's distance: squared, between first tokens of length 1, mean over rows."""

    def forward(self, student: Tensor, teacher: Tensor) -> Tensor:
        gap = normalize(student[:, 0], dim=1) - normalize(teacher[:, 0], dim=1)
        return gap.pow(2).sum(1).mean()


def layer(number: int) -> str:
    return f"bert.encoder.layer.{number - 1}"


def match(student: int, teacher: int) -> dict[str, Any]:
    wrapper = {
        "input": {"is_from_teacher": False, "module_path": layer(student), "io": "output"},
        "target": {"is_from_teacher": True, "module_path": layer(teacher), "io": "output"},
    }
    return {
        "criterion": {"key": "FirstTokenDistance", "kwargs": {}},
        "criterion_wrapper": {"key": "SimpleLossWrapper", "kwargs": wrapper},
        "weight": 1.0,
    }


def model_config(layers: list[int], requires_grad: bool) -> dict[str, Any]:
    return {
        "forward_proc": "forward_batch_only_as_kwargs",
        "sequential": [],
        "forward_hook": {"input": [], "output": ["classifier", *map(layer, layers)]},
        "requires_grad": requires_grad,
        "frozen_modules": [],
    }


def train_config(job: Job) -> dict[str, Any]:
    logits = {
        f"{who}_module_{what}": value
        for who in ("student", "teacher")
        for what, value in (("path", "classifier"), ("io", "output"))
    }
    kd = logits | {"temperature": TEMPERATURE, "alpha": 0.5, "reduction": "batchmean"}
    terms = {f"match{s}": match(s, t) for s, t in MATCHES}
    terms["kd"] = {"criterion": {"key": "KDLoss", "kwargs": kd}, "weight": 1.0}
    return {
        "num_epochs": 1,
        "train_data_loader": {
            "dataset_id": "train",
            "requires_supp": False,
            "sampler": {"class_or_func": RandomSampler},
            "collate_fn": "DataCollatorWithPadding",
            "kwargs": {"batch_size": job["batch_size"], "num_workers": 0},
        },
        "teacher": model_config([t for _, t in MATCHES], requires_grad=False),
        "student": model_config([s for s, _ in MATCHES], requires_grad=True),
        "optimizer": {
            "key": "AdamW",
            "kwargs": {"lr": job["lr"], "weight_decay": WEIGHT_DECAY},
            "max_grad_norm": GRADIENT_CLIP,
            "grad_accum_step": 1,
        },
        "criterion": {"key": "WeightedSumLoss", "kwargs": {"sub_terms": terms}},
    }


def distillation_box(job: Job, rows: list[Row]) -> DistillationBox:
    teacher, student = (
        AutoModelForSequenceClassification.from_pretrained(job[name], dtype=torch.float32)
        for name in ("teacher", "student")
    )
    tokenizer = AutoTokenizer.from_pretrained(job["student"])

    def encode(batch: dict[str, list[Any]]) -> dict[str, Any]:
        texts = [batch[column] for column in job["columns"]]
        encoded = tokenizer(*texts, truncation=True, max_length=job["max_length"])
        return {**encoded, "labels": batch["label"]}

    raw = Dataset.from_list(rows)
    data = {"train": raw.map(encode, batched=True, remove_columns=raw.column_names)}
    register_collate_func(DataCollatorWithPadding(tokenizer))
    accelerator = Accelerator(cpu=True)
    accelerator.state.use_fp16 = False  # asked for, but later versions of Accelerate lack it
    device = accelerator.device
    return get_distillation_box(
        teacher, student, data, train_config(job), device, [device.index], False, 1, accelerator
    )


def build(job: Job, rows: list[Row]) -> Train:
    box = distillation_box(job, rows)

    def train(steps: int | None) -> list[float]:
        losses: list[float] = []
        box.pre_epoch_process(epoch=0)
        meters = MetricLogger(delimiter="  ")
        for batch in meters.log_every(box.train_data_loader, 50, "Epoch"):
            with torch.autocast("cpu", torch.bfloat16, enabled=job["bf16"]):
                loss = box.forward_process(batch, targets=None, supp_dict=None)
            box.post_forward_process(loss=loss)
            losses.append(loss.item())
            meters.update(loss=losses[-1], lr=box.optimizer.param_groups[0]["lr"])
            if len(losses) == steps:
                break
        box.post_epoch_process()
        return losses

    return train


if __name__ == "__main__":
    serve(build, ["torchdistill", "accelerate", "datasets"])
