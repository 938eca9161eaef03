"""``applyChanges`` as a merge (H9, H10).

Owns: whether it reads the table before it writes, and what it makes room for (S44). What it writes stands in ``events.py`` and
``nullfill.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import attrs
from pyspark.sql import DataFrame

from trinitymerge.definition import TableDefinition
from trinitymerge.expressions import find_name, is_case_sensitive, null_of, quote
from trinitymerge.merge.builder import MergeBuilder
from trinitymerge.merge.feeds.derived import Derive, Derived, DerivedMerge
from trinitymerge.merge.feeds.events import (
    CALL,
    Events,
    Feed,
    SinceTruncate,
    check,
    check_taken,
    events_of,
    since_truncate,
)
from trinitymerge.merge.feeds.fitting import lacking_fields
from trinitymerge.merge.feeds.nullfill import filled
from trinitymerge.merge.paths.keyed import KEYED
from trinitymerge.merge.run.following import followed
from trinitymerge.merge.run.plan import Options
from trinitymerge.reader import with_comments
from trinitymerge.storage.backend import TimeTravel
from trinitymerge.storage.entries import Snapshot

Begin: TypeAlias = Callable[[DataFrame | None], MergeBuilder]
"""From a source to a merge by primary key that has no clause yet."""


def apply_changes(begin: Begin, store: TimeTravel, source: DataFrame, feed: Feed, alias: str) -> MergeBuilder:
    """The merge of a source of events. Blind, unless nulls are to be filled, or truncates to be looked for.

    Args:
        begin: makes a merge.
        store: where the table is.
        source: the events.
        feed: what is said about them.
        alias: the target's.
    """

    def derive(snapshot: Snapshot, options: Options) -> Derived:
        check(snapshot.definition, feed)
        asked = attrs.evolve(feed, follows=options.follows_source)
        own, events, told = _fitted(source, snapshot.definition, asked, options)
        made: dict[str, Any] = {}
        since = SinceTruncate(events)
        if feed.truncates is not None:
            since = since_truncate(events, own, alias)
            made |= {"at": since.at, "based_on": snapshot}
        done = since.events
        if told.fills:
            done, holds = filled(store, attrs.evolve(snapshot, definition=own), done, told, since.at)
            made |= {"based_on": snapshot, "computed_by": KEYED, "holds": "" if since.at else holds}
        return Derived(with_comments(done.rows, own), (*done.clauses, *since.clauses), own, made)

    return derived(begin, derive, CALL, is_sequenced=True)


def _fitted(
    source: DataFrame, own: TableDefinition, feed: Feed, options: Options
) -> tuple[TableDefinition, Events, Feed]:
    """The events as the table takes them: the definition, with room for what they bring (S44), and what they lack (S22)."""
    events = events_of(source, own, feed)
    if options.follows_source:
        own = followed(own, events.of_keys, None, events.clauses, options)
    check_taken(own, feed)
    if own.history:
        source, told = _without_columns(source, own, feed)
        return own, events if told is feed else events_of(source, own, told), told
    return own, events, feed


def _without_columns(source: DataFrame, own: TableDefinition, feed: Feed) -> tuple[DataFrame, Feed]:
    """Events that know nothing of a column or field, and need not: they leave it as it was before, in the data's time (S22, H10).

    Where there was nothing it is the default (S46). In a table without history they leave it as it is, as any update does.
    """
    if feed.columns is not None:  # what is not among the columns is null
        return source, feed
    exact = is_case_sensitive(source.sparkSession)
    excepted = {name.casefold() for name in feed.except_columns}
    roles = {*own.primaryKey, *own.watermarkKey, own.tombstoneKey}
    asked = [f for f in own.fields if f.name.casefold() not in excepted and f.name not in roles]
    found = [(f, find_name(f.name, source.columns, exact)) for f in asked]
    absent = [f for f, name in found if name is None and (feed.follows or f.may_be_left_out)]
    fields = [
        (f.name, *path)
        for f, name in found
        if name is not None
        for path in lacking_fields(source.schema[name].dataType, f, feed.follows)
    ]
    if not absent and not fields:
        return source, feed
    beside = [f"{null_of(f)} AS {quote(f.name)}" for f in absent]
    told = attrs.evolve(feed, lacking=(*((f.name,) for f in absent), *fields))
    return source.selectExpr("*", *beside), told


def derived(begin: Begin, derive: Derive, call: str, **settings: Any) -> MergeBuilder:
    """A merge whose source is made when it is built; it is called as the user did. ``settings`` are more of its options."""
    b = begin(None)
    options = attrs.evolve(b._options, call=call, **settings)
    return b._as(DerivedMerge, options=options, derive=derive)
