"""What a page of docs/ prints: its files, scripts and commands, section by section."""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path

EXTENDING = Path(__file__).parent.parent / "docs" / "extending.md"


@dataclass(frozen=True)
class Block:
    """A piece of code, and the paragraph that it stands below."""

    kind: str
    """The language of a fence; empty where the block is indented: commands for a shell."""
    text: str
    before: str

    @property
    def path(self) -> str | None:
        """Where the file goes: the paragraph ends with its name, `NAME:` or `NAME writes ...:`."""
        named = re.search(r"`([\w/.]+\.(?:py|yaml|json))`(?: writes [^`]*)?:$", self.before)
        return named[1] if named else None


def section(page: Path, *titles: str) -> str:
    """Return the text below a heading, which is given after those that it stands under."""
    text = page.read_text(encoding="utf-8")
    for level, title in enumerate(titles, start=2):
        parts = re.split(rf"^{'#' * level} (.*)\n", text, flags=re.M)
        by_title = dict(zip(parts[1::2], parts[2::2], strict=True))
        assert title in by_title, f"{page} has no section {' / '.join(titles)}"
        text = by_title[title]
    return text


def blocks(text: str) -> list[Block]:
    """Return the blocks of code of a text in their order."""
    lines = []
    fenced = False
    for line in text.splitlines():
        mark = line.startswith("```")
        if fenced or mark:
            lines.append(("fence", line))
        elif line.startswith("    "):
            lines.append(("shell", line[4:]))
        else:
            lines.append(("prose" if line.strip() else "blank", line))
        fenced = fenced != mark
    code, before = [], ""
    for kind, group in groupby(lines, key=lambda pair: pair[0]):
        inside = [line for _, line in group]
        if kind == "prose":
            before = " ".join(inside)
        elif kind == "shell":
            code.append(Block("", "\n".join(inside) + "\n", before))
            before = ""
        elif kind == "fence":
            code.append(Block(inside[0][3:].strip(), "\n".join(inside[1:-1]) + "\n", before))
            before = ""
    return code


def texts(page: Path, title: str, kind: str) -> list[str]:
    """Return the blocks of a kind that a section prints."""
    return [block.text for block in blocks(section(page, title)) if block.kind == kind]


def plugins(folder: Path) -> Path:
    """Write the folder of plugins that is printed, with a variant of a built-in method."""
    methods = folder / "conf" / "method"
    methods.mkdir(parents=True)
    (python,) = texts(EXTENDING, "Without editing the checkout", "python")
    (settings,) = texts(EXTENDING, "Without editing the checkout", "yaml")
    (folder / "gap.py").write_text(python, encoding="utf-8")
    (methods / "gap.yaml").write_text(settings, encoding="utf-8")
    variant = "defaults: [pkd]\nname: far_pkd\ntemperature: 5\n"
    (methods / "far_pkd.yaml").write_text(variant, encoding="utf-8")
    return folder
