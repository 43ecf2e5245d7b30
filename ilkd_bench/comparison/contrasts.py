"""Whether the choice of layers mattered: methods beside their controls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pandas as pd

from ilkd_bench.comparison import statistics
from ilkd_bench.comparison.differences import ALPHA

WORDS = {
    "layers": "other layers",
    "vectors": "vectors that say nothing of the row",
    "term": "training without the term",
}
"""What a kind of control has in place of the method's own."""

DIFFER = {True: "the method is better", False: "the control is better"}


@dataclass(frozen=True)
class Contrast:
    """A method minus one of its controls, on average over the tasks that both have.

    Attributes:
        kind: of the control, a key of `WORDS`.
        p: of the paired t test over seeds, after Holm's correction over the method's controls.
    """

    method: str
    control: str
    kind: str
    tasks: int
    found: statistics.Comparison
    p: float

    @property
    def verdict(self) -> str:
        """The outcome in a few words."""
        if self.p != self.p:
            return "not tested"  # fewer than two shared seeds, or the same difference at each
        return DIFFER[self.found.difference > 0] if self.p < ALPHA else "no difference shown"


def contrasts(runs: pd.DataFrame, method: str) -> list[Contrast]:
    """Compare a method with each of its controls that has runs on a shared task.

    Args:
        runs: the chosen runs of one section (`findings.runs`).
    """
    dev = runs[runs["monitor"]].pivot_table(
        index="seed", columns=["method", "task"], values="value", aggfunc="first"
    )
    if method not in dev.columns:
        return []
    made = []
    for kind, names in CONTROLS[method].items():
        for control in names:
            if control not in dev.columns:
                continue
            shared = dev[method].columns.intersection(dev[control].columns)
            a, b = dev[method][shared].dropna(), dev[control][shared].dropna()
            seeds = a.index.intersection(b.index)
            if len(shared) and len(seeds):
                averages = a.loc[seeds].mean(axis=1), b.loc[seeds].mean(axis=1)
                made.append((control, kind, len(shared), statistics.paired(*averages)))
    corrected = statistics.holm([found.p for *_, found in made])
    return [Contrast(method, *one, float(p)) for one, p in zip(made, corrected, strict=True)]


def told(found: Sequence[Contrast]) -> str:
    """Return what the contrasts of one method say, in sentences."""
    method, tasks = found[0].method, max(one.tasks for one in found)
    sentences = []
    for kind, words in WORDS.items():
        own = [one for one in found if one.kind == kind and one.p == one.p]
        if not own:
            continue
        better = [one.control for one in own if one.verdict == DIFFER[True]]
        worse = [one.control for one in own if one.verdict == DIFFER[False]]
        outcome = [
            *([f"it is better than {', '.join(better)}"] if better else []),
            *([f"it is worse than {', '.join(worse)}"] if worse else []),
        ]
        widest = max(own, key=lambda one: abs(one.found.difference))
        if not outcome:
            outcome = [
                f"no difference is shown, the largest being {points(widest.found.difference)} "
                f"points ({widest.control})"
            ]
        sentences.append(f"against {words} {' and '.join(outcome)}")
    if not sentences:
        return f"{method}: nothing can be said with so few seeds."
    own = [one for one in found if one.kind == "layers" and one.p == one.p]
    mattered = any(one.p < ALPHA for one in own)
    verdict = "The choice of layers mattered here." if mattered else ""
    if own and not mattered:
        verdict = "That the choice of layers matters is not shown here."
    where = "1 task" if tasks == 1 else f"{tasks} tasks"
    return f"{method} on {where}: {'; '.join(sentences)}. {verdict}".strip()


def points(difference: float) -> str:
    """Return a difference of scores in points, with its sign."""
    return f"{100 * difference:+.1f}"


CONTROLS = {
    "pkd": {
        "layers": ("pkd_first", "pkd_reversed", "pkd_all_to_last", "pkd_permuted"),
        "vectors": ("pkd_shuffled", "pkd_random"),
        "term": ("vanilla",),
    },
    "rail_l": {
        "layers": ("rail_unsorted", "rail_reversed", "rail_never"),
        "term": ("vanilla",),
    },
}
"""Of a method: what does the same with other layers, with vectors that say nothing of the row, and
without the term."""
