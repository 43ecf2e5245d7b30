"""The papers' tables and claims, and publications' names for what conf/ has: `results/papers.yaml`.

How a table is filled from the records is `paper_tables`; published numbers are put beside ours by
`published`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from ilkd_bench.comparison.declared import read
from ilkd_bench.settings.groups import ROOT
from ilkd_bench.types import BadInput

FILE = ROOT / "results" / "papers.yaml"


@dataclass(frozen=True)
class Row:
    """A row: its name in the paper, and the runs that it stands for.

    Attributes:
        method: as the tables name it: `pkd`, or `pro_kd (max_temperature=1)` for other settings.
        student: where the table has several; else the table's.
        facts: of a table of properties: mapping, limitation, in this order.
    """

    label: str
    method: str
    student: str | None = None
    facts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Column:
    """A column: its name in the paper, and what it shows of the runs on a task."""

    label: str
    task: str
    split: str = "dev"


@dataclass(frozen=True)
class Table:
    """One table of a paper.

    Attributes:
        name: as `--table` takes it, and of its files.
        teacher, student: the pair, by the names in conf/.
        average: heading of a last column: the mean over the columns named in `averaged`, or all.
        shows: `scores`, `deviations` over seeds, or `properties` of the methods.
        speed: heading of a column with the training speed as a multiple of that of `speed_of`.
        sweep: the preset that fills it.
        note: sentences that a reader must know, above all where it differs from the paper's.
    """

    name: str
    paper: str
    title: str
    teacher: str
    student: str
    rows: Sequence[Row]
    columns: Sequence[Column]
    average: str | None = None
    averaged: Sequence[str] = ()
    shows: Literal["scores", "deviations", "properties"] = "scores"
    speed: str | None = None
    speed_of: str | None = None
    sweep: str | None = None
    note: Sequence[str] = ()

    def of_pair(self, teacher: str | None, student: str | None) -> Table:
        """Return the same table for another pair."""
        if teacher in (None, self.teacher) and student in (None, self.student):
            return self
        rows = [replace(row, student=None) for row in self.rows] if student else self.rows
        return replace(
            self,
            teacher=teacher or self.teacher,
            student=student or self.student,
            rows=list({row.method: row for row in rows}.values()) if student else rows,
            sweep=None,
        )


@dataclass(frozen=True)
class Claim:
    """A difference that RAIL-KD states: the best of `methods` minus the best of `against`.

    Section 5, differences of averages over the tasks.

    Attributes:
        split: `dev`, or `ood` for the mean over the other domains.
        points: as published, for its own pair.
    """

    text: str
    teacher: str
    student: str
    split: str
    methods: tuple[str, ...]
    against: tuple[str, ...]
    points: float


@dataclass(frozen=True)
class Names:
    """Names of the publications -> ours; models that are not here are none of conf/.

    Attributes:
        starts: student -> setting -> ours, where the start of the student is told by the setting.
    """

    teachers: Mapping[str, str]
    students: Mapping[str, str]
    starts: Mapping[str, Mapping[str, str]]
    methods: Mapping[str, str]
    metrics: Mapping[str, str]


@dataclass(frozen=True)
class Papers:
    """All that the file declares.

    Attributes:
        tables: in the order in which they are listed.
        shared: what other entries refer to.
    """

    tables: Sequence[Table]
    claims: Sequence[Claim]
    names: Names
    shared: Any = None


@cache
def declared(path: Path = FILE) -> Papers:
    """Return what the file declares.

    Raises:
        BadInput: it holds something that is not understood, or lacks something.
    """
    papers: Papers = read(path, Papers)
    counts = Counter(table.name for table in papers.tables)
    several = [name for name, count in counts.items() if count > 1]
    if several:
        raise BadInput(f"{path}: the table {several[0]} is there twice")
    return papers


def tables() -> dict[str, Table]:
    """Return all tables by name."""
    return {table.name: table for table in declared().tables}
