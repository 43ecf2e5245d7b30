"""The pair, the rows and the clock that the parts of the benchmark share."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from ilkd_bench.data import grammar
from ilkd_bench.data.batches import Split
from ilkd_bench.data.tasks import Task, TextRows, read
from ilkd_bench.data.tokens import encode
from ilkd_bench.models import build
from ilkd_bench.models.model import Model
from ilkd_bench.settings import groups

PAIR = ("teacher=minilm_l6", "student=minilm_l3_cut")


def config(*words: str) -> dict[str, Any]:
    """Return the resolved configuration of a command line."""
    with initialize_config_dir(version_base="1.3", config_dir=str(groups.ROOT / "conf")):
        found: Any = OmegaConf.to_container(compose("config", overrides=list(words)), resolve=True)
    return found


def model(about: dict[str, Any], labels: list[str]) -> Model:
    """Build the teacher or the student of a configuration."""
    return build.pretrained(
        labels=labels,
        seed=0,
        path=about["path"],
        revision=about["revision"],
        keep_layers=about.get("keep_layers"),
    )


def checkpoint(folder: Path, labels: list[str]) -> str:
    """Write the pair's teacher as a classifier that needs no fine-tuning; return its override."""
    built = model(config(*PAIR)["teacher"], labels)
    built.hf.config.id2label = dict(enumerate(labels))
    built.hf.save_pretrained(folder)
    built.tokenizer.save_pretrained(folder)
    return f"teacher.checkpoint={folder}"


def split(task: Task, rows: int | None, built: Model, data_dir: Path, cache_dir: Path) -> Split:
    """Return training rows as both models of the pair read them."""
    drawn: TextRows = read(task, "train", data_dir=data_dir, limit=rows)
    tokens = encode(drawn, built.tokenizer, max_length=128, cache_dir=cache_dir)
    return Split(torch.from_numpy(drawn.labels), torch.from_numpy(drawn.index), tokens, tokens)


def stand_in(folder: Path) -> Path:
    """Write sentences of the demo grammar in the layout of MRPC and SST-2."""
    sets = {"mrpc": "demo_paraphrase", "sst2": "demo_sentiment"}
    for task, demo in sets.items():
        (folder / task).mkdir(parents=True)
        for split in ("train", "validation"):
            lines = [json.dumps(row) for row in grammar.rows(demo, split)]
            (folder / task / f"{split}.jsonl").write_text("\n".join(lines))
    return folder


def seconds(work: Callable[[], Any], device: torch.device) -> float:
    """Return how long some work takes, until the device is done with it."""
    _wait(device)
    start = time.perf_counter()
    work()
    _wait(device)
    return time.perf_counter() - start


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def rotated(names: list[str], turn: int) -> list[str]:
    """Return the names in another order each turn, so that no one is always first."""
    return names[turn % len(names) :] + names[: turn % len(names)]


def median(values: list[float]) -> float:
    return float(np.median(values))


def save(path: Path, part: str, content: dict[str, Any]) -> None:
    """Keep the measurements of a part beside those of the others."""
    kept = json.loads(path.read_text()) if path.is_file() else {}
    path.write_text(json.dumps(kept | {part: content}, indent=1) + "\n")
