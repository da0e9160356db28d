"""Every command in the documentation is run, in the order of its page, or says above it why not.

A page gets a folder of its own, in which the study files that it names are small: `studies/` and `my-study.yaml` hold
stand-ins whose cells take no time, and `my-study` has been run already. What a page tells its reader to write, is.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from tests.docs.pages import PAGES, ROOT, Block, blocks

BIN = Path(sys.executable).parent
WITH_COMMANDS = [page for page in PAGES if any(block.is_shell for block in blocks(page))]
NAMES = [str(page.relative_to(ROOT)) for page in WITH_COMMANDS]


def stand_in(name: str, **changes: Any) -> str:
    study: dict[str, Any] = {
        "version": 1,
        "name": name,
        "trainable": "closed-form",
        "matryoshka_dims": [16, 64],
        "variants": {
            "chunked": {"options": {"effect": 0.0, "effect_sd": 0.01}},
            "interleaved": {"options": {"effect": 0.02, "effect_sd": 0.01}},
        },
        "baseline": "chunked",
        "seeds": 5,
        "analysis": {"primary": ["test/spearman_64"], "margin": 0.005},
        **changes,
    }
    return yaml.safe_dump(study, sort_keys=False)


SEARCH = {
    "space": {"learning_rate": {"low": 1e-5, "high": 1e-3, "log": True}},
    "trials": 2,
    "startup": 1,
    "seeds": [100],
    "endpoint": "validation/spearman_64",
}
STUDIES = {
    "my-study.yaml": stand_in("my-study"),
    "on-jsts.yaml": stand_in("on-jsts", seeds=2),
    "on-stsb.yaml": stand_in("on-stsb", seeds=2, matryoshka_dims=[32, 64]),
    "studies/toy.yaml": stand_in("toy"),
    "studies/toy_search.yaml": stand_in("toy-search", seeds=2, search=SEARCH),
}
SEQUENTIAL = stand_in("my-study", analysis={"primary": ["test/spearman_64"], "stopping": "sequential"})
SCORES = "variant,seed,setting,metric,dim,value\n" + "".join(
    f"{variant},{seed},default,test/spearman,512,{0.7 + 0.01 * seed + gain + 0.001 * (seed % 3)}\n"
    for variant, gain in (("chunked", 0.0), ("interleaved", 0.004))
    for seed in range(5)
)


@dataclass(frozen=True, kw_only=True)
class Done:
    """What one command did."""

    code: int
    output: str


def in_this_process(words: list[str]) -> Done:
    """`sweep ...` or `analysis ...`, without paying its imports again."""
    import importlib

    program = importlib.import_module(f"{words[0]}.cli").main
    done = CliRunner().invoke(program, words[1:], prog_name=words[0])
    failed = done.exception is not None and not isinstance(done.exception, SystemExit)
    return Done(code=done.exit_code, output=done.output + (repr(done.exception) if failed else ""))


def execute(command: str) -> Done:
    words = shlex.split(command, comments=True)
    if words[0] in ("sweep", "analysis") and not {"|", "&&", "<"} & set(words) and "$(" not in command:
        target = words[words.index(">") + 1] if ">" in words else None
        done = in_this_process(words[: words.index(">")] if target else words)
        if target:
            Path(target).write_text(done.output, encoding="utf-8")
        return done
    found = subprocess.run(["bash", "-c", command], capture_output=True, text=True, timeout=300, check=False)
    return Done(code=found.returncode, output=found.stdout + found.stderr)


@pytest.fixture(scope="module")
def _engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One Ray for all pages, and folders of one's own for whatever programs keep."""
    import ray

    home = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
            patch.setenv(name, str(home))
        patch.setenv("PAIRSWEEP_CACHE", str(home / "cache"))
        patch.setenv("SWEEP_SPOOL_DIR", str(home / "spool"))
        patch.setenv("NO_COLOR", "1")
        patch.setenv("PATH", f"{BIN}:/usr/bin:/bin")
        patch.delenv("MLFLOW_TRACKING_URI", raising=False)
        patch.delenv("RAY_ADDRESS", raising=False)
        ray.init(
            address="local",
            num_cpus=2,
            include_dashboard=False,
            object_store_memory=100 * 1024 * 1024,
            log_to_driver=False,
        )
        yield
        ray.shutdown()


@pytest.fixture(scope="module")
def recorded(_engine: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the studies that pages only read have been run, with exports of two of them."""
    folder = tmp_path_factory.mktemp("recorded")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for study in ("my-study", "on-jsts", "on-stsb"):
            Path(f"{study}.yaml").write_text(STUDIES[f"{study}.yaml"], encoding="utf-8")
            done = execute(f"sweep run {study}.yaml")
            assert done.code == 0, done.output
        for name in ("jsts", "stsb"):
            done = execute(f"analysis export on-{name} --output {name}.parquet")
            assert done.code == 0, done.output
    return folder


@pytest.fixture
def _stage(recorded: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: Any) -> Iterator[None]:
    page: Path = request.getfixturevalue("page")
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    for name, text in {**STUDIES, "scores.csv": SCORES}.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    if page.name == "sequential.md":
        (tmp_path / "my-study.yaml").write_text(SEQUENTIAL, encoding="utf-8")
    else:
        for file in (recorded / "mlflow.db", *recorded.glob("*.parquet")):
            shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if str(getattr(sys.modules[name], "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


@pytest.mark.endtoend
@pytest.mark.usefixtures("_stage")
@pytest.mark.parametrize("page", WITH_COMMANDS, ids=NAMES)
def test_commands_run_as_written(page: Path) -> None:
    for block in blocks(page):
        if block.is_file is not None:
            Path(block.is_file).write_text(block.content + "\n", encoding="utf-8")
        elif block.is_shell and block.not_run is None:
            check(block)


def check(block: Block) -> None:
    printed = ""
    for command in block.commands():
        done = execute(command)
        assert done.code == 0, f"{block.page.name}:{block.line}: {command}\n{done.output}"
        printed += done.output
    shapes = {shape(line) for line in printed.splitlines()}
    strange = [line for line in block.output() if shape(line) not in shapes]
    assert not strange, f"{block.page.name}:{block.line}: not printed: {strange}\nbut: {printed}"


def shape(line: str) -> str:
    """A line of output without what differs from run to run: numbers, durations, digests, widths of columns."""
    line = re.sub(r"\b[0-9a-f]{8}\b", "KEY", line)
    line = re.sub(r"\d+ (?:s|min|h(?: \d+ min)?)\b", "TIME", line)
    line = re.sub(r", about TIME left$", "", line)
    line = re.sub(r"[+-]?\d+(?:\.\d+)?", "N", line)
    return re.sub(r"[\s─-]+", " ", line).replace("[ ", "[").strip()


def test_a_reason_stands_above_what_is_not_run() -> None:
    reasons = [block.not_run for page in WITH_COMMANDS for block in blocks(page) if block.is_shell]
    assert "" not in reasons


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("[ 1/12] finished a-s0  x 0.3292  in 9 s, about 47 s left", "[12/12] finished a-s5  x 0.1  in 2 min", True),
        ("1   to run  cosent *  0  default  17605c90", "12  to run  cosent *  5  default  45ee0b60", True),
        ("1   to run  cosent *  0  default  17605c90", "12  finished  cosent *  5  default  45ee0b60", False),
        ("12 of 12 cells finished", "12 of 12 cells finished, 1 failed", False),
    ],
)
def test_shapes(one: str, other: str, same: bool) -> None:
    assert (shape(one) == shape(other)) is same
