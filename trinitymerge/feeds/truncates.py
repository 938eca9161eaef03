"""Truncates among change events: tombstones of every key (T1, T2)."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from pyspark.sql import functions as F

from trinitymerge.errors import InvalidMergeError, NullKeyError, counted
from trinitymerge.feeds.events import CALL, ChangeEvents, as_stored, with_deletes
from trinitymerge.history.versions import Timeline, valid_at
from trinitymerge.log.actions import TruncateTable
from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot
from trinitymerge.merge.compile.join import materialize
from trinitymerge.merge.execute.request import MergeSpec, StoredRows, Truncate
from trinitymerge.reader import live_rows
from trinitymerge.rows.resolution import is_older
from trinitymerge.rows.watermarks import (
    Watermark,
    is_at_least,
    sort_key,
    watermark_metrics,
    watermark_of,
    watermark_sql,
)
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores.base import TableStore


@attrs.frozen(eq=False)
class Truncated:
    """Events without their truncates, and what these do to the table (T1).

    Attributes:
        events: evaluated, if there is a truncate. Without history only those that are fresher than the last one.
        truncates: the watermarks of the truncates, in the form of the log and in their order: without history the last one.
        source_rows: of the source, truncates and all; None if it was not evaluated.
    """

    events: ChangeEvents
    truncates: tuple[Watermark, ...] = ()
    source_rows: int | None = None

    def merged_with(self, spec: MergeSpec, snapshot: Snapshot) -> tuple[ChangeEvents, MergeSpec]:
        """Return the events, deletes at truncates included, and the merge that commits the truncates."""
        if not self.truncates:
            return self.events, spec
        if snapshot.definition.history:
            ended = _with_ended(spec.store, snapshot, self.events, self.truncates)
            return ended, spec.with_feed(truncate=Truncate(self._action(snapshot)), stored=StoredRows(snapshot))
        return self._without_history(spec, snapshot)

    def _without_history(self, spec: MergeSpec, snapshot: Snapshot) -> tuple[ChangeEvents, MergeSpec]:
        """Return the same without history.

        Batches without a fresher row cease to be part of the table, and nothing is read. Where that is not enough, or deletes are
        to be counted, live rows that are not fresher are deleted.
        """
        own, last, newest = snapshot.definition, snapshot.truncate, self.truncates[-1]
        if last is not None and last.watermark != newest and is_at_least(last.watermark, newest, own):
            return self.events, spec  # it has deleted everything that this one would
        gone = [b for b in snapshot.live_batches if is_at_least(newest, b.watermark_max, own)]
        others = [b for b in snapshot.live_batches if b not in gone]
        stay = all(is_at_least(b.watermark_min, newest, own) and b.watermark_min != newest for b in others)
        if stay and not spec.settings.counts and spec.settings.max_delete_fraction is None:
            removed = tuple(b.id for b in gone)
            stored = StoredRows(snapshot, are_all=False)
            return self.events, spec.with_feed(truncate=Truncate(TruncateTable(newest), removed), stored=stored)
        moment, rows = sql_of(newest, own), live_rows(spec.store, Batches.of(snapshot), with_hidden=True)
        stale = rows.filter(E.not_(is_older(moment, [*map(E.quote, own.watermarkKey)])))
        spec = spec.with_feed(truncate=Truncate(TruncateTable(newest)), stored=StoredRows(snapshot))
        return with_deletes(self.events, own, moment, stale), spec

    def _action(self, snapshot: Snapshot) -> TruncateTable:
        """Return all truncates of a table with history: each ends row versions."""
        own, last = snapshot.definition, snapshot.truncate
        known = () if last is None else (*last.earlier, last.watermark)
        *earlier, newest = sorted({*known, *self.truncates}, key=lambda at: sort_key(at, own) or ())
        version = last.version if last is not None and newest not in self.truncates else None
        return TruncateTable(newest, version, earlier)


def since_truncate(events: ChangeEvents, own: TableDefinition) -> Truncated:
    """Evaluate the source, with sequences as the table stores them, and drop the events that its truncates delete for good."""
    events = as_stored(events, own, own.watermarkKey)
    where = E.quote(events.is_truncate)
    undated = E.any_of(E.is_null(E.quote(n)) for n in own.watermarkKey)
    counts = {"n": f"count_if({where})", "undated": f"count_if({undated})"}
    once = materialize(events.rows, {**counts, **watermark_metrics(own, where)})
    rows, observed = once.frame, once.observed
    if observed["undated"]:
        raise NullKeyError(
            f"{CALL}: {counted(observed['undated'], 'event')} of the source have no place in the sequence "
            f"({', '.join(own.watermarkKey)}). Nothing was written. Filter them out, or give them one.",
            columns=own.watermarkKey,
            rows=observed["undated"],
        )
    of_keys = attrs.evolve(events, rows=rows.drop(events.is_truncate))
    if not observed["n"]:
        return Truncated(of_keys, (), once.rows)
    exact, columns = E.is_case_sensitive(rows.sparkSession), rows.columns
    watermark = [E.quote(E.find_name(n, columns, exact) or n) for n in own.watermarkKey]
    if own.history:
        sql_of(watermark_of(observed, "max", own) or (), own)
        grouped = rows.filter(where).groupBy(*watermark)
        values = [F.expr(sql).alias(n) for n, sql in watermark_metrics(own, E.TRUE).items()]
        found = [watermark_of(r.asDict(), "max", own) or () for r in grouped.agg(*values).collect()]
        truncates = sorted(found, key=lambda at: sort_key(at, own) or ())
        stays = E.all_of(E.not_(E.all_of(map(E.same, sql_of(at, own), watermark))) for at in truncates)
    else:
        truncates = [watermark_of(observed, "max", own) or ()]
        stays = is_older(sql_of(truncates[0], own), watermark)
    rows = rows.filter(E.all_of([E.not_(Sql(where)), stays])).drop(events.is_truncate)
    return Truncated(attrs.evolve(events, rows=rows), tuple(truncates), once.rows)


def _with_ended(
    store: TableStore, snapshot: Snapshot, events: ChangeEvents, truncates: Sequence[Watermark]
) -> ChangeEvents:
    """Add a delete for each key that holds at a truncate of a table with history, at its place."""
    timeline = Timeline(store, snapshot.definition)
    for at in truncates:
        moment = sql_of(at, snapshot.definition)
        events = with_deletes(events, snapshot.definition, moment, valid_at(timeline, snapshot, moment[0]))
    return events


def sql_of(watermark: Watermark, own: TableDefinition) -> list[Sql]:
    found = watermark_sql(watermark, own)
    if found is None:
        raise InvalidMergeError(
            f"{CALL}: a truncate has no sequence, or one of a type that applyAsTruncates cannot compare "
            f"({', '.join(own.field(n).text for n in own.watermarkKey)}). Give the table a watermark of type BIGINT, DECIMAL, "
            "STRING, DATE or TIMESTAMP. Nothing was written."
        )
    return found
