"""The listing of runs: what it shows, what it finds missing, and what it refuses."""

from __future__ import annotations

import csv
import io
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from filelock import FileLock
from toys import read_record, write_record

from ilkd_bench import runs
from ilkd_bench.plumbing import files
from ilkd_bench.records import listing
from ilkd_bench.records.folders import run_folder, run_folders
from ilkd_bench.settings.schema import SCHEMA


def record(number: int = 0, **changes: Any) -> dict[str, Any]:
    """A made-up record of `vanilla` on `mrpc`; its id ends with the number."""
    config = {
        "teacher": {"name": "big"},
        "student": {"name": "small"},
        "method": {"name": changes.pop("method", "vanilla")},
        "task": {"name": changes.pop("task", "mrpc")},
        "seed": changes.pop("seed", 0),
        "lr": changes.pop("lr", 1e-4),
        "batch_size": 32,
    } | {key: {"name": changes.pop(key)} for key in ("teacher", "student") if key in changes}
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "id": f"abc{number:07d}",
        "status": changes.pop("status", "done"),
        "reason": None,
        "argv": [f"seed={config['seed']}", "data_dir=/my data/it's"],
        "config": config,
    }
    if found["status"] == "done":
        found |= {
            "scores": {
                "dev": {"accuracy": 0.81254, "f1": 0.7, "n": 4},
                "test": {"accuracy": 0.3},
            },
            "monitor": "dev/accuracy",
            "teacher": {"key": "k", "dev": {"accuracy": 0.9, "f1": 0.6, "n": 4}},
            "seconds": {"train": 1.25, "teacher": 2.0, "evaluate": 0.5},
        }
    return found | changes


def write(root: Path, item: dict[str, Any]) -> Path:
    folder = run_folder(root, item["config"], item["id"])
    write_record(folder, item)
    return folder


def lock(folder: Path) -> FileLock:
    return FileLock(folder.with_name(f".{folder.name}.lock"))


def listed(capsys: pytest.CaptureFixture[str], root: Path, *words: str) -> list[str]:
    """The lines that the command prints."""
    capsys.readouterr()
    assert runs.main(["--results-dir", str(root), *words]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    return out.splitlines()


def states(capsys: pytest.CaptureFixture[str], root: Path, *words: str) -> dict[str, str]:
    """Id -> state."""
    rows = json.loads("\n".join(listed(capsys, root, "--format", "json", *words)))
    return {row["id"]: row["state"] for row in rows}


def refused(capsys: pytest.CaptureFixture[str], root: Path, *words: str) -> str:
    capsys.readouterr()
    assert runs.main(["--results-dir", str(root), *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("ilkd_bench: ")
    return err


# ------------------------------------------------------------------------------------ the listing


def test_a_row_shows_who_what_came_out_how_long_and_when(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path, record())
    os.utime(folder / "record.json", (1e9, 1e9))
    head, row, total = listed(capsys, tmp_path)
    assert (
        head.split() == "state task pair method seed lr batch dev teacher seconds when id".split()
    )
    shown = row.split()
    assert shown[:6] == ["done", "mrpc", "big", "->", "small", "vanilla"]
    assert shown[6:12] == ["0", "0.0001", "32", "0.8125", "0.9000", "3.8"]
    assert shown[12].startswith("2001-09-") and shown[14:] == ["abc0000000"]
    assert total == f"1 runs in {tmp_path / 'runs'}: 1 done"


def test_the_seeds_of_a_setting_stand_together_in_their_order(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = [(1e-5, 2), (1e-5, 10), (2e-5, 2), (2e-5, 10)]
    for number, (lr, seed) in reversed(list(enumerate(settings))):
        write(tmp_path, record(number, lr=lr, seed=seed))
    assert [line[-1] for line in listed(capsys, tmp_path)[1:-1]] == ["0", "1", "2", "3"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([], "0123"),
        (["--task", "mrpc"], "01"),
        (["--task", "mrpc", "rte"], "012"),
        (["--task", "mrpc,rte"], "012"),
        (["--task", "mrpc", "--task", "rte"], "012"),
        (["--method", "rail_*"], "12"),
        (["--method", "rail"], ""),
        (["--teacher", "big"], "012"),
        (["--teacher", "big*"], "0123"),
        (["--student", "s*l"], "012"),
        (["--status", "failed", "skipped"], "13"),
        (["--status", "[fs]*"], "13"),
        (["--status", "failed", "--task", "cola"], ""),
        (["--failed"], "1"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else None,
)
def test_filters(
    words: list[str], expected: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, record(0))
    write(tmp_path, record(1, method="rail_l", status="failed"))
    write(tmp_path, record(2, method="rail_c", task="rte"))
    write(tmp_path, record(3, task="cola", teacher="big-2", student="s-tiny", status="skipped"))
    assert "".join(sorted(run[-1] for run in states(capsys, tmp_path, *words))) == expected
    total = listed(capsys, tmp_path, *words)[-1]
    assert total.startswith("4 runs" if expected == "0123" else f"{len(expected)} of 4 runs")


def test_counts_by_state_stand_at_the_end(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for number, status in enumerate(["done", "failed", "failed", "skipped", "running"]):
        write(tmp_path, record(number, status=status))
    assert listed(capsys, tmp_path)[-1].endswith(": 1 done, 1 stopped, 2 failed, 1 skipped")


def test_a_run_whose_process_is_gone_is_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [write(tmp_path, record(n, status="running")) for n in range(3)]
    with lock(folders[0]):
        pass  # left behind by a process that ended
    before = sorted(tmp_path.rglob("*"))
    with lock(folders[1]):
        found = states(capsys, tmp_path)
    assert list(found.values()) == ["stopped", "running", "stopped"]
    assert len(set(tmp_path.rglob("*")) - set(before)) <= 1, "only the lock taken here"
    with lock(folders[1]).acquire(timeout=0):  # listing left none of them locked
        assert states(capsys, tmp_path, "--status", "running") == {"abc0000001": "running"}


def test_a_run_whose_lock_cannot_be_tried_is_not_called_stopped(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path, record(status="running"))
    folder.with_name(f".{folder.name}.lock").mkdir()
    assert states(capsys, tmp_path) == {"abc0000000": "running"}


def test_a_run_that_ends_while_it_is_looked_at_is_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write(tmp_path, record(status="running"))

    def ends(_: Path) -> bool:
        write_record(folder, record())
        return False

    monkeypatch.setattr(files, "held", ends)
    assert states(capsys, tmp_path) == {"abc0000000": "done"}


def test_failed_runs_are_told_with_reason_and_traceback_in_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with_trace = write(tmp_path, record(1, status="failed", reason="RuntimeError: [/red]\nof 8 GB"))
    (with_trace / "error.txt").write_text("Traceback")
    without = write(tmp_path, record(2, status="failed", seed=3, reason="killed"))
    write(tmp_path, record(3))
    first, second, total = listed(capsys, tmp_path, "--failed")
    who = "mrpc, big -> small, vanilla, seed"
    assert first == (
        f"abc0000001  {who} 0, lr 0.0001, batch 32: RuntimeError: [/red] of 8 GB "
        f"(traceback: {with_trace}/error.txt)"
    )
    assert second == f"abc0000002  {who} 3, lr 0.0001, batch 32: killed ({without})"
    assert total.startswith("2 of 3 runs") and total.endswith(": 2 failed")


# ------------------------------------------------------------------------------- strange records


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        ("", "no JSON"),
        ('{"status": "done"', "no JSON"),
        ("\udcff", "no JSON"),
        ("[" * 100_000, "no JSON"),
        ("[]", "no record but list"),
        (json.dumps(record() | {"schema": 99}), "schema is 99"),
        (json.dumps(record() | {"status": "[red]"}), "status is '[red]'"),
    ],
)
def test_a_damaged_record_is_listed_with_the_reason(
    content: str, reason: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path, record(7, seed=5))
    (folder / "record.json").write_text(content, encoding="utf-8", errors="surrogateescape")
    write(tmp_path, record(8, task="rte"))
    _, row, _, why, total = listed(capsys, tmp_path)
    assert row.split()[:5] == ["damaged", "mrpc", "big-small", "vanilla", "5"]
    assert row.endswith("  abc0000007")
    assert why.startswith(f"damaged: {folder}/record.json: ") and reason in why
    assert total.endswith(": 1 done, 1 damaged")
    assert [read_record(one) is None for one in run_folders(tmp_path)] == [True, False]


def test_a_damaged_record_is_found_by_the_names_in_its_path(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path, record(teacher="a-b", student="c"))
    (folder / "record.json").write_text("{")
    for words in (["--teacher", "a-b"], ["--student", "c"], ["--teacher", "a*", "--student", "c"]):
        assert list(states(capsys, tmp_path, *words).values()) == ["damaged"]
    assert states(capsys, tmp_path, "--teacher", "b") == {}
    assert states(capsys, tmp_path, "--student", "a-b") == {}


def test_a_record_that_may_not_be_read_is_damaged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path, record())
    (folder / "record.json").unlink()
    (folder / "record.json").mkdir()
    assert states(capsys, tmp_path) == {"abc0000000": "damaged"}


@pytest.mark.parametrize("key", sorted(record().keys() - {"schema", "status"}))
@pytest.mark.parametrize("value", [None, "nonsense", [1], {}], ids=str)
def test_a_record_that_lacks_a_part_is_listed(
    key: str, value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = record()
    folder = write(tmp_path, changed)
    if value is None:
        del changed[key]
    else:
        changed[key] = value
    write_record(folder, changed)
    for words in ([], ["--failed"], ["--format", "csv"], ["--format", "json"]):
        listed(capsys, tmp_path, *words)
    (run,) = listing.load(tmp_path)
    assert (run.state, run.task, run.method, run.seed) == ("done", "mrpc", "vanilla", 0)
    assert run.id in ("abc0000000", value)
    assert [run.dev is None, run.lr is None, run.command is None] == [
        key in ("scores", "monitor"),
        key == "config",
        key == "argv" and not isinstance(value, list),
    ]


@pytest.mark.parametrize(
    "value",
    ["fast", [1], {"x": 1}, float("nan"), float("inf"), 10**400],
    ids=["text", "list", "object", "nan", "inf", "huge"],
)
def test_a_value_that_is_no_number_is_left_out(
    value: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    changed = record(lr=value, seconds={"train": value, "evaluate": 0.5})
    changed["scores"]["dev"]["accuracy"] = changed["teacher"]["dev"]["accuracy"] = value
    (write(tmp_path, record()) / "record.json").write_text(json.dumps(changed))
    row = listed(capsys, tmp_path)[1].split()
    assert row[5:9] == ["vanilla", "0", "32", "0.5"]
    (found,) = json.loads("\n".join(listed(capsys, tmp_path, "--format", "json")))
    assert [found[key] for key in ("lr", "dev", "teacher_dev", "seconds")] == [None] * 3 + [0.5]


def test_names_are_shown_as_they_are_and_lines_stay_whole(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    strange = {"method": "[/red]x[b]", "task": "t" * 900, "student": "größer:smile:長い名前"}
    write_record(write(tmp_path, record(1)), record(1, **strange))
    write(tmp_path, record(2, method="a\x1b[31m\nb"))
    _, second, first, _ = listed(capsys, tmp_path)
    for name in strange.values():
        assert name in first
    assert "[31m b" in second and "\x1b" not in second


# ------------------------------------------------------------------------------------- the terminal


@pytest.mark.parametrize("width", [80, 100, 120, 140])
def test_a_narrow_terminal_folds_names_and_cuts_nothing(width: int, tmp_path: Path) -> None:
    teacher, student = "teacher_of_many_layers", "student_of_few"
    write(tmp_path, record(1, teacher=teacher, student=student, task="demo_paraphrase"))
    head, *lines = listing.rows(listing.load(tmp_path), width)
    columns = [c for c in listing.COLUMNS if c in head.split()]
    left_out = [c for c in listing.COLUMNS if c not in columns]
    assert set(left_out) <= set(listing.DROPPED)
    if left_out:
        assert lines.pop() == (
            f"left out: {', '.join(c for c in listing.DROPPED if c in left_out)} "
            "(a wider terminal or --format csv shows them)"
        )
    assert all(len(line) <= width for line in [head, *lines])
    pair = slice(head.index("pair"), head.index("method"))
    folded = "".join(line[pair].strip() for line in lines).replace(" ", "")
    assert folded == f"{teacher}->{student}"
    assert "abc0000001" in lines[0]
    assert bool(left_out) == (width < 110)


def test_on_a_terminal_states_have_colours_and_lines_its_width(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Terminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    write(tmp_path, record(method="[red]" * 9))
    terminal = Terminal()
    monkeypatch.setattr(sys, "stdout", terminal)
    for name, value in {"COLUMNS": "90", "TERM": "xterm-256color"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert runs.main(["--results-dir", str(tmp_path)]) == 0
    lines = terminal.getvalue().splitlines()
    assert lines[1].startswith("\x1b[32mdone\x1b[0m")
    assert all(len(line) <= 90 + len("\x1b[32m\x1b[0m") for line in lines[:-1])


# ------------------------------------------------------------------------------------- csv and json


def test_csv_and_json_have_all_fields_unrounded(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = write(tmp_path, record(1))
    write(tmp_path, record(2, status="failed", reason="one,\ntwo"))
    first, second = json.loads("\n".join(listed(capsys, tmp_path, "--format", "json")))
    assert (first["dev"], first["metric"], first["teacher_dev"]) == (0.81254, "accuracy", 0.9)
    assert (first["seconds"], first["folder"]) == (3.75, str(folder))
    assert second["reason"] == "one,\ntwo" and second["dev"] is None
    text = "\n".join(listed(capsys, tmp_path, "--format", "csv"))
    rows = list(csv.DictReader(io.StringIO(text)))
    for row, expected in zip(rows, (first, second), strict=True):
        assert row == {k: "" if v is None else str(v) for k, v in expected.items()}


# -------------------------------------------------------------------------------------- one command


def test_the_command_of_a_run_can_be_pasted_into_a_shell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write(tmp_path, record(1))
    write(tmp_path, record(12, seed=4))
    for typed in ("abc000001", "abc0000012"):
        (line,) = listed(capsys, tmp_path, "--command", typed)
        words = ["python", "-m", "ilkd_bench.run", "seed=4", "data_dir=/my data/it's"]
        assert shlex.split(line) == words


def test_an_id_that_names_no_run_or_several_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [write(tmp_path, record(n)) for n in range(12)]
    said = refused(capsys, tmp_path, "--command", "abc")
    assert "begins 12 ids" in said and "2 more" in said
    assert str(folders[9]) in said and "abc0000010" not in said
    for typed in ("abd", "bc0000001", "abc00000011"):
        assert f"begins with {typed!r}" in refused(capsys, tmp_path, "--command", typed)


def test_a_record_without_its_command_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    older = record(1)
    del older["argv"]
    write(tmp_path, older)
    folder = write(tmp_path, record(2))
    (folder / "record.json").write_text("{")
    assert "has no argv" in refused(capsys, tmp_path, "--command", "abc0000001")
    assert "no JSON" in refused(capsys, tmp_path, "--command", "abc0000002")


# ----------------------------------------------------------------------------- what is not done yet


@pytest.fixture
def sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[list[str], Any]]:
    """The words of six runs, and their jobs: done, failed, running, stopped, damaged, missing."""
    from ilkd_bench.jobs import plan

    monkeypatch.chdir(tmp_path)
    words = ["-m", "method=vanilla,pkd", "seed=0,1,2", "lr=1e-4", "cache_dir=c d"]
    jobs = plan.plan(words)
    for job, status in zip(jobs, ["done", "failed", "running", "running"], strict=False):
        found = record(status=status) | {"id": job.id, "config": job.run.identity}
        write_record(job.folder, found)
    damaged = jobs[4].folder / "record.json"
    damaged.parent.mkdir(parents=True)
    damaged.write_text("")
    with lock(jobs[2].folder):
        yield words, jobs


EXPECTED = ["done", "failed", "running", "stopped", "damaged", "missing"]


@pytest.mark.runs
def test_missing_lists_what_is_not_done_with_the_line_that_does_it(
    sweep: tuple[list[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    from ilkd_bench.jobs import plan

    words, jobs = sweep
    assert runs.main(["--missing", *words]) == 0
    out, err = capsys.readouterr()
    *lines, total = out.splitlines()
    assert err == ""
    assert total == ("1 of 6 runs are done; 1 running, 1 stopped, 1 failed, 1 missing, 1 damaged")
    assert [line.split()[0] for line in lines] == EXPECTED[1:]
    for line, job in zip(lines, jobs[1:], strict=True):
        _, *start, method, seed, lr, cache = shlex.split(line)
        assert start == ["python", "-m", "ilkd_bench.run"]
        (again,) = plan.plan([method, seed, lr, cache])
        assert again.id == job.id


def test_missing_takes_filters_and_formats_before_it(
    sweep: tuple[list[str], Any], capsys: pytest.CaptureFixture[str]
) -> None:
    words, jobs = sweep
    argv = ["--method", "pkd", "--status", "missing", "damaged", "--format", "json", "--missing"]
    assert runs.main([*argv, words[1], "-m", *words[2:]]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert [(row["id"], row["state"]) for row in rows] == [
        (jobs[4].id, "damaged"),
        (jobs[5].id, "missing"),
    ]
    assert rows[1]["seed"] == 2 and rows[1]["lr"] == 1e-4 and rows[1]["when"] is None
    assert runs.main(["--method", "pkd", "--missing", *words]) == 0
    assert "0 of 3 runs are done" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["method=nope"], "method=nope is unknown"),
        (["method=vanilla,pkd"], "add -m"),
        (["seed=0", "--status", "done"], "--status after --missing"),
        (["--help"], "--help after --missing"),
    ],
    ids=lambda v: " ".join(v) if isinstance(v, list) else None,
)
def test_missing_refuses_what_a_run_would(
    words: list[str],
    expected: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    assert runs.main(["--missing", *words]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("ilkd_bench: ") and expected in err


# -------------------------------------------------------------------------------------- wrong input


def test_a_folder_without_runs_says_what_to_type(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    said = refused(capsys, tmp_path)
    assert "--results-dir DIR" in said and "python -m ilkd_bench.run " in said
    (tmp_path / "runs").mkdir()
    assert listed(capsys, tmp_path) == [f"0 runs in {tmp_path / 'runs'}"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--status", "finished"], ["--status finished", "done, running, stopped"]),
        (["--failed", "--status", "done"], ["leave --status out"]),
        (["--failed", "--command", "abc"], ["--command", "not allowed with", "--failed"]),
        (["--command", "abc", "--format", "csv"], ["leave --format out"]),
        (["--results-dir", "x", "--missing", "seed=0"], ["results_dir=x"]),
        (["--format", "xml"], ["xml", "table", "csv", "json"]),
        (["--task"], ["--task"]),
        (["--what"], ["--what"]),
    ],
    ids=lambda v: " ".join(v),
)
def test_a_command_that_cannot_be_meant_is_refused_with_help(
    words: list[str], expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        runs.main(words)
    out, err = capsys.readouterr()
    assert ended.value.code == 2 and out == ""
    assert all(part in err.splitlines()[-1] for part in expected), err


def test_a_reader_that_has_enough_is_no_error(tmp_path: Path) -> None:
    for number in range(400):
        write(tmp_path / "results", record(number, task="t" * 200))
    process = subprocess.Popen(
        [sys.executable, "-m", "ilkd_bench.runs"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stdout is not None and process.stderr is not None
    assert process.stdout.readline().startswith(b"state ")
    process.stdout.close()
    assert process.stderr.read() == b""
    process.stderr.close()
    assert process.wait(60) == 0
