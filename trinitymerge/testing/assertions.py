"""Assertions on tables and merges for tests."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any

import attrs

from trinitymerge.errors import InvalidMergeError, TrinityMergeError, counted
from trinitymerge.merge.model.clauses import Clause, describe
from trinitymerge.testing.model.table import ModelTable
from trinitymerge.testing.model.values import Row, order_key

# Rows -------------------------------------------------------------------------------------------------------


def assertRows(actual: Any, expected: Iterable[Mapping[str, Any]], key: str | Sequence[str] = ()) -> None:
    """Check that a table, a DataFrame or plain rows hold exactly these rows, in any order.

    Args:
        actual: a ``TrinityTable``, a :class:`ModelTable`, a DataFrame, or rows as mappings.
        expected: rows as mappings.
        key: the columns by which rows are paired in the message; by default the table's primary key.

    Raises:
        AssertionError: Rows differ. The message shows them side by side.

    Example:
        >>> assertRows([{"id": 1, "v": 2}], [{"id": 1, "v": 3}, {"id": 2, "v": 3}], key="id")
        Traceback (most recent call last):
        AssertionError: 2 of 2 rows differ:
          expected            actual              differs in
          {id: 1, v: 3}       {id: 1, v: 2}       v
          {id: 2, v: 3}       -                   missing
    """
    difference = renderDifference(expected, _rows_of(actual), key or _key_of(actual))
    if difference:
        raise AssertionError(difference)


def _rows_of(table: Any) -> list[Row]:
    if isinstance(table, ModelTable):
        return table.live()
    if _has(table, "toDF") and _has(table, "definition"):
        table = table.toDF()
    if _has(table, "collect"):
        return [row.asDict(recursive=True) for row in table.collect()]
    return [dict(row) for row in table]


def _key_of(table: Any) -> tuple[str, ...]:
    return tuple(table.definition.primaryKey) if _has(table, "definition") else ()


def _has(value: object, name: str) -> bool:
    """Ask the class, because a Spark Connect DataFrame has a column of any name."""
    return hasattr(type(value), name)


def renderDifference(
    expected: Iterable[Mapping[str, Any]], actual: Iterable[Mapping[str, Any]], key: str | Sequence[str] = ()
) -> str:
    """Return the differing rows side by side, paired by key, as text; empty if there are none.

    Args:
        expected: rows as mappings.
        actual: rows as mappings.
        key: the columns by which rows are paired.
    """
    key = (key,) if isinstance(key, str) else tuple(key)
    by_key: dict[Any, tuple[list[Row], list[Row]]] = {}
    for side, rows in enumerate((expected, actual)):
        for row in rows:
            identity = tuple(_comparable(row.get(name)) for name in key) if key else _content(row)
            by_key.setdefault(identity, ([], []))[side].append(dict(row))
    pairs = [pair for sides in by_key.values() for pair in _unequal(*sides)]
    if not pairs:
        return ""
    total = sum(max(len(wanted), len(found)) for wanted, found in by_key.values())
    lines = [("expected", "actual", "differs in"), *(_line(*pair) for pair in pairs)]
    width = max(18, *(len(text) for line in lines for text in line[:2]))
    table = [f"  {left:{width}}  {right:{width}}  {note}" for left, right, note in lines]
    return "\n".join([f"{len(pairs)} of {total} rows differ:", *table])


def _comparable(value: Any) -> Any:
    """Equal exactly when Spark would store the same: NaN is NaN, 1 is not True, 1.50 is 1.5."""
    if isinstance(value, Mapping):
        return ("map", tuple((name, _comparable(part)) for name, part in value.items()))
    if isinstance(value, (list, tuple)):
        return ("list", tuple(_comparable(part) for part in value))
    return (isinstance(value, bool), order_key(bytes(value) if isinstance(value, bytearray) else value))


def _content(row: Mapping[str, Any]) -> Any:
    return frozenset((name, _comparable(value)) for name, value in row.items())


def _unequal(wanted: list[Row], found: list[Row]) -> list[tuple[Row | None, Row | None]]:
    """Return the rows of one key that only one side has, paired as they come."""
    rest, missing = list(found), []
    for row in wanted:
        twin = next((n for n, other in enumerate(rest) if _content(other) == _content(row)), None)
        if twin is None:
            missing.append(row)
        else:
            del rest[twin]
    return list(zip_longest(missing, rest))


def _line(wanted: Row | None, found: Row | None) -> tuple[str, str, str]:
    if wanted is None or found is None:
        note = "missing" if found is None else "unexpected"
    else:
        left, right = ({name: _content({name: value}) for name, value in row.items()} for row in (wanted, found))
        note = ", ".join(name for name in {**wanted, **found} if left.get(name) != right.get(name))
    return _text(wanted), _text(found), note


def _text(row: Row | None) -> str:
    return "-" if row is None else "{" + ", ".join(f"{name}: {value!r}" for name, value in row.items()) + "}"


# Merges -----------------------------------------------------------------------------------------------------


def assertMerge(target: Any, merge: Callable[[Any], Any], expected: Any) -> Any:
    """Run a merge and check the target's rows afterwards.

    Args:
        target: a ``TrinityTable`` or a :class:`ModelTable`, which the merge changes.
        merge: a function of the target that returns a builder, which is executed, or that has merged already.
        expected: the rows afterwards, as mappings; or the type of the error that refuses the merge, after which the rows
            must be as before.

    Returns:
        The merge's result, or the error.

    Raises:
        AssertionError: Rows differ, and the message shows them side by side; or the merge was not refused.

    Example:
        >>> from trinitymerge.schema.definition import Field, TableDefinition
        >>> from trinitymerge.merge.model.clauses import All, Insert, WhenNotMatched
        >>> table = ModelTable(TableDefinition.of([Field("id", "long")], primaryKey="id"))
        >>> insert = [WhenNotMatched(None, [Insert(All())])]
        >>> assertMerge(table, lambda t: t.merge([{"id": 1}], insert), [{"id": 1}]).rowsInserted
        1
    """

    def execute() -> Any:
        outcome = merge(target)
        return outcome.execute() if hasattr(outcome, "execute") else outcome

    if not (isinstance(expected, type) and issubclass(expected, Exception)):
        result = execute()
        assertRows(target, expected)
        return result
    before = _rows_of(target)
    try:
        result = execute()
    except expected as refusal:
        assertRows(target, before)
        return refusal
    raise AssertionError(f"Expected {expected.__name__}, but the merge ran: {result}")


# The order of clauses ---------------------------------------------------------------------------------------


@attrs.frozen
class ModelMerge:
    """A merge of plain rows, as :meth:`ModelTable.merge` takes it, that can be tried several times.

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

    def rowsAfter(self, clauses: tuple[Clause, ...]) -> list[Row]:
        """Return the live rows after the merge with these clauses."""
        return list(self.table.copy().merge(self.source, clauses, self.condition, **self.options).rows)


@attrs.frozen
class TableMerge:
    """A merge into a ``TrinityTable`` that can be tried several times, each time into a copy of the table.

    Attributes:
        table: on a local disk; stays as it is.
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
        """The clauses in the order of the chain."""
        found: tuple[Clause, ...] = self.merge(self.table).build().clauses
        return found

    def rowsAfter(self, clauses: tuple[Clause, ...]) -> list[Row]:
        """Return the live rows after the merge with these clauses.

        Raises:
            TrinityMergeError: The merge is refused.
            ValueError: The table is not on a local disk.
        """
        scheme, _, path = self.table.path.partition(":")
        if scheme != "file":
            raise ValueError(
                f"Table '{self.table.path}' cannot be copied for a trial, because it is not on a local disk."
            )
        with tempfile.TemporaryDirectory() as directory:
            shutil.copytree(path, Path(directory, "table"))  # tables hold no absolute paths
            copy = type(self.table).forPath(self.table.toDF().sparkSession, f"{directory}/table")
            self.merge(copy)._evolve(clauses=clauses).execute()
            return _rows_of(copy)


@attrs.frozen
class OrderDependence:
    """The effect of trying one clause before all others of its kind.

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


def clauseOrderDependence(merge: ModelMerge | TableMerge) -> tuple[OrderDependence, ...]:
    """Return which rows depend on the order in which the clauses of one kind are tried (S17-S19).

    The first clause that holds applies. So trying each clause with a condition once before its siblings shows every row on
    which two of them hold and disagree. A clause without a condition stays last (S28), and clauses of different kinds do not
    interact.

    Args:
        merge: a :class:`TableMerge` or a :class:`ModelMerge`.

    Returns:
        One report for each clause whose place matters; empty if the order does not matter for these rows.

    Raises:
        InvalidMergeError: The merge as given is refused for any rows.
    """
    given, found = _outcome(merge, merge.clauses), []
    if isinstance(given, InvalidMergeError):
        raise given
    for position, clause in enumerate(merge.clauses):
        if clause.condition is not None and any(type(c) is type(clause) for c in merge.clauses[:position]):
            rest = merge.clauses[:position] + merge.clauses[position + 1 :]
            reordered = _outcome(merge, (clause, *rest))
            report = _report(given, reordered, _key_of(merge.table))
            if report:
                found.append(OrderDependence(describe(merge.clauses, position), given, reordered, report))
    return tuple(found)


def assertClauseOrderIrrelevant(merge: ModelMerge | TableMerge) -> None:
    """Check that the clauses of each kind may be tried in any order, as far as these rows show.

    Args:
        merge: a :class:`TableMerge` or a :class:`ModelMerge`.

    Raises:
        AssertionError: The place of a clause matters. The message names each such clause and its rows.
        InvalidMergeError: The merge as given is refused for any rows.
    """
    found = clauseOrderDependence(merge)
    if found:
        texts = [f"{d.clause}, tried first ('actual') instead of in its place: {d.report}" for d in found]
        raise AssertionError("The order of clauses matters.\n" + "\n".join(texts))


def _outcome(merge: ModelMerge | TableMerge, clauses: tuple[Clause, ...]) -> list[Row] | TrinityMergeError:
    try:
        return merge.rowsAfter(clauses)
    except TrinityMergeError as error:
        return error


def _report(given: list[Row] | TrinityMergeError, other: list[Row] | TrinityMergeError, key: tuple[str, ...]) -> str:
    if not isinstance(given, TrinityMergeError) and not isinstance(other, TrinityMergeError):
        return renderDifference(given, other, key)
    if type(given) is type(other):
        return ""
    outcomes = (given, other)
    return " but ".join(
        f"refused ({type(o).__name__}: {o})" if isinstance(o, TrinityMergeError) else counted(len(o)) for o in outcomes
    )
