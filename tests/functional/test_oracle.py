"""The oracle against numbers worked out on paper, and against scipy where it has the function."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import make_vectors
import numpy as np
import oracle
import pytest
from scipy import special

LN2: Any = math.log(2.0)
LN3: Any = math.log(3.0)
VECTORS = Path(__file__).parent.parent / "vectors"


def close(value: float) -> Any:
    return pytest.approx(value, rel=1e-9, abs=1e-12)


# ------------------------------------------------------------------------------------ by hand


def test_cross_entropy_by_hand() -> None:
    # row 1: p = 1/2; row 2: logits 0, ln 3 give p = 1/4, 3/4
    # (ln 2 + ln 4/3) / 2 = ln(8/3) / 2 = 0.980829253 / 2
    assert oracle.cross_entropy([[0, 0], [0, LN3]], [0, 1]) == pytest.approx(0.4904146265, abs=1e-9)


def test_cross_entropy_of_one_output_is_a_squared_error() -> None:
    # ((1 - 0)^2 + (3 - 1)^2) / 2 = 5/2
    assert oracle.cross_entropy([[1], [3]], [0.0, 1.0]) == close(2.5)


def test_soft_kl_by_hand() -> None:
    # p_t = 3/4, 1/4; p_s = 1/2, 1/2
    # 3/4 ln(3/2) + 1/4 ln(1/2) = 0.304098831 - 0.173286795 = 0.130812036
    assert oracle.soft_kl([[0, 0]], [[LN3, 0]], 1) == pytest.approx(0.130812036, abs=1e-9)
    # logits twice as large at T = 2: the same distributions, times T^2 = 4
    assert oracle.soft_kl([[0, 0]], [[2 * LN3, 0]], 2) == pytest.approx(0.523248144, abs=2e-9)
    # a second row without any difference halves the mean
    assert oracle.soft_kl([[0, 0], [1, 5]], [[LN3, 0], [1, 5]], 1) == pytest.approx(
        0.065406018, abs=1e-9
    )


@pytest.mark.parametrize(
    ("temperature", "published"), [(1, 1.150421), (2, 1.280627), (10, 1.331116)]
)
def test_soft_kl_fixture(temperature: int, published: float) -> None:
    # both partition functions are equal, so KL = sum_c p_t (z_t - z_s) / T with
    # z_t - z_s = 2, 0, -2 and p_t ~ x^2, x, 1, x = e^(1/T) after removing the common factor:
    # T^2 KL = 2 T (x^2 - 1) / (x^2 + x + 1)
    x = math.exp(1 / temperature)
    value = oracle.soft_kl([[1, 2, 3]], [[3, 2, 1]], temperature)
    assert value == pytest.approx(2 * temperature * (x * x - 1) / (x * x + x + 1), rel=1e-12)
    assert value == pytest.approx(published, abs=5e-7)


def test_soft_kl_of_one_output_is_a_squared_error_without_temperature() -> None:
    # ((1 - 2)^2 + (3 - 0)^2) / 2 = 5
    assert oracle.soft_kl([[1], [3]], [[2], [0]], 10) == close(5.0)


def test_squared_errors_by_hand() -> None:
    assert oracle.mse([[1, 2], [3, 4]], [[0, 0], [0, 0]]) == close(30 / 4)
    # (3, 4)/5 - (4, 3)/5 = (-0.2, 0.2)
    assert oracle.normalized_mse([[3, 4]], [[4, 3]]) == close(0.04)
    # a zero vector stays zero: (0.6^2 + 0.8^2) / 2
    assert oracle.normalized_mse([[0, 0]], [[3, 4]]) == close(0.5)
    # real vectors (1, 2) and (3, 0): (1 + 4 + 9 + 0) / 4
    a = [[[1, 2], [900, 900]], [[3, 0], [-900, 900]]]
    assert oracle.masked_mse(a, np.zeros((2, 2, 2)), [[1, 0], [1, 0]]) == close(3.5)
    # one row of two positions, one of one: each position counts once, (1 + 1 + 16) / 3
    b = [[[1], [1]], [[4], [900]]]
    assert oracle.masked_mse(b, np.zeros((2, 2, 1)), [[1, 1], [1, 0]]) == close(6.0)
    assert oracle.masked_mse(a, np.zeros((2, 2, 2)), [[0, 0], [0, 0]]) == 0.0


def test_features_by_hand() -> None:
    hidden = [
        [[[1, 2], [3, 6], [900, 900]], [[5, 5], [900, 900], [900, 900]]],
        [[[0, 1], [1, 0], [900, 900]], [[7, 8], [900, 900], [900, 900]]],
    ]
    assert oracle.cls(hidden).tolist() == [[[1, 2], [0, 1]], [[5, 5], [7, 8]]]
    mask = [[1, 1, 0], [1, 0, 0]]
    assert oracle.mean(hidden, mask).tolist() == [[[2, 4], [0.5, 0.5]], [[5, 5], [7, 8]]]
    assert oracle.mean(hidden, [[1, 1, 0], [0, 0, 0]])[1].tolist() == [[0, 0], [0, 0]]


def test_layer_maps_by_hand() -> None:
    assert oracle.skip(12, 6) == [2, 4, 6, 8, 10]
    assert oracle.skip(24, 6) == [4, 8, 12, 16, 20]
    assert oracle.skip(6, 3) == [2, 4]
    assert oracle.skip(11, 4) == [2, 5, 8]  # 2.75, 5.5, 8.25: rounding would give 3, 6, 8
    assert oracle.last(12, 6) == [7, 8, 9, 10, 11]
    assert oracle.last(6, 3) == [4, 5]
    assert oracle.uniform(12, 4) == [0, 3, 6, 9, 12]
    assert oracle.uniform(11, 4) == [0, 2, 5, 8, 11]
    for epoch in range(20):
        drawn = oracle.random_sorted(12, 6, 0, epoch)
        assert len(drawn) == 5
        assert drawn == sorted(set(drawn))
        assert 1 <= drawn[0] <= drawn[-1] <= 11
    assert oracle.random_sorted(4, 4, 0, 0) == [1, 2, 3]  # nothing to choose


def test_attend_by_hand() -> None:
    # products ln 2 and 0: 2/3, 1/3
    weights = oracle.attend([[[1, 0]]], [[[LN2, 5], [0, 7]]])
    assert weights.tolist() == [[[close(2 / 3), close(1 / 3)]]]


def test_pkd_by_hand() -> None:
    far = [99, 98]
    hs = [[far, [3, 4], far]]
    ht = [[far, far, [4, 3], far, far]]
    assert oracle.pkd(hs, ht, [2], True) == close(0.04)  # as above
    assert oracle.pkd(hs, ht, [2], False) == close(1.0)  # (1 + 1) / 2
    # maps 2 -> 1: student 3 + 4 + 1 = 8, teacher 4 - 3 = 1, (8 - 1)^2 = 49; the signs alone when
    # normalised: 1 and 1
    maps = (([[1, 1]], [1]), ([[1, -1]], [0]))
    assert oracle.pkd(hs, ht, [2], False, *maps) == close(49.0)
    assert oracle.pkd(hs, ht, [2], True, *maps) == close(0.0)
    # two layers, (1, 0) with (0, 0) and (0, 3) with (0, 0): (1/2 + 9/2) / 2
    two = [[far, [1, 0], [0, 3], far]]
    assert oracle.pkd(two, np.zeros((1, 7, 2)), [2, 4], False) == close(2.5)


def test_codir_by_hand() -> None:
    assert oracle.splitmix(0) == 0xE220A8397B1DCDAF >> 1  # SplitMix64's first number from state 0
    assert oracle.splitmix(1, 0) != oracle.splitmix(0, 1)
    labels = {5: 1.0, 2: 0.0, 9: 0.0}
    assert oracle.negatives(9, labels, 3, (0, 0, 0)) == [5, 5, 5]
    drawn = oracle.negatives(5, labels, 50, (0, 0, 0))
    assert drawn == [[2, 9][oracle.splitmix(0, 0, 0, 5, j) % 2] for j in range(50)]
    assert oracle.starts(12, 6) == [1, 3, 5, 7, 9, 11]
    assert oracle.starts(11, 4) == [1, 3, 6, 9]
    # (3, 4) with (0, 1) and (1, 1): 4 and 7, at tau 1/2 twice that
    assert oracle.codir_scores([[3, 4]], [[1, 1], [0, 1]], [[1, 0]], 0.5).tolist() == [[8, 14]]
    # one negative, 2 rows: K / N = 1/2; e = 2, 4 and Z = 4: p = 1/2, 1
    # -ln(1/2 / (1/2 + 1/2)) - ln(1/2 / (1 + 1/2)) = ln 2 + ln 3
    scores = [[LN2, 2 * LN2]]
    assert oracle.codir_direction(scores, 2, 4) == close(LN2 + LN3)
    # Z of the batch: 2 (2 + 4) / 2 = 6, p = 1/3, 2/3: ln(5/2) + ln(7/3)
    assert oracle.codir_direction(scores, 2, 0) == close(math.log(5 / 2) + math.log(7 / 3))
    # layers 1 and 2 joined, x - y and y: (3 - 4, 4) / sqrt 17
    h = [[[99], [3], [4]]]
    found = oracle.codir_vectors(h, [1, 2], ([[1, -1], [0, 1]], [0, 0]))
    assert found.tolist() == [[close(-1 / math.sqrt(17)), close(4 / math.sqrt(17))]]


def test_universal_by_hand() -> None:
    # query 1, keys 0 and ln 2: weights 1/3, 2/3; teacher's classifiers 3 and 6: mixture 5
    # student's classifier 2: (2 - 5)^2; with the label 4: ((3 - 4)^2 + (6 - 4)^2) / 2
    hs, ht = [[[99], [1], [98]]], [[[99], [0], [1], [98]]]
    maps = ([[1]], [0]), ([[LN2]], [0]), [([[2]], [0])], [([[7]], [3]), ([[5]], [1])]
    assert oracle.universal(hs, ht, [4.0], 10, *maps) == (close(9.0), close(2.5))
    # width 4: the products are 4 (ln 2) / 2, halved: the same weights
    wide = ([[1]] * 4, [0] * 4), ([[LN2 / 2]] * 4, [0] * 4), *maps[2:]
    assert oracle.universal(hs, ht, [4.0], 10, *wide) == (close(9.0), close(2.5))


def test_alp_by_hand() -> None:
    hs: list[Any] = [[[99, 99], [1, 0], [0, 0]]]  # two layers, the second one last
    ht = [[[99, 99], [LN2, 0], [0, 0], [0, 0]]]  # three layers
    # weights 2/3, 1/3, context (2/3 ln 2, 0) = (0.462098120, 0): 0.537901880^2 / 2
    assert oracle.alp(hs, ht, "none", False) == pytest.approx(0.1446692162, abs=1e-9)
    # student layer 1: weights 1/2, 1/4, 1/4, context (ln 2 / 2, 0)
    # student layer 2: weights 1/3 each, context (ln 2 / 3, 0)
    both = (1 - LN2 / 2) ** 2 / 2 + (LN2 / 3) ** 2 / 2
    assert oracle.alp(hs, ht, "none", True) == close(both)
    # (sqrt 2, 0) / sqrt 2 gives the first weights, but the distance is from (sqrt 2, 0)
    hs[0][1] = [math.sqrt(2), 0]
    scaled = (math.sqrt(2) - 2 / 3 * LN2) ** 2 / 2
    assert oracle.alp(hs, ht, "sqrt_width", False) == close(scaled)
    # maps 2 -> 1, student 2 x, teacher -y + 1: query 2, keys 1 and 1: (2 - 1)^2 / 1
    hs[0][1] = [1, 0]
    maps = (([[2, 0]], [0]), ([[0, -1]], [1]))
    assert oracle.alp(hs, ht, "none", False, *maps) == close(1.0)


def test_rail_by_hand() -> None:
    far = [99, 98]
    hs = [[far, [3, 4], [1, 0], far]]
    ht = [[far, far, [4, 3], far, [0, 2], far]]
    eye, zero = [[1, 0], [0, 1]], [0, 0]
    # 0.2^2 + 0.2^2 = 0.08 and |(1, 0) - (0, 1)|^2 = 2
    assert oracle.rail_layerwise(hs, ht, [2, 4], eye, zero, eye, zero) == close(2.08)
    # the same for the first pair; the second pair with the teacher's coordinates exchanged: 0
    turned = [[0, 1], [1, 0]]
    per_layer = ([eye, eye], [zero, zero], [eye, turned], [zero, zero])
    assert oracle.rail_layerwise(hs, ht, [2, 4], *per_layer) == close(0.08)
    # the bias comes before the normalisation: (3, 4) - (3, 4) + (0, 1) against (0, 2) is 0
    moved = ([eye, eye], [[-3, -3], zero], [eye, turned], [[-4, -2], zero])
    assert oracle.rail_layerwise(hs, ht, [2, 4], *moved) == close(0.0)
    # joined: student 3, 4, 1, 0, teacher 4, 3, 0, 2; keeping entries 1 and 2 of the student and
    # 1 and 2 of the teacher gives 0.08, entries 2 and 4 of the student (4, 0) and 3 and 4 of the
    # teacher (0, 2) give 2
    pick = np.eye(4)
    joined = oracle.rail_concatenated(hs, ht, [2, 4], pick[:2], zero, pick[:2], zero)
    assert joined == close(0.08)
    joined = oracle.rail_concatenated(hs, ht, [2, 4], pick[[1, 3]], zero, pick[2:], zero)
    assert joined == close(2.0)


def test_pro_kd_by_hand() -> None:
    # T 10 of 10: 1 - 9/10 = 0.1; 10 T 5: 0.6
    assert oracle.smooth([[10, -20]], 10, 10, "factor").tolist() == [[close(1), close(-2)]]
    assert oracle.smooth([[10, -20]], 5, 10, "factor").tolist() == [[close(6), close(-12)]]
    assert oracle.smooth([[10, -20]], 5, 10, "divide").tolist() == [[2, -4]]
    # ((0 - 6)^2 + (0 + 12)^2) / 2
    assert oracle.follow([[0, 0]], [[10, -20]], 5, 10, "factor") == close(90.0)


@pytest.mark.parametrize(
    ("epochs", "t_max", "values"),
    [
        (10, 10, [10, 9, 8, 7, 6, 5, 4, 3, 2, 1]),
        (12, 10, [10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 1, 1]),  # held for floor(1.2) = 1
        (7, 3, [3, 3, 2, 2, 1, 1, 1]),
        (4, 10, [10, 7, 4, 1]),  # steps of 9 / 3
        (3, 4, [4, 2.5, 1]),
        (2, 10, [10, 1]),
        (1, 10, [1]),
        (1, 1, [1]),
        (3, 1, [1, 1, 1]),
    ],
)
def test_falling_temperature_by_hand(epochs: int, t_max: int, values: list[float]) -> None:
    found = [oracle.falling_temperature(epoch, epochs, t_max) for epoch in range(epochs)]
    assert found == [close(v) for v in values]


# ---------------------------------------------------------------------------------- scipy


@pytest.mark.parametrize("temperature", [1, 2, 10])
def test_against_scipy(temperature: int) -> None:
    g = np.random.default_rng(5)
    zs, zt = g.normal(0, 4, (2, 6, 5))
    labels = g.integers(0, 5, 6)
    np.testing.assert_allclose(oracle.log_softmax(zs), special.log_softmax(zs, axis=1), rtol=1e-12)
    np.testing.assert_allclose(oracle.softmax(zs), special.softmax(zs, axis=1), rtol=1e-12)
    picked = special.log_softmax(zs, axis=1)[np.arange(6), labels]
    assert oracle.cross_entropy(zs, labels) == close(-picked.mean())
    p = special.softmax(zt / temperature, axis=1)
    q = special.softmax(zs / temperature, axis=1)
    kl = temperature**2 * special.rel_entr(p, q).sum(axis=1).mean()
    assert oracle.soft_kl(zs, zt, temperature) == pytest.approx(kl, rel=1e-9)


def test_attend_against_scipy() -> None:
    g = np.random.default_rng(6)
    query, keys = g.normal(size=(3, 2, 4)), g.normal(size=(3, 5, 4))
    expected = special.softmax(query @ keys.transpose(0, 2, 1), axis=2)
    np.testing.assert_allclose(oracle.attend(query, keys), expected, rtol=1e-12)


# ------------------------------------------------------------------------------- the tokens


def test_relations_by_hand() -> None:
    a = [[[[1, 2, 0, 0], [0, 1, 0, 1], [900, 900, 900, 900]]]]
    mask = [[1, 1, 0]]
    (found,) = oracle.relations(a, a, mask)
    assert found.tolist() == [[2.5, 1.0], [1.0, 1.0]]  # products 5, 2, 2, over sqrt(4)
    s, t = [np.array([[0, 0], [1, 1]])], [np.array([[LN3, 0], [2, 2]])]
    # the first query 3/4, 1/4 against 1/2, 1/2; the second is even on both sides
    assert oracle.relation_kl(s, t) == close((0.75 * math.log(1.5) - 0.25 * LN2) / 2)
    assert oracle.relation_mse(s, t) == close((LN3**2 + 0 + 1 + 1) / 4)
    # a row of one token: 4 pairs and 1 pair, 2 queries and 1
    more_s, more_t = [*s, np.array([[7]])], [*t, np.array([[4]])]
    assert oracle.relation_mse(more_s, more_t) == close((LN3**2 + 0 + 1 + 1 + 9) / 5)
    assert oracle.relation_kl(more_s, more_t) == close((0.75 * math.log(1.5) - 0.25 * LN2) / 3)


def test_token_cosine_and_tinybert_by_hand() -> None:
    a, b = [[[1, 0], [3, 4], [900, 0]]], [[[0, 2], [4, 3], [0, 900]]]
    assert oracle.token_cosine(a, b, [[1, 1, 0]]) == close((1 + 1 / 25) / 2)
    # W h + b = 2 h + 1: 3 and 7 against 0 and 5; teacher layer 1 is not compared
    hs, ht = [[[[1]]], [[[3]]]], [[[[0]]], [[[50]]], [[[5]]]]
    assert oracle.tinybert_hidden(hs, ht, ([[2]], [1]), [[1]]) == close(9 + 4)


# ------------------------------------------------------------------------------ the vectors


@pytest.mark.parametrize("method", make_vectors.METHODS)
def test_stored_vectors_are_what_the_oracle_gives(method: str) -> None:
    text = (VECTORS / f"{method}.json").read_text(encoding="utf-8")
    assert len(text) < 60_000
    content = json.loads(text)
    assert content["method"] == method
    for case in content["cases"]:
        for side in ("student", "teacher"):
            shape, data = case[side], case["inputs"][side]
            mask = np.asarray(data["mask"])
            assert np.shape(data["hidden"]) == (shape["layers"] + 1, *mask.shape, shape["width"])
            assert np.shape(data["logits"]) == (len(mask), shape["classes"])
            assert np.all(mask[:, 0] == 1)
            assert np.any(mask == 0)
        found = make_vectors.evaluate(method, case)
        assert found.keys() == case["expected"].keys()
        for term, value in case["expected"].items():
            assert found[term] == pytest.approx(value, rel=1e-10), (case["name"], term)
