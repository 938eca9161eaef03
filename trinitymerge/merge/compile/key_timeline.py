"""The rows of each key in order: what each row sets, and what it takes from the rows before it (U1, U4).

A timeline has these columns, for each key column ``k``, watermark column ``n`` and part ``i``::

    column            type                  meaning                                                        made by
    ROW_KEY(k)        the key's             a key column                                                   row_items
    ROW_WATERMARK(n)  the watermark's       a watermark column                                             row_items
    KIND              INT                   OF_OLD_KEY, TRUNCATE, STORED or WRITTEN                        row_items
    IS_DEAD           BOOLEAN               the row deletes its key, and so sets all parts                 row_items
    VALUE(i)          the part's            the value in the row itself, even if it leaves the part unset  row_items
    SET_AT(i)         STRUCT<author, kind>  its author and the row's kind; of an unset part its register   row_items
    ROW_TO_WRITE      STRUCT                all columns of a row to write; null on other rows              registers
    ROW_AS_STORED     STRUCT                all columns of a stored row; null on other rows                registers
    PLACE             INT                   from 1; equal for an equal watermark and kind                  KeyTimeline
    NEXT_ROW          STRUCT<w0, kind>      the next row, but none of an old key; null on the last         KeyTimeline
    LATEST_STORED     STRUCT<w0, live>      the latest stored row of the key; null without one             KeyTimeline
    SET_BEFORE(i)     STRUCT<at, value>     the greatest SET_AT at earlier places, and its VALUE           KeyTimeline
    IS_SET_HERE(i)    BOOLEAN               a row at the same place sets the part itself                   KeyTimeline
    IS_FILLED(i)      BOOLEAN               the row, to write or stored, takes the value of SET_BEFORE     KeyTimeline
    AUTHOR(i)         an author             of the value that the row then has; null if no row has set it  KeyTimeline
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

import attrs
from pyspark.sql import DataFrame, types as T

from trinitymerge.rows.equality import comparable
from trinitymerge.rows.registers import NO_TEXTS, Part, Registers, as_map, is_unset, since
from trinitymerge.rows.resolution import Order
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.sql_text import Sql

OF_OLD_KEY, TRUNCATE, STORED, WRITTEN = -2, -1, 0, 1
"""The kinds of rows. Of rows with an equal watermark, the later kind corrects the earlier one (H2)."""

IS_STORED, IS_WRITTEN = Sql(f"{C.KIND} = {STORED}"), Sql(f"{C.KIND} = {WRITTEN}")
IS_LIVE = E.not_(C.IS_DEAD)

Sqls: TypeAlias = Iterable[Sql]


def set_at(author: Sql, kind: int | Sql) -> Sql:
    return E.struct({"author": author, "kind": Sql(str(kind))})


def row_items(keys: Sqls, watermark: Sqls, kind: int, is_dead: Sql, values: Sqls, since: Sqls) -> list[str]:
    """Return the select items that make a row of a timeline of SQL; ``values`` and ``since`` (:func:`set_at`) are of the parts."""
    fixed = [f"{kind} AS {C.KIND}", f"{is_dead} AS {C.IS_DEAD}"]
    return [*C.ROW_KEY.of(keys), *C.ROW_WATERMARK.of(watermark), *fixed, *C.VALUE.of(values), *C.SET_AT.of(since)]


def earlier_places(key: str) -> str:
    """Return the window of the rows of a key at earlier places (:data:`C.PLACE`)."""
    return f"OVER (PARTITION BY {key} ORDER BY {C.PLACE} RANGE BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)"


def last_set(i: int) -> Sql:
    """Return the aggregate that :data:`C.SET_BEFORE` is over a window."""
    return Sql(f"max_by({E.struct({'at': C.SET_AT(i), 'value': C.VALUE(i)})}, {C.SET_AT(i)})")


@attrs.frozen(eq=False)
class KeyTimeline:
    """The rows of keys in order, filled. The properties and methods that return SQL are over :attr:`rows`."""

    registers: Registers
    rows: DataFrame
    _numbers: Mapping[str, int] = attrs.field(init=False)

    @_numbers.default
    def _numbers_of_parts(self) -> dict[str, int]:
        return {part.id: i for i, part in enumerate(self.registers.parts)}

    @classmethod
    def of(cls, registers: Registers, rows: DataFrame, has_old_keys: bool = False) -> KeyTimeline:
        """Return rows (:func:`row_items`) in order, and filled; some may be of kind ``OF_OLD_KEY``."""
        own, parts = registers.definition, registers.parts
        key, marks = ", ".join(C.ROW_KEY.all(own.primaryKey)), C.ROW_WATERMARK.all(own.watermarkKey)
        order = ", ".join(Order(tuple(marks), (C.KIND,)).oldest_first())
        watermark, over_key = E.numbered("w", marks), f"OVER (PARTITION BY {key}"
        here, live = E.struct({**watermark, "kind": C.KIND}), E.struct({**watermark, "live": IS_LIVE})
        other = f"CASE WHEN {C.KIND} <> {OF_OLD_KEY} THEN {here} END"
        follows = f"lead({other}) IGNORE NULLS" if has_old_keys else f"lead({here})"
        place = f"dense_rank() {over_key} ORDER BY {order}) AS {C.PLACE}"
        placed = rows.selectExpr("*", place, f"{follows} {over_key} ORDER BY {order}) AS {C.NEXT_ROW}")
        earlier, beside = earlier_places(key), f"{over_key} ORDER BY {C.PLACE} RANGE CURRENT ROW)"
        found = [item for i in range(len(parts)) for item in (
            f"{last_set(i)} {earlier} AS {C.SET_BEFORE(i)}",
            f"max({_sets(registers, i)}) {beside} AS {C.IS_SET_HERE(i)}",
        )]  # fmt: skip
        latest = f"max(CASE WHEN {IS_STORED} THEN {live} END) {over_key}) AS {C.LATEST_STORED}"
        is_filled = C.IS_FILLED.of(E.opaque(_is_filled(registers, i, part)) for i, part in enumerate(parts))
        by = (E.case([(C.IS_FILLED(i), _author_before(i))], _author(i)) for i in range(len(parts)))
        filled = placed.selectExpr("*", latest, *found).selectExpr("*", *is_filled)
        return cls(registers, filled.selectExpr("*", *C.AUTHOR.of(map(E.opaque, by))))

    def value(self, name: str) -> Sql:
        return self._value(next(part for part in self.registers.columns if part.path[0] == name))

    def _value(self, part: Part) -> Sql:
        i = self._numbers[part.id]
        is_unset = E.all_of([IS_WRITTEN, E.not_(_sets(self.registers, i))])
        filled, default = Sql(f"{C.SET_BEFORE(i)}.value"), self.registers.default(part)
        value = E.case([(C.IS_FILLED(i), filled), (is_unset, default)], C.VALUE(i))
        if not part.inside:
            return value
        fields = (f"{self._value(inside)} AS {E.quote(inside.path[-1])}" for inside in part.inside)
        return E.case([(E.is_not_null(value), Sql(f"struct({', '.join(fields)})"))])

    @property
    def is_mended(self) -> Sql:
        """True for stored rows that change, unless a row to write corrects them; without history, only the last of a key (U4)."""
        is_over = E.is_not_null(C.NEXT_ROW)
        if self.registers.definition.history:
            marks = C.ROW_WATERMARK.all(self.registers.definition.watermarkKey)
            same = map(E.same, E.numbered_in(C.NEXT_ROW, "w", marks), marks)
            is_over = E.or_else(E.all_of([Sql(f"{C.NEXT_ROW}.kind = {WRITTEN}"), *same]), E.FALSE)
        changes = E.any_of(C.IS_FILLED.all(self._numbers))
        return E.all_of([IS_STORED, IS_LIVE, E.not_(is_over), changes])

    @property
    def unset(self) -> Sql:
        """The parts that a row leaves unset, as :data:`C.UNSET` holds them."""
        authors, stored = self.registers.authors, E.field_of(C.ROW_AS_STORED, C.UNSET)
        if not self.registers.definition.watermarkKey:
            return as_map([])
        mine, theirs = [], []
        for i, part in enumerate(self.registers.parts):
            by = C.AUTHOR(i)
            known = E.case([(E.is_not_null(by), authors.as_texts(by))], NO_TEXTS)
            marks = authors.watermark(by)
            is_now = E.all_of([authors.is_row(by), *map(E.same, marks, C.ROW_WATERMARK.all(marks))])
            mine.append((part, E.all_of([E.not_(is_now), E.not_(C.IS_SET_HERE(i))]), known))
            if self.registers.has_partial:
                case = E.case([(C.IS_FILLED(i), known)], since(part, stored))
                theirs.append((part, is_unset(part, stored), case))
        return E.case([(IS_WRITTEN, E.case([(IS_LIVE, as_map(mine))]))], as_map(theirs))

    @property
    def fillers(self) -> Sql:
        """The places of rows that a row takes values from, each a struct of its key ``k0`` and watermark ``w0`` and so on."""
        keys, place = C.ROW_KEY.all(self.registers.definition.primaryKey), self.registers.authors.place
        taken = (E.case([(C.IS_FILLED(i), place(_author_before(i), keys))]) for i in range(len(self._numbers)))
        return Sql(f"array_distinct(filter(array({', '.join(taken)}), x -> x IS NOT NULL))")

    def unknown(self, named: Callable[[Part], Sql]) -> Sql:
        """Return the number of columns that a row to write leaves unset, of some, and that no row has set.

        SQL over :data:`C.ROW_TO_WRITE`, never null, says which columns are ``named`` and count.
        """
        is_known, columns = self.registers.authors.is_known, [(self._numbers[c.id], c) for c in self.registers.columns]
        sets = [(E.any_of([is_known(C.AUTHOR(i)), C.IS_SET_HERE(i)]), column) for i, column in columns]
        counts = [E.all_of([E.not_(is_set), named(column)]) for is_set, column in sets]
        count = Sql(f"size(filter(array({', '.join(counts)}), x -> x))") if counts else E.number(0)
        return E.case([(E.all_of([IS_WRITTEN, IS_LIVE]), count)], E.number(0))

    def described(self, name: str) -> DataFrame:
        """Return the rows of each key in order, to be printed: of one column or struct field (``column.field``).

        Returns:
            The key and the watermark; ``kind``; ``is_dead``; ``own_value``, which the row itself has, ``set_at`` (since when) and
            ``set_by`` (the key and watermark of the row that has set it, *no row* for the default of an old key); ``filled_with``
            and ``filled_by``; the ``value`` that results; ``next_row``, its watermark and kind; and ``is_mended``.
        """
        own, authors = self.registers.definition, self.registers.authors
        keys, marks = C.ROW_KEY.all(own.primaryKey), C.ROW_WATERMARK.all(own.watermarkKey)
        part = next(part for part in self.registers.parts if ".".join(part.path) == name)
        i = self._numbers[part.id]

        def by(author: Sql) -> Sql:
            place = E.cast(authors.place(author, keys), T.StringType())
            return E.case([(authors.is_known(author), place), (E.is_not_null(author), E.text_literal("no row"))])

        since = E.cast(E.struct(E.numbered("w", authors.watermark(_author(i)))), T.StringType())
        texts = {OF_OLD_KEY: "old key", TRUNCATE: "truncate", STORED: "stored", WRITTEN: "to write"}
        kinds = {kind: E.text_literal(text) for kind, text in texts.items()}
        next_place = E.numbered("w", E.numbered_in(C.NEXT_ROW, "w", marks))
        next_row = E.struct({**next_place, "kind": E.decode(Sql(f"{C.NEXT_ROW}.kind"), kinds)})
        shown: dict[str, Sql] = {
            **dict(zip(map(E.quote, (*own.primaryKey, *own.watermarkKey)), (*keys, *marks), strict=True)),
            "kind": E.decode(C.KIND, kinds),
            "is_dead": C.IS_DEAD,
            "own_value": C.VALUE(i),
            "set_at": E.case([(E.is_not_null(_author(i)), since)]),
            "set_by": by(_author(i)),
            "filled_with": E.case([(C.IS_FILLED(i), Sql(f"{C.SET_BEFORE(i)}.value"))]),
            "filled_by": E.case([(C.IS_FILLED(i), by(_author_before(i)))]),
            "value": self._value(part),
            "next_row": E.case([(E.is_not_null(C.NEXT_ROW), E.cast(next_row, T.StringType()))]),
            "is_mended": E.all_of([self.is_mended, C.IS_FILLED(i)]),
        }
        return self.rows.orderBy(*keys, C.PLACE).selectExpr(*[f"{value} AS {name}" for name, value in shown.items()])


def _author(i: int) -> Sql:
    return Sql(f"{C.SET_AT(i)}.author")


def _author_before(i: int) -> Sql:
    return Sql(f"{C.SET_BEFORE(i)}.at.author")


def _sets(registers: Registers, i: int) -> Sql:
    """Return SQL that is true if a row sets a part itself. Never null. Only asked of rows to write, and of those at their place."""
    return registers.authors.is_row(_author(i))


def _is_filled(registers: Registers, i: int, part: Part) -> Sql:
    """Return SQL that is true if a part of a row is set by an earlier row, later than its own register is. Never null."""
    before, at = C.SET_BEFORE(i), C.SET_AT(i)
    fills = E.all_of([E.is_not_null(before), E.or_else(Sql(f"{before}.at > {at}"), E.TRUE)])
    if not registers.has_partial:
        return E.all_of([IS_WRITTEN, fills])
    theirs, mine, values = _author_before(i), _author(i), [Sql(f"{before}.value"), C.VALUE(i)]
    is_equal = E.same(*(values if part.inside else [comparable(value, part.type) for value in values]))
    corrected = E.all_of([E.equals(theirs, mine), Sql(f"{before}.at.kind > {at}.kind"), E.not_(is_equal)])
    is_later = E.any_of([E.is_null(at), Sql(f"{theirs} > {mine}"), corrected])
    mends = E.all_of([E.is_not_null(before), E.or_else(is_later, E.FALSE)])
    return E.case([(IS_WRITTEN, fills), (IS_STORED, mends)], E.FALSE)
