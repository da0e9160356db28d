"""What can go wrong in a sweep, apart from cells that fail.

SweepError                  shown as one line; `exit_code` says how the command ends
├── StudyError              the study file: file, field, value, what is allowed (2)
├── PreflightError          data, model, loss, storage or versions do not fit the study (2)
├── ChangedStudyError       the same study name, but other cells than those recorded (2)
├── ClaimedError            another live driver holds this study (2)
├── TrackingError           the tracking store cannot be used as asked (2)
│   └── RefusedRecord       the store works, but refuses what one cell has to record (2)
├── TrackingUnavailable     the tracking server is away for longer than was waited (1)
└── ClusterError            no cluster at the address, a refused token, a job that cannot start (2)
"""

from __future__ import annotations

import re

from analysis.showing import hide_credentials

_USER_INFO = re.compile(r"^[^\s/@:]+:[^\s@]+@")


class SweepError(Exception):
    """Base of all errors raised on purpose by this package; its text is one line for the user, without passwords."""

    exit_code = 2

    def __str__(self) -> str:
        return hide_credentials(super().__str__())


class StudyError(SweepError):
    """A study file that cannot be used: names file, field, value and what is allowed."""

    def __init__(self, *, file: str, field: str, value: object, allowed: str) -> None:
        self.file, self.field, self.value, self.allowed = file, field, value, allowed
        super().__init__(file, field, value, allowed)

    def __str__(self) -> str:
        # An address whose `postgresql://` was forgotten has its password at the beginning.
        shown = repr(_USER_INFO.sub("", self.value) if isinstance(self.value, str) else self.value)
        if len(shown) > 120:
            shown = shown[:117] + "..."
        return hide_credentials(f"{self.file}: {self.field}: {shown} is not valid; {self.allowed}")


class PreflightError(SweepError):
    """What was checked before scheduling does not fit the study; `detail` is the traceback where there is one."""

    def __init__(self, line: str, *, detail: str = "") -> None:
        self.detail = detail
        super().__init__(line)


class ChangedStudyError(SweepError):
    """The study has recorded cells that the study file no longer describes."""


class ClaimedError(SweepError):
    """Another live driver is running this study."""


class TrackingError(SweepError):
    """The tracking store cannot be used as asked."""


class RefusedRecord(TrackingError):
    """The store works, but refuses what one cell has to record; it would refuse it again."""


class TrackingUnavailable(SweepError):
    """The tracking server did not come back within the bound."""

    exit_code = 1


class ClusterError(SweepError):
    """No usable cluster behind the address."""
