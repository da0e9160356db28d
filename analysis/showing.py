"""Text before it is shown: without passwords or pages of HTML, and without characters that move it about on a screen.

Standard library only: everybody may import this.
"""

from __future__ import annotations

import re
import unicodedata

_USER_INFO = re.compile(r"(?<!/)//(?!/)\S*@")
# MLflow's UI names a shared view by a key that is no secret.
_IN_QUERY = re.compile(
    r"([?&;](?!viewStateShareKey=)[^=&?\s]*(?:pass|pwd|secret|token|key)[^=&?\s]*=)[^&\s]+", re.IGNORECASE
)

_PAGE = re.compile(r"Response body: '\s*<(!doctype|html|\?xml)", re.IGNORECASE)

ANSWERED_WITH_A_PAGE = (
    "it answered with HTML instead of JSON; a login page or a proxy? expected the address of an MLflow server"
)


def hide_credentials(text: str) -> str:
    """A URI, or a message that repeats one, without user and password: fit to be shown.

    Up to the last `@` of a URI: a password may hold `/`, `@` and quotes.

    >>> hide_credentials("postgresql://me:s/e@cret@db/runs?sslpassword=x")
    'postgresql://db/runs?sslpassword=***'
    >>> hide_credentials("http://host/#/runs?viewStateShareKey=a&key=b")
    'http://host/#/runs?viewStateShareKey=a&key=***'
    """
    return _IN_QUERY.sub(r"\1***", _USER_INFO.sub("//", text)) if "//" in text else text


def shown_uri(uri: str) -> str:
    """A URI without user and password, however it is written."""
    scheme, separator, rest = uri.partition("://")
    before, at, after = uri.rpartition("@")
    if not separator and at and ":" in before:  # an address whose beginning was forgotten
        return after
    return hide_credentials(f"{scheme}{separator}{rest.rpartition('@')[2]}" if scheme != "sqlite" else uri)


def is_page(error: BaseException) -> bool:
    """Whether MLflow's client got a page for people where a server gives JSON: a login page, a proxy's.

    With a status of 500 and above it is the page of a proxy whose server is away: that may pass.
    """
    text = str(error)
    page = _PAGE.search(text) is not None
    return "not in a valid JSON format" in text or (page and "failed with error code 5" not in text)


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
