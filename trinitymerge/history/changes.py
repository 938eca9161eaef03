"""What happened to a table's rows between two of its versions (S41).

Owns: which keys can have changed, both states of these keys in one pass over the batches, and what is said of a change. Nothing
is recorded for it: batches and log are all it takes. Everything here is lazy but for the log, and for asking which files are there.

One pass: each batch is scanned once, though it may be part of both versions, and a single shuffle by key finds the latest row of
either. Batches that both versions have are read for the keys that can have changed only, if these are few enough to be sent to
whoever scans.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trinitymerge import foreign
from trinitymerge.columns import (
    CHANGE,
    IN_AFTER,
    IN_BEFORE,
    KEY_TO_COMPARE,
    KEY_TO_FIND,
    LATEST_AFTER,
    LATEST_BEFORE,
    MADE_BY,
    PRECEDENCE,
    STORED_ROW,
    VERSION,
)
from trinitymerge.definition import Field, TableDefinition
from trinitymerge.evolving import for_reading
from trinitymerge.expressions import (
    FALSE,
    TRUE,
    all_of,
    any_of,
    case,
    is_not_null,
    is_tombstone,
    not_,
    physical_type,
    quote,
    same,
    text_literal,
)
from trinitymerge.history.span import Span, near, total_rows, touched
from trinitymerge.history.values import equatable, field_of, meaning, require_free, watermark, whole_number
from trinitymerge.keyjoin import may_be_same_key
from trinitymerge.reader import keys_to_find
from trinitymerge.settings import LITERAL_NAMES, held
from trinitymerge.sqltext import Sql
from trinitymerge.storage.backend import Batches, TimeTravel
from trinitymerge.storage.entries import Batch
from trinitymerge.storage.past import require_files

SHOWN = TYPE, COMMIT, TIME, WATERMARK = "_change_type", "_commit_version", "_commit_timestamp", "_watermark"
"""What is shown beside the user's columns; all but the last are called as Delta calls them."""

MOST_STEPS = 100
"""With ``net=False``, so many versions make one plan."""

_KIND, _IMAGE = field_of(CHANGE, "kind"), field_of(CHANGE, "image")

SENT_ROWS = 500_000
"""Up to this many keys that can have changed are sent to every task that scans the batches of both versions."""


def changes(store: TimeTravel, newest: int, fromVersion: int, toVersion: int | None, net: bool) -> DataFrame:
    """What happened to the live rows after one version up to another (S41).

    Args:
        store: where the table is.
        newest: the version the table is at, or was opened at.
        fromVersion: exclusive.
        toVersion: None for the newest.
        net: compare the two states, instead of each version with the one before.

    Raises:
        ValueError: these are no two versions, one after the other; or too many of them without ``net``.
        TableNotFoundError: there is no such version, or its files are gone.
        InvalidDefinitionError: a column of the table is called as one that is added.
    """
    last = newest if toVersion is None else toVersion
    _check_versions(store.path, fromVersion, last, newest)
    before, after = store.snapshot_at(fromVersion), store.snapshot_at(last)
    require_free(after.definition, SHOWN, "changes")
    span = Span(before, after, tuple(store.commits(fromVersion + 1, last)))
    spans = [span] if net else span.steps
    if len(spans) > MOST_STEPS:
        raise ValueError(
            f"Of the versions {fromVersion + 1} to {last} of {store.path} {len(spans):,} changed rows, and net=False takes at most "
            f"{MOST_STEPS} of these at a time: ask for fewer (toVersion={spans[MOST_STEPS - 1].after.version}), or for the "
            "net changes (net=True)."
        )
    _require_files(store, spans)
    spans = spans or [Span(after, after, ())]
    definition = for_reading(after.definition, (v.definition for s in spans for v in (s.before, s.after)))
    with held(store.spark, LITERAL_NAMES):
        return _united([_Comparison(store, s, definition).changes() for s in spans])


def _check_versions(path: str, first: int, last: int, newest: int) -> None:
    for name, version in (("fromVersion", first), ("toVersion", last)):
        if isinstance(version, bool) or not isinstance(version, int) or version < 0:
            raise ValueError(f"changes takes version numbers from 0 up, got {name}={version!r}.")
    if first > last:
        raise ValueError(
            f"changes looks from an earlier version to a later one, and fromVersion {first} comes after toVersion {last}. "
            f"The newest version of {path} here is {newest}."
        )
    if last > newest:
        raise ValueError(
            f"toVersion {last} comes after version {newest}, the newest one of {path}, or the one it was opened at. Give that "
            "one at most, or open the table without versionAsOf."
        )


def _require_files(store: TimeTravel, spans: Sequence[Span]) -> None:
    """Looks for each batch once, however many versions have it. The newest version is not a past one: reading it says more."""
    newest = store.snapshot().version
    snapshots = {s.version: s for span in spans for s in (span.before, span.after)}
    past = [s for v, s in sorted(snapshots.items()) if v < newest]
    gone = {b.id for b in store.missing(list({b.id: b for s in past for b in s.current}.values()))}
    for snapshot in past:
        if not gone.isdisjoint(b.id for b in snapshot.current):
            require_files(store, snapshot)


def _united(frames: Sequence[DataFrame]) -> DataFrame:
    """The rows of all, by halves: a long chain of unions would nest as deep as it is long."""
    if len(frames) == 1:
        return frames[0]
    half = len(frames) // 2
    return _united(frames[:half]).unionByName(_united(frames[half:]))


# Both states ----------------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class _Comparison:
    """The live rows of two versions, one beside the other.

    Attributes:
        store: where the batches are.
        span: the versions.
        definition: by which both are read.
    """

    store: TimeTravel
    span: Span
    definition: TableDefinition

    def changes(self) -> DataFrame:
        """The rows that are shown."""
        own = self.definition
        was, now = _is_live(own, LATEST_BEFORE), _is_live(own, LATEST_AFTER)
        differ = any_of(not_(_is_same(f)) for f in own.fields)
        changed = case([(all_of([was, now]), differ)], any_of([was, now]))
        shown = [f"{_shown(was, now)} AS {CHANGE}", f"{self._made_by()} AS {MADE_BY}", LATEST_AFTER]
        rows = self._both_states().filter(changed).selectExpr(*shown)
        return rows.selectExpr(
            *[f"{field_of(_IMAGE, n)} AS {quote(n)}" for n in own.names],
            f"{_KIND} AS {quote(TYPE)}",
            f"{MADE_BY} AS {quote(COMMIT)}",
            f"{self._committed(MADE_BY)} AS {quote(TIME)}",
            f"{watermark(own, LATEST_AFTER)} AS {quote(WATERMARK)}",
        )

    def _both_states(self) -> DataFrame:
        """The latest row of each key in either version, of the keys that can differ."""
        parts = list(self._parts())
        rows = _united(parts) if parts else self._part((), True, True)
        # The largest effective watermark, as structs compare: column by column, null is the smallest (S3, S13).
        latest = "max_by({row}, {by}) FILTER (WHERE {inside}) AS {name}"
        states = [
            F.expr(latest.format(row=STORED_ROW, by=PRECEDENCE, inside=inside, name=name))
            for inside, name in ((IN_BEFORE, LATEST_BEFORE), (IN_AFTER, LATEST_AFTER))
        ]
        return rows.groupBy(*[KEY_TO_COMPARE(i) for i in range(len(self.definition.primaryKey))]).agg(*states)

    def _parts(self) -> Iterator[DataFrame]:
        """The stored rows of both versions that matter, each batch once."""
        sought = touched(self.store, self.span)
        if not total_rows(sought):
            return
        here, there = ({b.id for b in s.current} for s in (self.span.before, self.span.after))
        batches = {b.id: b for s in (self.span.before, self.span.after) for b in s.current}
        few = total_rows(sought) <= SENT_ROWS
        whole = {b.id for b in sought} if few else set(batches)
        for was, now in ((True, False), (False, True), (True, True)):
            some = [b for i, b in batches.items() if (i in here, i in there) == (was, now)]
            read = [b for b in some if b.id in whole]
            if read:
                yield self._part(read, was, now)
            close = near(self.store, self.definition, [b for b in some if b.id not in whole], sought)
            if close:
                yield self._about(self._part(close, was, now), sought)

    def _part(self, batches: Sequence[Batch], was: bool, now: bool) -> DataFrame:
        """The rows of some batches, which are part of the one version, the other, or both."""
        own = self.definition
        keys = [f"{quote(k)} AS {KEY_TO_COMPARE(i)}" for i, k in enumerate(own.primaryKey)]
        stored = ", ".join(quote(f.name) for f in own.stored_fields)
        rows = self.store.scan(Batches(own, tuple(batches)))
        both = (*self.span.before.current, *self.span.after.current)
        decided = foreign.weights(rows.drop(VERSION), own) if any(b.foreign for b in both) else []
        order = ", ".join([*map(quote, own.watermarkKey), VERSION, *decided])
        structs = [f"struct({stored}, {VERSION}) AS {STORED_ROW}", f"struct({order}) AS {PRECEDENCE}"]
        flags = [f"{TRUE if was else FALSE} AS {IN_BEFORE}", f"{TRUE if now else FALSE} AS {IN_AFTER}"]
        return rows.selectExpr(*keys, *structs, *flags)

    def _about(self, rows: DataFrame, sought: Sequence[Batch]) -> DataFrame:
        """The rows whose keys occur in some batches. Very rarely there are others: unchanged ones, which nothing shows."""
        own = self.definition
        keys = self.store.scan(Batches(own, tuple(sought))).selectExpr(*keys_to_find(own))
        kinds = [physical_type(own.field(k)) for k in own.primaryKey]
        ours, theirs = ([family(i) for i in range(len(kinds))] for family in (KEY_TO_COMPARE, KEY_TO_FIND))
        return rows.join(F.broadcast(keys), F.expr(may_be_same_key(ours, theirs, kinds)), "left_semi")

    # When -----------------------------------------------------------------------------------------------------------

    def _made_by(self) -> Sql:
        """The version of the commit that made a change, as far as known, as SQL over the latest row of the later version."""
        made = self.span.changing
        if len(made) == 1:
            return whole_number(made[0].version)
        version, first = Sql(f"{LATEST_AFTER}.{VERSION}"), self.span.before.version
        is_older = Sql(f"{version} <= {first}")
        told = case([(is_older, whole_number(self.span.restored_at))], meaning(self.span.told, version))
        return case([(is_not_null(version), told)], whole_number(None))

    def _committed(self, version: Sql) -> Sql:
        """When a version was committed, as SQL."""
        made = self.span.changing
        shown = {*self.span.told.values(), self.span.restored_at} if len(made) > 1 else {c.version for c in made}
        return Sql(
            f"timestamp_millis({meaning({c.version: c.timestamp_ms for c in made if c.version in shown}, version)})"
        )


# Rows as SQL ----------------------------------------------------------------------------------------------------------


def _is_live(definition: TableDefinition, row: Sql) -> Sql:
    return all_of([is_not_null(row), not_(is_tombstone(definition, field_of(row, definition.tombstone_column)))])


def _is_same(field: Field) -> Sql:
    """True if a column has the same value in both states, or null in both."""
    kind = physical_type(field)
    return same(*(equatable(field_of(row, field.name), kind) for row in (LATEST_BEFORE, LATEST_AFTER)))


def _shown(was: Sql, now: Sql) -> Sql:
    """One or two rows, each with the type of the change."""

    def row(kind: str, of: Sql) -> str:
        return f"named_struct('kind', {text_literal(kind)}, 'image', {of})"

    update = f"array({row('update_preimage', LATEST_BEFORE)}, {row('update_postimage', LATEST_AFTER)})"
    insert, delete = f"array({row('insert', LATEST_AFTER)})", f"array({row('delete', LATEST_BEFORE)})"
    return Sql(f"explode({case([(all_of([was, now]), Sql(update)), (now, Sql(insert))], Sql(delete))})")
