"""Two correlations that share the labels: worked numbers, and correlations that leave nothing to say."""

from __future__ import annotations

from dataclasses import astuple

import numpy as np
import pytest
from scipy import stats

from analysis.statistics.correlations import dependent_correlations


def test_williams_against_its_formula() -> None:
    r1, r2, r, n = 0.63, 0.57, 0.8, 50
    found = dependent_correlations(r1, r2, r, n)
    determinant = np.linalg.det([[1, r1, r2], [r1, 1, r], [r2, r, 1]])
    spread = 2 * (n - 1) / (n - 3) * determinant + ((r1 + r2) / 2) ** 2 * (1 - r) ** 3
    t = (r1 - r2) * np.sqrt((n - 1) * (1 + r) / spread)
    assert found.williams_t == pytest.approx(t)
    assert found.williams_p == pytest.approx(2 * stats.t.sf(t, n - 3))


def test_correlations_that_no_three_variables_can_have_give_nothing() -> None:
    assert astuple(dependent_correlations(0.9, -0.9, 0.9, 50)) == (None,) * 5
    assert astuple(dependent_correlations(0.9, 0.1, 0.99, 50)) == (None,) * 5


def test_identical_predictions_leave_williams_undefined() -> None:
    found = dependent_correlations(0.6, 0.6, 1.0, 50)
    assert (found.williams_t, found.williams_p) == (None, None)
