"""Write into docs/methods.md what works with what: every method, tried with small random models.

    make matrix                                     # write the table
    .venv/bin/python tests/make_matrix.py --check   # does it name every method? (in `make lint`)

A cell is what the code did: the method was built for the pair, its need of equal tokens checked,
and the loss of every phase computed for classes and for a regression.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pairs
import torch
import toys
from pairs import Side

from ilkd_bench.methods.base import Method
from ilkd_bench.plumbing.files import write_text
from ilkd_bench.teachers import finetuned
from ilkd_bench.teachers.banked import KEPT, can_bank
from ilkd_bench.teachers.live import LOGITS
from ilkd_bench.types import Incompatible

PAGE = Path(__file__).parent.parent / "docs" / "methods.md"
BEGIN = "<!-- made by tests/make_matrix.py: begin -->\n"
END = "<!-- made by tests/make_matrix.py: end -->\n"

KINDS = {"classes": 3, "regression": 1}
STUDENT, TEACHER = Side(layers=6), Side(layers=12)
COLUMNS: dict[str, tuple[Side, Side, tuple[str, ...]]] = {
    "classes": (STUDENT, TEACHER, ("classes",)),
    "regression": (STUDENT, TEACHER, ("regression",)),
    "other width": (STUDENT, TEACHER._replace(width=12), tuple(KINDS)),
    "other heads": (STUDENT, TEACHER._replace(heads=4), tuple(KINDS)),
    "12 -> 5": (STUDENT._replace(layers=5), TEACHER, tuple(KINDS)),
    "12 -> 1": (STUDENT._replace(layers=1), TEACHER, tuple(KINDS)),
    "other family": (STUDENT._replace(family="distilbert"), TEACHER, tuple(KINDS)),
    "other tokens": (STUDENT, TEACHER._replace(family="roberta"), tuple(KINDS)),
}
"""Student, teacher and kinds of task that a column tries."""

BANK, CHECKPOINT = "bank", "checkpoint"
HEAD = """\
## What works with what

Every method as its YAML states it, tried with small random models: BERT -> BERT, 12 -> 6 layers,
equal widths, numbers of heads and tokens. A column changes one thing, and was tried for classes and
for a regression; teaching assistants were left out. A number leads to the reason below the table,
with the sizes of the trial. A run that is refused is recorded as `skipped`.

| column | what is changed or asked |
|---|---|
| other width, other heads | a teacher 12 wide instead of 8, with 4 heads instead of 2 |
| 12 -> 5, 12 -> 1 | a student whose depth does not divide the teacher's; of a single layer |
| other family | BERT -> DistilBERT, with the same tokenizer |
| other tokens | RoBERTa -> BERT, each with its own tokenizer |
| bank | may the teacher be run once for all runs (`bank=auto`)? No: it is run at every step |
| checkpoint | may the teacher be given fine-tuned (`teacher.checkpoint=`), without its training? |

"""


class Reasons:
    """Footnotes, numbered as they come."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def mark(self, *texts: str) -> str:
        """Return the numbers of some reasons, `(1, 2)`."""
        new = [text for text in dict.fromkeys(texts) if text not in self.texts]
        self.texts += new
        numbers = sorted({self.texts.index(text) + 1 for text in texts})
        return f"({', '.join(map(str, numbers))})"


def refusal(name: str, student: Side, teacher: Side, classes: int) -> str | None:
    """Return why a method does not work for a pair; None: it does, and every term has a value."""
    pair = pairs.pair(student, teacher, classes)
    try:
        method = pairs.method(name, pair)
        pairs.check_tokens(method, pair)
        with torch.no_grad():
            terms = [item for _, found in pairs.terms(method, pair) for item in found.items()]
    except Incompatible as error:
        return str(error)
    weights = pairs.method_settings(name)["weights"]
    assert {term for term, _ in terms} == set(weights), f"{name}: {terms}, {weights}"
    assert all(torch.isfinite(value) for _, value in terms), f"{name}: {terms}"
    return None


def tried(found: Mapping[str, str | None], reasons: Reasons) -> str:
    """Return a cell, from the refusal by kind of task."""
    refused = {kind: why for kind, why in found.items() if why is not None}
    if not refused:
        return "yes"
    mark = reasons.mark(*refused.values())
    works = [kind for kind in found if kind not in refused]
    return f"{works[0]} only {mark}" if works else f"no {mark}"


def bank(method: Method, reasons: Reasons) -> str:
    """Tell whether banks hold what a method asks of its teacher."""
    phases = method.phases(pairs.EPOCHS)
    if not any(phase.needs for phase in phases):
        return "no teacher"
    if can_bank(phases):
        return "yes"
    lacking = {
        need for phase in phases for need in phase.needs - (LOGITS if phase.teacher_at else KEPT)
    }
    return "no " + reasons.mark(f"no bank holds {', '.join(sorted(lacking))} of the teacher")


def checkpoint(method: Method, reasons: Reasons) -> str:
    """Tell whether a teacher that comes without its training can teach."""
    follows = any(phase.teacher_at is not None for phase in method.phases(pairs.EPOCHS))
    try:
        finetuned.require_snapshots("FOLDER", follows)
    except Incompatible as error:
        return "no " + reasons.mark(str(error))
    return "yes"


def cells(name: str, reasons: Reasons) -> dict[str, str]:
    """Return a method's row by column."""
    row = {}
    for column, (student, teacher, kinds) in COLUMNS.items():
        found = {kind: refusal(name, student, teacher, KINDS[kind]) for kind in kinds}
        row[column] = tried(found, reasons)
    usual = pairs.method(name, pairs.pair(STUDENT, TEACHER, 3))
    row[BANK] = bank(usual, reasons)
    row[CHECKPOINT] = checkpoint(usual, reasons)
    return row


def matrix(names: Sequence[str]) -> tuple[dict[str, dict[str, str]], list[str]]:
    """Return the cells by method and column, and the reasons that they point to."""
    reasons = Reasons()
    return {name: cells(name, reasons) for name in names}, reasons.texts


def section(rows: Mapping[str, Mapping[str, str]], reasons: Sequence[str]) -> str:
    """Return the text between the two marks of the page."""
    columns = [*COLUMNS, BANK, CHECKPOINT]
    lines = [f"| method | {' | '.join(columns)} |", "|---" * (len(columns) + 1) + "|"]
    for name, row in rows.items():
        lines.append(f"| `{name}` | {' | '.join(row[column] for column in columns)} |")
    lines += ["", *(f"{number}. {text}" for number, text in enumerate(reasons, start=1))]
    return "\n" + HEAD + "\n".join(lines) + "\n\n"


def parts(page: str) -> tuple[str, str, str]:
    """Split a page into what is before, between and after the marks, which stay outside."""
    before, begin, rest = page.partition(BEGIN)
    inside, end, after = rest.partition(END)
    assert begin and end, f"{PAGE} has no marks"
    return before + begin, inside, end + after


def named(page: str) -> list[str]:
    """Return the methods that the table of a page has."""
    return re.findall(r"^\| `(\w+)` \|", parts(page)[1], flags=re.M)


def missing(page: str) -> str | None:
    """Tell which methods a page's table lacks or has too many, and what to type."""
    names = set(named(page))
    flaws = [f"lacks {name}" for name in toys.METHODS if name not in names]
    flaws += [f"has {name}, which conf/method/ lacks" for name in names - set(toys.METHODS)]
    return f"docs/methods.md: its table {', '.join(flaws)}: type make matrix" if flaws else None


def main() -> None:
    if sys.argv[1:] == ["--check"]:
        sys.exit(missing(PAGE.read_text(encoding="utf-8")))
    before, _, after = parts(PAGE.read_text(encoding="utf-8"))
    rows, reasons = matrix(toys.METHODS)
    write_text(PAGE, before + section(rows, reasons) + after)
    print(f"{PAGE}: {len(rows)} methods, {len(reasons)} reasons")


if __name__ == "__main__":
    main()
