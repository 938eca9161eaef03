"""Values from earlier keys: which changes of keys lead to them, and what earlier keys have set (U7)."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot
from trinitymerge.rows import authors
from trinitymerge.rows.registers import UNSET_FIELD
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark.expressions import all_of, quote
from trinitymerge.spark.sql_text import Sql
from trinitymerge.spark.system_columns import KEY_TO_FIND
from trinitymerge.stores.base import TableStore

LEADING = "leading"
"""The column with the elements of an author that lead to an earlier key (:class:`~trinitymerge.rows.authors.Authors`)."""

_LAST = f"element_at({LEADING}, -1)"


def key_changes(store: TableStore, snapshot: Snapshot, moved: DataFrame | None, keys: DataFrame | None) -> DataFrame:
    """Return the changes of keys after which rows may have values from earlier keys, evaluated.

    Args:
        store: where the table is.
        snapshot: its version.
        moved: those of rows to write, in the form of the result.
        keys: of all rows to write, as columns :data:`~trinitymerge.spark.system_columns.KEY_TO_FIND`. Only changes from or to
            one of them, or an old key of a row to write, are returned. None for all.

    Returns:
        The keys that rows have, ``k0`` and so on, and :data:`LEADING`. If a row has changed its key several times, there is a row
        for each of its earlier keys.
    """
    own, found = snapshot.definition, [] if moved is None else [moved]
    if keys is not None and moved is not None:
        keys = keys.unionByName(moved.selectExpr(*_named(own, f"{LEADING}[0].k")))
    if snapshot.has_moved:
        found.append(_stored(store, snapshot, keys))
    changes = reduce(DataFrame.unionByName, found).distinct().localCheckpoint()
    return changes if moved is None else _followed(changes, own)


def keys_of(changes: DataFrame, definition: TableDefinition) -> DataFrame:
    """Return both keys of each change, as columns :data:`~trinitymerge.spark.system_columns.KEY_TO_FIND`."""
    here, there = (changes.selectExpr(*_named(definition, name)) for name in ("k", f"{_LAST}.k"))
    return here.unionByName(there)


def brought(rows: DataFrame, changes: DataFrame, definition: TableDefinition, parts: int) -> DataFrame:
    """Return what the rows of earlier keys have set before the key was changed, under the keys that rows have.

    Args:
        rows: of all keys: ``k0`` and so on; for each part its value ``v0``, and ``s0``, a struct of the author ``a`` and ``r``.
        changes: of :func:`key_changes`.
        definition: of the table.
        parts: how many there are.

    Returns:
        The same columns, and the watermark of the change, ``w0`` and so on.
    """
    is_it = all_of(Sql(f"r.k{i} = element_at(e.{LEADING}, -1).k{i}") for i in range(len(definition.primaryKey)))
    shown = [f"e.k{i} AS k{i}" for i in range(len(definition.primaryKey))]
    shown += [f"e.{LEADING}[0].w{i} AS w{i}" for i in range(len(definition.watermarkKey))]
    for i in range(parts):
        is_before = _is_before(Sql(f"r.s{i}.a"), Sql(f"element_at(e.{LEADING}, -1)"), definition)
        by = f"struct(concat(e.{LEADING}, r.s{i}.a) AS a, r.s{i}.r AS r)"
        shown += [f"r.v{i} AS v{i}", f"CASE WHEN {is_before} THEN {by} END AS s{i}"]
    return rows.alias("r").join(changes.alias("e"), F.expr(is_it)).selectExpr(*shown)


def _stored(store: TableStore, snapshot: Snapshot, keys: DataFrame | None) -> DataFrame:
    """Return what :func:`key_changes` returns, of stored rows."""
    own, size = snapshot.definition, len(snapshot.definition.primaryKey)
    batches = Batches(own, tuple(b for b in snapshot.batches if b.moved))
    named = [f"{quote(k)} AS k{i}" for i, k in enumerate(own.primaryKey)]
    leading = f"explode({authors.key_changes(own)}) AS {LEADING}"
    found = store.scan(batches, [UNSET_FIELD]).selectExpr(*named, leading).distinct()
    if keys is None:
        return found
    keys = keys.distinct()
    joined = [
        found.join(keys, F.expr(all_of(Sql(f"{of}k{i} = {KEY_TO_FIND(i)}") for i in range(size))), "left_semi")
        for of in ("", f"{_LAST}.")
    ]
    return joined[0].unionByName(joined[1])


def _followed(changes: DataFrame, definition: TableDefinition) -> DataFrame:
    """Return changes of keys, and those of their old keys before them, and so on; one job for each change of one row."""
    size = len(definition.primaryKey)
    keys = [f"k{i}" for i in range(size)]
    earlier = changes.selectExpr(*[f"k{i} AS e{i}" for i in range(size)], f"{LEADING} AS e")
    is_it = all_of(Sql(f"{_LAST}.k{i} = e{i}") for i in range(size))
    is_earlier = F.expr(all_of([is_it, _is_before(Sql("e"), Sql(_LAST), definition)]))
    found = last = changes
    while True:
        more = last.join(earlier, is_earlier).selectExpr(*keys, f"concat({LEADING}, e) AS {LEADING}").distinct()
        last = more.join(found, [*keys, LEADING], "left_anti").localCheckpoint()
        if last.isEmpty():
            return found
        found = found.unionByName(last)


def _is_before(author: Sql, change: Sql, definition: TableDefinition) -> Sql:
    """Return SQL that is true if an author is earlier than a change of the key, an element of another one."""
    marks = range(len(definition.watermarkKey))
    mine, theirs = (Sql(f"struct({', '.join(f'{at}.w{n} AS w{n}' for n in marks)})") for at in (f"{author}[0]", change))
    return Sql(f"{mine} < {theirs}")


def _named(definition: TableDefinition, name: str) -> list[str]:
    """Return select items for the columns of a key, from columns or fields of a name and a number."""
    return [f"{name}{i} AS {KEY_TO_FIND(i)}" for i in range(len(definition.primaryKey))]
