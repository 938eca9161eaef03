"""`applyChanges`: change events as a merge, in any order and batching (H9)."""

from __future__ import annotations

from itertools import count

import attrs
from pyspark.sql import DataFrame

from trinitymerge.feeds.casts import lacking_fields
from trinitymerge.feeds.events import CALL, ChangeEvents, ChangeFeed, check, check_taken, events_of, free_name
from trinitymerge.feeds.fill import evaluated, filled
from trinitymerge.feeds.judging import Judge
from trinitymerge.feeds.key_changes import with_deletes_of_old_keys
from trinitymerge.feeds.truncates import Truncated, since_truncate
from trinitymerge.log.model import Snapshot
from trinitymerge.merge.analysis.relations import whole_row
from trinitymerge.merge.compile.strategies import KEY_LOOKUP
from trinitymerge.merge.execute.request import MergeSpec, Rejected, StoredRows
from trinitymerge.merge.execute.schema_changes import evolve_schema
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E
from trinitymerge.stores.base import require_managed


def merge_of_events(source: DataFrame, feed: ChangeFeed, spec: MergeSpec, snapshot: Snapshot) -> MergeSpec:
    """Return the merge of the events: blind, unless they leave something unset, or are to be searched for truncates."""
    check(snapshot.definition, feed)
    source, feed, spec = _with_source_rows(source, snapshot.definition, feed, spec)
    asked = attrs.evolve(feed, follows=spec.settings.schema_evolution)
    own, events, told = _fitted(source, snapshot.definition, asked, spec)
    seen, total = attrs.evolve(snapshot, definition=own), None
    judge = Judge.of(seen, told, spec)
    if judge is not None:
        events, judge, total = judge.one_by_one(events, seen)
        told = judge.feed
    if told.may_leave_unset:
        require_managed(spec.store, f"{CALL} with events that leave columns unchanged")
        events, told = evaluated(seen, events, told)
    truncated = Truncated(events)
    if feed.truncates is not None:
        require_managed(spec.store, f"{CALL} with applyAsTruncates")
        truncated = since_truncate(events, own)
    events, spec = truncated.merged_with(spec, snapshot)
    truncate = spec.feed.truncate
    deletes = truncate is not None and not own.history and not truncate.removed
    fills = told.may_leave_unset or deletes or bool(truncated.truncates and snapshot.has_partial)
    for round in count():
        done, counted = with_deletes_of_old_keys(events, own, snapshot.purged)
        if not fills:
            break
        done, holds, registers = filled(spec.store, seen, done, told, truncated.truncates)
        read = spec.feed.stored or StoredRows(snapshot)
        stored = attrs.evolve(read, read_by=KEY_LOOKUP, column=holds, unset=registers)
        spec = spec.with_feed(stored=stored)
        if judge is None:
            break
        done, accepted, judge = judge.filled(events, done, holds, round)
        if accepted is None:
            break
        events = accepted
    rows_of_source = next((n for n in (total, truncated.source_rows, counted) if n is not None), None)
    if judge is not None:
        spec = spec.with_feed(rejected=attrs.evolve(judge.rejected, number=events.number, are_all=fills))
    done = done.without_hidden
    rows = E.with_metadata(done.rows, own)
    if fills:
        rows = _with_stored_keys(rows, own)
    return attrs.evolve(spec, source=rows, clauses=done.clauses, definition=own).with_feed(source_rows=rows_of_source)


def _with_source_rows(
    source: DataFrame, own: TableDefinition, feed: ChangeFeed, spec: MergeSpec
) -> tuple[DataFrame, ChangeFeed, MergeSpec]:
    """Return events that carry their source rows, for a quarantine: as messages of a feed do."""
    if spec.settings.quarantine is None:
        return source, feed, spec
    carried = spec.feed.rejected.carried
    if not carried:
        carried = free_name("source_row", [*source.columns, *own.names])
        spec = spec.with_feed(rejected=Rejected(carried=carried))
        source = source.selectExpr("*", f"{whole_row(source.columns)} AS {E.quote(carried)}")
    left = (*feed.except_columns, *((carried,) if carried not in feed.except_columns else ()))
    return source, attrs.evolve(feed, except_columns=left if feed.columns is None else (), carried=carried), spec


def _with_stored_keys(rows: DataFrame, own: TableDefinition) -> DataFrame:
    """Return events whose keys are cast already, so that keys of type CHAR are compared as stored."""
    exact = E.is_case_sensitive(rows.sparkSession)
    for key in own.primaryKey:
        column = E.find_name(key, rows.columns, exact)
        if column is not None and E.declared_length(own.field(key)):
            rows = rows.withMetadata(column, {**rows.schema[column].metadata, **E.AS_STORED})
    return rows


def _fitted(
    source: DataFrame, own: TableDefinition, feed: ChangeFeed, spec: MergeSpec
) -> tuple[TableDefinition, ChangeEvents, ChangeFeed]:
    """Return the definition with the columns that the events add (S44), the events, and the columns they lack (S22)."""
    events, before = events_of(source, own, feed), own
    if feed.follows:
        own = evolve_schema(own, events.of_keys, None, events.clauses, spec.settings.at)
    check_taken(own, feed)
    source, told = _without_columns(source, own, feed)
    is_same = told is feed and own == before
    return own, events if is_same else events_of(source, own, told), told


def _without_columns(source: DataFrame, own: TableDefinition, feed: ChangeFeed) -> tuple[DataFrame, ChangeFeed]:
    """Return events that leave the optional columns and fields unset that they lack (S22, U6)."""
    if feed.columns is not None:  # what is not among the columns is null
        return source, feed
    exact = E.is_case_sensitive(source.sparkSession)
    excepted = {name.casefold() for name in feed.except_columns}
    roles = {*own.primaryKey, *own.watermarkKey, own.tombstoneKey}
    asked = [f for f in own.fields if f.name.casefold() not in excepted and f.name not in roles]
    found = [(f, E.find_name(f.name, source.columns, exact)) for f in asked]
    absent = [f for f, name in found if name is None and (feed.follows or f.may_be_left_out)]
    kinds = [(f, source.schema[name].dataType) for f, name in found if name is not None]
    fields = [(f.name, *path) for f, kind in kinds for path in lacking_fields(kind, f, feed.follows)]
    if not absent and not fields:
        return source, feed
    beside = [f"{E.null_of(f)} AS {E.quote(f.name)}" for f in absent]
    told = attrs.evolve(feed, lacking=(*((f.name,) for f in absent), *fields))
    return source.selectExpr("*", *beside), told
