"""An encoder with a masked-language head: it predicts the tokens that were hidden from it."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForMaskedLM, PreTrainedModel

from ilkd_bench.models.folder import Folder, few, read_weights
from ilkd_bench.models.model import Model
from ilkd_bench.types import BadInput, Inputs, Outputs, Spec


class MaskedModel(Model):
    """Shows as logits what it predicts for the R real tokens of a batch, row by row: [R, V]."""

    @property
    def spec(self) -> Spec:
        """The sizes; the classes are the tokens."""
        return replace(super().spec, classes=self.hf.config.vocab_size)

    def outputs(self, inputs: Inputs, needs: frozenset[str]) -> Outputs:
        """Run the model; see `Model.outputs`."""
        shown = super().outputs(inputs, needs)
        return replace(shown, logits=shown.logits[shown.mask.bool()])


def with_head(model: Model, folder: Folder | None, where: str) -> MaskedModel:
    """Return the encoder of a classifier with a masked-language head.

    Args:
        folder: whose weights have the head; None: it is drawn.
        where: what to call the model in messages.

    Raises:
        BadInput: the weights have no such head, or the architecture has none.
    """
    config: Any = copy.deepcopy(model.hf.config)
    try:
        hf: Any = AutoModelForMaskedLM.from_config(config, trust_remote_code=False)
    except ValueError as error:
        raise BadInput(f"{where} has no masked-language head: {error}") from error
    _take_encoder(hf, model.hf)
    if folder is not None:
        _load_head(hf, folder, where)
    hf.tie_weights()
    return MaskedModel(hf, model.tokenizer)


def copy_head(student: MaskedModel, teacher: MaskedModel) -> None:
    """Start a student from its teacher's head where both have the same one."""
    theirs, ours = _head(teacher.hf), _head(student.hf)
    if {k: v.shape for k, v in theirs.items()} != {k: v.shape for k, v in ours.items()}:
        return
    student.hf.load_state_dict(theirs, strict=False)


def _take_encoder(hf: Any, source: PreTrainedModel) -> None:
    """Give a model the encoder of another one; neither needs the other's pooler."""
    weights = {k: v for k, v in source.base_model.state_dict().items() if not _pools(k)}
    base: nn.Module = hf.base_model
    missing, surplus = base.load_state_dict(weights, strict=False)
    if surplus or [name for name in missing if not _pools(name)]:
        raise BadInput(f"a {type(hf).__name__} has another encoder than a {type(source).__name__}")


def _pools(name: str) -> bool:
    return name.startswith("pooler.")


def _head(hf: Any) -> dict[str, Tensor]:
    """Return what is neither the encoder's nor tied to its word embeddings."""
    words = hf.get_input_embeddings().weight
    return {
        name: value
        for name, value in hf.state_dict(keep_vars=True).items()
        if not name.startswith(f"{hf.base_model_prefix}.") and value is not words
    }


def _load_head(hf: Any, folder: Folder, where: str) -> None:
    whole, info = type(hf).from_pretrained(
        None,
        config=copy.deepcopy(hf.config),
        state_dict=read_weights(folder),
        output_loading_info=True,
        dtype=torch.float32,
        ignore_mismatched_sizes=True,
    )
    head = _head(whole)
    absent = {*info["missing_keys"], *(name for name, *_ in info["mismatched_keys"])} & head.keys()
    if absent:
        raise BadInput(
            f"{where} has no masked-language head: {folder.name} lacks {few(absent)}. Give a "
            "teacher that has one, or another student.general.method="
        )
    hf.load_state_dict({name: value.detach() for name, value in head.items()}, strict=False)
