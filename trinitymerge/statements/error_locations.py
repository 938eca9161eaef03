"""Line and column of errors, and advice in SQL instead of Python calls."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from trinitymerge.errors import InvalidDefinitionError, InvalidMergeError, SchemaMismatchError, TrinityMergeError
from trinitymerge.merge.model.names import name_parts
from trinitymerge.statements.lexer import tokenize
from trinitymerge.statements.parser import misread_at
from trinitymerge.statements.queries import RewrittenText
from trinitymerge.statements.tree import place


@contextmanager
def locate_errors(statement: RewrittenText, places: Sequence[int] = (), start: int = 0) -> Iterator[None]:
    """Add line and column to errors of the chain, by their facts, and its advice in SQL.

    ``places`` are the offsets of the clauses in the text that runs, and ``start`` that of errors without facts.
    """
    try:
        yield
    except (InvalidMergeError, SchemaMismatchError, InvalidDefinitionError) as error:
        if not hasattr(error, "line"):
            line, column = place(statement.text, statement.original(_offset(statement.result, error, places, start)))
            advice = error.facts.get("advice")
            message = str(error) if advice is None else str(error).replace(advice, advice.sql)
            error.args = (f"Line {line}, column {column}: {message}", *error.args[1:])
            vars(error).update(line=line, column=column)
        raise


def _offset(text: str, error: TrinityMergeError, places: Sequence[int], start: int) -> int:
    facts = error.facts
    wrong = misread_at(text) if facts.get("is_syntax_error") else None
    if wrong is not None:
        return wrong
    bounds = [*places, len(text)]
    clause = facts.get("clause", 0)
    start, end = bounds[clause - 1 : clause + 1] if 0 < clause < len(bounds) else (start, len(text))
    columns = [facts["column"]] if "column" in facts else facts.get("columns", ())
    found = find_names(text, columns, start, end)
    return start if found is None else found


def find_names(text: str, names: Iterable[str], start: int = 0, end: int | None = None) -> int | None:
    """Return the offset of the first of some names in a part of a statement; None if it has none of them.

    Example:
        >>> find_names("SELECT id, o.amuont FROM orders o", ["`o`.`amuont`"])
        11
    """
    written = [(at, name) for at, name in _names(text) if start <= at < (len(text) if end is None else end)]
    for sought in names:
        parts = [part.lower() for part in name_parts(sought)]
        for known in (parts, parts[-1:]):  # the statement may qualify the name less
            for at, name in written:
                if known and name[-len(known) :] == known:
                    return at
    return None


def _names(text: str) -> list[tuple[int, list[str]]]:
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
