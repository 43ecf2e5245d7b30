"""Readers of other forms, against files made by hand and values worked out one by one."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import e5s1 as made
import numpy as np
import pytest

from ilkd_bench.models import containers
from ilkd_bench.models.containers import Contents, Unreadable, e5s1, onnx
from ilkd_bench.types import BadInput


def read(folder: Path, content: bytes) -> Contents:
    path = folder / "model.bin"
    path.write_bytes(content)
    return e5s1(path)


# ---------------------------------------------------------------------------------------- four bits


def test_four_bit_weights_are_those_that_were_stored(tmp_path: Path) -> None:
    content, stored = made.container()
    found = read(tmp_path, content)
    names = {
        "emb.word": "embeddings.word_embeddings.weight",
        "emb.pos": "embeddings.position_embeddings.weight",
        "emb.type": "embeddings.token_type_embeddings.weight",
        "emb.ln.w": "embeddings.LayerNorm.weight",
        "emb.ln.b": "embeddings.LayerNorm.bias",
        "l0.q.w": "encoder.layer.0.attention.self.query.weight",
        "l0.k.b": "encoder.layer.0.attention.self.key.bias",
        "l1.v.w": "encoder.layer.1.attention.self.value.weight",
        "l1.ao.b": "encoder.layer.1.attention.output.dense.bias",
        "l0.aln.w": "encoder.layer.0.attention.output.LayerNorm.weight",
        "l1.fi.w": "encoder.layer.1.intermediate.dense.weight",
        "l0.fo.w": "encoder.layer.0.output.dense.weight",
        "l1.oln.b": "encoder.layer.1.output.LayerNorm.bias",
    }
    assert len(found.weights) == len(stored) == 5 + 2 * 16
    for name, bert in names.items():
        assert found.weights[bert].dtype == np.float32
        np.testing.assert_array_equal(found.weights[bert], stored[name], err_msg=name)
    assert found.config == {
        "vocab_size": 16,
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "max_position_embeddings": 16,
        "type_vocab_size": 2,
        "layer_norm_eps": 1e-12,
        "hidden_act": "gelu",
        "pad_token_id": 1,
        "bos_token_id": 0,
        "eos_token_id": 2,
    }


def best_pieces(text: str) -> list[str]:
    """All ways to cut a text into pieces, and the one with the highest sum of scores."""
    scores = dict(made.PIECES)
    ways = []
    for cuts in product([False, True], repeat=len(text) - 1):
        pieces, start = [], 0
        for end in [*(i + 1 for i, cut in enumerate(cuts) if cut), len(text)]:
            pieces.append(text[start:end])
            start = end
        if all(piece in scores for piece in pieces):
            ways.append((sum(scores[piece] for piece in pieces), pieces))
    return max(ways)[1]


@pytest.mark.parametrize(
    ("text", "read_as"),
    [
        ("good", "▁good"),
        ("good film", "▁good▁film"),
        ("\tgo\x01od  \u200b film", "▁good▁film"),
        ("go\ufb01\xa0lm", "▁gofi▁lm"),
        ("dog ", "▁dog▁"),
    ],
)
def test_text_is_cut_into_the_pieces_of_the_highest_score(
    text: str, read_as: str, tmp_path: Path
) -> None:
    tokenizer = read(tmp_path, made.container()[0]).tokenizer
    assert tokenizer is not None
    assert tokenizer.tokenize(text) == best_pieces(read_as)


def test_special_tokens_stand_as_xlm_roberta_has_them(tmp_path: Path) -> None:
    tokenizer = read(tmp_path, made.container()[0]).tokenizer
    assert tokenizer is not None
    pair = tokenizer("go", "od", return_token_type_ids=True)
    assert tokenizer.convert_ids_to_tokens(pair["input_ids"]) == [
        *["<s>", "▁go", "</s>", "</s>", "▁", "od", "</s>"]
    ]
    assert set(pair["token_type_ids"]) == {0}
    assert tokenizer("go")["input_ids"] == [0, 5, 2]
    assert tokenizer.convert_ids_to_tokens(tokenizer("go zz")["input_ids"])[2:] == [
        *["▁", "<unk>", "</s>"]
    ]
    assert (tokenizer.pad_token_id, tokenizer.unk_token_id, tokenizer.mask_token_id) == (1, 3, 15)
    assert tokenizer.model_max_length == made.POSITIONS


def test_a_container_that_ends_anywhere_is_refused(tmp_path: Path) -> None:
    content, _ = made.container()
    for end in [*range(0, 400, 7), *range(400, len(content), 997), len(content) - 1]:
        with pytest.raises(Unreadable):
            read(tmp_path, content[:end])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"version": 2}, "version 2 with blocks of 32 is not known"),
        ({"block": 64}, "version 1 with blocks of 64 is not known"),
        ({"without": "l1.fo.w"}, r"it has no tensor l1\.fo\.w"),
        ({"pieces": [*made.PIECES[:-1], ("go", 0.0), ("go", 0.0)]}, "pieces twice"),
        ({"special": (0, 2, 1, 99)}, "special ones that are not there"),
    ],
)
def test_other_containers_are_refused(changes: dict, message: str, tmp_path: Path) -> None:
    with pytest.raises(Unreadable, match=message):
        read(tmp_path, made.container(**changes)[0])


def test_sizes_that_are_not_those_of_the_tensors_are_refused(tmp_path: Path) -> None:
    content, _ = made.container()
    width = content[8:12]
    assert int.from_bytes(width, "little") == made.WIDTH
    with pytest.raises(Unreadable, match=r"emb\.word has 512 values, not 16 x 64"):
        read(tmp_path, content[:8] + (64).to_bytes(4, "little") + content[12:])
    with pytest.raises(Unreadable, match="does not begin with E5S1"):
        read(tmp_path, b"GGUF" + content[4:])


# --------------------------------------------------------------------------------------------- ONNX

PREFIX = "model.0.auto_model."


def graph(folder: Path, dtype: type = np.float32, prefix: str = PREFIX, words: str = "") -> Path:
    """An embedding, and two layers of one linear map each, as torch exports them."""
    library = pytest.importorskip("onnx")
    from onnx import helper, numpy_helper

    arrays = {
        f"{prefix}{words or 'embeddings.word_embeddings.weight'}": np.arange(12).reshape(4, 3)
    }
    nodes = [helper.make_node("Gather", [next(iter(arrays)), "input_ids"], ["x0"])]
    for layer in range(2):
        bias = f"{prefix}encoder.layer.{layer}.output.dense.bias"
        arrays[bias] = np.full(3, layer)
        arrays[f"onnx::MatMul_{7 - layer}"] = 10 * (layer + 1) + np.arange(9).reshape(3, 3)
        product = [f"p{layer}", bias] if layer else [bias, f"p{layer}"]  # the sum is either way
        nodes += [
            helper.make_node("MatMul", [f"x{layer}", f"onnx::MatMul_{7 - layer}"], [f"p{layer}"]),
            helper.make_node("Add", product, [f"x{layer + 1}"]),
        ]
    arrays["other"] = np.zeros(2)
    value = helper.make_tensor_value_info
    whole = helper.make_graph(
        nodes,
        "bert",
        [value("input_ids", 7, [None, None])],
        [value("x2", 1, [None, None, 3])],
        [numpy_helper.from_array(x.astype(dtype), name) for name, x in arrays.items()],
    )
    path = folder / "model.onnx"
    library.save(helper.make_model(whole), path)
    return path


def test_matrices_without_a_name_belong_to_the_bias_of_their_product(tmp_path: Path) -> None:
    found = onnx(graph(tmp_path))
    nine = np.arange(9).reshape(3, 3)
    expected = {
        "embeddings.word_embeddings.weight": np.arange(12).reshape(4, 3),
        "encoder.layer.0.output.dense.bias": np.zeros(3),
        "encoder.layer.1.output.dense.bias": np.ones(3),
        "encoder.layer.0.output.dense.weight": 10 + nine.T,
        "encoder.layer.1.output.dense.weight": 20 + nine.T,
    }
    assert found.weights.keys() == expected.keys()
    for name, values in expected.items():
        np.testing.assert_array_equal(found.weights[name], values, err_msg=name)
    assert found.config == {"num_hidden_layers": 2} and found.tokenizer is None


def test_other_onnx_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(Unreadable, match="is float16, not float32"):
        onnx(graph(tmp_path, np.float16))
    with pytest.raises(Unreadable, match="no weight whose name ends in embeddings"):
        onnx(graph(tmp_path, words="tokens.weight"))
    path = tmp_path / "broken.onnx"
    path.write_bytes(graph(tmp_path).read_bytes()[:-9])
    with pytest.raises(Unreadable, match="no whole ONNX file"):
        onnx(path)
    monkeypatch.setattr(containers.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(BadInput, match=r"pip install -c constraints\.txt '\.\[real\]'"):
        onnx(path)
