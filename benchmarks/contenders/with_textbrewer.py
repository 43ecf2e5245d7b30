"""The job in TextBrewer, after its SST-2 example (examples/notebook_examples/sst2.ipynb).

As there: every row padded to max_length when it is tokenised, a DataLoader over a RandomSampler, a
GeneralDistiller with matches of hidden states, and its own `train` for the epoch. Also as there,
temperature and weights of the losses are its defaults (4, kd 1, labels 0), and the batch holds the
labels, so both models compute a cross-entropy that nothing uses.

Other than there: the matches are its `pkd` (first token, vectors of length 1) instead of
`hidden_mse` over all tokens, which is the cheaper of the two; gradients are clipped and the
learning rate is constant, since the job says so; no checkpoint is written at the end of the epoch.
"""

from __future__ import annotations

from typing import Any

import torch
import vision  # noqa: F401
from datasets import Dataset
from protocol import GRADIENT_CLIP, MATCHES, TEMPERATURE, WEIGHT_DECAY, Job, Row, Train, serve
from textbrewer import DistillationConfig, GeneralDistiller, TrainingConfig
from torch.utils.data import DataLoader, RandomSampler, Subset
from transformers import AutoModelForSequenceClassification, AutoTokenizer


class Losses:
    """Stands in for the TensorBoard writer: the trainer hands its losses to nobody else."""

    def __init__(self) -> None:
        self.totals: list[float] = []

    def add_scalar(self, name: str, value: float, step: int) -> None:
        if name == "scalar/total_loss":
            self.totals.append(value)


def tokenized(job: Job, rows: list[Row]) -> Dataset:
    tokenizer = AutoTokenizer.from_pretrained(job["student"])

    def encode(batch: dict[str, list[Any]]) -> dict[str, Any]:
        texts = [batch[column] for column in job["columns"]]
        encoded = tokenizer(
            *texts, truncation=True, padding="max_length", max_length=job["max_length"]
        )
        return {**encoded, "labels": batch["label"]}

    data = Dataset.from_list(rows).map(encode, batched=True)
    data.set_format("torch", columns=["input_ids", "token_type_ids", "attention_mask", "labels"])
    return data


def simple_adaptor(batch: dict[str, Any], outputs: Any) -> dict[str, Any]:
    return {"logits": outputs.logits, "hidden": outputs.hidden_states}


def build(job: Job, rows: list[Row]) -> Train:
    teacher, student = (
        AutoModelForSequenceClassification.from_pretrained(
            job[name], output_hidden_states=True, dtype=torch.float32
        )
        for name in ("teacher", "student")
    )
    matches = [
        {"layer_S": s, "layer_T": t, "feature": "hidden", "loss": "pkd", "weight": 1}
        for s, t in MATCHES
    ]
    distiller = GeneralDistiller(
        # The folder must exist but stays as it is: no checkpoints are taken.
        train_config=TrainingConfig(device="cpu", output_dir=job["student"], ckpt_frequency=0),
        distill_config=DistillationConfig(
            temperature=TEMPERATURE,
            kd_loss_weight=1,
            hard_label_weight=0,
            intermediate_matches=matches,
        ),
        model_T=teacher,
        model_S=student,
        adaptor_T=simple_adaptor,
        adaptor_S=simple_adaptor,
    )
    optimizer = torch.optim.AdamW(student.parameters(), lr=job["lr"], weight_decay=WEIGHT_DECAY)
    data = tokenized(job, rows)

    def train(steps: int | None) -> list[float]:
        part = data if steps is None else Subset(data, range(steps * job["batch_size"]))
        loader = DataLoader(part, sampler=RandomSampler(part), batch_size=job["batch_size"])
        distiller.tb_writer = losses = Losses()
        with distiller, torch.autocast("cpu", torch.bfloat16, enabled=job["bf16"]):
            distiller.train(optimizer, loader, num_epochs=1, max_grad_norm=GRADIENT_CLIP)
        return losses.totals

    return train


if __name__ == "__main__":
    serve(build, ["textbrewer", "datasets"])
