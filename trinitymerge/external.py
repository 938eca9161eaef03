"""`ExternalTable`: rows of other writers, read by the same rules (S16)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession

from trinitymerge import errors
from trinitymerge._arguments import keys_in_words
from trinitymerge.reader import latest_of_untracked, resolve
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.spark.errors import clean_message, is_spark_error, suppress_error_logs
from trinitymerge.spark.session import force_analysis, is_dataframe, session_key

WRITE_METHODS = frozenset(
    [
        *("discardPendingHistoryInserts", "alter", "applyChanges", "compact", "delete", "deleteWhere", "foreachBatch"),
        *("insert", "merge", "purge", "purgeWhere", "restore", "snapshot", "update", "updateWhere", "upsert", "vacuum"),
    ]
)

REQUIRES_LOG = frozenset(
    [
        *("asOf", "changes", "changesSince", "clone", "detail", "export", "health", "history"),
        *("path", "report", "sqlFor", "version", "versions", "why"),
    ]
)
"""The calls of a table that read, and need commits or files that the library keeps."""

_PROPERTIES = ("path", "version")


class _NoAttributeError(errors.UnsupportedStorageError, AttributeError):
    """A refused attribute: ``hasattr`` must return False for it."""


@attrs.frozen(eq=False, repr=False)
class ExternalTable:
    """A read-only table over rows that this library did not write (S16); made by ``TrinityTable.external``.

    It can be read, be the source of merges and of SQL statements, and become a managed table by ``TrinityTable.convert``. All
    else that a ``TrinityTable`` does is refused: with a ``ReadOnlyTableError`` what writes, with an ``UnsupportedStorageError``
    what needs commits or files, of which there are none here.

    Example:
        >>> rows = spark.sql("SELECT * FROM VALUES (1, 10, 'a'), (1, 20, 'b'), (2, 10, 'c') AS t(id, ts, v)")
        >>> events = TrinityTable.external(rows, primaryKey="id", watermarkKey="ts")
        >>> events.toDF().orderBy("id").collect()
        [Row(id=1, ts=20, v='b'), Row(id=2, ts=10, v='c')]
    """

    _spark: SparkSession
    _source: DataFrame | str
    _keys: tuple[Any, ...]
    _alias: str | None = None

    @classmethod
    def of(cls, source: Any, keys: tuple[Any, ...], spark: SparkSession | None) -> ExternalTable:
        table = cls(_session_of(source, spark), source, keys)
        _ = table.definition  # refused now, not when rows are needed
        return table

    # Describing ----------------------------------------------------------------------------------------------------

    @property
    def definition(self) -> TableDefinition:
        """The keys, and the columns that the source has now. There are no properties and no file format."""
        return self._defined(self._rows())

    def alias(self, name: str) -> ExternalTable:
        """Return the table under an alias, for merges that it is the source of (default: ``source``).

        Example:
            >>> seen = TrinityTable.external(spark.sql("SELECT '1' AS order_id, 7.5 AS amount"), "order_id")
            >>> merge = orders.alias("A").merge(seen.alias("B"), "A.order_id = B.order_id")
            >>> merge.whenMatched("B.amount > A.amount").updateExpr({"amount": "B.amount"}).execute().rowsAppended
            1
        """
        if not isinstance(name, str) or not name:
            raise errors.InvalidMergeError(f"An alias must be a name, got {name!r}.")
        return attrs.evolve(self, alias=name)

    def toDF(self) -> DataFrame:
        """Return the live rows, resolved lazily (S13-S15): per primary key the freshest row, unless it is a tombstone.

        Rows that tie in every watermark column are decided by what they hold, a tombstone first, never by their order. Costs one
        shuffle by the primary key. Of a name in the catalog these are the rows it stands for at this call; a DataFrame gives what
        it gives whenever it is evaluated. A row with a null in the primary key is an error when rows are read.

        Returns:
            A DataFrame with the columns of the source, one row per live key.
        """
        rows = self._rows()
        with self._named():
            return resolve(rows, *self._keys)

    def _converted(self, *keys: Any) -> tuple[tuple[Any, ...], DataFrame]:
        """Return the keys and the rows of a managed table: the latest row of each key, tombstones included."""
        if any(keys):
            raise errors.InvalidDefinitionError(
                f"convert(): {self._what} has its keys already ({'; '.join(keys_in_words(self.definition))}). Leave primaryKey and "
                "the other keys out; or open it with the keys you mean."
            )
        rows = self._rows()
        return self._keys, latest_of_untracked(rows, self._defined(rows))

    def _as_source(self) -> DataFrame:
        return self.toDF() if self._alias is None else self.toDF().alias(self._alias)

    def _defined(self, rows: DataFrame) -> TableDefinition:
        with self._named():
            return TableDefinition.of([Field.from_json(f) for f in rows.schema.jsonValue()["fields"]], *self._keys)

    def _rows(self) -> DataFrame:
        rows = _looked_up(self._spark, self._source) if isinstance(self._source, str) else self._source
        if rows.isStreaming:
            raise errors.InvalidDefinitionError(
                f"{self._what} cannot be read: it is a stream, and which row is the freshest is known of rows that are all there. "
                "Read it with spark.read; or merge each of its micro-batches into a managed table: "
                "stream.writeStream.foreachBatch(table.foreachBatch(...))."
            )
        return rows

    @contextmanager
    def _named(self) -> Iterator[None]:
        """Name the table in errors about keys and columns: its name may mean other columns than when it was opened."""
        try:
            yield
        except errors.InvalidDefinitionError as error:
            raise errors.InvalidDefinitionError(f"{self._what}: {error}", **error.facts) from None

    # Showing -------------------------------------------------------------------------------------------------------

    @property
    def _what(self) -> str:
        return f"ExternalTable({self._source if isinstance(self._source, str) else 'a DataFrame'})"

    def __repr__(self) -> str:
        """Return one line: source and keys. It never fails, so that a notebook can show a missing table."""
        try:
            return f"{self._what[:-1]}; {'; '.join(keys_in_words(self.definition))})"
        except (errors.TrinityMergeError, PySparkException) as error:
            return f"{self._what[:-1]}: {type(error).__name__})"

    # Refused calls ---------------------------------------------------------------------------------------------

    if not TYPE_CHECKING:  # to a type checker, and to who completes names, these calls do not exist

        def __getattr__(self, name: str) -> Callable[..., Any]:
            if name in _PROPERTIES:
                raise _refusal(self, name)
            if name in WRITE_METHODS or name in REQUIRES_LOG:
                return partial(_refuse, self, name)
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


def _refuse(table: ExternalTable, call: str, *_: Any, **__: Any) -> Any:
    raise _refusal(table, call)


def _refusal(table: ExternalTable, call: str) -> errors.TrinityMergeError:
    remedy = "Make a managed table of it, TrinityTable.convert(spark, table, path), and use that."
    if call in WRITE_METHODS:
        return errors.ReadOnlyTableError(
            f"{call}() is not possible for {table._what}: an external table can only be read, because others write its rows. "
            f"{remedy}",
            call=call,
        )
    called, kind = (call, _NoAttributeError) if call in _PROPERTIES else (f"{call}()", errors.UnsupportedStorageError)
    return kind(
        f"{called} is not possible for {table._what}: this library keeps no commits and no files of an external table, and knows "
        f"only the rows it has now. {remedy}",
        call=call,
    )


def _session_of(source: Any, spark: SparkSession | None) -> SparkSession:
    if isinstance(source, str):
        return SparkSession.active() if spark is None else spark
    if not is_dataframe(source):
        hint = errors.how_to_convert(source) if errors.is_foreign_frame(source) or isinstance(source, Iterable) else ""
        raise errors.InvalidDefinitionError(
            f"An external table is made of a DataFrame, or of the name of a table or view in the session's catalog, got "
            f"{errors.kind_of(source)}.{hint}"
        )
    if spark is not None and session_key(spark) != session_key(source.sparkSession):
        raise errors.InvalidDefinitionError(
            "The DataFrame of this external table belongs to another session than spark=, which says where a name is looked up. "
            "Leave spark= out: a DataFrame is read in its own session."
        )
    return source.sparkSession


def _looked_up(spark: SparkSession, name: str) -> DataFrame:
    try:
        with suppress_error_logs():
            return force_analysis(spark.table(name))
    except Exception as error:
        if not is_spark_error(error):
            raise
        said = clean_message(error)
        if "NOT_FOUND" in str(error) or "PARSE" in str(error):
            raise errors.TableNotFoundError(
                f"There is no table or view '{name}' in the session's catalog: {said} Check the name; of files, give the rows: "
                "TrinityTable.external(spark.read.parquet(path), ...).",
                name=name,
            ) from None
        raise errors.InvalidDefinitionError(
            f"'{name}' in the session's catalog cannot be read: {said}", name=name
        ) from None
