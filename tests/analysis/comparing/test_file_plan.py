"""A study file that was changed after the first run: the report says that it does not follow it."""

from __future__ import annotations

from pathlib import Path

import pytest

from analysis.comparing.file_plan import differences
from analysis.plan import AnalysisPlan

DECLARED = {**AnalysisPlan(primary=("test/spearman_8",), margin=0.002).model_dump(mode="json"), "baseline": "a"}
AS_DECLARED = "name: s\nbaseline: a\nanalysis: {primary: [test/spearman_8], margin: 2.0e-3}\n"


def in_file(folder: Path, text: str) -> list[str]:
    path = folder / "s.yaml"
    path.write_text(text)
    return [line.removeprefix(f"{path}: ") for line in differences(path, DECLARED)]


def test_a_file_as_recorded_gives_no_line(tmp_path: Path) -> None:
    assert in_file(tmp_path, AS_DECLARED) == []
    assert in_file(tmp_path, AS_DECLARED.replace("baseline: a\n", "")) == []  # not named: the first variant


@pytest.mark.parametrize(
    ("changed", "line"),
    [
        (("baseline: a", "baseline: b"), "baseline is b, recorded at the first run: a; the recorded one counts"),
        (
            ("spearman_8", "pearson_8"),
            "analysis.primary is test/pearson_8, recorded at the first run: test/spearman_8; the recorded one counts",
        ),
        (
            (", margin: 2.0e-3", ""),
            "analysis.margin is none, recorded at the first run: 0.002; the recorded one counts",
        ),
    ],
)
def test_a_changed_field_is_named(tmp_path: Path, changed: tuple[str, str], line: str) -> None:
    assert in_file(tmp_path, AS_DECLARED.replace(*changed)) == [line]


@pytest.mark.parametrize(
    ("field", "start"),
    [
        ("stopping: never", "analysis.stopping: 'never' is not valid ("),
        ("margn: 1", "analysis.margn: 1 is not valid ("),
        ("alpha: 2", "analysis.alpha: 2 is not valid ("),
    ],
)
def test_a_plan_that_is_not_valid_is_named(tmp_path: Path, field: str, start: str) -> None:
    (line,) = in_file(tmp_path, f"name: s\nanalysis: {{{field}}}\n")
    assert line.startswith(start)
    assert line.endswith("; the plan recorded at the first run counts")


def test_without_a_recorded_plan_nothing_differs(tmp_path: Path) -> None:
    path = tmp_path / "s.yaml"
    path.write_text(AS_DECLARED)
    assert differences(path, None) == []
