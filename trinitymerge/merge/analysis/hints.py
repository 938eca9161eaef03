"""What a user may have meant by a name that Spark does not find (S30).

Owns: the sentences that follow Spark's own, or stand instead of them. They are guesses, made only once something has been
refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trinitymerge.merge.analysis.frames import Source, Target, alias_of
from trinitymerge.merge.analysis.names import name_parts
from trinitymerge.merge.analysis.scopes import Sees

_UNRESOLVED = re.compile(r"with name ((?:`(?:[^`]|``)*`\.?)+) cannot be resolved")
_AMBIGUOUS = re.compile(r"Reference ((?:`(?:[^`]|``)*`\.?)+) is ambiguous")
_BARE = re.compile(r"[^\W\d]\w*(?:[ -]\w+)*")


def hint(error: BaseException, value: object, target: Target, source: Source | None) -> str:
    """A sentence that starts with a blank, or nothing.

    Args:
        error: Spark's.
        value: what was to be assigned; None where a condition was refused.
        target: the target side.
        source: the source side, if there is one.
    """
    text, parts = str(error), _unresolved(error)
    if len(parts) > 1:
        return _about_alias(parts[0], target, source)
    syntax = "PARSE_SYNTAX_ERROR" in text or "Syntax error" in text
    if isinstance(value, str) and _BARE.fullmatch(value.strip()) and (parts or (syntax and " " in value.strip())):
        return f" A str is SQL; if the text {value.strip()} is meant, write it as \"'{value.strip()}'\"."
    return ""


def unseen(error: BaseException, target: Target, source: Source | None, sees: Sees) -> str:
    """What is true of a refused name where Spark's words are not, or nothing: it is the other side's, or no alias (S30).

    Args:
        error: Spark's.
        target: the target side.
        source: the source side, if there is one.
        sees: what the clause sees.
    """
    if source is None:
        return ""
    ambiguous = _AMBIGUOUS.search(str(error))
    if ambiguous and len(name_parts(ambiguous[1])) > 1:
        name = name_parts(ambiguous[1])[0]
        return (
            f"'{name}' is a column of both sides, and no alias. Give the source an alias that is no column, as in "
            f"df.alias('B'), and name its columns by it."
            if name.lower() in {n.lower() for n in _names(source)} & {n.lower() for n in _names(target)}
            else ""
        )
    parts = _unresolved(error)
    if not parts or sees is Sees.BOTH:
        return ""
    seen, other = ("source", "target") if sees is Sees.SOURCE else ("target", "source")
    theirs, known = (source, target) if sees is Sees.SOURCE else (target, source)
    alias = target.alias if known is target else alias_of(source.df)
    if parts[0].lower() not in (n.lower() for n in (*_names(known), *((alias,) if alias and len(parts) > 1 else ()))):
        return ""
    return (
        f"Column '{'.'.join(parts)}' is the {other}'s, and the clause is for {seen} rows that have no {other} row. "
        f"The {seen} has {', '.join(repr(n) for n in _names(theirs))}."
    )


def _names(side: Target | Source) -> Sequence[str]:
    return side.definition.names if isinstance(side, Target) else side.schema.names


def _unresolved(error: BaseException) -> tuple[str, ...]:
    """The parts of the name that Spark does not find, if that is what is wrong."""
    found = _UNRESOLVED.search(str(error))
    return name_parts(found[1]) if found else ()


def _about_alias(name: str, target: Target, source: Source | None) -> str:
    """Which aliases there are, if the name is neither one of them nor a column."""
    theirs = None if source is None else alias_of(source.df)
    known = [target.alias, *target.definition.names, *((theirs,) if theirs else ())]
    known += [] if source is None else source.schema.names
    if name.lower() in (n.lower() for n in known):
        return ""
    if source is None:
        return f" There is no alias '{name}': the target's is '{target.alias}'; table.alias('{name}') gives it another."
    side = f"the source's is '{theirs}'" if theirs else "the source has none (source.x is understood all the same)"
    return (
        f" There is no alias '{name}': the target's is '{target.alias}', and {side}. table.alias('{name}') and "
        f"df.alias('{name}') give a side another."
    )
