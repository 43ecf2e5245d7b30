"""How verbs begin and end, and the lines that they advise."""

from __future__ import annotations

import importlib
import io
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import made
import pytest

from ilkd_bench.__main__ import VERBS
from ilkd_bench.comparison import results
from ilkd_bench.jobs import plan, planned, sweep
from ilkd_bench.plumbing import command
from ilkd_bench.plumbing.interrupts import Terminated
from ilkd_bench.records import card, find, listing
from ilkd_bench.records.read import finished, record_of, write_record
from ilkd_bench.records.record import Record
from ilkd_bench.reporting.page import missing
from ilkd_bench.reporting.tables import paper_tables, papers
from ilkd_bench.students import inspect, load, select
from ilkd_bench.types import BadInput


@pytest.fixture(autouse=True)
def interruptible(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The end of a command hears of no interrupt; here it is not the end of the process."""
    monkeypatch.setattr(sys, "unraisablehook", sys.unraisablehook)
    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [signal.getsignal(number) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


HARD = [
    "method=glob(rail*)",
    "task.labels=[no, yes]",
    'data_dir=/my data/it\'s "here"',
    "student.name=$HOME `id` \\ * ; & | < > ~ # !",
    "teacher.recipe={epochs: 3}",
    "logger.group=größer 長い",
]
"""Words that a shell would change."""


def typed(line: str) -> list[str]:
    """Return the words that a real shell gives the program of a line after `python -m MODULE`."""
    script = f"python() {{ printf '%s\\0' \"$@\"; }}\n{line}\n"
    done = subprocess.run(["bash", "-c", script], capture_output=True, check=True, timeout=60)
    assert done.stderr == b""
    first, module, *words = done.stdout.decode().removesuffix("\0").split("\0")
    assert first == "-m" and module.startswith("ilkd_bench.")
    return words


def after(marker: str, text: str) -> str:
    """Return what follows a marker in a message, which is its last line."""
    return text.partition(marker)[2].partition("\n")[0]


# ------------------------------------------------------------------------------------------ folders


@pytest.mark.parametrize("verb", sorted(VERBS.keys() - {"run", "general"}))
def test_a_tilde_is_the_home_folder_in_every_option_of_a_verb(
    verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`--results-dir=~/r`, which a shell leaves as it is."""
    monkeypatch.setenv("HOME", "/home of/me")
    module = importlib.import_module(f"ilkd_bench.{verb}")
    parser = module._parser() if hasattr(module, "_parser") else command.parser(verb, "")
    assert [a.dest for a in parser._actions if a.type is Path] == []
    options = [a for a in parser._actions if a.dest == "out" or a.dest.endswith("dir")]
    assert options
    for option in options:
        assert option.type is not None
        assert str(option.type("~/r")) == "/home of/me/r"
        assert str(option.type("r/~")) == "r/~"


# ------------------------------------------------------------------------------------ lines to type


def test_a_line_comes_back_from_a_shell_as_it_was() -> None:
    assert typed(command.run_line(HARD)) == HARD
    assert typed(command.line("runs", "--results-dir", Path("/a b"))) == ["--results-dir", "/a b"]


def test_words_at_the_end_replace_those_of_their_key() -> None:
    line = command.run_line(["-m", "seed=0", "seed_of=1", "force=false"], "seed=1,2", "force=true")
    assert line == "python -m ilkd_bench.run -m seed_of=1 seed=1,2 force=true"


def stored(tmp_path: Path, status: str = "failed") -> tuple[Path, Record]:
    content = made.record("m", status=status) | {"argv": HARD}
    folder = made.folder_of(tmp_path, content)
    found = record_of(content, folder.relative_to(tmp_path).as_posix())
    write_record(folder, found)
    return folder, found


def advice_of_the_listing(tmp_path: Path, capsys: Any, monkeypatch: Any) -> tuple[str, list[str]]:
    return listing.command_of(stored(tmp_path)[0]), HARD


def advice_of_an_unfinished_run(
    tmp_path: Path, capsys: Any, monkeypatch: Any
) -> tuple[str, list[str]]:
    with pytest.raises(BadInput) as error:
        finished(stored(tmp_path)[0])
    return after("Run it first: ", str(error.value)), HARD


def advice_of_a_student_that_was_not_kept(
    tmp_path: Path, capsys: Any, monkeypatch: Any
) -> tuple[str, list[str]]:
    with pytest.raises(BadInput) as error:
        load.require_student(*stored(tmp_path))
    return after("Make it again: ", str(error.value)), [*HARD, "force=true", "keep_student=all"]


def advice_of_the_analysis(tmp_path: Path, capsys: Any, monkeypatch: Any) -> tuple[str, list[str]]:
    _, found = stored(tmp_path, status="done")
    options: Any = {"rows": 2, "seed": 0, "data_dir": None, "cache_dir": None, "force": False}
    monkeypatch.setattr("ilkd_bench.plumbing.terminal.console.width", 10_000)
    assert inspect.analyse_all([found], tmp_path, **options) == ["left out"]
    said = after("type ", capsys.readouterr().err)
    return said, [*HARD, "keep_student=all", "force=true"]


def advice_of_the_plan(tmp_path: Path, capsys: Any, monkeypatch: Any) -> tuple[str, list[str]]:
    words = ["method=glob(rail*)", f"results_dir={tmp_path}/a b"]
    with pytest.raises(BadInput) as error:
        plan.plan(words)
    return after("add -m to run them all (", str(error.value))[:-1], ["-m", *words]


def advice_of_missing_seeds(tmp_path: Path, capsys: Any, monkeypatch: Any) -> tuple[str, list[str]]:
    return str(missing._filling([*HARD, "seed=0"], (1, 2))), ["-m", *HARD, "seed=1,2"]


def advice_of_a_papers_table(
    tmp_path: Path, capsys: Any, monkeypatch: Any
) -> tuple[str, list[str]]:
    changed = "assistants=[10, 8] labels=['no', 'yes'] scale=$x"
    row = papers.Row("a (b)", f"takd ({changed})")
    column = papers.Column("RTE", "rte")
    table = papers.Table(
        name="t",
        paper="p",
        title="t",
        teacher="t 1",
        student="s",
        rows=(row,),
        columns=(column,),
    )
    (line,) = paper_tables._commands(table, [], {row.label: {}})
    methods = ["method.assistants=[10, 8]", "method.labels=['no', 'yes']", "method.scale=$x"]
    choice = ["-m", "teacher=t 1", "student=s", "method=takd", "task=rte"]
    return line, [*choice, *methods, "seed=0,1,2,3,4"]


def advice_of_the_card(tmp_path: Path, capsys: Any, monkeypatch: Any) -> tuple[str, list[str]]:
    return after("```\n", card._repeat(HARD)), HARD


def advice_of_an_unknown_id(tmp_path: Path, capsys: Any, monkeypatch: Any) -> tuple[str, list[str]]:
    folder = tmp_path / "it's (mine) $x"
    with pytest.raises(BadInput) as error:
        find.find("zzz", folder)
    line = after("no folder of a run; ", str(error.value)).removesuffix(" lists them")
    return line, ["--results-dir", str(folder)]


def advice_of_a_sweep(tmp_path: Path, capsys: Any, monkeypatch: Any) -> tuple[str, list[str]]:
    results_dir = str(tmp_path / "a b")
    folder, _ = stored(tmp_path / "a b", status="done")
    run = SimpleNamespace(results_dir=results_dir)
    job: Any = SimpleNamespace(id="a", folder=folder, run=run)
    assert sweep.report([job]) == 0
    return after("table: ", capsys.readouterr().out), ["--results-dir", results_dir]


def advice_of_what_is_planned(
    tmp_path: Path, capsys: Any, monkeypatch: Any
) -> tuple[str, list[str]]:
    words = ["method=takd", "method.assistants=[10, 8]", f"results_dir={tmp_path}/a b"]
    (run,) = planned.planned(words)
    return str(run.command), words


ADVICE = [place for name, place in sorted(globals().items()) if name.startswith("advice_")]


@pytest.mark.parametrize("advice", ADVICE, ids=lambda place: place.__name__)
def test_every_line_that_is_advised_can_be_pasted_into_a_shell(
    advice: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    line, words = advice(tmp_path, capsys, monkeypatch)
    assert typed(line) == words


def test_choices_that_are_listed_can_be_pasted(tmp_path: Path) -> None:
    """The options of `submit` and of nothing else."""
    words = select._options(("a", "b", "vanilla (temperature=5)"))
    assert words == ["--teacher", "a", "--student", "b", "--method", "vanilla (temperature=5)"]


def test_without_records_every_reader_says_the_same(tmp_path: Path) -> None:
    expected = str(command.no_runs(tmp_path))
    assert "--results-dir DIR" in expected and "python -m ilkd_bench.run -m method=" in expected
    for ask in (listing.load, results.load, lambda folder: select.to_analyse(folder, [])):
        with pytest.raises(BadInput) as error:
            ask(tmp_path)
        assert str(error.value) == expected


# ------------------------------------------------------------------------------------------ the end


def raising(error: BaseException) -> command.Main:
    @command.verb
    def main(argv: Sequence[str]) -> int:
        raise error

    return main


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (BadInput("method=nope is unknown"), "method=nope is unknown"),
        (
            PermissionError(13, "Permission denied", "results/runs"),
            "results/runs: Permission denied",
        ),
        (OSError("no number"), "no number"),
    ],
    ids=str,
)
def test_what_the_user_can_mend_is_one_line_and_code_2(
    error: Exception, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert raising(error)([]) == 2
    assert capsys.readouterr() == ("", f"ilkd_bench: {said}\n")


def test_a_name_that_is_no_utf8_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = os.fsdecode(b"p\xe9")

    @command.verb
    def main(argv: Sequence[str]) -> int:
        (tmp_path / "file").write_text(name, encoding="utf-8")
        return 0

    assert main([]) == 2
    said = capsys.readouterr().err
    assert said.startswith(r"ilkd_bench: 'p\udce9' is no UTF-8: ") and said.count("\n") == 1


def test_a_defect_of_ours_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        raising(ZeroDivisionError())([])


@pytest.mark.parametrize(
    ("error", "code"), [(KeyboardInterrupt(), 130), (SystemExit(3), 3), (BrokenPipeError(), 0)]
)
def test_other_ends(error: BaseException, code: int, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        command.cli(raising(error), [])
    assert ended.value.code == code
    assert capsys.readouterr().err == ("ilkd_bench: stopped\n" if code == 130 else "")


@pytest.mark.parametrize("other", [BadInput(), OSError("no file"), AttributeError()])
@pytest.mark.parametrize(("interrupt", "code"), [(KeyboardInterrupt(), 130), (Terminated(), 143)])
@pytest.mark.parametrize("begun", [True, False])
def test_an_interrupt_that_a_library_replaces_is_one(
    begun: bool,
    interrupt: BaseException,
    code: int,
    other: Exception,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """As OmegaConf does: what it clears up in the end is half made, and it fails.

    Inside a verb, or before it has begun, while it is being imported.
    """

    def main(argv: Sequence[str]) -> int:
        try:
            try:
                raise interrupt
            finally:
                raise other
        except Exception as error:
            raise type(other)() from error

    with pytest.raises(SystemExit) as ended:
        command.cli(command.verb(main) if begun else main, [])
    assert ended.value.code == code
    assert capsys.readouterr().err == "ilkd_bench: stopped\n"


def test_letters_that_the_terminal_lacks_are_escaped(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="ascii"))

    def main(argv: Sequence[str]) -> int:
        print("größer → 長い")
        return 0

    with pytest.raises(SystemExit):
        command.cli(main, [])
    assert written.getvalue() == rb"gr\xf6\xdfer \u2192 \u9577\u3044" + b"\n"


SAYS = """
import sys
from ilkd_bench.plumbing import command
from ilkd_bench.plumbing.interrupts import Terminated

def main(argv):
    print("said " * int(argv[0]))
    open("made", "w").close()
    command.complain("a word")
    return 0

command.cli(main)
"""


def ends(folder: Path, redirections: str, *, words: str = "1", script: str = SAYS) -> Any:
    """Run a command in a shell that redirects its streams."""
    folder.mkdir(exist_ok=True)
    (folder / "says.py").write_text(script)
    line = f'"{sys.executable}" says.py {words} {redirections}'
    return subprocess.run(
        ["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )


LOST = "ilkd_bench: what was to be printed is lost: standard output: "


@pytest.mark.parametrize(
    ("redirections", "code", "last"),
    [
        (">&-", 1, f"{LOST}Bad file descriptor"),
        ("<&- >&-", 1, f"{LOST}Bad file descriptor"),
        ("> /dev/full", 1, f"{LOST}No space left on device"),
        ("2>&-", 0, None),
        ("<&- >&- 2>&-", 1, None),
    ],
)
@pytest.mark.parametrize("words", ["1", "9999"])  # printed at the end, and before
def test_output_that_cannot_be_written_is_one_line_and_code_1(
    redirections: str, code: int, last: str | None, words: str, tmp_path: Path
) -> None:
    done = ends(tmp_path, redirections, words=words)
    assert done.returncode == code and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1:] == ([] if last is None else [last])
    assert words == "9999" or (tmp_path / "made").read_text() == "", "no stream is a file of ours"


def test_a_working_directory_that_is_gone_is_told(tmp_path: Path) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    line = f'rmdir "$PWD"; exec "{sys.executable}" -m ilkd_bench runs'
    done = subprocess.run(
        ["bash", "-c", line], cwd=folder, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 2
    assert done.stderr == (
        "ilkd_bench: the working directory is gone (No such file or directory): type `cd DIR` "
        "first\n"
    )


SLOW = """
import os, pathlib, time
pathlib.Path(os.environ["BEGUN"]).touch()
time.sleep(60)
"""


@pytest.mark.parametrize(
    ("verb", "slow", "number"),
    [("run", "hydra", signal.SIGINT), ("report", "pydantic", signal.SIGTERM)],
)
def test_a_signal_while_a_verb_is_imported_is_one_line_and_its_code(
    verb: str, slow: str, number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / f"{slow}.py").write_text(SLOW)
    place = {"PYTHONPATH": f"{tmp_path}{os.pathsep}{plan.ROOT}", "BEGUN": str(tmp_path / "begun")}
    process = subprocess.Popen(
        [sys.executable, "-m", f"ilkd_bench.{verb}"],
        env=os.environ | place,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )
    end = time.monotonic() + 60
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < end and process.poll() is None
        time.sleep(0.01)
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said) == (128 + number, "ilkd_bench: stopped\n")


@pytest.mark.parametrize("error", [MemoryError(), ImportError("lib.so: failed to map segment")])
def test_too_little_memory_is_one_line_where_it_is_limited_and_a_traceback_where_not(
    error: Exception, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    unlimited = command.resource.RLIM_INFINITY
    monkeypatch.setattr(command.resource, "getrlimit", lambda _: (unlimited, unlimited))
    with pytest.raises(type(error)):
        command.cli(raising(error), [])
    monkeypatch.setattr(command.resource, "getrlimit", lambda _: (2**20, unlimited))
    with pytest.raises(SystemExit) as ended:
        command.cli(raising(error), [])
    assert ended.value.code == 2
    said = capsys.readouterr().err
    assert said.startswith(f"ilkd_bench: {type(error).__name__}") and "`ulimit -v` is 1024" in said


def test_options_of_numbers_say_what_is_allowed(capsys: pytest.CaptureFixture[str]) -> None:
    parser = command.parser("runs", "Lists.")
    parser.add_argument("--rows", type=command.whole_number(2))
    parser.add_argument("--size", type=command.amount)
    args = parser.parse_args(["--rows", "2", "--size", "0.5"])
    assert (args.rows, args.size) == (2, 0.5)
    for words, allowed in (
        (["--rows", "1"], "a whole number from 2"),
        (["--rows", "2.0"], "a whole number from 2"),
        (["--size", "nan"], "a number from 0"),
        (["--size", "-1"], "a number from 0"),
    ):
        with pytest.raises(SystemExit) as ended:
            parser.parse_args(words)
        assert ended.value.code == 2 and allowed in capsys.readouterr().err
