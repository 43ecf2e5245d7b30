"""Files as people have them: read with the right values, or refused in one sentence."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ilkd_bench.data import tasks
from ilkd_bench.data.tasks import Task
from ilkd_bench.types import BadInput

CASES = Path(__file__).parents[1] / "cases"
STARS = ["0.5", "1.0", "1.5", "2.0"]
SIGNS = ["-1", "0", "1"]
TWO = [["rain", "dry"]]


@dataclass(frozen=True)
class Case:
    """What is read: class numbers and texts; or words of the refusal."""

    labels: list[float] = field(default_factory=lambda: [1, 0])
    texts: list[list[str]] = field(default_factory=lambda: TWO)
    refused: tuple[str, ...] = ()
    names: tuple[str, ...] | None = ("no", "yes")
    columns: tuple[str, ...] = ("sentence",)


def refused(*words: str, **task: Any) -> Case:
    return Case(refused=words, **task)


def read(folder: Path, case: Case) -> tasks.TextRows:
    task = Task(
        name="custom",
        text_columns=case.columns,
        label_column="label",
        labels=case.names,
        score_range=None,
        metric="pearson" if case.names is None else "accuracy",
        also=[],
        splits={"train": "train", "dev": "validation"},
        hidden=[],
        hub=None,
        ood={},
    )
    return tasks.read(task, "train", data_dir=folder)


def check(folder: Path, case: Case) -> None:
    if case.refused:
        with pytest.raises(BadInput) as error:
            read(folder, case)
        message = str(error.value)
        assert all(word in message for word in case.refused), message
        assert "\n" not in message and len(message) < 600, message
    else:
        rows = read(folder, case)
        assert rows.labels.tolist() == case.labels
        assert rows.texts == case.texts


FILES = {
    "csv_stray_open": refused("train.csv", "lines 2 to 5", "RFC 4180", "written twice"),
    "csv_inner_quotes": refused("train.csv", "line 3", "RFC 4180", "written twice"),
    "csv_backslash": refused("train.csv", "line 3", "RFC 4180", "written twice"),
    "csv_unquoted_comma": refused("line 2 has 3 fields where the header has 2", '"well, yes"'),
    "csv_dupcol": refused("the column sentence is there twice"),
    "csv_label_float": Case(),
    "half_stars_csv": Case(
        [0, 1, 2, 3], [["half a star", "one star", "one and a half", "two stars"]], names=STARS
    ),
    "half_stars_jsonl": Case(
        [0, 1, 2, 3], [["half a star", "one star", "one and a half", "two stars"]], names=STARS
    ),
    "minus101": Case([0, 1, 2, 0], [["cold rain", "a road", "warm sun", "grey rain"]], names=SIGNS),
    "jsonl_bigint": Case(),
    "jsonl_bom": Case(),
    "pq_dup_index_badtext": refused("train.parquet: column sentence of row 1 is missing, no text"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_folder_of_files(name: str) -> None:
    check(CASES / name, FILES[name])


# ------------------------------------------------------------------------------------------- text

HEAD = "sentence,label\n"
ROWS = "rain,1\ndry,0\n"
J = '{"sentence": "rain", "label": 1}\n{"sentence": "dry", "label": 0}\n'

TEXT = {
    # csv that RFC 4180 allows
    "plain.csv": (HEAD + ROWS, Case()),
    "crlf_bom.csv": ("\ufeff" + (HEAD + ROWS).replace("\n", "\r\n"), Case()),
    "cr.csv": ((HEAD + ROWS).replace("\n", "\r"), Case()),
    "no_last_break.csv": ((HEAD + ROWS).rstrip(), Case()),
    "blank_lines.csv": (f"\n{HEAD}\n{ROWS}\n\r\n\n", Case()),
    "line_breaks.csv": (
        HEAD + '"a\nb, ""c""\r\n",1\n"",0\n',
        Case(texts=[['a\nb, "c"\r\n', ""]]),
    ),
    "all_quoted.csv": ('"sentence","label"\n"rain","1"\n"dry","0"\n', Case()),
    "long_text.csv": (HEAD + "x" * 200_000 + ",1\ndry,0\n", Case(texts=[["x" * 200_000, "dry"]])),
    "unnamed_columns.csv": (",sentence,label,\n0,rain,1,\n1,dry,0,\n", Case()),
    "apostrophe.csv": (HEAD + "it's 'so',1\ndry,0\n", Case(texts=[["it's 'so'", "dry"]])),
    # csv that it does not
    "quote_inside.csv": (HEAD + ROWS + 'a 3" nail,1\n', refused("line 4", "RFC 4180")),
    "quote_after_blank.csv": (HEAD + 'rain, "1"\n', refused("line 2", "RFC 4180")),
    "text_after_quote.csv": (HEAD + '"rain" x,1\n', refused("line 2", "RFC 4180")),
    "never_closed.csv": (HEAD + ROWS + '"rain,1\ndry,0\n', refused("lines 4 to 5", "RFC 4180")),
    "single_quote.csv": (HEAD + ROWS + '",1\n', refused("line 4", "RFC 4180")),
    "swallowed_row.csv": (HEAD + '"rain,1\ndry"\n', refused("lines 2 to 3", "1 field")),
    "too_few.csv": (HEAD + "rain,1\ndry\n", refused("line 3 has 1 field where the header has 2")),
    "too_few_after_breaks.csv": (HEAD + '"a\nb",1\nx\n', refused("line 4 has 1 field")),
    "trailing_comma.csv": (HEAD + "rain,1,\n", refused("line 2 has 3 fields")),
    "semicolons.csv": (HEAD.replace(",", ";") + "a;1\n", refused("A csv has commas")),
    "latin1.csv": (
        (HEAD + "rain,1\ncaf\u00e9,0\n").encode("latin1"),
        refused("line 3 is not UTF-8 (byte 0xe9)", "iconv -f LATIN1 -t UTF-8"),
    ),
    "utf16.csv": ((HEAD + ROWS).encode("utf-16"), refused("line 1 is not UTF-8", "-f UTF-16")),
    "nul.csv": (HEAD + "rain,1\ndr\0y,0\n", refused("line 3 has a NUL byte")),
    "empty.csv": ("", refused("it is empty")),
    "header_only.csv": (HEAD, refused("the split has no rows")),
    "no_header.csv": (ROWS, refused("no column sentence, label; found are rain, 1")),
    # labels as text
    "stars.csv": (HEAD + "rain,2\ndry,0.50\n", Case([3, 0], names=STARS)),
    "stars_out.csv": (
        HEAD + "rain,2\ndry,3\n",
        refused("row 1 is '3'; allowed are 0.5, 1.0, 1.5", names=STARS),
    ),
    "cased.csv": (HEAD + "rain,YES\ndry, No\n", Case()),
    "truth.csv": (HEAD + "rain,true\ndry,FALSE\n", Case(names=("False", "True"))),
    "truth_no_name.csv": (HEAD + "rain,True\n", refused("row 0 is 'True'; allowed are 0 (no)")),
    "languages.csv": (HEAD + "rain,C#\ndry,C++\n", Case(names=("C++", "C#"))),
    "language_in_part.csv": (HEAD + "rain,C\n", refused("is 'C'", names=("C++", "C#"))),
    "no_label.csv": (HEAD + "rain,\n", refused("the label of row 0 is ''")),
    "a_text_for_label.csv": (HEAD + "rain," + "x" * 5000 + "\n", refused("xxx...; allowed are")),
    "score.csv": (HEAD + "rain,1e0\ndry,-.5\n", Case([1, -0.5], names=None)),
    "score_true.csv": (
        HEAD + "rain,True\n",
        refused("row 0 is 'True'; allowed are numbers", names=None),
    ),
    "score_comma.csv": (HEAD + 'rain,"1,5"\n', refused("row 0 is '1,5'", names=None)),
    # tsv: no quoting
    "plain.tsv": (
        'sentence\tlabel\nsay "rain\t1\r\n"dry"\t0\n',
        Case(texts=[['say "rain', '"dry"']]),
    ),
    "empty_text.tsv": ("label\tsentence\n1\t\n0\tdry\n", Case(texts=[["", "dry"]])),
    "all_empty.tsv": ("label\tsentence\n1\ta\n\t\n", refused("the label of row 1 is ''")),
    "few.tsv": ("sentence\tlabel\nrain\t1\ndry\n", refused("line 3 has 1 field", "a tab")),
    "many.tsv": ("sentence\tlabel\nrain\t1\ndry\tx\t0\n", refused("line 3 has 3 fields", "a tab")),
    "twice.tsv": ("sentence\tlabel\tlabel\na\t1\t0\n", refused("the column label is there twice")),
    "latin1.tsv": (
        "sentence\tlabel\ncaf\u00e9\t1\n".encode("latin1"),
        refused("line 2 is not UTF-8"),
    ),
    # GLUE's own files
    "cola.tsv": (
        "gj04\t1\t\tThe rain fell.\ngj04\t0\t*\tRain the fell.\n",
        refused("CoLA", "source, label, star and sentence"),
    ),
    "mrpc.tsv": (
        "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n1\t7\t8\ta\tb\n",
        refused(
            """'task.text_columns=["#1 String","#2 String"]' task.label_column=Quality""",
            columns=("sentence1", "sentence2"),
        ),
    ),
    "mnli.tsv": (
        "index\tgenre\tsentence1\tsentence2\tlabel1\tgold_label\n0\tx\ta\tb\tno\tno\n",
        refused("task.label_column=gold_label", columns=("premise", "hypothesis")),
    ),
    "qqp.tsv": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n0\t1\t2\ta\tb\t0\n",
        refused("task.label_column=is_duplicate", columns=("question1", "question2")),
    ),
    "stsb.tsv": (
        "index\tsentence1\tsentence2\tscore\n0\ta\tb\t2.5\n",
        refused("task.label_column=score", columns=("sentence1", "sentence2"), names=None),
    ),
    # jsonl
    "plain.jsonl": (J, Case()),
    "crlf.jsonl": (J.replace("\n", "\r\n"), Case()),
    "blank_lines.jsonl": (f"\n{J}\n  \n", Case()),
    "line_separator.jsonl": (J.replace("rain", "ra\u2028in"), Case(texts=[["ra\u2028in", "dry"]])),
    "nan_beside.jsonl": (J.replace("{", '{"x": NaN, "y": -Infinity, '), Case()),
    "nested_beside.jsonl": (J.replace("{", '{"x": {"a": [1, {}]}, "y": null, '), Case()),
    "twice_in_a_column_beside.jsonl": (J.replace("{", '{"x": {"a": 1, "a": 2}, '), Case()),
    "digits_beside.jsonl": (J.replace("{", '{"x": ' + "9" * 5000 + ', "y": 1e999, '), Case()),
    "decimal_labels.jsonl": (J.replace("1}", "1.0}").replace("0}", "0e0}"), Case()),
    "true_labels.jsonl": (
        J.replace("1}", "true}").replace("0}", "false}"),
        Case(names=("false", "true")),
    ),
    "true_is_no_number.jsonl": (J.replace("1}", "true}"), refused("row 0 is True")),
    "array.jsonl": (
        "[" + J.strip().replace("\n", ",\n") + "]",
        refused("one JSON array", "python -c"),
    ),
    "spread.jsonl": (
        json.dumps(json.loads(J.split("\n")[0]), indent=1),
        refused("line 1", "Each line is one JSON object"),
    ),
    "two_in_a_line.jsonl": (J.replace("\n", " "), refused("line 1, column ", "extra data")),
    "comma.jsonl": (J.replace("1}", "1,}"), refused("line 1, column ", "property name")),
    "cut.jsonl": (J + '{"sentence": "ra', refused("line 3, column 14")),
    "no_object.jsonl": (J + "3\n", refused("line 3 is no JSON object")),
    "twice.jsonl": (
        J.replace("{", '{"sentence": "x", '),
        refused("line 1: the column sentence is there twice"),
    ),
    "deep.jsonl": (J + '{"x": ' + "[" * 100_000, refused("line 3: it is nested too deep")),
    "latin1.jsonl": (
        J.replace("dry", "caf\u00e9").encode("latin1"),
        refused("line 2 is not UTF-8"),
    ),
    "null_label.jsonl": (J.replace("0}", "null}"), refused("the label of row 1 is missing")),
    "nan_label.jsonl": (J.replace("0}", "NaN}"), refused("the label of row 1 is missing")),
    "no_label_at_all.jsonl": (
        J.replace(', "label": 0', ""),
        refused("the label of row 1 is missing"),
    ),
    "list_label.jsonl": (J.replace("0}", "[0]}"), refused("the label of row 1 is [0]")),
    "number_text.jsonl": (
        J.replace('"dry"', "3"),
        refused("column sentence of row 1 is 3, no text"),
    ),
    "nested_text.jsonl": (J.replace('"dry"', '["dry"]'), refused("row 1 is ['dry'], no text")),
    "null_text.jsonl": (J.replace('"dry"', "null"), refused("row 1 is missing, no text")),
    "half_character.jsonl": (J.replace("dry", "\\ud800"), refused("row 1", "half of a character")),
    "hidden_number.jsonl": (J.replace("0}", "-1}"), refused("the label -1 (hidden)")),
    "empty.jsonl": ("\n", refused("the split has no rows")),
}


@pytest.mark.parametrize("name", TEXT)
def test_a_text_file(name: str, tmp_path: Path) -> None:
    content, case = TEXT[name]
    path = tmp_path / f"custom/train{Path(name).suffix}"
    path.parent.mkdir()
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    check(tmp_path, case)


def test_a_row_of_several_lines_that_look_like_rows_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "custom/train.csv"
    path.parent.mkdir()
    path.write_text(HEAD + '"rain,1\ndry",0\n"a poem\nof lines",1\n', encoding="utf-8")
    with caplog.at_level(logging.WARNING):
        rows = read(tmp_path, Case())
    assert len(rows) == 2
    (message,) = caplog.messages
    assert f"{path}: lines 2 to 3 are one row" in message


# ---------------------------------------------------------------------------------------- parquet

TEXTS = pa.array(["rain", "dry"])


def table(**columns: Any) -> pa.Table:
    return pa.table({"sentence": TEXTS} | columns)


PARQUET = {
    "int": (table(label=[1, 0]), Case()),
    "int8": (table(label=pa.array([1, 0], pa.int8())), Case()),
    "float": (table(label=[1.0, 0.0]), Case()),
    "text": (table(label=["yes", "no"]), Case()),
    "text_numbers": (table(label=["1.0", "0"]), Case()),
    "bool": (table(label=[True, False]), Case(names=("false", "true"))),
    "bool_no_name": (table(label=[True, False]), refused("the label of row 0 is True")),
    "bytes": (table(label=pa.array([b"yes", b"no"])), Case()),
    "large_text": (table(label=pa.array(["yes", "no"], pa.large_string())), Case()),
    "decimal": (table(label=pa.array([1, 0]).cast(pa.decimal128(21, 2))), Case()),
    "categories": (table(label=pa.array(["yes", "no"]).dictionary_encode()), Case()),
    "stars": (table(label=[2.0, 0.5]), Case([3, 0], names=STARS)),
    "stars_float32": (table(label=pa.array([2, 0.5], pa.float32())), Case([3, 0], names=STARS)),
    "tenths_float32": (
        table(label=pa.array([0.3, 0.1], pa.float32())),
        Case(names=("0.1", "0.3")),
    ),
    "scores_float32": (
        table(label=pa.array([0.3, 0.1], pa.float32())),
        Case([float(np.float32(0.3)), float(np.float32(0.1))], names=None),
    ),
    "scores_beyond": (table(label=[1e300, 0.0]), refused("row 0 is 1e+300", names=None)),
    "null_label": (table(label=[1, None]), refused("the label of row 1 is missing")),
    "nan_label": (table(label=[1.0, float("nan")]), refused("the label of row 1 is missing")),
    "none_is_no_name": (
        table(label=["yes", None]),
        refused("the label of row 1 is missing", names=("None", "yes")),
    ),
    "bytes_text": (
        table(label=[1, 0]).set_column(0, "sentence", pa.array([b"rain", b"dry"])),
        Case(),
    ),
    "latin1_text": (
        table(label=[1, 0]).set_column(0, "sentence", pa.array([b"rain", b"\xe9"])),
        refused("train.parquet cannot be read"),
    ),
    "number_text": (
        table(label=[1, 0]).set_column(0, "sentence", pa.array([1.5, 2])),
        refused("column sentence of row 0 is 1.5, no text"),
    ),
    "twice": (
        pa.table([TEXTS, pa.array([1, 0]), pa.array([0, 1])], ["sentence", "label", "label"]),
        refused("the column label is there twice"),
    ),
    "dates_beside": (table(label=[1, 0], day=pa.array([2**60, 0], pa.timestamp("us"))), Case()),
}


@pytest.mark.parametrize("name", PARQUET)
def test_a_parquet_file(name: str, tmp_path: Path) -> None:
    content, case = PARQUET[name]
    (tmp_path / "lang=en/custom").mkdir(parents=True)  # a name that some readers make a column of
    pq.write_table(content, tmp_path / "lang=en/custom/train.parquet")
    check(tmp_path / "lang=en", case)


def test_a_column_that_pandas_made_the_index_is_a_column(tmp_path: Path) -> None:
    (tmp_path / "custom").mkdir()
    frame = pd.DataFrame({"sentence": ["rain", "dry"], "label": ["yes", "no"]})
    frame.set_index("label").to_parquet(tmp_path / "custom/train.parquet")
    check(tmp_path, Case())


@pytest.mark.parametrize("kind", ["csv", "tsv", "jsonl", "parquet"])
@pytest.mark.parametrize("names", [STARS, ["2", "1.5", "1", "0.5"]], ids=["floats", "mixed"])
def test_a_number_means_the_same_label_in_every_format(
    kind: str, names: list[str], tmp_path: Path
) -> None:
    frame = pd.DataFrame({"sentence": list("abcd"), "label": [0.5, 1, 1.5, 2.0]})
    path = tmp_path / f"custom/train.{kind}"
    path.parent.mkdir()
    if kind == "parquet":
        frame.to_parquet(path)
    elif kind == "jsonl":
        frame.to_json(path, orient="records", lines=True)
    else:
        frame.to_csv(path, index=False, sep="," if kind == "csv" else "\t")
    wanted = [names.index(name) for name in (STARS if names == STARS else names[::-1])]
    assert read(tmp_path, Case(names=names)).labels.tolist() == wanted
