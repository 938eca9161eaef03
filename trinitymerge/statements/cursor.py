"""Going through the tokens of a statement.

Owns: :class:`Cursor`, and where an expression ends. An expression is never taken apart: what comes out is the user's own text,
comments and all, for Spark to read. Knows no statement.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

import attrs

from trinitymerge.errors import SqlError
from trinitymerge.statements.glot import Lexeme, lexemes
from trinitymerge.statements.places import sql_error

Ends: TypeAlias = "Callable[[Cursor], bool]"
"""Says whether an expression ends where the cursor is, outside of all parentheses."""

_CLOSING = {"(": ")", "[": "]", "{": "}"}
_COMPARED = {".", ",", ")", "=", "==", "<", ">", "<=", ">=", "<>", "!=", "<=>", ""}
"""Behind the word CASE these say that it is a column's name."""

_JOINING = {"AND", "OR", "NOT", "IN", "LIKE", "ILIKE", "RLIKE", "BETWEEN", "IS", "DIV", "ELSE", "ESCAPE", "BY"}
_QUERIES = ("SELECT", "WITH", "VALUES", "FROM", "TABLE")


@attrs.define
class Cursor:
    """A text, its tokens, and how far it has been read; the only thing here that changes.

    Attributes:
        text: the statement.
        tokens: of the text.
        at: the number of the token that comes next.
        expressions: where those are that have been read.
        queries: likewise queries inside of them.
    """

    text: str
    tokens: tuple[Lexeme, ...]
    at: int = 0
    expressions: list[tuple[int, int]] = attrs.field(factory=list)
    queries: list[tuple[int, int]] = attrs.field(factory=list)

    @classmethod
    def of(cls, text: str) -> Cursor:
        """At the beginning of a text; a semicolon at the end is left out.

        Raises:
            SqlError: a quote or comment is not closed.
        """
        tokens = lexemes(text)
        while tokens and tokens[-1].value == ";":
            tokens.pop()
        return cls(text, tuple(tokens))

    # Looking --------------------------------------------------------------------------------------------------------

    @property
    def done(self) -> bool:
        """True if nothing is left."""
        return self.at >= len(self.tokens)

    def token(self, ahead: int = 0) -> Lexeme:
        """A token from here on; behind the last one, and before the first, an empty one."""
        place = self.at + ahead
        if 0 <= place < len(self.tokens):
            return self.tokens[place]
        end = self.tokens[-1].end if self.tokens else 0
        return Lexeme(end, end, "end", "")

    def word(self, ahead: int = 0) -> str:
        """The word that stands there in capitals, or an empty string if none does."""
        token = self.token(ahead)
        return token.value.upper() if token.kind == "word" else ""

    def symbol(self, ahead: int = 0) -> str:
        """Likewise a symbol."""
        token = self.token(ahead)
        return token.value if token.kind == "symbol" else ""

    def sees(self, words: str) -> bool:
        """True if these words come next, symbols among them."""
        return all(w in (self.word(i), self.symbol(i)) for i, w in enumerate(words.split()))

    def since(self, first: int) -> str:
        """What the user wrote from a token up to here."""
        return self.text[self.tokens[first].start : self.tokens[self.at - 1].end]

    @property
    def rest(self) -> tuple[int, int]:
        """Where all is that is left."""
        return self.token().start, max(self.tokens[-1].end if self.tokens else 0, self.token().start)

    # Taking ---------------------------------------------------------------------------------------------------------

    def accept(self, words: str) -> bool:
        """Goes past these words if they come next."""
        found = self.sees(words)
        if found:
            self.at += len(words.split())
        return found

    def expect(self, words: str, why: str = "") -> None:
        """Goes past these words, which must come next.

        Raises:
            SqlError: they do not.
        """
        if not self.accept(words):
            raise self.error(f"{words} is expected here.{why and ' ' + why}")

    def take(self) -> Lexeme:
        """Goes past a token, whatever it is."""
        token = self.token()
        self.at += 1
        return token

    def name(self, what: str) -> Lexeme:
        """A name, in backticks or not.

        Raises:
            SqlError: something else stands here.
        """
        if self.token().kind not in ("word", "name"):
            raise self.error(f"{what} is expected here.")
        return self.take()

    def dotted(self, what: str) -> tuple[Lexeme, ...]:
        """A name that may have several parts."""
        parts = [self.name(what)]
        while self.symbol() == ".":
            self.at += 1
            parts.append(self.name(what))
        return tuple(parts)

    def string(self, what: str) -> str:
        """What a string literal stands for; two quotes inside of it are one.

        Raises:
            SqlError: something else stands here.
        """
        if self.token().kind != "string":
            raise self.error(f"{what} is expected here, in quotes.")
        first = self.take()
        found, end, mark = first.value, first.end, self.text[first.end - 1]
        while self.token().kind == "string" and self.token().start == end:  # SQLGlot takes 'it''s' for two strings
            found, end = found + mark + self.token().value, self.take().end
        return found

    def listed(self, what: str, taken: Callable[[], Lexeme]) -> list[Lexeme]:
        """Names in parentheses."""
        self.expect("(", f"{what} stand in parentheses.")
        found = [taken()]
        while self.accept(","):
            found.append(taken())
        self.expect(")")
        return found

    # Expressions ----------------------------------------------------------------------------------------------------

    def expression(self, what: str, ends: Ends) -> str:
        """The user's text of an expression, which ends where ``ends`` says, or where parentheses around it do.

        Raises:
            SqlError: there is none, or it is not closed.
        """
        first, opened, query = self.at, list[int](), -1
        while not self.done and (opened or not (self.symbol() == ")" or ends(self))):
            if self.symbol() in _CLOSING or (self.word() == "CASE" and self._is_case()):
                query = self.at if query < 0 and self._opens_query() else query
                opened.append(self.at)
            elif opened and self._closes(opened[-1]):
                if opened.pop() == query:
                    self.queries.append((self.tokens[query].end, self.token().start))
                    query = -1
            elif self.symbol() in _CLOSING.values():
                raise self.error("Nothing that this could close is open here.")
            self.at += 1
        if opened:
            self.at = opened[-1]
            raise self.error(
                f"This is never closed.{' A column of that name must be in backticks.' if self.word() else ''}"
            )
        if self.at == first:
            raise self.error(f"{what} is missing here.")
        self.expressions.append((self.tokens[first].start, self.tokens[self.at - 1].end))
        return self.since(first)

    def _is_case(self) -> bool:
        return self.symbol(-1) != "." and (self.token(1).kind != "symbol" or self.symbol(1) not in _COMPARED)

    def _closes(self, opener: int) -> bool:
        opening = self.tokens[opener]
        if opening.kind == "word":
            return self.word() == "END" and self.symbol(-1) != "."
        return self.symbol() == _CLOSING[opening.value]

    def _opens_query(self) -> bool:
        return self.symbol() == "(" and (
            self.word(1) in ("SELECT", "WITH") or (self.word(1) == "TABLE" and self.token(2).kind in ("word", "name"))
        )

    def after_operand(self) -> bool:
        """True if what stands before is a value: a word after it is no part of an expression, but for operators."""
        before = self.token(-1)
        return before.value in (")", "]") or (
            before.kind in ("word", "name", "string", "number") and self.word(-1) not in _JOINING
        )

    def begins_query(self) -> bool:
        """True if a query begins here, in parentheses or not, and not a list of columns, one of which is called so."""
        ahead = 0
        while self.symbol(ahead) == "(":
            ahead += 1
        return self.word(ahead) in _QUERIES and self.symbol(ahead + 1) not in (",", ")")

    def skip_parentheses(self) -> None:
        """Goes past what stands in parentheses."""
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
        """An error about what comes next."""
        return self.error_at(self.token(), message)

    def error_at(self, token: Lexeme, message: str) -> SqlError:
        """An error about a token."""
        return sql_error(self.text, token.start, message, self.text[token.start : token.end])


def either(*ends: Ends) -> Ends:
    """Any of several ends."""
    return lambda cursor: any(end(cursor) for end in ends)


def at_words(words: Iterable[str]) -> Ends:
    """An expression ends before any of these words, and after a value."""
    known = frozenset(words)
    return lambda cursor: cursor.word() in known and cursor.after_operand()


def at_comma(cursor: Cursor) -> bool:
    """An expression ends before a comma."""
    return cursor.symbol() == ","
