"""The zip for the GLUE server: `python -m ilkd_bench.submit --data-dir DIR`.

Of each task it takes the run that is best on dev, predicts the test rows with its stored student,
and writes a file per sheet of the server. Nothing is trained.
"""

from __future__ import annotations

import argparse
import os
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from ilkd_bench.data import tasks
from ilkd_bench.data.tasks import Task, TextRows
from ilkd_bench.plumbing import terminal
from ilkd_bench.plumbing.command import complain, no_runs, say
from ilkd_bench.plumbing.files import whole_file
from ilkd_bench.records.read import load_records
from ilkd_bench.records.record import Done, Record
from ilkd_bench.settings.groups import defaults
from ilkd_bench.settings.task import task_of
from ilkd_bench.students import load, select
from ilkd_bench.types import BadInput

if TYPE_CHECKING:
    from torch import Tensor


NUMBERS = ("0", "1")
PAIR = ("entailment", "not_entailment")
NLI = ("entailment", "neutral", "contradiction")


@dataclass(frozen=True)
class Sheet:
    """One file of the submission."""

    file: str
    task: str
    split: str  # our name of the test split
    rows: int  # that the server expects
    answers: tuple[str, ...] | None  # that the server knows; None: a score from 0 to 5
    learned: str  # the task of the student that fills it


SHEETS = (
    Sheet("CoLA.tsv", "cola", "test", 1063, NUMBERS, "cola"),
    Sheet("SST-2.tsv", "sst2", "test", 1821, NUMBERS, "sst2"),
    Sheet("MRPC.tsv", "mrpc", "test", 1725, NUMBERS, "mrpc"),
    Sheet("STS-B.tsv", "stsb", "test", 1379, None, "stsb"),
    Sheet("QQP.tsv", "qqp", "test", 390965, NUMBERS, "qqp"),
    Sheet("MNLI-m.tsv", "mnli", "test", 9796, NLI, "mnli"),
    Sheet("MNLI-mm.tsv", "mnli", "test_mismatched", 9847, NLI, "mnli"),
    Sheet("QNLI.tsv", "qnli", "test", 5463, PAIR, "qnli"),
    Sheet("RTE.tsv", "rte", "test", 3000, PAIR, "rte"),
    Sheet("WNLI.tsv", "wnli", "test", 146, NUMBERS, "wnli"),
    Sheet("AX.tsv", "ax", "test", 1104, NLI, "mnli"),
)
"""The server's files, their sizes and what it reads in them (gluebenchmark.com/faq)."""

SCORES = (0.0, 5.0)
"""What STS-B's scores are clipped to."""

MOMENT = (1980, 1, 1, 0, 0, 0)
"""Date of every file in the zip, so that the same answers are the same bytes."""


# ------------------------------------------------------------------------------------- the answers


@dataclass(frozen=True)
class Filled:
    """A sheet, the run whose student fills it, and the rows to answer."""

    sheet: Sheet
    record: Done
    folder: Path
    task: Task
    rows: TextRows


def prepare(
    runs: dict[str, Done], results_dir: Path, data_dir: Path | None
) -> tuple[list[Filled], dict[str, str]]:
    """Read the test rows; return what can be filled, and why each other sheet is missing.

    Raises:
        BadInput: a chosen run's student is not on the disk (all such runs are named), or a file
            cannot be read.
    """
    _require_students(runs, results_dir)
    filled, missing = [], {}
    for sheet in SHEETS:
        record = runs.get(sheet.learned)
        if record is None:
            missing[sheet.file] = f"no finished run of {sheet.learned}"
            continue
        task = _task(sheet, record)
        if sheet.split not in task.splits:
            missing[sheet.file] = f"run {record.id} knows no split {sheet.split}"
            continue
        if data_dir is not None and tasks.find_file(task, sheet.split, data_dir) is None:
            where = data_dir / task.name / task.splits[sheet.split]
            missing[sheet.file] = f"no file {where}.{{{','.join(tasks.FORMATS)}}}"
            continue
        rows = tasks.read(task, sheet.split, data_dir=data_dir)
        filled.append(Filled(sheet, record, results_dir / record.folder, task, rows))
    return filled, missing


def _require_students(runs: dict[str, Done], results_dir: Path) -> None:
    lost = []
    for record in runs.values():
        try:
            load.require_student(results_dir / record.folder, record)
        except BadInput as error:
            lost.append(f"{record.config['task']['name']}: {error}")
    if lost:
        raise BadInput(
            "\n".join(lost) + "\n(keep_student=all keeps every student, keep_student=best the best "
            "run of each method, task and pair, which --run ID takes)"
        )


def _task(sheet: Sheet, record: Done) -> Task:
    """Return the task whose test rows a sheet asks for; AX has MNLI's columns and labels."""
    task = _known(task_of(record.config["task"]))
    classes = None if task.labels is None else len(task.labels)
    known = None if sheet.answers is None else len(sheet.answers)
    names = sheet.answers not in (None, NUMBERS)
    if classes != known or (names and set(task.labels or ()) != set(sheet.answers or ())):
        raise BadInput(
            f"run {record.id} has the labels {task.labels}; {sheet.file} knows {sheet.answers}"
        )
    if sheet.task == task.name:
        return task
    hub = None if task.hub is None else task.hub | {"config": sheet.task}
    return replace(task, name=sheet.task, splits={"test": "test"}, hidden=["test"], hub=hub, ood={})


def _known(task: Task) -> Task:
    """Return a task of a record with the places of its rows as this machine's conf/ names them."""
    usual = defaults("task", task.name)
    splits = {ours: theirs for ours, theirs in usual["splits"].items() if ours in task.splits}
    return replace(task, splits=splits, hub=usual["hub"], ood={})


def _whole(record: Record) -> bool:
    """Tell whether a record has the settings of a task; name one that has not."""
    try:
        task_of(record.config["task"])
    except BadInput as error:
        complain(f"{record.folder}: not used, {error}")
        return False
    return True


def answer(
    filled: Filled, *, cache_dir: Path, batch_size: int, accelerator: str, heading: str
) -> list[str]:
    """Return what the student says about each row of a sheet, in the server's words.

    Raises:
        BadInput: the student cannot be loaded, or answers with something that is no number.
    """
    import torch

    from ilkd_bench.data.batches import Split
    from ilkd_bench.data.tokens import encode
    from ilkd_bench.plumbing.hardware import device_here
    from ilkd_bench.training.evaluation import predict

    rows = filled.rows
    model = load.load(filled.folder, filled.task.labels)
    length = filled.record.config["max_length"]
    tokens = encode(rows, model.tokenizer, max_length=length, cache_dir=cache_dir)
    split = Split(torch.from_numpy(rows.labels), torch.from_numpy(rows.index), tokens, tokens)
    device = device_here(accelerator)
    model.to(device)
    terminal.heading = heading
    logits = predict(
        lambda batch: model.outputs(batch["student"], frozenset()), split, batch_size, device
    )
    if not bool(torch.isfinite(logits).all()):
        raise BadInput(f"the student of run {filled.record.id} gives logits that are no numbers")
    return words(filled.sheet, filled.task, logits)


def words(sheet: Sheet, task: Task, logits: Tensor) -> list[str]:
    """Turn logits [N, C] into the server's words: class numbers, label names, or scores."""
    if sheet.answers is None:
        return [f"{score:.6f}" for score in logits[:, 0].clamp(*SCORES).tolist()]
    names = NUMBERS if sheet.answers is NUMBERS else task.labels or ()
    return [names[number] for number in logits.argmax(dim=1).tolist()]


def placeholder(sheet: Sheet) -> list[str]:
    """Return a constant answer for every row, which the server takes where a task was not done."""
    return ["0.000000" if sheet.answers is None else sheet.answers[0]] * sheet.rows


# ----------------------------------------------------------------------------------------- the zip


def write_zip(path: Path, answers: dict[str, list[str]]) -> None:
    """Write the zip, whole or not at all; the same answers give the same bytes."""
    with whole_file(path) as aside, zipfile.ZipFile(aside, "w", zipfile.ZIP_DEFLATED) as archive:
        for sheet in SHEETS:
            if sheet.file in answers:
                lines = [f"{index}\t{word}" for index, word in enumerate(answers[sheet.file])]
                entry = zipfile.ZipInfo(sheet.file, MOMENT)
                entry.compress_type = zipfile.ZIP_DEFLATED
                entry.external_attr = 0o644 << 16
                archive.writestr(entry, "\n".join(["index\tprediction", *lines]) + "\n")


def _require_writable(path: Path) -> None:
    """Refuse a place where no file can be put, before the long work."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.is_dir() or not os.access(path.parent, os.W_OK):
        raise BadInput(f"{path} cannot be written: give --out FILE.zip")


def described(filled: Filled) -> str:
    """Return one line: the sheet, its rows, and the run behind it."""
    record, config = filled.record, filled.record.config
    limited = ", limited" if record.limited else ""
    return (
        f"{filled.sheet.file:<12} {len(filled.rows)} rows, run {record.id} "
        f"({' -> '.join(select.who(record)[:2])}, {select.who(record)[2]}, seed {config['seed']}, "
        f"lr {config['lr']:g}, batch {config['batch_size']}, {record.monitor} "
        f"{record.dev_score:.4f}{limited})"
    )


def _of(record: Record) -> str:
    return record.task


def submission(args: argparse.Namespace) -> list[str]:
    """Write the zip and print what is in it; return why the server would not take it.

    Raises:
        BadInput: nothing can be predicted, or a choice is left open.
    """
    if not (args.results_dir / "runs").is_dir():
        raise no_runs(args.results_dir)
    wanted = dict.fromkeys(sheet.learned for sheet in SHEETS)
    runs = select.named(args.run, args.results_dir, wanted, limited=args.limited)
    stored = load_records(args.results_dir)
    for flaw in stored.flaws:
        complain(flaw)
    open_tasks = wanted.keys() - runs.keys()
    others = [r for r in stored.records if _of(r) in open_tasks and _whole(r)]
    names = {key: getattr(args, key) for key in select.CHOICES}
    runs |= select.choose(others, names, limited=args.limited)
    filled, missing = prepare(runs, args.results_dir, args.data_dir)
    if not filled:
        why = "; ".join(f"{file}: {reason}" for file, reason in missing.items())
        raise BadInput(f"nothing to submit. {why}")
    _require_writable(args.out)
    answers = {}
    how = {"cache_dir": args.cache_dir, "batch_size": args.batch_size}
    for number, item in enumerate(filled, 1):
        heading = f"{number} of {len(filled)}: {item.sheet.file}"
        answers[item.sheet.file] = answer(
            item, **how, accelerator=args.accelerator, heading=heading
        )
        say(described(item))
    problems = [
        f"{sheet.file} has {len(answers[sheet.file])} rows, the server expects {sheet.rows}"
        for sheet in SHEETS
        if sheet.file in answers and len(answers[sheet.file]) != sheet.rows
    ]
    for sheet in SHEETS:
        if sheet.file in missing and args.placeholder:
            answers[sheet.file] = placeholder(sheet)
            say(f"{sheet.file:<12} {sheet.rows} rows, placeholder: {missing[sheet.file]}")
        elif sheet.file in missing:
            problems.append(
                f"{sheet.file} is missing: {missing[sheet.file]} (--placeholder fills it with a "
                "constant answer)"
            )
    write_zip(args.out, answers)
    say(f"submission: {args.out}, {len(answers)} of {len(SHEETS)} files")
    return problems
