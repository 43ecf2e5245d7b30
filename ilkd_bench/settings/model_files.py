"""Which files of a model's folder hold its weights, and what a folder without any is instead."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ilkd_bench.types import BadInput

WEIGHTS = (
    "model.safetensors",
    "model.safetensors.index.json",  # names the parts of larger models
    "pytorch_model.bin",
    "pytorch_model.bin.index.json",
)
"""The names of transformers, the first that is there counts."""

DESCRIPTIONS = (
    "config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "vocab.txt",
    "vocab.json",
    "merges.txt",
    "added_tokens.json",
    "tokenizer.*.json",  # of single versions of transformers
    "*.model",  # of sentencepiece
)
"""Files beside the weights that change what a model computes, as patterns."""


def descriptions(folder: Path) -> list[Path]:
    """Return the files of a folder, besides the weights, that change what a model computes.

    `special_tokens_map.json` is one where it says other things than `tokenizer_config.json`, as
    older versions of transformers wrote all of it into both.
    """
    found = [path for name in DESCRIPTIONS for path in folder.glob(name) if path.is_file()]
    tokens = folder / "special_tokens_map.json"
    if tokens.is_file():
        said, usual = _settings(tokens), _settings(folder / "tokenizer_config.json")
        if said is None or usual is None or not said.items() <= usual.items():
            found.append(tokens)
    return found


def _settings(path: Path) -> dict[str, str] | None:
    """Return the settings of a JSON file, their values as text; None where it has none."""
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        return {name: json.dumps(value, sort_keys=True) for name, value in content.items()}
    except (OSError, ValueError, RecursionError, AttributeError):
        return None  # whoever loads the model says why


def weights_file(folder: Path, where: str) -> Path:
    """Return the file of a folder that holds the weights, or names the files that do.

    Args:
        where: what to call the folder in messages.

    Raises:
        BadInput: there is none; the message says what the folder seems to be.
    """
    if (folder / "adapter_config.json").is_file():
        raise BadInput(
            f"{where} holds an adapter (LoRA), not a model: merge it into its model first "
            "(peft: model.merge_and_unload().save_pretrained(DIR)) and give DIR"
        )
    for name in WEIGHTS:
        if (folder / name).is_file():
            return folder / name
    raise BadInput(
        f"{where} cannot be loaded as a transformers checkpoint: it has no weights: expected "
        f"model.safetensors{_instead(folder)}"
    )


def _instead(folder: Path) -> str:
    """Return what a folder has in the place of weights, as the rest of a sentence."""
    inside = sorted(path.name for path in folder.iterdir())
    if not inside:
        return "; the folder is empty"
    if any(name.endswith((".onnx", ".gguf", ".h5", ".msgpack", ".ot")) for name in inside):
        kind = next(n for n in inside if n.endswith((".onnx", ".gguf", ".h5", ".msgpack", ".ot")))
        return (
            f", found {kind}: weights of that form cannot be trained further. Give the folder "
            "that they were made from"
        )
    below = [path.parent.name for path in sorted(folder.glob("*/config.json"))]
    if below:
        return f"; there are models in its folders {', '.join(below[:3])}: give one of these"
    return f", found {', '.join(inside[:3])}" + (", ..." if len(inside) > 3 else "")
