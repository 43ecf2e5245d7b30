"""The one console script: what it lists, what it imports, and how it completes words."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

import pytest
from records.test_listing import record, write

from ilkd_bench import __main__ as script
from ilkd_bench.plumbing import command

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "ilkd_bench"


def start(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run `python -m WORDS`."""
    return subprocess.run(
        [sys.executable, "-m", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        **options,
    )


def test_the_verbs_are_the_modules_at_the_top() -> None:
    modules = {path.stem for path in PACKAGE.glob("*.py")} - {"__init__", "__main__", "types"}
    assert set(script.VERBS) == modules and len(modules) == 11
    for verb in modules:
        assert callable(import_module(f"ilkd_bench.{verb}").main)
        head, begin, _ = (PACKAGE / f"{verb}.py").read_text().partition(f'begin("{verb}")')
        assert begin and "\nimport " not in head and "\nfrom ilkd_bench" not in head, verb


def test_the_installed_script_is_this_one() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["scripts"] == {command.SCRIPT: "ilkd_bench.__main__:cli"}


@pytest.mark.parametrize("words", [[], ["--help"], ["-h"]], ids=str)
def test_the_verbs_are_listed_with_a_line_each(
    words: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert script.main(words) == 0
    out, err = capsys.readouterr()
    assert err == ""
    lines = out.splitlines()
    for verb, what in script.VERBS.items():
        assert f"  {verb:<10} {what}" in lines


def test_a_word_that_is_no_verb_is_answered_with_the_nearest(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert script.main(["exprot"]) == 2
    out, err = capsys.readouterr()
    assert out == "" and len(err.splitlines()) == 1
    assert err.startswith("ilkd_bench: exprot is no verb: did you mean export? Allowed are run, ")
    assert all(verb in err for verb in script.VERBS)
    assert script.main(["--nothing"]) == 2
    assert script.main(["--completion", "fish"]) == 2


@pytest.mark.parametrize(
    "words",
    ["ilkd_bench", "ilkd_bench run", "ilkd_bench run -m", "ilkd_bench.run", "ilkd_bench.banks"],
)
def test_the_version_is_ours(words: str) -> None:
    done = start(*words.split(), "--version")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == f"ilkd_bench {metadata.version('ilkd_bench')}\n"


def test_a_copy_that_is_not_installed_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", absent)
    assert "not installed" in command.version()


@pytest.mark.parametrize("words", ["", "--help", "--version", "--completion bash", "nonsense"])
def test_no_verb_is_imported_for_the_list(words: str) -> None:
    code = (
        "import sys; from ilkd_bench.__main__ import main, VERBS; main(sys.argv[1:]); "
        "heavy = ['rich', 'pandas', 'torch', 'hydra', *(f'ilkd_bench.{v}' for v in VERBS)]; "
        "sys.exit(any(name in sys.modules for name in heavy))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *words.split()], capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_only_the_verb_that_is_asked_for_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from ilkd_bench.__main__ import main, VERBS; main(['banks']); "
        "print([v for v in VERBS if f'ilkd_bench.{v}' in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=60,
        check=True,
    )
    assert done.stdout.splitlines()[-1] == "['banks']"


@pytest.mark.runs
@pytest.mark.parametrize("verb", sorted(script.VERBS))
def test_a_verb_answers_in_its_own_module_and_after_the_script(verb: str, tmp_path: Path) -> None:
    """The same words give the same answer, whichever way they were typed."""
    module = start(f"ilkd_bench.{verb}", "--help", cwd=tmp_path)
    after_script = start("ilkd_bench", verb, "--help", cwd=tmp_path)
    assert module.returncode == after_script.returncode == 0
    assert module.stdout == after_script.stdout and f"ilkd_bench.{verb}" in module.stdout
    assert module.stderr == after_script.stderr == ""


def test_help_names_the_script_where_that_was_typed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["/usr/bin/ilkd-bench", "runs", "--help"])
    with pytest.raises(SystemExit):
        script.main(sys.argv[1:])
    assert capsys.readouterr().out.startswith("usage: ilkd-bench runs ")


# ------------------------------------------------------------------------ readers, folders, letters


def without_reader(folder: Path, *words: str) -> tuple[int, str]:
    """Run `python -m ilkd_bench WORDS` with nobody reading; return exit code and stderr."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [sys.executable, "-m", "ilkd_bench", *words],
            stdout=writing,
            stderr=subprocess.PIPE,
            text=True,
            cwd=folder,
            timeout=120,
            check=False,
        )
    finally:
        os.close(writing)
    return done.returncode, done.stderr


@pytest.mark.runs
@pytest.mark.parametrize("verb", sorted(script.VERBS))
def test_a_reader_that_has_enough_ends_every_verb_in_silence(verb: str, tmp_path: Path) -> None:
    assert without_reader(tmp_path, verb, "--help") == (0, "")


@pytest.mark.runs
@pytest.mark.parametrize("words", ["runs", "runs --format csv", "banks", "run --cfg job", "--help"])
def test_so_does_one_of_a_verbs_output(words: str, tmp_path: Path) -> None:
    for number in range(3):
        write(tmp_path / "results", record(number, task="t" * 200))
    assert without_reader(tmp_path, *words.split()) == (0, "")


def test_letters_of_a_record_reach_any_terminal(tmp_path: Path) -> None:
    write(tmp_path / "results", record(1, method="größer"))
    environment = os.environ | {"PYTHONIOENCODING": "ascii", "PYTHONUTF8": "0"}
    done = start("ilkd_bench.runs", cwd=tmp_path, env=environment)
    assert done.returncode == 0 and r"gr\xf6\xdfer" in done.stdout


READERS = {
    "runs": [],
    "tables": [],
    "figures": [],
    "report": [],
    "dashboard": ["--dry-run"],
    "analyse": [],
    "submit": [],
    "export": ["abc", "out"],
}


@pytest.mark.parametrize("verb", READERS)
def test_a_folder_that_may_not_be_read_is_one_line(
    verb: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Tests may run as a user who may read everything: the refusal is played."""
    write(tmp_path, record(1))
    closed = tmp_path / "runs" / "mrpc"
    scan = os.scandir

    def refuse(path: Any = ".") -> Any:
        if Path(path) == closed:
            raise PermissionError(13, "Permission denied", str(path))
        return scan(path)

    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.chdir(tmp_path)
    assert script.main([verb, *READERS[verb], "--results-dir", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err == f"ilkd_bench: {closed}: Permission denied\n"


@pytest.mark.parametrize("verb", READERS)
def test_a_file_in_place_of_the_folder_of_runs_is_one_line(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "runs").write_text("")
    monkeypatch.chdir(tmp_path)
    assert script.main([verb, *READERS[verb], "--results-dir", str(tmp_path)]) == 2
    out, err = capsys.readouterr()
    assert out == "" and err.startswith("ilkd_bench: ") and len(err.splitlines()) == 1
    assert str(tmp_path) in err


def test_banks_of_a_folder_that_may_not_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(path: Path) -> Any:
        raise PermissionError(13, "Permission denied", str(path))

    (tmp_path / "banks").mkdir()
    monkeypatch.setattr(Path, "iterdir", refuse)
    assert script.main(["banks", "--cache-dir", str(tmp_path)]) == 2
    assert capsys.readouterr().err == f"ilkd_bench: {tmp_path / 'banks'}: Permission denied\n"


# --------------------------------------------------------------------------------------- completion


@pytest.fixture
def shell(tmp_path: Path) -> Path:
    """A folder with `ilkd-bench` as pip would install it."""
    program = tmp_path / "bin" / command.SCRIPT
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m ilkd_bench "$@"\n')
    program.chmod(0o755)
    return program.parent


def completed(shell: Path, line: str, breaks: str = " \t\n\"'><=;|&(:") -> list[str]:
    """Return what bash offers for a line at its end, as its library readline would ask."""
    words = line.replace("=", " = ").split(" ") if "=" in breaks else line.split(" ")
    array = " ".join(f"'{word}'" for word in words)
    code = f"""
        eval "$(ilkd-bench --completion bash)"
        COMP_WORDBREAKS=$1 COMP_LINE='{line}' COMP_POINT={len(line)}
        COMP_WORDS=({array}) COMP_CWORD={len(words) - 1}
        _ilkd_bench ilkd-bench
        printf '%s\\n' "${{COMPREPLY[@]}}"
        complete -p ilkd-bench >&2
    """
    done = subprocess.run(
        ["bash", "-c", code, "bash", breaks],
        env=os.environ | {"PATH": f"{shell}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        cwd=shell,
        timeout=120,
        check=True,
    )
    assert done.stderr.strip().endswith("-F _ilkd_bench ilkd-bench"), done.stderr
    return done.stdout.split()


def test_bash_completes_verbs(shell: Path) -> None:
    assert completed(shell, "ilkd-bench ru") == ["run", "runs"]
    assert completed(shell, "ilkd-bench ") == [*script.VERBS, "--help", "--version"]
    assert completed(shell, "ilkd-bench runs --sta") == [], "files, by bash itself"


@pytest.mark.runs
def test_bash_completes_settings_and_choices_of_a_run(shell: Path) -> None:
    assert "method=" in completed(shell, "ilkd-bench run met")
    offered = completed(shell, "ilkd-bench run seed=0 method=rail")
    assert {"rail_l", "rail_c"} <= set(offered) and "method=rail_l" not in offered
    whole = completed(shell, "ilkd-bench run method=rail", breaks=" \t\n")
    assert {"method=rail_l", "method=rail_c"} <= set(whole)
