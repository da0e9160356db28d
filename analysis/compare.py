"""From recorded results to the findings of a study: pair, compare, decide, say so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from analysis.findings import StudyFindings
from analysis.plan import AnalysisPlan
from analysis.tidy import Results

if TYPE_CHECKING:
    import numpy as np


def compare(
    results: Results,
    *,
    plan: AnalysisPlan | None,
    baseline: str | None,
    allow_unverified: bool,
    all_pairs: bool = False,
    rng: np.random.Generator,
) -> StudyFindings:
    """Compare every other variant with the baseline, in every setting and over all of them.

    Args:
        results: What was recorded.
        plan: The plan asked for now; None: the declared one (`results.declared_plan`), else the defaults.
        baseline: A variant's name; None: the declared baseline, else the first variant.
        allow_unverified: Use pairs whose fingerprints are absent or disagree; said on top.
        all_pairs: Also compare all pairs of variants (Holm over paired sign flips).
        rng: For Monte Carlo tests (above 16 seeds) and bootstrap intervals.

    Raises:
        PlanError: an unknown primary endpoint or baseline.
    """
    raise NotImplementedError
