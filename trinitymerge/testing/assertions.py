"""Assertions on tables and merges for tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Protocol

import attrs

from trinitymerge.errors import InvalidMergeError, TrinityMergeError, counted
from trinitymerge.merge.model.clauses import Clause, describe
from trinitymerge.testing.model.expressions import Row
from trinitymerge.testing.model.table import ModelTable
from trinitymerge.testing.model.values import order_key

# Rows -------------------------------------------------------------------------------------------------------


def assertRows(actual: Any, expected: Iterable[Mapping[str, Any]], key: str | Sequence[str] = ()) -> None:
    """Checks that a table, a DataFrame or plain rows hold exactly these rows, in any order.

    Args:
        actual: a ``TrinityTable``, a :class:`ModelTable`, a DataFrame, or rows as mappings.
        expected: rows as mappings.
        key: the columns by which rows are paired in the message; by default the table's primary key.

    Raises:
        AssertionError: showing the differing rows side by side, and no others.

    Example:
        >>> assertRows([{"id": 1, "v": 2}], [{"id": 1, "v": 3}, {"id": 2, "v": 3}], key="id")
        Traceback (most recent call last):
        AssertionError: 2 of 2 rows differ:
          expected            actual              differs in
          {id: 1, v: 3}       {id: 1, v: 2}       v
          {id: 2, v: 3}       -                   missing
    """
    difference = renderDifference(expected, rows_of(actual), key or key_of(actual))
    if difference:
        raise AssertionError(difference)


def rows_of(table: Any) -> list[Row]:
    """The rows of a table, a DataFrame, or an iterable of mappings."""
    if isinstance(table, ModelTable):
        return table.live()
    if _has(table, "toDF") and _has(table, "definition"):
        table = table.toDF()
    if _has(table, "collect"):
        return [row.asDict(recursive=True) for row in table.collect()]
    return [dict(row) for row in table]


def key_of(table: Any) -> tuple[str, ...]:
    """The primary key of a table; nothing for plain rows."""
    return tuple(table.definition.primaryKey) if _has(table, "definition") else ()


def _has(value: object, name: str) -> bool:
    """Asks the class: a Spark Connect DataFrame answers to any name with a column."""
    return hasattr(type(value), name)


def renderDifference(
    expected: Iterable[Mapping[str, Any]], actual: Iterable[Mapping[str, Any]], key: str | Sequence[str] = ()
) -> str:
    """The differing rows side by side, paired by key, as text; empty if there are none."""
    key = (key,) if isinstance(key, str) else tuple(key)
    by_key: dict[Any, tuple[list[Row], list[Row]]] = {}
    for side, rows in enumerate((expected, actual)):
        for row in rows:
            by_key.setdefault(_identity(row, key), ([], []))[side].append(dict(row))
    pairs = [pair for sides in by_key.values() for pair in _unequal(*sides)]
    if not pairs:
        return ""
    total = sum(max(len(wanted), len(found)) for wanted, found in by_key.values())
    lines = [("expected", "actual", "differs in"), *(_line(*pair) for pair in pairs)]
    width = max(18, *(len(text) for line in lines for text in line[:2]))
    table = [f"  {left:{width}}  {right:{width}}  {note}" for left, right, note in lines]
    return "\n".join([f"{len(pairs)} of {total} rows differ:", *table])


def _identity(row: Mapping[str, Any], key: tuple[str, ...]) -> Any:
    return tuple(_comparable(row.get(name)) for name in key) if key else _content(row)


def _comparable(value: Any) -> Any:
    """Equal exactly when Spark would store the same: NaN is NaN, 1 is not True, 1.50 is 1.5."""
    if isinstance(value, Mapping):
        return ("map", tuple((name, _comparable(part)) for name, part in value.items()))
    if isinstance(value, (list, tuple)):
        return ("list", tuple(_comparable(part) for part in value))
    return (isinstance(value, bool), order_key(bytes(value) if isinstance(value, bytearray) else value))


def _unequal(wanted: list[Row], found: list[Row]) -> list[tuple[Row | None, Row | None]]:
    """The rows of one key that only one side has, paired as they come."""
    rest = list(found)
    missing = []
    for row in wanted:
        twin = next((n for n, other in enumerate(rest) if _content(other) == _content(row)), None)
        if twin is None:
            missing.append(row)
        else:
            del rest[twin]
    return list(zip_longest(missing, rest))


def _content(row: Mapping[str, Any]) -> Any:
    return frozenset((name, _comparable(value)) for name, value in row.items())


def _line(wanted: Row | None, found: Row | None) -> tuple[str, str, str]:
    if wanted is None or found is None:
        return _row_text(wanted), _row_text(found), "missing" if found is None else "unexpected"
    names = [*wanted, *(name for name in found if name not in wanted)]
    differing = [n for n in names if _cell(wanted, n) != _cell(found, n)]
    return _row_text(wanted), _row_text(found), ", ".join(differing)


def _cell(row: Row, name: str) -> Any:
    return (name in row, _comparable(row.get(name)))


def _row_text(row: Row | None) -> str:
    return "-" if row is None else "{" + ", ".join(f"{name}: {value!r}" for name, value in row.items()) + "}"


# Merges -----------------------------------------------------------------------------------------------------


def assertMerge(target: Any, merge: Callable[[Any], Any], expected: Any) -> Any:
    """Runs a merge and checks the target's rows afterwards.

    Args:
        target: a ``TrinityTable``, or a :class:`ModelTable`. It is changed by the merge.
        merge: a function of the target that returns a builder, which is executed, or has merged already.
        expected: the rows afterwards, as mappings; or the type of the error the merge must be refused with, and
            then the rows must be what they were.

    Returns:
        The merge's result, or the error.

    Raises:
        AssertionError: showing the differing rows side by side.

    Example:
        >>> from trinitymerge.schema.definition import Field, TableDefinition
        >>> from trinitymerge.merge.model.clauses import All, Insert, WhenNotMatched
        >>> table = ModelTable(TableDefinition.of([Field("id", "long")], primaryKey="id"))
        >>> insert = [WhenNotMatched(None, [Insert(All())])]
        >>> assertMerge(table, lambda t: t.merge([{"id": 1}], insert), [{"id": 1}]).rowsInserted
        1
    """
    if isinstance(expected, type) and issubclass(expected, Exception):
        return _assert_refused(target, merge, expected)
    result = _execute(merge, target)
    assertRows(target, expected)
    return result


def _execute(merge: Callable[[Any], Any], target: Any) -> Any:
    outcome = merge(target)
    return outcome.execute() if hasattr(outcome, "execute") else outcome


def _assert_refused(target: Any, merge: Callable[[Any], Any], error: type[Exception]) -> Exception:
    before = rows_of(target)
    try:
        result = _execute(merge, target)
    except error as refusal:
        assertRows(target, before)
        return refusal
    raise AssertionError(f"{error.__name__} was expected, but the merge ran: {result}")


# The order of clauses ---------------------------------------------------------------------------------------


class ReorderableMerge(Protocol):
    """A merge that can be tried with its clauses in another order, leaving its target alone."""

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """In the order of the chain."""

    @property
    def primaryKey(self) -> tuple[str, ...]:
        """Of the target; pairs rows in reports."""

    def rowsAfter(self, clauses: tuple[Clause, ...]) -> list[Row]:
        """What readers would see after the merge with these clauses.

        Raises:
            TrinityMergeError: if it would be refused.
        """


@attrs.frozen
class ModelMerge:
    """A merge of plain rows, as :meth:`ModelTable.merge` takes it, that can be tried again and again.

    Attributes:
        table: stays as it is.
        source: rows.
        clauses: in the order of the chain.
        condition: None is key equality.
        options: further arguments of :meth:`ModelTable.merge`.
    """

    table: ModelTable
    source: Sequence[Mapping[str, Any]]
    clauses: tuple[Clause, ...]
    condition: Any = None
    options: Mapping[str, Any] = attrs.field(factory=dict)

    @property
    def primaryKey(self) -> tuple[str, ...]:
        """Of the table."""
        return self.table.definition.primaryKey

    def rowsAfter(self, clauses: tuple[Clause, ...]) -> list[Row]:
        """What readers would see after the merge with these clauses."""
        return list(self.table.copy().merge(self.source, clauses, self.condition, **self.options).rows)


@attrs.frozen
class TableMerge:
    """A merge into a ``TrinityTable`` that can be tried again and again, each time into a copy of the table.

    Attributes:
        table: on a local disk, which is where tests have theirs; stays as it is.
        merge: a function of the table that returns a builder, aliases included.

    Example:
        >>> changes = spark.sql("SELECT '1' AS order_id, 7 AS amount, timestamp'2024-01-02' AS ts, 'D' AS op")
        >>> def pipeline(table):
        ...     return (table.alias("A").merge(changes.alias("B"), "A.order_id = B.order_id")
        ...         .whenMatched("B.op = 'D'").delete()
        ...         .whenMatched("NOT (A.amount <=> B.amount)").updateExpr({"amount": "B.amount"}))
        >>> [found.clause for found in clauseOrderDependence(TableMerge(orders, pipeline))]
        ['clause 2, whenMatched("NOT (A.amount <=> B.amount)")']
    """

    table: Any
    merge: Callable[[Any], Any]

    @property
    def clauses(self) -> tuple[Clause, ...]:
        """In the order of the chain."""
        found: tuple[Clause, ...] = self.merge(self.table).build().clauses
        return found

    @property
    def primaryKey(self) -> tuple[str, ...]:
        """Of the table."""
        return key_of(self.table)

    def rowsAfter(self, clauses: tuple[Clause, ...]) -> list[Row]:
        """What readers would see after the merge with these clauses.

        Raises:
            TrinityMergeError: if it would be refused.
            ValueError: the table is not on a local disk.
        """
        scheme, _, path = self.table.path.partition(":")
        if scheme != "file":
            raise ValueError(f"{self.table.path} is not on a local disk, so it cannot be copied for a trial.")
        with tempfile.TemporaryDirectory() as directory:
            shutil.copytree(path, Path(directory, "table"))  # tables hold no absolute paths
            copy = type(self.table).forPath(self.table.toDF().sparkSession, f"{directory}/table")
            attrs.evolve(self.merge(copy), clauses=clauses).execute()
            return rows_of(copy)


@attrs.frozen
class OrderDependence:
    """What changes when one clause is tried before all others of its kind.

    Attributes:
        clause: the clause, by position and text.
        given: the rows in the order given, or the error.
        reordered: the rows with that clause first, or the error.
        report: the differing rows side by side.
    """

    clause: str
    given: list[Row] | TrinityMergeError = attrs.field(repr=False)
    reordered: list[Row] | TrinityMergeError = attrs.field(repr=False)
    report: str


def clauseOrderDependence(merge: ReorderableMerge) -> tuple[OrderDependence, ...]:
    """Which rows depend on the order in which the clauses of one kind are tried (S17-S19).

    The first clause that holds applies, so trying each clause with a condition once before its siblings shows every
    row on which two of them hold and disagree. A clause without a condition stays last (S28), and clauses of
    different kinds never meet.

    Args:
        merge: a :class:`TableMerge`, or a :class:`ModelMerge`.

    Returns:
        One report for each clause whose place matters; empty if the order is irrelevant for these rows.

    Raises:
        InvalidMergeError: the merge as given could not run, whatever the rows.
    """
    given = _outcome(merge, merge.clauses)
    if isinstance(given, InvalidMergeError):
        raise given
    found = []
    for position, clause in enumerate(merge.clauses):
        if clause.condition is None or not any(type(c) is type(clause) for c in merge.clauses[:position]):
            continue
        rest = merge.clauses[:position] + merge.clauses[position + 1 :]
        reordered = _outcome(merge, (clause, *rest))
        report = _compare(given, reordered, merge.primaryKey)
        if report:
            found.append(OrderDependence(describe(merge.clauses, position), given, reordered, report))
    return tuple(found)


def assertClauseOrderIrrelevant(merge: ReorderableMerge) -> None:
    """Checks that the clauses of each kind may be tried in any order, as far as these rows show.

    Args:
        merge: a :class:`TableMerge`, or a :class:`ModelMerge`.

    Raises:
        AssertionError: naming each clause whose place matters, with the rows it matters for.
        InvalidMergeError: the merge as given could not run, whatever the rows.
    """
    found = clauseOrderDependence(merge)
    if found:
        texts = [f"{d.clause}, tried first ('actual') instead of in its place: {d.report}" for d in found]
        raise AssertionError("The order of clauses matters.\n" + "\n".join(texts))


def _outcome(merge: ReorderableMerge, clauses: tuple[Clause, ...]) -> list[Row] | TrinityMergeError:
    try:
        return merge.rowsAfter(clauses)
    except TrinityMergeError as error:
        return error


def _compare(given: list[Row] | TrinityMergeError, other: list[Row] | TrinityMergeError, key: tuple[str, ...]) -> str:
    if not isinstance(given, TrinityMergeError) and not isinstance(other, TrinityMergeError):
        return renderDifference(given, other, key)
    if type(given) is type(other):
        return ""
    return " but ".join(_outcome_text(outcome) for outcome in (given, other))


def _outcome_text(outcome: list[Row] | TrinityMergeError) -> str:
    if isinstance(outcome, TrinityMergeError):
        return f"refused ({type(outcome).__name__}: {outcome})"
    return counted(len(outcome))
