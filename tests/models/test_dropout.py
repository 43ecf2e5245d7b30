"""Dropout on a processor: torch's distribution, drawn faster, in every architecture."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from closeness import close
from families import FAMILIES, OTHERS, inputs, load, save
from torch import Tensor
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.profiler import profile

from ilkd_bench.models.dropout import FastMasks, attention, mask


@pytest.mark.parametrize("p", [0.1, 0.25, 0.5, 0.9])
def test_a_mask_keeps_its_share_and_the_mean(p: float) -> None:
    torch.manual_seed(0)
    drawn = mask(torch.empty(1000, 1001), p)
    kept, count = drawn != 0, drawn.numel()
    assert abs(int(kept.sum()) - count * (1 - p)) < 5 * math.sqrt(count * p * (1 - p))
    assert torch.allclose(drawn[kept], torch.tensor(1 / (1 - p)), rtol=2**-12)


@pytest.mark.parametrize("lag", [1, 2, 3, 4, 8, 1000])
def test_elements_are_dropped_independently_of_each_other(lag: int) -> None:
    torch.manual_seed(1)
    dropped = (mask(torch.empty(1_000_003), 0.1) == 0).double()
    both = dropped[lag:] * dropped[:-lag]
    assert abs(float(both.sum()) - 0.01 * len(both)) < 5 * math.sqrt(len(both) * 0.01)


def test_a_mask_depends_on_the_seed_alone() -> None:
    def drawn(seed: int, threads: int) -> Tensor:
        before = torch.get_num_threads()
        torch.set_num_threads(threads)
        torch.manual_seed(seed)
        try:
            return mask(torch.empty(7, 100_001), 0.1)
        finally:
            torch.set_num_threads(before)

    assert torch.equal(drawn(0, 1), drawn(0, 2))
    assert not torch.equal(drawn(0, 1), drawn(1, 1))


def test_a_mask_has_the_type_of_what_it_multiplies() -> None:
    assert mask(torch.empty(5, dtype=torch.bfloat16), 0.1).dtype == torch.bfloat16


def projections() -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(2)
    query, key, value = torch.randn(3, 2, 4, 5, 6).unbind()
    return query, key, value


HIDDEN = torch.arange(5) < torch.tensor([[5], [3]])
"""[2, 5], where the second row has two tokens of padding."""


@pytest.mark.parametrize("scale", [None, 0.3])
@pytest.mark.parametrize("form", ["none", "bool", "number"])
def test_attention_without_dropout_is_that_of_torch(form: str, scale: float | None) -> None:
    hides = HIDDEN[:, None, None]
    given = {
        "none": None,
        "bool": hides,
        "number": torch.zeros(2, 1, 1, 5).masked_fill(~hides, -1e9),
    }[form]
    expected = F.scaled_dot_product_attention(*projections(), attn_mask=given, scale=scale)
    close(attention(*projections(), given, 0.0, scale=scale), expected)


def test_attention_in_16_bits_is_as_exact_as_torchs() -> None:
    """Its kernel for attention with dropout computes in float32 too."""
    given = [x.bfloat16() * 3 for x in projections()]
    exact = F.scaled_dot_product_attention(*(x.double() for x in given))
    with sdpa_kernel(SDPBackend.MATH):
        expected = F.scaled_dot_product_attention(*given)
    with torch.autocast("cpu", torch.bfloat16):
        found = attention(*given, None, 0.0)
    assert found.dtype == torch.bfloat16
    assert (found - exact).norm() < 1.1 * (expected - exact).norm()


def test_attention_with_dropout_has_the_mean_of_that_without() -> None:
    query, key, value = (x.repeat(2000, 1, 1, 1) for x in projections())
    found = attention(query, key, value, None, 0.1).unflatten(0, (2000, 2))
    expected = F.scaled_dot_product_attention(*projections())
    error = found.std(0) / math.sqrt(2000)
    assert ((found.mean(0) - expected).abs() < 5 * error).all()


def test_inside_torchs_own_functions_draw_that_way() -> None:
    x = torch.randn(50, 40, requires_grad=True)
    torch.manual_seed(3)
    expected = mask(x, 0.1)
    torch.manual_seed(3)
    with FastMasks():
        found = F.dropout(x, 0.1)
    found.sum().backward()
    assert torch.equal(found, x * expected)
    assert x.grad is not None and torch.equal(x.grad, expected)


@pytest.mark.parametrize(
    "draw",
    [
        lambda x: F.dropout(x, 0.1, training=False),
        lambda x: F.dropout(x, 0.0),
        lambda x: F.dropout(x, 1.0),
        lambda x: F.dropout(x.clone(), 0.1, inplace=True),
        lambda x: F.scaled_dot_product_attention(x, x, x, is_causal=True, dropout_p=0.1),
        lambda x: F.scaled_dot_product_attention(x, x, x),
    ],
)
def test_what_is_not_taken_over_stays_torchs(draw: Callable[[Tensor], Tensor]) -> None:
    x = torch.randn(2, 3, 40, 8)
    torch.manual_seed(4)
    expected = draw(x)
    torch.manual_seed(4)
    with FastMasks():
        assert torch.equal(draw(x), expected)


@pytest.mark.parametrize("eager", [False, True])
@pytest.mark.parametrize("family", [*FAMILIES, *OTHERS])
def test_no_architecture_draws_its_masks_element_by_element(
    family: str, eager: bool, tmp_path: Path
) -> None:
    model = load(save(tmp_path, family))
    batch, needs = (
        inputs(model, "good film", "the bad cup"),
        frozenset({"attention"} if eager else ()),
    )
    evaluated = model.outputs(batch, needs).logits

    def trained(seed: int) -> Tensor:
        torch.manual_seed(seed)
        return model.outputs(batch, needs).logits

    model.train()
    with profile() as profiler:
        one = trained(0)
    assert not any("bernoulli" in event.key for event in profiler.key_averages())
    assert torch.equal(one, trained(0)) and not torch.equal(one, trained(1))
    assert not torch.equal(one, evaluated)
    model.eval()
    assert torch.equal(model.outputs(batch, needs).logits, evaluated)
