"""Records, and files beside them, that hold anything: each is named and left out, and no more.

A sample of what `python tests/records/test_hostile.py [SEED [CASES]]` tries at length.
"""

from __future__ import annotations

import contextlib
import errno
import io
import json
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import made
import pytest
import toys

from ilkd_bench import dashboard, export, figures, report, runs, submit, tables
from ilkd_bench.jobs import best_setting
from ilkd_bench.jobs.job import _attempt, _earlier
from ilkd_bench.records import retention
from ilkd_bench.records.read import load_records, read_record
from ilkd_bench.reporting.figures import data
from ilkd_bench.settings import identity
from ilkd_bench.settings.run import Run
from ilkd_bench.students import select
from ilkd_bench.types import BadInput

DEEP: Any = []
for _ in range(900):
    DEEP = [DEEP]

VALUES: tuple[Any, ...] = (
    *(None, True, False, 0, -1, 0.5, 10**30, 10**400, float("nan"), float("inf"), 1e308),
    *("", "text", "x/../../victim", "/etc/passwd", "a" * 5_000, "x\0y", "\x1b[31mred", "\ud800"),
    *("=HYPERLINK(1)", "[a](http://b)", r"\input{x}", "<script>", "a\nb", "$x$ _y_ |z|"),
    *([], {}, [None], [[1], {}], {"a": 1}, {"_target_": "os.system"}, {"": {"": ""}}, DEEP),
)
GONE = object()
"""In place of a value: its key is not there."""


@dataclass(frozen=True)
class Key:
    """In place of a value: it stands under another key."""

    name: str


KEYS = (
    *(Key(value) for value in VALUES if isinstance(value, str)),
    Key("a\" or 'b') and Metric(x)"),
)


@cache
def run() -> Run:
    return toys.run("task=mrpc", "teacher=bert_base", "student=bert_6", "method=pkd")


def whole(seed: int = 0, method: str = "pkd") -> dict[str, Any]:
    """A record as full as those of runs."""
    task = run().task
    record = made.record(
        method, "mrpc", seed, 0.7 + seed / 100, teacher="bert_base", student="bert_6"
    )
    settings = vars(task) | {"ood": {"paws": vars(task) | {"ood": {}, "name": "paws"}}}
    settings["ood"]["paws"] |= {"label_map": None, "collapse": "argmax"}
    config = record["config"] | {"task": settings, "precision": "32-true"}
    scores = {"dev": {"accuracy": 0.7, "f1": 0.8, "n": 40}, "ood/paws": {"f1": 0.5, "n": 9}}
    scores["dev"][task.metric] = 0.7 + seed / 100
    return record | {
        "config": config,
        "id": identity.run_id(config),
        "argv": ["task=mrpc", "method=pkd", f"seed={seed}"],
        "scores": scores,
        "monitor": f"dev/{task.metric}",
        "best_epoch": 2,
        "teacher": {"key": "k", "dev": {task.metric: 0.9, "n": 40}, "seconds": 3.5},
        "data": {"train": 9, "dev": 40, "fingerprint": {"train": "t"}},
        "parameters": {"teacher": 10, "student": 5},
        "seconds": {"train": 1.5, "teacher": 1.0, "evaluate": 0.5, "setup": 1},
        "examples_per_second": 99.5,
        "device": "cpu",
        "precision": "32-true",
        "versions": {"python": "3.11"},
        "git": {"sha": "abc", "dirty": False},
        "limited": False,
    }


def leaves(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where something stands in a record, the record itself and its groups included."""
    yield path
    if isinstance(value, dict | list):
        items: Any = value.items() if isinstance(value, dict) else enumerate(value)
        for key, item in items:
            yield from leaves(item, (*path, key))


def changed(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The same with something else in one place."""
    if not path:
        return None if new is GONE else new
    copy = list(value) if isinstance(value, list) else dict(value)
    if len(path) == 1 and new is GONE:
        del copy[path[0]]
    elif len(path) == 1 and isinstance(new, Key):
        value = copy.pop(path[0])
        copy |= {new.name: value}
    else:
        copy[path[0]] = changed(copy[path[0]], path[1:], new)
    return copy


def renewed(record: Any) -> Any:
    """A record whose id is that of its settings, where it can be."""
    try:
        return record | {"id": identity.run_id(record["config"])}
    except (TypeError, ValueError, KeyError, RecursionError):
        return record


HISTORY = "phase,epoch,seconds,rows,lr,loss/ce,loss/total,dev/f1,dev/n,layers\n"
HISTORY += "distill,1,1,9,0.1,0.5,0.5,0.6,40,1 2 3\ndistill,2,1,9,0.1,0.4,0.4,0.7,40,2 3 4\n"
SIMILARITY = "pooling,student_layer,teacher_layer,rows,cosine,cka,distance\n"
SIMILARITY += "".join(f"cls,{i},{j},9,0.5,0.4,0.7\n" for i in range(3) for j in range(4))
ATTENTION = "student_layer,teacher_layer,rows,weight\n1,1,9,0.25\n1,2,9,0.75\n"
PCA = "pooling,model,layer,row,label,plane,pc1,pc2,share_1,share_2\n"
PCA += "".join(
    f"cls,{m},1,{row},1,shared,0.{row},0.2,0.6,0.3\n"
    for m in ("teacher", "student")
    for row in (1, 2)
)
CSVS = {
    "history.csv": HISTORY,
    "analysis/similarity.csv": SIMILARITY,
    "analysis/attention.csv": ATTENTION,
    "analysis/pca.csv": PCA,
}


READ_BY: dict[str, tuple[Callable[..., Any], ...]] = {
    "history.csv": (data.curves, data.layers),
    "analysis/similarity.csv": (data.cka, data.distance),
    "analysis/attention.csv": (data.attention,),
    "analysis/pca.csv": (data.pca,),
}


def results(root: Path) -> Path:
    """A folder with three whole runs and all that a run leaves; returns the folder of one."""
    items = [whole(0), whole(1), whole(0, "vanilla")]
    folders = made.write(root, items)
    for folder in folders:
        for name, text in CSVS.items():
            (folder / name).parent.mkdir(exist_ok=True)
            (folder / name).write_text(text)
        made.predictions(folder, [0, 1] * 20, made.one_hot([0, 1] * 20))
        (folder / "student").mkdir()
        (folder / "student/model.safetensors").write_bytes(b"no weights")
    return folders[0]


def readers(root: Path, folder: Path) -> dict[str, Callable[[], Any]]:
    """Everything that reads records, by name, each as its command does it."""
    where = ["--results-dir", str(root)]
    out = root.parent / "out"

    def best() -> Any:
        with contextlib.suppress(BadInput):
            best_setting.Records().best(run().but(data={}, results_dir=str(root)), ["lr"])

    return {
        "read": lambda: read_record(folder),
        "load": lambda: load_records(root),
        "tidy": lambda: retention.tidy(folder.parent.parent / "vanilla" / "none", "best"),
        "tidy of a neighbour": lambda: [
            retention.tidy(run, "best") for run in folder.parent.glob("s1-*")
        ],
        "lr=best": best,
        "runs": lambda: runs.main(where),
        "runs as csv": lambda: runs.main([*where, "--format", "csv"]),
        "runs as json": lambda: runs.main([*where, "--format", "json"]),
        "runs failed": lambda: runs.main([*where, "--failed"]),
        "tables": lambda: tables.main(where),
        "report": lambda: report.main(where),
        "dashboard": lambda: dashboard.main([*where, "--dry-run"]),
        "submit": lambda: submit.main([*where, "--limited", "--out", f"{out}.zip"]),
        "export": lambda: export.main([str(folder), f"{out}/hub", *where]),
        "analyse": lambda: select.to_analyse(root, []),
        "figures": lambda: figures.main(where),
    }


SLOW = ("figures",)


def survive(root: Path, folder: Path, names: Any = None) -> list[str]:
    """Run the readers, and return what each raised that is no answer to a user."""
    failures = []
    for name, read in readers(root, folder).items():
        if names is not None and name not in names:
            continue
        shown = io.StringIO()
        try:
            with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
                code = read()
        except BadInput:
            code = 2
        except BaseException as error:  # the command would end with it
            failures.append(f"{name}: {type(error).__name__}: {str(error)[:300]}")
            continue
        if isinstance(code, int) and code not in (0, 1, 2):
            failures.append(f"{name}: exit code {code}")
        if set("\x1b\0\x07\u202e") & set(shown.getvalue()):
            failures.append(f"{name}: printed what moves the cursor")
        if "Traceback" in shown.getvalue():
            failures.append(f"{name}: a traceback")
    return failures


def mutations(draw: random.Random, count: int) -> list[tuple[tuple[Any, ...], Any]]:
    record = whole()
    every = [(path, new) for path in leaves(record) for new in VALUES]
    inner = [path for path in leaves(record) if path and isinstance(path[-1], str)]
    return draw.sample([*every, *((path, new) for path in inner for new in (GONE, *KEYS))], count)


def try_one(root: Path, path: tuple[Any, ...], new: Any, names: Any = None) -> list[str]:
    folder = results(root)
    record = renewed(changed(whole(), path, new))
    (folder / "record.json").write_text(json.dumps(record))
    return survive(root, folder, names)


QUICK = ("read", "load", "tidy of a neighbour", "lr=best", "runs", "runs as json", "analyse")


@pytest.mark.parametrize("case", mutations(random.Random(0), 25), ids=lambda c: repr(c)[:60])
def test_a_record_of_anything_ends_no_command(case: Any, tmp_path: Path) -> None:
    assert try_one(tmp_path / "results", *case, (*QUICK, "export", "submit")) == []


@pytest.mark.parametrize("case", mutations(random.Random(1), 1), ids=lambda c: repr(c)[:60])
def test_nor_one_that_compares(case: Any, tmp_path: Path) -> None:
    assert try_one(tmp_path / "results", *case, ("tables", "report", "dashboard")) == []


@pytest.mark.parametrize("value", [[], "high", None, 10**400, True])
def test_a_teacher_s_score_that_is_no_number_is_named(value: Any, tmp_path: Path) -> None:
    folder = results(tmp_path)
    changes = changed(whole(), ("teacher", "dev", "f1"), value)
    (folder / "record.json").write_text(json.dumps(changes))
    (flaw,) = load_records(tmp_path).flaws
    assert "the teacher's score f1 is no number" in flaw


@pytest.mark.runs
@pytest.mark.parametrize("case", mutations(random.Random(2), 12), ids=lambda c: repr(c)[:60])
def test_nor_any_other(case: Any, tmp_path: Path) -> None:
    assert try_one(tmp_path / "results", *case) == []


def _loop(path: Path) -> None:
    path.symlink_to(path)


def _link(path: Path) -> None:
    other = path.with_name("elsewhere.json")
    other.write_text(json.dumps(whole()))
    path.symlink_to(other)


def _large(path: Path) -> None:
    path.write_text(json.dumps(whole()))
    os.truncate(path, 51 * 2**20)


PLACES: dict[str, tuple[Callable[[Path], Any], str]] = {
    "folder": (Path.mkdir, "it is a folder"),
    "loop": (_loop, "it is a link"),
    "link": (_link, "it is a link"),
    "pipe": (os.mkfifo, "it is a pipe"),
    "device": (lambda path: path.symlink_to("/dev/zero"), "it is a link"),
    "large": (_large, "it has more than 50 MB"),
    "bytes": (lambda path: path.write_bytes(b'{"id": "\xff\xfe"}'), "it is no JSON"),
    "digits": (lambda path: path.write_text("[" + "9" * 5_000 + "]"), "it is no JSON"),
    "deep": (lambda path: path.write_text("[" * 900 + "]" * 900), "levels lie within"),
    "deeper": (lambda path: path.write_text("[" * 10**5), "it is no JSON"),
}
"""What may stand in the place of a record, and what is said of it."""


@pytest.mark.parametrize("kind", PLACES)
def test_what_is_no_record_is_named_and_left_out(kind: str, tmp_path: Path) -> None:
    root = tmp_path / "results"
    folder = results(root)
    (folder / "record.json").unlink()
    make, said = PLACES[kind]
    make(folder / "record.json")
    stored = load_records(root)
    assert len(stored.records) == 2
    (flaw,) = stored.flaws
    assert flaw.startswith(f"runs/mrpc/bert_base-bert_6/pkd/{folder.name}: not used, ")
    assert said in flaw
    assert survive(root, folder, (*QUICK, "export", "submit")) == []


@pytest.mark.parametrize("number", [errno.EIO, errno.ESTALE, errno.EACCES])
def test_a_record_that_cannot_be_read_is_named_and_never_replaced(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "results"
    folder = results(root)
    before = (folder / "record.json").read_bytes()
    open_ = os.open

    def refuse(path: Any, *given: Any, **more: Any) -> int:
        if str(path) == str(folder / "record.json"):
            raise OSError(number, os.strerror(number), str(path))
        return open_(path, *given, **more)

    monkeypatch.setattr(os, "open", refuse)
    stored = load_records(root)
    assert len(stored.records) == 2 and os.strerror(number) in stored.flaws[0]
    assert survive(root, folder, QUICK) == []
    job = Mock(folder=folder, run=Mock(force=False))
    with pytest.raises(OSError, match="its record cannot be read"):
        _attempt(job)
    monkeypatch.undo()
    assert (folder / "record.json").read_bytes() == before


def test_a_damaged_record_is_set_aside_and_not_lost(tmp_path: Path) -> None:
    (tmp_path / "record.json").write_text("{")
    assert _earlier(tmp_path) is None
    assert not (tmp_path / "record.json").exists()
    assert (tmp_path / "record-1.json").read_text() == "{"


# --------------------------------------------------------------------------- the files beside it


def damaged_text(text: str, draw: random.Random) -> bytes:
    """A CSV with something else in one of its cells, cut off, or no text at all."""
    rows = [row.split(",") for row in text.splitlines()]
    kind = draw.randrange(6)
    if kind == 0:
        return text.encode()[: draw.randrange(len(text))]
    if kind == 1:
        return bytes(draw.randrange(256) for _ in range(200))
    row = rows[draw.randrange(len(rows))]
    row[draw.randrange(len(row))] = draw.choice(
        ["text", "", "-1", "0.5", "1e400", "nan", "inf", "9" * 400, '"', "\x1b[2J", "1 2 x", "=A1"]
    )
    return "\n".join(",".join(row) for row in rows).encode()


def damaged(folder: Path, name: str, seed: int) -> tuple[Path, Path]:
    """Results in which one file of a run is damaged, and the folder of that run."""
    root = folder / "results"
    run_folder = results(root)
    (run_folder / name).write_bytes(damaged_text(CSVS[name], random.Random(seed)))
    return root, run_folder


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", CSVS)
def test_the_numbers_of_a_figure_are_numbers_or_the_figure_is_left_out(
    name: str, seed: int, tmp_path: Path
) -> None:
    root, _ = damaged(tmp_path, name, seed)
    records = load_records(root).records
    for prepare in READ_BY[name]:
        with contextlib.suppress(BadInput):
            prepare(root, records)


@pytest.mark.runs
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("name", CSVS)
def test_a_damaged_file_leaves_its_figure_out_and_no_more(
    name: str, seed: int, tmp_path: Path
) -> None:
    root, folder = damaged(tmp_path, name, seed)
    assert survive(root, folder, ("figures",)) == []
    assert (root / "figures/time.svg").is_file() and (root / "figures/seeds.svg").is_file()


@pytest.mark.parametrize("name", CSVS)
def test_a_pipe_in_a_figure_s_place_is_not_waited_for(name: str, tmp_path: Path) -> None:
    folder = results(tmp_path)
    (folder / name).unlink()
    os.mkfifo(folder / name)
    records = load_records(tmp_path).records
    for prepare in READ_BY[name]:
        with pytest.raises(BadInput, match="it is a pipe"):
            prepare(tmp_path, records)


def test_nor_is_one_among_the_predictions_or_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = results(tmp_path)
    (tmp_path / "figures").mkdir()
    for path in (
        folder / "predictions/dev.parquet",
        folder / "error.txt",
        tmp_path / "figures/x.svg",
    ):
        path.unlink(missing_ok=True)
        os.mkfifo(path)
    assert report.main(["--results-dir", str(tmp_path)]) == 0
    assert "not used, the predictions are damaged" in capsys.readouterr().err


if __name__ == "__main__":
    seed, count = (int(word) for word in [*sys.argv[1:], "0", "300"][:2])
    os.environ["WANDB_MODE"] = "offline"
    for number, (path, new) in enumerate(mutations(random.Random(seed), count)):
        with tempfile.TemporaryDirectory() as folder:
            quick = None if number % 12 == 0 else set(readers(Path(), Path())) - set(SLOW)
            failures = try_one(Path(folder) / "results", path, new, quick)
        if number % 20 == 0:
            print(number, "tried", file=sys.stderr, flush=True)
        for failure in failures:
            print(".".join(map(str, path)), repr(new)[:40], failure, flush=True)
