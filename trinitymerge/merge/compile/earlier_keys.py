"""Values from earlier keys: the changes of keys that lead to them, and what each earlier key had set (U7).

A row for each change of a key asks a question: what had its old key set before? The answer is ``SET_BEFORE``, as in a timeline.
:mod:`~trinitymerge.spark.system_columns` declares the other columns.
"""

from __future__ import annotations

from functools import reduce

from pyspark.sql import DataFrame, functions as F

from trinitymerge.log.batches import Batches
from trinitymerge.log.model import Snapshot
from trinitymerge.merge.compile.join import Materialized, materialize
from trinitymerge.merge.compile.key_timeline import (
    OF_OLD_KEY,
    STORED,
    earlier_places,
    last_set,
    row_items,
    set_at,
)
from trinitymerge.rows import authors
from trinitymerge.rows.registers import UNSET_FIELD, Registers
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores.base import TableStore

_MOST_TO_BROADCAST = 100_000


def key_changes(
    store: TableStore, snapshot: Snapshot, moved: DataFrame | None, written: DataFrame | None
) -> Materialized:
    """Return the changes of keys after which rows may have values from earlier keys, evaluated in one job.

    There is one row for each key and each change to it: :data:`C.ROW_KEY`, the keys that rows have, and :data:`C.CHAIN`.
    ``moved`` are those of rows to write, each of one element. ``written`` are :data:`C.ROW_KEY` and :data:`C.ROW_WATERMARK` of all
    rows to write. Of stored rows, only chains with a key that one of them has before it changed are returned: no other is mended.
    Without ``written``, all chains are.
    """
    found = [] if moved is None else [moved]
    if snapshot.has_moved:
        found.append(_stored(store, snapshot, written))
    keys = C.ROW_KEY.all(snapshot.definition.primaryKey)
    longest = reduce(DataFrame.unionByName, found).groupBy(*keys, F.expr(f"{C.CHAIN}[0]"))
    # Of chains with the same last change, the greater one has the later changes before it, and more of them.
    return materialize(longest.agg(F.max(C.CHAIN).alias(C.CHAIN)).select(*keys, C.CHAIN))


def keys_in(changes: DataFrame, definition: TableDefinition) -> DataFrame:
    """Return all keys in changes, as columns :data:`C.KEY_TO_FIND`."""
    here = changes.selectExpr(*C.KEY_TO_FIND.of(C.ROW_KEY.all(definition.primaryKey)))
    there = changes.selectExpr(f"explode({C.CHAIN}) AS {C.ELEMENT}")
    earlier = E.numbered_in(C.ELEMENT, "k", definition.primaryKey)
    return here.unionByName(there.selectExpr(*C.KEY_TO_FIND.of(earlier)))


def brought(rows: DataFrame, changes: Materialized, registers: Registers) -> DataFrame:
    """Return what rows have from their earlier keys: a row of a timeline for each change of a key, at its watermark.

    Each change asks what its old key had set before. The answer is a value that one of the ``rows`` of the old key has set, or that
    of an earlier change, to the old key. Then the earlier change has the answer, and each round of :func:`_joined` doubles how far
    an answer reaches. So a row that has changed its key ``n`` times takes ``log2(n)`` jobs.
    """
    own, parts = registers.definition, registers.parts
    is_open = {"open": f"count({C.EARLIER_QUESTION})"}
    asked = materialize(_asked(rows, changes, own, len(parts)), is_open)
    while asked.observed["open"]:
        asked = materialize(_joined(asked.frame, len(parts)), is_open)
    values, since = [], []
    for i, part in enumerate(parts):
        value, kind, author = (Sql(f"{C.SET_BEFORE(i)}.{name}") for name in ("value", "at.kind", "at.author"))
        is_set = E.or_else(Sql(f"{author} > {C.REACHED_BY}"), E.FALSE)
        values.append(E.case([(is_set, value)], registers.default(part)))
        by = Sql(f"concat(array({C.QUESTION}.head), {E.case([(is_set, author)], C.REACHED_BY)})")
        since.append(set_at(by, E.case([(is_set, kind)], E.number(STORED))))
    keys = E.numbered_in(C.QUESTION, "k", own.primaryKey)
    watermark = E.numbered_in(Sql(f"{C.QUESTION}.head"), "w", own.watermarkKey)
    first = asked.frame.filter(f"{C.QUESTION}.n = 0")
    return first.selectExpr(*row_items(keys, watermark, OF_OLD_KEY, E.FALSE, values, since))


def _asked(rows: DataFrame, changes: Materialized, definition: TableDefinition, parts: int) -> DataFrame:
    """Return the questions of all changes, with what rows of their old keys have set."""
    own, keys, first = definition, C.ROW_KEY.all(definition.primaryKey), Sql(f"{C.CHAIN}[0]")
    named = E.numbered("k", keys)
    elements = changes.frame.selectExpr(
        *keys, C.CHAIN, f"{first} AS {C.CHAIN_HEAD}", f"posexplode({C.CHAIN}) AS ({C.CHAIN_PLACE}, {C.ELEMENT})"
    ).selectExpr(
        *C.ROW_KEY.of(E.numbered_in(C.ELEMENT, "k", own.primaryKey)),
        f"{_moment(C.ELEMENT, own)} AS {C.MOMENT}",
        f"{E.struct({**named, 'head': C.CHAIN_HEAD, 'n': C.CHAIN_PLACE})} AS {C.QUESTION}",
        f"get({C.CHAIN}, {C.CHAIN_PLACE} + 1) AS {C.ELEMENT_BEFORE}",
    )
    arrivals = changes.frame.selectExpr(*keys, f"{_moment(first, own)} AS {C.MOMENT}", f"{first} AS {C.ARRIVAL}")
    sought = elements.select(*keys).distinct()
    sought = F.broadcast(sought) if changes.rows <= _MOST_TO_BROADCAST else sought
    together = _by_author(rows.join(sought, [str(k) for k in keys], "left_semi"), own, parts)
    for others in (elements, arrivals):
        together = together.unionByName(others, allowMissingColumns=True)
    of_key = ", ".join(keys)
    placed = together.selectExpr("*", f"dense_rank() OVER (PARTITION BY {of_key} ORDER BY {C.MOMENT}) AS {C.PLACE}")
    earlier = earlier_places(of_key)
    last = C.SET_BEFORE.of(Sql(f"{last_set(i)} {earlier}") for i in range(parts))
    arrival = f"max({C.ARRIVAL}) {earlier} AS {C.ARRIVAL}"
    found = placed.selectExpr(C.QUESTION, C.ELEMENT_BEFORE, *keys, arrival, *last)
    # Two changes to a key: the later one counts. The chain of a stored row goes on where rows of old keys are gone.
    is_before = E.or_else(Sql(f"{C.ELEMENT_BEFORE} >= {C.ARRIVAL}"), E.is_not_null(C.ELEMENT_BEFORE))
    same_key = {name: Sql(f"{C.QUESTION}.{name}") for name in (*named, "head")}
    same_chain = E.struct({**same_key, "n": Sql(f"{C.QUESTION}.n + 1")})
    other_chain = E.struct({**named, "head": C.ARRIVAL, "n": E.number(0)})
    question = E.case([(is_before, same_chain), (E.is_not_null(C.ARRIVAL), other_chain)])
    reached_by = f"filter(array(greatest({C.ELEMENT_BEFORE}, {C.ARRIVAL})), x -> x IS NOT NULL) AS {C.REACHED_BY}"
    shown = [C.QUESTION, reached_by, f"{question} AS {C.EARLIER_QUESTION}", *C.SET_BEFORE.all(range(parts))]
    return _closed(found.filter(E.is_not_null(C.QUESTION)).selectExpr(*shown), parts)


def _by_author(rows: DataFrame, definition: TableDefinition, parts: int) -> DataFrame:
    """Return a row for each watermark of an author in rows, at that watermark, with what it has set."""
    moments = [_moment(Sql(f"{C.SET_AT(i)}.author[0]"), definition) for i in range(parts)]
    several = rows.selectExpr("*", f"explode(array_distinct(array({', '.join(moments)}))) AS {C.MOMENT}")
    set_here = (E.case([(E.equals(moment, C.MOMENT), C.SET_AT(i))]) for i, moment in enumerate(moments))
    return several.selectExpr(
        *C.ROW_KEY.all(definition.primaryKey), C.MOMENT, *C.SET_AT.of(set_here), *C.VALUE.all(range(parts))
    )


def _joined(asked: DataFrame, parts: int) -> DataFrame:
    """Return the answers, each with the answer of the change before it."""
    is_there = F.expr(f"here.{C.EARLIER_QUESTION} = there.{C.QUESTION}")
    joined = asked.alias("here").join(asked.alias("there"), is_there, "left")
    answers, reached_by = [], Sql(f"here.{C.REACHED_BY}")
    for i in range(parts):
        here, there = Sql(f"here.{C.SET_BEFORE(i)}"), Sql(f"there.{C.SET_BEFORE(i)}")
        author = Sql(f"concat({reached_by}, {there}.at.author)")
        other = E.struct({"at": set_at(author, Sql(f"{there}.at.kind")), "value": Sql(f"{there}.value")})
        is_later = f"{there} IS NOT NULL AND ({here} IS NULL OR {author} > {here}.at.author)"
        answers.append(E.case([(Sql(is_later), other)], here))
    farther = Sql(f"concat({reached_by}, there.{C.REACHED_BY})")
    longer = f"{E.case([(E.is_null(Sql(f'there.{C.QUESTION}')), reached_by)], farther)} AS {C.REACHED_BY}"
    questions = [f"here.{C.QUESTION}", f"there.{C.EARLIER_QUESTION}"]
    return _closed(joined.selectExpr(*questions, longer, *C.SET_BEFORE.of(answers)), parts)


def _closed(asked: DataFrame, parts: int) -> DataFrame:
    """Return the answers, without the change before if all parts have been set since."""
    begins = (f"slice({C.SET_BEFORE(i)}.at.author, 1, size({C.REACHED_BY}))" for i in range(parts))
    is_set = E.all_of(E.or_else(Sql(f"{begin} > {C.REACHED_BY}"), E.FALSE) for begin in begins)
    return asked.withColumn(C.EARLIER_QUESTION, F.expr(E.case([(E.not_(is_set), C.EARLIER_QUESTION)])))


def _stored(store: TableStore, snapshot: Snapshot, written: DataFrame | None) -> DataFrame:
    """Return what :func:`key_changes` returns, of stored rows."""
    own = snapshot.definition
    keys, batches = [*map(E.quote, own.primaryKey)], Batches(own, tuple(b for b in snapshot.batches if b.moved))
    chains = f"explode({authors.key_changes(own)}) AS {C.CHAIN}"
    found = store.scan(batches, [UNSET_FIELD]).selectExpr(*C.ROW_KEY.of(keys), chains)
    if written is None:
        return found
    of_key = written.groupBy(*map(F.expr, C.LATE_KEY.of(C.ROW_KEY.all(own.primaryKey))))
    first = E.struct(E.numbered("w", C.ROW_WATERMARK.all(own.watermarkKey)))
    late = of_key.agg(F.expr(f"min({first}) AS {C.MOMENT}"))
    is_it = E.all_of(map(E.equals, E.numbered_in(C.ELEMENT, "k", own.primaryKey), C.LATE_KEY.all(keys)))
    is_late = E.all_of([is_it, Sql(f"{C.MOMENT} < {_moment(C.ELEMENT, own)}")])
    each = found.distinct().selectExpr("*", f"explode({C.CHAIN}) AS {C.ELEMENT}")
    return each.join(late, F.expr(is_late), "left_semi").drop(C.ELEMENT)


def _moment(element: Sql, definition: TableDefinition) -> Sql:
    """Return the watermark of an element of an author, as a struct."""
    return E.struct(E.numbered("w", E.numbered_in(element, "w", definition.watermarkKey)))
