"""Cells that are decided on while a launch runs: what a search or a sequential study needs next."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from sweep.console import EXIT_INTERRUPTED
from sweep.errors import SweepError
from sweep.run.run_options import RunOptions
from sweep.run.run_study import run_cells
from sweep.study import Study
from sweep.study.cells import Cell


class Feed:
    """Feeds launches until nothing more is needed.

    A launch asks for more in the middle of Ray Tune's loop, where an error would end in a traceback and lose what
    other workers are recording; it is kept until the launch is over.
    """

    def __init__(self, needed_next: Callable[[], Sequence[Cell]]) -> None:
        """Prepare; `needed_next` gives the cells that are needed next, none when the work is over or stuck."""
        self._needed_next = needed_next
        self._over = False
        self._error: SweepError | None = None

    def _more(self) -> Sequence[Cell]:
        if self._over:
            return ()
        try:
            cells = self._needed_next()
        except SweepError as error:
            self._error, cells = error, ()
        self._over = not cells
        return cells

    def run(self, study: Callable[[], Study], options: RunOptions) -> int:
        """Launch, and launch again while there is more: a launch that finds all of its cells recorded never asks.

        Args:
            study: Gives the study as it stands at each launch.
            options: How to run.

        Returns:
            Exit code of the last launch; 0 when nothing was to be run.

        Raises:
            SweepError: nothing could be started, or what `needed_next` raised.
        """
        code = 0
        while cells := self._more():
            code = run_cells(study(), cells, options, more=self._more)
            if code == EXIT_INTERRUPTED:
                break
        if self._error is not None:
            raise self._error
        return code
