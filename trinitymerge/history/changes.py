"""The changes between two versions of a table (S41)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs
from pyspark.sql import DataFrame, functions as F

from trinitymerge import reader
from trinitymerge.errors import InvalidDefinitionError
from trinitymerge.log.actions import Batch, RestoreVersion, TruncateTable
from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Commit, Snapshot
from trinitymerge.reader import keys_to_find
from trinitymerge.rows import tie_breaking
from trinitymerge.rows.equality import comparable
from trinitymerge.rows.keys import may_be_same_key
from trinitymerge.rows.resolution import Order, winner
from trinitymerge.rows.watermarks import watermark_sql
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.evolution import for_reading
from trinitymerge.schema.field import Field
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.conf import with_session_settings
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores.base import TableStore, require_files

# Versions -------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Span:
    """Two versions of a table, and the commits after the earlier one, up to the later one."""

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
        """The batches appended since, even if rewritten; None if a commit did more. An append changes only its own keys."""
        if any(c.removed for c in self.changing):
            return None
        return tuple(attrs.evolve(b, version=c.version) for c in self.changing for b in c.added)

    @property
    def restored_at(self) -> int | None:
        """The version of the last restore, or of the initial contents of a copy: their rows are older than both versions."""
        return max(
            (c.version for c in self.changing if c.last(RestoreVersion) or c.initial_snapshot is not None), default=None
        )

    @property
    def truncate(self) -> TruncateTable | None:
        """The truncate that the later version has, and the earlier one not (T1)."""
        now = self.after.truncate
        return None if now is None or now == self.before.truncate else now

    @property
    def newest_commit_by_version(self) -> dict[int, int | None]:
        """For each version of newer rows, also one that a compaction gave: the newest commit that can have written them."""
        versions = {
            b.version for b in self.after.live_batches if b.version is not None and b.version > self.before.version
        }
        made = [c.version for c in self.changing]
        otherwise = next((c.version for c in self.changing if c.initial_snapshot is not None), self.restored_at)
        return {v: max((m for m in made if m <= v), default=otherwise) for v in sorted(versions)}


# Keys that can have changed -------------------------------------------------------------------------------------------


def candidate_batches(store: TableStore, span: Span) -> tuple[Batch, ...]:
    """Return batches that contain every key that can differ between two versions, with as few rows as possible."""
    unshared, appended = span.unshared, span.appended
    if appended is None or total_rows(appended) >= total_rows(unshared):
        return unshared
    known = {b.id for s in (span.before, span.after) for b in s.live_batches}
    return unshared if store.missing([b for b in appended if b.id not in known]) else appended


def total_rows(batches: Iterable[Batch]) -> int:
    return sum(b.rows for b in batches)


def require_free(definition: TableDefinition, added: Sequence[str], call: str) -> None:
    """Check that a table has no column with the name of a column that a call adds."""
    taken = [n for n in definition.names if n.lower() in added]
    if taken:
        raise InvalidDefinitionError(
            f"The table has a column '{taken[0]}', and {call} adds one of that name (it adds {', '.join(added)}). Rename the "
            "table's column.",
            column=taken[0],
        )


def bigint(value: int | None) -> Sql:
    return Sql("CAST(NULL AS BIGINT)" if value is None else f"{value}L")


def meaning(meanings: Mapping[int, int | None], value: Sql) -> Sql:
    """Map a number to another, as SQL; null if the mapping lacks it."""
    pairs = ", ".join(f"{bigint(k)}, {bigint(v)}" for k, v in meanings.items())
    return Sql(f"try_element_at(map({pairs}), {value})") if pairs else bigint(None)


def timestamp(milliseconds: Sql) -> Sql:
    return Sql(f"timestamp_millis({milliseconds})")


def watermark(definition: TableDefinition, row: Sql | None = None) -> Sql:
    """Return the declared watermark of a row, or of a struct: a column, or a struct of several; a null number without one."""
    names = definition.watermarkKey
    values = [E.quote(n) if row is None else E.field_of(row, n) for n in names]
    if len(names) < 2:
        return values[0] if names else bigint(None)
    struct = Sql(f"struct({', '.join(f'{v} AS {E.quote(n)}' for n, v in zip(names, values, strict=True))})")
    return struct if row is None else E.case([(E.is_not_null(row), struct)])


OUTPUT_COLUMNS = TYPE, COMMIT, TIME, WATERMARK = "_change_type", "_commit_version", "_commit_timestamp", "_watermark"
"""The columns that changes() adds; all but the last have Delta's names."""

MOST_STEPS = 100
"""The most versions of one plan with ``net=False``."""

_KIND, _IMAGE = E.field_of(C.CHANGE, "kind"), E.field_of(C.CHANGE, "image")

BROADCAST_ROWS = 500_000
"""The most keys that are broadcast to the scans of the batches of both versions."""


@with_session_settings
def changes(store: TableStore, newest: int, fromVersion: int, toVersion: int | None, net: bool) -> DataFrame:
    """Return the changes of live rows between two versions (S41), the first exclusive; net, of the two states only."""
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
    return E.with_metadata(_united([_Comparison(store, s, definition).changes() for s in spans]), definition)


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
    """Check the files of past versions, each batch once; reading the newest version gives the better error."""
    newest = store.snapshot().version
    snapshots = {s.version: s for span in spans for s in (span.before, span.after)}
    past = [s for v, s in sorted(snapshots.items()) if v < newest]
    gone = {b.id for b in store.missing(list({b.id: b for s in past for b in s.live_batches}.values()))}
    for snapshot in past:
        if not gone.isdisjoint(b.id for b in snapshot.live_batches):
            require_files(store, snapshot)


def _united(frames: Sequence[DataFrame]) -> DataFrame:
    """Return the union of all rows as a balanced tree, which nests less deeply than a chain."""
    if len(frames) == 1:
        return frames[0]
    half = len(frames) // 2
    return _united(frames[:half]).unionByName(_united(frames[half:]))


# Both states ----------------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class _Comparison:
    """The live rows of two versions, both read by one definition, joined by key."""

    store: TableStore
    span: Span
    definition: TableDefinition

    def changes(self) -> DataFrame:
        own = self.definition
        was, now = _is_live(own, C.LATEST_BEFORE), _is_live(own, C.LATEST_AFTER)
        differ = E.any_of(E.not_(_is_same(f)) for f in own.fields)
        changed = E.case([(E.all_of([was, now]), differ)], E.any_of([was, now]))
        shown = [f"{_shown(was, now)} AS {C.CHANGE}", f"{self._made_by()} AS {C.CHANGED_IN}", C.LATEST_AFTER]
        rows = self._both_states().filter(changed).selectExpr(*shown)
        return rows.selectExpr(
            *[f"{E.field_of(_IMAGE, n)} AS {E.quote(n)}" for n in own.names],
            f"{_KIND} AS {E.quote(TYPE)}",
            f"{C.CHANGED_IN} AS {E.quote(COMMIT)}",
            f"{self._committed(C.CHANGED_IN)} AS {E.quote(TIME)}",
            f"{self._watermark()} AS {E.quote(WATERMARK)}",
        )

    def _both_states(self) -> DataFrame:
        """Return the latest row in each version of every key that can differ."""
        parts = list(self._parts())
        rows = _united(parts) if parts else self._part((), True, True)
        states = [
            F.expr(f"{winner(C.STORED_ROW, C.PRECEDENCE)} FILTER (WHERE {inside}) AS {name}")
            for inside, name in ((C.IN_BEFORE, C.LATEST_BEFORE), (C.IN_AFTER, C.LATEST_AFTER))
        ]
        return rows.groupBy(*[C.KEY_TO_COMPARE(i) for i in range(len(self.definition.primaryKey))]).agg(*states)

    def _parts(self) -> Iterator[DataFrame]:
        """Yield the stored rows of keys that can differ, each batch once."""
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
            close = reader.near_batches(self.store, self.definition, [b for b in some if b.id not in whole], sought)
            if close:
                yield self._about(self._part(close, was, now), sought)

    def _part(self, batches: Sequence[Batch], was: bool, now: bool) -> DataFrame:
        """Return the rows of some batches of one version, the other, or both."""
        own = self.definition
        keys = [f"{E.quote(k)} AS {C.KEY_TO_COMPARE(i)}" for i, k in enumerate(own.primaryKey)]
        stored = ", ".join(E.quote(f.name) for f in own.stored_fields)
        rows = self.store.scan(Batches(own, tuple(batches)))
        both = (*self.span.before.live_batches, *self.span.after.live_batches)
        ties = tie_breaking.weights(rows.drop(C.VERSION), own) if any(b.foreign for b in both) else ()
        order = Order.of(own, [C.VERSION], ties)
        structs = [f"struct({stored}, {C.VERSION}) AS {C.STORED_ROW}", f"{order.packed()} AS {C.PRECEDENCE}"]
        flags = [f"{E.TRUE if was else E.FALSE} AS {C.IN_BEFORE}", f"{E.TRUE if now else E.FALSE} AS {C.IN_AFTER}"]
        return rows.selectExpr(*keys, *structs, *flags)

    def _about(self, rows: DataFrame, sought: Sequence[Batch]) -> DataFrame:
        """Return the rows whose keys occur in some batches, and rarely other rows, which are unchanged."""
        own = self.definition
        keys = self.store.scan(Batches(own, tuple(sought))).selectExpr(*keys_to_find(own))
        kinds = [E.physical_type(own.field(k)) for k in own.primaryKey]
        ours, theirs = ([family(i) for i in range(len(kinds))] for family in (C.KEY_TO_COMPARE, C.KEY_TO_FIND))
        return rows.join(F.broadcast(keys), F.expr(may_be_same_key(ours, theirs, kinds)), "left_semi")

    # When -----------------------------------------------------------------------------------------------------------

    def _made_by(self) -> Sql:
        """Return the version of the commit that made a change, if known, as SQL over the row of the later version."""
        made = self.span.changing
        if len(made) == 1:
            return bigint(made[0].version)
        version, first = Sql(f"{C.LATEST_AFTER}.{C.VERSION}"), self.span.before.version
        is_older = Sql(f"{version} <= {first}")
        found = E.case(
            [(is_older, bigint(self.span.restored_at))], meaning(self.span.newest_commit_by_version, version)
        )
        return E.case([(E.is_not_null(version), found)], bigint(self._truncated_in))

    @property
    def _truncated_in(self) -> int | None:
        """The commit that brought the truncate: a restore and a late earlier truncate keep the version that it had."""
        truncate = self.span.truncate
        if truncate is None or (truncate.version or 0) > self.span.before.version:
            return None if truncate is None else truncate.version
        return max((c.version for c in self.span.changing if c.last(TruncateTable)), default=None)

    def _watermark(self) -> Sql:
        """Return the watermark of the key's latest row, or of the truncate that has taken it out of the table (T1)."""
        own, found = self.definition, watermark(self.definition, C.LATEST_AFTER)
        truncate = self.span.truncate
        at = None if truncate is None else watermark_sql(truncate.watermark, own)
        if at is None:
            return found
        names = [E.quote(n) for n in own.watermarkKey]
        struct = Sql(f"struct({', '.join(f'{v} AS {n}' for n, v in zip(names, at, strict=True))})")
        return E.case([(E.is_null(C.LATEST_AFTER), at[0] if len(at) == 1 else struct)], found)

    def _committed(self, version: Sql) -> Sql:
        made = self.span.changing
        shown = {*self.span.newest_commit_by_version.values(), self.span.restored_at, self._truncated_in}
        times = {c.version: c.timestamp_ms for c in made if len(made) == 1 or c.version in shown}
        return timestamp(meaning(times, version))


# Rows as SQL ----------------------------------------------------------------------------------------------------------


def _is_live(definition: TableDefinition, row: Sql) -> Sql:
    return E.all_of(
        [E.is_not_null(row), E.not_(E.is_tombstone(definition, E.field_of(row, definition.tombstone_column)))]
    )


def _is_same(field: Field) -> Sql:
    kind = E.physical_type(field)
    return E.same(*(comparable(E.field_of(row, field.name), kind) for row in (C.LATEST_BEFORE, C.LATEST_AFTER)))


def _shown(was: Sql, now: Sql) -> Sql:
    """Return one or two rows, each with the type of the change."""

    def row(kind: str, of: Sql) -> str:
        return f"named_struct('kind', {E.text_literal(kind)}, 'image', {of})"

    update = f"array({row('update_preimage', C.LATEST_BEFORE)}, {row('update_postimage', C.LATEST_AFTER)})"
    insert, delete = f"array({row('insert', C.LATEST_AFTER)})", f"array({row('delete', C.LATEST_BEFORE)})"
    return Sql(f"explode({E.case([(E.all_of([was, now]), Sql(update)), (now, Sql(insert))], Sql(delete))})")
