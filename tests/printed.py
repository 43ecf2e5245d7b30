"""The examples of docs/extending.md as they are printed."""

from __future__ import annotations

import re
from pathlib import Path

TEXT = (Path(__file__).parent.parent / "docs" / "extending.md").read_text(encoding="utf-8")


def section(title: str) -> str:
    """The text below a heading of the second level."""
    return TEXT.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def blocks(title: str, language: str) -> list[str]:
    """The printed files of a section."""
    return re.findall(rf"```{language}\n(.*?)```", section(title), re.DOTALL)


def plugins(folder: Path) -> Path:
    """Write the folder of plugins that is printed, with a variant of a built-in method."""
    methods = folder / "conf" / "method"
    methods.mkdir(parents=True)
    (python,) = blocks("Without editing the checkout", "python")
    (settings,) = blocks("Without editing the checkout", "yaml")
    (folder / "gap.py").write_text(python, encoding="utf-8")
    (methods / "gap.yaml").write_text(settings, encoding="utf-8")
    variant = "defaults: [pkd]\nname: far_pkd\ntemperature: 5\n"
    (methods / "far_pkd.yaml").write_text(variant, encoding="utf-8")
    return folder
