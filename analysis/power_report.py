"""`analysis power`: seeds needed and what they cost, from assumptions or a pilot's spread."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from analysis.errors import PlanError
from analysis.report.document import NONE, Bullets, Column, Document, Section, Table
from analysis.results.model import Results
from analysis.statistics import power

SHOWN_SEEDS = (5, 6, 8, 10, 20)
CURVE_SEEDS = tuple(range(2, 41))


@dataclass(frozen=True, kw_only=True)
class PowerQuestion:
    """What is assumed, and which power is wanted."""

    win_rates: tuple[float, ...] = ()
    effect: float | None = None
    sd: float | None = None
    shared_sd: float = 0.0
    """What the noise of the shared test examples adds to the mean difference (sd); a pilot brings its own."""
    pilot: str | None = None
    endpoints: int = 1
    comparisons: int = 1
    settings: int = 1
    alpha: float = 0.05
    wanted: float = 0.8
    cell_seconds: float | None = None
    times_from: str | None = None
    devices: float = 1.0


@dataclass(frozen=True, kw_only=True)
class PlanRow:
    """One assumption and the seeds it asks for."""

    assumption: str
    test: str
    """`sign`, `t`, or `verdict`: the whole rule for `better`, by simulation."""
    seeds: int | None
    """First number of seeds with the wanted power."""
    always: int | None
    """The number from which it never falls below again (the sign test's power is saw-toothed)."""
    power_at: dict[int, float]
    """Seeds -> power."""
    cells: int | None
    device_hours: float | None


@dataclass(frozen=True, kw_only=True)
class PowerAnswer:
    """Rows, the smallest numbers of seeds that can decide at all, and curves to draw."""

    question: PowerQuestion
    alpha: float
    """Error rate of one comparison: alpha over the number of comparisons."""
    joint_minimum: int
    holm_minimum: int
    rows: tuple[PlanRow, ...]
    notes: tuple[str, ...]

    def render(self, kind: str) -> str:
        """The answer as text, Markdown or JSON."""
        if kind == "json":
            return json.dumps({**asdict(self), "question": asdict(self.question)}, indent=2) + "\n"
        document = self._document()
        if kind == "markdown":
            from analysis.report.markdown import to_markdown

            return to_markdown(document)
        from analysis.report.text import to_text

        return to_text(document)

    def write_figure(self, folder: Path) -> list[Path]:
        """Write the power curves as PNG and SVG.

        Raises:
            OSError: the folder cannot be written.
        """
        from analysis.report import plots

        folder.mkdir(parents=True, exist_ok=True)
        curves = [
            plots.PowerCurve(
                label=row.assumption,
                seeds=tuple(n for n in row.power_at if n in CURVE_SEEDS),
                power=tuple(row.power_at[n] for n in row.power_at if n in CURVE_SEEDS),
            )
            for row in self.rows
        ]
        figure, axes = plots.new_figure(width=5.4, height=3.6)
        plots.power_curve(curves, self.question.wanted, axes[0])
        return plots.save(figure, folder, "power-curve")

    def _document(self) -> Document:
        asked, rows = self.question, self.rows
        costs = any(row.device_hours is not None for row in rows)
        headings = ["assumption", "test", f"seeds for {asked.wanted:.0%}", "always from"]
        headings += [f"n={n}" for n in SHOWN_SEEDS] + (["cells", "device-hours"] if costs else [])
        cells = []
        for row in rows:
            line = [row.assumption, row.test, _count(row.seeds), _count(row.always)]
            line += [f"{row.power_at[n]:.2f}" for n in SHOWN_SEEDS]
            if costs:
                line += [_count(row.cells), NONE if row.device_hours is None else f"{row.device_hours:.1f}"]
            cells.append(tuple(line))
        left = ("assumption", "test")
        table = Table(
            title=f"Two-sided tests at alpha = {self.alpha:.4g}",
            columns=tuple(Column(heading=text, align="left" if text in left else "right") for text in headings),
            rows=tuple(cells),
            caption="n=...: power at that many seeds. always from: the sign test's power is saw-toothed in the seeds.",
        )
        smallest = (
            f"Fewer than {self.joint_minimum} untied seeds cannot reach alpha = {asked.alpha:g} in the joint test,"
            f" whatever they show"
            + (f" ({self.holm_minimum} if each endpoint were tested on its own)." if asked.endpoints > 1 else ".")
        )
        section = Section(title="Seeds needed", blocks=(table, *((Bullets(items=self.notes),) if self.notes else ())))
        return Document(study="power", headline=smallest, notices=(), sections=(section,))


def answer(question: PowerQuestion, tracking_uri: str | None = None) -> PowerAnswer:
    """Seeds for what is assumed; without any assumption, for win rates .95, .9, .8 and .7.

    Raises:
        PlanError: half an assumption, such as an effect without a spread.
        ResultsError: a pilot or a study of times that cannot be read.
    """
    _check(question)
    alpha = question.alpha / question.comparisons
    seconds, notes = _cell_seconds(question, tracking_uri)
    given = bool(question.win_rates or question.effect is not None or question.pilot)
    rows = [
        _sign_row(rate, question, alpha, seconds) for rate in question.win_rates or (() if given else power.WIN_RATES)
    ]
    if question.effect is not None and question.sd is not None:
        rows += _effect_rows(
            f"effect {question.effect:g}, sd {question.sd:g}", question.effect, question.sd, question, alpha, seconds
        )
    if question.pilot:
        found, said = _pilot_rows(question, alpha, seconds, tracking_uri)
        rows += found
        notes += said
    minimum = power.minimum_seeds(question.alpha, question.endpoints, question.comparisons)
    if any(row.test == "verdict" for row in rows):
        notes.append(
            "verdict: joint test, interval over seeds and test examples, and Holm together, one `better` primary being"
            " enough (simulated, to 2 points)"
            + ("." if question.shared_sd or question.pilot else "; without --shared-sd, test examples add no noise.")
        )
        if any(row.test == "verdict" and row.seeds is None for row in rows):
            notes.append("verdict -: no number of seeds up to 200 gives that power; more test examples may.")
    if question.endpoints > 1:
        notes.append("In the joint test correlated endpoints cost almost nothing: the rows hold for all of them.")
    return PowerAnswer(
        question=question,
        alpha=alpha,
        joint_minimum=minimum.joint,
        holm_minimum=minimum.holm,
        rows=tuple(rows),
        notes=tuple(notes),
    )


def _check(question: PowerQuestion) -> None:
    if question.sd is not None and question.effect is None:
        raise PlanError("--sd: goes with --effect, the smallest difference that would matter")
    if question.effect is not None and question.sd is None and not question.pilot:
        raise PlanError("--effect: needs the spread of paired differences: --sd, or --pilot STUDY")
    if question.effect is not None and not abs(question.effect) > 0:
        raise PlanError(f"--effect: {question.effect:g} is not valid; expected a difference other than 0")
    if question.sd is not None and question.pilot:
        raise PlanError("--sd: does not go with --pilot, which brings its own spread")


def _sign_row(rate: float, question: PowerQuestion, alpha: float, seconds: dict[str, list[float]]) -> PlanRow:
    needed = power.seeds_needed(rate, alpha=alpha, power=question.wanted)
    at = {n: power.power_sign_test(n, rate, alpha=alpha) for n in (*CURVE_SEEDS,)}
    return _row(f"win rate {rate:g}", "sign", needed.first, needed.always, at, question, seconds)


def _effect_rows(
    label: str,
    effect: float,
    sd: float,
    question: PowerQuestion,
    alpha: float,
    seconds: dict[str, list[float]],
    shared_sd: float | None = None,
) -> list[PlanRow]:
    advice = power.from_effect(effect, sd, alpha=alpha, power=question.wanted)
    # One endpoint of one comparison may be sure by t where the verdict's own test cannot reach alpha: never under it.
    floor = power.minimum_seeds(question.alpha, comparisons=question.comparisons).joint
    by_t = {n: power.power_t(advice.dz, n, alpha=alpha) if n >= floor else 0.0 for n in CURVE_SEEDS}
    seeds_t = None if advice.seeds_t is None else max(advice.seeds_t, floor)
    plan = power.VerdictPlan(
        effect=effect,
        sd=sd,
        shared_sd=question.shared_sd if shared_sd is None else shared_sd,
        endpoints=question.endpoints,
        comparisons=question.comparisons,
    )
    wanted = power.seeds_needed_verdict(plan, alpha=question.alpha, power=question.wanted)
    whole = {n: power.power_verdict(plan, n, alpha=question.alpha, studies=2_000) for n in SHOWN_SEEDS}
    rows = [
        _row(label, "verdict", wanted, wanted, whole, question, seconds),
        _row(label, "t", seeds_t, seeds_t, by_t, question, seconds),
    ]
    if 0.5 < advice.p_win < 1:
        by_sign = {n: power.power_sign_test(n, advice.p_win, alpha=alpha) for n in CURVE_SEEDS}
        needed = power.seeds_needed(advice.p_win, alpha=alpha, power=question.wanted, searched_to=1000)
        text = f"{label}: win rate {advice.p_win:.2f}"
        rows.append(_row(text, "sign", needed.first, needed.always, by_sign, question, seconds))
    return rows


def _pilot_rows(
    question: PowerQuestion, alpha: float, seconds: dict[str, list[float]], tracking_uri: str | None
) -> tuple[list[PlanRow], list[str]]:
    from analysis.report.report import Question, report_on_results

    results = _load(question.pilot or "", tracking_uri)
    findings = report_on_results(results, Question(allow_unverified=True)).findings
    effect = question.effect if question.effect is not None else findings.plan.margin
    if effect is None:
        raise PlanError("--pilot: give --effect too, the smallest difference that would matter (no margin is declared)")
    rows: list[PlanRow] = []
    notes = []
    few: set[int] = set()  # numbers of pairs, of rows that rest on so few
    for comparison in findings.comparisons:
        for found in comparison.endpoints:
            if not found.primary:
                continue
            where = f"{comparison.treatment}, {found.endpoint}"
            where += f", {comparison.setting}" if len(findings.settings) > 1 else ""
            if not found.sd_difference:
                notes.append(f"{where}: the pilot has no spread to plan with ({found.n_pairs} pairs).")
                continue
            label = f"{where}: effect {effect:g}, sd {found.sd_difference:.4f}"
            shared = math.sqrt(found.crossed.shared_example_variance) if found.crossed else None
            rows += _effect_rows(label, effect, found.sd_difference, question, alpha, seconds, shared)
            if found.n_pairs < 10:
                few.add(found.n_pairs)
    if few:
        pairs = f"{min(few)} pairs" if len(few) == 1 else f"{min(few)} to {max(few)} pairs"
        notes.append(f"An sd from {pairs} is itself uncertain; plan for more.")
    return rows, notes


def _cell_seconds(question: PowerQuestion, tracking_uri: str | None) -> tuple[dict[str, list[float]], list[str]]:
    variants = question.comparisons + 1
    if question.cell_seconds is not None:
        return {f"variant {n}": [question.cell_seconds] for n in range(variants)}, []
    if question.times_from is None:
        return {}, []
    results = _load(question.times_from, tracking_uri)
    seconds: dict[str, list[float]] = {}
    for cell in results.cells:
        spent = sum(value for name, value in cell.times.items() if name.endswith("_s"))
        if spent > 0:
            seconds.setdefault(cell.variant, []).append(spent)
    if not seconds:
        raise PlanError(f"--from: {question.times_from}: no cell has a recorded time; give --cell-seconds")
    means = ", ".join(f"{name} {sum(found) / len(found):.0f} s" for name, found in seconds.items())
    return seconds, [f"Cost by the recorded cells of {results.study}: {means}."]


def _row(
    label: str,
    test: str,
    seeds: int | None,
    always: int | None,
    power_at: dict[int, float],
    question: PowerQuestion,
    seconds: dict[str, list[float]],
) -> PlanRow:
    priced = (
        power.cost(seconds, seeds=seeds, settings=question.settings, devices=question.devices)
        if seeds is not None and seconds
        else None
    )
    return PlanRow(
        assumption=label,
        test=test,
        seeds=seeds,
        always=always,
        power_at=power_at,
        cells=priced.cells if priced else None,
        device_hours=priced.device_hours if priced else None,
    )


def _load(source: str, tracking_uri: str | None) -> Results:
    from analysis.results.load import load

    path = Path(source)
    if path.suffix.lower() in (".parquet", ".pq", ".csv", ".tsv"):
        return load(results=path)
    return load(source, tracking_uri=tracking_uri)


def _count(value: Any) -> str:
    return NONE if value is None else str(value)
