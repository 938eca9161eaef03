"""SQL of the library as a type of its own, `Sql`, apart from the user's text."""

from __future__ import annotations

import re

QUOTED = r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`"""
"""What is quoted in SQL, names included, as a pattern over several lines."""

COMMENT = r"--[^\n]*|/\*.*?\*/"
"""A comment in SQL, likewise."""

_NOT_BARE = re.compile(f"{COMMENT}|(?P<quoted>{QUOTED})", re.DOTALL)


class Sql(str):
    """SQL that may stand inside of other SQL as it is.

    A user's text is a plain ``str``, and may be anything: it becomes SQL in one place only, :func:`as_sql`, which puts it into
    parentheses that it cannot close or comment out. So what takes
    ``Sql`` cannot be given it unguarded: type checkers refuse that.

    ``Sql(f"...")`` says of a text that nothing stands in it but words of ours and other ``Sql``. What
    :mod:`trinitymerge.spark.expressions` has a function for needs no such claim.
    """

    __slots__ = ()


def as_sql(text: str) -> Sql:
    """A user's SQL text as part of a larger expression, also where it ends with a comment: the only way it becomes one."""
    return Sql(f"({text}\n)" if "--" in text else f"({text})")


def bare(text: str) -> str:
    """A user's text without what is quoted in it, and without comments: what is left are words and symbols of SQL.

    Example:
        >>> bare("a > 'b' -- c")
        "a > '' "
    """
    return _NOT_BARE.sub(lambda found: "''" if found["quoted"] else "", text)
