"""What the contracts of import-linter cannot say: what a fresh process loads, and which names stay.

The layers, the cycles and who may import torch and Hydra at all are in pyproject.toml; `make lint`
keeps them.
"""

from __future__ import annotations

import ast
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import toys

import ilkd_bench

PACKAGE = Path(ilkd_bench.__file__).parent
MODULES = sorted(
    path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")
    for path in PACKAGE.rglob("*.py")
    if path.stem != "__init__"
)
VERBS = [module for module in MODULES if "." not in module and module not in ("types", "__main__")]
HEAVY = ("torch", "transformers", "pytorch_lightning", "datasets", "wandb", "torchmetrics")
DRAWING = ("figures", "reporting.figures.")
"""What may load matplotlib."""

TORCH_FREE = ("settings.", "records.", "comparison.", "reporting.", "jobs.", "plumbing.")
LIGHT = [
    *(module for module in MODULES if module.startswith(TORCH_FREE)),
    *VERBS,
    *("data.tasks", "data.grammar", "teachers.bank", "types", "training.wandb_process"),
    *("students.export", "students.glue", "students.load", "students.select"),
]
"""What must answer fast, or read results where no torch is."""

LOADS = """
import importlib, json, sys
found = {}
for module in json.loads(sys.argv[1]):
    importlib.import_module(f"ilkd_bench.{module}" if module else "ilkd_bench")
    for name in json.loads(sys.argv[2]):
        if name in sys.modules:
            found.setdefault(name, module)
print(json.dumps(found))
"""


def first_to_load(modules: list[str], names: tuple[str, ...]) -> dict[str, str]:
    """Import modules one after the other in a fresh process: name -> the first that loaded it."""
    words = [json.dumps(modules), json.dumps(names)]
    command = [sys.executable, "-c", LOADS, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120)
    found: dict[str, str] = json.loads(done.stdout)
    return found


def source(module: str) -> ast.Module:
    return ast.parse((PACKAGE / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))


def test_commands_and_results_load_no_torch() -> None:
    assert first_to_load(LIGHT, HEAVY) == {}


def test_only_figures_load_matplotlib() -> None:
    plain = [module for module in LIGHT if not module.startswith(DRAWING)]
    assert first_to_load(plain, ("matplotlib",)) == {}


def test_the_package_itself_loads_nothing() -> None:
    assert first_to_load([""], (*HEAVY, "hydra", "pandas", "numpy", "omegaconf", "pydantic")) == {}


# ------------------------------------------------------------------------------ names of methods


PRINTED = (
    "comparison.contrasts",
    "reporting.tables.claims",
    "reporting.tables.papers",
    "reporting.tables.published",
)
"""What says what the papers print; nothing trains with it."""


def texts(tree: ast.Module) -> Iterator[str]:
    """All constant texts but docstrings."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef)
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, documented) and node.body and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and id(node) not in docstrings
        ):
            yield node.value


def imported(tree: ast.Module) -> Iterator[str]:
    """Full names of all that is imported, inside functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def test_no_module_outside_methods_knows_a_method_by_name() -> None:
    """No text equal to a method's name, and no method class but the teacher's own fine-tuning.

    A method may have the name of a measure that the package has as a function, as `cosine`.
    """
    allowed = {
        ("training.make_teacher", "finetune"),  # the only phase of a teacher
        ("comparison.differences", "vanilla"),  # the baseline of every comparison
        ("reporting.page.sentences", "finetune"),  # what the speed of a method is told beside
        ("reporting.tables.paper_tables", "finetune"),  # what a method's cost is a multiple of
    }
    functions = {
        node.name
        for module in MODULES
        for node in ast.walk(source(module))
        if isinstance(node, ast.FunctionDef)
    }
    names = set(toys.METHODS) - functions
    found, classes = set(), set()
    for module in MODULES:
        if module.startswith("methods."):
            continue
        tree = source(module)
        found |= {(module, text) for text in texts(tree) if text in names}
        classes |= {
            (module, name.split(".")[2])
            for name in imported(tree)
            if name.startswith("ilkd_bench.methods.")
        }
    assert {(module, text) for module, text in found if module not in PRINTED} <= allowed
    kinds = {kind for module, kind in classes if module != "training.make_teacher"}
    assert kinds == {"base"}
    assert {k for m, k in classes if m == "training.make_teacher"} == {"base", "finetune"}


def test_no_silent_defaults_in_configuration_access() -> None:
    """No ``config.get(key, default)``; ``record.get``-like reads of files are fine."""
    for module in MODULES:
        if not module.startswith(("training.", "jobs.", "settings.", "methods.", "run")):
            continue
        for node in ast.walk(source(module)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "get"
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in ("config", "cfg", "c")
            ):
                raise AssertionError(f"{module}.py:{node.lineno}")
