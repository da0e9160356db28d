"""One comparison inside one setting, as blocks of a report."""

from __future__ import annotations

from itertools import groupby

from analysis.comparing.findings import Comparison, EndpointFinding, StudyFindings
from analysis.comparing.wording import examples_text
from analysis.report.document import (
    NONE,
    Block,
    Bullets,
    Column,
    Paragraph,
    Table,
    show_difference,
    show_interval,
    show_mean_sd,
    show_p,
    show_size,
    show_small,
    show_wins,
)

FIXED_COLUMNS = ("sign p", "floor", "flip p", "step p")
SEQUENTIAL_COLUMNS = ("e-value", "needed")


def comparison_blocks(comparison: Comparison, findings: StudyFindings) -> tuple[Block, ...]:
    """Verdict, endpoint tables and what stands beside them."""
    sequential = is_sequential(findings)
    blocks: list[Block] = [Paragraph(text=comparison.sentence, strong=True)]
    if comparison.conflict:
        blocks.append(Paragraph(text=comparison.conflict))
    by_metric = _sorted(comparison)
    blocks += endpoint_tables(comparison, sequential=sequential)
    primaries = [found for found in comparison.endpoints if found.primary]
    if len(primaries) > 1:
        blocks.append(Bullets(items=tuple(found.sentence for found in primaries)))
    lines = facts(comparison)
    if lines:
        blocks.append(Bullets(items=tuple(lines)))
    if any(found.n_pairs >= 2 for found in comparison.endpoints):
        blocks += [
            _beside_table(metric, list(group), sequential)
            for metric, group in groupby(by_metric, key=lambda found: found.metric)
        ]
    if any(found.crossed for found in comparison.endpoints):
        blocks.append(_variance_table(by_metric))
    blocks += _equivalence(by_metric)
    blocks += _one_pair(by_metric)
    return tuple(blocks)


def is_sequential(findings: StudyFindings) -> bool:
    """Whether e-values take the place of p-values."""
    return findings.plan.stopping == "sequential"


def endpoint_tables(comparison: Comparison, *, sequential: bool) -> list[Table]:
    """One table per metric, one row per dim."""
    return [
        _endpoint_table(metric, list(group), comparison, sequential)
        for metric, group in groupby(_sorted(comparison), key=lambda found: found.metric)
    ]


def _sorted(comparison: Comparison) -> list[EndpointFinding]:
    return sorted(comparison.endpoints, key=lambda found: (metric_order(found.metric), found.dim))


def metric_order(metric: str) -> tuple[bool, bool, str]:
    """Sorts the test split first, and Spearman before Pearson."""
    return not metric.startswith("test/"), not metric.endswith("/spearman"), metric


def _dim(found: EndpointFinding) -> str:
    return f"{found.dim or '-'}{' *' if found.primary else ''}"


def _endpoint_table(metric: str, rows: list[EndpointFinding], comparison: Comparison, sequential: bool) -> Table:
    tests = SEQUENTIAL_COLUMNS if sequential else FIXED_COLUMNS
    n = sorted({found.n_pairs for found in rows})
    pairs = f"{n[0]}" if len(n) == 1 else f"{n[0]} to {n[-1]}"
    return Table(
        title=f"{metric}: {pairs} pairs, mean±sd over seeds; the difference is"
        f" {comparison.treatment} minus {comparison.baseline}",
        columns=tuple(
            Column(heading=heading)
            for heading in (
                "dim",
                comparison.treatment,
                comparison.baseline,
                "mean diff",
                "W/L/T",
                *tests,
                "crossed 95%",
            )
        ),
        rows=tuple(
            (
                _dim(found),
                show_mean_sd(found.mean_treatment, found.sd_treatment),
                show_mean_sd(found.mean_baseline, found.sd_baseline),
                show_difference(found.mean_difference),
                show_wins(found.wins, found.losses, found.ties),
                *_test_cells(found, sequential),
                show_interval(found.crossed.ci95_joint if found.crossed else None),
            )
            for found in rows
        ),
        caption=endpoint_caption(rows, sequential=sequential),
        key=True,
    )


def _test_cells(found: EndpointFinding, sequential: bool) -> tuple[str, ...]:
    if sequential:
        return show_small(found.e_value, 4), show_small(found.e_threshold, 4)
    values = (found.sign_test_p, found.p_floor, found.sign_flip_p, found.adjusted_p)
    return tuple(show_p(value) for value in values)


def endpoint_caption(rows: list[EndpointFinding], *, sequential: bool) -> str:
    """What the columns of endpoint tables mean, and why something is not there."""
    parts = ["* primary; other rows are exploratory and get no verdict."] if any(f.primary for f in rows) else []
    if not parts:
        parts = ["Exploratory: no verdict is drawn from these rows."]
    if not sequential:
        parts.append(
            "floor: the smallest p that so many untied seeds can give; step p: joint test over the primaries;"
            " crossed 95%: interval over seeds and test examples, for all primaries and comparisons at once."
        )
    missing = dict.fromkeys(found.crossed_missing for found in rows if found.crossed_missing)
    parts += [f"No crossed interval: {reason.rstrip('.')}." for reason in missing if reason]
    return " ".join(parts)


def facts(comparison: Comparison) -> list[str]:
    """What else must be known about the pairs, one sentence each."""
    out = []
    if comparison.unverified_pairs:
        out.append(
            f"{comparison.unverified_pairs} of the pairs are unverified: their fingerprints are absent or differ."
        )
    if comparison.seed_correlation is not None:
        out.append(
            f"Correlation of the two variants' scores over seeds (first primary): {comparison.seed_correlation:+.2f}."
        )
    if comparison.seed_correlation_warning:
        out.append(comparison.seed_correlation_warning)
    if comparison.declared_differences:
        shown = "; ".join(
            f"{differing.field}: {_value(differing.treatment)} against {_value(differing.baseline)}"
            for differing in comparison.declared_differences
        )
        out.append(f"Differs by declaration: {shown}.")
    if comparison.dropped:
        seeds = ", ".join(str(seed.seed) for seed in comparison.dropped)
        out.append(f"Dropped seeds (reasons below): {seeds}.")
    return out


def _value(value: object) -> str:
    return "not set" if value is None else str(value)


def _beside_table(metric: str, rows: list[EndpointFinding], sequential: bool) -> Table:
    headings = ["dim", "HL median", "dz", "gz", "P better"]
    if not sequential:
        headings += ["Wilcoxon p", "t p", "t 95% interval", "exact interval"]
    bootstrap = any(found.bootstrap_ci95 for found in rows)
    if bootstrap:
        headings.append("BCa 95% interval")
    levels = sorted({found.exact_interval_level for found in rows if found.exact_interval_level is not None})
    cells = []
    for found in rows:
        row = [
            _dim(found),
            show_difference(found.hodges_lehmann),
            show_small(found.dz),
            show_small(found.gz),
            show_small(found.prob_improvement),
        ]
        if not sequential:
            row += [
                show_p(found.wilcoxon_p),
                show_p(found.t_p),
                show_interval(found.t_ci95),
                show_interval(found.exact_interval),
            ]
        if bootstrap:
            row.append(show_interval(found.bootstrap_ci95))
        cells.append(tuple(row))
    exact = "" if not levels or sequential else f" exact interval: level {' or '.join(f'{x:.2%}' for x in levels)}."
    return Table(
        title=f"{metric}, beside the verdict (shown, never the verdict)",
        columns=tuple(Column(heading=heading) for heading in headings),
        rows=tuple(cells),
        caption=f"HL: Hodges-Lehmann; dz, gz: difference over its sd over seeds, not a size that matters;{exact}",
    )


def _variance_table(rows: list[EndpointFinding]) -> Table:
    cells = []
    for found in rows:
        if found.crossed is None:
            continue
        parts = found.crossed
        cells.append(
            (
                f"{found.endpoint}{' *' if found.primary else ''}",
                show_small(parts.seed_variance_of_mean),
                show_small(parts.shared_example_variance),
                show_small(parts.interaction_variance_per_seed),
                f"±{show_size(parts.half_width_infinite_seeds)}",
                NONE if parts.examples_for_80_percent is None else f"{parts.examples_for_80_percent:,}",
            )
        )
    clustered = dict.fromkeys(examples_text(f.crossed) for f in rows if f.crossed and f.crossed.n_clusters is not None)
    units = (
        f" Examples are not independent: {'; '.join(clustered)}, over which their part is taken." if clustered else ""
    )
    return Table(
        title="Two sources of variance: seeds and test examples",
        columns=(
            Column(heading="endpoint", align="left"),
            Column(heading="seeds s²/n"),
            Column(heading="shared examples"),
            Column(heading="seed x example"),
            Column(heading="left by infinite seeds"),
            Column(heading="examples for 80%"),
        ),
        rows=tuple(cells),
        caption="Variances of the mean difference (seed x example: per seed, inside the first). 'left by infinite"
        " seeds': half width of the 95% interval that more seeds cannot shrink; 'examples for 80%': about how many"
        " test pairs show a true difference as large as the observed one with 80% power (for all primaries jointly)."
        + units,
    )


def _equivalence(rows: list[EndpointFinding]) -> list[Block]:
    found = [(row, row.equivalence) for row in rows if row.equivalence is not None]
    if not found:
        return []
    sequential = any(test.e_threshold is not None for _, test in found)
    if sequential:
        headings = ("endpoint", "margin", "e lower", "e upper", "needed", "equivalent")
    else:
        headings = ("endpoint", "margin", "exact p", "t p (TOST)", "t 90% interval", "equivalent")
    cells = []
    for row, test in found:
        middle = (
            (show_small(test.e_lower), show_small(test.e_upper), show_small(test.e_threshold))
            if sequential
            else (show_p(test.exact_p), show_p(test.tost_p), show_interval(test.t_ci90))
        )
        name = f"{row.endpoint}{' *' if row.primary else ''}"
        cells.append((name, f"{test.margin:g}", *middle, "yes" if test.equivalent else "no"))
    columns = tuple(Column(heading=text, align="left" if text == "endpoint" else "right") for text in headings)
    return [Table(title="Equivalence within the declared margin", columns=columns, rows=tuple(cells))]


def _one_pair(rows: list[EndpointFinding]) -> list[Block]:
    found = [(row, row.one_pair) for row in rows if row.one_pair is not None]
    if not found:
        return []
    return [
        Table(
            title="One trained pair: what the test examples alone say (nothing about other seeds)",
            columns=tuple(
                Column(heading=text, align="left" if text == "endpoint" else "right")
                for text in ("endpoint", "examples", "difference", "Zou 95% interval", "Steiger p", "Williams p")
            ),
            rows=tuple(
                (
                    row.endpoint,
                    str(pair.n_examples),
                    show_difference(pair.correlation_treatment - pair.correlation_baseline),
                    show_interval(pair.zou_ci95),
                    show_p(pair.steiger_p),
                    show_p(pair.williams_p),
                )
                for row, pair in found
            ),
        )
    ]
