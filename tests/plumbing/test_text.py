"""Foreign text where it is shown: it is text there, and nothing else."""

from __future__ import annotations

import csv
import io
import subprocess

import pandas as pd
import pytest

from ilkd_bench.plumbing import command, text

ODD = [
    "plain",
    "it's",
    "a b",
    "$(touch x)",
    "`id`",
    "a\nb",
    "\x1b[31mred\x07",
    "\\",
    "'\n\\'",
    "é \u202e x",
    "=1",
    "a;b&c|d",
]


@pytest.mark.parametrize("word", ODD)
def test_a_word_is_typed_as_one_line_and_the_shell_reads_it_as_it_was(word: str) -> None:
    typed = text.word(word)
    assert typed.isprintable()
    told = subprocess.run(
        ["bash", "-c", f"printf %s {typed}"],
        capture_output=True,
        check=True,
        env={"LC_ALL": "C.UTF-8"},
    )
    assert told.stdout.decode() == word


def test_a_line_to_type_has_settings_alone() -> None:
    words = [
        *("method=pkd", "task.labels=[a,b]", "method._target_=os.system", "--config-dir=/tmp/x"),
        *(
            "student={_target_: os.system}",
            "hydra.launcher.x=1",
            "hydra/launcher=joblib",
            "-m",
            "x",
        ),
        *("+a=1", "~b", "; rm -rf ~ #=1", "lr=1e-5\x1b[2J"),
    ]
    kept = command.typable(words)
    assert kept == ["method=pkd", "task.labels=[a,b]", "lr=1e-5\x1b[2J"]
    line = command.run_line(kept)
    assert line == ("python -m ilkd_bench.run method=pkd 'task.labels=[a,b]' $'lr=1e-5\\x1b[2J'")


@pytest.mark.parametrize(
    "name",
    [
        "=HYPERLINK(1)",
        "+1+cmd|' /C calc'!A0",
        "-2+3",
        "@SUM(1)",
        "\t=1",
        "\r\n=1",
        " =1",
        "=",
        "-x",
    ],
)
def test_a_spreadsheet_computes_nothing(name: str) -> None:
    table = pd.DataFrame({name: [name, "fine"], "n": [-1.5, 2.0]})
    rows = list(csv.reader(io.StringIO(text.csv(table))))
    for cell in (rows[0][0], rows[1][0]):
        assert cell.startswith("'"), cell
    assert rows[1][1] == "-1.5" and rows[2] == ["fine", "2.0"]


@pytest.mark.parametrize("number", ["-13.9 ± 15.8 (11)", "+0.5 [-0.1, 1.1]", "-1e-05", "--", "-3"])
def test_numbers_stay_as_they_are(number: str) -> None:
    assert text.cell(number) == number


def test_two_columns_of_one_name_are_both_written() -> None:
    table = pd.DataFrame([["a", "b"]], columns=["x", "x"])
    assert text.csv(table) == "x,x\na,b\n"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("rail_l (layers=4)", "rail_l (layers=4)"),
        ("[a](http://b)", r"\[a\](http://b)"),
        ("![x](y)|z", r"!\[x\](y)\|z"),
        ("_a_ b_c", r"\_a_ b_c"),
        ("# head", r"\# head"),
        ("> quote", r"\> quote"),
        ("a\n# b\x1b[2J", "a # b \\[2J"),
        ("~~x~~ $a$ `c`", r"\~~x\~~ \$a$ \`c\`"),
        ("<b>&", "&lt;b>&amp;"),
    ],
)
def test_markdown_finds_nothing(name: str, shown: str) -> None:
    assert text.markdown(name) == shown


@pytest.mark.parametrize("name", ["[2in]x", "*x"])
def test_a_latex_row_that_begins_so_is_no_argument_of_the_one_before(name: str) -> None:
    assert text.latex(name) == "{}" + name


def test_latex_finds_no_command_and_no_control_sign() -> None:
    shown = r"\textbackslash{}input\{/etc/passwd\} \textasciicircum{}"
    assert text.latex("\\input{/etc/passwd}\x00^") == shown


@pytest.mark.parametrize(
    "name",
    [
        "x/../../victim",
        "..",
        ".hidden",
        "",
        "a" * 5_000,
        "x\0y",
        "a b",
        "/etc/passwd",
        "\ud800",
        "é" * 99,
    ],
)
def test_a_name_is_a_part_of_a_file_s_name(name: str) -> None:
    part = text.file_name(name)
    assert "/" not in part and "\0" not in part and not part.startswith(".")
    assert 0 < len(part.encode()) < 64 and part.isprintable()
    assert part != text.file_name(name + "x")


@pytest.mark.parametrize("name", ["tiny12-tiny6", "demo_nli", "0a1b2c3d", "größe", "a.b+c"])
def test_usual_names_stay(name: str) -> None:
    assert text.file_name(name) == name
