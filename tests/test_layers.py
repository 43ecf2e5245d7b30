"""Import layers, the two trees, and no branch on a method's name."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import toys

import ilkd_bench

PACKAGE = Path(ilkd_bench.__file__).parent
LAYERS = [  # a module imports only from layers below its own, or from its own without a cycle
    {"types"},
    {
        "losses",
        "layermaps",
        "schedules",
        "features",
        "grammar",
        "terminal",
        "store",
        "layers",
        "students",
        "selection",
        "resampling",
        "stats",
        "grid",
        "papers",
        "similarity",
        "canvas",
        "drawing",
        "cards",
    },
    {"methods.base", "settings", "banks", "mirror"},
    {f"methods.{path.stem}" for path in (PACKAGE / "methods").glob("*.py")}
    - {"methods.base", "methods.__init__"}
    | {"tasks", "models", "environment", "progress", "tracking", "scores"},
    {"data", "metrics", "checkpoints", "compare", "figure_data", "stored", "onnx_export"},
    {"teacher", "findings", "figures"},
    {"module", "overview", "reference", "controls"},
    {"fit", "paper_tables"},
    {"evaluate"},
    {"tables", "processes", "ready"},
    {"assistants"},
    {"train", "dashboard", "chosen"},
    {"jobs"},
    {"launch", "sweep"},
    {"run", "runs", "analyse", "submit", "export", "evidence", "gaps", "conclusions", "report"},
]
LAYER = {module: number for number, layer in enumerate(LAYERS) for module in layer}
MODULES = sorted(
    path.relative_to(PACKAGE).with_suffix("").as_posix().replace("/", ".")
    for path in PACKAGE.rglob("*.py")
    if path.stem != "__init__"
)
RESULTS = [
    "store",
    "settings",
    "tasks",
    "types",
    "grammar",
    "scores",
    "resampling",
    "stats",
    "compare",
    "findings",
    "grid",
    "overview",
    "papers",
    "paper_tables",
    "reference",
    "controls",
    "selection",
    "students",
    "tables",
    "launch",
    "terminal",
    "run",
    "runs",
    "banks",
    "dashboard",
    "mirror",
    "similarity",
    "canvas",
    "drawing",
    "figure_data",
    "figures",
    "cards",
    "stored",
    "chosen",
    "submit",
    "export",
    "evidence",
    "gaps",
    "conclusions",
    "report",
]
TRAINING = "train ready assistants jobs fit module evaluate launch settings".split()


def source(module: str) -> ast.Module:
    return ast.parse((PACKAGE / f"{module.replace('.', '/')}.py").read_text(encoding="utf-8"))


def imports(module: str) -> Iterator[str]:
    """Full names of all that a module imports, inside functions too."""
    for node in ast.walk(source(module)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def own_imports(module: str) -> set[str]:
    """The modules of the package that a module imports."""
    found = set()
    for name in imports(module):
        words = name.removeprefix("ilkd_bench.").split(".")
        if name.startswith("ilkd_bench."):
            found |= {m for m in (".".join(words[:n]) for n in (1, 2)) if m in MODULES}
    return found


def test_every_module_has_a_layer() -> None:
    assert set(MODULES) == set(LAYER)


@pytest.mark.parametrize("module", MODULES)
def test_a_module_imports_from_lower_layers_only(module: str) -> None:
    for other in own_imports(module):
        siblings = LAYER[other] == LAYER[module] and module not in own_imports(other)
        assert LAYER[other] < LAYER[module] or siblings, other


def test_imports_have_no_cycle() -> None:
    left = {module: own_imports(module) for module in MODULES}
    while left:
        free = [module for module, needs in left.items() if not needs & left.keys()]
        assert free, f"a cycle among {sorted(left)}"
        for module in free:
            del left[module]


def test_methods_import_torch_and_the_lowest_layers_only() -> None:
    allowed = {"types", "losses", "layermaps", "schedules", "features"}
    for module in MODULES:
        if module.startswith("methods."):
            outside = {n.split(".")[0] for n in imports(module)} - {"ilkd_bench", "__future__"}
            assert outside <= {"torch", "typing", "collections", "dataclasses", "math"}, module
            for other in own_imports(module):
                assert other in allowed or other.startswith("methods."), (module, other)


def test_pure_functions_know_no_configuration_and_no_model() -> None:
    for module in ("losses", "layermaps", "schedules", "features"):
        assert own_imports(module) <= {"losses", "types"}, module


def test_hydra_is_imported_in_run_and_launch_only() -> None:
    users = {m for m in MODULES if any(n.split(".")[0] == "hydra" for n in imports(m))}
    assert users == {"run", "launch"}


@pytest.mark.parametrize("module", RESULTS)
def test_the_results_tree_does_not_import_the_training_tree(module: str) -> None:
    top = {
        alias.name.split(".")[0] if isinstance(node, ast.Import) else str(node.module)
        for node in source(module).body
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    }
    heavy = {"torch", "transformers", "pytorch_lightning", "datasets", "wandb", "torchmetrics"}
    assert not {name.split(".")[0] for name in top} & heavy


@pytest.mark.parametrize(
    "module",
    ["tables", "run", "runs", "banks", "dashboard", "report", "submit", "export"],
)
def test_the_commands_start_without_torch(module: str) -> None:
    """A fresh process: what the import of a command leaves loaded. `run` imports `launch`."""
    heavy = "torch transformers pytorch_lightning datasets wandb torchmetrics matplotlib".split()
    code = (
        f"import sys, ilkd_bench.{module}; "
        f"print([name for name in {heavy!r} if name in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    assert result.stdout.strip() == "[]"


def docstrings(tree: ast.Module) -> set[int]:
    return {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }


def test_no_module_outside_methods_knows_a_method_by_name() -> None:
    """No text equal to a method's name, and no method class but the teacher's own fine-tuning.

    What the papers print does name methods; it is in two modules that nothing trains with.
    """
    named = {
        ("ready", "finetune"),  # the only phase of a teacher
        ("compare", "vanilla"),  # the baseline of every comparison
        ("conclusions", "finetune"),  # what the speed of a method is told beside
        ("paper_tables", "finetune"),  # what the cost of a method is a multiple of
        *((module, name) for module in ("papers", "reference") for name in toys.METHODS),
    }
    found = set()
    for module in MODULES:
        if module.startswith("methods."):
            continue
        tree = source(module)
        skip = docstrings(tree)
        for node in ast.walk(tree):
            if (
                isinstance(node, ast.Constant)
                and id(node) not in skip
                and node.value in toys.METHODS
            ):
                found.add((module, node.value))
        classes = {m for m in own_imports(module) if m.startswith("methods.")}
        assert classes <= {"methods.base"} | ({"methods.finetune"} if module == "ready" else set())
    assert found <= named
    assert not {"papers", "reference"} & set().union(*map(own_imports, TRAINING))


def test_no_silent_defaults_in_configuration_access() -> None:
    """No ``cfg.get(k, default)``; ``record.get``-like reads of files are fine."""
    for module in [*TRAINING, "run"]:
        for node in ast.walk(source(module)):
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "get"
                and isinstance(node.func.value, ast.Name)
                and node.func.value.id in ("config", "cfg", "c")
            ):
                raise AssertionError(f"{module}.py:{node.lineno}")
