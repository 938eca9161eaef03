"""Expressions that mean the same to Spark and to the interpreter (S20)."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, TypeAlias

import attrs

from trinitymerge.errors import InvalidMergeError
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.testing.model.values import order_key

Row: TypeAlias = dict[str, Any]
Call: TypeAlias = Callable[[Mapping[str, Any] | None, Mapping[str, Any] | None], Any]
"""``f(target_row, source_row) -> value``; an absent side is None, and SQL's null is None."""


@attrs.frozen
class Expr:
    """One expression in two languages: the text goes to Spark, the callable to the interpreter.

    Two expressions are equal when their text is. A row is a mapping with the columns' declared names.

    Attributes:
        sql: SQL over both sides, qualified by their aliases.
        call: the same in Python; must return None where SQL gives null.
        reads_target: the text mentions a column of the target.
        reads_source: the text mentions a column of the source.

    Example:
        >>> is_delete = Expr("B.op <=> 'D'", lambda t, s: s["op"] == "D", reads_target=False)
        >>> is_delete.call(None, {"op": "D"})
        True
    """

    sql: str
    call: Call = attrs.field(eq=False, repr=False)
    reads_target: bool = True
    reads_source: bool = True

    def __str__(self) -> str:
        return f'"{self.sql}"'


@attrs.frozen
class KeyEquality(Expr):
    """The merge condition that is *exactly* equality on the whole primary key.

    Attributes:
        columns: ``((key column, source column), ...)``, every column of the primary key once.
    """

    columns: tuple[tuple[str, str], ...] = ()

    @classmethod
    def of(
        cls,
        definition: TableDefinition,
        target: str = "target",
        source: str = "source",
        columns: Mapping[str, str] | None = None,
    ) -> KeyEquality:
        """Equality on the primary key of ``definition``.

        Args:
            definition: the target's definition.
            target: the target's alias.
            source: the source's alias.
            columns: key column to source column, where their names differ.

        Returns:
            The condition.

        Example:
            >>> from trinitymerge.schema.definition import Field
            >>> definition = TableDefinition.of([Field("id", "long")], primaryKey="id")
            >>> KeyEquality.of(definition, "A", "B", {"id": "order_id"}).sql
            'A.id = B.order_id'
        """
        pairs = tuple((key, (columns or {}).get(key, key)) for key in definition.primaryKey)
        both = all_of(*(eq(column(target, key), column(source, name, of_target=False)) for key, name in pairs))
        return cls(both.sql, both.call, columns=pairs)


def evaluate(expression: Any, target: Mapping[str, Any] | None, source: Mapping[str, Any] | None) -> Any:
    """The value of an :class:`Expr`, a callable or a plain literal for one pair of rows."""
    if isinstance(expression, Expr):
        return expression.call(target, source)
    if callable(expression):
        return expression(target, source)
    if isinstance(expression, str):
        raise InvalidMergeError(f"Only Spark can evaluate SQL text ({expression!r}); pass an Expr or a callable.")
    return expression


def reads_target(expression: Any) -> bool:
    """True if the expression reads the target, as far as anyone can know without running it.

    A plain callable does, unless the name of its first parameter starts with an underscore:
    ``lambda _, s: s["op"] == "D"``.
    """
    if isinstance(expression, Expr):
        return expression.reads_target
    if not callable(expression):
        return False
    code = getattr(expression, "__code__", None)
    return code is None or not code.co_varnames[:1] or not code.co_varnames[0].startswith("_")


# Building blocks --------------------------------------------------------------------------------------------


def column(alias: str, name: str, of_target: bool = True) -> Expr:
    """A column of the target, or with ``of_target=False`` of the source; null where that side is absent."""

    def call(target: Mapping[str, Any] | None, source: Mapping[str, Any] | None) -> Any:
        row = target if of_target else source
        return None if row is None else row[name]

    return Expr(f"{alias}.{name}", call, reads_target=of_target, reads_source=not of_target)


def target(name: str, alias: str = "A") -> Expr:
    """A column of the target.

    Example:
        >>> target("v").sql
        'A.v'
    """
    return column(alias, name)


def source(name: str, alias: str = "B") -> Expr:
    """A column of the source."""
    return column(alias, name, of_target=False)


def bare(expression: Expr) -> Expr:
    """The same without aliases, for a clause that sees one side only (S30).

    Example:
        >>> bare(lt(source("v"), literal(2))).sql
        'v < 2'
    """
    return attrs.evolve(expression, sql=re.sub(r"\b[AB]\.(?=\w)", "", expression.sql))


def literal(value: Any, type: str | None = None) -> Expr:
    """A constant.

    Args:
        value: None, bool, int, float, Decimal, str, bytes, date, datetime, time or timedelta.
        type: its Spark type, where the value does not tell (``"timestamp_ntz"``).

    Example:
        >>> literal("a").sql, literal(None).sql
        ("'a'", 'NULL')
    """
    return Expr(_sql(value, type), lambda t, s: value, reads_target=False, reads_source=False)


def _sql(value: Any, type: str | None) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, str):
        escaped = value.replace("\\", "\\\\").replace("'", "\\'")
        return f"'{escaped}'"
    if isinstance(value, bytes):
        return f"X'{value.hex().upper()}'"
    if isinstance(value, dt.datetime):
        kind = "TIMESTAMP_NTZ" if type == "timestamp_ntz" else "TIMESTAMP"
        return f"{kind} '{value.isoformat(sep=' ')}'"
    if isinstance(value, dt.date):
        return f"DATE '{value.isoformat()}'"
    if isinstance(value, dt.time):
        return f"TIME '{value.isoformat()}'"
    if isinstance(value, dt.timedelta):
        return f"make_dt_interval({value.days}, 0, 0, {value.seconds + value.microseconds / 1e6})"
    if isinstance(value, float):
        return f"CAST('{value}' AS DOUBLE)"
    return format(value, "f") if isinstance(value, Decimal) else str(value).lower()


def _strict(sql: str, function: Callable[..., Any], *operands: Expr) -> Expr:
    """An expression that is null as soon as one operand is."""

    def call(t: Mapping[str, Any] | None, s: Mapping[str, Any] | None) -> Any:
        values = [operand.call(t, s) for operand in operands]
        return None if any(value is None for value in values) else function(*values)

    return _combine(sql, call, *operands)


def _combine(sql: str, call: Call, *operands: Expr) -> Expr:
    return Expr(sql, call, any(o.reads_target for o in operands), any(o.reads_source for o in operands))


def _operand(expression: Expr) -> str:
    """The text as an operand: in parentheses, unless it is a name, a number or a quoted literal."""
    simple = re.fullmatch(r"[\w.]+|'[^'\\]*'", expression.sql)
    return expression.sql if simple else f"({expression.sql})"


def _binary(operator: str, function: Callable[[Any, Any], Any], left: Expr, right: Expr) -> Expr:
    return _strict(f"{_operand(left)} {operator} {_operand(right)}", function, left, right)


def eq(left: Expr, right: Expr) -> Expr:
    """``left = right``; null if either is null."""
    return _binary("=", lambda a, b: order_key(a) == order_key(b), left, right)


def ne(left: Expr, right: Expr) -> Expr:
    """``left <> right``; null if either is null."""
    return _binary("<>", lambda a, b: order_key(a) != order_key(b), left, right)


def lt(left: Expr, right: Expr) -> Expr:
    """``left < right``; null if either is null."""
    return _binary("<", lambda a, b: order_key(a) < order_key(b), left, right)


def plus(left: Expr, right: Expr) -> Expr:
    """``left + right``; null if either is null."""
    return _binary("+", lambda a, b: a + b, left, right)


def is_null(operand: Expr) -> Expr:
    """``operand IS NULL``; never null."""
    return _combine(f"{_operand(operand)} IS NULL", lambda t, s: operand.call(t, s) is None, operand)


def same(left: Expr, right: Expr) -> Expr:
    """``left <=> right``: equality that counts nulls as equal."""

    def call(t: Mapping[str, Any] | None, s: Mapping[str, Any] | None) -> bool:
        return order_key(left.call(t, s)) == order_key(right.call(t, s))

    return _combine(f"{_operand(left)} <=> {_operand(right)}", call, left, right)


def coalesce(first: Expr, second: Expr) -> Expr:
    """The first operand that is not null."""

    def call(t: Mapping[str, Any] | None, s: Mapping[str, Any] | None) -> Any:
        value = first.call(t, s)
        return second.call(t, s) if value is None else value

    return _combine(f"coalesce({first.sql}, {second.sql})", call, first, second)


def negation(operand: Expr) -> Expr:
    """``NOT operand``; null if it is null."""
    return _strict(f"NOT ({operand.sql})", lambda a: not a, operand)


def all_of(*operands: Expr) -> Expr:
    """``AND``: false if any operand is false, otherwise null if any is null."""

    def call(t: Mapping[str, Any] | None, s: Mapping[str, Any] | None) -> Any:
        values = [operand.call(t, s) for operand in operands]
        return False if False in values else None if None in values else True

    return operands[0] if len(operands) == 1 else _combine(_joined(" AND ", operands), call, *operands)


def any_of(*operands: Expr) -> Expr:
    """``OR``: true if any operand is true, otherwise null if any is null."""

    def call(t: Mapping[str, Any] | None, s: Mapping[str, Any] | None) -> Any:
        values = [operand.call(t, s) for operand in operands]
        return True if True in values else None if None in values else False

    return operands[0] if len(operands) == 1 else _combine(_joined(" OR ", operands), call, *operands)


def _joined(word: str, operands: tuple[Expr, ...]) -> str:
    return word.join(_operand(operand) for operand in operands)


__all__ = [
    "Call",
    "Expr",
    "KeyEquality",
    "Row",
    "all_of",
    "any_of",
    "bare",
    "coalesce",
    "column",
    "eq",
    "evaluate",
    "is_null",
    "literal",
    "lt",
    "ne",
    "negation",
    "plus",
    "reads_target",
    "same",
    "source",
    "target",
]
