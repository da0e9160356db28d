"""Text before it is shown: without passwords, and without characters that move it about on a screen.

Standard library only: everybody may import this.
"""

from __future__ import annotations

import re
import unicodedata

_USER_INFO = re.compile(r"(?<!/)//(?!/)\S*@")
# `viewStateShareKey` names a view of MLflow's UI: no secret, and a link without it opens nothing.
_IN_QUERY = re.compile(
    r"([?&;](?!viewStateShareKey=)[^=&?\s]*(?:pass|pwd|secret|token|key)[^=&?\s]*=)[^&\s]+", re.IGNORECASE
)


def hide_credentials(text: str) -> str:
    """A URI, or a message that repeats one, without user and password: fit to be shown.

    Up to the last `@` of a URI: a password may hold `/`, `@` and quotes.

    >>> hide_credentials("postgresql://me:s/e@cret@db/runs?sslpassword=x")
    'postgresql://db/runs?sslpassword=***'
    """
    return _IN_QUERY.sub(r"\1***", _USER_INFO.sub("//", text)) if "//" in text else text


def counted(number: int, noun: str) -> str:
    """A number and what is counted: `1 cell`, `2 cells`, `1,000 cells`."""
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def visible(text: str) -> str:
    r"""A label with what moves or hides text written out: line ends, control characters, marks of direction.

    >>> visible("a\nb\u202ec")
    'a\\nb\\u202ec'
    """
    if text.isprintable():
        return text
    return "".join(char if _is_seen(char) else char.encode("unicode_escape").decode() for char in text)


def _is_seen(char: str) -> bool:
    # Wide and unbroken blanks are blanks; a joiner belongs to letters of some scripts and to emoji.
    return char.isprintable() or unicodedata.category(char) == "Zs" or char in "\u200c\u200d"
