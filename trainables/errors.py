"""What can go wrong in training one cell.

    TrainablesError
    ├── InputError          the user's file, model, loss or value is wrong: nothing can start
    ├── FirstBatchError     the first batch of a training already goes wrong
    └── CellFailed          this cell cannot be trained; a retry would fail in the same way
        ├── NonFiniteLoss
        ├── NonFiniteScore
        ├── CollapsedModel  constant predictions: no correlation exists
        └── OutOfGpuMemory

Anything else that escapes a trainable is a failure of the cell too (a bug in a user's loss, say);
a worker that vanishes is an infrastructure fault and is seen by the runner, not here.
"""

from __future__ import annotations


class TrainablesError(Exception):
    """Base of all errors raised on purpose by this package."""


class InputError(TrainablesError):
    """A wrong input: where it stands, which field, which value, what is allowed.

    All four parts are shown in one line; `where` is a file (with a line number where there is one),
    a dataset or a model.
    """

    def __init__(self, *, where: str, field: str, value: object, allowed: str) -> None:
        self.where, self.field, self.value, self.allowed = where, field, value, allowed
        super().__init__(where, field, value, allowed)

    def __str__(self) -> str:
        shown = repr(self.value)
        if len(shown) > 120:
            shown = shown[:117] + "..."
        return f"{self.where}: {self.field}: {shown} is not valid; {self.allowed}"


class FirstBatchError(TrainablesError):
    """The first batch of a training already goes wrong: what does what, and in which line of the user's code.

    `field` is the study's field that is at fault, `detail` the whole traceback where there is one.
    """

    def __init__(self, *, field: str, says: str, detail: str = "") -> None:
        self.field, self.says, self.detail = field, says, detail
        super().__init__(field, says, detail)

    def __str__(self) -> str:
        return f"{self.field}: {self.says}"


class CellFailed(TrainablesError):
    """Training or evaluation of this cell failed by itself; `kind` names the reason in one word."""

    kind = "failed"


class NonFiniteLoss(CellFailed):
    """The training loss became NaN or infinite."""

    kind = "non_finite_loss"


class NonFiniteScore(CellFailed):
    """A final score is NaN or infinite though the predictions vary."""

    kind = "non_finite_score"


class CollapsedModel(CellFailed):
    """All predictions of a split are equal, so no correlation exists."""

    kind = "collapsed_model"


class OutOfGpuMemory(CellFailed):
    """The device ran out of memory; the message gives the peak."""

    kind = "out_of_gpu_memory"
