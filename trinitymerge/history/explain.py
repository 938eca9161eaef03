"""`why`: explain which stored row of a key is current (S42)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, functions as F
from pyspark.sql.types import BinaryType, StringType

from trinitymerge import reader
from trinitymerge.history.changes import bigint, meaning, require_free, timestamp, watermark
from trinitymerge.log.actions import TruncateTable
from trinitymerge.log.model import Snapshot
from trinitymerge.rows import key_ranges
from trinitymerge.rows.authors import Authors
from trinitymerge.rows.keys import keys_to_columns, require_non_null_keys, translate_cast_errors
from trinitymerge.rows.registers import Part, is_unset, parts_of, since, stored_in
from trinitymerge.rows.resolution import Order, rank
from trinitymerge.rows.tombstones import tombstone_marker
from trinitymerge.rows.watermarks import watermark_sql
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.conf import with_session_settings
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores.base import ManagedStore

OUTPUT_COLUMNS = ("_batch", "_commit_version", "_commit_timestamp", "_watermark", "_tombstone", "_why")
"""The columns that why() adds."""

_CALL = "why"
_TRUNCATED = "deleted: the table was truncated"


@with_session_settings
def why(store: ManagedStore, snapshot: Snapshot, key: Any) -> DataFrame:
    """Return every stored row of one key, the current one first (S42). A key of several columns is a tuple, dict or Row."""
    own = snapshot.definition
    require_free(own, OUTPUT_COLUMNS, _CALL)
    keys = keys_to_columns(store.spark, own, [key], _CALL)
    with translate_cast_errors(_CALL):
        require_non_null_keys(keys, _CALL)
        within = key_ranges.one_of(own, keys)
    batches = [b for b in snapshot.batches if b.rows]
    store.verify_files(batches)
    partial = stored_in(batches)
    fields = [*own.stored_fields, Field(str(C.SINCE), "long"), *partial]
    stored = store.scan_directories(own, fields, [b.id for b in batches])
    near = stored if within is None else stored.filter(within)
    rows = reader.semi_join(near, own, F.broadcast(keys))
    versions = _versions(store, rows) if own.history else {}
    pairs = ", ".join(f"{E.text_literal(b.id)}, {b.version}L" for b in batches)
    of_batch = Sql(f"try_element_at(map({pairs}), {C.BATCH})" if pairs else "CAST(NULL AS BIGINT)")
    version = E.or_else(meaning(versions, C.SINCE), of_batch)
    if snapshot.truncate is not None:
        rows = _with_truncate(rows, keys, own, snapshot.truncate)
        version = E.or_else(version, bigint(snapshot.truncate.version))
    known = {*versions.values(), *(b.version for b in batches)}
    known |= set() if snapshot.truncate is None else {snapshot.truncate.version}
    sentence = _joined(_sentence(own), _kept(own)) if partial else _sentence(own)
    return _explained(_ranked(rows, own, version), store, own, known, sentence)


def _with_truncate(rows: DataFrame, keys: DataFrame, own: TableDefinition, truncate: TruncateTable) -> DataFrame:
    """Add the tombstone that a truncate is of the key (T1): a row without a batch."""
    at = watermark_sql(truncate.watermark, own)
    if at is None:
        return rows
    known: dict[str, Sql] = {k: C.KEY_TO_FIND(i) for i, k in enumerate(own.primaryKey)}
    known |= dict(zip(own.watermarkKey, at, strict=True))
    known[own.tombstone_column] = tombstone_marker(own)
    nulls = {f.name: E.cast(E.NULL, f.dataType) for f in rows.schema.fields}
    found = keys.selectExpr(*[f"{known.get(n, null)} AS {E.quote(n)}" for n, null in nulls.items()])
    return rows.unionByName(found)


def _versions(store: ManagedStore, rows: DataFrame) -> dict[int, int]:
    """Return the versions that committed the rows of archives, by the commit time that these keep."""
    kept = rows.filter(E.is_not_null(C.SINCE)).select(C.SINCE).distinct().collect()
    found = {r[0]: store.version_of(r[0]) for r in kept}
    return {at_ms: version for at_ms, version in found.items() if version is not None}


def _ranked(rows: DataFrame, own: TableDefinition, version: Sql) -> DataFrame:
    """Return the rows of one key with their rank (S6, S13), the winner, and the next row."""
    order, keys = Order.of(own, [C.VERSION]), [E.quote(k) for k in own.primaryKey]
    freshest_first = [*order.freshest_first(), Sql(f"{C.BATCH} ASC NULLS LAST")]
    return rows.selectExpr("*", f"{version} AS {C.VERSION}").selectExpr(
        "*",
        f"{rank(keys, freshest_first)} AS {C.RANK}",
        f"{E.over(Sql(f'first_value({order.packed()})'), keys, freshest_first)} AS {C.WINNER}",
        f"{E.over(Sql(f'lead({order.packed()})'), keys, freshest_first)} AS {C.RUNNER_UP}",
    )


def _explained(
    rows: DataFrame, store: ManagedStore, own: TableDefinition, versions: set[int | None], sentence: Sql
) -> DataFrame:
    times = {v: store.committed_at(v) for v in sorted(v for v in versions if v is not None)}
    values = (C.BATCH, C.VERSION, timestamp(meaning(times, C.VERSION)), watermark(own), E.is_tombstone(own), sentence)
    shown = (f"{value} AS {E.quote(name)}" for value, name in zip(values, OUTPUT_COLUMNS, strict=True))
    shows = E.any_of([E.is_not_null(C.BATCH), Sql(f"{C.RANK} = 1")])  # a truncate that is not the latest says nothing
    return rows.filter(shows).orderBy(C.RANK).selectExpr(*map(E.quote, own.names), *shown)


def _sentence(own: TableDefinition) -> Sql:
    lost, truncated = (Sql(f"{C.RANK} > 1"), _why_lost(own)), (E.is_null(C.BATCH), E.text_literal(_TRUNCATED))
    only, largest = "deleted: a tombstone, the only row", "deleted: a tombstone with the largest watermark"
    deleted = _won(own, only, "deleted: a tombstone, {}", largest)
    current = _won(own, "current: the only row", "current: {}", "current: the largest watermark")
    return E.case([lost, truncated, (E.is_tombstone(own), deleted)], current)


def _why_lost(own: TableDefinition) -> Sql:
    theirs = E.field_of(C.WINNER, C.VERSION)
    before = [E.text_literal("committed earlier "), Sql(f"concat('(version ', {C.VERSION}, ' before ', {theirs}, ')')")]
    again = (E.same(C.VERSION, theirs), E.text_literal("lost: the same event once more, in the same batch"))
    if not own.watermarkKey:
        return E.case([again], _joined(E.text_literal("lost: "), *before))
    parts = [_text(own), E.text_literal(" is smaller than "), _text(own, C.WINNER)]
    smaller = _joined(E.text_literal("lost: watermark "), *parts)
    earlier = _joined(E.text_literal("lost: equal watermark, "), *before)
    return E.case([(_same_watermark(own, C.WINNER), E.case([again], earlier))], smaller)


def _won(own: TableDefinition, only: str, by_commit: str, by_watermark: str) -> Sql:
    alone = (E.is_null(C.RUNNER_UP), E.text_literal(only))
    if not own.watermarkKey:
        return E.case([alone], E.text_literal(by_commit.format("committed last")))
    tied = E.all_of([_same_watermark(own, C.RUNNER_UP), E.not_(E.same(C.VERSION, E.field_of(C.RUNNER_UP, C.VERSION)))])
    later = E.text_literal(by_commit.format("of equal watermarks the one committed last"))
    return E.case([alone, (tied, later)], E.text_literal(by_watermark))


def _kept(own: TableDefinition) -> Sql:
    """Return the columns that a partial row leaves unset, each with the watermark of its value (U2); an empty text if none."""
    parts = [part for column in parts_of(own) for part in column.all() if not part.inside]
    found = ", ".join(_joined(E.text_literal("; "), E.text_literal(".".join(p.path)), _as_of(own, p)) for p in parts)
    return Sql(f"concat_ws('', array({found}))") if parts else E.text_literal("")


def _as_of(own: TableDefinition, part: Part) -> Sql:
    """Return since when a part of a row has its value, as text; null if the row sets it."""
    by = Authors(own, moves=True).from_texts(since(part))
    last, change = Sql(f"element_at({by}, -1)"), Sql(f"try_element_at({by}, -2)")

    def shown(names: Sequence[str], values: Sequence[Sql]) -> Sql:
        texts = [_value(own, name, value) for name, value in zip(names, values, strict=True)]
        return texts[0] if len(texts) == 1 else _in_parentheses(texts)

    watermark = shown(own.watermarkKey, [Sql(f"{last}.w{i}") for i in range(len(own.watermarkKey))])
    key = shown(own.primaryKey, [Sql(f"{change}.k{i}") for i in range(len(own.primaryKey))])
    at = _joined(E.text_literal(": as of "), watermark)
    under = E.case([(Sql(f"size({by}) > 1"), _joined(E.text_literal(" under key "), key))])
    is_known = E.all_of([E.is_not_null(since(part)), Sql(f"{last}.sets")])
    told = E.case([(is_known, _joined(at, E.or_else(under, E.text_literal(""))))], E.text_literal(": never set"))
    return E.case([(is_unset(part), told)])


def _same_watermark(own: TableDefinition, other: Sql) -> Sql:
    return E.all_of(E.same(E.quote(w), E.field_of(other, w)) for w in own.watermarkKey)


def _text(own: TableDefinition, row: Sql | None = None) -> Sql:
    parts = [_value(own, w, E.quote(w) if row is None else E.field_of(row, w)) for w in own.watermarkKey]
    return parts[0] if len(parts) == 1 else _in_parentheses(parts)


def _in_parentheses(parts: Sequence[Sql]) -> Sql:
    return Sql(f"concat('(', concat_ws(', ', {', '.join(parts)}), ')')")


def _value(own: TableDefinition, name: str, value: Sql) -> Sql:
    kind = E.physical_type(own.field(name))
    text = Sql(f"concat('0x', hex({value}))") if isinstance(kind, BinaryType) else E.cast(value, StringType())
    return E.or_else(text, E.text_literal("null"))


def _joined(*parts: Sql) -> Sql:
    return Sql(f"concat({', '.join(parts)})")
