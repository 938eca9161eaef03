"""The merge of a feed: its messages are evaluated once and counted, and only then does the merge know what it needs (F1-F4)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import attrs
from pyspark.sql import DataFrame, SparkSession, functions as F

from trinitymerge.errors import InvalidMergeError, RejectedRowsError, closest, counted
from trinitymerge.feeds.change_events import merge_of_events
from trinitymerge.feeds.events import ChangeFeed, columns_unset, fillable_names, unset_metrics
from trinitymerge.feeds.feed import Feed
from trinitymerge.feeds.wire import place_in_words
from trinitymerge.feeds.wire_rows import CALL, OTHER_TABLE, FeedRows, rows_of
from trinitymerge.log.model import Snapshot
from trinitymerge.merge.compile.join import materialize
from trinitymerge.merge.execute.request import MergeSpec, Rejected
from trinitymerge.merge.model.feed_counts import FeedCounts
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.sql_text import Sql

_SHOWN = 5
_logger = logging.getLogger(__name__)


def merge_of_feed(
    feed: Feed, columns: Iterable[str] | None, except_columns: Iterable[str], spec: MergeSpec, snapshot: Snapshot
) -> MergeSpec:
    own = snapshot.definition
    is_kept = spec.settings.quarantine is not None
    rows, found = _evaluated(feed, own, columns, except_columns, is_kept)
    transaction = spec.settings.transaction
    if (
        transaction is None or transaction.stream is None or not snapshot.batches
    ):  # a micro-batch may have no message of the table
        found.warn_of_no_event(feed, spec.store.path)
    if spec.settings.schema_evolution and found.others and columns is None:
        own = _with_columns(feed.frame.sparkSession, own, found.others)
        rows, found = _evaluated(feed, own, None, except_columns, is_kept)
    if is_kept:
        spec = spec.with_feed(rejected=Rejected(_messages(rows), carried=rows.meta))
    elif found.counts.rejected:
        raise _rejected(rows, found.counts)
    is_paired = bool(found.creates and found.counts.deletes)
    if is_paired:
        rows = _with_old_keys(rows, own)
    meta = E.quote(rows.meta)
    deletes = f"{meta}.op = 'delete'"
    truncates = f"{meta}.op = 'truncate'" if found.counts.truncates else None
    unchanged = f"{meta}.unchanged" if found.unchanged else None
    moved = [f"{meta}.old_key.{E.quote(k)}" for k in own.primaryKey] if found.moved or is_paired else None
    given = ChangeFeed.of(None, deletes, truncates, None, (rows.meta,), False, unchanged, moved_from=moved)
    given = attrs.evolve(given, unset_columns=found.unset_columns)
    events = rows.frame.where(f"{meta}.op IS NOT NULL").drop(
        own.tombstone_column
    )  # it marks rows as live, as for events (S22)
    done = merge_of_events(events, given, spec, snapshot)
    ignored = () if spec.settings.schema_evolution else tuple(found.others)
    return done.with_feed(counts=found.counts, ignored=ignored, source_rows=found.counts.read)


def _evaluated(
    feed: Feed, own: TableDefinition, columns: Iterable[str] | None, except_columns: Iterable[str], is_kept: bool
) -> tuple[FeedRows, _Found]:
    rows = rows_of(feed.decoded(), feed.source, feed.options, own, columns, except_columns, is_kept)
    names = fillable_names(own, E.is_case_sensitive(feed.frame.sparkSession))
    unset = [Sql(f"array_contains({E.quote(rows.meta)}.unchanged, {E.text_literal(name)})") for name in names]
    once = materialize(rows.frame, _Found.metrics(rows) | unset_metrics(unset))
    rows = attrs.evolve(rows, frame=once.frame)
    found = _Found.of_usual(once.rows, once.observed) or _Found.of(rows)
    found = attrs.evolve(found, unset_columns=columns_unset(names, once.observed))
    found.check_one_table(feed)
    return rows, found


def _with_columns(spark: SparkSession, own: TableDefinition, others: Mapping[str, str]) -> TableDefinition:
    types = spark.createDataFrame([], ", ".join(f"{E.quote(name)} {kind}" for name, kind in others.items())).schema
    added = [Field.from_json(f.jsonValue()) for f in types.fields]
    return attrs.evolve(own, fields=(*own.fields, *added))


@attrs.frozen
class _Found:
    """The messages of a feed, counted.

    Attributes:
        skipped: the tables of events that are skipped, because the feed is of another one.
        creates: inserts that leave columns unchanged: the second half of a key change.
        unset_columns: columns that some event leaves unchanged, in lower case unless the session is case-sensitive.
    """

    counts: FeedCounts
    sources: tuple[str, ...]
    skipped: tuple[str, ...]
    unchanged: int
    moved: int
    creates: int
    others: Mapping[str, str]
    unset_columns: frozenset[str] = frozenset()

    @staticmethod
    def metrics(rows: FeedRows) -> dict[str, str]:
        meta = E.quote(rows.meta)
        is_event = f"{meta}.op IS NOT NULL"
        ops = {op: f"count_if({meta}.op = '{op}')" for op in ("upsert", "delete", "truncate")}
        return {
            **ops,
            "others": f"count_if({meta}.skipped IS NOT NULL OR {meta}.rejected IS NOT NULL OR size({meta}.others) > 0)",
            "first": f"min(CASE WHEN {is_event} THEN {meta}.source END)",
            "last": f"max(CASE WHEN {is_event} THEN {meta}.source END)",
            "unchanged": f"count(CASE WHEN {is_event} THEN {meta}.unchanged END)",
            "moved": f"count(CASE WHEN {is_event} THEN {meta}.old_key END)",
            "creates": f"count_if({is_event} AND {meta}.creates AND {meta}.unchanged IS NOT NULL)",
            "oldest": f"CAST(min(CASE WHEN {is_event} THEN {meta}.at END) AS STRING)",
            "newest": f"CAST(max(CASE WHEN {is_event} THEN {meta}.at END) AS STRING)",
        }

    @classmethod
    def of_usual(cls, read: int, observed: Mapping[str, Any]) -> _Found | None:
        """Return the counts if all messages are events of one table, with columns that the table has; otherwise None."""
        if observed["others"] or observed["first"] != observed["last"]:
            return None
        ops = {f"{op}s": observed[op] for op in ("upsert", "delete", "truncate")}
        times = {name: observed[name] for name in ("oldest", "newest")}
        counts = FeedCounts(read=read, skipped={}, rejected={}, **ops, **times)
        sources = () if observed["first"] is None else (observed["first"],)
        return cls(counts, sources, (), observed["unchanged"], observed["moved"], observed["creates"], {})

    @classmethod
    def of(cls, rows: FeedRows) -> _Found:
        """Count them, in a separate job."""
        meta = E.quote(rows.meta)
        kinds = [F.expr(f"{meta}.{name} AS {name}") for name in ("op", "skipped", "rejected", "source", "others")]
        found = [
            *("count(1) AS n", f"count({meta}.unchanged) AS unchanged", f"count({meta}.old_key) AS moved"),
            f"count_if({meta}.creates AND {meta}.unchanged IS NOT NULL) AS creates",
            *(f"CAST(min({meta}.at) AS STRING) AS oldest", f"CAST(max({meta}.at) AS STRING) AS newest"),
            f"max({meta}.seq) AS last",
        ]
        groups = rows.frame.groupBy(*kinds).agg(*map(F.expr, found)).collect()
        events = [g for g in groups if g["op"]]
        ops = {f"{op}s": sum(g["n"] for g in events if g["op"] == op) for op in ("upsert", "delete", "truncate")}

        def kinds_of(column: str) -> dict[str, int]:
            names = sorted({g[column] for g in groups if g[column]})
            return {name: sum(g["n"] for g in groups if g[column] == name) for name in names}

        counts = FeedCounts(
            **ops,
            read=sum(g["n"] for g in groups),
            skipped=kinds_of("skipped"),
            rejected=kinds_of("rejected"),
            oldest=min((g["oldest"] for g in events if g["oldest"]), default=None),
            newest=max((g["newest"] for g in events if g["newest"]), default=None),
        )
        by_age = sorted((g for g in events if g["others"]), key=lambda g: g["last"] or "")
        columns = [c for g in by_age for c in g["others"]]
        others = dict.fromkeys((c["name"] for c in columns), "STRING")
        others |= {c["name"]: c["type"] for c in columns if c["type"] is not None}  # the newest that a message says
        of_others = [g for g in groups if g["skipped"] == OTHER_TABLE]
        sources, skipped = (tuple(sorted({str(g["source"]) for g in of if g["source"]})) for of in (events, of_others))
        unchanged, moved, creates = (sum(g[name] for g in events) for name in ("unchanged", "moved", "creates"))
        return cls(counts, sources, skipped, unchanged, moved, creates, dict(sorted(others.items())))

    def warn_of_no_event(self, feed: Feed, path: str) -> None:
        """Log a warning if the feed's table has no event, and other tables have some: its name may be wrong."""
        if feed.source is None or self.sources or self.counts.rejected or not self.skipped:
            return
        parts, read = feed.source.count(".") + 1, counted(self.counts.read, "message")
        hint = closest(feed.source, [".".join(source.split(".")[-parts:]) for source in self.skipped])
        told = "%s: none of %s is an event of the table '%s'. There are events of %s.%s"
        _logger.warning(told, path, read, feed.source, _listed(self.skipped), hint)

    def check_one_table(self, feed: Feed) -> None:
        if len(self.sources) > 1:
            shown = _listed(self.sources)
            raise InvalidMergeError(
                f"{CALL} applies the events of one table, and the feed has {len(self.sources)}: {shown}. Nothing was written. "
                f"Name one: feeds.{feed.format}(df, table={self.sources[0].split('.', 1)[-1]!r}).",
                tables=self.sources,
            )


def _listed(tables: Sequence[str]) -> str:
    return ", ".join(tables[:_SHOWN]) + (", ..." if len(tables) > _SHOWN else "")


_REMEDIES = {
    "unit": 'A timestamp that is a number needs its unit, such as timestamps="ms". ',
    "tombstone": 'A key without a value is a delete without a position in the log: give the feed sequence="arrival", or '
    'tombstones="skip" if each delete is also a message with __deleted. ',
}


def _rejected(rows: FeedRows, counts: FeedCounts) -> RejectedRowsError:
    first = _messages(rows).orderBy("id").limit(_SHOWN).collect()
    total = sum(counts.rejected.values())
    reasons = ", ".join(f"{reason} ({number:,})" for reason, number in counts.rejected.items())
    shown = "; ".join(f"{place_in_words(row['id'], row['row'])}: {row['reason']}" for row in first)
    remedies = dict.fromkeys(_REMEDIES.get(reason.split(":")[0], "") for reason in counts.rejected)
    return RejectedRowsError(
        f"{counted(total, 'message')} of {counts.read:,} cannot be applied: {reasons}. The first: {shown}. Nothing was written. "
        f"{''.join(remedies)}See them with feed.rejected(table).",
        reasons=dict(counts.rejected),
        rows=total,
        positions=[row["id"] for row in first],
    )


def _messages(rows: FeedRows) -> DataFrame:
    """Return the messages that cannot be read, as a quarantine keeps them."""
    meta = E.quote(rows.meta)
    rejected = rows.frame.where(f"{meta}.rejected IS NOT NULL")
    return rejected.selectExpr(f"{meta}.position AS id", f"{meta}.rejected AS reason", f"{meta}.raw AS row")


def _with_old_keys(rows: FeedRows, own: TableDefinition) -> FeedRows:
    """Return the rows; an insert that leaves columns unchanged has the key of the delete at its place: the key changed there."""
    meta = E.quote(rows.meta)
    key = f"struct({', '.join(E.quote(k) for k in own.primaryKey)})"
    deletes = rows.frame.where(f"{meta}.op = 'delete'").selectExpr(f"{meta}.seq AS place", f"{key} AS gone")
    told = "struct(place, min(gone) AS gone, min(gone) = max(gone) AS is_one)"
    here = deletes.groupBy("place").agg(F.expr(f"{told} AS {C.DELETED_HERE}")).drop("place")
    inserts = f"{meta}.creates AND {meta}.unchanged IS NOT NULL AND {meta}.old_key IS NULL"
    is_here = f"{inserts} AND {C.DELETED_HERE}.is_one AND {meta}.seq = {C.DELETED_HERE}.place"
    joined = rows.frame.join(here, F.expr(is_here), "left")
    old_key = F.expr(f"coalesce({meta}.old_key, {C.DELETED_HERE}.gone)")
    paired = joined.withColumn(rows.meta, F.col(meta).withField("old_key", old_key))
    return attrs.evolve(rows, frame=paired.drop(C.DELETED_HERE))
