"""The tables that names refer to, and queries over tables outside of Spark's catalogs."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import attrs
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import DataFrame, SparkSession

from trinitymerge import errors
from trinitymerge.external import ExternalTable
from trinitymerge.merge.model.names import name_parts
from trinitymerge.spark import expressions as E
from trinitymerge.spark.errors import clean_message, refused_name, suppress_error_logs
from trinitymerge.spark.session import force_analysis, is_dataframe, session_key, supports_writes
from trinitymerge.statements.error_locations import find_names
from trinitymerge.statements.queries import RewrittenText, replaced
from trinitymerge.statements.tree import Query, Reference, sql_error
from trinitymerge.stores.registry import store_uri
from trinitymerge.table import TrinityTable


@attrs.frozen(eq=False)
class Names:
    spark: SparkSession
    text: str
    tables: Mapping[str, TrinityTable | ExternalTable | str | DataFrame]
    _frames: list[DataFrame] = attrs.field(factory=list, init=False)
    _known: dict[Any, int] = attrs.field(factory=dict, init=False)

    @classmethod
    def of(cls, spark: SparkSession, text: str, tables: Any) -> Names:
        if not isinstance(tables, Mapping):
            raise errors.InvalidMergeError(f"tables maps names to tables or paths, got {errors.kind_of(tables)}.")
        for name, table in tables.items():
            if not isinstance(name, str) or not name:
                raise errors.InvalidMergeError(f"tables: names are strings that are not empty, got {name!r}.")
            if not isinstance(table, (TrinityTable, ExternalTable, str)) and not is_dataframe(table):
                hint = errors.how_to_convert(table) if errors.is_foreign_frame(table) else ""
                raise errors.InvalidMergeError(
                    f"tables maps names to TrinityTable objects, their paths, or DataFrames, got {errors.kind_of(table)} for "
                    f"'{name}'.{hint}"
                )
        return cls(spark, text, tables)

    # Tables ---------------------------------------------------------------------------------------------------------

    def target(self, reference: Reference, alias: str | None = None) -> TrinityTable:
        """Return the table that a statement changes, with its alias, or else its name, as alias."""
        found = self._found(reference)
        if found is None:
            raise self._unknown(reference)
        if not isinstance(found, (TrinityTable, str)):
            kind = "an external table" if isinstance(found, ExternalTable) else "a DataFrame"
            raise self.error(reference, f"'{reference.name}' is {kind}, which is read-only.")
        table = found if isinstance(found, TrinityTable) else TrinityTable.forPath(self.spark, found)
        own = None if self._given(reference) is None else reference.parts[-1]
        return table if alias is None and own is None else table.alias(alias or own or "")

    def error(self, reference: Reference, message: str) -> errors.SqlError:
        return sql_error(self.text, reference.start, message, self.text[reference.start : reference.end])

    def _given(self, reference: Reference) -> str | None:
        return E.find_name(reference.name, self.tables, E.is_case_sensitive(self.spark))

    def _found(self, reference: Reference) -> TrinityTable | ExternalTable | str | DataFrame | None:
        name = self._given(reference)
        return reference.path if name is None else self.tables[name]

    def _unknown(self, reference: Reference) -> errors.SqlError:
        return self.error(
            reference,
            f"There is no table '{reference.name}'.{errors.did_you_mean(reference.name, self.tables)} Name it in tables="
            f"{{'{reference.name}': table or path}}, or give its path in backticks: trinity.`/tables/{reference.parts[-1]}`.",
        )

    # Queries --------------------------------------------------------------------------------------------------------

    def rows(self, query: Query) -> DataFrame:
        """Return the rows of a query; each table is read at one version."""
        frames, names = dict[str, Any](), list[tuple[Reference, str]]()
        for reference, number in self._read_for(query.references):
            frames[f"t{number}"] = self._frames[number]
            names.append((reference, f"{{t{number}}}"))
        text = query.text
        if names:  # PySpark finds DataFrames by braces
            text = replaced(text, names, _escaped).written(_escaped)
        return self._analyzed(query, text, frames)

    @contextmanager
    def views(self, references: Iterable[Reference]) -> Iterator[RewrittenText]:
        """Replace tables that Spark does not know by temporary views, which exist until the context ends.

        Each attempt of a merge analyzes its expressions again, so the views must exist until the last one.
        """
        views, names = dict[int, str](), list[tuple[Reference, str]]()
        try:
            for reference, number in self._read_for(references):
                if number not in views:
                    views[number] = f"trinitymerge_{uuid.uuid4().hex}"
                    self._frames[number].createOrReplaceTempView(views[number])
                names.append((reference, views[number]))
            yield replaced(self.text, names)
        finally:
            for view in views.values():
                self.spark.catalog.dropTempView(view)

    def _read_for(self, references: Iterable[Reference]) -> list[tuple[Reference, int]]:
        """Return the known names and the indexes of their DataFrames, one for each table and version."""
        numbers = list[tuple[Reference, int]]()
        for reference in references:
            found = self._found(reference)
            if found is None:
                continue  # Spark knows it, or raises an error
            found = TrinityTable.forPath(self.spark, found) if isinstance(found, str) else found
            what = (found.path, found._pinned) if isinstance(found, TrinityTable) else id(found)
            key = (what, reference.version, reference.timestamp)
            if key not in self._known:
                self._known[key] = len(self._frames)
                self._frames.append(self._frame(reference, found))
            numbers.append((reference, self._known[key]))
        return numbers

    def _frame(self, reference: Reference, found: TrinityTable | ExternalTable | DataFrame) -> DataFrame:
        if isinstance(found, TrinityTable):
            return self._at_version(reference, found)
        if reference.is_past:
            kind = "an external table" if isinstance(found, ExternalTable) else "a DataFrame"
            raise self.error(reference, f"'{reference.parts[-1]}' is {kind}, which has no versions.")
        found = found.toDF() if isinstance(found, ExternalTable) else found
        if not self._is_here(found):
            raise self.error(
                reference,
                "This DataFrame belongs to another session. Run the statement in that one: sql(df.sparkSession, ...).",
            )
        return found

    def _at_version(self, reference: Reference, table: TrinityTable) -> DataFrame:
        version = reference.version
        if not reference.is_past:
            rows = table.toDF()
            if self._is_here(rows):
                return rows
            version = table.version
        try:
            return TrinityTable.forPath(self.spark, store_uri(table._store), version, reference.timestamp).toDF()
        except (ValueError, errors.TableNotFoundError) as error:
            raise self.error(reference, str(error)) from None

    def _is_here(self, rows: DataFrame) -> bool:
        return session_key(rows.sparkSession) == session_key(self.spark)

    def _analyzed(self, query: Query, text: str, frames: dict[str, Any]) -> DataFrame:
        if frames and not supports_writes(self.spark):
            raise sql_error(
                self.text,
                query.references[0].start,
                "PySpark 3.5 on Spark Connect cannot use DataFrames in SQL text. Use PySpark 4.0 or newer, a classic session, or "
                "table.toDF().",
            )
        try:
            with suppress_error_logs():
                return force_analysis(self.spark.sql(text, **frames))
        except (AnalysisException, ParseException) as error:
            raise self._refused(query, error) from None

    def _refused(self, query: Query, error: AnalysisException | ParseException) -> errors.SqlError:
        name = refused_name(error)
        if name is not None and "TABLE_OR_VIEW_NOT_FOUND" in str(error):
            unknown = [r for r in query.references if self._found(r) is None and r.parts[-1] == name_parts(name)[-1]]
            if unknown:
                known = errors.did_you_mean(unknown[0].name, self.tables)
                return self.error(unknown[0], f"There is no table or view '{unknown[0].name}'.{known}")
        place = None if name is None else find_names(query.text, [name])
        start = len(query.text) - len(query.text.lstrip())
        return sql_error(self.text, start if place is None else place, f"The query: {clean_message(error)}")


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
