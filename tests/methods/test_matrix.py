"""What docs/methods.md says of what works with what is what the code does."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import make_matrix
import pytest
import toys

Made = tuple[dict[str, dict[str, str]], list[str]]


@pytest.fixture(scope="module")
def made() -> Made:
    return make_matrix.matrix(toys.METHODS)


@pytest.fixture
def refused(made: Made) -> Callable[[str], set[str]]:
    """The columns that a method does not simply say yes to."""
    return lambda name: {column for column, cell in made[0][name].items() if cell != "yes"}


@pytest.mark.runs
def test_what_the_page_says_is_what_the_code_does(made: Made) -> None:
    """Of the methods that it names: a new one is missing there until `make lint` asks for it."""
    page = make_matrix.PAGE.read_text(encoding="utf-8")
    names = make_matrix.named(page)
    assert set(names) <= set(toys.METHODS), "docs/methods.md has more than the code: make matrix"
    expected = made if names == toys.METHODS else make_matrix.matrix(names)
    assert make_matrix.parts(page)[1] == make_matrix.section(*expected), (
        "docs/methods.md says something else than the code does: make matrix"
    )


def test_lint_asks_for_a_page_with_every_method(monkeypatch: pytest.MonkeyPatch) -> None:
    page = make_matrix.PAGE.read_text(encoding="utf-8")
    known = make_matrix.named(page)
    monkeypatch.setattr(toys, "METHODS", known)
    assert make_matrix.missing(page) is None
    monkeypatch.setattr(toys, "METHODS", [*known, "cosine"])
    assert make_matrix.missing(page) == "docs/methods.md: its table lacks cosine: type make matrix"
    monkeypatch.setattr(toys, "METHODS", known[1:])
    assert f"has {known[0]}, which conf/method/ lacks" in str(make_matrix.missing(page))


@pytest.mark.runs
def test_every_method_teaches_classes_and_regressions_in_the_usual_pair(made: Made) -> None:
    assert sorted(made[0]) == toys.METHODS
    for name, row in made[0].items():
        assert (row["classes"], row["regression"]) == ("yes", "yes"), name
        assert list(row) == [*make_matrix.COLUMNS, "bank", "checkpoint"]


@pytest.mark.runs
@pytest.mark.parametrize(
    ("name", "columns"),
    [
        ("vanilla", set()),
        ("ckd", set()),
        ("finetune", {"bank"}),
        ("pkd", {"12 -> 1"}),
        ("alp", {"12 -> 1"}),
        ("rail_l", {"12 -> 1"}),
        ("pro_kd", {"checkpoint"}),
        ("rco", {"checkpoint"}),
        ("minilm", {"other heads", "other tokens"}),
        ("distilbert", {"other width", "other tokens"}),
        ("tinybert", {"other heads", "12 -> 5", "other tokens"}),
    ],
)
def test_what_the_papers_methods_cannot_do(
    name: str, columns: set[str], refused: Callable[[str], set[str]]
) -> None:
    """From the equations: what is compared with what, and which numbers must be equal for it."""
    assert refused(name) == columns


@pytest.mark.runs
def test_reasons_are_numbered_as_they_come_and_each_is_pointed_to(made: Made) -> None:
    rows, reasons = made
    marks: list[int] = []
    for row in rows.values():
        for cell in row.values():
            _, bracket, numbers = cell.partition("(")
            marks += [int(n) for n in numbers.rstrip(")").split(",")] if bracket else []
    assert list(dict.fromkeys(marks)) == list(range(1, len(reasons) + 1))
    assert len(set(reasons)) == len(reasons)


def test_a_cell_says_for_which_tasks_it_is() -> None:
    reasons = make_matrix.Reasons()

    def tried(**found: Any) -> str:
        return make_matrix.tried(found, reasons)

    assert tried(classes=None, regression=None) == "yes"
    assert tried(classes=None, regression="b") == "classes only (1)"
    assert tried(classes="a", regression=None) == "regression only (2)"
    assert tried(classes="a", regression="a") == "no (2)"
    assert tried(classes="c", regression="a") == "no (2, 3)"
    assert reasons.texts == ["b", "a", "c"]


def test_what_is_neither_done_nor_refused_stops_the_matrix(monkeypatch: pytest.MonkeyPatch) -> None:
    """A loss that breaks is a fault and no cell; so is a term without a value."""
    usual = make_matrix.STUDENT, make_matrix.TEACHER, 3

    def broken(*given: Any) -> Any:
        raise ValueError("broken")

    monkeypatch.setattr(make_matrix.pairs, "terms", broken)
    with pytest.raises(ValueError, match="broken"):
        make_matrix.refusal("vanilla", *usual)
    monkeypatch.setattr(make_matrix.pairs, "terms", lambda *given: iter([]))
    with pytest.raises(AssertionError, match="vanilla"):
        make_matrix.refusal("vanilla", *usual)
