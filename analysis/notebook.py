"""The analysis from Python: `compare(load("my-study"))` shows its report in a notebook."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from analysis.comparing.findings import Comparison, EndpointFinding, StudyFindings
from analysis.errors import ResultsError
from analysis.report.report import Format, Question, Report, report_on_results
from analysis.results.model import Results

if TYPE_CHECKING:
    import pandas as pd


class StudyReport:
    """Findings that show themselves: as a page in a notebook, as text elsewhere.

    Attributes:
        headline: The verdict in plain words.
        findings: All numbers and sentences (analysis.comparing.findings.StudyFindings): `comparisons`, each with
            `treatment`, `baseline`, `setting`, `verdict` and `endpoints`; `across_settings`, `notices`, `plan`,
            `cells`, `problems`.

    `to_frame()` gives the comparisons' numbers as a table, `render(kind)` the report, `save(folder)` all its files.
    """

    def __init__(self, report: Report) -> None:
        self._report = report

    @property
    def findings(self) -> StudyFindings:
        """All numbers and sentences."""
        return self._report.findings

    @property
    def headline(self) -> str:
        """The verdict in plain words."""
        return self._report.findings.headline

    def to_frame(self) -> pd.DataFrame:
        """The report's numbers: one row per comparison and endpoint; differences are treatment minus baseline.

        Returns:
            Columns: setting, treatment, baseline, endpoint, metric, dim, primary, n_pairs, mean_treatment,
            mean_baseline, mean_difference, sd_difference, ci95_low, ci95_high (t, over seeds), crossed_ci95_low,
            crossed_ci95_high (over seeds and test examples), wins, losses, ties, sign_test_p, p_floor, sign_flip_p,
            adjusted_p, dz, verdict (None: exploratory), sentence. What is not defined for these data is missing.

        Example:
            frame = compare(load("my-study")).to_frame()
            frame[frame.primary][["treatment", "mean_difference", "adjusted_p", "verdict"]]
        """
        import pandas as pd

        rows = [_row(comparison, one) for comparison in self.findings.comparisons for one in comparison.endpoints]
        return pd.DataFrame(rows, columns=[*_PLACE, *_NUMBERS[:5], *_INTERVALS, *_NUMBERS[5:]])

    def render(self, kind: Format = "text") -> str:
        """The report as `text`, `markdown`, `html`, `json` or `latex`."""
        return self._report.render(kind)

    def save(self, folder: str | Path) -> list[Path]:
        """Write the report in every format, with its figures.

        Raises:
            OSError: the folder cannot be written.
        """
        return self._report.write(Path(folder))

    def __str__(self) -> str:
        return self.render("text")

    def __repr__(self) -> str:
        found = self.findings
        primaries = ", ".join(found.plan.primary) or "none"
        return (
            f"<StudyReport {found.study}: {self.headline}>\n"
            f"  {len(found.comparisons)} x {found.baseline or 'no baseline'} as baseline; primary: {primaries}\n"
            "  .to_frame() numbers, .render() the report, .save(folder) files, .findings everything"
        )

    def _repr_html_(self) -> str:
        return self.render("html")


_PLACE = ("setting", "treatment", "baseline", "endpoint", "metric", "dim", "primary")
_NUMBERS = (
    "n_pairs", "mean_treatment", "mean_baseline", "mean_difference", "sd_difference",
    "wins", "losses", "ties", "sign_test_p", "p_floor", "sign_flip_p", "adjusted_p", "dz", "verdict", "sentence",
)  # fmt: skip
_INTERVALS = ("ci95_low", "ci95_high", "crossed_ci95_low", "crossed_ci95_high")


def _row(comparison: Comparison, one: EndpointFinding) -> dict[str, Any]:
    low, high = one.t_ci95 or (None, None)
    crossed_low, crossed_high = one.crossed_ci95 or (None, None)
    return {
        "setting": comparison.setting,
        "treatment": comparison.treatment,
        "baseline": comparison.baseline,
        **{name: getattr(one, name) for name in (*_PLACE[3:], *_NUMBERS)},
        "ci95_low": low,
        "ci95_high": high,
        "crossed_ci95_low": crossed_low,
        "crossed_ci95_high": crossed_high,
    }


def compare(
    results: Results,
    *,
    primary: str | tuple[str, ...] | list[str] = (),
    baseline: str | None = None,
    allow_unverified: bool = False,
    all_pairs: bool = False,
) -> StudyReport:
    """Compare every variant with the baseline.

    Args:
        results: What `load` returned.
        primary: Primary endpoints, such as `test/spearman_256`; empty: the declared ones, else the default.
        baseline: A variant's name; None: the declared baseline, else the first variant.
        allow_unverified: Use pairs whose fingerprints are absent or disagree; the report says so on top.
        all_pairs: With three variants or more: also compare all pairs.

    Returns:
        A StudyReport: `headline`, `findings`, `to_frame()`, `render(kind)`, `save(folder)`.

    Raises:
        PlanError: an endpoint or a baseline that does not exist.
        ResultsError: `results` is not what `load` returns.
    """
    if not isinstance(results, Results):
        raise ResultsError(f"{type(results).__name__} is not valid; expected what analysis.load returns")
    names = (primary,) if isinstance(primary, str) else tuple(primary)
    question = Question(primary=names, baseline=baseline, allow_unverified=allow_unverified, all_pairs=all_pairs)
    return StudyReport(report_on_results(results, question))
