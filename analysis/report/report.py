"""From a question about a study to its finished report: read or take from the cache, compare, render, note."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from analysis import schema
from analysis.comparing.angle_roles import AngleRoles, angle_roles
from analysis.comparing.findings import AcrossSettings, Comparison, EndpointFinding, Notice, StudyFindings
from analysis.errors import PlanError, ResultsError
from analysis.plan import AnalysisPlan
from analysis.report.document import Document
from analysis.results.model import Results
from analysis.showing import counted

if TYPE_CHECKING:
    from analysis.results.mlflow_study import MlflowStudy
    from analysis.revisions import Meant

Format = Literal["text", "markdown", "html", "json", "latex"]
FORMATS: tuple[Format, ...] = ("text", "markdown", "html", "json", "latex")
FILE_NAMES: dict[Format, str] = {
    "text": "report.txt",
    "markdown": "report.md",
    "html": "report.html",
    "json": "report.json",
    "latex": "report.tex",
}
MONTE_CARLO_SEED = 0
"""The same results give the same report, to the last digit."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked about a study."""

    primary: tuple[str, ...] = ()
    """Primary endpoints; empty: the declared ones, else the default."""
    baseline: str | None = None
    variants: tuple[str, ...] = ()
    """Only these, each as `mine` or, in an MLflow study, as `mine@1`, a revision of it; empty: all."""
    allow_unverified: bool = False
    all_pairs: bool = False
    lower_is_better: tuple[str, ...] = ()
    """Metrics, such as `test/loss`, of which less is better."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """An answer, ready to be rendered."""

    findings: StudyFindings
    roles: AngleRoles | None = None
    origin: MlflowStudy | None = field(default=None, repr=False)
    """The MLflow study that it was made from, if it was."""

    def render(self, kind: Format, *, colour: bool = False, full: bool = False) -> str:
        """The report in one format; HTML has its figures inside; text is brief unless `full`."""
        if kind == "json":
            from analysis.report.machine import to_json

            return to_json(self.findings, self.roles)
        if kind == "html":
            return self._html(draw_figures(self.findings))
        if kind == "text" and not full:
            from analysis.report.brief import brief
            from analysis.report.text import to_text

            return to_text(brief(self.findings), colour=colour)
        document = self.document()
        if kind == "markdown":
            from analysis.report.markdown import to_markdown

            return to_markdown(document)
        if kind == "latex":
            from analysis.report.latex import to_latex

            return to_latex(document)
        from analysis.report.text import to_text

        return to_text(document, colour=colour)

    def document(self, figures: tuple[Any, ...] = ()) -> Document:
        """The report before it has a format."""
        from analysis.report.build import build

        return build(self.findings, roles=self.roles, figures=tuple(drawn.slot for drawn in figures))

    def _html(self, figures: tuple[Any, ...]) -> str:
        from analysis.report.html import to_html
        from analysis.report.plots import png

        return to_html(self.document(figures), {drawn.slot.name: png(drawn.figure) for drawn in figures})

    def write(self, folder: Path) -> list[Path]:
        """Write the report in every format, with its figures as PNG and SVG.

        Raises:
            OSError: the folder cannot be written.
        """
        from analysis.files import write_atomically
        from analysis.report.markdown import to_markdown
        from analysis.report.plots import save

        folder.mkdir(parents=True, exist_ok=True)
        figures = draw_figures(self.findings)
        written = []
        for kind in FORMATS:
            if kind == "html":
                text = self._html(figures)
            elif kind == "markdown":
                text = to_markdown(self.document(figures))
            else:
                text = self.render(kind)
            path = folder / FILE_NAMES[kind]
            write_atomically(path, text.encode())
            written.append(path)
        for drawn in figures:
            written += save(drawn.figure, folder, drawn.slot.name)
        return written

    def beside_file(self, path: Path) -> Report:
        """The report of a study file: where the file's plan is not the one that counts, it says so on top."""
        from analysis.comparing.plan_in_force import file_differences

        lines = file_differences(path, self.findings.plan.declared)
        notices = tuple(Notice(kind="file", text=f"{line[0].upper()}{line[1:]}.") for line in lines)
        return replace(self, findings=replace(self.findings, notices=(*notices, *self.findings.notices)))

    def note_detail(self) -> dict[str, Any]:
        """What the study run remembers of this report: how much it could have decided."""
        primaries = [found for c in self.findings.comparisons for found in c.endpoints if found.primary]
        across = [found for a in self.findings.across_settings for found in a.endpoints if found.primary]
        floors = [found.p_floor if found.adjusted_floor is None else found.adjusted_floor for found in primaries]
        floors += [found.p_floor if found.adjusted_floor is None else found.adjusted_floor for found in across]
        return {
            "pairs": max((found.n_pairs for found in primaries), default=0),
            "could_reach_alpha": any(floor <= self.findings.plan.alpha for floor in floors),
        }

    def headline_numbers(self) -> tuple[dict[str, float], dict[str, str]]:
        """What the report concludes, for a list of runs: numbers by metric name, and verdicts by treatment.

        Of primary endpoints only, over all settings where there are several. A sequential study has no p-value.
        """
        found: Sequence[AcrossSettings | Comparison] = self.findings.across_settings or self.findings.comparisons
        numbers: dict[str, float | None] = {}
        for one in found:
            for endpoint in one.endpoints:
                if not endpoint.primary:
                    continue
                treatment, baseline, name = one.treatment, one.baseline, endpoint.endpoint
                difference = schema.report_metric(schema.REPORT_DIFFERENCE, treatment, name)
                numbers[difference] = endpoint.mean_difference
                if endpoint.e_threshold is None:
                    numbers[schema.report_metric(schema.REPORT_P, treatment, name)] = endpoint.adjusted_p
                if isinstance(endpoint, EndpointFinding):
                    mean = schema.REPORT_MEAN
                    numbers[schema.report_metric(mean, treatment, name)] = endpoint.mean_treatment
                    numbers[schema.report_metric(mean, baseline, name)] = endpoint.mean_baseline
        known = {name: value for name, value in numbers.items() if value is not None and math.isfinite(value)}
        exploratory = ", exploratory" if self.findings.plan.exploratory else ""
        return known, {one.treatment: f"{one.verdict}{exploratory}" for one in found}


def draw_figures(findings: StudyFindings) -> tuple[Any, ...]:
    """All figures of a report."""
    from analysis.report.figures import draw

    return tuple(draw(findings))


def report_on_results(results: Results, question: Question) -> Report:
    """Compare what was recorded.

    Raises:
        PlanError: the question names an endpoint or a baseline that does not exist.
    """
    import numpy as np

    from analysis.comparing.study import compare

    results = turned(only(results, question.variants), question.lower_is_better)
    findings = compare(
        results,
        plan=asked_plan(results.declared_plan, question.primary, recorded_endpoints(results)),
        baseline=question.baseline or _baseline_among(question.variants, results.declared_baseline),
        allow_unverified=question.allow_unverified,
        all_pairs=question.all_pairs,
        rng=np.random.default_rng(MONTE_CARLO_SEED),
    )
    unreadable = tuple(getattr(results.predictions, "problems", ()))
    fresh = tuple(problem for problem in unreadable if problem not in findings.problems)
    findings = replace(findings, problems=(*findings.problems, *fresh))
    return Report(findings=findings, roles=angle_roles(results.cells))


def report_on_study(
    study: str,
    question: Question,
    tracking_uri: str | None = None,
    progress: Callable[[str], None] = lambda text: None,
    *,
    meant: Meant | None = None,
) -> Report:
    """Compare an MLflow study, or take what was found before in the same state of the store.

    Args:
        study: The experiment's name.
        question: What is asked.
        tracking_uri: The store; None: the default one.
        progress: Gets a line on what is being done.
        meant: What the study's file means now; None: only its name is known.

    Raises:
        ResultsError: the store or the study cannot be read.
        PlanError: the question names an endpoint or a baseline that does not exist.
    """
    from analysis.report import cache
    from analysis.results.mlflow_study import MlflowStudy, finished_splits

    origin = MlflowStudy(study, tracking_uri, meant=meant)
    state = origin.state()
    asked = {
        "primary": question.primary,
        "baseline": question.baseline,
        "allow_unverified": question.allow_unverified,
        "all_pairs": question.all_pairs,
        "lower_is_better": question.lower_is_better,
        "variants": question.variants,
    }
    key = cache.entry_key({"state": state, "question": asked})
    kept = cache.load(origin.folder, key)
    if kept is not None:
        return Report(findings=kept.findings, roles=kept.roles, origin=origin)
    progress("reading the cells")
    results = origin.results(question.variants)
    for split in finished_splits(results):
        prefetch = getattr(results.predictions, "prefetch", None)
        if prefetch is not None:
            prefetch([cell.cell for cell in results.cells], split)
    progress(f"comparing {counted(len(results.cells), 'cell')}")
    report = replace(report_on_results(results, question), origin=origin)
    # The note that follows a report changes the history; what was found stays valid with it.
    noted = origin.state_after_note(state, report.note_detail())
    for known in (state, noted):
        entry_key = cache.entry_key({"state": known, "question": asked})
        cache.save(origin.folder, cache.CachedReport(key=entry_key, findings=report.findings, roles=report.roles))
    return report


def only(results: Results, variants: tuple[str, ...]) -> Results:
    """The results of these variants; all where none is named.

    Raises:
        PlanError: a variant that is not recorded.
    """
    if not variants:
        return results
    recorded = list(dict.fromkeys(cell.variant for cell in results.cells))
    for variant in variants:
        if variant not in recorded:
            raise PlanError(f"--variants: {variant!r} is not recorded; recorded: {', '.join(recorded)}")
    return replace(
        results,
        cells=tuple(cell for cell in results.cells if cell.variant in variants),
        table=results.table[results.table["variant"].isin(variants)],
        variant_order=variants,
    )


def _baseline_among(variants: tuple[str, ...], declared: str | None) -> str | None:
    """With some variants chosen: the declared baseline if it is one of them, else the first of them."""
    return None if not variants or declared in variants else variants[0]


def turned(results: Results, metrics: tuple[str, ...]) -> Results:
    """The results with the sign of these metrics turned, so that higher is better.

    Raises:
        PlanError: a metric that was not recorded.
    """
    if not metrics:
        return results
    recorded = list(dict.fromkeys(results.table["metric"]))
    for metric in metrics:
        if metric not in recorded:
            shown = ", ".join(map(str, recorded))
            raise PlanError(f"--lower-is-better: {metric!r} was not recorded; recorded: {shown}")
    table = results.table.copy()
    table.loc[table["metric"].isin(metrics), "value"] *= -1
    return replace(results, table=table, turned=metrics)


def recorded_endpoints(results: Results) -> frozenset[str]:
    """Names of all endpoints that have a score."""
    pairs = results.table[["metric", "dim"]].drop_duplicates().itertuples(index=False, name=None)
    return frozenset(str(schema.Endpoint(str(metric), int(dim))) for metric, dim in pairs)


def asked_plan(
    declared: AnalysisPlan | None, primary: tuple[str, ...], recorded: frozenset[str] = frozenset()
) -> AnalysisPlan | None:
    """The declared plan with other primary endpoints; None where nothing else was asked.

    Endpoints that are recorded need not be written as a study file writes them: tables of other tools have others.

    Raises:
        PlanError: a primary that is not written as an endpoint.
    """
    if not primary:
        return None
    from pydantic import ValidationError

    if primary and set(primary) <= recorded and len(set(primary)) == len(primary):
        return (declared or AnalysisPlan()).model_copy(update={"primary": primary})
    base = {} if declared is None else declared.model_dump()
    try:
        return AnalysisPlan.model_validate({**base, "primary": primary})
    except ValidationError as error:
        raise PlanError(f"--primary: {error.errors()[0]['msg'].removeprefix('Value error, ')}") from None


def note(report: Report, *, attach: bool) -> None:
    """Note on the study run that the report was made; `attach` stores its files there too.

    Raises:
        ResultsError: it cannot be noted.
    """
    import tempfile

    if report.origin is None:
        return
    try:
        report.origin.note_report(report.note_detail())
        if attach:
            with tempfile.TemporaryDirectory() as folder:
                report.write(Path(folder))
                report.origin.attach(Path(folder))
            report.origin.describe(report.findings.headline)
            report.origin.record_findings(*report.headline_numbers())
    except ResultsError:
        raise
    except Exception as error:  # whatever MLflow or its store raises: the report stands
        raise ResultsError(f"{type(error).__name__}: {' '.join(str(error).split())[:160]}") from None
