"""What the general stage is worth: a student cut from a pre-trained teacher, with and without it.

The demo teacher is random before a task, so there is nothing to be learned from it. Here it is
pre-trained first, by masked language modelling on text of the demo grammar, which the package does
not do.
"""

from __future__ import annotations

import json
import random
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from scipy.stats import ttest_1samp
from torch import Tensor
from torch.nn.functional import cross_entropy
from transformers import BertForMaskedLM

from ilkd_bench.data import grammar
from ilkd_bench.functional.schedules import linear_warmup
from ilkd_bench.jobs import plan
from ilkd_bench.models import build
from ilkd_bench.training import train

pytestmark = pytest.mark.sweep

SEEDS = range(5)
STEPS, BATCH, HIDDEN = 2000, 64, 0.15

TINY12: dict[str, Any] = {
    **{"layers": 12, "width": 64, "heads": 2, "intermediate": 128, "positions": 128},
    **{"dropout": 0, "initializer_range": 0.1, "residual_scale": 0.1, "first_score": 0},
}
"""The sizes of `teacher=tiny12`."""


def sentences(count: int, seed: int) -> list[list[str]]:
    """Texts and pairs like those of the training rows; no row of another split begins like one."""
    draw, texts = random.Random(seed), []
    while len(texts) < count:
        write, kinds, _ = grammar._TASKS[grammar.TASKS[len(texts) % len(grammar.TASKS)]]
        row, _ = write(draw, draw.randrange(kinds), False)
        if zlib.crc32(row[0].encode()) % 100 in grammar._BUCKETS["train"]:
            texts.append(row)
    return texts


def pretrain(folder: Path) -> None:
    """Save a tiny12 that has learned to predict hidden words, in plain torch."""
    model = build.tiny(labels=None, seed=0, **TINY12)
    with build.seeded(0):
        hf: Any = BertForMaskedLM(model.hf.config)
        hf.bert.load_state_dict(model.hf.bert.state_dict(), strict=False)  # but for the pooler
    tokenizer = model.tokenizer
    texts = sorted(sentences(40_000, seed=0), key=lambda text: len(" ".join(text).split()))
    optimiser = torch.optim.AdamW(hf.parameters(), lr=1e-3, weight_decay=0.01)
    draw = torch.Generator().manual_seed(0)
    for step in range(STEPS):
        factor = linear_warmup(step, steps=STEPS, warmup=STEPS // 10)
        optimiser.param_groups[0]["lr"] = 1e-3 * factor
        start = BATCH * int(torch.randint(len(texts) // BATCH, (), generator=draw))
        rows = [tokenizer(*text) for text in texts[start : start + BATCH]]
        batch = tokenizer.pad(rows, return_tensors="pt")
        loss = hidden_words(hf, batch, tokenizer, draw)
        optimiser.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(hf.parameters(), 1.0)
        optimiser.step()
    hf.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def hidden_words(hf: Any, batch: Any, tokenizer: Any, draw: torch.Generator) -> Tensor:
    """The cross-entropy of words that are hidden: 80 % masked, 10 % swapped, 10 % kept."""
    words = batch["input_ids"]
    chance, kind = (torch.rand(words.shape, generator=draw) for _ in range(2))
    hidden = (words >= 5) & (chance < HIDDEN)  # below 5 are the special tokens
    others = torch.randint(5, len(tokenizer), words.shape, generator=draw)
    shown = torch.where(hidden & (kind < 0.8), tokenizer.mask_token_id, words)
    shown = torch.where(hidden & (kind > 0.9), others, shown)
    logits = hf(**{**batch, "input_ids": shown}).logits
    return cross_entropy(logits[hidden], words[hidden])


@pytest.fixture(scope="module")
def teacher(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("teacher")
    pretrain(folder)
    return folder


def test_a_student_of_the_general_stage_beats_the_cut_one_on_pairs(
    teacher: Path, tmp_path: Path
) -> None:
    """Layers 4, 8 and 12 of 12, fine-tuned on 200 rows for 5 epochs, five seeds each."""
    texts = tmp_path / "texts"
    texts.mkdir()
    with (texts / "texts.jsonl").open("w") as file:
        for first, *second in sentences(16_000, seed=1):
            file.write(json.dumps({"a": first, "b": "".join(second)}) + "\n")
    cut = ("student=minilm_l3_cut",)
    distilled = (
        *("student=minilm_l3_general", "student.general.teacher=bert_base"),
        *("student.general.corpus.tasks=[]", f"student.general.corpus.folder={texts}"),
        *("student.general.corpus.columns=[a,b]", "student.general.lr=1e-3"),
        *("student.general.epochs=4", "student.general.limit_steps=800"),
        *("student.general.every=400", "student.general.held_out=200"),
    )

    def scores(task: str, student: tuple[str, ...]) -> tuple[np.ndarray, Any]:
        values, facts = [], None
        for seed in SEEDS:
            (job,) = plan.plan(
                [
                    *("teacher=bert_base", f"teacher.path={teacher}", "teacher.allow_weak=true"),
                    *("teacher.recipe.epochs=1", "task.splits.teacher=few", "method=finetune"),
                    *student,
                    *(f"student.path={teacher}", "student.keep_layers=[4,8,12]", f"task={task}"),
                    *("lr=5e-4", "epochs=5", f"seed={seed}", "precision=32-true"),
                    *(f"results_dir={tmp_path / 'results'}", f"cache_dir={tmp_path / 'cache'}"),
                ]
            )
            measured = train.train(job.run, tmp_path / f"{task}-{student[0]}-{seed}").model_dump()
            values.append(measured["scores"]["test"][job.run.task.metric])
            facts = measured["teacher"].get("general")
        return np.array(values), facts

    for task in ("demo_paraphrase", "demo_similarity"):
        without, _ = scores(task, cut)
        with_stage, facts = scores(task, distilled)
        print(task, without.round(3), with_stage.round(3), facts)
        assert facts["ended"] < facts["began"] / 4, "it comes closer"
        gains = with_stage - without
        assert gains.mean() > 0.05 and (gains > 0).sum() >= 4, (task, gains)
        assert ttest_1samp(gains, 0, alternative="greater").pvalue < 0.05, (task, gains)
