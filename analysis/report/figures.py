"""Which figures a report has, and what each of them shows."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import TYPE_CHECKING

from analysis.comparing.findings import Comparison, EndpointFinding, StudyFindings
from analysis.report.comparison import metric_order
from analysis.report.document import FigureSlot

if TYPE_CHECKING:
    from analysis.report.plots import Figure, VariantScores

MAX_PER_KIND = 6
"""At most so many figures of one kind; a larger study is read from its settings matrix."""
LONGEST_LABEL = 60
"""Characters of a label in the name of a file."""


@dataclass(frozen=True, kw_only=True)
class DrawnFigure:
    """A figure and where it stands."""

    slot: FigureSlot
    figure: Figure


def draw(findings: StudyFindings) -> list[DrawnFigure]:
    """All figures of a report; an empty study has none."""
    return [
        *_scores(findings),
        *_differences(findings),
        *_forests(findings),
        *_components(findings),
    ]


def _by_metric(comparison: Comparison) -> Iterator[tuple[str, list[EndpointFinding]]]:
    rows = sorted(
        (found for found in comparison.endpoints if found.n_pairs),
        key=lambda found: (metric_order(found.metric), found.dim),
    )
    for metric, group in groupby(rows, key=lambda found: found.metric):
        yield metric, list(group)


def _name(kind: str, number: int, of: int, *labels: str) -> str:
    """`forest`, or `score-by-dim-2-lr=2e-05` where there are several: the number keeps names apart and in order."""
    if of == 1:
        return kind
    told = "-".join(_file_safe(label) for label in labels)
    return f"{kind}-{number + 1}" + (f"-{told}" if told else "")


def _file_safe(label: str) -> str:
    return re.sub(r"[^\w.=+-]+", "_", label)[:LONGEST_LABEL].strip("._-")


def _labels(comparison: Comparison, findings: StudyFindings) -> list[str]:
    """Treatment and setting, where there are several."""
    treatments = {one.treatment for one in findings.comparisons}
    labels = [comparison.treatment] if len(treatments) > 1 else []
    return [*labels, comparison.setting] if len(findings.settings) > 1 else labels


def _scores(findings: StudyFindings) -> Iterator[DrawnFigure]:
    from analysis.report import plots

    settings = [
        setting
        for setting in findings.settings
        if any(c.setting == setting and any(f.n_pairs for f in c.endpoints) for c in findings.comparisons)
    ][:MAX_PER_KIND]
    for number, setting in enumerate(settings):
        panels = _panels([c for c in findings.comparisons if c.setting == setting])
        figure, axes = plots.new_figure(columns=min(len(panels), 2), rows=-(-len(panels) // 2))
        for ax, (metric, series) in zip(axes, panels.items(), strict=False):
            plots.score_by_dim(series, metric, ax)
        for ax in axes[len(panels) :]:
            ax.set_visible(False)
        where = f" ({setting})" if len(findings.settings) > 1 else ""
        caption = f"Score against embedding size{where}: points are seeds, lines their mean, bands one sd."
        slot = FigureSlot(name=_name("score-by-dim", number, len(settings), setting), caption=caption)
        yield DrawnFigure(slot=slot, figure=figure)


def _panels(comparisons: list[Comparison]) -> dict[str, list[VariantScores]]:
    """Metric -> one series per variant, the baseline first; a variant's seeds are those of its pairs."""
    from analysis.report.plots import VariantScores

    panels: dict[str, list[VariantScores]] = {}
    for comparison in comparisons:
        for metric, rows in _by_metric(comparison):
            series = panels.setdefault(metric, [])
            dims = tuple(found.dim for found in rows)
            if not series:
                series.append(
                    VariantScores(
                        variant=comparison.baseline,
                        dims=dims,
                        scores=tuple(found.scores_baseline for found in rows),
                        means=tuple(found.mean_baseline or 0.0 for found in rows),
                        sds=tuple(found.sd_baseline or 0.0 for found in rows),
                    )
                )
            series.append(
                VariantScores(
                    variant=comparison.treatment,
                    dims=dims,
                    scores=tuple(found.scores_treatment for found in rows),
                    means=tuple(found.mean_treatment or 0.0 for found in rows),
                    sds=tuple(found.sd_treatment or 0.0 for found in rows),
                )
            )
    return panels


def _differences(findings: StudyFindings) -> Iterator[DrawnFigure]:
    from analysis.report import plots

    chosen = [c for c in findings.comparisons if any(found.n_pairs for found in c.endpoints)][:MAX_PER_KIND]
    for number, comparison in enumerate(chosen):
        panels = list(_by_metric(comparison))
        figure, axes = plots.new_figure(columns=min(len(panels), 2), rows=-(-len(panels) // 2), height=3.7)
        for ax, (metric, rows) in zip(axes, panels, strict=False):
            plots.paired_differences(rows, comparison.treatment, comparison.baseline, ax)
            ax.set_title(metric, loc="left", fontsize=10)
        for ax in axes[len(panels) :]:
            ax.set_visible(False)
        where = f", {comparison.setting}" if len(findings.settings) > 1 else ""
        caption = (
            f"Paired differences, {comparison.treatment} minus {comparison.baseline}{where}: one point per seed,"
            " the mean with its 95% interval."
        )
        slot = FigureSlot(
            name=_name("paired-differences", number, len(chosen), *_labels(comparison, findings)), caption=caption
        )
        yield DrawnFigure(slot=slot, figure=figure)


def _forests(findings: StudyFindings) -> Iterator[DrawnFigure]:
    from analysis.report import plots

    chosen = [
        (across, endpoint) for across in findings.across_settings for endpoint in across.endpoints if endpoint.primary
    ][:MAX_PER_KIND]
    for number, (across, endpoint) in enumerate(chosen):
        rows = sum(row.mean_difference is not None for row in endpoint.rows) + 1
        figure, axes = plots.new_figure(width=6.4, height=min(1.0 + 0.26 * rows, 40.0))
        plots.forest(endpoint, across.treatment, across.baseline, axes[0])
        caption = (
            f"{endpoint.endpoint} over the settings, {across.treatment} minus {across.baseline}: mean difference with"
            " 95% interval (wins/losses/ties over seeds)."
        )
        slot = FigureSlot(
            name=_name("forest", number, len(chosen), across.treatment, endpoint.endpoint), caption=caption
        )
        yield DrawnFigure(slot=slot, figure=figure)


def _components(findings: StudyFindings) -> Iterator[DrawnFigure]:
    from analysis.report import plots

    chosen = [c for c in findings.comparisons if any(found.crossed for found in c.endpoints)][:MAX_PER_KIND]
    for number, comparison in enumerate(chosen):
        rows = [found for _, group in _by_metric(comparison) for found in group if found.crossed]
        figure, axes = plots.new_figure(width=6.4, height=1.3 + 0.28 * len(rows))
        plots.variance_components(rows, axes[0])
        where = f", {comparison.setting}" if len(findings.settings) > 1 else ""
        caption = (
            f"Where the uncertainty comes from, {comparison.treatment} against {comparison.baseline}{where}: variance"
            " of the mean difference by source."
        )
        slot = FigureSlot(
            name=_name("variance-components", number, len(chosen), *_labels(comparison, findings)), caption=caption
        )
        yield DrawnFigure(slot=slot, figure=figure)
