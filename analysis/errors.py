"""What can go wrong in an analysis.

AnalysisError           shown as one line, exit code 2
├── ResultsError        the results cannot be read: a file, a store, a column
└── PlanError           the analysis plan asks for what does not exist (an unknown primary endpoint)
"""

from __future__ import annotations


class AnalysisError(Exception):
    """Base of all errors raised on purpose by this package; its text is one line for the user."""


class ResultsError(AnalysisError):
    """Results cannot be read or are not what they must be."""


class PlanError(AnalysisError):
    """The plan does not fit the results."""
