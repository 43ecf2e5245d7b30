"""Weights in other forms than transformers writes, read into BERT's names.

No code that comes with a file is run.
"""

from __future__ import annotations

import importlib.util
import struct
import unicodedata
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from tokenizers import Regex, Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from ilkd_bench.types import BadInput

WORDS = "embeddings.word_embeddings.weight"
"""The weight that every encoder has; what stands before its name stands before all names."""


class Unreadable(Exception):
    """The file is not of the form, or not whole; the message says where."""


@dataclass(frozen=True)
class Contents:
    """What a file tells of a BERT."""

    weights: dict[str, np.ndarray]  # float32, by transformers' names
    config: dict[str, Any]  # those settings that the file tells
    tokenizer: PreTrainedTokenizerFast | None  # None: it has none


# -------------------------------------------------------------------------------------------- ONNX


def onnx(path: Path) -> Contents:
    """Read the float32 weights of a BERT that torch exported to ONNX.

    Weights that are used as they are keep their names in the model. Those of linear layers are
    stored transposed and without a name: each belongs to the bias that is added to its product.

    Raises:
        Unreadable: it is no ONNX file, or not of a BERT.
        BadInput: the package that reads ONNX is not installed.
    """
    if importlib.util.find_spec("onnx") is None:
        raise BadInput(
            f"{path.name} is read by the Python package onnx, which is not installed: "
            "pip install -c constraints.txt '.[real]'"
        )
    import onnx as library

    try:
        graph = library.load(path).graph
        stored = {x.name: library.numpy_helper.to_array(x) for x in graph.initializer}
    except Exception as error:  # of protobuf and numpy: no common base
        raise Unreadable(f"it is no whole ONNX file ({error})") from error
    words = next((name for name in stored if name.endswith(WORDS)), None)
    if words is None:
        raise Unreadable(f"it has no weight whose name ends in {WORDS}")
    prefix = words.removesuffix(WORDS)
    weights = {n.removeprefix(prefix): x for n, x in stored.items() if n.startswith(prefix)}
    products = {
        node.output[0]: node.input[1]
        for node in graph.node
        if node.op_type == "MatMul" and node.input[1] in stored
    }
    for node in graph.node:
        bias = next((n for n in node.input if n in stored and n.endswith(".bias")), None)
        product = next((n for n in node.input if n in products), None)
        if node.op_type == "Add" and bias is not None and product is not None:
            name = bias.removeprefix(prefix).removesuffix("bias") + "weight"
            weights[name] = stored[products[product]].T
    other = sorted(name for name, x in weights.items() if x.dtype != np.float32)
    if other:
        raise Unreadable(f"{other[0]} is {weights[other[0]].dtype}, not float32")
    return Contents(weights, {"num_hidden_layers": _depth(weights)}, None)


def _depth(weights: Mapping[str, np.ndarray]) -> int:
    """Return the number of layers that weights are of."""
    layers = {name.split(".")[2] for name in weights if name.startswith("encoder.layer.")}
    return len(layers)


# ------------------------------------------------------------------------- four-bit weights (E5S1)

MAGIC = b"E5S1"
BLOCK = 32
"""Weights that share a scale."""

EMBEDDINGS = {
    "emb.word": WORDS,
    "emb.pos": "embeddings.position_embeddings.weight",
    "emb.type": "embeddings.token_type_embeddings.weight",
    "emb.ln.w": "embeddings.LayerNorm.weight",
    "emb.ln.b": "embeddings.LayerNorm.bias",
}
LAYER = {
    "q": "attention.self.query",
    "k": "attention.self.key",
    "v": "attention.self.value",
    "ao": "attention.output.dense",
    "aln": "attention.output.LayerNorm",
    "fi": "intermediate.dense",
    "fo": "output.dense",
    "oln": "output.LayerNorm",
}
"""Parts of a layer, as in `l0.q.w`, the weight of the first layer's queries."""


class _Reader:
    """Reads little-endian values one after the other."""

    def __init__(self, content: bytes) -> None:
        self.content, self.position = content, 0

    def values(self, form: str) -> tuple[Any, ...]:
        found = struct.unpack_from(f"<{form}", self.content, self.position)
        self.position += struct.calcsize(f"<{form}")
        return found

    def array(self, kind: str, count: int) -> np.ndarray:
        found = np.frombuffer(self.content, kind, count, self.position)
        self.position += found.nbytes
        return found

    def bytes(self, count: int) -> bytes:
        if count < 0 or self.position + count > len(self.content):
            raise Unreadable("it ends too early")
        self.position += count
        return self.content[self.position - count : self.position]


def e5s1(path: Path) -> Contents:
    """Read a BERT with a unigram tokenizer, whose matrices have four bits a weight.

    The file has, in this order: sizes; pieces of the tokenizer with their scores; what single
    characters are replaced by; a list of the tensors, which follow. A matrix is stored in blocks
    of 32 weights: a float16 scale, and 16 bytes whose lower halves are the first 16 weights, the
    upper halves the others, each 8 too large and divided by the scale. All else is float32.

    Raises:
        Unreadable: it is no such file, or not whole.
    """
    read = _Reader(path.read_bytes())
    try:
        if read.bytes(4) != MAGIC:
            raise Unreadable(f"it does not begin with {MAGIC.decode()}")
        version, width, layers, heads, inner, words, positions, kinds = read.values("I7i")
        epsilon, block = read.values("fi")
        if (version, block) != (1, BLOCK):
            raise Unreadable(f"version {version} with blocks of {block} is not known, only 1 of 32")
        tokenizer = _unigram(read, positions)
        shapes = _shapes(width, layers, inner, words, positions, kinds)
        (count,) = read.values("i")
        stored = {}
        for _ in range(count):
            name = read.bytes(*read.values("H")).decode()
            stored[name] = read.values("BIQQ")
        weights = {
            _bert_name(name): _tensor(read.content, name, stored, shape)
            for name, shape in shapes.items()
        }
    except (struct.error, ValueError, OverflowError) as error:
        raise Unreadable(f"it is not whole ({error})") from error
    config = {
        "vocab_size": words,
        "hidden_size": width,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "intermediate_size": inner,
        "max_position_embeddings": positions,
        "type_vocab_size": kinds,
        "layer_norm_eps": float(f"{epsilon:.6g}"),  # 1e-12, which float32 does not have
        "hidden_act": "gelu",
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    return Contents(weights, config, tokenizer)


def _shapes(
    width: int, layers: int, inner: int, words: int, positions: int, kinds: int
) -> dict[str, tuple[int, ...]]:
    """Return the shape of every tensor by its name in the file."""
    sizes: dict[str, tuple[int, ...]] = {part: (width, width) for part in ("q", "k", "v", "ao")} | {
        "aln": (width,),
        "fi": (inner, width),
        "fo": (width, inner),
        "oln": (width,),
    }
    shapes: dict[str, tuple[int, ...]] = {
        "emb.word": (words, width),
        "emb.pos": (positions, width),
        "emb.type": (kinds, width),
        "emb.ln.w": (width,),
        "emb.ln.b": (width,),
    }
    for number in range(layers):
        for part, shape in sizes.items():
            shapes[f"l{number}.{part}.w"] = shape
            shapes[f"l{number}.{part}.b"] = shape[:1]
    return shapes


def _bert_name(name: str) -> str:
    if name in EMBEDDINGS:
        return EMBEDDINGS[name]
    number, part, kind = name.split(".")
    return f"encoder.layer.{number[1:]}.{LAYER[part]}.{'weight' if kind == 'w' else 'bias'}"


def _tensor(
    content: bytes, name: str, stored: Mapping[str, tuple[int, ...]], shape: tuple[int, ...]
) -> np.ndarray:
    if name not in stored:
        raise Unreadable(f"it has no tensor {name}")
    kind, count, start, size = stored[name]
    expected = int(np.prod(shape))
    bytes_of = {0: 4 * expected, 1: expected // BLOCK * (2 + BLOCK // 2)}
    if kind not in bytes_of or count != expected or size != bytes_of[kind]:
        raise Unreadable(f"{name} has {count} values, not {' x '.join(map(str, shape))}")
    part = content[start : start + size]
    if kind == 0:
        return np.frombuffer(part, "<f4").reshape(shape)
    blocks = np.frombuffer(part, [("scale", "<f2"), ("halves", "u1", BLOCK // 2)])
    whole = np.concatenate([blocks["halves"] & 15, blocks["halves"] >> 4], axis=1)
    weights = (whole.astype(np.float32) - 8) * blocks["scale"].astype(np.float32)[:, None]
    return weights.reshape(shape)


def _unigram(read: _Reader, positions: int) -> PreTrainedTokenizerFast:
    """Return the tokenizer of the pieces, scores and replacements that follow."""
    count, bos, eos, pad, unknown, size = read.values("5iQ")
    offsets = read.array("<u4", count + 1)
    scores = read.array("<f4", count)
    text = read.bytes(size)
    pieces = [text[a:b].decode() for a, b in pairwise(offsets)]
    if len(set(pieces)) != count or not all(0 <= n < count for n in (bos, eos, pad, unknown)):
        raise Unreadable("its tokenizer has pieces twice, or special ones that are not there")
    replaced = {}
    for _ in range(read.values("iI")[0]):
        character, length = read.values("IB")
        replaced[chr(character)] = "".join(map(chr, read.values(f"{length}I")))
    scored = [(piece, float(score)) for piece, score in zip(pieces, scores, strict=True)]
    backend = Tokenizer(models.Unigram(scored, unk_id=unknown))
    backend.normalizer = _normalizer(replaced)
    backend.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    begin, end = (pieces[bos], bos), (pieces[eos], eos)
    backend.post_processor = processors.TemplateProcessing(  # as XLM-RoBERTa reads pairs
        single=f"{begin[0]} $A {end[0]}",
        pair=f"{begin[0]} $A:0 {end[0]} {end[0]} $B:0 {end[0]}",
        special_tokens=[begin, end],
    )
    return PreTrainedTokenizerFast(
        tokenizer_object=backend,
        model_max_length=positions,
        model_input_names=["input_ids", "attention_mask"],
        bos_token=begin[0],
        cls_token=begin[0],
        eos_token=end[0],
        sep_token=end[0],
        pad_token=pieces[pad],
        unk_token=pieces[unknown],
        **({"mask_token": "<mask>"} if "<mask>" in pieces else {}),
    )


def _normalizer(replaced: Mapping[str, str]) -> normalizers.Normalizer:
    """Return what replaces characters: NFKC, before which those go that it treats otherwise.

    The table of the file has single characters, and no newer ones than Unicode 9; NFKC also joins
    letters with the accents after them, as the text had them that the model was trained on.
    """
    groups: dict[str, list[str]] = defaultdict(list)
    for character, target in replaced.items():
        if unicodedata.normalize("NFKC", character) != target:
            groups[target].append(character)
    first = [normalizers.Replace(Regex(_any_of(all_)), target) for target, all_ in groups.items()]
    return normalizers.Sequence(
        [*first, normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")]
    )


def _any_of(characters: Sequence[str]) -> str:
    return "[" + "".join(f"\\x{{{ord(character):X}}}" for character in characters) + "]"
