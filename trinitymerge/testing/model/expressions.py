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
from trinitymerge.testing.model.values import Row as Row, order_key

AnyRow: TypeAlias = Mapping[str, Any] | None
Call: TypeAlias = Callable[[AnyRow, AnyRow], Any]
"""``f(target_row, source_row) -> value``. An absent side is None, and SQL's null is None."""


@attrs.frozen
class Expr:
    """One expression in two languages: SQL text for Spark, a callable for the interpreter.

    Two expressions are equal if their text is. A row is a mapping with the columns' declared names.

    Attributes:
        sql: SQL over both sides, qualified by their aliases.
        call: the same in Python; must return None where SQL gives null.
        reads_target: the text mentions a column of the target.
        reads_source: the text mentions a column of the source.
        asks: it only asks whether columns are null, so a condition may use it where that side has no row (S30).

    Example:
        >>> is_delete = Expr("B.op <=> 'D'", lambda t, s: s["op"] == "D", reads_target=False)
        >>> is_delete.call(None, {"op": "D"})
        True
    """

    sql: str
    call: Call = attrs.field(eq=False, repr=False)
    reads_target: bool = True
    reads_source: bool = True
    asks: tuple[bool, bool] = (False, False)

    def in_sight(self, sees_target: bool, sees_source: bool) -> bool:
        """Return whether the expression can be used where only these sides have a row (S30)."""
        is_target_clear = sees_target or self.asks[0] or not self.reads_target
        return is_target_clear and (sees_source or self.asks[1] or not self.reads_source)

    def __str__(self) -> str:
        return f'"{self.sql}"'


@attrs.frozen
class KeyEquality(Expr):
    """The merge condition that is exactly equality on the whole primary key (S18).

    Attributes:
        columns: ``((key column, source column), ...)``, each column of the primary key once.
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
        """Return equality on the primary key of ``definition``.

        Args:
            definition: the target's definition.
            target: the target's alias.
            source: the source's alias.
            columns: from key column to source column, where their names differ.

        Returns:
            The condition.

        Example:
            >>> from trinitymerge.schema.definition import Field
            >>> definition = TableDefinition.of([Field("id", "long")], primaryKey="id")
            >>> KeyEquality.of(definition, "A", "B", {"id": "order_id"}).sql
            'A.id = B.order_id'
        """
        pairs = tuple((key, (columns or {}).get(key, key)) for key in definition.primaryKey)
        both = all_of(*(eq(_target(key, target), _source(name, source)) for key, name in pairs))
        return cls(both.sql, both.call, columns=pairs)


def evaluate(expression: Any, target: AnyRow, source: AnyRow) -> Any:
    """Return the value of an :class:`Expr`, a callable or a plain literal for one pair of rows."""
    if isinstance(expression, str):
        raise InvalidMergeError(f"Only Spark evaluates SQL text ({expression!r}). Pass an Expr or a callable.")
    call = expression.call if isinstance(expression, Expr) else expression
    return call(target, source) if callable(call) else expression


def reads_target(expression: Any) -> bool:
    """Return whether the expression may read the target.

    A plain callable does, unless the name of its first parameter starts with an underscore:
    ``lambda _, s: s["op"] == "D"``.
    """
    if isinstance(expression, Expr):
        return expression.reads_target
    code = getattr(expression, "__code__", None)
    return callable(expression) and not (code and code.co_varnames and code.co_varnames[0].startswith("_"))


# Building blocks --------------------------------------------------------------------------------------------


def target(name: str, alias: str = "A") -> Expr:
    """Return a column of the target; null where no target row is.

    Example:
        >>> target("v").sql
        'A.v'
    """
    return Expr(f"{alias}.{name}", lambda t, s: None if t is None else t[name], reads_source=False)


def source(name: str, alias: str = "B") -> Expr:
    """Return a column of the source; null where no source row is."""
    return Expr(f"{alias}.{name}", lambda t, s: None if s is None else s[name], reads_target=False)


_target, _source = target, source  # where parameters have these names


def bare(expression: Expr) -> Expr:
    """Return the same without aliases, for a clause that sees one side only (S30).

    Example:
        >>> bare(lt(source("v"), literal(2))).sql
        'v < 2'
    """
    return attrs.evolve(expression, sql=re.sub(r"\b[AB]\.(?=\w)", "", expression.sql))


def literal(value: Any, type: str | None = None) -> Expr:
    """Return a constant: ``type`` is the Spark type of a ``"timestamp_ntz"``.

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
        return f"{'TIMESTAMP_NTZ' if type == 'timestamp_ntz' else 'TIMESTAMP'} '{value.isoformat(sep=' ')}'"
    if isinstance(value, (dt.date, dt.time)):
        return f"{'DATE' if isinstance(value, dt.date) else 'TIME'} '{value.isoformat()}'"
    if isinstance(value, dt.timedelta):
        return f"make_dt_interval({value.days}, 0, 0, {value.seconds + value.microseconds / 1e6})"
    if isinstance(value, float):
        return f"CAST('{value}' AS DOUBLE)"
    return format(value, "f") if isinstance(value, Decimal) else str(value).lower()


def _on_values(sql: str, function: Callable[..., Any], *operands: Expr) -> Expr:
    return Expr(
        sql,
        lambda t, s: function(*(operand.call(t, s) for operand in operands)),
        reads_target=any(operand.reads_target for operand in operands),
        reads_source=any(operand.reads_source for operand in operands),
        asks=(
            all(operand.asks[0] or not operand.reads_target for operand in operands),
            all(operand.asks[1] or not operand.reads_source for operand in operands),
        ),
    )


def _strict(sql: str, function: Callable[..., Any], *operands: Expr) -> Expr:
    """Return a function that is null if any operand is null."""
    return _on_values(sql, lambda *values: None if None in values else function(*values), *operands)


def _binary(operator: str, function: Callable[[Any, Any], Any], left: Expr, right: Expr) -> Expr:
    return _strict(f"{_operand(left)} {operator} {_operand(right)}", function, left, right)


def _operand(expression: Expr) -> str:
    """Return the text as an operand: in parentheses, unless it is a name, a number or a quoted literal."""
    simple = re.fullmatch(r"[\w.]+|'[^'\\]*'", expression.sql)
    return expression.sql if simple else f"({expression.sql})"


def eq(left: Expr, right: Expr) -> Expr:
    return _binary("=", lambda a, b: order_key(a) == order_key(b), left, right)


def ne(left: Expr, right: Expr) -> Expr:
    return _binary("<>", lambda a, b: order_key(a) != order_key(b), left, right)


def lt(left: Expr, right: Expr) -> Expr:
    return _binary("<", lambda a, b: order_key(a) < order_key(b), left, right)


def plus(left: Expr, right: Expr) -> Expr:
    return _binary("+", lambda a, b: a + b, left, right)


def negation(operand: Expr) -> Expr:
    return _strict(f"NOT ({operand.sql})", lambda a: not a, operand)


def is_null(operand: Expr) -> Expr:
    asked = _on_values(f"{_operand(operand)} IS NULL", lambda a: a is None, operand)
    return attrs.evolve(asked, asks=(True, True)) if re.fullmatch(r"[AB]\.\w+", operand.sql) else asked


def same(left: Expr, right: Expr) -> Expr:
    """Return ``left <=> right``: equality that counts nulls as equal."""
    text = f"{_operand(left)} <=> {_operand(right)}"
    return _on_values(text, lambda a, b: order_key(a) == order_key(b), left, right)


def coalesce(first: Expr, second: Expr) -> Expr:
    text = f"coalesce({first.sql}, {second.sql})"
    return _on_values(text, lambda a, b: b if a is None else a, first, second)


def all_of(*operands: Expr) -> Expr:
    """Return ``AND``: false if any operand is false, otherwise null if any is null."""
    return _connected(" AND ", False, operands)


def any_of(*operands: Expr) -> Expr:
    """Return ``OR``: true if any operand is true, otherwise null if any is null."""
    return _connected(" OR ", True, operands)


def _connected(word: str, decisive: bool, operands: tuple[Expr, ...]) -> Expr:
    if len(operands) == 1:
        return operands[0]

    def value(*values: Any) -> bool | None:
        return decisive if decisive in values else None if None in values else not decisive

    return _on_values(word.join(map(_operand, operands)), value, *operands)
