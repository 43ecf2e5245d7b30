"""Mirrors of a run elsewhere. The record on disk is the truth; a mirror that fails is a warning."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

log = logging.getLogger(__name__)


@contextmanager
def tracker(config: dict[str, Any], folder: Path) -> Iterator[Any]:
    """Give Lightning's `logger` for a run: False, or a W&B run of its own, finished at the end."""
    if config["logger"]["name"] == "none":
        yield False
        return
    import wandb  # only here: it is slow to import
    from pytorch_lightning.loggers import WandbLogger

    choice = config["logger"]
    run = _start(wandb, choice, config, folder)
    try:
        yield WandbLogger(experiment=run) if run is not None else False
    finally:
        wandb.finish()


def _start(wandb: Any, choice: dict[str, Any], config: dict[str, Any], folder: Path) -> Any:
    """Start a W&B run; without a network it is kept offline, with one warning."""
    quiet = wandb.Settings(
        silent=True,
        console="off",
        disable_git=True,
        disable_code=True,
        x_disable_stats=True,
        x_disable_meta=True,
        init_timeout=choice["timeout"],
    )
    what = {
        "project": choice["project"],
        "entity": choice["entity"],
        "group": f"{config['task']['name']}/{config['method']['name']}",
        "name": folder.name,
        "dir": str(folder),
        "config": {k: config[k] for k in ("seed", "lr", "batch_size", "epochs")}
        | {k: config[k]["name"] for k in ("teacher", "student", "method", "task")},
        "settings": quiet,
    }
    try:
        return wandb.init(mode=choice["mode"], **what)
    except wandb.errors.Error as error:
        log.warning("W&B: %s; this run is kept offline in %s", error, folder / "wandb")
        return wandb.init(mode="offline", **what)
