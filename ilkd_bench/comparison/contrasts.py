"""Whether the choice of layers mattered: methods beside their controls."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from ilkd_bench.comparison import statistics
from ilkd_bench.comparison.declared import read
from ilkd_bench.comparison.differences import ALPHA
from ilkd_bench.settings.groups import ROOT
from ilkd_bench.types import BadInput

FILE = ROOT / "results" / "controls.yaml"
WORDS = {
    "layers": "other layers",
    "vectors": "vectors that say nothing of the row",
    "term": "training without the term",
}
"""What a kind of control has in place of the method's own."""

DIFFER = {True: "the method is better", False: "the control is better"}

Controls = Mapping[str, Sequence[str]]
"""Of one method: kind of control, a key of `WORDS` -> the controls."""


def controls() -> Mapping[str, Controls]:
    """Return by method what `results/controls.yaml` declares.

    Raises:
        BadInput: it holds something that is not understood.
    """
    by_method: Mapping[str, Controls] = read(FILE, Mapping[str, Mapping[str, Sequence[str]]])
    for method, by_kind in by_method.items():
        unknown = [kind for kind in by_kind if kind not in WORDS]
        if unknown:
            allowed = ", ".join(WORDS)
            raise BadInput(f"{FILE}, {method}: unknown {unknown[0]}; allowed are {allowed}")
    return by_method


@dataclass(frozen=True)
class Contrast:
    """A method minus one of its controls, on average over the tasks that both have.

    Attributes:
        kind: of the control, a key of `WORDS`.
        test: the paired t test over seeds.
        p: its p after Holm's correction over the method's controls.
    """

    method: str
    control: str
    kind: str
    tasks: int
    test: statistics.Comparison
    p: float

    @property
    def tested(self) -> bool:
        """Whether there is a p: two shared seeds or more, and not the same difference at each."""
        return self.p == self.p

    @property
    def verdict(self) -> str:
        """The outcome in a few words."""
        if not self.tested:
            return "not tested"
        return DIFFER[self.test.difference > 0] if self.p < ALPHA else "no difference shown"


def contrasts(runs: pd.DataFrame, method: str, by_kind: Controls) -> list[Contrast]:
    """Compare a method with each of its controls that has runs on a shared task.

    Args:
        runs: the chosen runs of one section (`Results.runs`).
    """
    dev = runs[runs["monitor"]].pivot_table(
        index="seed", columns=["method", "task"], values="value", aggfunc="first"
    )
    if method not in dev.columns:
        return []
    tests: list[tuple[str, str, int, statistics.Comparison]] = []
    for kind, names in by_kind.items():
        for control in names:
            if control not in dev.columns:
                continue
            tasks = dev[method].columns.intersection(dev[control].columns)
            a, b = dev[method][tasks].dropna(), dev[control][tasks].dropna()
            seeds = a.index.intersection(b.index)
            if len(tasks) and len(seeds):
                averages = a.loc[seeds].mean(axis=1), b.loc[seeds].mean(axis=1)
                tests.append((control, kind, len(tasks), statistics.paired(*averages)))
    corrected = statistics.holm([test.p for *_, test in tests])
    return [
        Contrast(method, control, kind, tasks, test, float(p))
        for (control, kind, tasks, test), p in zip(tests, corrected, strict=True)
    ]


def sentences(contrasts: Sequence[Contrast]) -> str:
    """Return what the contrasts of one method say, in sentences."""
    method, tasks = contrasts[0].method, max(contrast.tasks for contrast in contrasts)
    tested = [contrast for contrast in contrasts if contrast.tested]
    clauses = [
        f"against {words} {_outcome([contrast for contrast in tested if contrast.kind == kind])}"
        for kind, words in WORDS.items()
        if any(contrast.kind == kind for contrast in tested)
    ]
    if not clauses:
        return f"{method}: nothing can be said with so few seeds."
    p_of_layers = [contrast.p for contrast in tested if contrast.kind == "layers"]
    conclusion = ""
    if p_of_layers:
        conclusion = "That the choice of layers matters is not shown here."
    if any(p < ALPHA for p in p_of_layers):
        conclusion = "The choice of layers mattered here."
    where = "1 task" if tasks == 1 else f"{tasks} tasks"
    return f"{method} on {where}: {'; '.join(clauses)}. {conclusion}".strip()


def _outcome(contrasts: Sequence[Contrast]) -> str:
    """Return what the contrasts with one kind of control say, each tested."""
    better = [c.control for c in contrasts if c.verdict == DIFFER[True]]
    worse = [c.control for c in contrasts if c.verdict == DIFFER[False]]
    outcomes = [
        *([f"it is better than {', '.join(better)}"] if better else []),
        *([f"it is worse than {', '.join(worse)}"] if worse else []),
    ]
    if outcomes:
        return " and ".join(outcomes)
    largest = max(contrasts, key=lambda contrast: abs(contrast.test.difference))
    return (
        f"no difference is shown, the largest being {points(largest.test.difference)} "
        f"points ({largest.control})"
    )


def points(difference: float) -> str:
    """Return a difference of scores in points, with its sign."""
    return f"{100 * difference:+.1f}"
