"""What a user may have meant by a name that Spark does not find (S30).

Owns: the sentences that follow Spark's own. They are guesses, made only once something has been refused.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame

from trinitymerge.columns import NOTHING
from trinitymerge.merge.analysis.frames import Source, Target
from trinitymerge.merge.analysis.names import name_parts
from trinitymerge.spark_errors import quiet

_UNRESOLVED = re.compile(r"with name ((?:`(?:[^`]|``)*`\.?)+) cannot be resolved")
_SUGGESTED = re.compile(r"`((?:[^`]|``)+)`\.`(?:[^`]|``)+`")
_BARE = re.compile(r"[^\W\d]\w*(?:[ -]\w+)*")


def hint(error: BaseException, value: object, target: Target, source: Source | None) -> str:
    """A sentence that starts with a blank, or nothing.

    Args:
        error: Spark's.
        value: what was to be assigned; None where a condition was refused.
        target: the target side.
        source: the source side, if there is one.
    """
    text = str(error)
    found = _UNRESOLVED.search(text)
    parts = name_parts(found[1]) if found else ()
    if len(parts) > 1:
        return _about_alias(parts[0], target, source)
    syntax = "PARSE_SYNTAX_ERROR" in text or "Syntax error" in text
    if isinstance(value, str) and _BARE.fullmatch(value.strip()) and (parts or (syntax and " " in value.strip())):
        return f" A str is SQL; if the text {value.strip()} is meant, write it as \"'{value.strip()}'\"."
    return ""


def _about_alias(name: str, target: Target, source: Source | None) -> str:
    """Which aliases there are, if the name is neither one of them nor a column."""
    theirs = None if source is None else _alias_of(source.df)
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


def _alias_of(df: DataFrame) -> str | None:
    """The alias of a DataFrame, as the analyzer names it when it suggests columns instead of one that does not exist."""
    try:
        with quiet():
            df.select(f"`{NOTHING}`.`{NOTHING}`").schema  # noqa: B018
    except AnalysisException as error:
        aliases: Sequence[str] = _SUGGESTED.findall(str(error).split("Did you mean")[-1])
        return next((a.replace("``", "`") for a in aliases if a != NOTHING), None)
    return None
