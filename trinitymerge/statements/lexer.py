"""Tokens of SQL text, and a cursor over them; the only module that imports SQLGlot."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from importlib import import_module
from typing import Any, TypeAlias, TypeVar

import attrs

from trinitymerge.errors import MissingPackageError, SqlError
from trinitymerge.statements.tree import sql_error

DIALECT = "spark"

_TEXT, _BYTES = {"STRING", "RAW_STRING"}, {"HEX_STRING", "BIT_STRING", "BYTE_STRING"}


@attrs.frozen
class Lexeme:
    """A token of SQL text, from the offset ``start`` to before ``end``.

    Attributes:
        kind: ``"word"``, ``"name"`` (in backticks), ``"string"``, ``"number"``, or ``"symbol"`` for all others.
        value: of a name or string, its content without quotes; of others, the text.
    """

    start: int
    end: int
    kind: str
    value: str


@attrs.frozen
class TableReference:
    """The name of a table in a query, not of a common table expression: its parts without backticks, offsets, and alias or ""."""

    parts: tuple[str, ...]
    start: int
    end: int
    alias: str


@attrs.frozen
class QueryOutline:
    """The tables of a query, in order, the alias or name of the first relation after FROM or "", and whether there are more."""

    tables: tuple[TableReference, ...]
    first: str
    joins: bool


def tokenize(text: str) -> list[Lexeme]:
    """Return the tokens of a text as they are written, without comments."""
    glot = _glot()
    try:
        tokens = glot.tokenize(text, read=DIALECT)
    except glot.errors.TokenError as error:
        said = re.search(r"from \d+:(\d+)", str(error.__cause__))  # of quotes only
        start = min(int(said[1]), len(text)) if said else max(text.rfind("/*"), 0)
        raise sql_error(text, start, "This quote or comment is never closed.") from None
    found: dict[int, Lexeme] = {}
    for token in tokens:
        for lexeme in _written(text, token):
            found.setdefault(lexeme.start, lexeme)  # 1L comes as three tokens in one place
    return [found[start] for start in sorted(found)]


def find_tables(text: str, statement: str) -> QueryOutline:
    """Return the tables that a query names; errors locate the statement, in which the query has the same offsets."""
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


def parse_error_offset(expression: str) -> int | None:
    """Return the offset at which SQLGlot cannot read an expression; None if it can."""
    glot, before = _glot(), "SELECT * FROM t WHERE "  # no alias can follow here
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


def _written(text: str, token: Any) -> Iterator[Lexeme]:
    start, end, kind = token.start, token.end + 1, token.token_type.name
    written = text[start:end]
    if kind == "IDENTIFIER":
        yield Lexeme(start, end, "name", token.text)
    elif kind in {*_TEXT, *_BYTES} and written[-1:] in ("'", '"'):
        yield Lexeme(start, end, "string", token.text)
    elif kind == "NUMBER":
        yield Lexeme(start, end, "number", written)
    elif kind not in _TEXT and re.match(r"\w+(\s+\w+)*\Z", written):  # ORDER BY comes as one token
        for word in re.finditer(r"\w+", written):
            yield Lexeme(start + word.start(), start + word.end(), "word", word.group())
    elif kind not in _TEXT:  # what is left of _TEXT is the rest of a command, which comes as one token in no place
        yield Lexeme(start, end, "symbol", written)


# Queries --------------------------------------------------------------------------------------------------------------


def _stopped(text: str, error: Any) -> tuple[int, str, str]:
    """Return the offset at which SQLGlot stopped, a message, and the text there."""
    found = error.errors[0] if error.errors else {}
    near = found.get("highlight") or ""
    lines = text.splitlines(keepends=True)
    end = sum(map(len, lines[: (found.get("line") or 1) - 1])) + (found.get("col") or 0)
    advice = "If it is valid in Spark, use table.toDF().createOrReplaceTempView(name) and spark.sql."
    return max(end - len(near), 0), f"SQLGlot cannot parse this query. {advice}", near


def _tables(exp: Any, tree: Any) -> Iterator[TableReference]:
    for table in tree.find_all(exp.Table):
        parts = table.parts
        if not all(isinstance(part, exp.Identifier) for part in parts):
            continue  # a function
        name = tuple(part.name for part in parts)
        if table.find_ancestor(exp.Hint) is None and not (len(name) == 1 and _is_common(exp, table, name[0])):
            yield TableReference(name, parts[0].meta["start"], parts[-1].meta["end"] + 1, table.alias)


def _is_common(exp: Any, table: Any, name: str) -> bool:
    below, node = table, table.parent
    while node is not None:
        if isinstance(node, exp.With):  # one of them sees those before it, and itself if recursive
            place = next(i for i, e in enumerate(node.expressions) if e is below)
            seen = node.expressions[: place + bool(node.args.get("recursive"))]
        else:
            own = next((v for v in node.args.values() if isinstance(v, exp.With) and v is not below), None)
            seen = own.expressions if own is not None else []
        if any(e.alias.lower() == name.lower() for e in seen):
            return True
        below, node = node, node.parent
    return False


StopPredicate: TypeAlias = "Callable[[Cursor], bool]"
"""True if an expression ends at the cursor, outside of all parentheses."""

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_COMPARED = {".", ",", ")", "=", "==", "<", ">", "<=", ">=", "<>", "!=", "<=>", ""}
"""After the word CASE, these mean that it is a column name."""

_Read = TypeVar("_Read")

_JOINING = {"AND", "OR", "NOT", "IN", "LIKE", "ILIKE", "RLIKE", "BETWEEN", "IS", "DIV", "ELSE", "ESCAPE", "BY"}
_QUERIES = ("SELECT", "WITH", "VALUES", "FROM", "TABLE")


@attrs.define
class Cursor:
    """A text, its tokens, and a position; mutable. Methods that expect something raise a SqlError if the text differs.

    Attributes:
        at: the index of the next token.
        expressions: start and end offsets of the expressions read so far.
        queries: start and end offsets of the queries in them.
    """

    text: str
    tokens: tuple[Lexeme, ...]
    at: int = 0
    expressions: list[tuple[int, int]] = attrs.field(factory=list)
    queries: list[tuple[int, int]] = attrs.field(factory=list)

    @classmethod
    def of(cls, text: str) -> Cursor:
        """Return a cursor at the start of a text, without trailing semicolons."""
        tokens = tokenize(text)
        while tokens and tokens[-1].value == ";":
            tokens.pop()
        return cls(text, tuple(tokens))

    # Looking --------------------------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        return self.at >= len(self.tokens)

    def token(self, ahead: int = 0) -> Lexeme:
        """Return a token relative to the cursor; an empty one outside of the text."""
        place = self.at + ahead
        if 0 <= place < len(self.tokens):
            return self.tokens[place]
        end = self.tokens[-1].end if self.tokens else 0
        return Lexeme(end, end, "end", "")

    def word(self, ahead: int = 0) -> str:
        """Return the word there in upper case; an empty string for other tokens."""
        token = self.token(ahead)
        return token.value.upper() if token.kind == "word" else ""

    def symbol(self, ahead: int = 0) -> str:
        """Return the symbol there; an empty string for other tokens."""
        token = self.token(ahead)
        return token.value if token.kind == "symbol" else ""

    def sees(self, words: str) -> bool:
        return all(w in (self.word(i), self.symbol(i)) for i, w in enumerate(words.split()))

    def since(self, first: int) -> str:
        return self.text[self.tokens[first].start : self.tokens[self.at - 1].end]

    @property
    def rest(self) -> tuple[int, int]:
        return self.token().start, max(self.tokens[-1].end if self.tokens else 0, self.token().start)

    # Taking ---------------------------------------------------------------------------------------------------------

    def accept(self, words: str) -> bool:
        found = self.sees(words)
        if found:
            self.at += len(words.split())
        return found

    def expect(self, words: str, why: str = "") -> None:
        if not self.accept(words):
            raise self.error(f"{words} is expected here.{why and ' ' + why}")

    def take(self) -> Lexeme:
        token = self.token()
        self.at += 1
        return token

    def name(self, what: str) -> Lexeme:
        if self.token().kind not in ("word", "name"):
            raise self.error(f"{what} is expected here.")
        return self.take()

    def dotted(self, what: str) -> tuple[Lexeme, ...]:
        parts = [self.name(what)]
        while self.symbol() == ".":
            self.at += 1
            parts.append(self.name(what))
        return tuple(parts)

    def separated(self, read: Callable[[Cursor], _Read]) -> list[_Read]:
        found = [read(self)]
        while self.accept(","):
            found.append(read(self))
        return found

    def enclosed(self, read: Callable[[Cursor], _Read], why: str = "") -> list[_Read]:
        self.expect("(", why)
        found = self.separated(read)
        self.expect(")")
        return found

    # Expressions ----------------------------------------------------------------------------------------------------

    def expression(self, what: str, ends: StopPredicate) -> str:
        """Read an expression up to ``ends`` or to the end of the parentheses around it; return its text."""
        first, opened, query = self.at, list[int](), -1
        while not self.done and (opened or not (self.symbol() == ")" or ends(self))):
            is_case = self.symbol(-1) != "." and (self.token(1).kind != "symbol" or self.symbol(1) not in _COMPARED)
            if self.symbol() in _CLOSING or (self.word() == "CASE" and is_case):
                query = self.at if query < 0 and self._opens_query() else query
                opened.append(self.at)
            elif opened and self._closes(opened[-1]):
                if opened.pop() == query:
                    self.queries.append((self.tokens[query].end, self.token().start))
                    query = -1
            elif self.symbol() in _CLOSING.values():
                raise self.error("This closes nothing.")
            self.at += 1
        if opened:
            self.at = opened[-1]
            raise self.error(
                f"This is never closed.{' Put a column of that name in backticks.' if self.word() else ''}"
            )
        if self.at == first:
            raise self.error(f"{what} is missing here.")
        self.expressions.append((self.tokens[first].start, self.tokens[self.at - 1].end))
        return self.since(first)

    def _closes(self, opener: int) -> bool:
        opening = self.tokens[opener]
        if opening.kind == "word":
            return self.word() == "END" and self.symbol(-1) != "."
        return self.symbol() == _CLOSING[opening.value]

    def _opens_query(self, ahead: int = 0) -> bool:
        """Return True if parentheses enclose a query; one in parentheses is the first of several, or a value."""
        first = ahead + 1
        if self.symbol(ahead) != "(" or self.symbol(first) != "(":
            is_call = self.token(ahead - 1).kind in ("word", "name") and self.word(ahead - 1) not in {
                *_JOINING,
                "EXISTS",
            }
            tables = ("TABLE",) if is_call else ("TABLE", "FROM")  # trim(FROM x)
            is_table = self.word(first) in tables and self.token(first + 1).kind in ("word", "name")
            is_values = self.word(first) == "VALUES" and not is_call
            return self.symbol(ahead) == "(" and (is_table or is_values or self.word(first) in ("SELECT", "WITH"))
        depth, after = 1, first + 1
        while depth and self.at + after < len(self.tokens):
            depth += {"(": 1, ")": -1}.get(self.symbol(after), 0)
            after += 1
        is_first = self.word(after) in ("UNION", "INTERSECT", "EXCEPT", "MINUS")
        return self._opens_query(first) and (is_first or (ahead > 0 and self.symbol(after) == ")"))

    def after_operand(self) -> bool:
        """Return True after a value, where only an operator can continue the expression."""
        before = self.token(-1)
        is_value = before.kind in ("word", "name", "string", "number") and self.word(-1) not in _JOINING
        return is_value or before.value in (")", "]")

    def begins_query(self) -> bool:
        """Return True if a query begins here, in parentheses or not; false for a list of columns with such a name."""
        ahead = 0
        while self.symbol(ahead) == "(":
            ahead += 1
        return self.word(ahead) in _QUERIES and self.symbol(ahead + 1) not in (",", ")")

    def skip_parentheses(self) -> None:
        opened = list[int]()
        while not self.done:
            if self.symbol() == "(":
                opened.append(self.at)
            elif self.symbol() == ")" and opened:
                opened.pop()
            self.at += 1
            if not opened:
                return
        self.at = opened[-1] if opened else self.at
        raise self.error("This is never closed.")

    # Errors ---------------------------------------------------------------------------------------------------------

    def error(self, message: str) -> SqlError:
        return self.error_at(self.token(), message)

    def error_at(self, token: Lexeme, message: str) -> SqlError:
        return sql_error(self.text, token.start, message, self.text[token.start : token.end])


def either(*ends: StopPredicate) -> StopPredicate:
    return lambda cursor: any(end(cursor) for end in ends)


def at_words(words: Iterable[str]) -> StopPredicate:
    """Return a predicate that is true before these words, after a value."""
    known = frozenset(words)
    return lambda cursor: cursor.word() in known and cursor.after_operand()


def at_comma(cursor: Cursor) -> bool:
    return cursor.symbol() == ","
