"""Who may import whom, and that help is light: the walls of the house."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("sweep", "trainables", "analysis")
MODULES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
GROUND_FLOOR = ("analysis.schema", "analysis.files", "analysis.places", "analysis.revisions", "analysis.showing")
"""Standard library only; everybody may import these."""
HEAVY = (
    "torch", "ray", "mlflow", "transformers", "sentence_transformers", "datasets", "optuna", "scipy", "pandas",
    "matplotlib",
)  # fmt: skip


def imported(path: Path) -> Iterator[str]:
    """Dotted names of every module that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        yield from names_in(node, str(path))


def names_in(node: ast.AST, path: str = "") -> Iterator[str]:
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom) and node.module:
        assert node.level == 0, f"{path}: relative import; name the package"
        yield node.module
        yield from (f"{node.module}.{alias.name}" for alias in node.names)


def imported_at_start(path: Path) -> set[str]:
    """Dotted names of what a file imports as soon as it is imported itself: in no function, and not for types alone."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    later = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    later += [node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)]
    put_off = {inner for node in later for inner in ast.walk(node)}
    return {name for node in ast.walk(tree) if node not in put_off for name in names_in(node)}


def name_of(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


def importers(library: str) -> set[str]:
    return {name_of(path) for path in MODULES if any(name.split(".")[0] == library for name in imported(path))}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_direction_of_imports(path: Path) -> None:
    package = name_of(path).split(".")[0]
    names = set(imported(path))
    above = {name for name in names if not name.startswith(GROUND_FLOOR)}
    used = {name.split(".")[0] for name in above} & set(PACKAGES) - {package}
    if package != "sweep":
        assert not used, f"{path} imports {used}; analysis and trainables import neither sweep nor each other"
    assert not {name for name in names if name.endswith(".cli") or name == "cli"}, f"{path} imports a cli"


@pytest.mark.parametrize("module", [*GROUND_FLOOR, "analysis.statistics.closed_forms"])
def test_the_ground_floor_stands_on_the_standard_library_alone(module: str) -> None:
    names = imported(ROOT / f"{module.replace('.', '/')}.py")
    below = {name for name in names if not name.startswith(GROUND_FLOOR) and name != "analysis"}
    assert {name.split(".")[0] for name in below} <= sys.stdlib_module_names


def test_ray_stays_in_its_rooms() -> None:
    assert {name.rpartition(".")[0] for name in importers("ray")} == {"sweep.on_ray"}


FLOORS = (
    ("sweep.errors", "sweep.console", "sweep.files"),
    ("sweep.study",),
    ("sweep.record",),
    ("sweep.run",),
    ("sweep.on_ray", "sweep.tune", "sweep.status"),
    ("sweep.cli",),
)
"""Of sweep, from the ground up; what is not named stands on the floor below the cli."""


def floor(module: str) -> int:
    found = (n for n, rooms in enumerate(FLOORS) for room in rooms if f"{module}.".startswith(f"{room}."))
    return next(found, len(FLOORS) - 2)


@pytest.mark.parametrize("path", [path for path in MODULES if path.is_relative_to(ROOT / "sweep")], ids=name_of)
def test_no_room_of_sweep_imports_one_above(path: Path) -> None:
    module = name_of(path).removesuffix(".__init__")
    above = {name for name in first_party(path) if name.startswith("sweep.") and floor(name) > floor(module)}
    assert module == "sweep" or not above


def test_a_scheduler_and_a_search_do_not_know_each_other() -> None:
    for room, other in (("on_ray", "tune"), ("tune", "on_ray")):
        names = {name for path in (ROOT / "sweep" / room).glob("*.py") for name in first_party(path)}
        assert not {name for name in names if name.startswith(f"sweep.{other}")}


def first_party(path: Path) -> set[str]:
    """The modules of this project that a file imports, at its start, in a function or for types alone."""
    known = {name_of(module).removesuffix(".__init__") for module in MODULES}
    return {name for name in imported(path) if name in known} - {name_of(path).removesuffix(".__init__")}


def test_no_circles() -> None:
    uses = {name_of(path).removesuffix(".__init__"): first_party(path) for path in MODULES}
    # `from a.b import c` names a.b too: a package is no part of a circle through its own modules.
    uses = {name: {one for one in found if not name.startswith(f"{one}.")} for name, found in uses.items()}
    left = dict(uses)
    while free := [name for name, found in left.items() if not found & left.keys()]:
        for name in free:
            del left[name]
    assert not left, "import each other, or stand above those that do: " + ", ".join(sorted(left))


def test_mlflow_only_where_results_are_written_and_read() -> None:
    assert importers("mlflow") == {"sweep.record.tracking", "analysis.results.mlflow"}


def test_matplotlib_only_in_plots() -> None:
    assert importers("matplotlib") == {"analysis.report.plots"}


def test_sweep_starts_with_the_contracts_of_the_others_alone() -> None:
    """What trains and what analyses is imported where it is used: naming a study must not cost seconds."""
    modules = {name_of(path) for path in MODULES if not name_of(path).startswith("sweep")}
    used = {name for path in (ROOT / "sweep").rglob("*.py") for name in imported_at_start(path) if name in modules}
    assert used == {
        "trainables.spec",
        "trainables.tasks",
        "trainables.training_fields",
        "trainables.errors",
        "trainables.kept",
        "trainables.registry",
        "analysis.schema",
        "analysis.files",
        "analysis.showing",
        "analysis.revisions",
        "analysis.places",
        "analysis.plan",
        "analysis.statistics.closed_forms",
    }


def test_torch_only_in_trainables() -> None:
    assert {name.split(".")[0] for name in importers("torch")} <= {"trainables"}


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_a_module_can_be_read_in_one_sitting(path: Path) -> None:
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 600


@pytest.mark.parametrize("command", ["sweep", "analysis"])
def test_help_imports_nothing_heavy(command: str) -> None:
    code = (
        "import sys\n"
        f"from {command}.cli import main\n"
        "try:\n    main(['--help'])\nexcept SystemExit as end:\n    assert not end.code, end.code\n"
        f"print('HEAVY', [name for name in {HEAVY!r} if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.rstrip().endswith("HEAVY []"), done.stdout[-300:]
