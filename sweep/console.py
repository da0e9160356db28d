"""The terminal: one line to the user, an error as one line, and Ctrl-C or SIGTERM to stop."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from analysis.showing import hide_credentials, visible

EXIT_INTERRUPTED: Final = 130
_SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)


def say(line: str) -> None:
    """One line to the user, on stderr; a password in an address is left out."""
    print(hide_credentials(line), file=sys.stderr, flush=True)


def doing(what: str) -> None:
    """What is being waited for, as `checking my-study.yaml ...`; on a terminal only, since a log needs no patience."""
    if _on_terminal():
        say(f"{what} ...")


def _on_terminal() -> bool:
    return sys.stderr.isatty()


def one_line(error: BaseException, limit: int = 300) -> str:
    """The error's type and text in one line of at most `limit` characters, without passwords."""
    text = visible(hide_credentials(" ".join(str(error).split())))
    name = type(error).__name__
    whole = f"{name}: {text}" if text else name
    return whole if len(whole) <= limit else whole[: limit - 3] + "..."


class Interrupts:
    """Takes both signals over for as long as a sweep runs.

    The first one raises KeyboardInterrupt where nothing is under way, and only sets `asked` while cells are trained
    (`deferred`). The second ends the process at once; the next command clears up.
    """

    def __init__(self, say: Callable[[str], None]) -> None:
        self.asked = False
        self.deferred = False
        self._say = say
        self._before: dict[int, Any] = {}

    def install(self) -> None:
        """Take the signals over; again after a library has taken them for itself."""
        for number in _SIGNALS:
            current = signal.signal(number, self._handle)
            self._before.setdefault(number, current)

    def restore(self) -> None:
        """Give the signals back."""
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before.clear()

    def ask(self, reason: str) -> None:
        """Ask for a stop in order from inside the program."""
        if not self.asked:
            self.asked = True
            self._say(reason)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            sys.stderr.write("\nstopped at once; the same command continues where it stood\n")
            sys.stderr.flush()
            os._exit(EXIT_INTERRUPTED)
        self.asked = True
        if not self.deferred:
            raise KeyboardInterrupt
        self._say("stopping: cells that are being recorded are finished, the others are ended (again: stop at once)")
