"""The transformer layers of a model: kept, copied from a teacher to a student, or looked into."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from ilkd_bench.types import BadInput, Incompatible

if TYPE_CHECKING:
    from transformers import PreTrainedModel


def layers_of(hf: PreTrainedModel) -> nn.ModuleList:
    """Return the transformer layers of a BERT, RoBERTa, DistilBERT or their kin.

    Raises:
        Incompatible: the architecture has no list of layers, each with weights of its own.
    """
    base: Any = hf.base_model
    holder = getattr(base, "encoder", getattr(base, "transformer", None))
    layers = getattr(holder, "layer", None)
    if not isinstance(layers, nn.ModuleList) or len(layers) != hf.config.num_hidden_layers:
        raise Incompatible(
            f"a {type(hf).__name__} has no list of layers to take some of: they share their "
            "weights or are arranged in another way"
        )
    return layers


PROJECTIONS = {
    "queries": ("query", "q_lin", "q", "query_proj"),
    "keys": ("key", "k_lin", "k", "key_proj"),
    "values": ("value", "v_lin", "v", "value_proj"),
}
"""Fields of `Outputs` that layers keep to themselves: what makes them, by the names of BERT (and
RoBERTa, ELECTRA), DistilBERT, MPNet and DeBERTa-v2."""

ATTENTION = ("self", "attn")
"""What holds the projections within a layer's `attention`; in DistilBERT that is it."""


@contextmanager
def watched(hf: PreTrainedModel, names: frozenset[str]) -> Iterator[dict[str, list[Tensor]]]:
    """Collect what maps inside the layers give while the model runs, without a change to it.

    Args:
        names: some of `PROJECTIONS`.

    Yields:
        For each name one [B, T, H] per layer, once the model has run.

    Raises:
        Incompatible: the layers have no such maps.
    """
    seen: dict[str, list[Tensor]] = {name: [] for name in sorted(names)}
    hooks = []
    try:
        for name, tensors in seen.items():
            for layer in layers_of(hf) if names else ():
                hooks.append(_projection(layer, name).register_forward_hook(_into(tensors)))
        yield seen
    finally:
        for hook in hooks:
            hook.remove()


def projection_width(hf: PreTrainedModel, name: str) -> int:
    """Return how many numbers a token has in one of `PROJECTIONS`, over all heads.

    Raises:
        Incompatible: the layers have no such maps.
    """
    weight: Any = _projection(layers_of(hf)[0], name).weight
    return int(weight.shape[0])


def _projection(layer: Any, name: str) -> nn.Module:
    attention = getattr(layer, "attention", None)
    for word in ATTENTION:
        attention = getattr(attention, word, attention)
    for word in PROJECTIONS[name]:
        if hasattr(attention, word):
            projection: nn.Module = getattr(attention, word)
            return projection
    kind = type(layer if attention is None else attention).__name__
    raise Incompatible(f"a {kind} has no {name} that could be compared")


def _into(tensors: list[Tensor]) -> Any:
    """Return a hook that keeps what a map gives for the tokens.

    DeBERTa-v2 runs the same map over relative positions afterwards.
    """
    called = False

    def append(module: nn.Module, inputs: Any, output: Any) -> None:
        nonlocal called
        if not isinstance(output, Tensor):
            raise Incompatible(f"a {type(module).__name__} gives more than one tensor to compare")
        if not called:
            tensors.append(output)
        called = True

    return append


def keep(hf: PreTrainedModel, numbers: Sequence[int]) -> None:
    """Drop all layers but these (from 1), which stay in the given order.

    Raises:
        BadInput: a number is no layer, or stands there twice.
        Incompatible: see `layers_of`.
    """
    layers = layers_of(hf)
    _check_numbers(numbers, len(layers))
    for name, value in hf.config.to_dict().items():
        if isinstance(value, list) and [type(x) for x in value] == [int] * len(layers):
            raise Incompatible(f"a {type(hf).__name__} has a setting for each layer ({name})")
    kept = [layers[number - 1] for number in numbers]
    del layers[:]
    layers.extend(kept)
    hf.config.num_hidden_layers = len(kept)


def _check_numbers(numbers: Sequence[int], layers: int, name: str = "layers ") -> None:
    given = list(numbers) if isinstance(numbers, list | tuple) else []
    possible = [n for n in given if type(n) is int and 1 <= n <= layers]
    if not possible or len(set(possible)) != len(given):
        raise BadInput(f"{name}{given or numbers}: allowed are distinct numbers from 1 to {layers}")


def check_copy(student: PreTrainedModel, teacher: PreTrainedModel, layers: Sequence[int]) -> None:
    """Refuse layers that the student cannot take over.

    Raises:
        BadInput: the two are of another family or size, or the numbers do not fit.
    """
    try:
        depths = [len(layers_of(model)) for model in (student, teacher)]
    except Incompatible as reason:
        raise BadInput(
            f"student.teacher_layers={layers} copies layers, and {reason} "
            "(student.teacher_layers=null starts the student by itself)"
        ) from reason
    _check_numbers(layers, depths[1], "student.teacher_layers=")
    depth = depths[0]
    if len(layers) != depth:
        raise BadInput(f"student.teacher_layers={list(layers)}: the student has {depth} layers")
    sizes = [
        (c.model_type, c.hidden_size, c.num_attention_heads, c.vocab_size)
        for c in (student.config, teacher.config)
    ]
    if sizes[0] != sizes[1]:
        raise BadInput(
            "student.teacher_layers copies layers, so family, width, heads and vocabulary must be "
            f"the teacher's: {sizes[0]} is not {sizes[1]} (student.teacher_layers=null starts the "
            "student by itself)"
        )


def _common(base: nn.Module) -> dict[str, Tensor]:
    """Return the weights of an encoder that belong to no single layer, nor to a pooler."""
    single = re.compile(r"pooler\.|.*\.layer\.\d+\.")
    return {name: x for name, x in base.state_dict().items() if not single.match(name)}


def copy_layers(student: PreTrainedModel, teacher: PreTrainedModel, layers: Sequence[int]) -> None:
    """Start the student from the given layers (from 1) and what is common to them.

    That is the embeddings, and in some families relative positions beside the layers.

    Raises:
        BadInput: `check_copy`, or another size differs.
    """
    check_copy(student, teacher, layers)
    source: Any = teacher.base_model
    target: Any = student.base_model
    try:
        target.load_state_dict(_common(source), strict=False)  # sizes are compared all the same
        for layer, number in zip(layers_of(student), layers, strict=True):
            layer.load_state_dict(layers_of(teacher)[number - 1].state_dict())
    except (RuntimeError, AttributeError) as error:
        raise BadInput(
            "student.teacher_layers copies layers, so the student needs the teacher's family, "
            f"width and vocabulary (student.teacher_layers=null starts it by itself): {error}"
        ) from error
