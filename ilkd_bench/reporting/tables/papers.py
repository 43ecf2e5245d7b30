"""The papers' tables, each a declaration: what its rows and columns are, under the paper's names.

How they are filled from the records is `ilkd_bench.paper_tables`; published numbers are put beside
ours by `ilkd_bench.reference`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

GLUE = (
    *(("CoLA", "cola"), ("SST-2", "sst2"), ("MRPC", "mrpc"), ("STS-B", "stsb")),
    *(("QQP", "qqp"), ("MNLI", "mnli"), ("QNLI", "qnli"), ("RTE", "rte")),
)
BASE = "bert_base"


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
        note: what a reader must know, above all where it differs from the paper's.
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
    shows: str = "scores"
    speed: str | None = None
    speed_of: str | None = None
    sweep: str | None = None
    note: str = ""

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


def columns(*of: tuple[str, str], split: str = "dev") -> tuple[Column, ...]:
    """Return columns with the same split from pairs of label and task."""
    return tuple(Column(label, task, split) for label, task in of)


RAIL = "RAIL-KD (arXiv 2109.10164)"
PKD = "PKD (arXiv 1908.09355)"
ALP = "ALP-KD (arXiv 2012.14022)"
PRO = "Pro-KD (arXiv 2110.08532)"
SELECTION = "Layer selection (arXiv 2502.04499)"
HIDDEN = (
    "The paper has dev and test; test labels are hidden, so only dev can be scored here "
    "(python -m ilkd_bench.submit writes the files for the GLUE server)."
)

_WITHOUT = Row("w/o KD", "finetune")
_VANILLA = Row("Vanilla-KD", "vanilla")
_LAYERS = (Row("PKD", "pkd"), Row("ALP-KD", "alp"))
_RAIL = (Row("RAIL-KD (l)", "rail_l"), Row("RAIL-KD (c)", "rail_c"))
_COMPARED = (_WITHOUT, _VANILLA, *_LAYERS, *_RAIL)

_RAIL_TABLES = [
    Table(
        name="rail_table1",
        paper=RAIL,
        title="Table 1: methods for intermediate layers",
        teacher=BASE,
        student="distilbert",
        rows=(
            Row("PKD", "pkd", facts=("fixed", "teacher layers are skipped")),
            Row("CKD", "ckd", facts=("fixed groups", "groups are chosen by hand")),
            Row("ALP-KD", "alp", facts=("attention over all layers", "attends at every step")),
            Row("CoDIR", "codir", facts=("concatenation, contrastive", "memory banks, negatives")),
            *(
                replace(row, facts=("random, drawn per epoch", "the draw is not learned"))
                for row in _RAIL
            ),
        ),
        columns=columns(*GLUE),
        shows="properties",
        note="Cost: training time per example as a multiple of plain fine-tuning (w/o KD), "
        "the mean over the tasks that both were run on.",
    ),
    Table(
        name="rail_table2",
        paper=RAIL,
        title="Table 2: GLUE, BERT-base to DistilBERT",
        teacher=BASE,
        student="distilbert",
        rows=_COMPARED,
        columns=columns(*GLUE),
        average="Avg.",
        sweep="rail_table2",
        note=HIDDEN,
    ),
    Table(
        name="rail_table3",
        paper=RAIL,
        title="Table 3: GLUE, RoBERTa-large to DistilRoBERTa",
        teacher="roberta_large",
        student="distilroberta",
        rows=_COMPARED,
        columns=columns(*GLUE),
        average="Avg.",
        sweep="rail_table3",
        note=HIDDEN,
    ),
    Table(
        name="rail_table4",
        paper=RAIL,
        title="Table 4: comparison with CoDIR, RoBERTa-base to DistilRoBERTa",
        teacher="roberta_base",
        student="distilroberta",
        rows=(_WITHOUT, _VANILLA, Row("CoDIR", "codir"), *_RAIL),
        columns=columns(*(pair for pair in GLUE if pair[1] != "stsb")),
        average="Avg.",
        speed="Speed-up",
        speed_of="codir",
        sweep="rail_table4",
        note=f"{HIDDEN} Speed-up: training examples per second as a multiple of CoDIR's.",
    ),
    Table(
        name="rail_table5",
        paper=RAIL,
        title="Table 5: standard deviation over seeds",
        teacher=BASE,
        student="distilbert",
        rows=_COMPARED,
        columns=columns(("CoLA", "cola"), ("MRPC", "mrpc"), ("RTE", "rte")),
        shows="deviations",
        sweep="rail_table2",
    ),
    Table(
        name="rail_table6",
        paper=RAIL,
        title="Table 6: in domain and out of domain",
        teacher=BASE,
        student="distilbert",
        rows=_COMPARED,
        columns=(
            *columns(("MNLI", "mnli"), ("QQP", "qqp"), ("SST-2", "sst2")),
            Column("SciTail", "mnli", "ood/scitail"),
            Column("PAWS", "qqp", "ood/paws"),
            Column("IMDb", "sst2", "ood/imdb"),
        ),
        average="OOD avg.",
        averaged=("SciTail", "PAWS", "IMDb"),
        sweep="rail_table6",
        note="MNLI to SciTail, QQP to PAWS, SST-2 to IMDb: trained and selected in domain, scored "
        "out of domain; the average is unweighted.",
    ),
]

_PKD_COLUMNS = columns(
    *(("SST-2", "sst2"), ("MRPC", "mrpc"), ("QQP", "qqp"), ("MNLI", "mnli")),
    *(("QNLI", "qnli"), ("RTE", "rte")),
)
_PKD_TABLES = [
    Table(
        name="pkd_table1",
        paper=PKD,
        title="Table 1: BERT-base to 6 and 3 layers",
        teacher=BASE,
        student="bert_6",
        rows=[
            Row(f"{label} ({layers} layers)", method, f"bert_{layers}")
            for layers in (6, 3)
            for label, method in (("BERT", "finetune"), ("BERT-KD", "vanilla"), ("BERT-PKD", "pkd"))
        ],
        columns=_PKD_COLUMNS,
        sweep="pkd_table1",
        note=HIDDEN,
    ),
    Table(
        name="pkd_table2",
        paper=PKD,
        title="Table 2: PKD-Last and PKD-Skip, BERT-base to 6 layers",
        teacher=BASE,
        student="bert_6",
        rows=(Row("PKD-Last", "pkd_last"), Row("PKD-Skip", "pkd")),
        columns=_PKD_COLUMNS,
        sweep="pkd_table2",
        note=HIDDEN,
    ),
    Table(
        name="pkd_dev",
        paper=PKD,
        title="dev results of the repository, BERT-base to 6 layers",
        teacher=BASE,
        student="bert_6",
        rows=(
            Row("BERT", "finetune"),
            Row("BERT-KD", "vanilla"),
            Row("PKD-Last", "pkd_last"),
            Row("PKD-Skip", "pkd"),
        ),
        columns=(*columns(("CoLA", "cola")), *_PKD_COLUMNS),
        sweep="pkd_dev",
    ),
]

_ALP_TABLES = [
    Table(
        name=f"alp_{layers}",
        paper=ALP,
        title=f"GLUE, BERT-base to {layers} layers",
        teacher=BASE,
        student=student,
        rows=(_WITHOUT, Row("KD", "vanilla"), Row("PKD", "pkd"), Row("CKD", "ckd"), _LAYERS[1]),
        columns=columns(*GLUE),
        average="Avg.",
        sweep="alp",
    )
    for layers, student in ((6, "bert_6"), (4, "bert_base_4"), (2, "bert_2"))
]


def _pro_rows(takd: str) -> tuple[Row, ...]:
    return (
        _WITHOUT,
        Row("Vanilla KD", "vanilla"),
        Row("TAKD", takd),
        Row("Annealing KD", "annealing"),
        Row("RCO", "rco"),
        Row("Pro-KD", "pro_kd"),
    )


_PRO_TABLES = [
    Table(
        name=f"pro_kd_{family}",
        paper=PRO,
        title=f"GLUE, {told}",
        teacher=teacher,
        student=student,
        rows=_pro_rows(takd),
        columns=columns(*GLUE),
        average="Avg.",
        sweep=f"pro_kd_{family}",
        note=note,
    )
    for family, teacher, student, told, takd, note in (
        (
            *("roberta", "roberta_large", "distilroberta", "RoBERTa-large to DistilRoBERTa"),
            "takd (assistants=roberta_base)",
            "TAKD: RoBERTa-base is the assistant, as in the paper (+sweeps=pro_kd_takd).",
        ),
        (
            *("bert", BASE, "bert_4", "BERT-base to BERT-small"),
            "takd",
            "TAKD: 8 layers of the teacher are the assistant; which the paper took is not known.",
        ),
    )
] + [
    Table(
        name="pro_kd_temperature",
        paper=PRO,
        title="ablation of the temperature, RoBERTa-large to DistilRoBERTa",
        teacher="roberta_large",
        student="distilroberta",
        rows=(
            Row("T max 1 (not smoothed)", "pro_kd (max_temperature=1)"),
            Row("T max 5", "pro_kd (max_temperature=5)"),
            Row("T max 10", "pro_kd"),
            Row("T max 20", "pro_kd (max_temperature=20)"),
        ),
        columns=columns(("CoLA", "cola"), ("MRPC", "mrpc"), ("RTE", "rte"), ("STS-B", "stsb")),
        average="Avg.",
        sweep="pro_kd_temperature",
    ),
    Table(
        name="pro_kd_checkpoints",
        paper=PRO,
        title="which checkpoint of the teacher teaches best, BERT-base to BERT-small",
        teacher=BASE,
        student="bert_4",
        rows=[
            Row(
                f"after {fraction:.0%} of its training",
                "vanilla_checkpoint" + ("" if fraction == 1 else f" (teacher_at={fraction:g})"),
            )
            for fraction in (0.25, 0.5, 0.75, 1.0)
        ],
        columns=columns(("CoLA", "cola"), ("MRPC", "mrpc"), ("RTE", "rte"), ("STS-B", "stsb")),
        average="Avg.",
        sweep="pro_kd_checkpoints",
        note="Vanilla KD from a snapshot of the teacher, at a fraction of its own training.",
    ),
]

_SELECTED = (
    Row("None", "vanilla"),
    Row("Forward", "pkd"),
    Row("Reverse", "pkd_reversed"),
    Row("All-to-one", "pkd_all_to_last"),
    Row("Random matching", "pkd_permuted"),
)
_SELECTION_TABLES = [
    Table(
        name="controls",
        paper=SELECTION,
        title="GLUE, does the choice of layers matter, BERT-base to 3 layers",
        teacher=BASE,
        student="bert_3_copied",
        rows=[
            replace(row, label=f"{row.label} ({told})", student=student)
            for student, told in (
                ("bert_3_random", "random weights"),
                ("bert_3_copied", "layers copied"),
            )
            for row in _SELECTED
        ],
        columns=columns(("MNLI", "mnli"), ("QQP", "qqp"), ("QNLI", "qnli"), ("SST-2", "sst2")),
        sweep="layer_selection",
        note=f"{HIDDEN} The study matches all tokens of all layers, the last one included; here "
        "PKD's first token of the intermediate layers, two of them, so that Random matching is "
        "Forward or Reverse, as the seed has it. The study has none of copied layers.",
    )
]

TABLES = {
    table.name: table
    for table in [*_RAIL_TABLES, *_PKD_TABLES, *_ALP_TABLES, *_PRO_TABLES, *_SELECTION_TABLES]
}
"""All tables by name, in the order in which they are listed."""
