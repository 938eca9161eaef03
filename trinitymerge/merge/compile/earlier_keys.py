"""Values from earlier keys: the changes of keys that lead to them, and what each earlier key had set (U7)."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from pyspark.sql import DataFrame, functions as F

from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot
from trinitymerge.merge.compile.join import Materialized, materialize
from trinitymerge.rows import authors
from trinitymerge.rows.registers import UNSET_FIELD
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores.base import TableStore

CHAIN = "chain"
"""The column with changes of keys as elements of an author (:class:`~trinitymerge.rows.authors.Authors`): that of the row's key
first, then that of its old key, and so on."""

_MOST_TO_BROADCAST = 100_000


def key_changes(
    store: TableStore, snapshot: Snapshot, moved: DataFrame | None, written: DataFrame | None
) -> Materialized:
    """Return the changes of keys after which rows may have values from earlier keys, evaluated in one job.

    There is one row for each key and each change to it: ``k0`` and so on, the keys that rows have, and :data:`CHAIN`.
    ``moved`` are those of rows to write, each of one element. ``written`` are all rows to write, as ``k0`` and so on, and their
    watermark ``w0`` and so on. Of stored rows, only chains with a key that one of them has before it changed are returned: no
    other is mended. Without ``written``, all chains are.
    """
    own = snapshot.definition
    found = [] if moved is None else [moved]
    if snapshot.has_moved:
        found.append(_stored(store, snapshot, written))
    keys = _names(own)
    longest = reduce(DataFrame.unionByName, found).groupBy(*keys, F.expr(f"{CHAIN}[0]"))
    # Of chains with the same last change, the greater one has the later changes before it, and more of them.
    return materialize(longest.agg(F.max(CHAIN).alias(CHAIN)).select(*keys, CHAIN))


def keys_of(changes: DataFrame, definition: TableDefinition) -> DataFrame:
    """Return all keys in changes, as columns :data:`~trinitymerge.spark.system_columns.KEY_TO_FIND`."""
    here = changes.selectExpr(*_named(definition, "k"))
    return here.unionByName(changes.selectExpr(f"explode({CHAIN}) AS e").selectExpr(*_named(definition, "e.k")))


def brought(rows: DataFrame, changes: Materialized, definition: TableDefinition, defaults: Sequence[Sql]) -> DataFrame:
    """Return what rows have from their earlier keys: a row for each change of a key, at its watermark.

    Each change asks what its old key had set before. The answer is a value that a row of the old key has set, or that of an
    earlier change, to the old key. Then the earlier change has the answer, and each round of :func:`_joined` doubles how far an
    answer reaches. So a row that has changed its key ``n`` times takes ``log2(n)`` jobs.

    The rows are of all keys: ``k0`` and so on; for each part its value ``v0``, and ``s0``, a struct of the author ``a`` and
    ``r``. The result also has the watermark of the change, ``w0`` and so on. ``defaults`` is SQL for the value of each part
    that no row has set.
    """
    asked = materialize(_asked(rows, changes, definition, len(defaults)), {"open": "count(earlier)"})
    while asked.observed["open"]:
        asked = materialize(_joined(asked.frame, len(defaults)), {"open": "count(earlier)"})
    shown = [f"id.k{i} AS k{i}" for i in range(len(definition.primaryKey))]
    shown += [f"id.head.w{n} AS w{n}" for n in range(len(definition.watermarkKey))]
    for i, default in enumerate(defaults):
        is_set = f"coalesce(c{i}.s.a > h, false)"
        author = f"concat(array(id.head), CASE WHEN {is_set} THEN c{i}.s.a ELSE h END)"
        shown.append(f"CASE WHEN {is_set} THEN c{i}.v ELSE {default} END AS v{i}")
        shown.append(f"struct({author} AS a, CASE WHEN {is_set} THEN c{i}.s.r ELSE 0 END AS r) AS s{i}")
    return asked.frame.filter("id.n = 0").selectExpr(*shown)


def _asked(rows: DataFrame, changes: Materialized, definition: TableDefinition, parts: int) -> DataFrame:
    """Return a row for each element of each chain: what its old key had before.

    Returns:
        - ``id``: the key and the first element of the chain, ``head``, and the place ``n`` of this one;
        - ``c0`` and so on: for each part the last that a row of the old key has set, a struct of ``s`` and its value ``v``;
        - ``earlier``: the id of the change to the old key before; null if there is none, or all parts have been set since;
        - ``h``: the element of that change in an array, or none. Authors that begin with it come from that change.
    """
    own, keys = definition, _names(definition)
    named = ", ".join(f"{k} AS {k}" for k in keys)
    elements = changes.frame.selectExpr(
        *keys, CHAIN, f"{CHAIN}[0] AS head", f"posexplode({CHAIN}) AS (n, e)"
    ).selectExpr(
        *[f"e.{k} AS {k}" for k in keys],
        f"{_at(Sql('e'), own)} AS at",
        f"struct({named}, head AS head, n AS n) AS id",
        f"get({CHAIN}, n + 1) AS before",
    )
    arrivals = changes.frame.selectExpr(*keys, f"{_at(Sql(f'{CHAIN}[0]'), own)} AS at", f"{CHAIN}[0] AS arrival")
    sought = elements.select(*keys).distinct()
    sought = F.broadcast(sought) if changes.rows <= _MOST_TO_BROADCAST else sought
    together = _by_author(rows.join(sought, keys, "left_semi"), own, parts)
    for others in (elements, arrivals):
        together = together.unionByName(others, allowMissingColumns=True)
    of_key = f"PARTITION BY {', '.join(keys)}"
    placed = together.selectExpr("*", f"dense_rank() OVER ({of_key} ORDER BY at) AS place")
    earlier = f"({of_key} ORDER BY place RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"
    last = [f"max_by(struct(s{i} AS s, v{i} AS v), s{i}) OVER {earlier} AS c{i}" for i in range(parts)]
    found = placed.selectExpr("id", "before", *keys, f"max(arrival) OVER {earlier} AS arrival", *last)
    # Two changes to a key: the later one counts. The chain of a stored row goes on where rows of old keys are gone.
    is_before = Sql("coalesce(before >= arrival, before IS NOT NULL)")
    same_chain = Sql(f"struct({', '.join(f'id.{k} AS {k}' for k in keys)}, id.head AS head, id.n + 1 AS n)")
    other_chain = Sql(f"struct({named}, arrival AS head, 0 AS n)")
    return _closed(
        found.filter("id IS NOT NULL").selectExpr(
            "id",
            "filter(array(greatest(before, arrival)), x -> x IS NOT NULL) AS h",
            f"{E.case([(is_before, same_chain), (E.is_not_null(Sql('arrival')), other_chain)])} AS earlier",
            *[f"c{i}" for i in range(parts)],
        ),
        parts,
    )


def _by_author(rows: DataFrame, definition: TableDefinition, parts: int) -> DataFrame:
    """Return a row for each watermark of an author in rows, at that watermark, with what it has set."""
    keys, authors_at = _names(definition), [_at(Sql(f"s{i}.a[0]"), definition) for i in range(parts)]
    shown = [f"CASE WHEN {at} = at THEN s{i} END AS s{i}" for i, at in enumerate(authors_at)]
    several = rows.selectExpr("*", f"explode(array_distinct(array({', '.join(authors_at)}))) AS at")
    return several.selectExpr(*keys, "at", *shown, *[f"v{i}" for i in range(parts)])


def _joined(asked: DataFrame, parts: int) -> DataFrame:
    """Return the answers, each with the answer of the change before it."""
    there = asked.selectExpr("id AS there", "earlier AS further", "h AS g", *[f"c{i} AS d{i}" for i in range(parts)])
    joined = asked.join(there, F.expr("earlier = there"), "left")
    shown = []
    for i in range(parts):
        other = f"struct(struct(concat(h, d{i}.s.a) AS a, d{i}.s.r AS r) AS s, d{i}.v AS v)"
        is_later = f"d{i} IS NOT NULL AND (c{i} IS NULL OR concat(h, d{i}.s.a) > c{i}.s.a)"
        shown.append(f"CASE WHEN {is_later} THEN {other} ELSE c{i} END AS c{i}")
    longer = "CASE WHEN there IS NULL THEN h ELSE concat(h, g) END AS h"
    return _closed(joined.selectExpr("id", longer, "further AS earlier", *shown), parts)


def _closed(asked: DataFrame, parts: int) -> DataFrame:
    """Return the answers, without the change before if all parts have been set since."""
    is_set = E.all_of(Sql(f"coalesce(slice(c{i}.s.a, 1, size(h)) > h, false)") for i in range(parts))
    return asked.withColumn("earlier", F.expr(E.case([(E.not_(is_set), Sql("earlier"))])))


def _stored(store: TableStore, snapshot: Snapshot, written: DataFrame | None) -> DataFrame:
    """Return what :func:`key_changes` returns, of stored rows."""
    own = snapshot.definition
    batches = Batches(own, tuple(b for b in snapshot.batches if b.moved))
    named = [f"{E.quote(k)} AS k{i}" for i, k in enumerate(own.primaryKey)]
    found = store.scan(batches, [UNSET_FIELD]).selectExpr(*named, f"explode({authors.key_changes(own)}) AS {CHAIN}")
    if written is None:
        return found
    marks = [f"w{n} AS w{n}" for n in range(len(own.watermarkKey))]
    of_key = written.groupBy(*[F.expr(f"k{i} AS late{i}") for i in range(len(named))])
    late = of_key.agg(F.expr(f"min(struct({', '.join(marks)})) AS at"))
    is_it = E.all_of(Sql(f"e.k{i} = late{i}") for i in range(len(named)))
    is_late = E.all_of([is_it, Sql(f"at < {_at(Sql('e'), own)}")])
    each = found.distinct().selectExpr("*", f"explode({CHAIN}) AS e")
    return each.join(late, F.expr(is_late), "left_semi").drop("e")


def _at(element: Sql, definition: TableDefinition) -> Sql:
    """Return the watermark of an element of an author, as a struct."""
    return Sql(f"struct({', '.join(f'{element}.w{n} AS w{n}' for n in range(len(definition.watermarkKey)))})")


def _names(definition: TableDefinition) -> list[str]:
    return [f"k{i}" for i in range(len(definition.primaryKey))]


def _named(definition: TableDefinition, name: str) -> list[str]:
    """Return select items for the columns of a key, from columns or fields of a name and a number."""
    return [f"{name}{i} AS {C.KEY_TO_FIND(i)}" for i in range(len(definition.primaryKey))]
