"""Writes tests/vectors/*.json with the numpy oracle. Run by hand only; no test runs ``main``.

    .venv/bin/python tests/make_vectors.py

Inputs are drawn from a seeded generator and rounded to three decimals before anything is computed
with them, so the JSON holds exactly the numbers that the expected values belong to.
``tests/test_oracle.py`` recomputes the expected values from the stored inputs with ``evaluate``.
"""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import oracle
from numpy.typing import NDArray

Json: TypeAlias = dict[str, Any]

DIRECTORY = Path(__file__).parent / "vectors"
METHODS = (
    *("finetune", "vanilla", "pkd", "pkd_last", "alp", "rail_l", "rail_c", "pro_kd"),
    "vanilla_checkpoint",
    *("ckd", "annealing", "continuation", "rco"),
    *("pkd_first", "pkd_reversed", "pkd_all_to_last", "pkd_permuted", "pkd_shuffled", "pkd_random"),
    *("rail_unsorted", "rail_reversed", "rail_never"),
    *("minilm", "distilbert", "tinybert"),
    "takd",
    *("codir", "universal"),
)
INSIDE = {
    "minilm": ("queries", "keys", "values"),
    "distilbert": (),
    "tinybert": ("queries", "keys"),
}
"""The methods that compare tokens (both sides read the same rows), and what else they see."""
FIXTURE = {1: 1.150421, 2: 1.280627, 10: 1.331116}
"""Published soft KL of z_s = [1, 2, 3] and z_t = [3, 2, 1] for each temperature."""

STUDENT_LAYERS, TEACHER_LAYERS, ROWS, PROJECTED = 3, 6, 3, 5
MORE_ROWS = 4, 9, 7, 30
"""The numbers of training rows that are not in the batch, for a method that looks at them all."""


# ---------------------------------------------------------------------------- expected values


def projection_of(case: Json) -> tuple[oracle.Linear | None, oracle.Linear | None]:
    """The two shared maps of a case, or None twice."""
    p = case["parameters"]
    if not p:
        return None, None
    return (
        (p["student_projection.weight"], p["student_projection.bias"]),
        (p["teacher_projection.weight"], p["teacher_projection.bias"]),
    )


def rail_maps(case: Json) -> list[Any]:
    """Ws, bs, Wt, bt: four arrays, or four lists with one entry per student layer."""
    p, found = case["parameters"], []
    for side in ("student", "teacher"):
        for kind in ("weight", "bias"):
            if case["settings"].get("projection") == "per_layer":
                pairs = range(case["student"]["layers"] - 1)
                found.append([p[f"{side}_projection.{i}.{kind}"] for i in pairs])
            else:
                found.append(p[f"{side}_projection.{kind}"])
    return found


def pooled(case: Json) -> tuple[Any, Any]:
    """The vectors of student and teacher that the setting ``feature`` names."""
    hs, ht = (
        oracle.cls(side["hidden"])
        if case["settings"]["feature"] == "cls"
        else oracle.mean(side["hidden"], side["mask"])
        for side in (case["inputs"]["student"], case["inputs"]["teacher"])
    )
    return hs, ht


def codir_term(case: Json) -> float:
    """Both directions; the rows of a bank are in the order of the row numbers."""
    settings, clock, p = case["settings"], case["clock"], case["parameters"]
    n, m = case["teacher"]["layers"], case["student"]["layers"]
    labels = dict(zip(case["training"]["index"], case["training"]["labels"], strict=True))
    if case["student"]["classes"] == 1:
        labels = {row: float(row) for row in labels}
    numbers = sorted(labels)
    at = clock["seed"], clock["epoch"], 0
    places = []
    for row in range(ROWS):
        drawn = oracle.negatives(row, labels, settings["negatives"], at)
        places.append([numbers.index(number) for number in (row, *drawn)])
    hs, ht = pooled(case)
    maps = projection_of(case)
    vectors = (
        oracle.codir_vectors(hs, range(1, m + 1), maps[0]),
        oracle.codir_vectors(ht, oracle.starts(n, m), maps[1]),
    )
    found = []
    for z, bank, normaliser in zip(vectors, ("teacher", "student"), p["normalisers"], strict=True):
        tau = settings["contrast_temperature"]
        scores = oracle.codir_scores(z, p[f"{bank}_bank"], places, tau)
        found.append(oracle.codir_direction(scores, len(numbers), normaliser))
    return sum(found) / 2


def universal_terms(case: Json) -> dict[str, float]:
    p = case["parameters"]
    query = p["query.weight"], p["query.bias"]
    key = p["key.weight"], np.zeros(len(p["key.weight"]))
    classifiers = [
        [
            (p[f"{side}_classifiers.{i}.weight"], p[f"{side}_classifiers.{i}.bias"])
            for i in range(case[side]["layers"] - 1)
        ]
        for side in ("student", "teacher")
    ]
    temperature = case["settings"]["temperature"]
    labels = case["inputs"]["labels"]
    terms = oracle.universal(*pooled(case), labels, temperature, query, key, *classifiers)
    return dict(zip(("universal", "pseudo"), terms, strict=True))


def evaluate(method: str, case: Json) -> dict[str, float]:
    """Every term of a case, from its stored inputs alone."""
    settings, clock, inputs = case["settings"], case["clock"], case["inputs"]
    n, m = case["teacher"]["layers"], case["student"]["layers"]
    student, teacher = inputs["student"], inputs["teacher"]
    zs, zt = student["logits"], teacher["logits"]
    ce = oracle.cross_entropy(zs, inputs["labels"])
    if method == "finetune":
        return {"ce": ce}
    if method in ("pro_kd", "annealing"):
        if clock["phase"] == 1:
            return {"ce": ce}
        t_max = settings["max_temperature"]
        temperature = oracle.falling_temperature(clock["epoch"], clock["epochs"], t_max)
        smoothing = settings["smoothing"] if method == "pro_kd" else "factor"
        return {"follow": oracle.follow(zs, zt, temperature, t_max, smoothing)}
    if method == "continuation":
        options = [settings[k] for k in ("max_temperature", "last_psi", "follow_share")]
        psi, phi = oracle.psi_and_phi(clock["epoch"], clock["epochs"], *options)
        if psi == 1:
            return {"ce": ce}
        follow = oracle.continuation(zs, zt, phi, settings["margin"])
        return {"ce": psi * ce, "follow": (1 - psi) * follow}
    if method == "tinybert":
        if clock["phase"] == 1:
            learns_from_labels = settings["regression"] == "labels" and len(zs[0]) == 1
            kd = oracle.soft_kl(zs, zt, settings["temperature"])
            return {"predict": ce if learns_from_labels else kd}
        p, mask = case["parameters"], student["mask"]
        linear = p["projection.weight"], p["projection.bias"]
        attention = [
            oracle.relation_mse(
                oracle.relations(student["queries"][i - 1], student["keys"][i - 1], mask),
                oracle.relations(teacher["queries"][j - 1], teacher["keys"][j - 1], mask),
            )
            for i, j in enumerate(oracle.uniform(n, m))
            if i > 0
        ]
        hidden = oracle.tinybert_hidden(student["hidden"], teacher["hidden"], linear, mask)
        return {"hidden": hidden, "attention": sum(attention)}
    terms = {"ce": ce, "kd": oracle.soft_kl(zs, zt, settings["temperature"])}
    if method in ("vanilla", "vanilla_checkpoint", "rco", "takd"):
        return terms
    if method == "distilbert":
        last = student["hidden"][m], teacher["hidden"][n]
        return {**terms, "cosine": oracle.token_cosine(*last, student["mask"])}
    if method == "minilm":
        for term, pair in {"attention": ("queries", "keys"), "value": ("values", "values")}.items():
            found = [
                oracle.relations(*(side[name][-1] for name in pair), student["mask"])
                for side in (student, teacher)
            ]
            terms[term] = oracle.relation_kl(*found)
        return terms
    if method == "ckd":
        p = case["parameters"]
        maps = [
            (p[f"student_projection.{i}.weight"], p[f"student_projection.{i}.bias"])
            for i in range(m)
        ]
        layers = oracle.groups(n, m, settings["groups"])
        return {**terms, "ckd": oracle.ckd(*pooled(case), layers, maps)}
    if method == "codir":
        return {**terms, "codir": codir_term(case)}
    if method == "universal":
        return {**terms, **universal_terms(case)}
    if method == "alp" or method.startswith("pkd"):
        hs, ht = oracle.cls(student["hidden"]), oracle.cls(teacher["hidden"])
        maps = projection_of(case)
        if method == "alp":
            options = settings["scale"], settings["include_last"]
            scheme = {"no": "regular", "po": "overlap"}.get(settings["buckets"])
            less = 0 if settings["include_last"] else 1
            buckets = oracle.groups(n - less, m - less, scheme) if scheme else None
            return {**terms, "alp": oracle.alp(hs, ht, *options, *maps, buckets)}
        layers = oracle.pkd_layers(n, m, settings["layer_map"], clock["seed"])
        ht[:, 1:m] = oracle.stand_in(
            ht[:, layers],
            settings["target"],
            range(len(ht)),
            (clock["seed"], clock["epoch"], 0),
        )
        chosen = list(range(1, m))  # where they were put
        return {**terms, "pkd": oracle.pkd(hs, ht, chosen, settings["normalize"], *maps)}
    hs = oracle.mean(student["hidden"], student["mask"])
    ht = oracle.mean(teacher["hidden"], teacher["mask"])
    moment = clock["seed"], clock["epoch"], 0
    layers = oracle.rail_layers(n, m, settings["resample"], settings["order"], *moment)
    distance = oracle.rail_concatenated if method == "rail_c" else oracle.rail_layerwise
    return {**terms, "rail": distance(hs, ht, layers, *rail_maps(case))}


# ------------------------------------------------------------------------------------- inputs


def rounded(values: NDArray[np.float64]) -> list[Any]:
    """Three decimals, as nested lists, without negative zeros."""
    return list((np.round(values, 3) + 0.0).tolist())


class Draw:
    """One seeded source of numbers for the cases of one method."""

    def __init__(self, method: str) -> None:
        self.method = method
        self.generator = np.random.default_rng([20240229, METHODS.index(method)])

    def side(self, shape: Json, length: int, like: Json | None = None) -> Json:
        """Logits, a right-padded mask, and hidden states that are large where it is 0.

        The mask is that of ``like`` if given.
        """
        g = self.generator
        if like is None:
            lengths = g.permutation([length, length - 1, 1])
        else:
            lengths = np.asarray(like["mask"]).sum(axis=1)
        mask = np.arange(length)[None, :] < lengths[:, None]
        hidden = []
        for _ in range(shape["layers"] + 1):
            real = g.normal(0.0, 0.8, (ROWS, length, shape["width"]))
            garbage = g.uniform(300.0, 900.0, real.shape) * g.choice([-1.0, 1.0], real.shape)
            hidden.append(rounded(np.where(mask[:, :, None], real, garbage)))
        logits = rounded(g.normal(0.0, 1.5, (ROWS, shape["classes"])))
        return {"logits": logits, "mask": mask.astype(int).tolist(), "hidden": hidden}

    def inside(self, shape: Json, mask: Any) -> Json:
        """Queries, keys or values of each layer, large where the mask is 0."""
        g, heads, found = self.generator, shape["heads"], {}
        size = (ROWS, heads, len(mask[0]), shape["width"] // heads)
        real = np.asarray(mask)[:, None, :, None] == 1
        for name in INSIDE[self.method]:
            found[name] = [
                rounded(np.where(real, g.normal(0.0, 1.2, size), g.uniform(300.0, 900.0, size)))
                for _ in range(shape["layers"])
            ]
        return found

    def linear(self, prefix: str, width: int, projected: int = PROJECTED) -> Json:
        """A random map from ``width`` to the projected width, as state-dict entries."""
        return {
            f"{prefix}.weight": rounded(self.generator.normal(0.0, 0.6, (projected, width))),
            f"{prefix}.bias": rounded(self.generator.normal(0.0, 0.3, projected)),
        }

    def case(
        self,
        name: str,
        settings: Json,
        *,
        classes: int = 3,
        widths: tuple[int, int] = (4, 4),
        clock: tuple[int, int, int, int] = (0, 0, 4, 0),
        lengths: tuple[int, int] = (4, 3),
        logits: tuple[list[float], list[float]] | None = None,
    ) -> Json:
        """One case; ``clock`` is (phase, epoch, epochs, seed), ``logits`` replace those drawn."""
        depths = {"student": STUDENT_LAYERS, "teacher": TEACHER_LAYERS}
        shapes: dict[str, Json] = {}
        for (side, depth), width in zip(depths.items(), widths, strict=True):
            shapes[side] = {"layers": depth, "width": width, "heads": 2, "vocabulary": 11}
            shapes[side]["classes"] = classes
        sides = {s: self.side(shapes[s], t) for s, t in zip(shapes, lengths, strict=True)}
        if self.method in INSIDE:
            sides["teacher"] = self.side(shapes["teacher"], lengths[0], sides["student"])
            if clock[0] == 0:
                for side, shape in shapes.items():
                    sides[side].update(self.inside(shape, sides[side]["mask"]))
        if logits is not None:
            for side, row in zip(sides, logits, strict=True):
                sides[side]["logits"] = [list(row) for _ in range(ROWS)]
        labels: list[Any]
        if classes == 1:
            labels = rounded(self.generator.uniform(0.0, 5.0, ROWS))
        else:
            labels = [int(label) for label in self.generator.permutation(classes)[:ROWS]]
        case: Json = {
            "name": name,
            **shapes,
            "settings": settings,
            **self.training(labels, classes),
            "parameters": self.parameters(settings, shapes, epoch=clock[1]),
            "clock": dict(zip(("phase", "epoch", "epochs", "seed"), clock, strict=True)),
            "inputs": {"labels": labels, **sides},
        }
        case["expected"] = evaluate(self.method, case)
        assert all(math.isfinite(v) and v > 0.0 for v in case["expected"].values())
        return case

    def training(self, labels: list[Any], classes: int) -> Json:
        """Labels and row numbers of all training rows, for a method that looks at them.

        The batch has the numbers 0, 1, 2.
        """
        if self.method != "codir":
            return {}
        more = [2, 0, 0, 1] if classes > 1 else [0.5, 2.5, 2.5, 4.0]
        rows = self.generator.permutation(ROWS + len(more)).tolist()
        numbers = [*range(ROWS), *MORE_ROWS]
        return {
            "training": {
                "labels": [[*labels, *more][row] for row in rows],
                "index": [numbers[row] for row in rows],
            }
        }

    def parameters(self, settings: Json, shapes: dict[str, Json], *, epoch: int) -> Json:
        """The projections that the settings call for, and what a method has kept until then."""
        pairs, found = STUDENT_LAYERS - 1, {}
        if self.method == "tinybert":
            return self.linear("projection", shapes["student"]["width"], shapes["teacher"]["width"])
        if self.method == "ckd":
            groups = oracle.groups(TEACHER_LAYERS, STUDENT_LAYERS, settings["groups"])
            widths = shapes["student"]["width"], shapes["teacher"]["width"]
            for i, group in enumerate(groups):
                found.update(
                    self.linear(f"student_projection.{i}", widths[0], len(group) * widths[1])
                )
            return found
        if self.method == "universal":
            found = self.linear("query", shapes["student"]["width"])
            found.update(self.linear("key", shapes["teacher"]["width"]))
            del found["key.bias"]
            for side, shape in shapes.items():
                for i in range(shape["layers"] - 1):
                    prefix = f"{side}_classifiers.{i}"
                    found.update(self.linear(prefix, shape["width"], shape["classes"]))
            return found
        if self.method == "codir":
            for side, shape in shapes.items():
                joined = STUDENT_LAYERS * shape["width"]
                found.update(self.linear(f"{side}_projection", joined))
                bank = self.generator.normal(size=(ROWS + len(MORE_ROWS), PROJECTED))
                found[f"{side}_bank"] = rounded(oracle.l2_normalize(bank))
            later = rounded(self.generator.uniform(5.0, 60.0, 2))
            return {**found, "normalisers": [0.0, 0.0] if epoch == 0 else later}
        if settings.get("projection_width", "auto") == "auto":
            return {}
        for side, shape in shapes.items():
            prefix, width = f"{side}_projection", shape["width"]
            if self.method == "rail_c":
                found.update(self.linear(prefix, pairs * width))
            elif settings.get("projection") == "per_layer":
                for i in range(pairs):
                    found.update(self.linear(f"{prefix}.{i}", width))
            else:
                found.update(self.linear(prefix, width))
        return found


# -------------------------------------------------------------------------------------- methods


def finetune() -> list[Json]:
    draw = Draw("finetune")
    return [draw.case("classification", {}), draw.case("regression", {}, classes=1)]


def vanilla() -> list[Json]:
    draw = Draw("vanilla")
    cases = [
        draw.case("temperature 10", {"temperature": 10}),
        draw.case("temperature 2", {"temperature": 2}, lengths=(3, 5)),
        draw.case("regression", {"temperature": 10}, classes=1),
    ]
    for temperature, published in FIXTURE.items():
        case = draw.case(
            f"published fixture, temperature {temperature}",
            {"temperature": temperature},
            lengths=(3, 3),
            logits=([1.0, 2.0, 3.0], [3.0, 2.0, 1.0]),
        )
        assert abs(case["expected"]["kd"] - published) < 5e-7
        cases.append(case)
    return cases


def vanilla_checkpoint() -> list[Json]:
    draw = Draw("vanilla_checkpoint")
    half = {"temperature": 10, "teacher_at": 0.5}
    return [
        draw.case("half trained", half),
        draw.case("fully trained", {"temperature": 2, "teacher_at": 1.0}, lengths=(3, 5)),
        draw.case("regression", half, classes=1),
    ]


def pkd(method: str, layer_map: str = "skip", target: str = "own") -> list[Json]:
    draw = Draw(method)

    def settings(normalize: bool = True, width: int | str = "auto") -> Json:
        return {
            "temperature": 10,
            "layer_map": layer_map,
            "target": target,
            "normalize": normalize,
            "projection_width": width,
        }

    return [
        draw.case("equal widths, normalised", settings()),
        draw.case("equal widths, not normalised", settings(False), lengths=(3, 5)),
        draw.case("unequal widths, projected", settings(width=PROJECTED), widths=(4, 6)),
        draw.case("regression", settings(), classes=1, lengths=(5, 3)),
    ]


def pkd_control(method: str, layer_map: str = "skip", target: str = "own") -> list[Json]:
    """The cases of ``pkd`` at three moments, since some controls draw."""
    draw = Draw(method)
    shared = {"temperature": 10, "layer_map": layer_map, "target": target}
    plain = {**shared, "normalize": False, "projection_width": "auto"}
    unit = {**shared, "normalize": True, "projection_width": "auto"}
    mapped = {**plain, "projection_width": PROJECTED}
    short = (3, 3)
    return [
        draw.case("not normalised, seed 0", plain, clock=FIRST_DRAW, lengths=short),
        draw.case("normalised, seed 3", unit, clock=SECOND_DRAW, lengths=short),
        draw.case("projected, seed 42", mapped, widths=(4, 6), clock=THIRD_DRAW, lengths=short),
        draw.case("regression", plain, classes=1, clock=SECOND_DRAW, lengths=short),
    ]


def alp() -> list[Json]:
    draw = Draw("alp")

    def settings(
        scale: str = "none",
        include_last: bool = False,
        width: Any = "auto",
        buckets: str = "none",
    ) -> Json:
        return {
            "temperature": 10,
            "scale": scale,
            "include_last": include_last,
            "buckets": buckets,
            "projection_width": width,
        }

    projected = settings(width=PROJECTED)
    both = settings("sqrt_width", True, PROJECTED)
    return [
        draw.case("default", settings()),
        draw.case("divided by the square root of the width", settings("sqrt_width")),
        draw.case("last layers included", settings(include_last=True), lengths=(3, 5)),
        draw.case("unequal widths, projected", projected, widths=(4, 6)),
        draw.case("unequal widths, scaled, last included", both, widths=(4, 6)),
        draw.case("regression", settings(), classes=1),
        draw.case("buckets without overlap", settings(buckets="no")),
        draw.case("overlapping buckets, scaled", settings("sqrt_width", buckets="po")),
        draw.case("overlapping buckets, last included", settings("none", True, "auto", "po")),
    ]


# (phase, epoch, epochs, seed); the draws are checked to differ in ``check_draws``
FIRST_DRAW, SECOND_DRAW, THIRD_DRAW = (0, 0, 4, 0), (0, 2, 4, 3), (0, 1, 4, 42)


def check_draws() -> None:
    """The chosen draws differ, need sorting, and tell (seed, epoch) from (epoch, seed)."""
    draws, needs_sorting = set(), False
    for _, epoch, _, seed in (FIRST_DRAW, SECOND_DRAW, THIRD_DRAW):
        drawn = oracle.random_sorted(TEACHER_LAYERS, STUDENT_LAYERS, seed, epoch)
        draws.add(tuple(drawn))
        raw = np.random.default_rng((seed, epoch)).choice(
            np.arange(1, TEACHER_LAYERS), size=STUDENT_LAYERS - 1, replace=False
        )
        needs_sorting |= raw.tolist() != drawn
    assert len(draws) == 3
    assert needs_sorting
    swapped = oracle.random_sorted(TEACHER_LAYERS, STUDENT_LAYERS, SECOND_DRAW[1], SECOND_DRAW[3])
    assert tuple(swapped) != tuple(
        oracle.random_sorted(TEACHER_LAYERS, STUDENT_LAYERS, SECOND_DRAW[3], SECOND_DRAW[1])
    )


def rail_l() -> list[Json]:
    draw = Draw("rail_l")
    shared = {
        "temperature": 10,
        "resample": "epoch",
        "order": "sorted",
        "projection_width": PROJECTED,
        "projection": "shared",
    }
    per_layer = {**shared, "projection": "per_layer"}
    wide = (4, 6)
    return [
        draw.case("seed 0, epoch 0", shared, clock=FIRST_DRAW),
        draw.case("seed 3, epoch 2", shared, clock=SECOND_DRAW, lengths=(3, 5)),
        draw.case("per layer", per_layer, clock=SECOND_DRAW),
        draw.case("unequal widths", shared, widths=wide, clock=THIRD_DRAW),
        draw.case("unequal widths, per layer", per_layer, widths=wide, clock=FIRST_DRAW),
        draw.case("regression", shared, classes=1, clock=THIRD_DRAW),
    ]


def rail_control(method: str, resample: str, order: str) -> list[Json]:
    draw = Draw(method)
    settings = {
        "temperature": 10,
        "resample": resample,
        "order": order,
        "projection_width": PROJECTED,
        "projection": "shared",
    }
    short = (3, 3)
    return [
        draw.case("seed 0, epoch 0", settings, clock=FIRST_DRAW, lengths=short),
        draw.case("seed 3, epoch 2", settings, clock=SECOND_DRAW, lengths=short),
        draw.case("regression", settings, classes=1, clock=THIRD_DRAW, lengths=short),
    ]


def rail_c() -> list[Json]:
    draw = Draw("rail_c")
    settings = {
        "temperature": 10,
        "resample": "epoch",
        "order": "sorted",
        "projection_width": PROJECTED,
    }
    return [
        draw.case("seed 0, epoch 0", settings, clock=FIRST_DRAW),
        draw.case("seed 3, epoch 2", settings, clock=SECOND_DRAW, lengths=(3, 5)),
        draw.case("unequal widths", settings, widths=(4, 6), clock=THIRD_DRAW),
        draw.case("regression", settings, classes=1, clock=THIRD_DRAW),
    ]


def pro_kd() -> list[Json]:
    draw = Draw("pro_kd")
    factor = {"max_temperature": 10, "smoothing": "factor"}
    divide = {**factor, "smoothing": "divide"}
    short = (3, 3)
    return [
        draw.case("first of 10 epochs", factor, clock=(0, 0, 10, 0), lengths=short),
        draw.case("middle of 10 epochs", factor, clock=(0, 5, 10, 0), lengths=short),
        draw.case("last of 10 epochs", factor, clock=(0, 9, 10, 0), lengths=short),
        draw.case("second of 4 epochs", factor, clock=(0, 1, 4, 0), lengths=short),
        draw.case("divide, middle of 10 epochs", divide, clock=(0, 5, 10, 0), lengths=short),
        draw.case("labels", factor, clock=(1, 1, 4, 0), lengths=short),
        draw.case("regression", factor, classes=1, clock=(0, 5, 10, 0), lengths=short),
        draw.case("regression, labels", factor, classes=1, clock=(1, 0, 4, 0), lengths=short),
    ]


def ckd() -> list[Json]:
    draw = Draw("ckd")

    def settings(groups: str, feature: str = "cls") -> Json:
        return {"temperature": 10, "groups": groups, "feature": feature}

    short = (3, 3)
    return [
        draw.case("regular", settings("regular"), lengths=short),
        draw.case("overlap, mean", settings("overlap", "mean"), lengths=short),
        draw.case("skip_middle", settings("skip_middle"), lengths=short),
        draw.case("cross, unequal widths", settings("cross"), widths=(4, 6), lengths=short),
        draw.case("regular, mean, regression", settings("regular", "mean"), classes=1),
        draw.case("regression", settings("cross"), classes=1, lengths=short),
    ]


def annealing() -> list[Json]:
    draw = Draw("annealing")
    seven = {"max_temperature": 7, "label_share": 4 / 18}
    short = (3, 3)
    return [
        draw.case("first of 14 epochs", seven, clock=(0, 0, 14, 0), lengths=short),
        draw.case("sixth of 14 epochs", seven, clock=(0, 5, 14, 0), lengths=short),
        draw.case("last of 14 epochs", seven, clock=(0, 13, 14, 0), lengths=short),
        draw.case("last of 16 epochs, capped", seven, clock=(0, 15, 16, 0), lengths=short),
        draw.case("third of 4 epochs", seven, clock=(0, 2, 4, 0), lengths=short),
        draw.case("labels", seven, clock=(1, 1, 4, 0), lengths=short),
        draw.case("regression", seven, classes=1, clock=(0, 5, 14, 0), lengths=short),
        draw.case("regression, labels", seven, classes=1, clock=(1, 0, 4, 0), lengths=short),
    ]


def continuation() -> list[Json]:
    draw = Draw("continuation")
    paper = {"max_temperature": 10, "margin": 1, "last_psi": 0.5, "follow_share": 2 / 3}
    strict = {**paper, "margin": 8}
    short = (3, 3)
    cases = [
        draw.case("first of 30 epochs", paper, clock=(0, 0, 30, 0), lengths=short),
        draw.case("13th of 30 epochs", paper, clock=(0, 12, 30, 0), lengths=short),
        draw.case("20th of 30 epochs", paper, clock=(0, 19, 30, 0), lengths=short),
        draw.case("20th of 30 epochs, rows within the margin", strict, clock=(0, 19, 30, 0)),
        draw.case("21st of 30 epochs, labels", paper, clock=(0, 20, 30, 0), lengths=short),
        draw.case("second of 4 epochs", paper, clock=(0, 1, 4, 0), lengths=short),
        draw.case("regression", paper, classes=1, clock=(0, 12, 30, 0), lengths=short),
        draw.case("regression, labels", paper, classes=1, clock=(0, 29, 30, 0), lengths=short),
    ]
    inputs = cases[3]["inputs"]
    distances = [
        math.dist(s, t) ** 2
        for s, t in zip(inputs["student"]["logits"], inputs["teacher"]["logits"], strict=True)
    ]
    assert min(distances) < 8 < max(distances), distances  # the hinge is per row
    return cases


def rco() -> list[Json]:
    draw = Draw("rco")
    settings = {"temperature": 10, "anchors": 4}
    short = (3, 3)
    return [
        draw.case("first anchor", settings, clock=(0, 0, 8, 0), lengths=short),
        draw.case("last anchor", {"temperature": 2, "anchors": 4}, clock=(0, 7, 8, 0)),
        draw.case("regression", settings, classes=1, lengths=short),
    ]


def minilm() -> list[Json]:
    draw = Draw("minilm")
    settings = {"temperature": 10}
    return [
        draw.case("classification", settings),
        draw.case("unequal widths", settings, widths=(4, 6), lengths=(3, 3)),
        draw.case("regression", settings, classes=1, lengths=(3, 3)),
    ]


def distilbert() -> list[Json]:
    draw = Draw("distilbert")
    return [
        draw.case("temperature 2", {"temperature": 2}),
        draw.case("temperature 10", {"temperature": 10}, lengths=(5, 5)),
        draw.case("regression", {"temperature": 2}, classes=1),
    ]


def tinybert() -> list[Json]:
    draw = Draw("tinybert")
    paper = {"temperature": 1, "predict_share": 3 / 13, "predict_lr_factor": 0.6}
    teacher, labels = ({**paper, "regression": source} for source in ("teacher", "labels"))
    predict, short = (1, 0, 2, 0), (3, 3)
    return [
        draw.case("hint", teacher),
        draw.case("hint, unequal widths", teacher, widths=(4, 6), lengths=short),
        draw.case("hint, regression", labels, classes=1, lengths=short),
        draw.case("predict", labels, clock=predict, lengths=short),
        draw.case("temperature 2", {**teacher, "temperature": 2}, clock=predict, lengths=short),
        draw.case("regression", teacher, classes=1, clock=predict, lengths=short),
        draw.case("regression, labels", labels, classes=1, clock=predict, lengths=short),
    ]


def takd() -> list[Json]:
    draw = Draw("takd")
    return [
        draw.case("classification", {"temperature": 10, "assistants": "auto"}, lengths=(3, 3)),
        draw.case("a chain", {"temperature": 2, "assistants": [5, 4]}, lengths=(3, 3)),
        draw.case(
            "regression", {"temperature": 10, "assistants": "auto"}, classes=1, lengths=(3, 3)
        ),
    ]


def codir() -> list[Json]:
    draw = Draw("codir")
    cls = {
        "temperature": 2,
        "feature": "cls",
        "projection_width": PROJECTED,
        "contrast_temperature": 0.5,
        "negatives": 4,
        "momentum": 0.5,
    }
    mean = {**cls, "feature": "mean", "contrast_temperature": 0.07, "negatives": 9}
    return [
        draw.case("first epoch, Z of the batch", cls, lengths=(3, 3)),
        draw.case("seed 3, epoch 2", cls, clock=SECOND_DRAW, lengths=(3, 5)),
        draw.case("mean, unequal widths", mean, widths=(4, 6), clock=THIRD_DRAW),
        draw.case("regression, first epoch", mean, classes=1, lengths=(3, 3)),
        draw.case("regression", cls, classes=1, clock=SECOND_DRAW, lengths=(3, 3)),
    ]


def universal() -> list[Json]:
    draw = Draw("universal")
    cls = {"temperature": 10, "feature": "cls", "projection_width": PROJECTED}
    mean = {**cls, "feature": "mean", "temperature": 2}
    return [
        draw.case("cls", cls, lengths=(3, 5)),
        draw.case("mean", mean),
        draw.case("unequal widths", cls, widths=(4, 6), lengths=(3, 3)),
        draw.case("regression", mean, classes=1),
    ]


# -------------------------------------------------------------------------------------- writing


def squares(first: list[float], second: list[float], value: float) -> str:
    """A mean of squares spelled out, for checking with a pocket calculator."""
    parts = " + ".join(f"({a:g} - {b:g})^2" for a, b in zip(first, second, strict=True))
    assert math.isclose(
        sum((a - b) ** 2 for a, b in zip(first, second, strict=True)) / len(first), value
    )
    return f"({parts}) / {len(first)} = {value:.9g}"


def by_hand(cases: list[Json], term: str, name: str = "regression", factor: float = 1.0) -> str:
    """The ce, kd or follow of a regression case, spelled out."""
    case = next(c for c in cases if c["name"] == name)
    first = [row[0] for row in case["inputs"]["student"]["logits"]]
    if term == "ce":
        second = case["inputs"]["labels"]
    else:
        second = [round(factor * row[0], 6) for row in case["inputs"]["teacher"]["logits"]]
    return f"case '{name}': {term} = {squares(first, second, case['expected'][term])}"


def draws(cases: list[Json]) -> str:
    """The teacher layers that each rail case uses."""
    texts = []
    for case in cases:
        clock, settings = case["clock"], case["settings"]
        depths = case["teacher"]["layers"], case["student"]["layers"]
        how = settings["resample"], settings["order"]
        layers = oracle.rail_layers(*depths, *how, clock["seed"], clock["epoch"], 0)
        texts.append(f"'{case['name']}' {layers}")
    return "teacher layers: " + ", ".join(texts)


def files() -> dict[str, Json]:
    """All vector files by method."""
    check_draws()
    pre = "numpy float64, tests/oracle.py, independent of ilkd_bench, terms without weights; "
    kl = "kd: T^2 KL(softmax(zt/T) || softmax(zs/T)), sum over classes, mean over batch "
    kl += "(Hinton et al. 2015), with one output (zs - zt)^2; "
    ce = "ce: -log softmax(zs)[label], mean over batch, with one output (zs - label)^2; "
    cases = {
        "finetune": finetune(),
        "vanilla": vanilla(),
        "vanilla_checkpoint": vanilla_checkpoint(),
        "pkd": pkd("pkd"),
        "pkd_last": pkd("pkd_last", "last"),
        "alp": alp(),
        "rail_l": rail_l(),
        "rail_c": rail_c(),
        "pro_kd": pro_kd(),
        "ckd": ckd(),
        "annealing": annealing(),
        "continuation": continuation(),
        "rco": rco(),
        "pkd_first": pkd_control("pkd_first", "first"),
        "pkd_reversed": pkd_control("pkd_reversed", "reversed"),
        "pkd_all_to_last": pkd_control("pkd_all_to_last", "all_to_last"),
        "pkd_permuted": pkd_control("pkd_permuted", "permuted"),
        "pkd_shuffled": pkd_control("pkd_shuffled", target="shuffled"),
        "pkd_random": pkd_control("pkd_random", target="random"),
        "rail_unsorted": rail_control("rail_unsorted", "epoch", "unsorted"),
        "rail_reversed": rail_control("rail_reversed", "epoch", "reversed"),
        "rail_never": rail_control("rail_never", "never", "sorted"),
        "minilm": minilm(),
        "distilbert": distilbert(),
        "tinybert": tinybert(),
        "takd": takd(),
        "codir": codir(),
        "universal": universal(),
    }
    formula = "pkd: cls vectors, projected if the widths differ, then L2-normalised (if set), "
    formula += "squared difference, mean over batch x layers x width (arXiv 1908.09355, authors' "
    formula += "reduction); layers of the teacher for student 1, 2: "
    bound = "unit vectors of width 4 give at most 4 / 4 = 1 when normalised; "
    rail = "rail: mean over real positions, x W^T + b, L2-normalised, squared distance summed over "
    rail += "the width (arXiv 2109.10164), "
    sources = {
        "finetune": ce,
        "vanilla": ce + kl + "the published fixture is 2 T (e^(2/T) - 1) / (e^(2/T) + e^(1/T) + 1) "
        "= 1.150421, 1.280627, 1.331116 at T = 1, 2, 10; " + by_hand(cases["vanilla"], "kd") + "; ",
        "vanilla_checkpoint": ce + kl + "the terms of vanilla; ",
        "pkd": ce + kl + formula + "2, 4 (i * 6 / 3); " + bound,
        "pkd_last": ce + kl + formula + "4, 5 (6 - 3 + i); " + bound,
        "alp": ce + kl + "alp: cls vectors, weights softmax_j <hs_i, ht_j>, |hs_i - sum_j e_ij "
        "ht_j|^2 / width, sum over student layers, mean over batch (arXiv 2012.14022); in buckets "
        "j runs over 1 2, 3 4 5 (no), 1 2 3, 2 3 4 5 (po), with last layers 1 2 3, 3 4 5, 4 5 6; ",
        "rail_l": ce
        + kl
        + rail
        + "sum over the pairs, mean over batch; at most 4 per pair, so 8; "
        + draws(cases["rail_l"])
        + "; ",
        "rail_c": ce
        + kl
        + rail
        + "once on the joined layers, mean over batch; at most 4; "
        + draws(cases["rail_c"])
        + "; ",
        "pro_kd": "phase 0 follow: (zs - smooth(zt))^2, mean over batch and classes, smooth = zt "
        "(1 - (T - 1) / 10) or zt / T (arXiv 2110.08532, Annealing-KD's factor), T over 10 epochs "
        "10, 9, .., 1 and over 4 epochs 10, 7, 4, 1; phase 1 " + ce + "epoch 5 of 10 has T 5, so "
        "factor 0.6: " + by_hand(cases["pro_kd"], "follow", factor=0.6) + "; ",
        "ckd": ce + kl + "ckd: |norm(W_i hs_i + b_i) - norm([ht_j, j in G_i])|^2, sum over student "
        "layers 1 to 3 and features, mean over batch (arXiv 2010.03034, authors' reduction); G: "
        "regular 1 2, 3 4, 5 6, overlap 1 2 3, 3 4 5, 4 5 6, skip_middle 1, 2, 6, cross 1, 3, 5; ",
        "annealing": "phase 0 follow: (zs - (1 - (T - 1) / 7) zt)^2, mean over batch and classes "
        "(arXiv 2104.07163), T over 14 epochs 7, 7, 6, 6, .., 1, 1, then 1, and over 4 epochs 7, "
        "5, 3, 1; phase 1 " + ce + "epoch 5 of 14 has T 5, so factor 3/7; ",
        "continuation": ce + "times psi; follow: max(0, |zs - phi zt|^2 - margin phi), sum over "
        "classes, mean over batch, times 1 - psi (arXiv 2212.05998); of 30 epochs, from 1, 20 "
        "follow with psi = epoch / 40 and phi 0.1, 0.1, 0.2, .., 1, 1; epoch 13 has psi 0.325 and "
        "phi 0.7; ",
        "rco": ce + kl + "the terms of vanilla (arXiv 1904.09149); ",
        "pkd_first": ce + kl + formula + "1, 2 (i); ",
        "pkd_reversed": ce + kl + formula + "4, 2 ((3 - i) * 6 / 3); ",
        "pkd_all_to_last": ce + kl + formula + "5, 5 (6 - 1); ",
        "pkd_permuted": ce + kl + formula + "2, 4 in an order drawn from the seed; ",
        "pkd_shuffled": ce + kl + formula + "2, 4, of the next row in a circle drawn from (seed, "
        "epoch, step 0); ",
        "pkd_random": ce + kl + formula + "2, 4, turned to a normal direction drawn from (seed, "
        "row); ",
        **{
            method: ce
            + kl
            + rail
            + "sum over the pairs, mean over batch; "
            + draws(cases[method])
            + "; "
            for method in ("rail_unsorted", "rail_reversed", "rail_never")
        },
        "takd": ce + kl + "the terms of vanilla (arXiv 1902.03393); ",
        "minilm": ce + kl + "attention: KL(softmax(Qt Kt^T / sqrt(D)) || softmax(Qs Ks^T / sqrt(D)"
        ")) of the last layers, sum over real keys, mean over heads and real queries; value: the "
        "same of V V^T (arXiv 2002.10957); ",
        "distilbert": ce + kl + "cosine: 1 - cos(hs, ht) of the last layers, mean over real tokens "
        "(arXiv 1910.01108); ",
        "tinybert": "phase 0 hidden: (W hs_i + b - ht_2i)^2, mean over real tokens and features, "
        "sum over i = 0 to 3; attention: (Qs Ks^T / sqrt(D) - Qt Kt^T / sqrt(D))^2 of layers i and "
        "2i, mean over heads and pairs of real tokens, sum over i = 1 to 3 (arXiv 1909.10351, "
        "masked); phase 1 predict is kd; with regression labels and one output (zs - label)^2; "
        + kl,
        "codir": ce + kl + "codir: student layers 1 to 3 and teacher layers 1, 3, 5 joined, "
        "projected, L2-normalised; p = exp(<z, m> / tau) / Z; -log(p_0 / (p_0 + K/N)) - sum_k "
        "log((K/N) / (p_k + K/N)), mean over batch and the two directions (arXiv 2009.14167); Z 0 "
        "in the file: N mean(exp(<z, m> / tau)); negatives by SplitMix64 in Python's integers; the "
        "rows of a bank are in the order of the row numbers; ",
        "universal": ce + kl + "universal: e = softmax_j(<Q hs_i, K ht_j> / sqrt(W)), kd of y_i = "
        "S_i hs_i and sum_j e_ij T_j ht_j, sum over i = 1, 2; pseudo: ce of T_j ht_j, mean over j "
        "= 1 to 5; ",
    }
    found = {}
    for method, source in sources.items():
        labels = method in ("pro_kd", "annealing", "continuation")
        name = "regression, labels" if labels else "regression"
        term = "predict" if method == "tinybert" else "ce"
        source = pre + source + by_hand(cases[method], term, name)
        found[method] = {"method": method, "source": source} | facts(method)
        found[method]["cases"] = cases[method]
    return found


def facts(method: str) -> Json:
    """What tests/methods/test_contract.py must know of a method: the term that compares its
    intermediate layers and no other ones, and the one that does not depend on the teacher's rows.
    """
    term = method if method in ("alp", "universal") else method.partition("_")[0]
    intermediate = {"intermediate": term} if term in ("alp", "universal", "pkd", "rail") else {}
    return intermediate | ({"of_no_row": "pkd"} if method == "pkd_random" else {})


def compact(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), allow_nan=False)


def dump(content: Json) -> str:
    """JSON with one line per part of a case, and one per hidden state."""
    blocks = []
    for case in content["cases"]:
        lines = []
        for key, value in case.items():
            if key == "inputs":
                lines.append(f'"inputs":{{"labels":{compact(value["labels"])},')
                for side in ("student", "teacher"):
                    part = value[side]
                    lines.append(f' "{side}":{{"logits":{compact(part["logits"])},')
                    lines.append(f'  "mask":{compact(part["mask"])},')
                    hidden = ",\n    ".join(compact(h) for h in part["hidden"])
                    lines.append(f'  "hidden":[\n    {hidden}]')
                    for name in sorted(part.keys() - {"logits", "mask", "hidden"}):
                        layers = ",\n    ".join(compact(x) for x in part[name])
                        lines[-1] += f',\n  "{name}":[\n    {layers}]'
                    lines[-1] += f"}}{',' if side == 'student' else '},'}"
            elif key == "parameters" and value:
                entries = ",\n  ".join(f'"{k}":{compact(v)}' for k, v in value.items())
                lines.append(f'"parameters":{{\n  {entries}}},')
            else:
                lines.append(f'"{key}":{compact(value)}' + ("" if key == "expected" else ","))
        blocks.append("{" + "\n ".join(lines) + "}")
    head = "{" + "".join(f'"{k}":{compact(v)},\n' for k, v in content.items() if k != "cases")
    text = head + '"cases":[\n' + ",\n\n".join(blocks) + "\n]}\n"
    assert json.loads(text) == content
    return text


def main() -> None:
    DIRECTORY.mkdir(exist_ok=True)
    for method, content in files().items():
        text = dump(content)
        assert len(text) < 60_000, (method, len(text))
        (DIRECTORY / f"{method}.json").write_text(text, encoding="utf-8")
        print(f"{method}: {len(content['cases'])} cases, {len(text)} bytes")


if __name__ == "__main__":
    main()
