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
GROUND_FLOOR = ("analysis.schema", "analysis.files")
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


@pytest.mark.parametrize("module", GROUND_FLOOR)
def test_the_ground_floor_stands_on_the_standard_library_alone(module: str) -> None:
    names = imported(ROOT / f"{module.replace('.', '/')}.py")
    assert {name.split(".")[0] for name in names} <= sys.stdlib_module_names


def test_ray_stays_in_its_rooms() -> None:
    assert {name.rpartition(".")[0] for name in importers("ray")} == {"sweep.on_ray"}


ABOVE = {"run": ("on_ray", "tune", "cli", "status"), "on_ray": ("tune", "cli"), "tune": ("on_ray", "cli")}


@pytest.mark.parametrize("room", ABOVE)
def test_what_runs_a_study_knows_no_scheduler(room: str) -> None:
    forbidden = tuple(f"sweep.{name}" for name in ABOVE[room])
    names = {name for path in (ROOT / "sweep" / room).glob("*.py") for name in imported(path)}
    assert not {name for name in names if name.startswith(forbidden)}


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
        "trainables.training_fields",
        "analysis.schema",
        "analysis.files",
        "analysis.plan",
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
