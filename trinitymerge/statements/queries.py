"""The tables that a query names, and their positions."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from trinitymerge.statements.lexer import Cursor, Lexeme, TableReference, find_tables
from trinitymerge.statements.tree import Ctes, Query, Reference

_VERSION, _TIMESTAMP = ("VERSION", "SYSTEM_VERSION"), ("TIMESTAMP", "SYSTEM_TIME")
_BEFORE_QUERIES = {"", "ALL", "DISTINCT", "UNION", "EXCEPT", "INTERSECT", "MINUS"}


@attrs.frozen
class _Moment:
    """A clause such as ``VERSION AS OF 3``."""

    start: int
    end: int
    version: int | None = None
    timestamp: str | None = None


def blanked(text: str, kept: Iterable[tuple[int, int]]) -> str:
    """Return the text with blanks for all that is not kept; offsets do not change.

    Example:
        >>> blanked("INSERT INTO t SELECT 1", [(14, 22)])
        '              SELECT 1'
    """
    shown = ["\n" if c == "\n" else " " for c in text]
    for start, end in kept:
        shown[start:end] = text[start:end]
    return "".join(shown)


def query_in(text: str, kept: Iterable[tuple[int, int]]) -> Query:
    return _query(blanked(text, kept), text)[0]


def inner_tables(cursor: Cursor, hidden: Iterable[str] = ()) -> tuple[Reference, ...]:
    """Return the tables that queries in the expressions of a statement name.

    ``hidden`` are names of common table expressions before the statement, which only its source sees.
    """
    found = [r for place in cursor.queries for r in query_in(cursor.text, [place]).references]
    for reference in found:
        if reference.name.lower() in hidden:
            cursor.at = _number(cursor, reference.start)
            raise cursor.error("Only the source sees this WITH. Put the WITH into this query: (WITH ... SELECT ...).")
    return tuple(found)


def source_in(cursor: Cursor, ctes: Ctes, words: int, relation: tuple[int, int]) -> Query:
    """Return the query for the rows of a relation: ``WITH ... SELECT * FROM relation``.

    ``words`` is the offset for ``SELECT * FROM``: 13 characters outside of the query.
    """
    text = blanked(cursor.text, [(ctes.start, ctes.end), relation])
    text = f"{text[:words]}SELECT * FROM{text[words + 13 :]}"
    query, first, joins = _query(text, cursor.text)
    if joins:
        cursor.at = _number(cursor, relation[0])
        raise cursor.error("USING takes one relation. Put the join into a query: USING (SELECT ...) AS s.")
    is_path = any(r.path is not None and r.alias_at is not None and r.start >= relation[0] for r in query.references)
    return attrs.evolve(query, alias=None if is_path or not first else first)


def reference_at(cursor: Cursor) -> Reference:
    parts = cursor.dotted("The name of a table")
    reference = Reference(tuple(p.value for p in parts), parts[0].start, parts[-1].end)
    if _moment_at(cursor) is not None:
        raise cursor.error("Past versions are read only: name the table alone.")
    return reference


def skip_ctes(cursor: Cursor) -> Ctes:
    """Skip ``WITH name AS (...), ...`` if it comes next."""
    start, names = cursor.token().start, list[str]()
    if not cursor.accept("WITH"):
        return Ctes()
    cursor.accept("RECURSIVE")
    while True:
        names.append(cursor.name("The name of a common table expression").value.lower())
        if cursor.symbol() == "(" and not cursor.begins_query():
            cursor.skip_parentheses()
        cursor.accept("AS")
        if cursor.symbol() != "(":
            raise cursor.error("A query in parentheses is expected here.")
        cursor.skip_parentheses()
        if not cursor.accept(","):
            return Ctes(start, cursor.token(-1).end, tuple(names))


# Names replaced -------------------------------------------------------------------------------------------------------


@attrs.frozen
class RewrittenText:
    """A text with replaced names; ``edits`` are start, end and new text of each replacement, in order.

    Example:
        >>> edited = RewrittenText("SELECT * FROM t WHERE x", ((14, 15, "view"),))
        >>> edited.result, edited.original(25)
        ('SELECT * FROM view WHERE x', 22)
    """

    text: str
    edits: tuple[tuple[int, int, str], ...]

    @property
    def result(self) -> str:
        return self.written(lambda text: text)

    def written(self, kept: Callable[[str], str]) -> str:
        """Return the text with all replacements; a function is applied to the rest."""
        pieces, end = list[str](), 0
        for start, behind, new in self.edits:
            pieces += [kept(self.text[end:start]), new]
            end = behind
        return "".join([*pieces, kept(self.text[end:])])

    def original(self, offset: int) -> int:
        for start, end, new in reversed(self.edits):
            moved = start + sum(len(n) - (e - s) for s, e, n in self.edits if s < start)
            if offset >= moved + len(new):
                return end + offset - (moved + len(new))
            if offset >= moved:
                return start
        return offset


def replaced(text: str, names: Iterable[tuple[Reference, str]], escaped: Callable[[str], str] = str) -> RewrittenText:
    """Replace the names of tables, given in order; their columns can be qualified as before, by aliases that are ``escaped``."""
    edits = list[tuple[int, int, str]]()
    for reference, name in names:
        edits.append((reference.start, reference.end, name))
        if reference.alias_at is not None and reference.path is None:
            quoted = reference.parts[-1].replace("`", "``")
            edits.append((reference.alias_at, reference.alias_at, f" AS `{escaped(quoted)}`"))
    return RewrittenText(text, tuple(edits))


# Tables in queries ----------------------------------------------------------------------------------------------------


def _query(text: str, statement: str) -> tuple[Query, str, bool]:
    """Return a query, the name of its first relation, and whether it has more; errors locate the statement."""
    cursor = attrs.evolve(Cursor.of(text), text=statement)
    moments, shown = _moments(cursor), text
    for moment in moments:  # SQLGlot does not know all of these
        shown = shown[: moment.start] + blanked(shown[moment.start : moment.end], []) + shown[moment.end :]
    for token in _table_words(cursor):  # SQLGlot parses FROM t as a query, and TABLE t not
        shown = f"{shown[: token.start]}FROM {shown[token.end :]}"
    found = find_tables(shown, statement)
    references = tuple(_reference(cursor, table, moments) for table in found.tables)
    for moment in moments:
        if moment.end not in {r.end for r in references}:
            cursor.at = _number(cursor, moment.start)
            raise cursor.error("A version must follow the name of a table directly, before its alias.")
    return Query(text, references), found.first, found.joins


def _number(cursor: Cursor, offset: int) -> int:
    return next((i for i, t in enumerate(cursor.tokens) if t.start >= offset), len(cursor.tokens))


def _reference(cursor: Cursor, table: TableReference, moments: list[_Moment]) -> Reference:
    cursor.at = _number(cursor, table.end)
    moment = next((m for m in moments if not cursor.done and m.start == cursor.token().start), None)
    if moment is None:
        return Reference(table.parts, table.start, table.end, alias_at=_alias_at(cursor, table, table.end))
    cursor.at = _number(cursor, moment.end)
    place = _alias_at(cursor, table, moment.end)
    return Reference(table.parts, table.start, moment.end, moment.version, moment.timestamp, alias_at=place)


def _alias_at(cursor: Cursor, table: TableReference, end: int) -> int | None:
    """Return the offset for an alias; None if the table has one, or cannot (``TABLE t``)."""
    before = _number(cursor, table.start) - 1
    if table.alias or (before >= 0 and cursor.tokens[before].value.upper() == "TABLE"):
        return None
    if not cursor.accept("TABLESAMPLE"):
        return end
    cursor.skip_parentheses()
    if cursor.accept("REPEATABLE"):
        cursor.skip_parentheses()
    return cursor.token(-1).end


def _table_words(cursor: Cursor) -> list[Lexeme]:
    """Return each TABLE that is short for SELECT * FROM."""
    found = []
    for number, token in enumerate(cursor.tokens):
        cursor.at = number
        begins = cursor.symbol(-1) == "(" or (not cursor.symbol(-1) and cursor.word(-1) in _BEFORE_QUERIES)
        if cursor.word() == "TABLE" and begins and cursor.token(1).kind in ("word", "name"):
            found.append(token)
    return found


def _moments(cursor: Cursor) -> list[_Moment]:
    found = list[_Moment]()
    for number in range(len(cursor.tokens)):
        cursor.at = number
        moment = _moment_at(cursor)
        if moment is not None and not (found and moment.start < found[-1].end):
            found.append(moment)
    return found


def _moment_at(cursor: Cursor) -> _Moment | None:
    """Return the version clause at the cursor; None if something else comes next."""
    skipped = int(cursor.word() == "FOR")
    kind, literal = cursor.word(skipped), skipped + 3
    if kind not in (*_VERSION, *_TIMESTAMP) or cursor.word(skipped + 1) != "AS" or cursor.word(skipped + 2) != "OF":
        return None
    start = cursor.token().start
    if cursor.word(literal) in ("TIMESTAMP", "DATE") and cursor.token(literal + 1).kind == "string":
        literal += 1
    token = cursor.token(literal)
    if kind in _TIMESTAMP and token.kind == "string":
        return _Moment(start, token.end, timestamp=token.value)
    if kind in _VERSION and token.value.isdecimal():
        return _Moment(start, token.end, version=int(token.value))
    if token.kind not in ("string", "number") and "(" not in (cursor.symbol(literal), cursor.symbol(literal + 1)):
        return None  # SELECT version AS of FROM ...
    number, text = "a number, as in VERSION AS OF 3", "text, as in TIMESTAMP AS OF '2024-05-01 13:30:00'"
    wanted = number if kind in _VERSION else text
    raise cursor.error(f"A version of a table is {wanted}. For a computed version, use TrinityTable.forPath.")
