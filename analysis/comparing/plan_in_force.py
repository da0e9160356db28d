"""The plan that an analysis follows, why its report may be exploratory, and where a study file says another thing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from analysis import schema
from analysis.comparing.findings import PlanUsed
from analysis.errors import PlanError
from analysis.plan import AnalysisPlan
from analysis.results.model import Results
from analysis.statistics.power import selection_bias

DEFAULT_METRIC = "test/spearman"
_LOWER = frozenset({"loss", "perplexity", "ppl", "error", "rmse", "mse", "mae", "wer", "cer", "nll", "bpb"})
_COUNTS = "the plan recorded at the first run counts"


def plan_in_force(
    results: Results,
    *,
    plan: AnalysisPlan | None,
    baseline: str | None,
    endpoints: Sequence[str],
    variants: Sequence[str],
) -> PlanUsed:
    """Resolve plan, primaries and baseline against what was recorded.

    Raises:
        PlanError: a primary endpoint or a baseline that was not recorded.
    """
    asked = plan or results.declared_plan or AnalysisPlan()
    chosen = baseline or results.declared_baseline or next(iter(variants), None)
    if chosen is not None and variants and chosen not in variants:
        raise PlanError(f"baseline {chosen!r} is not among the recorded variants; recorded: {', '.join(variants)}")
    told = [e for e in results.default_primary if e in endpoints]
    default = tuple(told) or default_primaries(
        endpoints, every_dim=not results.fingerprinted, first=results.metric_order
    )
    primary = asked.primary or default
    unknown = [e for e in primary if endpoints and e not in endpoints]
    if unknown:
        raise PlanError(f"primary endpoint {unknown[0]!r} was not recorded; recorded: {', '.join(endpoints)}")
    for e in primary:
        if is_lower_better(e) and schema.endpoint_named(e).metric not in results.turned:
            metric = schema.endpoint_named(e).metric
            raise PlanError(
                f"primary endpoint {e!r}: a higher {metric} is not better, and higher is taken for better;"
                f" give --lower-is-better {metric}, or name another --primary"
            )
    reasons = [
        *_changes(results, asked, primary=primary, default=default, baseline=chosen),
        *_extended_after_looking(results, asked),
        *_selection(results, primary),
    ]
    declared = results.declared_plan
    return PlanUsed(
        primary=tuple(primary),
        default_primary=not asked.primary,
        alpha=asked.alpha,
        margin=asked.margin,
        stopping=asked.stopping,
        max_seeds=asked.max_seeds,
        baseline=chosen,
        exploratory=tuple(reasons),
        declared=None
        if declared is None
        else {**declared.model_dump(mode="json"), "baseline": results.declared_baseline},
    )


def is_lower_better(endpoint: str) -> bool:
    """Whether the metric's name says that less of it is better."""
    words = schema.endpoint_named(endpoint).statistic.lower().replace("-", "_").split("_")
    return not _LOWER.isdisjoint(words)


def default_primaries(endpoints: Sequence[str], *, every_dim: bool, first: Sequence[str] = ()) -> tuple[str, ...]:
    """The largest dim's test Spearman, or test Spearman at every dim (a plain table, whose author named none).

    Without any test Spearman: the same of the first test metric, else of the first metric there is. Metrics in `first`
    come before all of these.
    """
    parsed = [schema.endpoint_named(e) for e in endpoints]
    metrics = list(dict.fromkeys(e.metric for e in parsed))
    metric = next(
        (m for m in (*first, DEFAULT_METRIC, *(m for m in metrics if m.startswith("test/")), *metrics) if m in metrics),
        None,
    )
    dims = sorted(e.dim for e in parsed if e.metric == metric)
    return tuple(str(schema.Endpoint(str(metric), d)) for d in (dims if every_dim else dims[-1:]))


def _changes(
    results: Results, asked: AnalysisPlan, *, primary: Sequence[str], default: Sequence[str], baseline: str | None
) -> Iterable[str]:
    declared = results.declared_plan
    if declared is None and not results.fingerprinted and asked.primary:
        yield f"the primary ({', '.join(primary)}) was chosen for this report; the table declares none"
    if declared is not None:
        for name, now, before in (
            ("primary", tuple(primary), declared.primary or tuple(default)),
            ("alpha", asked.alpha, declared.alpha),
            ("margin", asked.margin, declared.margin),
            ("stopping", asked.stopping, declared.stopping),
            ("max_seeds", asked.max_seeds, declared.max_seeds),
        ):
            if now != before:
                yield f"{name} is {_shown(now)}; declared at the first run: {_shown(before)}"
    if results.declared_baseline is not None and baseline != results.declared_baseline:
        yield f"the baseline is {baseline}; declared at the first run: {results.declared_baseline}"


def _shown(value: Any) -> str:
    if isinstance(value, tuple | list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def _extended_after_looking(results: Results, asked: AnalysisPlan) -> Iterable[str]:
    stopping = (results.declared_plan or asked).stopping
    if stopping != "fixed":
        return
    seeds: dict[str, set[int]] = defaultdict(set)
    looked: set[str] = set()
    for entry in results.history:
        study = str(entry.detail.get("study", results.study))  # of several studies taken together, each its own
        if entry.kind == "report" and entry.detail.get("could_reach_alpha"):
            looked.add(study)
        elif entry.kind == "seeds":
            now = {int(s) for s in entry.detail.get("seeds", ())}
            if study in looked and seeds[study] and now - seeds[study]:
                yield (
                    "seeds were added after a report in which p could have reached alpha, though the study declared "
                    f"a fixed number ({len(seeds[study])}, then {len(now)})"
                )
                return
            seeds[study] |= now


def _selection(results: Results, primary: Sequence[str]) -> Iterable[str]:
    """Why the search behind the settings makes the report exploratory.

    A fair search uses the validation split, seeds of its own, and equal budgets.
    """
    search = results.search
    if not search:
        return
    budget = _budget(search.get("budget"))
    tuned = {int(s) for s in search.get("seeds") or ()}
    compared = {c.seed for c in results.cells}
    bias = selection_bias(max(budget.values(), default=1))
    size = f"the best of {max(budget.values())} equal settings flatters by {bias:.2f} SD" if budget else "size unknown"
    split = search.get("split")
    if split != "validation":
        on = f"on the {split} split" if split else "on an unknown split"
        yield f"settings were chosen {on}, not on validation ({size})"
    elsewhere = [e for e in primary if schema.endpoint_named(e).split != "test"]
    if elsewhere:
        yield f"settings were chosen by a search, and {', '.join(elsewhere)} is not on the test split ({size})"
    if not tuned:
        yield f"the seeds on which settings were chosen are unknown ({size})"
    if not budget:
        yield "the budgets of the search are unknown"
    reused = sorted(tuned & compared)
    if reused:
        yield f"seeds {', '.join(map(str, reused))} were also used to choose the settings ({size})"
    if len(set(budget.values())) > 1:
        shown = ", ".join(f"{variant} {trials}" for variant, trials in budget.items())
        yield f"the search budgets differ: {shown} trials"


def _budget(budget: Any) -> dict[str, int]:
    if isinstance(budget, Mapping):
        return {str(k): int(v) for k, v in budget.items()}
    return {"every variant": int(budget)} if isinstance(budget, int) else {}


def file_differences(path: Path, declared: Mapping[str, Any] | None) -> list[str]:
    """One line per field in which a study file differs from the recorded plan, which is the one that counts.

    Args:
        path: A study file.
        declared: The recorded plan's fields and `baseline`; None: nothing was declared.
    """
    import yaml
    from pydantic import ValidationError

    content = yaml.safe_load(path.read_text(encoding="utf-8"))
    if declared is None or not isinstance(content, dict):
        return []
    lines = []
    baseline = content.get("baseline")
    # A label such as `no` or `1` stands for itself in a study file; plain YAML reads another thing.
    if isinstance(baseline, str) and baseline != declared.get("baseline"):
        lines.append(_line(path, "baseline", baseline, declared.get("baseline")))
    try:
        plan = AnalysisPlan.model_validate(content.get("analysis") or {})
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(["analysis", *map(str, first["loc"])])
        reason = first["msg"].removeprefix("Value error, ")
        return [*lines, f"{path}: {field}: {first['input']!r} is not valid ({reason}); {_COUNTS}"]
    for name, now in plan.model_dump(mode="json").items():
        if now != declared.get(name):
            lines.append(_line(path, f"analysis.{name}", now, declared.get(name)))
    return lines


def _line(path: Path, field: str, now: Any, recorded: Any) -> str:
    return f"{path}: {field} is {_shown(now)}, recorded at the first run: {_shown(recorded)}; the recorded one counts"
