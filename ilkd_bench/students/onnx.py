"""A student as an ONNX file: written by torch's exporter, and compared with the original."""

from __future__ import annotations

import importlib.util
import inspect
import logging
import warnings
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from ilkd_bench.models.model import Model
from ilkd_bench.types import BadInput

NEEDED = ("onnx", "onnxscript", "onnxruntime")
TOLERANCE = 1e-4
"""Largest difference of a logit, in parts of the largest logit where that is above 1."""

SIZES = ((1, 1), (1, 8), (2, 5), (5, 17), (3, 64), (1, 10**6))
"""Rows and tokens that are compared; more tokens than the model takes are as many as it takes."""


class Differs(ArithmeticError):
    """An ONNX file that does not compute what the student computes."""


class _Logits(nn.Module):
    """The student as a function of tensors in a fixed order."""

    def __init__(self, model: Model, names: list[str]) -> None:
        super().__init__()
        self.hf, self.names = model.hf, names

    def forward(self, *inputs: Tensor) -> Tensor:
        """Return the logits, [B, C]."""
        logits: Tensor = self.hf(**dict(zip(self.names, inputs, strict=True))).logits
        return logits


def require() -> None:
    """Refuse to begin without the packages.

    Raises:
        BadInput: one of them is not installed.
    """
    lacking = [name for name in NEEDED if importlib.util.find_spec(name) is None]
    if lacking:
        raise BadInput(
            f"--onnx needs {', '.join(lacking)}: pip install -c constraints.txt '.[onnx]'"
        )


def input_names(model: Model) -> list[str]:
    """Return what both the tokenizer gives and the model takes, in the tokenizer's order."""
    taken = inspect.signature(model.hf.forward).parameters
    return [name for name in model.tokenizer.model_input_names if name in taken]


def write(model: Model, path: Path) -> list[str]:
    """Write `model.onnx` with any batch size and length, check it, and return its inputs' names.

    Raises:
        BadInput: a package is missing, or torch cannot write the architecture.
        Differs: the file computes something else; it is removed.
    """
    require()
    names = input_names(model)
    model.cpu().eval()
    try:
        _write(model, path, names)
        compare(model, path)
    except torch.onnx.OnnxExporterError as error:
        path.unlink(missing_ok=True)
        raise BadInput(f"torch cannot write this architecture as ONNX: {error}") from error
    except BaseException:
        path.unlink(missing_ok=True)
        raise
    return names


def _write(model: Model, path: Path, names: list[str]) -> None:
    sizes = {0: "batch", 1: "length"}
    example = draw(model, names, rows=2, length=min(7, model.max_tokens))
    quiet = logging.getLogger("torch.onnx")
    level = quiet.level
    quiet.setLevel(logging.ERROR)  # it tells that torchvision is absent
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # deprecations within torch
            torch.onnx.export(
                _Logits(model, names).eval(),
                tuple(example.values()),
                path,
                dynamo=True,
                external_data=False,
                input_names=names,
                output_names=["logits"],
                dynamic_shapes={"inputs": (sizes,) * len(names)},
                verbose=False,
            )
    finally:
        quiet.setLevel(level)
    _strip(path)


def _strip(path: Path) -> None:
    """Remove what the exporter notes about where the code lies on this machine."""
    import onnx

    proto = onnx.load(path)
    for node in (*proto.graph.node, *(n for f in proto.functions for n in f.node)):
        node.ClearField("metadata_props")
        node.ClearField("doc_string")
    for part in (proto, proto.graph, *proto.graph.value_info, *proto.functions):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    onnx.save(proto, path)


def draw(model: Model, names: list[str], *, rows: int, length: int) -> dict[str, Tensor]:
    """Return inputs [rows, length] with random tokens and padding of random length at the end."""
    generator = np.random.default_rng((rows, length))
    lengths = generator.integers(1, length + 1, size=(rows, 1))
    lengths[0] = length
    mask = np.arange(length) < lengths
    padding = model.tokenizer.pad_token_id or 0
    tokens = generator.integers(0, model.spec.vocabulary, size=(rows, length))
    segments = np.arange(length) >= length // 2  # of a pair
    drawn = {
        "input_ids": np.where(mask, tokens, padding),
        "attention_mask": mask,
        "token_type_ids": np.where(mask, segments, 0),
    }
    return {name: torch.from_numpy(drawn[name].astype(np.int64)) for name in names}


def compare(model: Model, path: Path) -> None:
    """Compare the file's logits with the student's for several batch sizes and lengths.

    Raises:
        Differs: they are not the same.
    """
    from onnxruntime import InferenceSession

    most = model.max_tokens
    session = InferenceSession(path, providers=["CPUExecutionProvider"])
    names = [item.name for item in session.get_inputs()]
    for rows, length in SIZES:
        length = min(length, most)
        inputs = draw(model, names, rows=rows, length=length)
        with torch.inference_mode():
            expected = model.hf(**inputs).logits.numpy()
        (logits,) = session.run(["logits"], {name: x.numpy() for name, x in inputs.items()})
        worst = float(np.abs(logits - expected).max())
        if not worst <= TOLERANCE * max(1.0, float(np.abs(expected).max())):
            raise Differs(
                f"model.onnx gives other logits than the student for {rows} rows of {length} "
                f"tokens: they differ by {worst:.2g}. It was not kept"
            )
