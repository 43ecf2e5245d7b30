"""Foreign text where it is shown: one function for each kind of output.

Names, reasons and settings of records may come from anybody. After these functions they are text
and nothing else: they move no cursor, begin no line, cell, link, command or formula.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import pandas as pd


# --------------------------------------------------------------------------------------- terminal


def plain(text: str) -> str:
    """Return a text as one line that cannot move the cursor."""
    if text.isprintable():
        return text
    marked = "".join(sign if sign.isprintable() else "\n" for sign in text)
    return " ".join(part for part in marked.split("\n") if part)


def block(text: str) -> str:
    """Return a text of several lines, none of which can move the cursor."""
    return "\n".join(map(plain, text.split("\n")))


def word(text: str) -> str:
    """Return a word of a command line as it is typed into a shell."""
    if "'" in text and not re.search(r"""["$`!]|\\(?!')""", text) and text.isprintable():
        return f'"{text}"'  # shlex would end and begin the quotes around each '
    if text.isprintable():
        return shlex.quote(text)
    return "$'" + "".join(map(_typed, text)) + "'"


def _typed(sign: str) -> str:
    """Return a sign as it stands within `$'...'`."""
    if sign in "\\'":
        return f"\\{sign}"
    if sign.isprintable():
        return sign
    number = ord(sign)
    return f"\\x{number:02x}" if number < 128 else f"\\U{number:08x}"


# ------------------------------------------------------------------------------------------ tables

FORMULA = re.compile(r"\s*[=@+\-]")
SIGNS = r"[±,;%†()\[\] \u2013]"
NUMBER = re.compile(rf"(?:(?:--|[-+]?\d[\d.]*(?:[eE][-+]?\d+)?)(?={SIGNS}|$)|{SIGNS})*")
"""What begins like a formula and is none: a number, or one with its interval."""


def cell(value: object) -> object:
    """Return a value of a CSV file; text that a spreadsheet would compute gets a mark in front."""
    if not isinstance(value, str):
        return value
    text = block(value)
    return f"'{text}" if FORMULA.match(text) and not NUMBER.fullmatch(text) else text


def csv(table: pd.DataFrame, float_format: str | None = None) -> str:
    """Return a table as CSV, all text of it as `cell` has it."""
    safe = table.copy()
    for number in range(table.shape[1]):  # two columns may have one name
        column = table.iloc[:, number]
        if column.dtype.kind not in "biuf":
            safe.isetitem(number, list(map(cell, column)))
    safe.columns = [str(cell(str(name))) for name in table.columns]
    return str(safe.to_csv(index=False, float_format=float_format, lineterminator="\n"))


# ------------------------------------------------------------------------------------------ markup


OPENING = re.compile(r"[\\|*\[\]`]|(?<!\w)_(?=\w)|~(?=~)|\$(?=.*\$)|^[#>]")
"""What begins something in Markdown; a sign within a word, or alone, does not."""


def html(text: str) -> str:
    """Return a text in which HTML finds nothing, as one line."""
    return escape(plain(text))


def markdown(text: str) -> str:
    """Return a text in which Markdown (GitHub's) and HTML find nothing, as one line."""
    escaped = OPENING.sub(r"\\\g<0>", " ".join(plain(text).split()))
    return escaped.replace("&", "&amp;").replace("<", "&lt;")


LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    **{sign: rf"\{sign}" for sign in "&%$#_"},
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': r"\symbol{34}",
    "±": r"$\pm$",
    "→": r"$\rightarrow$",
    "\N{DAGGER}": r"$\dagger$",
    "\N{EN DASH}": "--",
}
"""Signs that mean something to LaTeX, or that its fonts lack -> how they are written."""


def latex(text: str) -> str:
    r"""Return a text in which LaTeX finds no command, as one line; `\\` takes none of it."""
    escaped = "".join(LATEX.get(sign, sign) for sign in " ".join(plain(text).split()))
    return "{}" + escaped if escaped.startswith(("[", "*")) else escaped


# ----------------------------------------------------------------------------------------- folders

LONGEST = 48
"""Letters of a name in the name of a file."""


def file_name(text: str) -> str:
    """Return a name as a part of a file's name; what it cannot hold is replaced, with a hash."""
    name = re.sub(r"[^\w.+#-]", "_", text).strip(".")
    if name and name == text and len(name.encode()) <= LONGEST:
        return name
    digest = hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:8]
    short = name.encode()[:LONGEST].decode("utf-8", "ignore")
    return f"{short}-{digest}"
