"""The analysis from Python: `compare(load("my-study"))` shows its report in a notebook."""

from __future__ import annotations

from pathlib import Path

from analysis.comparing.findings import StudyFindings
from analysis.errors import ResultsError
from analysis.report.report import Format, Question, Report, report_on_results
from analysis.results.model import Results


class StudyReport:
    """Findings that show themselves: as a page in a notebook, as text elsewhere."""

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
        return f"<StudyReport {self.findings.study}: {self.headline}>"

    def _repr_html_(self) -> str:
        return self.render("html")


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

    Raises:
        PlanError: an endpoint or a baseline that does not exist.
        ResultsError: `results` is not what `load` returns.
    """
    if not isinstance(results, Results):
        raise ResultsError(f"{type(results).__name__} is not valid; expected what analysis.load returns")
    names = (primary,) if isinstance(primary, str) else tuple(primary)
    question = Question(primary=names, baseline=baseline, allow_unverified=allow_unverified, all_pairs=all_pairs)
    return StudyReport(report_on_results(results, question))
