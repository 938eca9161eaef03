"""Merge-on-read: from row versions to live rows (S13-S15)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence

import attrs
from pyspark.sql import DataFrame, SparkSession

from trinitymerge.log.actions import Batch
from trinitymerge.log.batches import Batches
from trinitymerge.rows import tie_breaking
from trinitymerge.rows.key_ranges import KeyRange, meeting
from trinitymerge.rows.keys import may_be_same_key, same_key
from trinitymerge.rows.resolution import Order, is_older, winners
from trinitymerge.rows.watermarks import is_at_least
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.conf import EXACT_IDENTIFIERS, session_conf
from trinitymerge.spark.session import join, select_exprs
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores.base import ManagedStore, TableStore

MIN_BROADCAST_ROWS = 1_000_000
"""So many are broadcast with any memory."""

ROWS_PER_GIGABYTE = 500_000
"""More are sent for each gigabyte. Twice as many fit; but then little is left for anything else, and shuffling is as fast."""

MAX_BROADCAST_ROWS = 4_000_000
"""Results of tasks are limited too, to a gigabyte (``spark.driver.maxResultSize``)."""

_MEMORY = re.compile(r"(\d+)\s*([kmgtp]?)b?", re.IGNORECASE)
_BYTES = {"": 2**20, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40, "p": 2**50}  # a number alone is in megabytes


def fits_broadcast(spark: SparkSession, rows: int, times: int = 1) -> bool:
    """Return True if so many keys and watermarks may be broadcast, so many times."""
    return rows <= MIN_BROADCAST_ROWS or rows * times <= min(
        MAX_BROADCAST_ROWS, int(ROWS_PER_GIGABYTE * _gigabytes(spark))
    )


def _gigabytes(spark: SparkSession) -> float:
    """Return the memory of the driver, or of an executor if that is less. If Spark does not report it, Spark's default."""
    of_driver, of_executor = (_memory(spark, f"spark.{who}.memory") for who in ("driver", "executor"))
    master = str(spark.conf.get("spark.master", ""))
    in_driver = master.startswith("local") and not master.startswith("local-cluster")
    return (of_driver if in_driver else min(of_driver, of_executor)) / 2**30


def _memory(spark: SparkSession, setting: str) -> int:
    found = _MEMORY.fullmatch(str(spark.conf.get(setting, "1g")).strip())
    return int(found[1]) * _BYTES[found[2].lower()] if found else 2**30


_SHARE_OF_VECTORS = 1 / 64
"""So much of the memory deletion vectors may take: of a gigabyte, those of 128 million rows. With four times as many, a session
runs out of memory after ten reads, for Spark keeps the last ones for a while; with twice as many it does not."""


MAX_PRUNED_BATCHES = 512
"""Of more batches than these, the ranges of keys are not read: each is a file."""

_MOST_PAIRS = 4_096
"""So many pairs of ranges are compared in milliseconds."""


def resolve(
    df: DataFrame,
    primaryKey: str | Iterable[str],
    watermarkKey: str | Iterable[str] | None = (),
    tombstoneKey: str | None = None,
    tombstoneStringValue: str | None = None,
) -> DataFrame:
    """Return the live rows of any DataFrame of row versions (S13, S15; TrinityLake, reader requirement).

    Per primary key the row with the largest watermark is kept, unless it is a tombstone. Rows that tie in every
    watermark column are decided so that the answer never depends on their order: a tombstone beats a row, then the row
    whose remaining columns compare larger, in schema order.

    Args:
        df: row versions, in any order.
        primaryKey: a column name or names.
        watermarkKey: none, one or several column names, most significant first.
        tombstoneKey: the column that says "deleted", or None.
        tombstoneStringValue: what a string tombstone column holds on deleted rows.

    Returns:
        A lazy DataFrame with the columns of ``df``, one row per live key. Costs one shuffle by primary key. To read it fails if
        a row has a null in its primary key, and says so.

    Example:
        >>> rows = spark.sql("SELECT * FROM VALUES (1, 100, false), (1, 200, false), (2, 100, false), (2, 200, true) "
        ...                  "AS orders(order_id, ts, deleted)")
        >>> resolve(rows, "order_id", "ts", "deleted").collect()
        [Row(order_id=1, ts=200, deleted=False)]
    """
    fields = [Field.from_json(f) for f in df.schema.jsonValue()["fields"]]
    definition = TableDefinition.of(fields, primaryKey, watermarkKey, tombstoneKey, tombstoneStringValue)
    latest = latest_of_untracked(df, definition)
    with session_conf(df.sparkSession, EXACT_IDENTIFIERS):
        return latest if definition.tombstoneKey is None else latest.filter(f"NOT {E.is_tombstone(definition)}")


def latest_of_untracked(df: DataFrame, definition: TableDefinition) -> DataFrame:
    """Return the latest row of every key, tombstones included, of rows in unknown commit order; contents decide ties (S15)."""
    order = Order.of(definition, ties=tie_breaking.weights(df, definition))
    with session_conf(df.sparkSession, EXACT_IDENTIFIERS):
        return winners(tie_breaking.with_keys(df, definition), definition, order)


def live_rows(store: TableStore, batches: Batches, with_hidden: bool = False) -> DataFrame:
    """Return the live rows of batches (S13), read in whichever of four ways is cheapest (docs/internals/reading.md, "Reading")."""
    rows, is_live = live_or_dead(store, batches)
    shown = batches.definition.stored_fields if with_hidden else batches.definition.fields
    return select_exprs(rows if is_live == E.TRUE else rows.filter(is_live), [E.quote(f.name) for f in shown])


def live_or_dead(store: TableStore, batches: Batches) -> tuple[DataFrame, Sql]:
    """Return the latest row of every key, tombstones and more columns included, and SQL that is true for live rows."""
    batches = usable(store, batches)
    is_live = E.not_(E.is_tombstone(batches.definition)) if any(b.tombstones for b in batches.batches) else E.TRUE
    settled = settled_batches(store, batches)
    found = ReadPlan.of(batches, store.spark, settled)
    if settled and len(settled) == len(batches.deltas):
        rows = store.scan(batches)
    elif found is not None and found.is_unique:  # exactly one row of each key is not older than another
        rows = compare(store.scan_and_version, found, "left_anti", part=getattr(store, "part_of", _no_part))
    else:
        rows = latest_rows(store, batches)
    return rows, is_live


def settled_batches(store: TableStore, batches: Batches) -> tuple[Batch, ...]:
    """Return the pending batches whose key range meets no other batch: inserts of new keys. Each row is the latest of its key."""
    base, deltas = batches.read_base, batches.deltas
    if not base or len(deltas) * len(batches.batches) > _MOST_PAIRS:
        return ()
    known = dict(zip((b.id for b in deltas), store.ranges_of(deltas), strict=True))

    def is_apart(batch: Batch) -> bool:
        others = [keys for other, keys in known.items() if other != batch.id]
        return batch.unique_keys and meeting(batches.definition, [known[batch.id]], others) == [False]

    apart = [b for b in deltas if is_apart(b)]
    of_base = store.ranges_of(base) if apart else []
    near = meeting(batches.definition, [known[b.id] for b in apart], of_base)
    return tuple(b for b, is_near in zip(apart, near, strict=True) if not is_near)


def usable(store: TableStore, batches: Batches) -> Batches:
    """Return batches without deletion vectors if these are lost, damaged, or too large to be sent to where rows are read (D2).

    So are those of a table with a column called ``_metadata``: Spark would read positions of rows from it.
    """
    vectors = batches.deletion_vectors
    if vectors is None or not isinstance(store, ManagedStore) or batches.definition.hides_metadata:
        return batches.of_all_rows()
    rows = sum(b.rows for b in batches.batches if vectors.marked.get(b.id))
    is_usable = fits_vectors(store.spark, rows) and store.has_deletion_vectors(vectors)
    return batches if is_usable else batches.of_all_rows()


def fits_vectors(spark: SparkSession, rows: int) -> bool:
    """Return True if the deletion vectors of so many rows may be sent to where rows are read."""
    return rows / 8 <= _SHARE_OF_VECTORS * _gigabytes(spark) * 2**30


def latest_rows(
    store: TableStore,
    batches: Batches,
    keys: DataFrame | None = None,
    within: str | None = None,
    extra: Sequence[Field] = (),
) -> DataFrame:
    """Return the stored columns of the latest row of every key, tombstones included; ties go to the later commit (S13).

    With ``keys``, only rows whose primary key occurs there are read, and hardly any others. Their columns are called
    :data:`C.KEY_TO_FIND` by their place in the primary key, and may be some of it; null or repeated values are harmless. ``within``
    is SQL over the primary key that is true wherever they occur: files are filtered by it. ``extra`` columns are null in files that
    do not have them.
    """
    own = batches.definition

    def near(rows: DataFrame) -> DataFrame:
        rows = rows if within is None else rows.filter(within)
        return rows if keys is None else _about(rows, own, keys)

    # A whole key has few versions, which are quickly compared; part of one may have all the rows there are.
    if keys is not None and len(keys.columns) == len(own.primaryKey):
        everything = batches.of_all_rows()
        rows, version = store.scan_and_version(everything, extra)
        columns = [E.quote(f.name) for f in (*own.stored_fields, *extra)]
        return resolve_by_window(select_exprs(near(rows), [*columns, f"{version} AS {C.VERSION}"]), everything)
    batches = usable(store, batches)
    found = ReadPlan.of(batches, store.spark)
    if found is None:
        return resolve_by_window(near(store.scan(batches, extra)), batches)
    return _overlay_plan(lambda some: near(store.scan(some, extra)), found)


def resolve_by_window(rows: DataFrame, batches: Batches) -> DataFrame:
    """Resolve row versions by one window, which shuffles only if the rows of each key are not together yet."""
    definition = batches.definition
    if not batches.deltas:
        return rows.drop(C.VERSION)
    may_tie = any(b.foreign and not b.unique_keys for b in batches.batches)
    ties = tie_breaking.weights(rows.drop(C.VERSION), definition) if may_tie else ()
    return winners(rows, definition, Order.of(definition, [C.VERSION], ties), C.VERSION)


def prune_batches(
    store: TableStore, definition: TableDefinition, batches: Sequence[Batch], sought: Sequence[KeyRange | None]
) -> tuple[Batch, ...]:
    """Return the batches whose files to list for keys of some ranges: all if they are too many, or a range is not known."""
    if len(batches) > MAX_PRUNED_BATCHES or None in sought:
        return tuple(batches)
    near = meeting(definition, store.ranges_of(batches), sought)
    return tuple(b for b, is_near in zip(batches, near, strict=True) if is_near)


def near_batches(
    store: TableStore, definition: TableDefinition, batches: Sequence[Batch], others: Sequence[Batch]
) -> tuple[Batch, ...]:
    """Return the batches that may hold a key of others, by the key ranges beside their files."""
    if max(len(batches), len(others)) > MAX_PRUNED_BATCHES:
        return tuple(batches)
    return prune_batches(store, definition, batches, store.ranges_of(others))


def keys_to_find(definition: TableDefinition) -> list[str]:
    """Return the primary key of stored rows as select items named :data:`C.KEY_TO_FIND`."""
    return [f"{E.quote(k)} AS {C.KEY_TO_FIND(i)}" for i, k in enumerate(definition.primaryKey)]


def semi_join(rows: DataFrame, definition: TableDefinition, keys: DataFrame) -> DataFrame:
    """Return the rows whose primary key, or what ``keys`` has of it, occurs there. Its columns are called :data:`C.KEY_TO_FIND`."""
    return join(rows, keys, _is_sought(definition, keys), "left_semi")


def anti_join(rows: DataFrame, definition: TableDefinition, keys: DataFrame) -> DataFrame:
    """Return the rows whose primary key does not occur in ``keys``, whose columns are called :data:`C.KEY_TO_FIND`."""
    return join(rows, keys, _is_sought(definition, keys), "left_anti")


def left_join_keys(rows: DataFrame, definition: TableDefinition, keys: DataFrame) -> DataFrame:
    """Return the rows with the other columns of ``keys``, or nulls for keys that are not in it. ``keys`` must be unique."""
    found = join(rows, keys, _is_sought(definition, keys), "left_outer")
    return found.drop(*[C.KEY_TO_FIND(i) for i in range(len(definition.primaryKey))])


def _about(rows: DataFrame, definition: TableDefinition, keys: DataFrame) -> DataFrame:
    """Return what :func:`semi_join` returns, faster. In very rare cases it includes rows of other keys, so compare keys again."""
    sought = {k: C.KEY_TO_FIND(i) for i, k in enumerate(definition.primaryKey) if C.KEY_TO_FIND(i) in keys.columns}
    kinds = [E.physical_type(definition.field(k)) for k in sought]
    if kinds != [keys.schema[name].dataType for name in sought.values()]:
        return semi_join(rows, definition, keys)
    condition = may_be_same_key([E.quote(k) for k in sought], list(sought.values()), kinds)
    return join(rows, keys, condition, "left_semi")


def _is_sought(definition: TableDefinition, keys: DataFrame) -> Sql:
    sought = {i: k for i, k in enumerate(definition.primaryKey) if C.KEY_TO_FIND(i) in keys.columns}
    return E.all_of(E.equals(E.quote(k), C.KEY_TO_FIND(i)) for i, k in sought.items())


# Base and deltas ------------------------------------------------------------------------------------------------------


@attrs.frozen
class ReadPlan:
    """Rows with unique keys and the few written since: the base need not be shuffled to be resolved, in either of two ways.

    Attributes:
        base: the resolved batch or segments, or the oldest batch if its keys are unique.
        deltas: what is pending beside it: committed after a base of one batch; of segments after those whose keys they have.
        deltas_are_newer: no base row can be fresher than a delta row, by the batches' statistics.
        settled: the pending batches that have no key of another.
    """

    base: Batches
    deltas: Batches
    deltas_are_newer: bool
    settled: tuple[Batch, ...] = ()

    @classmethod
    def of(cls, batches: Batches, spark: SparkSession, settled: Sequence[Batch] = ()) -> ReadPlan | None:
        """Return the plan for a table's batches, or None if full resolution is better or the only way."""
        apart = {b.id for b in settled}
        base, deltas = batches.read_base, tuple(b for b in batches.deltas if b.id not in apart)
        size, rows = sum(b.rows for b in deltas), sum(b.rows for b in (*base, *settled))
        if not base or not deltas or size * 2 > rows:
            return None
        if not all(_is_later(d, b) for d, b in _pairs(base, deltas)):
            return None
        found = attrs.evolve(cls.between(batches, base, deltas), settled=tuple(settled))
        return found if fits_broadcast(spark, size, 1 if found.deltas_are_newer else 2) else None

    @classmethod
    def between(cls, batches: Batches, base: tuple[Batch, ...], deltas: tuple[Batch, ...]) -> ReadPlan:
        own = batches.definition
        win = all(
            _is_later(d, b) and (not own.watermarkKey or is_at_least(d.watermark_min, b.watermark_max, own))
            for d, b in _pairs(base, deltas)
        )
        return cls(attrs.evolve(batches, batches=base), attrs.evolve(batches, batches=deltas), win)

    @property
    def is_unique(self) -> bool:
        """True if no batch has two rows of one key, without the rows that deletion vectors mark."""
        unmarked = () if self.base.compared else self.base.batches
        return all(b.unique_keys for b in (*unmarked, *self.deltas.batches))


def _pairs(base: Sequence[Batch], deltas: Sequence[Batch]) -> list[tuple[Batch, Batch]]:
    """Return each delta with each base batch that may have a key of it: a segment has none of older batches."""
    return [(d, b) for b in base for d in deltas if b.segment_of is None or _is_later(d, b)]


def _is_later(delta: Batch, base: Batch) -> bool:
    return _version(delta) > _version(base)


def _version(batch: Batch) -> int:
    return -1 if batch.version is None else batch.version


def _no_part(_rows: DataFrame, _batches: Batches) -> None:
    """Return None, so that batches are scanned again: for stores without ``part_of``."""


def compare(
    scan: Callable[[Batches], tuple[DataFrame, Sql]],
    found: ReadPlan,
    how: str,
    place: Sequence[Sql] = (),
    is_small: bool = True,
    part: Callable[[DataFrame, Batches], DataFrame | None] = _no_part,
) -> DataFrame:
    """Return the rows of base and deltas that have no fresher row of their key, for ``"left_anti"``, or those that have one.

    Of the deltas, scanned for that before, key, watermark and version are sent to where all is scanned. Where a base row may be
    fresher than a delta row, a second look at keys and watermarks of the base finds such rows, and sends them as well.

    ``scan`` returns the rows of batches, and their version as SQL; ``part`` those of some batches in what it has returned.
    ``place`` decides between rows of one batch with equal watermarks. If the deltas do not fit a broadcast, all rows are shuffled.
    """
    definition = found.base.definition
    everything = (*found.base.batches, *found.deltas.batches, *found.settled)
    rows, version = scan(attrs.evolve(found.base, batches=everything))

    def scan_part(batches: Batches) -> tuple[DataFrame, Sql]:
        some = part(rows, batches)
        return scan(batches) if some is None else (some, version)

    deltas, version_of_delta = scan_part(found.deltas)
    if any(b.foreign for b in found.deltas.batches):
        deltas = deltas.filter(_has_key(definition))
    marks = select_exprs(deltas, _mark(definition, Order.of(definition, [version_of_delta, *place])))
    mine = Order.of(definition, [version, *place])
    is_fresher = E.all_of([_same_key(definition), is_older(mine.values, _marked(mine))])
    if not found.deltas_are_newer:
        base, version_of_base = scan_part(found.base)
        own = Order.of(definition, [version_of_base, *place])
        is_beaten = E.all_of([_same_key(definition), is_older(_marked(own), own.values)])
        beating = join(base, marks, is_beaten, "inner", is_small).drop(*marks.columns)
        marks = marks.unionByName(select_exprs(beating, _mark(definition, own)))
    return join(rows, marks, is_fresher, how, is_small)


def _mark(definition: TableDefinition, order: Order) -> list[str]:
    """Return select items under unique names: the key, and the values that decide which row of a key is the latest."""
    return [
        *(f"{E.quote(k)} AS {C.DELTA_KEY(i)}" for i, k in enumerate(definition.primaryKey)),
        *(f"{value} AS {name}" for value, name in zip(order.values, _marked(order), strict=True)),
    ]


def _marked(order: Order) -> list[Sql]:
    """Return the names of the values of an order in :func:`_mark`."""
    return [
        *(C.DELTA_WATERMARK(i) for i in range(len(order.watermark))),
        *(C.DELTA_PLACE(i) for i in range(len(order.commit))),
    ]


def _overlay_plan(scan: Callable[[Batches], DataFrame], found: ReadPlan) -> DataFrame:
    """Return the latest rows of base and deltas: one unshuffled scan of the base without replaced rows, and the resolved deltas.

    Where a base row may be fresher than a delta row, a second look at the keys and watermarks of the base finds the delta rows that
    lose.
    """
    definition = found.base.definition
    base = scan(found.base).drop(C.VERSION)
    deltas = resolve_by_window(scan(found.deltas).filter(_has_key(definition)), found.deltas)
    order = Order.of(definition)
    marks = select_exprs(deltas, _mark(definition, order))
    fresher = E.FALSE
    if not found.deltas_are_newer:
        fresher = is_older(_marked(order), order.values)  # ties go to the delta, the later commit (S6)
        beaten = join(base, marks, E.all_of([_same_key(definition), fresher]), "inner", is_small=True)
        losers = select_exprs(beaten, [C.DELTA_KEY(i) for i in range(len(definition.primaryKey))])
        deltas = join(deltas, losers, _same_key(definition), "left_anti", is_small=True)
    replaced = E.all_of([_same_key(definition), E.not_(fresher)])
    return join(base, marks, replaced, "left_anti", is_small=True).unionByName(deltas)


def _has_key(definition: TableDefinition) -> Sql:
    return E.all_of(E.is_not_null(E.quote(k)) for k in definition.primaryKey)


def _same_key(definition: TableDefinition) -> Sql:
    names = definition.primaryKey
    kinds = [E.physical_type(definition.field(k)) for k in names]
    return same_key([E.quote(k) for k in names], [C.DELTA_KEY(i) for i in range(len(names))], kinds)
