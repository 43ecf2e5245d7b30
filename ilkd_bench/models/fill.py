"""Weights of a folder into a model, each of which must find its place."""

from __future__ import annotations

import copy
import logging
import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedConfig, PreTrainedModel

from ilkd_bench.models.folder import WRAPPERS, Folder, few, only_sizes
from ilkd_bench.types import BadInput

log = logging.getLogger(__name__)

OLD_NAMES = {"gamma": "weight", "beta": "bias"}
"""What TensorFlow calls the weights of a LayerNorm, and torch."""

SLACK = 10_000_000
"""Weights that may be missing before the missing ones are looked for by name."""


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
    with torch.device("meta"):
        described: PreTrainedModel = architecture(copy.deepcopy(config))
    _refuse_other_sizes(folder, described, state)
    _refuse_twice(folder, described, state)
    _refuse_no_weights(folder, described, state)
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
    if only_sizes():
        hf = hf.to("meta")
        return hf
    broken = [name for name, weight in hf.named_parameters() if not weight.isfinite().all()]
    if broken:
        raise BadInput(
            f"{folder.name} has weights that are no finite numbers: {few(broken)}. Its training "
            "has diverged: give another model"
        )
    return hf


def _refuse_other_sizes(
    folder: Folder, described: PreTrainedModel, state: Mapping[str, Tensor]
) -> None:
    """Refuse weights that are a small part of the model, before room is made for all of it."""
    wanted = sum(x.numel() for x in described.parameters())
    given = sum(x.numel() for x in state.values())
    if wanted > 2 * given + SLACK:
        raise BadInput(
            f"{folder.name} has {given} weights, and its config.json describes a model of "
            f"{wanted}. Give the config.json that belongs to the weights"
        )


def _refuse_twice(folder: Folder, described: PreTrainedModel, state: Mapping[str, Tensor]) -> None:
    """Refuse weights of which there are two that have the same place."""
    names: dict[str, str] = {}
    for name in state:
        other = names.setdefault(_place(described, name), name)
        if other != name:
            raise BadInput(
                f"{folder.name} has a weight twice, as {other} and as {name}, and nothing says "
                "which one counts: leave one out"
            )


def _refuse_no_weights(
    folder: Folder, described: PreTrainedModel, state: Mapping[str, Tensor]
) -> None:
    """Refuse whole, complex or truth values in the place of weights; buffers may be such."""
    places = {_place(described, name) for name, _ in described.named_parameters()}
    odd = {
        name: str(x.dtype).removeprefix("torch.")
        for name, x in state.items()
        if _place(described, name) in places and not x.is_floating_point()
    }
    if odd:
        kinds = ", ".join(sorted({*odd.values()}))
        raise folder.bad(f"its weights are no floating-point numbers ({kinds}): {few(odd)}")


def _place(hf: PreTrainedModel, name: str) -> str:
    """Return where a weight belongs, whether the encoder was saved alone, as a part, or wrapped."""
    prefixes = (f"{hf.base_model_prefix}.", *WRAPPERS)
    while prefix := next((p for p in prefixes if name.startswith(p)), None):
        name = name.removeprefix(prefix)
    stem, _, last = name.rpartition(".")
    return f"{stem}.{OLD_NAMES.get(last, last)}"


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
