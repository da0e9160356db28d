"""The demo's results in the MLflow UI, as a user finds them: cells, groups, the chart over sizes, the report."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import pytest

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(
        shutil.which("chromium") is None or shutil.which("chromedriver") is None,
        reason="chromium and chromedriver are not installed (apt-get install chromium chromium-driver)",
    ),
]
CELLS = quote("tags.`sweep.kind` = 'cell'")


@pytest.fixture(scope="module")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the demo has been run; PAIRSWEEP_DEMO names one that is there already."""
    from tests.browser.demo import run_demo

    ready = os.environ.get("PAIRSWEEP_DEMO")
    return Path(ready) if ready else run_demo(tmp_path_factory.mktemp("demo"))


@pytest.fixture(scope="module")
def ui(demo: Path) -> Iterator[str]:
    from tests.browser.demo import served

    with served(demo) as address:
        yield address


@pytest.fixture
def page(tmp_path: Path) -> Iterator:  # type: ignore[type-arg]
    """A fresh browser; PAIRSWEEP_SCREENSHOTS names a folder that keeps what it saw."""
    from tests.browser.demo import browser

    folder = Path(os.environ.get("PAIRSWEEP_SCREENSHOTS") or tmp_path)
    with browser(tmp_path / "profile", folder) as found:
        yield found


@pytest.fixture(scope="module")
def study_run(demo: Path) -> tuple[str, str]:
    """(experiment, run) of the demo's study run."""
    from sweep.record.tracking import Tracking

    run = Tracking(f"sqlite:///{demo / 'mlflow.db'}").study_run("toy")
    assert run is not None
    return run.experiment_id, run.run_id


def test_the_experiment_is_found_from_the_front_page(page, ui: str) -> None:  # type: ignore[no-untyped-def]
    page.open(f"{ui}/#/experiments")
    page.one("a", "toy").click()
    page.says("toy")


def test_a_newcomer_clicks_from_the_home_page_to_scores_and_charts(page, ui: str) -> None:  # type: ignore[no-untyped-def]
    """MLflow opens experiments of its home page on a GenAI page; the description that stands there is the way out."""
    page.open(ui)
    page.close_assistant()
    page.one("a[href*='/experiments/1']", "toy").click()
    page.one("button", "Got it").click()
    page.says("Study. interleaved, cosent against chunked.")
    page.until(lambda: page.one("a", "Charts by variant").click() or True)
    page.driver.switch_to.window(page.until(lambda: page.driver.window_handles[1:])[0])
    page.says("Group: chunked", "Group: interleaved", "Group: cosent", "chunked-s0-default")
    page.says("test/spearman_64", "test/spearman_by_dim")
    assert "No charts in this section" not in page.text()
    page.until(lambda: len(page.all(".barlayer .point")) >= 3)
    page.screenshot("mlflow-newcomer")


def group_by_variant(page, address: str) -> None:  # type: ignore[no-untyped-def]
    """As a user does it: open the menu, choose the tag; and again where the page drew itself anew meanwhile."""
    page.open(address)
    page.close_assistant()

    def grouped() -> bool:
        if "Group: chunked" in page.text():
            return True
        tag = next((one for one in page.all("[role=menuitemcheckbox]") if "sweep.variant" in one.text), None)
        menu = next((one for one in page.all("button") if "Group by" in one.text), None)
        if tag is not None:
            if tag.get_attribute("aria-checked") != "true":
                tag.click()
        elif menu is not None and menu.get_attribute("aria-expanded") != "true":
            menu.click()
        return False

    page.until(grouped)
    page.says("Group: chunked", "Group: interleaved", "Group: cosent")


def test_cells_are_found_and_grouped_by_variant(page, ui: str, study_run: tuple[str, str]) -> None:  # type: ignore[no-untyped-def]
    group_by_variant(page, f"{ui}/#/experiments/{study_run[0]}/runs?searchFilter={CELLS}")
    page.says("chunked-s4-default", "interleaved-s2-default", "cosent-s0-default")
    page.screenshot("mlflow-grouped")


def test_scores_are_charted_against_size(page, ui: str, study_run: tuple[str, str]) -> None:  # type: ignore[no-untyped-def]
    cells = f"{ui}/#/experiments/{study_run[0]}/runs?searchFilter={CELLS}"
    group_by_variant(page, cells)
    page.open(f"{cells}&compareRunsMode=CHART")
    page.one("input[placeholder='Search metric charts']").send_keys("test/spearman_by_dim")
    sizes = page.until(lambda: {tick.text for tick in page.all(".xtick text")} & {"20", "40", "60"})
    assert sizes == {"20", "40", "60"}  # the steps of this metric are sizes, 8 to 64
    page.until(lambda: len(page.all(".scatterlayer path.js-line")) >= 3)
    page.says("test/spearman_by_dim")
    page.screenshot("mlflow-by-dim")


def test_the_study_run_says_what_it_asks_and_found(page, ui: str, study_run: tuple[str, str]) -> None:  # type: ignore[no-untyped-def]
    experiment, run = study_run
    page.open(f"{ui}/#/experiments/{experiment}/runs/{run}")
    page.close_assistant()
    page.says("Question.", "better than chunked on test/spearman_64?", "Verdict.", "seeds favour")
    page.one("button", "Show more").click()
    page.says("Design.", "15 cells")
    page.screenshot("mlflow-study")


def test_the_report_opens_with_its_figures(page, ui: str, study_run: tuple[str, str]) -> None:  # type: ignore[no-untyped-def]
    experiment, run = study_run
    page.open(f"{ui}/#/experiments/{experiment}/runs/{run}/artifacts/reports/report.html")
    page.close_assistant()
    page.driver.switch_to.frame(page.one("iframe"))
    page.says("interleaved against chunked", "seeds favour")
    drawn = page.until(lambda: [image for image in page.all("img") if int(image.get_property("naturalWidth")) > 100])
    assert len(drawn) == len(page.all("img")) >= 3
    page.driver.switch_to.default_content()
    page.screenshot("mlflow-report")


def test_the_report_stands_alone(page, demo: Path) -> None:  # type: ignore[no-untyped-def]
    """The file that `--output` wrote shows its figures without a server."""
    page.open((demo / "demo" / "report.html").as_uri())
    page.says("cosent against chunked")
    images = page.until(lambda: page.all("img"))
    page.until(lambda: all(int(image.get_property("naturalWidth")) > 100 for image in images))
