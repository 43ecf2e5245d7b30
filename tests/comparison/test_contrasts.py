"""Whether the choice of layers mattered: the differences, their tests, and the words."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import made
import pytest
import scipy.stats
from made import seeds

from ilkd_bench.comparison import contrasts
from ilkd_bench.reporting.tables import controls
from ilkd_bench.reporting.tables.grid import Grid
from ilkd_bench.settings.groups import ROOT
from ilkd_bench.types import BadInput

PKD = [0.80, 0.82, 0.81, 0.83, 0.84]


def grid(root: Path, items: list[dict[str, Any]]) -> Grid:
    return controls.layer_choice(made.load(root, items))


def cells(shown: Grid) -> dict[str, dict[str, str]]:
    """By the name of the control."""
    return {
        label.split(" minus ")[1].split(" (")[0]: {k: str(v) for k, v in row.items()}
        for label, row in shown.rows.items()
    }


def test_controls_have_a_yaml_and_a_known_kind() -> None:
    known = {path.stem for path in (ROOT / "conf" / "method").glob("*.yaml")}
    declared = contrasts.controls()
    named = {name for kinds in declared.values() for names in kinds.values() for name in names}
    assert {*declared, *named} <= known
    assert {kind for kinds in declared.values() for kind in kinds} <= set(contrasts.WORDS)
    swept = set()
    for preset in ("controls", "layer_selection"):
        text = (ROOT / "sweeps" / f"{preset}.yaml").read_text(encoding="utf-8")
        swept |= set(re.search(r"^ +method: (.*)$", text, flags=re.M)[1].split(","))
    own = {*declared, "pkd_last"}  # methods of their own
    assert swept - own == named, "what the presets compare a method with is a control of it"


def test_a_control_is_an_entry_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of any method, with whatever kinds; nothing else says which method is whose control."""
    path = tmp_path / "controls.yaml"
    path.write_text(contrasts.FILE.read_text() + "\nalp:\n  vectors: [alp_shuffled]\n")
    monkeypatch.setattr(contrasts, "FILE", path)
    shown = grid(tmp_path, seeds(PKD, "alp") + seeds([0.7, 0.71, 0.7, 0.7, 0.72], "alp_shuffled"))
    (row,) = cells(shown).values()
    assert row["beside"] == "vectors that say nothing of the row"
    assert row["verdict"] == "the method is better"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("pkd: {layer: [pkd_first]}", "pkd: unknown layer; allowed are layers, vectors, term"),
        ("pkd: {layers: pkd_first}", "pkd, layers must be a list, not 'pkd_first'"),
        ("pkd: {layers: [1]}", "pkd, layers, 1 must be text, not 1"),
        ("pkd: {layers: [a], layers: [b]}", "the key layers is there twice"),
        ("- pkd", "must be a mapping, not ['pkd']"),
        ("", "must be a mapping, not None"),
        ("pkd: {", "cannot be read"),
    ],
)
def test_what_is_not_understood_is_named(
    text: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "controls.yaml"
    path.write_text(text)
    monkeypatch.setattr(contrasts, "FILE", path)
    with pytest.raises(BadInput) as error:
        contrasts.controls()
    assert str(error.value).startswith(str(path)) and message in str(error.value)


def test_the_difference_is_that_of_the_averages_over_tasks(tmp_path: Path) -> None:
    """pkd minus pkd_first: seed by seed, the mean over two tasks, and scipy's paired t test."""
    first = {"mrpc": [0.79, 0.83, 0.80, 0.80, 0.85], "rte": [0.60, 0.61, 0.60, 0.62, 0.59]}
    pkd = {"mrpc": PKD, "rte": [0.62, 0.64, 0.63, 0.62, 0.61]}
    items = [i for task, values in first.items() for i in seeds(values, "pkd_first", task)]
    items += [i for task, values in pkd.items() for i in seeds(values, "pkd", task)]
    a = [(x + y) / 2 for x, y in zip(pkd["mrpc"], pkd["rte"], strict=True)]
    b = [(x + y) / 2 for x, y in zip(first["mrpc"], first["rte"], strict=True)]
    test = scipy.stats.ttest_rel(a, b)
    low, high = test.confidence_interval(0.95)
    mean = 100 * (sum(a) - sum(b)) / 5
    (row,) = cells(grid(tmp_path, items)).values()
    assert row["difference"] == f"{mean:+.1f} [{100 * low:+.1f}, {100 * high:+.1f}]"
    assert (row["tasks"], row["seeds"]) == ("2", "5")
    expected = "the method is better" if test.pvalue < 0.05 else "no difference shown"
    assert row["verdict"] == expected


def test_only_shared_tasks_and_seeds_count(tmp_path: Path) -> None:
    items = seeds(PKD, "pkd") + seeds(PKD, "pkd", "rte")
    items += seeds([0.70, 0.73, 0.71], "pkd_first")
    row = cells(grid(tmp_path, items))["pkd_first"]
    assert (row["tasks"], row["seeds"]) == ("1", "3")
    assert row["difference"].startswith("+9.7 ")  # (.81) - (.7133)


def test_verdicts_and_sentences(tmp_path: Path) -> None:
    noise = [0.001, -0.001, 0.002, 0.0, -0.002]
    items = seeds(PKD, "pkd")
    items += seeds([v - 0.05 + e for v, e in zip(PKD, noise, strict=True)], "pkd_reversed")
    items += seeds([v + e for v, e in zip(PKD, noise, strict=True)], "pkd_first")
    items += seeds([v + 0.04 + e for v, e in zip(PKD, noise, strict=True)], "pkd_random")
    items += seeds([v - 0.02 + e for v, e in zip(PKD, noise, strict=True)], "vanilla")
    shown = grid(tmp_path, items)
    assert {name: row["verdict"] for name, row in cells(shown).items()} == {
        "pkd_reversed": "the method is better",
        "pkd_first": "no difference shown",
        "pkd_random": "the control is better",
        "vanilla": "the method is better",
    }
    (note,) = shown.notes
    assert note.endswith(
        "pkd on 1 task: against other layers it is better than pkd_reversed; against vectors that "
        "say nothing of the row it is worse than pkd_random; against training without the term it "
        "is better than vanilla. The choice of layers mattered here."
    )


def test_without_a_difference_none_is_claimed(tmp_path: Path) -> None:
    items = seeds(PKD, "pkd") + seeds([0.81, 0.81, 0.80, 0.84, 0.83], "pkd_first")
    (note,) = grid(tmp_path, items).notes
    assert "no difference is shown, the largest being +0.2 points (pkd_first)" in note
    assert note.endswith("That the choice of layers matters is not shown here.")


def test_p_is_corrected_over_the_controls_of_a_method(tmp_path: Path) -> None:
    """A p of 0.03 does not count any more next to one other control without a difference."""
    near = [0.79, 0.80, 0.805, 0.825, 0.815]
    alone = scipy.stats.ttest_rel(PKD, near).pvalue
    assert 0.025 < alone < 0.05
    one = seeds(PKD, "pkd") + seeds(near, "pkd_first")
    assert cells(grid(tmp_path / "one", one))["pkd_first"]["verdict"] == "the method is better"
    two = [*one, *seeds([0.81, 0.81, 0.80, 0.84, 0.84], "pkd_reversed")]
    assert cells(grid(tmp_path / "two", two))["pkd_first"]["verdict"] == "no difference shown"


@pytest.mark.parametrize("items", [seeds(PKD, "pkd"), seeds(PKD, "pkd") + seeds(PKD, "vanilla")])
def test_without_controls_there_is_nothing_to_tell(
    tmp_path: Path, items: list[dict[str, Any]]
) -> None:
    shown = grid(tmp_path, items)
    assert not shown.rows and not shown.notes and "+sweeps=controls" in shown.caption


def test_one_seed_is_not_tested(tmp_path: Path) -> None:
    shown = grid(tmp_path, seeds([0.8], "pkd") + seeds([0.7], "pkd_first"))
    row = cells(shown)["pkd_first"]
    assert row["difference"] == "+10.0" and row["verdict"].startswith("not tested")
    assert shown.notes[0].endswith("nothing can be said with so few seeds.")
