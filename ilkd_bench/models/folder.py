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
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from ilkd_bench.models.support import check_config, not_loaded
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
    kinds = [DESCRIPTIONS] if _only_sizes() else [DESCRIPTIONS + SAFETENSORS, PICKLES]
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


def _only_sizes() -> bool:
    return torch.get_default_device().type == "meta"


# ------------------------------------------------------------------------ configuration, tokenizer


def read_config(folder: Folder, head: Mapping[str, Any]) -> PreTrainedConfig:
    """Return a model's configuration with the given classifier, checked for what we need of it.

    Args:
        head: settings of the classifier.

    Raises:
        BadInput: it cannot be read, names code of its own, or is of a kind that cannot be used.
    """
    for name in ("config.json", "tokenizer_config.json"):
        _refuse_code(folder, name)
    try:
        config = AutoConfig.from_pretrained(folder.path, **LOCAL, **head)
    except Exception as error:  # of pydantic, json, transformers: no common base
        raise folder.bad(error) from error
    check_config(config, folder.name)
    return config


def _refuse_code(folder: Folder, name: str) -> None:
    path = folder.path / name
    if not path.is_file():
        return
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise folder.bad(f"{name} is no JSON: {error}") from error
    if not isinstance(content, dict):
        raise folder.bad(f"{name} holds no settings")
    if content.get("auto_map"):
        raise BadInput(
            f"{folder.name} wants to run code of its own (auto_map in its {name}), which is never "
            "done: give a model that transformers knows, or remove the key if it is one"
        )


def read_tokenizer(folder: Folder, config: PreTrainedConfig) -> PreTrainedTokenizerBase:
    """Return a model's tokenizer.

    Raises:
        BadInput: it cannot be read, or does not belong to the model.
    """
    if not any(path for name in VOCABULARIES for path in folder.path.glob(name)):
        raise no_tokenizer(folder.name)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder.path, **LOCAL)
    except Exception as error:  # of tokenizers, json, transformers: no common base
        raise folder.bad(f"its tokenizer: {error}") from error
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
        state |= _read(folder, part)
    if _only_sizes():
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
        device = "meta" if _only_sizes() else "cpu"
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


# ---------------------------------------------------------------------------- weights into a model


def fill(
    folder: Folder,
    architecture: Any,
    config: PreTrainedConfig,
    state: dict[str, Tensor],
    *,
    new_classifier: bool,
) -> PreTrainedModel:
    """Return a classifier with the given weights; every weight of the encoder is among them.

    Args:
        architecture: class of the classifier.
        new_classifier: draw a classifier where the weights have none, or one of another size.

    Raises:
        BadInput: weights are missing, too many, of another size, or not finite.
    """
    try:
        with torch.device("cpu"):
            hf, info = architecture.from_pretrained(
                None,
                config=config,
                state_dict=state,
                output_loading_info=True,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,  # they are refused below, by name
            )
    except Exception as error:  # of transformers and torch: no common base
        raise folder.bad(error) from error
    _refuse_misfits(folder, hf, info, new_classifier=new_classifier)
    if _only_sizes():
        hf = hf.to("meta")
        return hf
    broken = [name for name, weight in hf.named_parameters() if not weight.isfinite().all()]
    if broken:
        raise BadInput(
            f"{folder.name} has weights that are no finite numbers: {few(broken)}. Its training "
            "has diverged: give another model"
        )
    return hf


def _refuse_misfits(
    folder: Folder, hf: PreTrainedModel, info: Mapping[str, Any], *, new_classifier: bool
) -> None:
    """Refuse weights that do not belong to the model, and say which are not used or are new."""
    missing, unexpected = set(info["missing_keys"]), set(info["unexpected_keys"])
    sizes = {name: (tuple(file), tuple(model)) for name, file, model in info["mismatched_keys"]}
    lacking = {name for name in missing if _of_encoder(hf, name, full=True)}
    if lacking:
        raise BadInput(
            f"{folder.name} lacks {len(lacking)} of the encoder's weights: {few(lacking)}. "
            f"{_about_layers(hf, lacking, 'fewer')}"
        )
    surplus = {name for name in unexpected if _of_encoder(hf, name, full=False)}
    if surplus:
        raise BadInput(
            f"{folder.name} has weights that its config.json has no place for: "
            f"{few(surplus)}. {_about_layers(hf, surplus, 'more')}"
        )
    new = {name for name in (*missing, *sizes) if not _of_encoder(hf, name, full=True)}
    wrong = set(sizes) - new if new_classifier else set(sizes)
    if wrong:
        examples = [f"{n} is {list(sizes[n][0])}, not {list(sizes[n][1])}" for n in sorted(wrong)]
        raise BadInput(
            f"{folder.name} has weights of another size than its config.json says: "
            f"{few(examples)}. "
            + (
                "Correct num_labels or id2label in it"
                if wrong <= new
                else "Give the config.json that belongs to the weights"
            )
        )
    if new and not new_classifier:
        raise BadInput(
            f"{folder.name} is not fine-tuned: it lacks {few(new)}. "
            "Give it as teacher.path= to have it fine-tuned"
        )
    if unexpected:
        log.info("%s: not used are its %s", folder.name, few(unexpected))
    if new:
        log.info("%s: new, from the seed, are %s", folder.name, few(new))


def _of_encoder(hf: PreTrainedModel, name: str, *, full: bool) -> bool:
    """Tell whether a weight is the encoder's; its pooler counts as a part of the classifier.

    Args:
        full: the name is that of the whole classifier; else the encoder alone may have been saved.
    """
    prefix = f"{hf.base_model_prefix}."
    if full and not name.startswith(prefix):
        return False
    first = name.removeprefix(prefix).split(".")[0]
    return first != "pooler" and first in dict(hf.base_model.named_children())


def _about_layers(hf: PreTrainedModel, names: Iterable[str], which: str) -> str:
    """Return what to do about weights that are too few or too many."""
    numbers = {int(n) + 1 for name in names for n in re.findall(r"\.layers?\.(\d+)\.", name)}
    told = hf.config.num_hidden_layers
    if which == "more" and numbers and min(numbers) > told:
        return (
            f"Its config.json says num_hidden_layers={told}, and the weights have "
            f"{max(numbers)}: correct the number, and type student.keep_layers="
            f"[{','.join(str(n) for n in range(1, told + 1))}] to have {told} layers of them"
        )
    if which == "fewer" and numbers and min(numbers) > 1:
        return (
            f"Its config.json says num_hidden_layers={told}, and layer {min(numbers)} is not "
            "whole: correct the number, or give the whole weights"
        )
    return "Give the config.json and the weights of one and the same model"
