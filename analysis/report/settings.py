"""One treatment against the baseline over all settings, as blocks of a report."""

from __future__ import annotations

from analysis.comparing.findings import AcrossEndpoint, AcrossSettings, SettingRow, StudyFindings
from analysis.comparing.wording import settings_favour
from analysis.report.document import (
    Block,
    Bullets,
    Column,
    Paragraph,
    Table,
    show_difference,
    show_interval,
    show_p,
    show_score,
    show_small,
    show_wins,
)


def settings_blocks(across: AcrossSettings, findings: StudyFindings) -> tuple[Block, ...]:
    """The verdict over settings, then per primary endpoint the settings matrix and the facts behind it."""
    sequential = findings.plan.stopping == "sequential"
    blocks: list[Block] = [Paragraph(text=across.sentence, strong=True), summary_table(across, sequential=sequential)]
    for endpoint in across.endpoints:
        if endpoint.primary:
            blocks.append(_matrix(endpoint, sequential))
            blocks += _left_out(endpoint)
            own = [endpoint.sentence] if endpoint.sentence else []
            blocks.append(Bullets(items=(*own, *settings_facts(endpoint, sequential=sequential))))
    return tuple(blocks)


def summary_table(across: AcrossSettings, *, sequential: bool) -> Table:
    """One row per endpoint, over all settings."""
    tests = ("e-value", "needed") if sequential else ("pooled p", "floor", "step p")
    rows = []
    for found in across.endpoints:
        cells = (
            (show_small(found.e_value, 4), show_small(found.e_threshold, 4))
            if sequential
            else (
                show_p(found.pooled_sign_flip_p),
                show_p(found.p_floor),
                show_p(found.adjusted_p),
            )
        )
        rows.append(
            (
                f"{found.endpoint}{' *' if found.primary else ''}",
                str(found.n_settings),
                str(found.n_distinct_seeds),
                show_difference(found.mean_difference),
                show_wins(found.wins, found.losses, found.ties),
                *cells,
                show_interval(found.crossed.ci95_joint if found.crossed else None),
            )
        )
    headings = ("endpoint", "settings", "seeds", "mean diff", "W/L/T", *tests, "crossed 95% interval")
    return Table(
        title="In these settings (a seed that recurs in several settings is one seed)",
        columns=tuple(Column(heading=text, align="left" if text == "endpoint" else "right") for text in headings),
        rows=tuple(rows),
        caption="* primary. mean diff: unweighted mean of the settings' means; W/L/T: distinct seeds by their mean"
        " over settings" + ("." if sequential else "; pooled p: whole seeds flipped jointly over their settings."),
        key=True,
    )


def _matrix(endpoint: AcrossEndpoint, sequential: bool) -> Table:
    headings = ["setting", "pairs", "mean diff", "sd", "W/L/T"]
    if not sequential:
        headings += ["t 95% interval", "flip p"]
    headings += ["crossed 95% interval"]
    return Table(
        title=f"Settings matrix, {endpoint.endpoint}",
        columns=tuple(Column(heading=text, align="left" if text == "setting" else "right") for text in headings),
        rows=tuple(_matrix_row(row, sequential) for row in endpoint.rows),
        caption="Per setting and descriptive: the verdict that counts is the one over settings.",
        key=True,
    )


def _left_out(endpoint: AcrossEndpoint) -> list[Table]:
    """The mean over settings without each in turn; nothing below three, where one setting would be left."""
    if endpoint.n_settings < 3:
        return []
    signs = {row.setting: row for row in endpoint.rows}
    return [
        Table(
            title=f"Without each setting in turn, {endpoint.endpoint}",
            columns=(
                Column(heading="setting left out", align="left"),
                Column(heading="its mean diff"),
                Column(heading="mean diff of the rest"),
            ),
            rows=tuple(
                (name, show_difference(signs[name].mean_difference), show_difference(mean))
                for name, mean in endpoint.without.items()
            ),
            caption="Unweighted mean of the other settings' means.",
        )
    ]


def _matrix_row(row: SettingRow, sequential: bool) -> tuple[str, ...]:
    tests = () if sequential else (show_interval(row.t_ci95), show_p(row.sign_flip_p))
    return (
        row.setting,
        str(row.n_pairs),
        show_difference(row.mean_difference),
        show_score(row.sd_difference),
        show_wins(row.wins, row.losses, row.ties),
        *tests,
        show_interval(row.crossed_ci95_joint),
    )


def settings_facts(found: AcrossEndpoint, *, sequential: bool) -> list[str]:
    """One sentence each on new settings, heterogeneity and dependence on a single setting."""
    items = [settings_favour(found.settings_favouring_treatment, found.n_settings, "the treatment")]
    if found.settings_t_ci95 is not None and not sequential:
        items.append(
            "In settings like these (settings as units): 95% interval"
            f" {show_interval(found.settings_t_ci95)}, t p = {show_p(found.settings_t_p)},"
            f" sign test p = {show_p(found.settings_sign_p)}."
        )
    if found.heterogeneity_p is not None and not sequential:
        items.append(
            f"Do the settings differ? Welch F = {show_small(found.heterogeneity_f)},"
            f" p = {show_p(found.heterogeneity_p)}."
        )
    if found.qualitative_p is not None:
        items.append(
            "Do settings differ in direction? Gail and Simon's test of a qualitative interaction:"
            f" p = {show_p(found.qualitative_p)}."
        )
    if found.meta is not None:
        meta = found.meta
        items.append(
            f"Descriptive meta-analysis: Q = {show_small(meta.q)}, I² = {show_small(meta.i2)},"
            f" tau² = {show_small(meta.tau2)}, random-effects mean {show_difference(meta.random)},"
            f" Hartung-Knapp 95% {show_interval(meta.hartung_knapp_ci95)}."
        )
    if found.direction_depends_on_one_setting:
        worst = [name for name, mean in found.without.items() if _other_sign(mean, found.mean_difference)]
        items.append(f"The direction hangs on one setting: without {' or '.join(worst) or 'it'} it turns round.")
    if found.simpson:
        items.append(
            "Simpson's paradox: pooled over settings without pairing the difference would be"
            f" {show_difference(found.pooled_unpaired_difference)}, against the sign inside every setting."
        )
    return items


def _other_sign(mean: float | None, whole: float | None) -> bool:
    return mean is not None and whole is not None and mean * whole < 0
