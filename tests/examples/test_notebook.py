"""The example notebook runs from top to bottom and shows a report."""

from __future__ import annotations

from pathlib import Path

import pytest

NOTEBOOK = Path(__file__).parents[2] / "examples" / "notebook.ipynb"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> tuple[list, Path]:  # type: ignore[type-arg]
    """What each code cell shows, and the folder that it ran in."""
    import nbformat
    from nbclient import NotebookClient

    folder = tmp_path_factory.mktemp("notebook")
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    NotebookClient(notebook, timeout=300, kernel_name="python3", resources={"metadata": {"path": folder}}).execute()
    return [cell.outputs for cell in notebook.cells if cell.cell_type == "code"], folder


def test_it_is_kept_without_outputs() -> None:
    import nbformat

    cells = nbformat.read(NOTEBOOK, as_version=4).cells
    assert [cell for cell in cells if cell.cell_type == "code" and (cell.outputs or cell.execution_count)] == []


def test_the_report_shows_itself_with_figures(outputs) -> None:  # type: ignore[no-untyped-def]
    shown = [one.data for cell in outputs[0] for one in cell if "data" in one]
    pages = [data["text/html"] for data in shown if "text/html" in data]
    (report,) = [page for page in pages if "interleaved against chunked" in page]
    assert "data:image/png;base64," in report
    assert "<table" in report


def test_the_headline_is_a_verdict_on_unverified_pairs(outputs) -> None:  # type: ignore[no-untyped-def]
    headline = outputs[0][1][0].data["text/plain"]
    assert "interleaved is better than chunked on test/spearman_256, on this test set" in headline


def test_it_saves_every_format(outputs) -> None:  # type: ignore[no-untyped-def]
    names = {path.name for path in (outputs[1] / "report").iterdir()}
    assert {"report.html", "report.md", "report.txt", "report.json", "report.tex", "score-by-dim.png"} <= names


def test_text_goes_to_its_file_not_into_the_notebook(outputs) -> None:  # type: ignore[no-untyped-def]
    assert "interleaved against chunked" in (outputs[1] / "report" / "report.txt").read_text(encoding="utf-8")
    assert [one.output_type for one in outputs[0][-1]] == ["execute_result"]
