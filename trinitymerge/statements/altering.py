"""``ALTER TABLE``, ``COMMENT ON TABLE`` and ``DESCRIBE``, read.

Owns: their grammar, which is Spark's, and which calls of an alteration they are. Whether there is such a call is asked when the
statement runs.
"""

from __future__ import annotations

from collections.abc import Callable

from trinitymerge.statements.cursor import Cursor, at_comma, either
from trinitymerge.statements.forms import AlterCall, AlterTable, Describe
from trinitymerge.statements.queries import reference_at
from trinitymerge.statements.refused import refuse_rest, refuse_statement

_OTHERS = {
    "RENAME TO": "a table is a path: move its directory.",
    "SET LOCATION": "a table is a path: move its directory, and open it there.",
    "SET SERDE": "files are Parquet or ORC, which is said when the table is created.",
    "SET FILEFORMAT": "files are Parquet or ORC, which is said when the table is created.",
    "ADD PARTITION": "tables have no partitions.",
    "DROP PARTITION": "tables have no partitions.",
    "RECOVER PARTITIONS": "tables have no partitions.",
    "REPLACE COLUMNS": "it would drop columns nobody named. DROP COLUMN and ADD COLUMN say which are meant.",
    "CLUSTER BY": "files are sorted by primary key.",
}
_NO_TABLES = ("QUERY", "FUNCTION", "DATABASE", "SCHEMA", "CATALOG", "PROCEDURE")
_BEHIND_TYPES = ("NOT", "COMMENT", "DEFAULT", "GENERATED", "FIRST", "AFTER", "COLLATE")
_AT_THE_END = (
    "Columns are added at the end, and their order does not change: name them in queries, in the order you want."
)


def alter_at(cursor: Cursor) -> AlterTable:
    """Reads an alteration.

    Raises:
        SqlError: it cannot be read, or asks for what no alteration can do.
    """
    if not cursor.accept("ALTER TABLE"):
        refuse_statement(cursor)
    target = reference_at(cursor)
    for words, reason in _OTHERS.items():
        if cursor.sees(words):
            raise cursor.error(f"ALTER TABLE ... {words} is not done here: {reason}")
    for words, read in _KINDS.items():
        if cursor.accept(words):
            changes = read(cursor)
            refuse_rest(cursor, "ALTER TABLE")
            return AlterTable(target, tuple(changes))
    raise cursor.error(f"An alteration is one of {', '.join(_KINDS)}.")


def comment_at(cursor: Cursor) -> AlterTable:
    """Reads the comment for a table.

    Raises:
        SqlError: it cannot be read, or is for something else.
    """
    if not cursor.accept("COMMENT ON TABLE"):
        refuse_statement(cursor)
    target = reference_at(cursor)
    cursor.expect("IS")
    place = cursor.token().start
    comment = None if cursor.accept("NULL") else cursor.string("The comment, or NULL,")
    refuse_rest(cursor, "COMMENT ON TABLE")
    return AlterTable(target, (AlterCall("setComment", (comment,), at=place),))


def describe_at(cursor: Cursor) -> Describe:
    """Reads the question what a table is.

    Raises:
        SqlError: it cannot be read, or is about something else.
    """
    statement, what = cursor.take().value.upper(), ""
    if cursor.word() in _NO_TABLES and _is_named_next(cursor):
        cursor.at -= 1
        refuse_statement(cursor)
    if cursor.word() in ("HISTORY", "DETAIL") and _is_named_next(cursor):
        what = cursor.take().value.upper()
    else:
        _ = _is_named_next(cursor) and cursor.accept("TABLE")
        if cursor.word() in ("EXTENDED", "FORMATTED") and _is_named_next(cursor):
            cursor.take()
            what = "EXTENDED"
    target = reference_at(cursor)
    if cursor.sees("LIMIT"):
        raise cursor.error(f"{statement} takes no LIMIT: what it gives is a DataFrame, .orderBy('version').limit(n).")
    if cursor.word() or cursor.token().kind == "name":
        raise cursor.error(f"{statement} is about a whole table. Filter what it gives: .filter(\"col_name = '...'\").")
    refuse_rest(cursor, statement)
    return Describe(target, what)


def _is_named_next(cursor: Cursor) -> bool:
    """True if a name follows the next word, which therefore is none."""
    return cursor.token(1).kind in ("word", "name")


# Columns --------------------------------------------------------------------------------------------------------------


def _added(cursor: Cursor) -> list[AlterCall]:
    return _several(cursor, _added_one)


def _added_one(cursor: Cursor) -> list[AlterCall]:
    place, name = cursor.token().start, _column(cursor)
    kind, comment, later = _type(cursor), None, list[AlterCall]()
    while cursor.word():
        if cursor.accept("COMMENT"):
            comment = cursor.string("The comment")
        elif cursor.sees("DEFAULT"):
            later.append(_default(cursor, name))
        elif cursor.sees("NOT NULL"):
            raise cursor.error("Rows that are there have a null in a new column. Leave NOT NULL out.")
        elif cursor.sees("GENERATED"):
            raise cursor.error(
                "Columns are not computed when rows are written. Compute them in queries, or in what is merged."
            )
        else:
            _refuse_place(cursor)
            break
    return [AlterCall("addColumn", (name, kind), {} if comment is None else {"comment": comment}, place), *later]


def _renamed(cursor: Cursor) -> list[AlterCall]:
    place, name = cursor.token().start, _column(cursor)
    cursor.expect("TO")
    return [AlterCall("renameColumn", (name, _column(cursor)), at=place)]


def _dropped(cursor: Cursor) -> list[AlterCall]:
    if cursor.sees("IF EXISTS"):
        raise cursor.error("Say which columns there are to drop; table.definition knows.")
    return _several(cursor, lambda c: [AlterCall("dropColumn", at=c.token().start, arguments=(_column(c),))])


def _changed(cursor: Cursor) -> list[AlterCall]:
    found = _changed_one(cursor)
    while cursor.accept(","):
        found += _changed_one(cursor)
    return found


def _changed_one(cursor: Cursor) -> list[AlterCall]:
    place, first = cursor.token().start, cursor.at
    inside = ".".join(part.value for part in cursor.dotted("The name of a column"))
    if cursor.accept("DROP NOT NULL"):
        return [AlterCall("setNullable", (inside,), at=place)]
    if cursor.accept("SET NOT NULL"):
        return [AlterCall("setNotNull", (inside,), at=place)]
    cursor.at = first
    name = _column(cursor)
    if cursor.accept("TYPE"):
        return [AlterCall("widenColumn", (name, _type(cursor)), at=place)]
    if cursor.accept("COMMENT"):
        return [AlterCall("setColumnComment", (name, cursor.string("The comment")), at=place)]
    if cursor.accept("DROP DEFAULT"):
        return [AlterCall("dropDefault", (name,), at=place)]
    if cursor.sees("SET DEFAULT"):
        cursor.accept("SET")
        return [_default(cursor, name)]
    _refuse_place(cursor)
    raise cursor.error("TYPE, COMMENT, SET NOT NULL, DROP NOT NULL, SET DEFAULT or DROP DEFAULT is expected here.")


def _default(cursor: Cursor, name: str) -> AlterCall:
    cursor.expect("DEFAULT")
    place = cursor.token().start
    ends = either(at_comma, lambda c: c.word() in ("COMMENT", "FIRST", "AFTER") and c.after_operand())
    return AlterCall("setDefault", (name, cursor.expression("The default", ends)), at=place)


def _constraint(cursor: Cursor) -> list[AlterCall]:
    place, name = cursor.token().start, cursor.name("The name of the constraint").value
    cursor.expect("CHECK", "A constraint is CHECK (condition).")
    cursor.expect("(")
    condition = cursor.expression("The condition", lambda c: False)
    cursor.expect(")")
    if cursor.sees("NOT ENFORCED"):
        raise cursor.error(
            "Every constraint is enforced: a row that breaks one is refused. Leave NOT ENFORCED out, or the constraint."
        )
    cursor.accept("ENFORCED")
    return [AlterCall("addCheck", (name, condition), at=place)]


def _nameless(cursor: Cursor) -> list[AlterCall]:
    raise cursor.error_at(cursor.token(-1), "A constraint has a name: ADD CONSTRAINT name CHECK (condition).")


def _no_constraint(cursor: Cursor) -> list[AlterCall]:
    if cursor.sees("IF EXISTS"):
        raise cursor.error("Say which constraints there are to drop; table.definition.checks knows.")
    return [AlterCall("dropCheck", (cursor.name("The name of the constraint").value,), at=cursor.token(-1).start)]


def _several(cursor: Cursor, read: Callable[[Cursor], list[AlterCall]]) -> list[AlterCall]:
    """One or more, in parentheses or not."""
    enclosed = cursor.accept("(")
    found = read(cursor)
    while cursor.accept(","):
        found += read(cursor)
    if enclosed:
        cursor.expect(")")
    return found


def _column(cursor: Cursor) -> str:
    """The name of a column, without backticks."""
    first = cursor.at
    parts = cursor.dotted("The name of a column")
    if len(parts) > 1:
        cursor.at = first
        raise cursor.error(
            "Fields of structs are not altered one by one, but for NOT NULL. ALTER COLUMN ... TYPE STRUCT<...> can add fields to "
            "a column and widen them. A column whose name has a dot in it must be in backticks."
        )
    return parts[0].value


def _type(cursor: Cursor) -> str:
    """A type as it is written."""
    first, depth = cursor.at, 0
    while not cursor.done:
        symbol = cursor.symbol()
        ends = symbol in (",", ")") or cursor.word() in _BEHIND_TYPES
        if depth == 0 and cursor.at > first and ends:
            break
        depth += symbol.count("<") + symbol.count("(") - symbol.count(">") - symbol.count(")")
        cursor.take()
    if cursor.at == first or cursor.tokens[first].kind not in ("word", "name"):
        cursor.at = first
        raise cursor.error("A type is expected here.")
    return cursor.since(first)


def _refuse_place(cursor: Cursor) -> None:
    if cursor.word() in ("FIRST", "AFTER"):
        raise cursor.error(_AT_THE_END)


# Properties -----------------------------------------------------------------------------------------------------------


def _set(cursor: Cursor) -> list[AlterCall]:
    cursor.expect("(")
    found = []
    while True:
        place, name = cursor.token().start, _property(cursor)
        cursor.accept("=")
        if cursor.token().kind not in ("string", "number", "word"):
            raise cursor.error("The value of a property is expected here, in quotes.")
        value = cursor.string("A value") if cursor.token().kind == "string" else cursor.take().value
        call = (
            AlterCall("setComment", (value,)) if name.lower() == "comment" else AlterCall("setProperty", (name, value))
        )
        found.append(AlterCall(call.call, call.arguments, at=place))
        if not cursor.accept(","):
            cursor.expect(")")
            return found


def _unset(cursor: Cursor) -> list[AlterCall]:
    cursor.accept("IF EXISTS")
    cursor.expect("(")
    found = []
    while True:
        place, name = cursor.token().start, _property(cursor)
        found.append(
            AlterCall("setComment", (None,), at=place)
            if name.lower() == "comment"
            else AlterCall("unsetProperty", (name,), at=place)
        )
        if not cursor.accept(","):
            cursor.expect(")")
            return found


def _property(cursor: Cursor) -> str:
    if cursor.token().kind == "string":
        return cursor.string("The name of a property")
    return ".".join(part.value for part in cursor.dotted("The name of a property"))


_KINDS: dict[str, Callable[[Cursor], list[AlterCall]]] = {
    "ADD COLUMNS": _added,
    "ADD COLUMN": _added,
    "ADD CONSTRAINT": _constraint,
    "ADD CHECK": _nameless,
    "RENAME COLUMN": _renamed,
    "DROP COLUMNS": _dropped,
    "DROP COLUMN": _dropped,
    "DROP CONSTRAINT": _no_constraint,
    "ALTER COLUMN": _changed,
    "CHANGE COLUMN": _changed,
    "SET TBLPROPERTIES": _set,
    "UNSET TBLPROPERTIES": _unset,
}
