"""The terminal report: verdict, primary and test endpoints, and one line for everything else that matters.

All tables stand in the full report (`--full`, and every other format).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import replace

from analysis import schema
from analysis.comparing.findings import AcrossEndpoint, AcrossSettings, Comparison, EndpointFinding, StudyFindings
from analysis.comparing.wording import examples_text
from analysis.report.build import advice, many_variants, method, not_used, notices, title_of
from analysis.report.comparison import endpoint_caption, endpoint_tables, facts, is_sequential
from analysis.report.document import (
    Block,
    Bullets,
    Column,
    Document,
    Paragraph,
    Section,
    Table,
    show_difference,
    show_p,
    show_size,
    show_wins,
)
from analysis.report.settings import settings_facts, summary_table

SHOWN_METRICS = ("test/spearman", "test/pearson")
"""Shown beside the primary endpoints' own metrics."""
MAX_ITEMS = 6
MAX_SETTINGS = 20
MAX_COMPARISONS = 4
MAX_PRIMARIES = 5
"""Columns of the settings matrix."""
NOTHING_DROPPED = "Nothing was dropped: every recorded cell is in a pair."
MORE = "More tables (other splits, effect sizes, variances): --full, or --format markdown or html."


def brief(findings: StudyFindings) -> Document:
    """A screen or two about a study."""
    sections: list[Section] = []
    if findings.across_settings:
        sections += [
            Section(
                title=f"{across.treatment} against {across.baseline}, over all settings",
                blocks=_across(across, findings),
            )
            for across in findings.across_settings
        ]
    else:
        shown = findings.comparisons[:MAX_COMPARISONS]
        sections += [Section(title=title_of(c, findings), blocks=_comparison(c, findings)) for c in shown]
        rest = [c.treatment for c in findings.comparisons[MAX_COMPARISONS:]]
        if rest:
            text = f"Tables of {', '.join(rest)}: --full."
            sections.append(Section(title="Other comparisons", blocks=(Paragraph(text=text),)))
    if findings.many_variants:
        sections.append(Section(title="More than two variants", blocks=tuple(many_variants(findings))))
    left_out = not_used(findings)
    nothing = all(isinstance(block, Paragraph) for block in left_out)
    if not nothing:
        title = "What was not used, and why"
        sections.append(Section(title=title, blocks=tuple(_shortened(block) for block in left_out)))
    notes = [NOTHING_DROPPED] if nothing else []
    notes += [*_texts(advice(findings)), *_texts(method(findings)), MORE]
    sections.append(Section(title="More seeds, and the method", blocks=(Bullets(items=tuple(notes)),)))
    return Document(
        study=findings.study, headline=findings.headline, notices=notices(findings), sections=tuple(sections)
    )


def _texts(blocks: Iterable[Block]) -> list[str]:
    out: list[str] = []
    for block in blocks:
        if isinstance(block, Paragraph):
            out.append(block.text)
        elif isinstance(block, Bullets):
            out += block.items
    return out


def _shortened(block: Block) -> Block:
    if isinstance(block, Bullets) and len(block.items) > MAX_ITEMS:
        more = f"and {len(block.items) - MAX_ITEMS} more: --full"
        return Bullets(items=(*block.items[:MAX_ITEMS], more))
    return block


def _shown(endpoint: EndpointFinding, primary_metrics: set[str]) -> bool:
    return endpoint.metric in SHOWN_METRICS or endpoint.metric in primary_metrics


def _comparison(comparison: Comparison, findings: StudyFindings) -> tuple[Block, ...]:
    sequential = is_sequential(findings)
    primary_metrics = {found.metric for found in comparison.endpoints if found.primary}
    rows = [found for found in comparison.endpoints if _shown(found, primary_metrics)]
    tables = endpoint_tables(replace(comparison, endpoints=tuple(rows)), sequential=sequential)
    blocks: list[Block] = [replace(table, caption="") for table in tables]
    if rows:
        blocks.append(Paragraph(text=endpoint_caption(rows, sequential=sequential)))
    unverified = comparison.unverified_pairs if all(n.kind != "unverified" for n in findings.notices) else 0
    lines = [*facts(replace(comparison, unverified_pairs=unverified)), *_variance(rows), *_equivalence(rows)]
    if lines:
        blocks.append(Bullets(items=tuple(lines)))
    return tuple(blocks)


def _variance(rows: list[EndpointFinding]) -> list[str]:
    """Seeds against test examples, for the primary of the largest dim."""
    known = [(row.dim, row.endpoint, row.crossed) for row in rows if row.primary and row.crossed is not None]
    if not known:
        return []
    _, name, parts = max(known, key=lambda entry: entry[0])
    return [
        f"Uncertainty of the mean difference on {name} (sd): {_sd(parts.seed_variance_of_mean)} from"
        f" {parts.n_seeds} seeds, {_sd(parts.shared_example_variance)} from the {examples_text(parts)}"
        f" they share; infinitely many seeds would leave ±{show_size(parts.half_width_infinite_seeds)} (95%)."
    ]


def _sd(variance: float) -> str:
    return show_size(math.sqrt(variance))


def _equivalence(rows: list[EndpointFinding]) -> list[str]:
    tested = [(row, row.equivalence) for row in rows if row.primary and row.equivalence is not None]
    if not tested:
        return []
    margin = tested[0][1].margin
    parts = [
        f"{row.endpoint} {'yes' if test.equivalent else 'no'}"
        + ("" if test.exact_p is None else f" (p = {show_p(test.exact_p)})")
        for row, test in tested
    ]
    return [f"Equivalent within the margin {margin:g}? {'; '.join(parts)}."]


def _across(across: AcrossSettings, findings: StudyFindings) -> tuple[Block, ...]:
    sequential = is_sequential(findings)
    primaries = [found for found in across.endpoints if found.primary]
    metrics = {metric_of(found) for found in primaries} | set(SHOWN_METRICS)
    shown = [found for found in across.endpoints if metric_of(found) in metrics]
    blocks: list[Block] = [summary_table(replace(across, endpoints=tuple(shown)), sequential=sequential)]
    if primaries:
        by_metric: dict[str, list[AcrossEndpoint]] = {}
        for found in primaries:
            by_metric.setdefault(metric_of(found), []).append(found)
        blocks += [_matrix(metric, same[:MAX_PRIMARIES]) for metric, same in by_metric.items()]
        lines = settings_facts(primaries[0], sequential=sequential)
        if len(primaries) > 1:
            lines = [f"{primaries[0].endpoint}: {line}" for line in lines]
        blocks.append(Bullets(items=tuple(lines)))
    return tuple(blocks)


def metric_of(found: AcrossEndpoint) -> str:
    """`test/spearman` of `test/spearman_256`."""
    return schema.endpoint_named(found.endpoint).metric


def _dim(endpoint: str) -> str:
    """`256`, or nothing for a metric without dims."""
    dim = schema.endpoint_named(endpoint).dim
    return str(dim) if dim else ""


def _matrix(metric: str, primaries: list[AcrossEndpoint]) -> Table:
    """Settings x primaries: mean difference and wins/losses/ties."""
    rows = []
    for position, row in enumerate(primaries[0].rows[:MAX_SETTINGS]):
        cells = [found.rows[position] for found in primaries]
        rows.append(
            (
                row.setting,
                str(row.n_pairs),
                *(f"{show_difference(c.mean_difference)} {show_wins(c.wins, c.losses, c.ties)}" for c in cells),
            )
        )
    hidden = len(primaries[0].rows) - len(rows)
    by_dim = " by dim" if any(_dim(found.endpoint) for found in primaries) else ""
    return Table(
        title=f"Settings matrix, {metric}{by_dim}: mean difference and wins/losses/ties (descriptive)",
        columns=(
            Column(heading="setting", align="left"),
            Column(heading="pairs"),
            *(Column(heading=_dim(found.endpoint) or "mean diff W/L/T") for found in primaries),
        ),
        rows=tuple(rows),
        caption=f"and {hidden} more settings: --full" if hidden else "",
    )
