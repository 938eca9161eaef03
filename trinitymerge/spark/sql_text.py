"""`Sql`: SQL that the library wrote, as a type separate from the user's text."""

from __future__ import annotations

import re

QUOTED = r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`"""
"""Quoted text and names in SQL, as a pattern over several lines."""

COMMENT = r"--[^\n]*|/\*.*?\*/"
"""A comment in SQL, as a pattern over several lines."""

_NOT_BARE = re.compile(f"{COMMENT}|(?P<quoted>{QUOTED})", re.DOTALL)


class Sql(str):
    """SQL that may be part of other SQL.

    A user's text is a plain ``str``; only :func:`as_sql` turns it into SQL, in parentheses that the text cannot close or comment
    out. Functions that take ``Sql`` therefore refuse unguarded text when types are checked.

    ``Sql(f"...")`` claims that a text holds only the library's words and other ``Sql``. The functions of
    :mod:`trinitymerge.spark.expressions` need no such claim.
    """

    __slots__ = ()


def as_sql(text: str) -> Sql:
    """Return a user's SQL text as a part of a larger expression, even if it ends with a comment."""
    return Sql(f"({text}\n)" if "--" in text else f"({text})")


def bare(text: str) -> str:
    """Return a user's text without quoted text and comments: only words and symbols of SQL.

    Example:
        >>> bare("a > 'b' -- c")
        "a > '' "
    """
    return _NOT_BARE.sub(lambda found: "''" if found["quoted"] else "", text)
