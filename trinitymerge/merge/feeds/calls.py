"""``applyChanges`` as a merge (H9, H10).

Owns: whether it reads the table before it writes, and how feeds that do so begin. What it writes stands in ``events.py`` and
``nullfill.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs
from pyspark.sql import DataFrame

from trinitymerge.definition import TableDefinition
from trinitymerge.expressions import find_name, is_case_sensitive, null_of, quote
from trinitymerge.merge.builder import MergeBuilder
from trinitymerge.merge.feeds.derived import Derive, Derived, DerivedMerge
from trinitymerge.merge.feeds.events import CALL, Feed, SinceTruncate, check, events_of, since_truncate
from trinitymerge.merge.feeds.nullfill import filled
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

    Raises:
        InvalidMergeError: the table has no means for it, or the source lacks a column.
    """
    own = store.snapshot().definition
    check(own, feed)
    if own.history:
        source, feed = _without_columns(source, own, feed)
    events = events_of(source, own, feed)
    if feed.truncates is None and not feed.ignore_nulls:
        return attrs.evolve(begin(events.rows), clauses=events.clauses)._with(is_sequenced=True, call=CALL)

    def derive(snapshot: Snapshot) -> Derived:
        looked = feed.truncates is not None
        check(snapshot.definition, feed)
        since = since_truncate(events, snapshot.definition, alias) if looked else SinceTruncate(events, events.clauses)
        rows = filled(store, snapshot, since.events, feed, since.at).rows if feed.ignore_nulls else since.events.rows
        return Derived(rows, since.clauses, {"at": since.at, "is_sequenced": True, "call": CALL})

    return derived(begin, derive, CALL)


def _without_columns(source: DataFrame, own: TableDefinition, feed: Feed) -> tuple[DataFrame, Feed]:
    """Events that know nothing of a column, and need not: they leave it as it was, before them in the data's time (S22, H10).

    Where there was nothing it is the default (S46). In a table without history they leave it as it is, as any update does.
    """
    exact = is_case_sensitive(source.sparkSession)
    excepted = {name.casefold() for name in feed.except_columns}
    lacking = [
        f
        for f in own.fields
        if f.may_be_left_out and f.name.casefold() not in excepted and find_name(f.name, source.columns, exact) is None
    ]
    if not lacking or feed.columns is not None:  # what is not among the columns is null
        return source, feed
    nulls = feed.ignore_nulls if isinstance(feed.ignore_nulls, tuple) else ()
    ignored = feed.ignore_nulls is True or (*nulls, *(f.name for f in lacking))
    beside = [f"{null_of(f)} AS {quote(f.name)}" for f in lacking]
    told = attrs.evolve(feed, ignore_nulls=ignored, lacking=tuple(f.name for f in lacking))
    return source.selectExpr("*", *beside), told


def derived(begin: Begin, derive: Derive, call: str) -> MergeBuilder:
    """A merge whose source is computed from the table; it is called as the user did."""
    b = begin(None)
    options = attrs.evolve(b._options, call=call)
    return b._as(DerivedMerge, options=options, derive=derive)
