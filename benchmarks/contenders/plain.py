"""The job in a plain PyTorch loop, padded to `max` length or to the batch's (`dynamic`).

The measure for the toolkits: with equal padding nothing else should cost them time.
"""

from __future__ import annotations

from itertools import islice

import torch
import torch.nn.functional as F
from protocol import GRADIENT_CLIP, MATCHES, TEMPERATURE, WEIGHT_DECAY, Job, Row, Train, serve
from torch import Tensor
from torch.utils.data import DataLoader
from transformers import (
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
)
from transformers.modeling_outputs import SequenceClassifierOutput

PADDING = {"max": "max_length", "dynamic": "longest"}


def batches(job: Job, rows: list[Row]) -> DataLoader:
    tokenizer = AutoTokenizer.from_pretrained(job["student"])
    texts = [[row[column] for row in rows] for column in job["columns"]]
    encoded = tokenizer(*texts, truncation=True, max_length=job["max_length"])
    examples = [{name: encoded[name][i] for name in encoded} for i in range(len(rows))]
    collate = DataCollatorWithPadding(
        tokenizer, padding=PADDING[job["padding"]], max_length=job["max_length"]
    )
    return DataLoader(examples, batch_size=job["batch_size"], shuffle=True, collate_fn=collate)


def distance(student: Tensor, teacher: Tensor) -> Tensor:
    """Return PKD's distance of two hidden states [B, T, H]."""
    gap = F.normalize(student[:, 0], dim=1) - F.normalize(teacher[:, 0], dim=1)
    return gap.pow(2).sum(1).mean()


def loss_of(s: SequenceClassifierOutput, t: SequenceClassifierOutput) -> Tensor:
    kl = F.kl_div(
        F.log_softmax(s.logits / TEMPERATURE, dim=-1),
        F.softmax(t.logits / TEMPERATURE, dim=-1),
        reduction="batchmean",
    )
    matches = [distance(s.hidden_states[i], t.hidden_states[j]) for i, j in MATCHES]
    return TEMPERATURE**2 * kl + sum(matches)


def build(job: Job, rows: list[Row]) -> Train:
    teacher, student = (
        AutoModelForSequenceClassification.from_pretrained(
            job[name], output_hidden_states=True, dtype=torch.float32
        )
        for name in ("teacher", "student")
    )
    teacher.eval()
    student.train()
    optimizer = torch.optim.AdamW(student.parameters(), lr=job["lr"], weight_decay=WEIGHT_DECAY)
    loader = batches(job, rows)

    def train(steps: int | None) -> list[float]:
        losses = []
        for batch in islice(loader, steps):
            with torch.no_grad():
                t = teacher(**batch)
            loss = loss_of(student(**batch), t)
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(student.parameters(), GRADIENT_CLIP)
            optimizer.step()
            losses.append(loss.item())
        return losses

    return train


if __name__ == "__main__":
    serve(build, [])
