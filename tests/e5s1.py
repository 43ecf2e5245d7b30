"""Writes the four-bit container that `models/containers.py` reads, from its description alone."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence

import numpy as np

WIDTH, LAYERS, HEADS, INNER, POSITIONS, KINDS = 32, 2, 2, 64, 16, 2
PIECES = [
    *[("<s>", 0.0), ("<pad>", 0.0), ("</s>", 0.0), ("<unk>", 0.0)],
    *[("▁", -2.0), ("▁go", -4.0), ("od", -5.0), ("▁good", -8.5), ("g", -6.0), ("o", -6.0)],
    *[("d", -6.0), ("fi", -3.0), ("lm", -3.0), ("f", -5.0), ("i", -5.0), ("<mask>", 0.0)],
]
REPLACED = {"\t": " ", "\x01": "", "\ufb01": "fi", "\xa0": " ", "\u200b": " "}
"""As NFKC has it (the ligature, the fixed space), and not (control characters)."""


def matrix(rows: int, columns: int, rng: np.random.Generator) -> tuple[bytes, np.ndarray]:
    """Random four-bit weights as they are stored, and as they are; worked out one by one."""
    content = b""
    weights = np.zeros((rows, columns), np.float32)
    for row in range(rows):
        for block in range(0, columns, 32):
            scale = np.float16(rng.uniform(0.01, 0.05))
            numbers = [int(n) for n in rng.integers(0, 16, 32)]
            content += scale.tobytes()
            content += bytes(numbers[j] + 16 * numbers[j + 16] for j in range(16))
            for j, number in enumerate(numbers):
                weights[row, block + j] = (number - 8) * float(scale)
    return content, weights


def vector(size: int, rng: np.random.Generator) -> tuple[bytes, np.ndarray]:
    values = rng.normal(1, 0.1, size).astype("<f4")
    return values.tobytes(), values


def container(
    *,
    seed: int = 0,
    version: int = 1,
    block: int = 32,
    pieces: Sequence[tuple[str, float]] = PIECES,
    replaced: Mapping[str, str] = REPLACED,
    without: str = "",
    special: tuple[int, int, int, int] = (0, 2, 1, 3),
) -> tuple[bytes, dict[str, np.ndarray]]:
    """A whole file, and the weights in it by the names that they have there.

    Args:
        without: a tensor to leave out.
        special: numbers of `<s>`, `</s>`, `<pad>` and `<unk>`.
    """
    rng = np.random.default_rng(seed)
    words = len(pieces)
    shapes: list[tuple[str, tuple[int, ...]]] = [
        *[("emb.word", (words, WIDTH)), ("emb.pos", (POSITIONS * WIDTH,))],
        *[("emb.type", (KINDS * WIDTH,)), ("emb.ln.w", (WIDTH,)), ("emb.ln.b", (WIDTH,))],
    ]
    for number in range(LAYERS):
        for part, shape in (
            *[(p, (WIDTH, WIDTH)) for p in ("q", "k", "v", "ao")],
            *[("aln", (WIDTH,)), ("fi", (INNER, WIDTH)), ("fo", (WIDTH, INNER)), ("oln", (WIDTH,))],
        ):
            shapes += [(f"l{number}.{part}.w", shape), (f"l{number}.{part}.b", shape[:1])]
    tensors, weights = {}, {}
    for name, shape in shapes:
        stored, weights[name] = matrix(*shape, rng) if len(shape) == 2 else vector(*shape, rng)  # type: ignore[misc]
        tensors[name] = (int(len(shape) == 2), weights[name].size, stored)
    weights["emb.pos"] = weights["emb.pos"].reshape(POSITIONS, WIDTH)
    weights["emb.type"] = weights["emb.type"].reshape(KINDS, WIDTH)
    tensors.pop(without, None)

    texts = [piece.encode() for piece, _ in pieces]
    head = b"E5S1" + struct.pack("<I", version)
    head += struct.pack("<7i", WIDTH, LAYERS, HEADS, INNER, words, POSITIONS, KINDS)
    head += struct.pack("<fi", 1e-12, block)
    head += struct.pack("<5iQ", words, *special, sum(map(len, texts)))
    head += struct.pack(f"<{words + 1}I", *np.cumsum([0, *map(len, texts)]))
    head += struct.pack(f"<{words}f", *(score for _, score in pieces)) + b"".join(texts)
    table = b""
    for character, target in replaced.items():
        table += struct.pack("<IB", ord(character), len(target))
        table += struct.pack(f"<{len(target)}I", *map(ord, target))
    head += struct.pack("<iI", len(replaced), len(table)) + table
    head += struct.pack("<i", len(tensors))
    start = len(head) + sum(2 + len(name) + 21 for name in tensors)
    body = b""
    for name, (kind, count, stored) in tensors.items():
        head += struct.pack("<H", len(name)) + name.encode()
        head += struct.pack("<BIQQ", kind, count, start + len(body), len(stored))
        body += stored
    return head + body, weights
