"""`snapshot`: a full extract compared with the table (H11)."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import attrs
from pyspark.sql import DataFrame, SparkSession, functions as F

from trinitymerge import reader
from trinitymerge.errors import InvalidMergeError, missing
from trinitymerge.feeds.casts import cast_to_stored, lacks_fields, may_misfit
from trinitymerge.feeds.events import ChangeEvents, free_name, named
from trinitymerge.history.versions import Timeline, literal, valid_at
from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot
from trinitymerge.merge.analysis.analyze import completed, part_of
from trinitymerge.merge.analysis.relations import whole_row
from trinitymerge.merge.compile.join import materialize
from trinitymerge.merge.compile.strategies import FULL_SCAN
from trinitymerge.merge.execute.request import Extract, MergeSpec, Rejected, StoredRows
from trinitymerge.merge.execute.schema_changes import evolve_schema
from trinitymerge.merge.model.clauses import All, Update, WhenMatched
from trinitymerge.rows.equality import comparable
from trinitymerge.rows.watermarks import Watermark, is_at_least, literal_sql, sort_key, watermark_metrics, watermark_of
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.errors import analysis_errors
from trinitymerge.spark.observe import Metrics
from trinitymerge.spark.session import force_analysis
from trinitymerge.spark.sql_text import Sql, as_sql
from trinitymerge.stores.base import TableStore

CALL = "snapshot()"

_logger = logging.getLogger(__name__)


@attrs.frozen(eq=False)
class SnapshotFeed:
    """A full extract and its moment.

    Attributes:
        at: the moment, as SQL.
        moment: in the form of the log.
        deletes: keys that are missing are deleted.
        follows: the table makes room for what the extract brings, which may lack any column but the key's (S44).
        carried, number: columns of a source that is judged for a quarantine, beside :data:`C.REASON`: the user's row, and its
            number. Empty without one.
    """

    source: DataFrame
    own: TableDefinition
    at: Sql
    moment: Watermark
    deletes: bool
    follows: bool = False
    carried: str = ""
    number: str = ""

    @classmethod
    def of(cls, spark: SparkSession, source: DataFrame, own: TableDefinition, when: Any, deletes: bool) -> SnapshotFeed:
        if len(own.watermarkKey) != 1:
            declared = ", ".join(own.watermarkKey) or "none"
            raise InvalidMergeError(
                f"{CALL} is taken at one moment, and so needs a table with one watermark column, and this one declares {declared}."
            )
        at = literal(spark, when, own.field(own.watermarkKey[0]), "at")
        row = source.sparkSession.range(1).selectExpr(f"{at} AS {E.quote(own.watermarkKey[0])}")
        moment = watermark_of(Metrics(watermark_metrics(own, E.TRUE)).compute(row), "max", own)
        if moment is None or sort_key(moment, own) is None:
            raise InvalidMergeError(
                f"{CALL}: moments of type {own.field(own.watermarkKey[0]).text} cannot be compared in the log. "
                "Use a watermark column of type TIMESTAMP, DATE or BIGINT."
            )
        return cls(source, own, at, moment, deletes)

    def merge(self, spec: MergeSpec, snapshot: Snapshot) -> MergeSpec:
        """Return the merge of an extract. An extract without rows changes nothing (S37)."""
        extract, rows_of_source = self._fitted(snapshot.definition, spec), None
        if spec.settings.quarantine is not None:
            extract, rejected, rows_of_source = extract._judged()
            spec = spec.with_feed(rejected=rejected, source_rows=rows_of_source)
        comparing = SnapshotDiff.of(extract, spec.store, attrs.evolve(snapshot, definition=extract.own))
        with analysis_errors(CALL):
            rows = E.with_metadata(force_analysis(comparing.rows()), extract.own)
            mentioned = filter(None, (comparing.holds, extract.carried, extract.number))
            events = ChangeEvents(rows, comparing.flag, comparing.flag, mentioned=(*mentioned,))
        spec = attrs.evolve(spec, source=rows, clauses=named(*events.clauses, call=CALL), definition=extract.own)
        spec = spec.with_feed(stored=StoredRows(snapshot, FULL_SCAN, comparing.holds))
        if rows_of_source == 0 or (rows_of_source is None and self.source.isEmpty()):
            return attrs.evolve(spec, source=rows.limit(0))
        held = None if comparing.is_latest else comparing.held
        exact = E.is_case_sensitive(self.source.sparkSession)
        ignored = tuple(n for n in self.source.columns if E.find_name(n, extract.own.names, exact) is None)  # S22a
        return spec.with_feed(extract=Extract(self.moment, held), ignored=ignored)

    def _fitted(self, own: TableDefinition, spec: MergeSpec) -> SnapshotFeed:
        """Return the extract, and the definition with the columns that it adds (S44)."""
        follows = spec.settings.schema_evolution
        if follows:
            own = evolve_schema(own, self.source, None, (WhenMatched(None, [Update(All())]),), spec.settings.at)
        optional = {*own.watermarkKey, own.tombstoneKey, *(f.name for f in own.fields if f.may_be_left_out)}
        optional |= {n for n in own.names if follows and n not in own.primaryKey}
        exact = E.is_case_sensitive(self.source.sparkSession)
        lacking = [n for n in own.names if n not in optional and E.find_name(n, self.source.columns, exact) is None]
        if lacking:
            raise InvalidMergeError(
                f"{CALL} takes every column from the source. {missing(lacking, 'the source', self.source.columns)}",
                columns=lacking,
            )
        return attrs.evolve(self, own=own, follows=follows)

    def _judged(self) -> tuple[SnapshotFeed, Rejected, int]:
        """Evaluate the extract once, with the reasons of rows that have a value that does not fit: they go into the quarantine."""
        own, source = self.own, self.source
        taken = [*source.columns, *own.names]
        carried, number = free_name("source_row", taken), free_name("row_number", taken)
        columns = [(f, self.column(f)) for f in own.fields if f.name not in own.watermarkKey]
        values = {f.name: (c, self.fitting(f, fails=False)) for f, c in columns if c is not None}
        dead = values.get(own.tombstone_column)
        lives = E.TRUE if dead is None else E.not_(E.is_tombstone(own, dead[1]))  # S9
        reasons = []
        for name, (column, value) in values.items():
            is_key = name in own.primaryKey
            if may_misfit(source, column, own.field(name), is_key, self.follows):
                applies = E.TRUE if is_key or name == own.tombstone_column else lives
                wrong = [applies, E.is_not_null(E.quote(column)), E.is_null(value)]
                reasons.append((E.all_of(wrong), E.text_literal(f"type:{name}")))
        reason = E.case(reasons, Sql("CAST(NULL AS STRING)"))
        shown = [f"{reason} AS {C.REASON}", f"{whole_row(source.columns)} AS {E.quote(carried)}"]
        numbered = source.selectExpr("*", *shown, f"monotonically_increasing_id() AS {E.quote(number)}")
        keyless = E.any_of(E.is_null(values[k][1]) for k in own.primaryKey)
        once = materialize(numbered, {"rejected": f"count({C.REASON})", "keyless": E.count_where(keyless)})
        if self.deletes and once.observed["keyless"]:
            have = "row of the extract has" if once.observed["keyless"] == 1 else "rows of the extract have"
            told = "%s: %d %s no key of the table. They may be any of the keys that it lacks, so it deletes none."
            _logger.warning(told, CALL, once.observed["keyless"], have)
        deletes = self.deletes and not once.observed["keyless"]
        judged = attrs.evolve(self, source=once.frame, carried=carried, number=number, deletes=deletes)
        keys = ", ".join(f"{values[k][1]} AS {E.quote(k)}" for k in own.primaryKey)
        shown = [f"{C.REASON} AS reason", f"{E.quote(carried)} AS source", f"struct({keys}) AS keys"]
        events = once.frame.where(E.is_not_null(C.REASON)).selectExpr(*shown) if once.observed["rejected"] else None
        return judged, Rejected(events=events, carried=carried, number=number), once.rows

    def column(self, field: Field) -> str | None:
        """Return the extract's column for a field, or None if the extract lacks an optional one (S22)."""
        return E.find_name(field.name, self.source.columns, E.is_case_sensitive(self.source.sparkSession))

    def fitting(self, field: Field, fails: bool) -> Sql:
        """Return a value in its stored type; null for a missing column. A value that does not fit ``fails``, or is null."""
        column, is_key = self.column(field), field.name in self.own.primaryKey
        if column is None:
            return Sql(E.null_of(field))
        return cast_to_stored(self.source, column, field, CALL, is_key, fails, self.follows)

    def later(self, taken: Sequence[Watermark]) -> Watermark | None:
        mine = sort_key(self.moment, self.own)
        known = [(place, moment) for moment in taken if (place := sort_key(moment, self.own)) is not None]
        following = [(place, moment) for place, moment in known if mine is not None and place > mine]
        return min(following, key=lambda f: f[0])[1] if following else None


@attrs.frozen(eq=False)
class SnapshotDiff:
    """An extract beside what the table held at its moment.

    Attributes:
        is_live: SQL that is true of live rows.
        is_latest: these are the latest rows of their keys, which the merge replaces.
        following: the next moment that was taken, as SQL, if there is one.
        written: keys of which something is stored after the moment, up to the next; as :data:`C.KEY_TO_FIND`.
    """

    extract: SnapshotFeed
    held: DataFrame
    is_live: Sql
    is_latest: bool
    following: Sql | None
    written: DataFrame | None

    @classmethod
    def of(cls, extract: SnapshotFeed, store: TableStore, snapshot: Snapshot) -> SnapshotDiff:
        own, batches = extract.own, Batches.of(snapshot)
        next_moment = extract.later(snapshot.extracts)
        if not own.history:
            if next_moment is not None:
                raise InvalidMergeError(
                    f"{CALL}: an extract of a later moment has been taken already, and {store.path} keeps no versions that this "
                    "one could be compared with. Take extracts in order, or create the table with history=True."
                )
            return cls(extract, *reader.live_or_dead(store, batches), True, None, None)
        timeline = Timeline(store, own)
        kind = E.physical_type(own.field(own.watermarkKey[0]))
        following = None if next_moment is None else literal_sql(next_moment[0], kind)
        is_newest = all(is_at_least(extract.moment, b.watermark_max or (), own) for b in batches.batches if b.rows)
        held, is_live = (
            reader.live_or_dead(store, batches) if is_newest else (valid_at(timeline, snapshot, extract.at), E.TRUE)
        )
        if following is None:
            return cls(extract, held, is_live, is_newest, None, None)
        begins = E.quote(own.watermarkKey[0])
        between = timeline.scan(snapshot.batches).filter(f"{begins} > {extract.at} AND {begins} <= {following}")
        written = between.selectExpr(*reader.keys_to_find(own)).distinct()
        return cls(extract, held, is_live, is_newest, Sql(following), written)

    @property
    def flag(self) -> str:
        return free_name("is_delete", self.extract.own.names)

    @property
    def holds(self) -> str:
        """The name of the column that says what the key of an event holds; empty if that is not known."""
        taken = [*self.extract.own.names, *self.extract.source.columns, self.flag]
        return free_name("holds", taken) if self.is_latest else ""

    def rows(self) -> DataFrame:
        """Return the events: the table's columns, the moment, a delete flag, and the row that the key holds."""
        keys = [f"k{i}" for i in range(len(self.extract.own.primaryKey))]
        joined = self._given().join(self._held(), on=keys, how="full_outer")
        is_given, is_held = (E.is_not_null(Sql(side)) for side in ("given", "held"))
        # A rejected row says nothing but that its key is there (S47).
        counts = E.is_null(C.REASON) if self.extract.carried else E.TRUE
        dies = E.all_of([counts, E.or_else(Sql("given.dies"), E.FALSE)])
        # Rows that contradict each other are all written, for the merge to refuse them (S12).
        differs = E.any_of([Sql("contradicts"), E.all_of([E.not_(dies), self._differs()])])
        changed = E.all_of([is_given, counts, differs])
        gone = E.all_of([is_held, E.any_of([dies, *([E.not_(is_given)] if self.extract.deletes else [])])])
        return self._told(keys, self._spread(keys, joined.filter(E.any_of([changed, gone]))))

    def _spread(self, keys: Sequence[str], events: DataFrame) -> DataFrame:
        """Return one row for what the extract says, and one for what held at the next moment if nothing is stored in between."""
        values = "".join(f", 'v{i}', {self._value(i, f)}" for i, f in enumerate(self._values()))
        row = f"CASE WHEN NOT given.dies THEN named_struct('dies', {E.FALSE}{values}) END"
        own = f"named_struct('at', {self.extract.at}, 'row', {row})"
        if self.following is None or self.written is None:
            return events.selectExpr(*keys, "holds", f"{own} AS event", *self._carried)
        find = E.all_of(E.equals(Sql(k), C.KEY_TO_FIND(i)) for i, k in enumerate(keys))
        marked = events.join(self.written.selectExpr("*", "true AS is_written"), F.expr(find), "left_outer")
        kept = f"named_struct('at', {self.following}, 'row', held)"
        each = f"explode(CASE WHEN is_written THEN array({own}) ELSE array({own}, {kept}) END) AS event"
        return marked.selectExpr(*keys, "holds", each, *self._carried)

    def _told(self, keys: Sequence[str], events: DataFrame) -> DataFrame:
        own, row = self.extract.own, Sql("event.row")
        return events.selectExpr(
            *[f"{k} AS {E.quote(n)}" for k, n in zip(keys, own.primaryKey, strict=True)],
            f"event.at AS {E.quote(own.watermarkKey[0])}",
            *[f"{E.field_of(row, f'v{i}')} AS {E.quote(f.name)}" for i, f in enumerate(self._values())],
            f"{E.is_null(row)} AS {E.quote(self.flag)}",
            *([f"holds AS {E.quote(self.holds)}"] if self.holds else []),
            *self._carried,
        )

    @property
    def _carried(self) -> list[Sql]:
        return [E.quote(name) for name in (self.extract.carried, self.extract.number) if name]

    def _values(self) -> list[Field]:
        """Return the compared columns: all but key and moment, and the tombstone key if the extract has it."""
        own = self.extract.own
        fixed = {*own.primaryKey, *own.watermarkKey}
        values = [f for f in own.fields if f.name not in fixed]
        return [f for f in values if f.name != own.tombstoneKey or self.extract.column(f) is not None]

    def _given(self) -> DataFrame:
        """Return the extract: keys, the other columns as a struct, and whether a key has different rows."""
        own, values = self.extract.own, self._values()
        keys = [Sql(f"k{i}") for i in range(len(own.primaryKey))]
        kept = [f"{self._fitting(own.field(n))} AS {k}" for k, n in zip(keys, own.primaryKey, strict=True)]
        carried = [C.REASON, *self._carried] if self.extract.carried else []
        dead = next((E.is_tombstone(own, self._fitting(f)) for f in values if f.name == own.tombstoneKey), E.FALSE)
        struct = ", ".join([f"'dies', {dead}", *(f"'v{i}', {self._fitting(f)}" for i, f in enumerate(values))])
        rows = self.extract.source.selectExpr(*kept, f"named_struct({struct}) AS given", *carried)
        if carried:  # without a key, a rejected row is beside no other
            rows = rows.where(E.any_of([E.is_null(C.REASON), E.all_of(map(E.is_not_null, keys))]))
        parts = ", ".join(
            comparable(E.field_of(Sql("given"), f"v{i}"), E.physical_type(f)) for i, f in enumerate(values)
        )
        content = Sql(f"struct(given.dies, CASE WHEN NOT given.dies THEN struct({parts or '0'}) END)")
        content = E.case([(E.is_null(C.REASON), content)]) if carried else content
        least, most = (E.over(Sql(f"{which}({content})"), keys) for which in ("min", "max"))
        # A row with a null key is written, for the merge to refuse it.
        nulls = E.any_of(map(E.is_null, keys))
        alive = "".join(f", 'v{i}', given.v{i}" for i in range(len(values)))
        given = f"CASE WHEN {nulls} THEN named_struct('dies', {E.FALSE}{alive}) ELSE given END AS given"
        contradicts = f"{E.any_of([nulls, Sql(f'{least} <> {most}')])} AS contradicts"
        marked = rows.selectExpr(*keys, "given", contradicts, *carried)
        return marked.selectExpr(*keys, given, "contradicts", *carried)

    def _fitting(self, field: Field) -> Sql:
        """Return a value of the extract in its stored type; null for a missing column, which :meth:`_value` fills."""
        return self.extract.fitting(field, fails=not self.extract.carried)

    def _value(self, i: int, field: Field) -> Sql:
        """Return the value of an extract row; the held value for columns that the extract lacks."""
        given, held, column = (
            E.field_of(Sql("given"), f"v{i}"),
            E.field_of(Sql("held"), f"v{i}"),
            self.extract.column(field),
        )
        if column is None:
            default = as_sql(field.default) if field.default is not None else E.NULL
            default = E.cast(default, E.physical_type(field))
            return E.case([(E.is_null(Sql("held")), default)], held)
        kind = self.extract.source.schema[column].dataType
        wanted = E.physical_type(field)
        is_whole = not lacks_fields(kind, field, self.extract.follows)
        return given if is_whole else completed(given, part_of(wanted, kind), wanted, held)

    def _held(self) -> DataFrame:
        own = self.extract.own
        keys = [f"{E.quote(k)} AS k{i}" for i, k in enumerate(own.primaryKey)]
        values = ", ".join(["'dies', false", *(f"'v{i}', {E.quote(f.name)}" for i, f in enumerate(self._values()))])
        latest = f"named_struct('live', {self.is_live}, 'w0', {E.quote(own.watermarkKey[0])})"
        held = E.case([(self.is_live, Sql(f"named_struct({values})"))])
        return self.held.selectExpr(*keys, f"{held} AS held", f"{latest} AS holds")

    def _differs(self) -> Sql:
        compared = [(i, f) for i, f in enumerate(self._values()) if self.extract.column(f) is not None]
        sides = [(f, self._value(i, f), E.field_of(Sql("held"), f"v{i}")) for i, f in compared]
        equal = E.all_of(E.same(*(comparable(v, E.physical_type(f)) for v in both)) for f, *both in sides)
        return E.any_of([E.is_null(Sql("held")), E.not_(equal)])
