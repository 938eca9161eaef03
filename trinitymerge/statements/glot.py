"""What is asked of SQLGlot: the tokens of a text, and which tables a query names.

Owns: the only knowledge of that package, which is optional. Everything else here is written against what these functions give;
no SQL that SQLGlot generates is ever used, for it could mean something else than what the user wrote.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib import import_module
from typing import Any

import attrs

from trinitymerge.errors import MissingPackageError
from trinitymerge.statements.places import sql_error

DIALECT = "spark"

_TEXT = {"STRING", "RAW_STRING"}


@attrs.frozen
class Lexeme:
    """A token: where it is in the text, and what SQLGlot takes it for.

    Attributes:
        start: offset of its first character.
        end: offset behind its last.
        kind: ``"word"``, ``"name"`` (in backticks), ``"string"``, ``"number"``, or ``"symbol"`` for all others.
        value: of a name or string what it stands for, of others the text.
    """

    start: int
    end: int
    kind: str
    value: str


@attrs.frozen
class NamedTable:
    """A name in a query that stands for a table, and for no common table expression.

    Attributes:
        parts: of the name, without backticks.
        start: offset of the name.
        end: offset behind it.
        alias: an empty string if the query gives it none.
    """

    parts: tuple[str, ...]
    start: int
    end: int
    alias: str


@attrs.frozen
class QueryOutline:
    """What there is to know of a query.

    Attributes:
        tables: those it names, in the order of the text.
        first: the name by which the first relation after FROM goes; an empty string if it has none.
        joins: whether there is more than that relation.
    """

    tables: tuple[NamedTable, ...]
    first: str
    joins: bool


def lexemes(text: str) -> list[Lexeme]:
    """The tokens of a text, comments left out; those that SQLGlot makes up or runs together are as they were written.

    Raises:
        SqlError: a quote or comment is not closed.
        MissingPackageError: SQLGlot is not installed.
    """
    glot = _glot()
    try:
        tokens = glot.tokenize(text, read=DIALECT)
    except glot.errors.TokenError as error:
        raise sql_error(text, _unclosed(text, error), "This quote or comment is never closed.") from None
    found: dict[int, Lexeme] = {}
    for token in tokens:
        for lexeme in _written(text, token):
            found.setdefault(lexeme.start, lexeme)  # 1L comes as three tokens in one place
    return [found[start] for start in sorted(found)]


def outline(text: str, statement: str) -> QueryOutline:
    """Which tables a query names.

    Args:
        text: the query, each part of it where the statement has it.
        statement: what errors are about.

    Raises:
        SqlError: SQLGlot cannot read the query, or it is none.
    """
    glot = _glot()
    try:
        trees = glot.parse(text, read=DIALECT)
    except glot.errors.ParseError as error:
        raise sql_error(statement, *_stopped(text, error)) from None
    if len(trees) != 1 or not isinstance(trees[0], (glot.exp.Query, glot.exp.Values)):
        raise sql_error(statement, len(text) - len(text.lstrip()), "This is not one query.")
    tree = trees[0]
    tables = sorted(_tables(glot.exp, tree), key=lambda t: t.start)
    first = tree.find(glot.exp.From)
    alias = "" if first is None else first.this.alias_or_name
    return QueryOutline(tuple(tables), alias, bool(tree.args.get("joins") or tree.args.get("laterals")))


def misread(expression: str) -> int | None:
    """Where in an expression SQLGlot stops, if it cannot read it."""
    glot, before = _glot(), "SELECT * FROM t WHERE "  # where no alias could follow
    try:
        glot.parse(f"{before}{expression}", read=DIALECT)
    except glot.errors.ParseError as error:
        stopped, _, _ = _stopped(f"{before}{expression}", error)
        return min(max(stopped - len(before), 0), len(expression))
    return None


def _glot() -> Any:
    try:
        return import_module("sqlglot")
    except ImportError:
        raise MissingPackageError(
            "trinitymerge.sql reads statements with SQLGlot, which is not installed: pip install 'trinitymerge[sql]'. "
            "The calls of TrinityTable do the same without it."
        ) from None


# Tokens ---------------------------------------------------------------------------------------------------------------


def _written(text: str, token: Any) -> Iterator[Lexeme]:
    start, end, kind = token.start, token.end + 1, token.token_type.name
    written = text[start:end]
    if kind == "IDENTIFIER":
        yield Lexeme(start, end, "name", token.text)
    elif kind in _TEXT and written[-1:] in ("'", '"'):
        yield Lexeme(start, end, "string", token.text)
    elif kind == "NUMBER":
        yield Lexeme(start, end, "number", written)
    elif kind not in _TEXT and re.match(r"\w+(\s+\w+)*\Z", written):  # ORDER BY comes as one token
        for word in re.finditer(r"\w+", written):
            yield Lexeme(start + word.start(), start + word.end(), "word", word.group())
    elif kind not in _TEXT:  # what is left of _TEXT is the rest of a command, which comes as one token in no place
        yield Lexeme(start, end, "symbol", written)


def _unclosed(text: str, error: BaseException) -> int:
    """Where something opens that is not closed, which SQLGlot says of quotes only."""
    said = re.search(r"from \d+:(\d+)", str(error.__cause__))
    return min(int(said[1]), len(text)) if said else max(text.rfind("/*"), 0)


# Queries --------------------------------------------------------------------------------------------------------------


def _stopped(text: str, error: Any) -> tuple[int, str, str]:
    """Where SQLGlot stopped, what to tell the user, and what stands there."""
    found = error.errors[0] if error.errors else {}
    near = found.get("highlight") or ""
    lines = text.splitlines(keepends=True)
    end = sum(map(len, lines[: (found.get("line") or 1) - 1])) + (found.get("col") or 0)
    advice = (
        "If Spark could and SQLGlot, which looks for the tables in it, cannot: table.toDF().createOrReplaceTempView(name), and "
        "spark.sql."
    )
    return max(end - len(near), 0), f"This query cannot be read. {advice}", near


def _tables(exp: Any, tree: Any) -> Iterator[NamedTable]:
    for table in tree.find_all(exp.Table):
        parts = table.parts
        if not all(isinstance(part, exp.Identifier) for part in parts):
            continue  # a function
        name = tuple(part.name for part in parts)
        if table.find_ancestor(exp.Hint) is None and not (len(name) == 1 and _is_common(exp, table, name[0])):
            yield NamedTable(name, parts[0].meta["start"], parts[-1].meta["end"] + 1, table.alias)


def _is_common(exp: Any, table: Any, name: str) -> bool:
    """True if a common table expression of that name is in sight where the table is named."""
    below, node = table, table.parent
    while node is not None:
        if isinstance(node, exp.With):  # below is one of them: it sees those before it, and itself if it is recursive
            place = next(i for i, e in enumerate(node.expressions) if e is below)
            seen = node.expressions[: place + bool(node.args.get("recursive"))]
        else:
            own = next((v for v in node.args.values() if isinstance(v, exp.With) and v is not below), None)
            seen = own.expressions if own is not None else []
        if any(e.alias.lower() == name.lower() for e in seen):
            return True
        below, node = node, node.parent
    return False
