"""A model's folder as transformers writes it: configuration, tokenizer, weights. No code is run."""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors.torch import load_file
from torch import Tensor
from transformers import (
    AutoConfig,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedTokenizerBase,
)

from ilkd_bench.models.support import PYTHONS, check_config, not_loaded
from ilkd_bench.models.tokenizer_check import check_tokenizer, no_tokenizer
from ilkd_bench.settings.identity import model_folder
from ilkd_bench.settings.model_files import weights_file
from ilkd_bench.types import BadInput

log = logging.getLogger(__name__)

DESCRIPTIONS = ["config.json", "tokenizer*", "vocab*", "merges.txt", "*_tokens*.json", "*.model"]
SAFETENSORS = ["model.safetensors", "model-*.safetensors", "model.safetensors.index.json"]
PICKLES = ["pytorch_model.bin", "pytorch_model-*.bin", "pytorch_model.bin.index.json"]
"""What is fetched from the hub, as patterns; pickles only where there is nothing else."""

VOCABULARIES = ("tokenizer.json", "vocab*", "*.model")
"""Files that a tokenizer has at least one of."""

TOKENIZER_FILES = (
    *("tokenizer.json", "tokenizer_config.json"),
    *("special_tokens_map.json", "added_tokens.json", "vocab.json"),
)
"""JSON files that a tokenizer may be made of."""

NUMBER = re.compile(r"-?\d{1,9}")

WRAPPERS = ("module.", "model.", "_orig_mod.")
"""What wrappers put before every name: data parallel, Lightning and the like, `torch.compile`."""

LOCAL: dict[str, Any] = {"local_files_only": True, "trust_remote_code": False}
"""How transformers reads a folder: no network, no code."""

LARGEST_POINTER = 1024  # bytes; such a file of Git LFS has about 130


@dataclass(frozen=True)
class Folder:
    """The folder of a model, and what to call it in messages."""

    path: Path
    name: str

    def bad(self, why: object) -> BadInput:
        """Return the error of a folder that is damaged or of another kind."""
        return not_loaded(self.name, why)


def find(path: str, revision: str | None) -> Folder:
    """Return the folder that a model's `path` names, from the hub where it is an id.

    With torch's `meta` device as default the weights stay at the hub.

    Raises:
        BadInput: there is none; the message says what to give instead.
    """
    source = model_folder(path)
    if isinstance(source, Path):
        return Folder(source, str(source))
    kinds = [DESCRIPTIONS] if only_sizes() else [DESCRIPTIONS + SAFETENSORS, PICKLES]
    try:
        for patterns in kinds:
            folder = Path(snapshot_download(source, revision=revision, allow_patterns=patterns))
            if any(folder.glob("*.safetensors")):
                break
    except Exception as error:  # of the hub, of the connection, of the disk: no common base
        raise BadInput(
            f"{source} cannot be loaded from the hub ({type(error).__name__}: {error}). "
            "Without a network give the folder of a downloaded copy: teacher.path=DIR or "
            "student.path=DIR, and data_dir=DIR for the text"
        ) from error
    return Folder(folder, source)


def only_sizes() -> bool:
    """Tell whether models are built without their weights: torch's `meta` device is the default."""
    return torch.get_default_device().type == "meta"


# ------------------------------------------------------------------------ configuration, tokenizer


def read_config(folder: Folder, head: Mapping[str, Any]) -> PreTrainedConfig:
    """Return a model's configuration with the given classifier, checked for what we need of it.

    Args:
        head: settings of the classifier.

    Raises:
        BadInput: it cannot be read, names code of its own, or is of a kind that cannot be used.
    """
    settings = {name: _settings(folder, name) for name in ("config.json", "tokenizer_config.json")}
    for name, content in settings.items():
        if content.get("auto_map"):
            raise BadInput(
                f"{folder.name} wants to run code of its own (auto_map in its {name}), which is "
                "never done: give a model that transformers knows, or remove the key if it is one"
            )
    labels = settings["config.json"].get("id2label")
    if not (labels is None or (isinstance(labels, dict) and all(map(NUMBER.fullmatch, labels)))):
        raise folder.bad(f"id2label in its config.json is no {{number: name}}: {labels!r:.100}")
    try:
        config = AutoConfig.from_pretrained(folder.path, **LOCAL, **head)
    except Exception as error:  # of pydantic, json, transformers: no common base
        raise not_loaded(folder.name, error, settings["config.json"]) from error
    check_config(config, folder.name)
    return config


def _settings(folder: Folder, name: str) -> dict[str, Any]:
    """Return what a JSON file of a model says; nothing where it is not there."""
    path = folder.path / name
    if not path.is_file():
        return {}
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise folder.bad(f"{name} is no JSON: {error}") from error
    except RecursionError as error:
        raise folder.bad(f"{name} is nested too deeply") from error
    if not isinstance(content, dict):
        raise folder.bad(f"{name} holds no settings")
    return content


def read_tokenizer(folder: Folder, config: PreTrainedConfig) -> PreTrainedTokenizerBase:
    """Return a model's tokenizer.

    Raises:
        BadInput: it cannot be read, or does not belong to the model.
    """
    if not any(path for name in VOCABULARIES for path in folder.path.glob(name)):
        raise no_tokenizer(folder.name)
    for name in TOKENIZER_FILES:
        _settings(folder, name)  # BadInput now
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder.path, **LOCAL)
    except Exception as error:  # of tokenizers, json, transformers: no common base
        text = str(error)
        if isinstance(error, PYTHONS):
            lacking = f"{text} is missing" if isinstance(error, LookupError) else "a value is wrong"
            text = f"{lacking} in its {' or its '.join(TOKENIZER_FILES[:2])}"
        raise folder.bad(f"its tokenizer: {text}") from error
    check_tokenizer(config, tokenizer, folder.name)
    return tokenizer


# ----------------------------------------------------------------------------------------- weights


def read_weights(folder: Folder) -> dict[str, Tensor]:
    """Return the weights of a model by their names in its files, without the names of wrappers.

    With torch's `meta` device as default they have their sizes only, and take no memory.

    Raises:
        BadInput: there are none, or they are damaged.
    """
    file = weights_file(folder.path, folder.name)
    parts = _parts(folder, file) if file.suffix == ".json" else [file]
    state: dict[str, Tensor] = {}
    for part in parts:
        more = _read(folder, part)
        if twice := state.keys() & more.keys():
            raise folder.bad(f"two of its files have the same weights: {few(twice)}")
        state |= more
    if only_sizes():
        state = {
            n: torch.zeros((), dtype=x.dtype, device="cpu").expand(x.shape)
            for n, x in state.items()
        }
    small = [n for n, x in state.items() if x.dtype.itemsize < 2 and x.dtype != torch.bool]
    if small:
        raise folder.bad(f"its weights are quantised to 8 bits or fewer: {few(small)}")
    if any("lora_" in name for name in state):
        raise BadInput(
            f"{folder.name} has the weights of an adapter (LoRA) beside the model's: merge them "
            "first (peft: model.merge_and_unload().save_pretrained(DIR)) and give DIR"
        )
    return _unwrapped(folder, state)


def _parts(folder: Folder, index: Path) -> list[Path]:
    try:
        names = set(json.loads(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise folder.bad(f"{index.name} is damaged: {error}") from error
    inside = sorted(name for name in names if isinstance(name, str) and Path(name).name == name)
    missing = [name for name in inside if not (folder.path / name).is_file()]
    if missing or len(inside) != len(names):
        raise folder.bad(f"{index.name} names files that are not there: {few(missing or names)}")
    return [folder.path / name for name in inside]


def _read(folder: Folder, file: Path) -> dict[str, Tensor]:
    try:
        with file.open("rb") as start:
            pointer = start.read(LARGEST_POINTER).startswith(b"version https://git-lfs")
        if pointer:
            raise folder.bad(
                f"{file.name} is only a pointer of Git LFS to the weights: type git lfs pull there"
            )
        if file.suffix == ".safetensors":
            with torch.device("cpu"):
                return load_file(file)
        device = "meta" if only_sizes() else "cpu"
        content = torch.load(file, map_location=device, weights_only=True)
    except BadInput:
        raise
    except Exception as error:  # of safetensors, pickle, zip, torch: no common base
        raise folder.bad(f"{file.name}: {error}") from error
    if not isinstance(content, dict) or not all(isinstance(x, Tensor) for x in content.values()):
        raise folder.bad(f"{file.name} holds other things than named tensors")
    return content


def _unwrapped(folder: Folder, state: dict[str, Tensor]) -> dict[str, Tensor]:
    removed = ""
    while True:
        prefix = next((w for w in WRAPPERS if all(name.startswith(w) for name in state)), None)
        if prefix is None or not state:
            break
        state = {name.removeprefix(prefix): value for name, value in state.items()}
        removed += prefix
    if removed:
        log.warning(
            "%s: every weight's name begins with %s, which is left out", folder.name, removed
        )
    return state


def few(names: Iterable[str]) -> str:
    """Return up to three names, and how many more there are."""
    names = sorted(names)
    more = len(names) - 3
    return ", ".join(names[:3]) + (f" and {more} more" if more > 0 else "")
