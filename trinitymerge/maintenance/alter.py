"""`alter()`: columns, constraints, defaults, properties, history (S43, S45, S46)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeAlias

import attrs
from pyspark.sql import DataFrame, SparkSession, functions as F
from pyspark.sql.types import DataType

from trinitymerge import _format, reader
from trinitymerge.errors import (
    ConcurrentCommitError,
    ConstraintError,
    InvalidDefinitionError,
    InvalidMergeError,
    counted,
)
from trinitymerge.fs import faults
from trinitymerge.log.actions import SetDefinition, add_all, remove_all
from trinitymerge.log.batches import Batches
from trinitymerge.log.commit import NoConcurrentCommits, Requirement, SameDefinition, publish, retry
from trinitymerge.log.model import Snapshot
from trinitymerge.maintenance.compaction import compact_segments
from trinitymerge.schema import evolution
from trinitymerge.schema.constraints import Check
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.schema.nullability import dotted, never_null
from trinitymerge.schema.properties import check_properties
from trinitymerge.spark import expressions as E, predicates, system_columns as C
from trinitymerge.spark.casts import CastPolicy, cast_failure, cast_policy, cast_to_column
from trinitymerge.spark.conf import with_session_settings
from trinitymerge.spark.ddl import column_of
from trinitymerge.spark.errors import analysis_errors, classify_failure, clean_message, is_spark_error
from trinitymerge.spark.observe import Metrics
from trinitymerge.spark.session import is_connect, rows_to_show
from trinitymerge.spark.sql_text import Sql, as_sql, bare
from trinitymerge.stores.base import ManagedStore, TableStore
from trinitymerge.stores.file_format import check_storable
from trinitymerge.stores.removed_files import naming_storage_errors

FAULT_POINTS = ("alter.prepared", "alter.committed")

_WORD = re.compile(
    r"(?<![\w.])(current_(?:date|timestamp|time|user)|localtimestamp|session_user|user)\b(?!\s*\()", re.IGNORECASE
)
"""Names that Spark takes for a call if no column has them."""

_STAR = re.compile(r"[(,]\s*\*")

_SHOWN = 5


@contextmanager
def _refused(**facts: Any) -> Iterator[None]:
    try:
        yield
    except InvalidMergeError as error:
        raise InvalidDefinitionError(str(error), **facts) from None


# Checks ---------------------------------------------------------------------------------------------------------------


def check_of(spark: SparkSession, definition: TableDefinition, name: str, condition: str) -> Check:
    """Return a check that a table can have; asks Spark's analyzer, runs no job."""
    where = f"The condition of constraint '{name}'"
    nothing = E.empty_frame(spark, definition.fields)
    with _refused(constraint=name), analysis_errors(where):
        has_query = predicates.holds_query(nothing, F.expr(as_sql(condition)))
    if has_query:
        raise InvalidDefinitionError(
            f"{where} has a query in it, and what that finds would change while the rows stay. Use the row's own columns.",
            constraint=name,
        )
    if _STAR.search(bare(condition)):
        raise InvalidDefinitionError(
            f"{where} has a * in it, which columns that come later would change.", constraint=name
        )
    _refuse_words(condition, where, definition.names)
    with _refused(constraint=name), analysis_errors(where):
        predicates.checked_condition(nothing, F.expr(as_sql(condition)), where)
    _require_known_elsewhere(spark, definition.fields, condition, where)
    return Check(name, condition, [n for n in definition.names if _reads(spark, definition, condition, n, where)])


def _reads(spark: SparkSession, definition: TableDefinition, condition: str, column: str, where: str) -> bool:
    word = rf"(?<!\w){re.escape(column.replace('`', '``'))}(?!\w)"
    if re.search(word, condition, re.IGNORECASE) is None:
        return False
    if _WORD.fullmatch(column):
        return True  # without the column it would mean something else, without an error
    others = [f for f in definition.fields if f.name != column]
    try:
        with analysis_errors(where):  # not filter(): that finds columns below the ones that are there
            E.empty_frame(spark, others).select(F.expr(as_sql(condition))).schema  # noqa: B018
    except InvalidMergeError:
        if re.search(word, condition) is None:
            raise InvalidDefinitionError(
                f"{where} must spell column '{column}' as the table does: sessions may be case sensitive. Write {E.quote(column)}.",
                column=column,
            ) from None
        return True
    return False


# Defaults -------------------------------------------------------------------------------------------------------------


def default_of(spark: SparkSession, field: Field, default: str) -> str:
    """Return a default that a column can have, computed once: SQL of no column, the same for all that a statement writes."""
    where = f"The default of column '{field.name}'"
    if not default:
        raise InvalidDefinitionError(f"{where} is missing: a value follows the word DEFAULT.", column=field.name)
    one = spark.sql(f"SELECT 0 AS {C.NO_COLUMN} FROM VALUES (0)")  # computed while the query is planned: no job runs
    with _refused(column=field.name), analysis_errors(where):
        value = F.expr(as_sql(default))
        has_query = predicates.holds_query(one, value)
    if has_query:
        raise InvalidDefinitionError(f"{where} has a query in it. Give a value, or a call such as current_date().")
    with _refused(column=field.name), analysis_errors(where):
        kind = one.select(value.alias("value")).schema.fields[0].dataType
        one.filter(value.isNull()).schema  # noqa: B018 - neither an aggregate nor a window function
    _require_constant(one, default, field, where)
    way = cast_policy(kind, field)
    if way is CastPolicy.REFUSED:
        raise InvalidDefinitionError(
            f"{where} is a value of type {kind.simpleString()}, and the column is {field.text}. Cast it explicitly.",
            column=field.name,
        )
    found = _value(one, default, field, way, where)
    if found["misfit"] is not None:
        raise InvalidDefinitionError(
            f"{where} does not fit: the column is {field.text}, and the value {found['misfit'].split(chr(9), 1)[1]!r}.",
            column=field.name,
        )
    if found["holds_null"]:
        inside, whole = "has a null where none is allowed", "is null, and the column must not be null"
        raise InvalidDefinitionError(f"{where} {inside if never_null(field.type) else whole}.", column=field.name)
    return default


def _require_constant(one: DataFrame, default: str, field: Field, where: str) -> None:
    if not predicates.is_deterministic(one, F.expr(as_sql(default))):
        raise InvalidDefinitionError(
            f"{where} is not deterministic, and a default is the same for all rows. Assign such a value in the merge.",
            column=field.name,
        )
    _refuse_words(default, where, ())
    _require_known_elsewhere(one.sparkSession, (), default, where)


def _require_known_elsewhere(spark: SparkSession, fields: Iterable[Field], text: str, where: str) -> None:
    """Raise if a text uses what other sessions lack: variables, temporary functions. Not on Connect, which has one session."""
    if is_connect(spark):
        return
    other = spark.newSession()
    for setting in ("spark.sql.ansi.enabled", "spark.sql.caseSensitive"):
        other.conf.set(setting, str(spark.conf.get(setting)))
    try:
        with analysis_errors(where):
            E.empty_frame(other, [*fields, Field(C.NO_COLUMN, "integer")]).selectExpr(as_sql(text)).schema  # noqa: B018
    except InvalidMergeError as error:
        raise InvalidDefinitionError(
            f"{error} This session knows more than others do (a variable, or a temporary function), and they could not "
            "write to the table. Use what all of them know."
        ) from None


def _refuse_words(text: str, where: str, columns: Iterable[str]) -> None:
    """Raise for words that Spark takes for calls only as long as no column has their name."""
    known = {name.casefold() for name in columns}
    for word in _WORD.findall(bare(text)):
        if word.casefold() not in known:
            raise InvalidDefinitionError(
                f"{where} has a word in it that a column might be called. Write it as a call: {word}()."
            )


def _value(one: DataFrame, default: str, field: Field, way: CastPolicy, where: str) -> dict[str, Any]:
    try:
        unfit = cast_failure(Sql("value"), way, field) or Sql("CAST(NULL AS STRING)")
        row = one.selectExpr(f"{as_sql(default)} AS value").selectExpr(
            "CAST(value AS STRING)",  # else Spark would not compute what is never null
            f"{predicates.holds_null(field, cast_to_column(Sql('value'), way, field))} AS holds_null",
            f"{unfit} AS misfit",
        )
        return row.collect()[0].asDict()
    except Exception as error:
        if not is_spark_error(error):
            raise
        failed = classify_failure(error) or InvalidDefinitionError
        raise failed(f"{where} cannot be computed: {clean_message(error)}", column=field.name) from None


# Rows that are there --------------------------------------------------------------------------------------------------


def is_stricter(before: TableDefinition, after: TableDefinition) -> bool:
    return bool(_new_checks(before, after) or _no_longer_null(before, after))


def require_fulfilled(store: TableStore, batches: Batches, before: TableDefinition) -> None:
    """Raise if live rows break rules that are new. One job counts them, and a second one finds rows to name."""
    after = batches.definition
    broken = {f"CHECK {c.name} ({c.condition})": predicates.violation(after, c) for c in _new_checks(before, after)}
    broken |= {f"NOT NULL of column '{name}'": wrong for name, wrong in _no_longer_null(before, after).items()}
    rows = reader.live_rows(store, batches, with_hidden=True)
    try:
        counts = Metrics({f"c{i}": E.count_where(sql) for i, sql in enumerate(broken.values())}).compute(rows)
    except Exception as error:
        if not is_spark_error(error):
            raise
        raise (classify_failure(error) or InvalidDefinitionError)(
            f"{', '.join(broken)} cannot be computed for the rows of {store.path}: {clean_message(error)} Nothing was altered."
        ) from None
    for i, (rule, sql) in enumerate(broken.items()):
        if counts[f"c{i}"]:
            raise _broken(store.path, rule, int(counts[f"c{i}"]), rows.filter(sql), after)


def _broken(path: str, rule: str, count: int, rows: DataFrame, own: TableDefinition) -> ConstraintError:
    names = [E.quote(n) for n in own.names[:6]]
    some = rows.orderBy(*[F.col(E.quote(k)) for k in own.primaryKey]).limit(_SHOWN)
    found = rows_to_show(some.selectExpr(*names))
    shown = "; ".join("(" + ", ".join(f"{n}={r[n]!r}" for n in own.names[:6]) + ")" for r in found)
    return ConstraintError(
        f"{counted(count)} of {path} {'breaks' if count == 1 else 'break'} {rule}: {shown}. Nothing was altered. Correct "
        "them first, for instance with updateWhere().",
        constraint=rule,
        rows=count,
    )


def _new_checks(before: TableDefinition, after: TableDefinition) -> list[Check]:
    was = [_meaning(check, before) for check in before.checks]
    return [check for check in after.checks if _meaning(check, after) not in was]


def _meaning(check: Check, definition: TableDefinition) -> tuple[Any, ...]:
    """Return a check with the columns that it names now, because columns can be renamed."""
    about = [definition.field(name) for name in check.columns]
    return check.condition, [(f.name, f.first_stored_as, repr(f.type)) for f in about]


def _no_longer_null(before: TableDefinition, after: TableDefinition) -> dict[str, Sql]:
    """Return the columns and fields that become NOT NULL, each with SQL that is true for a null."""
    was = {f.first_stored_as: predicates.forbidden_nulls(f) for f in before.fields}
    return {
        dotted(field, path): wrong
        for field in after.fields
        for path, wrong in predicates.forbidden_nulls(field).items()
        if path not in was.get(field.first_stored_as, {})
    }


Step: TypeAlias = Callable[[TableDefinition], TableDefinition]
"""One change of a definition."""


@attrs.frozen
class AlterResult(_format.Result):
    """The version of a table after an alteration, and what was altered, in words; nothing if all was so already."""

    version: int
    changes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"version {self.version}: {'; '.join(self.changes) or 'nothing altered, all is so already'}"


@attrs.frozen(eq=False, repr=False)
class TableAlteration:
    """Changes of a table's definition, made by ``TrinityTable.alter()``; nothing happens before :meth:`execute`.

    No file is rewritten: a column keeps its name in files, so that a renamed one keeps its values, and one that is dropped and
    added again starts empty. Past versions keep the columns they had. A merge that was built before an alteration is planned again
    if it still means the same, and refused otherwise.

    Example:
        >>> result = orders.alter().addColumn("channel", "STRING").setComment("all of them").execute()
        >>> print(result)
        version 2: column channel string is added; the comment is 'all of them'
    """

    _store: ManagedStore
    _steps: tuple[Step, ...] = ()
    _history: bool = False

    # Columns --------------------------------------------------------------------------------------------------------

    def addColumn(self, name: str, type: str | DataType, comment: str | None = None) -> TableAlteration:
        """Add a column at the end; it is null in existing rows (S43).

        Merges that were written before it go on working: on update it keeps its value, on insert it is null (S22, S23).

        Args:
            name: of the column.
            type: as in DDL text, such as ``"DECIMAL(10,2)"`` or ``"INT DEFAULT 0"``, or one of Spark's types.
            comment: for people.

        Example:
            >>> orders.alter().addColumn("channel", "STRING", comment="web or shop").execute().changes
            ('column channel string is added',)
        """
        field = column_of(name, type)
        if comment is not None:
            field = attrs.evolve(field, metadata={**field.metadata, "comment": str(comment)})
        added = self._then(lambda own: evolution.with_column(own, attrs.evolve(field, default=None)))
        return added if field.default is None else added.setDefault(name, field.default)

    def renameColumn(self, old: str, new: str) -> TableAlteration:
        """Rename a column, keys included; its values stay (S43).

        Example:
            >>> table = orders.alter().renameColumn("amount", "total").execute()
            >>> orders.toDF().columns[:2]
            ['order_id', 'total']
        """
        if not isinstance(new, str) or not new:
            raise InvalidDefinitionError(f"A column needs a name, got {new!r}.")
        return self._then(lambda own: evolution.rename_column(own, old, new))

    def dropColumn(self, name: str) -> TableAlteration:
        """Drop a column (S43). Its values stay in files for past versions, until these are rewritten and vacuumed."""
        return self._then(lambda own: evolution.without_column(own, name))

    def widenColumn(self, name: str, type: str | DataType) -> TableAlteration:
        """Widen a column to a type that holds all its values exactly (S43).

        ``TINYINT`` to ``SMALLINT``, ``INT``, ``BIGINT``; whole numbers to ``DECIMAL`` with as many digits, up to ``INT`` to
        ``DOUBLE``; ``FLOAT`` to ``DOUBLE``; ``DECIMAL`` to more digits on either side; ``DATE`` to ``TIMESTAMP_NTZ``;
        ``VARCHAR(n)`` to longer ones and ``STRING``. The same inside of arrays, map values and structs, which may get more
        fields. Of keys only whole numbers and text.

        Example:
            >>> orders.alter().widenColumn("amount", "DECIMAL(12,2)").execute().changes
            ('column amount is decimal(12,2), not decimal(10,2)',)
        """
        kind = column_of(str(name), type).type
        return self._then(lambda own: evolution.widened(own, name, kind))

    def setNullable(self, name: str) -> TableAlteration:
        """Allow nulls in a column or field (S45).

        Args:
            name: of the column, or of a place inside of it: ``"address.city"``, ``"tags.element"``, ``"prices.value"``.
        """
        return self._then(lambda own: evolution.drop_not_null(own, name))

    def setNotNull(self, name: str) -> TableAlteration:
        """Forbid nulls in a column or field, in live rows and in new ones (S45).

        Args:
            name: of the column, or of a place inside of it, as for :meth:`setNullable`.

        Example:
            >>> orders.alter().setNotNull("amount").execute().changes
            ('column amount must not be null',)
        """
        return self._then(lambda own: evolution.set_not_null(own, name))

    def setDefault(self, name: str, default: str) -> TableAlteration:
        """Set the default of a column, for inserts that do not assign it (S46).

        Rows that are there stay as they are, and so do those that are updated.

        Args:
            name: of a column that is not a key.
            default: SQL text without columns, such as ``"0"``, ``"'new'"`` or ``"current_date()"``, which is computed when a row
                is inserted.

        Example:
            >>> orders.alter().setDefault("amount", "0").execute().changes
            ('the default of column amount is 0',)
        """
        if not isinstance(default, str) or not default.strip():
            raise InvalidDefinitionError(
                f"The default of column '{name}' must be SQL text, such as '0' or \"'new'\", got {default!r}.",
                column=name,
            )
        return self._then(
            lambda own: evolution.with_default(
                own, name, default_of(self._store.spark, evolution.find_column(own, name), default.strip())
            )
        )

    def dropDefault(self, name: str) -> TableAlteration:
        """Drop the default of a column: inserts that do not assign it write null (S46)."""
        return self._then(lambda own: evolution.with_default(own, name, None))

    def addCheck(self, name: str, condition: str) -> TableAlteration:
        """Add a CHECK constraint, for live rows and for new ones (S45).

        A row for which it is false is refused, with the whole merge; null passes. Tombstones, past versions and versions of rows
        are not judged. All live rows are looked at once, and again if other writers commit concurrently.

        Args:
            name: of the constraint, for errors and :meth:`dropCheck`.
            condition: SQL text over the columns of one row.

        Example:
            >>> orders.alter().addCheck("positive", "amount > 0").execute().changes
            ('CHECK positive (amount > 0) is a constraint',)
        """
        if not isinstance(name, str) or not name.strip():
            raise InvalidDefinitionError(f"A constraint needs a name, got {name!r}.")
        if not isinstance(condition, str) or not condition.strip():
            raise InvalidDefinitionError(f"The condition of constraint '{name}' must be SQL text, got {condition!r}.")
        return self._then(
            lambda own: evolution.with_check(own, check_of(self._store.spark, own, name.strip(), condition.strip()))
        )

    def dropCheck(self, name: str) -> TableAlteration:
        """Drop a constraint (S45)."""
        return self._then(lambda own: evolution.without_check(own, name))

    def setColumnComment(self, name: str, comment: str | None) -> TableAlteration:
        """Set or remove the comment of a column."""
        return self._then(lambda own: evolution.with_comment(own, name, comment))

    # Table ----------------------------------------------------------------------------------------------------------

    def setProperty(self, name: str, value: str) -> TableAlteration:
        """Set a property."""
        check_properties({name: str(value)})
        return self._then(lambda own: attrs.evolve(own, properties={**own.properties, name: str(value)}))

    def unsetProperty(self, name: str) -> TableAlteration:
        """Remove a property, so that its default applies."""
        return self._then(
            lambda own: attrs.evolve(own, properties={n: v for n, v in own.properties.items() if n != name})
        )

    def clusterBy(self, *names: str | Iterable[str]) -> TableAlteration:
        """Set the columns by which rows are sorted within files, most significant first; none for the key alone (S7c).

        Later merges and compactions write so. ``compact(full=True)`` rewrites the files that are there, but for those of versions
        that have ended.

        Args:
            names: of atomic columns that queries filter by, such as a date; or one list of them.

        Example:
            >>> orders.alter().clusterBy("ts").execute().changes
            ('rows are clustered by ts',)
        """
        given = [n for name in names for n in ([name] if isinstance(name, str) else name)]
        return self._then(lambda own: evolution.clustered(own, given))

    def setComment(self, comment: str | None) -> TableAlteration:
        """Set or remove the table's comment."""
        return self._then(lambda own: attrs.evolve(own, comment=comment))

    def _then(self, step: Step) -> TableAlteration:
        return attrs.evolve(self, steps=(*self._steps, step))

    def setHistory(self) -> TableAlteration:
        """Keep row versions from now on (H1). The latest rows become the first versions. It cannot be turned off.

        Pending batches are compacted first, so that older rows in files do not become versions. Without a declared
        watermark, all versions begin at the switch.
        """
        return attrs.evolve(self, history=True)

    @with_session_settings
    def execute(self) -> AlterResult:
        """Commit the changes, as one version."""
        return retry(self._store, self._attempt)

    def _attempt(self, snapshot: Snapshot) -> AlterResult:
        snapshot = self._prepared(snapshot)
        definition = self._altered(snapshot.definition)
        changes = tuple(_differences(snapshot.definition, definition))
        if not changes:
            return AlterResult(snapshot.version)
        if is_stricter(snapshot.definition, definition):
            with naming_storage_errors(self._store):
                to_check = Batches.of(attrs.evolve(snapshot, definition=definition))
                require_fulfilled(self._store, to_check, snapshot.definition)
        faults.fault("alter.prepared")
        done = self._commit(snapshot, definition, changes)
        faults.fault("alter.committed")
        return AlterResult(done.version, changes)

    def _prepared(self, snapshot: Snapshot) -> Snapshot:
        """Compact pending rows before history starts, and return the newest snapshot."""
        if not self._history or snapshot.definition.history or Batches.of(snapshot).are_resolved:
            return snapshot
        compact_segments(self._store)
        snapshot = self._store.snapshot()
        if not Batches.of(snapshot).are_resolved:  # few changes, which a compaction leaves beside the segments
            compact_segments(self._store, full=True)
        return self._store.snapshot()

    def _altered(self, own: TableDefinition) -> TableDefinition:
        definition = own
        for step in self._steps:
            definition = step(definition)
        definition = attrs.evolve(definition, history=own.history or self._history)
        if (definition.fields, definition.checks, definition.clusterBy) != (own.fields, own.checks, own.clusterBy):
            definition = TableDefinition.from_json(definition.to_json())  # checked again, as if it were created so
            check_storable(definition)
        return definition

    def _commit(self, snapshot: Snapshot, definition: TableDefinition, changes: tuple[str, ...]) -> Snapshot:
        begins = definition.history and not snapshot.definition.history
        if begins and not Batches.of(snapshot).are_resolved:
            raise ConcurrentCommitError(
                f"Others have merged into {self._store.path} faster than it could be compacted for history. Nothing was "
                "changed; run it again.",
                path=self._store.path,
                version=snapshot.version,
                requirement=NoConcurrentCommits(),
            )
        restarted = snapshot.batches if begins and not definition.watermarkKey else ()
        added = add_all(attrs.evolve(b, version=None) for b in restarted)
        actions = [*remove_all(restarted), SetDefinition(definition), *added]
        commit = snapshot.next_commit("ALTER", actions, parameters={"changes": list(changes)})
        looked = begins or is_stricter(snapshot.definition, definition)
        requirement: Requirement = NoConcurrentCommits() if looked else SameDefinition()
        return publish(self._store, commit, snapshot, (requirement,))


def _differences(before: TableDefinition, after: TableDefinition) -> list[str]:
    found = [*evolution.differences_of_columns(before, after)]
    found += [f"constraint {check.name} is dropped" for check in before.checks if check not in after.checks]
    found += [f"{check} is a constraint" for check in after.checks if check not in before.checks]
    found += [
        f"{n} is {after.properties[n]}" if n in after.properties else f"{n} is unset"
        for n in sorted({*before.properties, *after.properties})
        if before.properties.get(n) != after.properties.get(n)
    ]
    clustering = [[d.field(n).first_stored_as for n in d.clusterBy] for d in (before, after)]
    if clustering[0] != clustering[1]:
        found.append(f"rows are clustered by {', '.join(after.clusterBy) or 'nothing but the key'}")
    if before.comment != after.comment:
        found.append("there is no comment" if after.comment is None else f"the comment is {after.comment!r}")
    return found + (["versions are kept"] if before.history != after.history else [])
