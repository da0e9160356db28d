"""Who is ahead while a sweep runs, pair by pair. A look at a table that fills up: no test, and never a verdict."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from analysis import schema

if TYPE_CHECKING:
    from sweep.record.ledger import RecordedRun
    from sweep.study import Study
    from sweep.study.cells import Cell

MARK: Final = "so far, not a verdict:"
TIE: Final = 1e-12
"""As in the analysis: smaller differences are ties."""


class Tally:
    """Scores of the primary endpoints by variant and pair."""

    def __init__(self, endpoints: Sequence[str], variants: Iterable[str], baseline: str) -> None:
        self._endpoints, self._baseline = tuple(endpoints), baseline
        self._treatments = tuple(variant for variant in variants if variant != baseline)
        self._scores: dict[tuple[str, str], dict[tuple[int, str], float]] = {}
        """(endpoint, variant) -> (seed, setting) -> score."""

    def add(self, cell: Cell, scores: Mapping[str, float]) -> None:
        """A cell is finished; of its scores those of the primary endpoints count."""
        for endpoint in self._endpoints:
            if endpoint in scores:
                pairs = self._scores.setdefault((endpoint, cell.variant), {})
                pairs[cell.seed, cell.setting] = float(scores[endpoint])

    def lines(self) -> list[str]:
        """One line for each primary endpoint and treatment that has a complete pair."""
        return [
            f"{MARK} {endpoint}: {line}"
            for endpoint in self._endpoints
            for treatment in self._treatments
            if (line := self._line(endpoint, treatment))
        ]

    def _line(self, endpoint: str, treatment: str) -> str | None:
        base = self._scores.get((endpoint, self._baseline), {})
        other = self._scores.get((endpoint, treatment), {})
        differences = [other[pair] - base[pair] for pair in base if pair in other]
        if not differences:
            return None
        ahead = sum(difference > TIE for difference in differences)
        tied = sum(abs(difference) <= TIE for difference in differences)
        pairs = f"{len(differences)} pair" + ("s" if len(differences) > 1 else "")
        return f"{treatment} ahead of {self._baseline} in {ahead} of {pairs}" + (f", {tied} tied" if tied else "")


def tally_of(study: Study, kind: str, cells: Iterable[Cell], runs: Iterable[RecordedRun]) -> Tally:
    """A tally that begins with what is recorded.

    Args:
        study: Names primary endpoints, variants and baseline.
        kind: Of the cells; trials of a search are not compared, and give an empty tally.
        cells: Of the study as it stands.
        runs: What is recorded; only finished runs of these cells count.
    """
    tally = Tally(study.primary if kind == schema.KIND_CELL else (), study.variants, study.baseline)
    by_key = {cell.key: cell for cell in cells}
    for run in runs:
        if run.status == "FINISHED" and run.key in by_key:
            tally.add(by_key[run.key], run.metrics)
    return tally
