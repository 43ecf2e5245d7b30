"""Whether the choice of layers mattered: methods beside their controls, in numbers and in words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from ilkd_bench import stats
from ilkd_bench.compare import ALPHA
from ilkd_bench.findings import Findings
from ilkd_bench.grid import Cell, Grid
from ilkd_bench.papers import CONTROLS

TITLE = "Does the choice of layers matter?"
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
    found: stats.Comparison
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
                made.append((control, kind, len(shared), stats.paired(*averages)))
    corrected = stats.holm([found.p for *_, found in made])
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
                f"no difference is shown, the largest being {_points(widest.found.difference)} "
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


def _points(difference: float) -> str:
    return f"{100 * difference:+.1f}"


def layer_choice(found: Findings) -> Grid:
    """Return every method that has controls beside them, for every pair and setting there is."""
    rows: dict[str, Mapping[str, Cell]] = {}
    notes = []
    for section, records in found.sections().items():
        config = records[0]["config"]
        runs = found.runs[(found.runs["section"] == section) & found.runs["main"]]
        pair = f"{config['teacher']['name']} -> {config['student']['name']}"
        limited = ", limited" if runs["limited"].any() else ""
        for method in CONTROLS:
            made = contrasts(runs, method)
            if all(one.kind == "term" for one in made):
                continue  # no control was run, only vanilla KD
            where = f"{pair}{limited}, {section}"
            notes.append(f"{where}: {told(made)}")
            for one in made:
                cells = {
                    "beside": WORDS[one.kind],
                    "difference": _interval(one.found),
                    "tasks": str(one.tasks),
                    "seeds": str(one.found.n),
                    "verdict": one.verdict,
                }
                rows[f"{method} minus {one.control} ({where})"] = {
                    name: Cell(text=text) for name, text in cells.items()
                }
    caption = (
        "Dev scores times 100, the mean over the tasks that both were run on; the 95 % interval of "
        "the paired t test over seeds; verdicts after Holm's correction over a method's controls."
        if rows
        else "No method was run beside a control of it (+sweeps=controls)."
    )
    columns = ["beside", "difference", "tasks", "seeds", "verdict"]
    return Grid("layer_choice", TITLE, caption, "comparison", columns, rows, notes=notes)


def _interval(found: stats.Comparison) -> str:
    if found.low != found.low:
        return _points(found.difference)
    return f"{_points(found.difference)} [{_points(found.low)}, {_points(found.high)}]"
