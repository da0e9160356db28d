"""Findings -> Document: which sections there are and in which order."""

from __future__ import annotations

from itertools import groupby

from analysis.comparing.angle_roles import AngleRoles
from analysis.comparing.findings import Comparison, StudyFindings
from analysis.comparing.wording import endpoints_text
from analysis.report.comparison import comparison_blocks
from analysis.report.document import (
    Block,
    Bullets,
    Column,
    Document,
    FigureSlot,
    Paragraph,
    Section,
    Table,
    show_difference,
    show_p,
    show_small,
)
from analysis.report.settings import settings_blocks

MANY_SETTINGS = 6
"""Above this, a page folds the settings' own tables."""


def build(
    findings: StudyFindings, *, roles: AngleRoles | None = None, figures: tuple[FigureSlot, ...] = ()
) -> Document:
    """The report of a study.

    Args:
        findings: What the analysis found.
        roles: The role table of AnglE layouts, where the study has such.
        figures: Figures that exist and where they are to stand.
    """
    sections: list[Section] = []
    if findings.across_settings:
        sections += [
            Section(title=f"{across.treatment} against {across.baseline}, over all settings", blocks=blocks)
            for across in findings.across_settings
            for blocks in [settings_blocks(across, findings)]
        ]
    many = len(findings.settings) > MANY_SETTINGS
    sections += [
        Section(title=title_of(comparison, findings), blocks=comparison_blocks(comparison, findings), detail=many)
        for comparison in findings.comparisons
    ]
    sections += [
        *_section("Figures", list(figures)),
        *_section("More than two variants", many_variants(findings)),
        *_section("What was not used, and why", not_used(findings)),
        *_section("What more seeds would buy", advice(findings)),
        *_section("Which part each index serves as", _roles(roles)),
        Section(title="Method", blocks=method(findings)),
    ]
    return Document(
        study=findings.study,
        headline=findings.headline,
        notices=notices(findings),
        sections=tuple(sections),
        figures=figures,
    )


def notices(findings: StudyFindings) -> tuple[str, ...]:
    """All notices; correlation warnings of more than two comparisons become one sentence."""
    alike = [notice for notice in findings.notices if notice.kind == "correlation"]
    texts = [notice.text for notice in findings.notices if len(alike) <= 2 or notice.kind != "correlation"]
    if len(alike) > 2:
        texts.append(
            f"In {len(alike)} of {len(findings.comparisons)} comparisons the two variants' scores do not move together"
            " over seeds (correlation at or below 0): pairing removed no noise there."
        )
    return tuple(texts)


def _section(title: str, blocks: list[Block]) -> list[Section]:
    return [Section(title=title, blocks=tuple(blocks))] if blocks else []


def title_of(comparison: Comparison, findings: StudyFindings) -> str:
    """`b against a`, with the setting where there are several."""
    where = f", {comparison.setting}" if len(findings.settings) > 1 else ""
    return f"{comparison.treatment} against {comparison.baseline}{where}"


def many_variants(findings: StudyFindings) -> list[Block]:
    """Friedman test, and all pairs where they were asked for."""
    blocks: list[Block] = []
    for many in findings.many_variants:
        where = f"{many.endpoint}, {many.setting}, {len(many.seeds)} seeds that all variants finished"
        how = "exact" if many.friedman_exact else "Monte Carlo"
        if many.friedman_p is not None:
            blocks.append(
                Paragraph(
                    text=f"Friedman test over {len(many.variants)} variants ({where}): chi2 ="
                    f" {show_small(many.friedman_chi2)}, p = {show_p(many.friedman_p)} ({how})."
                )
            )
        if many.pairs:
            blocks.append(
                Table(
                    title=f"All pairs, {where}",
                    columns=(
                        Column(heading="second", align="left"),
                        Column(heading="first", align="left"),
                        Column(heading="second - first"),
                        Column(heading="flip p"),
                        Column(heading="Holm p"),
                    ),
                    rows=tuple(
                        (
                            pair.second,
                            pair.first,
                            show_difference(pair.mean_difference),
                            show_p(pair.sign_flip_p),
                            show_p(pair.holm_p),
                        )
                        for pair in many.pairs
                    ),
                )
            )
    return blocks


def not_used(findings: StudyFindings) -> list[Block]:
    """Problems, dropped seeds with their reasons, and what was recorded."""
    items = [f"{problem.where}: {problem.reason}" for problem in findings.problems]
    dropped = [
        (f"{comparison.treatment} against {comparison.baseline}", comparison.setting, seed.seed, seed.reason)
        for comparison in findings.comparisons
        for seed in comparison.dropped
    ]
    for (pair, setting), group in groupby(dropped, key=lambda entry: entry[:2]):
        where = f"{pair}, {setting}" if len(findings.settings) > 1 else pair
        items += [f"{where}: seed {seed}: {reason}" for _, _, seed, reason in group]
    blocks: list[Block] = [Bullets(items=tuple(dict.fromkeys(items)))] if items else []
    states = sorted({state for count in findings.cells for state in count.by_state})
    if states and (blocks or states != ["finished"]):
        blocks.append(
            Table(
                title="Recorded cells",
                columns=(Column(heading="variant", align="left"), *(Column(heading=state) for state in states)),
                rows=tuple(
                    (count.variant, *(str(count.by_state.get(state, 0)) for state in states))
                    for count in findings.cells
                ),
            )
        )
    return blocks or [Paragraph(text="Nothing: every recorded cell is in a pair.")]


def advice(findings: StudyFindings) -> list[Block]:
    """What more seeds would buy, per comparison where it differs."""
    said = dict.fromkeys(
        comparison.advice.sentence for comparison in findings.comparisons if comparison.advice is not None
    )
    if len(said) <= 1 or len(findings.settings) > 1:
        return [Paragraph(text=sentence) for sentence in list(said)[:3]]
    return [
        Bullets(
            items=tuple(
                f"{comparison.treatment}: {comparison.advice.sentence}"
                for comparison in findings.comparisons
                if comparison.advice is not None
            )
        )
    ]


def _roles(roles: AngleRoles | None) -> list[Block]:
    if roles is None:
        return []
    rows = [
        (
            layout.layout if number == 0 else "",
            f"{band.first}-{band.last}",
            str(band.real),
            str(band.imaginary),
            str(band.partners),
        )
        for layout in roles.layouts
        for number, band in enumerate(layout.bands)
    ]
    size = roles.dims[-1]
    kept = "; ".join(f"{layout.layout}: {layout.keep_role} of {size}" for layout in roles.layouts)
    return [
        Table(
            title=f"Real and imaginary parts over dims {', '.join(map(str, roles.dims))}",
            columns=(
                Column(heading="layout", align="left"),
                Column(heading="indices", align="left"),
                Column(heading="times real"),
                Column(heading="times imaginary"),
                Column(heading="partners"),
            ),
            rows=tuple(rows),
            caption="Under the interleaved layouts the two indices of a pair serve as the two parts: the row gives"
            f" the even one. Indices that keep their part at every dim: {kept}.",
        )
    ]


def method(findings: StudyFindings) -> tuple[Block, ...]:
    """The method, its null hypothesis, warnings, and the plan."""
    blocks: list[Block] = [Paragraph(text=" ".join((*findings.method, findings.null_hypothesis)))]
    plan = findings.plan
    margin = "none declared" if plan.margin is None else f"{plan.margin:g}"
    named = " (by default)" if plan.default_primary else ""
    blocks.append(
        Paragraph(
            text=f"Primary: {endpoints_text(plan.primary) or 'none'}{named}; alpha {plan.alpha:g}; margin {margin};"
            f" stopping {plan.stopping}; baseline {plan.baseline or 'none'}."
        )
    )
    return tuple(blocks)
