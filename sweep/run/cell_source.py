"""Where a launch gets its cells: all at once, or decided on while it runs, as in a search or a sequential study."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from sweep.errors import SweepError
from sweep.study import Study
from sweep.study.cells import Cell


class CellSource(Protocol):
    """Says which cells are needed next."""

    @property
    def study(self) -> Study:
        """Whose cells they are, as it stands now."""

    def next_cells(self) -> Sequence[Cell]:
        """The cells that are needed next, asked once all earlier ones are done; none ends the work.

        Raises:
            SweepError: what is needed next cannot be told.
        """

    def to_come(self) -> tuple[int, int] | None:
        """Cells in all, recorded ones too, and those of them that are not given yet; None: not known."""


class FixedCells:
    """Cells that are all known beforehand."""

    def __init__(self, study: Study, cells: Sequence[Cell]) -> None:
        self.study = study
        self._cells = tuple(cells)

    def next_cells(self) -> Sequence[Cell]:
        """All of them, once."""
        cells, self._cells = self._cells, ()
        return cells

    def to_come(self) -> None:
        """What is given is all."""


class KeepsError:
    """Another source, whose error ends the cells and is kept until the launch is over.

    A launch asks for more in the middle of its scheduler's loop, where an error would end in a traceback and lose
    what other workers are recording.
    """

    def __init__(self, source: CellSource) -> None:
        self._source = source
        self._over = False
        self.error: SweepError | None = None

    @property
    def study(self) -> Study:
        """The other source's."""
        return self._source.study

    def next_cells(self) -> Sequence[Cell]:
        """The other source's; none after it has once given none or raised an error."""
        if self._over:
            return ()
        try:
            cells = self._source.next_cells()
        except SweepError as error:
            self.error, cells = error, ()
        self._over = not cells
        return cells

    def to_come(self) -> tuple[int, int] | None:
        """The other source's."""
        return self._source.to_come()
