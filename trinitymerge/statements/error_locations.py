"""Line and column of errors, and advice in SQL instead of Python calls."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from trinitymerge.errors import InvalidDefinitionError, InvalidMergeError, SchemaMismatchError
from trinitymerge.merge.model.clauses import Clause, describe
from trinitymerge.merge.model.names import name_parts
from trinitymerge.statements.lexer import tokenize
from trinitymerge.statements.parser import misread_at
from trinitymerge.statements.queries import RewrittenText
from trinitymerge.statements.tree import place

_IN_SQL = (
    (
        r"Add (it|them), or use merge\(\) with updateAll\(.*\)\.",
        r"Add \1 to its query, or leave \1 out: UPDATE SET * EXCEPT ({columns}).",
    ),
    (
        r"Add (it|them), or use merge\(\) with insertAll\(.*\)\.",
        r"Add \1 to its query, or leave \1 out: INSERT * EXCEPT ({columns}).",
    ),
    (r"Add it to the map\.", "Name it, and give it a value: INSERT (column, ...) VALUES (value, ...)."),
    (
        r"Assign the watermark in the map, let the source have the column, or add \.at\(value\)\. To correct .*",
        "Assign the watermark in the statement, or let the source have the column. For what SQL has no words, at(value) and "
        'onStale("force"), there is the chain: table.merge(...).',
    ),
    (r"table\.alias\('\w+'\) and df\.alias\('\w+'\) give a side another\.", "AS behind a side gives it another."),
    (r"table\.alias\('\w+'\) gives it another\.", "AS behind the table gives it another."),
    (r"give one of them another with alias\(\.\.\.\)\.", "give one of them another with AS."),
    (r"A str is SQL; if the text (.*) is meant, write it as \"('.*')\"\.", r"If the text \1 is meant, write it as \2."),
)
"""By what is advised, as a pattern: what to advise instead."""


def to_sql_advice(message: str, columns: Sequence[str] = ()) -> str:
    """A message, with advice that a statement can follow.

    Args:
        message: of an error of the chain.
        columns: that the error is about.

    Example:
        >>> to_sql_advice("The source has no n. Add them, or use merge() with insertAll(exceptColumns=[...]).", ["n"])
        'The source has no n. Add them to its query, or leave them out: INSERT * EXCEPT (n).'
    """
    for advised, instead in _IN_SQL:
        listed = ", ".join(columns).replace("\\", r"\\") or "..."
        message = re.sub(advised, instead.replace("{columns}", listed), message)
    return message


_QUOTED = re.compile(r"((?:`(?:[^`]|``)+`\.)*`(?:[^`]|``)+`)|'((?:\w+\.)*\w+)'")


@contextmanager
def locate_errors(
    statement: RewrittenText, clauses: Sequence[Clause] = (), places: Sequence[int] = (), start: int = 0
) -> Iterator[None]:
    """Adds line and column to what is refused inside.

    Args:
        statement: what runs, and what it was before names were replaced, which is what places are about.
        clauses: of the merge it is.
        places: where each of them begins.
        start: where the error is if nobody knows better.
    """
    try:
        yield
    except (InvalidMergeError, SchemaMismatchError, InvalidDefinitionError) as error:
        if not hasattr(error, "line"):
            message = str(error)
            found = _offset(statement.result, message, tuple(clauses), places, getattr(error, "clause", None), start)
            line, column = place(statement.text, statement.original(found))
            vars(error).update(line=line, column=column)
            told = to_sql_advice(message, getattr(error, "columns", None) or ())
            error.args = (f"Line {line}, column {column}: {told}", *error.args[1:])
        raise


def _offset(
    text: str, message: str, clauses: tuple[Clause, ...], places: Sequence[int], clause: int | None, start: int
) -> int:
    if "PARSE_SYNTAX_ERROR" in message:
        wrong = misread_at(text)
        if wrong is not None:
            return wrong
    shown = {i: describe(clauses, i) for i in range(len(places))}
    about = [i for i in shown if clause == i + 1] or sorted(
        (i for i in shown if shown[i] in message), key=lambda i: -len(shown[i])
    )
    if about:
        start = places[about[0]]
        message = message.replace(shown[about[0]], "")
    found = mentioned(text, message, start)
    return start if found is None else found


def mentioned(text: str, message: str, start: int = 0) -> int | None:
    """Where the first name stands that a message has in quotes, from an offset on; None if it has none of the statement's.

    Example:
        >>> mentioned("SELECT id, o.amuont FROM orders o", "A column with name `o`.`amuont` cannot be resolved.")
        11
    """
    names = [(at, name) for at, name in _names(text) if at >= start]
    for quoted in _QUOTED.finditer(message):
        parts = [p.lower() for p in name_parts(quoted[1] or quoted[2])]
        for known in (parts, parts[-1:]):  # as it is written, or with fewer parts than the message has
            for at, name in names:
                if name[-len(known) :] == known:
                    return at
    return None


def _names(text: str) -> list[tuple[int, list[str]]]:
    """The names in a statement, their parts in small letters, and where they begin."""
    found: list[tuple[int, list[str]]] = []
    goes_on = False
    for token in tokenize(text):
        is_name = token.kind in ("word", "name")
        if is_name and goes_on and found:
            found[-1][1].append(token.value.lower())
        elif is_name:
            found.append((token.start, [token.value.lower()]))
        goes_on = token.value == "." and token.kind == "symbol"
    return found
