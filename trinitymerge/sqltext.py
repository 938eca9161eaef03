"""SQL text of the library's own, told apart from the user's by its type.

Owns: :class:`Sql`. What SQL is made of stands in ``expressions.py``.
"""

from __future__ import annotations


class Sql(str):
    """SQL that may stand inside of other SQL as it is.

    A user's text is a plain ``str``, and may be anything: it becomes SQL in one place only, ``as_sql`` of
    :mod:`trinitymerge.merge.analysis.frames`, which puts it into parentheses that it cannot close or comment out. So what takes
    ``Sql`` cannot be given it unguarded: type checkers refuse that.

    ``Sql(f"...")`` says of a text that nothing stands in it but words of ours and other ``Sql``. What
    :mod:`trinitymerge.expressions` has a function for needs no such claim.
    """

    __slots__ = ()
