"""What changed between two versions of a table (S41)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from trinitymerge import reader
from trinitymerge.errors import InvalidDefinitionError
from trinitymerge.log.actions import Batch, RestoreVersion
from trinitymerge.log.model import Commit, Snapshot
from trinitymerge.reader import keys_to_find
from trinitymerge.rows import tie_breaking
from trinitymerge.rows.keys import may_be_same_key
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.evolution import for_reading
from trinitymerge.schema.field import Field
from trinitymerge.spark.conf import with_session_settings
from trinitymerge.spark.expressions import (
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
from trinitymerge.spark.sql_text import Sql
from trinitymerge.spark.system_columns import (
    CHANGE,
    CHANGED_IN,
    IN_AFTER,
    IN_BEFORE,
    KEY_TO_COMPARE,
    KEY_TO_FIND,
    LATEST_AFTER,
    LATEST_BEFORE,
    PRECEDENCE,
    STORED_ROW,
    VERSION,
)
from trinitymerge.stores.base import Batches, TableStore, require_files

# Versions -------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Span:
    """Two versions of a table, and what was committed between them.

    Attributes:
        before: the earlier one.
        after: the later one.
        commits: those after the earlier one, up to the later one.
    """

    before: Snapshot
    after: Snapshot
    commits: tuple[Commit, ...]

    @property
    def changing(self) -> tuple[Commit, ...]:
        """The commits that can have changed what readers see: neither compactions nor commits without batches."""
        return tuple(c for c in self.commits if c.changes_data)

    @property
    def steps(self) -> list[Span]:
        """One span for each commit of :attr:`changing`, with the state right before it."""
        found, snapshot, changing = [], self.before, {c.version for c in self.changing}
        for commit in self.commits:
            following = snapshot.apply(commit)
            if commit.version in changing:
                found.append(Span(snapshot, following, (commit,)))
            snapshot = following
        return found

    @property
    def unshared(self) -> tuple[Batch, ...]:
        """The batches that only one of the two versions has. Keys of others alone have the same rows in both."""
        here, there = ({b.id for b in s.live_batches} for s in (self.before, self.after))
        return tuple(b for s in (self.before, self.after) for b in s.live_batches if (b.id in here) != (b.id in there))

    @property
    def appended(self) -> tuple[Batch, ...] | None:
        """The batches that were appended between, rewritten since or not; None if a commit did more than append.

        Compactions and folds aside, nothing but an append changes a table, and it changes no keys but its own.
        """
        if any(c.removed for c in self.changing):
            return None
        return tuple(attrs.evolve(b, version=c.version) for c in self.changing for b in c.added)

    @property
    def restored_at(self) -> int | None:
        """The last restore, which made rows hold that are older than both versions; or what a copy begins with, likewise."""
        return max(
            (c.version for c in self.changing if c.last(RestoreVersion) or c.initial_snapshot is not None), default=None
        )

    @property
    def newest_commit_by_version(self) -> dict[int, int | None]:
        """For each version that newer rows of the later one count as: the newest commit that can have written them.

        Rows that a compaction or fold has written count as a version that may have added none.
        """
        versions = {
            b.version for b in self.after.live_batches if b.version is not None and b.version > self.before.version
        }
        made, otherwise = [c.version for c in self.changing], self.restored_at
        return {v: max((m for m in made if m <= v), default=otherwise) for v in sorted(versions)}


# Keys that can have changed -------------------------------------------------------------------------------------------


def candidate_batches(store: TableStore, span: Span) -> tuple[Batch, ...]:
    """Batches whose keys are all that can differ between two versions, as few rows of them as there are."""
    unshared, appended = span.unshared, span.appended
    if appended is None or total_rows(appended) >= total_rows(unshared):
        return unshared
    known = {b.id for s in (span.before, span.after) for b in s.live_batches}
    rewritten_since = [b for b in appended if b.id not in known]
    return unshared if store.missing(rewritten_since) else appended


def total_rows(batches: Iterable[Batch]) -> int:
    """How many rows some batches hold."""
    return sum(b.rows for b in batches)


def prune_span(
    store: TableStore, definition: TableDefinition, batches: Sequence[Batch], sought: Sequence[Batch]
) -> tuple[Batch, ...]:
    """Those batches that may hold a key of the sought ones, by the ranges kept beside their files."""
    if len(sought) > reader.MAX_PRUNED_BATCHES:
        return tuple(batches)
    return reader.prune_batches(store, definition, batches, [store.range_of(b) for b in sought])


def require_free(definition: TableDefinition, added: Sequence[str], call: str) -> None:
    """Checks that no column of a table is called as one that a call adds.

    Raises:
        InvalidDefinitionError: naming the first that is.
    """
    taken = [n for n in definition.names if n.lower() in added]
    if taken:
        raise InvalidDefinitionError(
            f"The table has a column '{taken[0]}', and {call} adds one of that name (it adds {', '.join(added)}). Call the "
            "table's column something else.",
            column=taken[0],
        )


def field_of(row: Sql, name: str) -> Sql:
    """A field of a struct."""
    return Sql(f"{row}.{quote(name)}")


def bigint(value: int | None) -> Sql:
    """A number as a ``BIGINT``, or null."""
    return Sql("CAST(NULL AS BIGINT)" if value is None else f"{value}L")


def meaning(meanings: Mapping[int, int | None], value: Sql) -> Sql:
    """What a number stands for, as SQL; null if nothing."""
    pairs = ", ".join(f"{bigint(k)}, {bigint(v)}" for k, v in meanings.items())
    return Sql(f"try_element_at(map({pairs}), {value})") if pairs else bigint(None)


def timestamp(milliseconds: Sql) -> Sql:
    """A time of the log as a timestamp."""
    return Sql(f"timestamp_millis({milliseconds})")


def watermark(definition: TableDefinition, row: Sql | None = None) -> Sql:
    """The declared watermark of a row: the column itself, or a struct of several; a null number if none is declared.

    Args:
        definition: of the table.
        row: a struct of its columns, as SQL; None where they are columns themselves.
    """
    names = definition.watermarkKey
    values = [quote(n) if row is None else field_of(row, n) for n in names]
    if len(names) < 2:
        return values[0] if names else bigint(None)
    struct = Sql(f"struct({', '.join(f'{v} AS {quote(n)}' for n, v in zip(names, values, strict=True))})")
    return struct if row is None else case([(is_not_null(row), struct)])


def comparable(value: Sql, kind: DataType, depth: int = 0) -> Sql:
    """The value as something Spark can compare, and that is equal where it is: maps by their entries, variants by their text."""
    if _is_plain(kind):
        return value
    each = Sql(f"x{depth}")
    if isinstance(kind, StructType):
        fields = (f"{comparable(field_of(value, f.name), f.dataType, depth)} AS {quote(f.name)}" for f in kind.fields)
        return case([(is_not_null(value), Sql(f"struct({', '.join(fields)})"))])
    if isinstance(kind, ArrayType):
        return Sql(f"transform({value}, {each} -> {comparable(each, kind.elementType, depth + 1)})")
    if isinstance(kind, MapType):
        value_of = comparable(field_of(each, "value"), kind.valueType, depth + 1)
        entry = f"named_struct('k', {field_of(each, 'key')}, 'v', {value_of})"
        return Sql(f"array_sort(transform(map_entries({value}), {each} -> {entry}))")
    return Sql(f"to_json(named_struct('v', {value}))")


def _is_plain(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_is_plain(f.dataType) for f in kind.fields)
    if isinstance(kind, ArrayType):
        return _is_plain(kind.elementType)
    return not isinstance(kind, MapType) and kind.typeName() != "variant"


OUTPUT_COLUMNS = TYPE, COMMIT, TIME, WATERMARK = "_change_type", "_commit_version", "_commit_timestamp", "_watermark"
"""What is shown beside the user's columns; all but the last are called as Delta calls them."""

MOST_STEPS = 100
"""With ``net=False``, so many versions make one plan."""

_KIND, _IMAGE = field_of(CHANGE, "kind"), field_of(CHANGE, "image")

BROADCAST_ROWS = 500_000
"""Up to this many keys that can have changed are sent to every task that scans the batches of both versions."""


@with_session_settings
def changes(store: TableStore, newest: int, fromVersion: int, toVersion: int | None, net: bool) -> DataFrame:
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
    require_free(after.definition, OUTPUT_COLUMNS, "changes")
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


def _require_files(store: TableStore, spans: Sequence[Span]) -> None:
    """Looks for each batch once, however many versions have it. The newest version is not a past one: reading it says more."""
    newest = store.snapshot().version
    snapshots = {s.version: s for span in spans for s in (span.before, span.after)}
    past = [s for v, s in sorted(snapshots.items()) if v < newest]
    gone = {b.id for b in store.missing(list({b.id: b for s in past for b in s.live_batches}.values()))}
    for snapshot in past:
        if not gone.isdisjoint(b.id for b in snapshot.live_batches):
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

    store: TableStore
    span: Span
    definition: TableDefinition

    def changes(self) -> DataFrame:
        """The rows that are shown."""
        own = self.definition
        was, now = _is_live(own, LATEST_BEFORE), _is_live(own, LATEST_AFTER)
        differ = any_of(not_(_is_same(f)) for f in own.fields)
        changed = case([(all_of([was, now]), differ)], any_of([was, now]))
        shown = [f"{_shown(was, now)} AS {CHANGE}", f"{self._made_by()} AS {CHANGED_IN}", LATEST_AFTER]
        rows = self._both_states().filter(changed).selectExpr(*shown)
        return rows.selectExpr(
            *[f"{field_of(_IMAGE, n)} AS {quote(n)}" for n in own.names],
            f"{_KIND} AS {quote(TYPE)}",
            f"{CHANGED_IN} AS {quote(COMMIT)}",
            f"{self._committed(CHANGED_IN)} AS {quote(TIME)}",
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
        sought = candidate_batches(self.store, self.span)
        if not total_rows(sought):
            return
        here, there = ({b.id for b in s.live_batches} for s in (self.span.before, self.span.after))
        batches = {b.id: b for s in (self.span.before, self.span.after) for b in s.live_batches}
        few = total_rows(sought) <= BROADCAST_ROWS
        whole = {b.id for b in sought} if few else set(batches)
        for was, now in ((True, False), (False, True), (True, True)):
            some = [b for i, b in batches.items() if (i in here, i in there) == (was, now)]
            read = [b for b in some if b.id in whole]
            if read:
                yield self._part(read, was, now)
            close = prune_span(self.store, self.definition, [b for b in some if b.id not in whole], sought)
            if close:
                yield self._about(self._part(close, was, now), sought)

    def _part(self, batches: Sequence[Batch], was: bool, now: bool) -> DataFrame:
        """The rows of some batches, which are part of the one version, the other, or both."""
        own = self.definition
        keys = [f"{quote(k)} AS {KEY_TO_COMPARE(i)}" for i, k in enumerate(own.primaryKey)]
        stored = ", ".join(quote(f.name) for f in own.stored_fields)
        rows = self.store.scan(Batches(own, tuple(batches)))
        both = (*self.span.before.live_batches, *self.span.after.live_batches)
        decided = tie_breaking.weights(rows.drop(VERSION), own) if any(b.foreign for b in both) else []
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
            return bigint(made[0].version)
        version, first = Sql(f"{LATEST_AFTER}.{VERSION}"), self.span.before.version
        is_older = Sql(f"{version} <= {first}")
        told = case([(is_older, bigint(self.span.restored_at))], meaning(self.span.newest_commit_by_version, version))
        return case([(is_not_null(version), told)], bigint(None))

    def _committed(self, version: Sql) -> Sql:
        """When a version was committed, as SQL."""
        made = self.span.changing
        shown = (
            {*self.span.newest_commit_by_version.values(), self.span.restored_at}
            if len(made) > 1
            else {c.version for c in made}
        )
        return Sql(
            f"timestamp_millis({meaning({c.version: c.timestamp_ms for c in made if c.version in shown}, version)})"
        )


# Rows as SQL ----------------------------------------------------------------------------------------------------------


def _is_live(definition: TableDefinition, row: Sql) -> Sql:
    return all_of([is_not_null(row), not_(is_tombstone(definition, field_of(row, definition.tombstone_column)))])


def _is_same(field: Field) -> Sql:
    """True if a column has the same value in both states, or null in both."""
    kind = physical_type(field)
    return same(*(comparable(field_of(row, field.name), kind) for row in (LATEST_BEFORE, LATEST_AFTER)))


def _shown(was: Sql, now: Sql) -> Sql:
    """One or two rows, each with the type of the change."""

    def row(kind: str, of: Sql) -> str:
        return f"named_struct('kind', {text_literal(kind)}, 'image', {of})"

    update = f"array({row('update_preimage', LATEST_BEFORE)}, {row('update_postimage', LATEST_AFTER)})"
    insert, delete = f"array({row('insert', LATEST_AFTER)})", f"array({row('delete', LATEST_BEFORE)})"
    return Sql(f"explode({case([(all_of([was, now]), Sql(update)), (now, Sql(insert))], Sql(delete))})")
