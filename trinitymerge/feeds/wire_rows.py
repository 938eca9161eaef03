"""From the messages of a feed to rows with the columns of a table (F2, F3)."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

import attrs
from pyspark.sql import DataFrame

from trinitymerge.errors import InvalidMergeError, closest, missing
from trinitymerge.feeds.events import free_name
from trinitymerge.feeds.total_sql import has_doubled_names, renamed
from trinitymerge.feeds.wire import PLACE, FeedOptions
from trinitymerge.feeds.wire_values import does_not_fit, misfit_reason, read_as, read_value, stored, value_in_column
from trinitymerge.merge.model.arguments import names_of
from trinitymerge.rows.tombstones import non_key_fields
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.spark import expressions as E
from trinitymerge.spark.session import select_exprs
from trinitymerge.spark.sql_text import Sql

CALL = "applyChanges() of a feed"

OTHER_TABLE = "other table"
"""Why messages are skipped that are of another table than the feed's."""

IS_EVENT = Sql("op IS NOT NULL")
UPSERT, TRUNCATE = E.text_literal("upsert"), E.text_literal("truncate")

_SAID = ("op", "skipped", "rejected", "source", "seq", "at", "unchanged", "old_key", "creates", "others")


@attrs.frozen(eq=False)
class FeedRows:
    """The messages of a feed as rows of a table.

    Attributes:
        frame: the table's columns, and a struct that says what the message is.
        meta: the name of the struct: ``op``, ``skipped``, ``rejected``, ``source``, ``seq``, ``at``, ``unchanged``, ``old_key``,
            ``creates``, ``others`` (the columns that the table does not have, with the types that the message says), and
            ``position`` and ``raw`` of the message.
    """

    frame: DataFrame
    meta: str


def rows_of(
    decoded: DataFrame,
    source: str | None,
    options: FeedOptions,
    own: TableDefinition,
    columns: Iterable[str] | None = None,
    except_columns: Iterable[str] = (),
    keeps_all: bool = False,
) -> FeedRows:
    """Return the messages of a feed (``wire.WIRE``) as rows of a table, lazily.

    Of the table, ``columns`` are taken from messages, and others are null. ``except_columns`` may be of the table or of messages.
    Each row has its message and position if ``keeps_all`` is true; otherwise rejected messages do.
    """
    exact = E.is_case_sensitive(decoded.sparkSession)
    left = names_of(CALL, "exceptColumns", except_columns)
    order, meta = _watermarks(own), E.quote(free_name("_feed", own.names))
    columns_of = _Columns(own, _taken(own, columns, except_columns, exact), left, exact, options)
    named = _with_names(decoded, source, options, exact)
    values = named
    for items in ([f"{E.opaque(columns_of.raw)} AS raw"], columns_of.cells, columns_of.read, columns_of.columns):
        values = select_exprs(values, ["*", *items])
    said = {
        "rejected": E.case([(IS_EVENT, columns_of.rejected)], Sql("rejected")),
        "unchanged": columns_of.unset,
        "old_key": columns_of.old_key,
        "others": columns_of.others,
    }
    kept = [c for c in values.columns if c not in said]
    told = select_exprs(values, [*kept, *[f"{E.opaque(value)} AS {name}" for name, value in said.items()]])
    told = _without_replaced(told, [columns_of._column("value", own.field(k)) for k in own.primaryKey], options)
    is_ok = Sql("rejected IS NULL")
    shown = {
        "op": E.case([(is_ok, Sql("op"))]),
        **{name: Sql(name) for name in _SAID[1:]},
        "position": PLACE if keeps_all else E.case([(E.not_(is_ok), PLACE)]),
        "raw": Sql("value") if keeps_all else E.case([(E.not_(is_ok), Sql("value"))]),
    }
    tombstone = {own.tombstoneKey: E.null_of(own.field(own.tombstoneKey))} if own.tombstoneKey else {}
    stored = {**columns_of.fitted, **order, **tombstone}
    struct = f"struct({', '.join(f'{value} AS {name}' for name, value in shown.items())}) AS {meta}"
    rows = select_exprs(told, [*[f"{stored[name]} AS {E.quote(name)}" for name in own.names], struct])
    return FeedRows(rows, meta.strip("`"))


def _without_replaced(told: DataFrame, key: list[Sql], options: FeedOptions) -> DataFrame:
    """Skip images of rows before an update, if the commit has the row after it. Other images are deletes (F1)."""
    if not options.own.get("has_images"):
        return told
    commit = "substring_index(seq, '/', 2)"
    has_row = f"coalesce(bool_or(op = 'upsert') OVER (PARTITION BY {', '.join([*key, commit])}), false)"
    found = told.selectExpr("*", f"op = 'delete' AND is_image AND {has_row} AS is_replaced")
    shown = {
        "op": "CASE WHEN NOT coalesce(is_replaced, false) THEN op END",
        "skipped": "CASE WHEN is_replaced THEN 'before image' ELSE skipped END",
        "rejected": "CASE WHEN NOT coalesce(is_replaced, false) THEN rejected END",
    }
    return found.selectExpr(*[f"{shown.get(c, E.quote(c))} AS {E.quote(c)}" for c in told.columns])


@attrs.frozen(slots=False)
class _Columns:
    """The columns of a table, over messages whose names are the table's: those that are taken from them, and names that are not."""

    own: TableDefinition
    taken: frozenset[str]
    left: tuple[str, ...]
    exact: bool
    options: FeedOptions

    @property
    def _fields(self) -> list[Field]:
        return [f for f in self.own.fields if f.name not in (*self.own.watermarkKey, self.own.tombstoneKey)]

    def _name(self, column: str) -> Sql:
        return E.text_literal(column if self.exact else column.lower())

    def _column(self, kind: str, field: Field) -> Sql:
        """Return an interim column of a field: its text, its meaning or its value."""
        return E.quote(f"{kind}_{self._fields.index(field)}")

    @property
    def raw(self) -> Sql:
        """The values of all columns in the message, as one array."""
        names = ", ".join(self._name(f.name) for f in self._fields)
        keys = ", ".join(self._name(k) for k in self.own.primaryKey)
        value = E.case([(Sql(f"n IN ({keys})"), E.or_else(Sql("row[n]"), Sql("key[n]")))], Sql("row[n]"))
        return Sql(f"transform(array({names}), n -> {value})")

    def _of_raw(self, field: Field) -> Sql:
        return Sql(f"get(raw, {E.number(self._fields.index(field))})")

    @cached_property
    def _alike(self) -> list[list[Field]]:
        """The columns that are taken from messages, those together whose values are read alike.

        They are read as arrays: Spark analyses the expression once, and makes no code of it. Code for each of many columns would
        be larger than a method may be.
        """
        found: dict[tuple[str, str | None], list[Field]] = {}
        for f in self._fields:
            if f.name in self.taken:
                found.setdefault((E.physical_type(f).json(), self.options.forms.unit(f.name)), []).append(f)
        return list(found.values())

    @property
    def cells(self) -> list[Sql]:
        """The texts of columns, and how they are written, as arrays of structs."""
        return [Sql(f"{E.opaque(self._read_cells(fields))} AS cells_{i}") for i, fields in enumerate(self._alike)]

    def _read_cells(self, fields: list[Field]) -> Sql:
        values = ", ".join(self._of_raw(f) for f in fields)
        said = ", ".join(f"meanings[{self._name(f.name)}]" for f in fields)
        text, meaning = self._read(Sql("t"), Sql("m"), fields[0])
        cell = f"named_struct('text', {text}, 'meaning', {meaning})"
        return Sql(f"zip_with(array({values}), array({said}), (t, m) -> {cell})")

    @property
    def read(self) -> list[Sql]:
        """The values of columns, in their types, as arrays."""
        forms, first = self.options.forms, [fields[0] for fields in self._alike]
        values = enumerate(read_as(Sql("t"), Sql("m"), f, forms, self.exact) for f in first)
        arrays = [(i, Sql(f"zip_with(cells_{i}.text, cells_{i}.meaning, (t, m) -> {value})")) for i, value in values]
        return [Sql(f"{E.opaque(array)} AS values_{i}") for i, array in arrays]

    @property
    def columns(self) -> list[Sql]:
        """The value of each column, and of those that are taken the text, and how it is written."""
        found = [("value", f, E.null_of(f)) for f in self._fields if f.name not in self.taken]
        for i, fields in enumerate(self._alike):
            for place, f in enumerate(fields):
                found += [(kind, f, Sql(f"get(cells_{i}.{kind}, {place})")) for kind in ("text", "meaning")]
                found.append(("value", f, stored(Sql(f"get(values_{i}, {place})"), f)))
        return [Sql(f"{E.opaque(value)} AS {self._column(kind, f)}") for kind, f, value in found]

    def _read(self, value: Sql, said: Sql, field: Field) -> tuple[Sql, Sql]:
        return read_value(value, said, E.physical_type(field), self.options.forms)

    @property
    def fitted(self) -> dict[str, Sql]:
        """The table's columns: null where a message is not an event."""
        return {f.name: E.case([(IS_EVENT, self._column("value", f))]) for f in self._fields}

    @property
    def rejected(self) -> Sql:
        is_row, is_set = E.not_(E.equals(Sql("op"), TRUNCATE)), E.equals(Sql("op"), UPSERT)
        null_key = E.any_of(E.is_null(self._column("text", self.own.field(k))) for k in self.own.primaryKey)
        no_time = [E.is_null(Sql("at"))] if len(self.own.watermarkKey) == 2 else []
        wrong = [
            (E.any_of([E.is_null(Sql("seq")), *no_time]), E.text_literal("no-position")),
            (E.all_of([is_row, null_key]), E.text_literal("null-key")),
        ]
        for f in self._fields:
            if f.name in self.taken:
                text, meaning, value = (self._column(kind, f) for kind in ("text", "meaning", "value"))
                applies = is_row if f.name in self.own.primaryKey else is_set  # a delete sets its key only (S9)
                reason = misfit_reason(text, meaning, f, self.options.forms)
                wrong.append((E.all_of([applies, does_not_fit(text, value)]), reason))
        return E.case(wrong, Sql("CAST(NULL AS STRING)"))

    @property
    def unset(self) -> Sql:
        own = ", ".join(self._name(f.name) for f in non_key_fields(self.own) if f.name in self.taken)
        names = f"CAST(array({own}) AS ARRAY<STRING>)"
        named = Sql(f"array_intersect({names}, unset)")
        lacking = Sql(f"array_except({names}, map_keys(row))")
        nothing = Sql("CAST(array() AS ARRAY<STRING>)")
        both = f"array_union({E.or_else(named, nothing)}, {E.case([(Sql('is_partial'), lacking)], nothing)})"
        is_set, some = E.equals(Sql("op"), UPSERT), Sql(f"nullif({both}, {nothing})")
        return E.case([(is_set, some)], Sql("CAST(NULL AS ARRAY<STRING>)"))

    @property
    def old_key(self) -> Sql:
        """The old key as a struct; null if the key has not changed."""
        parts, differs = [], []
        for key in self.own.primaryKey:
            field = self.own.field(key)
            value = E.or_else(Sql(f"old_key[{self._name(key)}]"), self._of_raw(field))
            text, meaning = self._read(value, Sql(f"meanings[{self._name(key)}]"), field)
            cell = f"named_struct('text', {text}, 'meaning', {meaning})"
            made = value_in_column(Sql("c.text"), Sql("c.meaning"), field, self.options.forms, self.exact)
            parts.append(f"transform(array({cell}), c -> {made})[0] AS {E.quote(key)}")
            differs.append(E.not_(E.equals(text, self._column("text", field))))
        has_moved = E.all_of([E.equals(Sql("op"), UPSERT), E.is_not_null(Sql("old_key")), E.any_of(differs)])
        return E.case([(has_moved, Sql(f"struct({', '.join(parts)})"))])

    @property
    def others(self) -> Sql:
        """The columns that the table does not have, with their types; null if there is none."""
        known = ", ".join(self._name(n) for n in (*self.own.names, *self.left))
        found = f"array_except(map_keys(row), array({known}))"
        listed = f"transform({found}, n -> struct(n AS name, types[n] AS type))"
        return E.case([(E.all_of([IS_EVENT, Sql(f"size({found}) > 0")]), Sql(listed))])


def _taken(own: TableDefinition, columns: Iterable[str] | None, without: Iterable[str], exact: bool) -> frozenset[str]:
    asked = None if columns is None else names_of(CALL, "columns", columns)
    left = names_of(CALL, "exceptColumns", without)
    if asked is not None and left:
        raise InvalidMergeError(f"{CALL} takes columns or exceptColumns, got both.")
    unknown = [n for n in asked or () if E.find_name(n, own.names, exact) is None]
    if unknown:
        raise InvalidMergeError(
            f"{CALL}: columns takes columns of the table. {missing(unknown, 'the table', own.names)}"
            f"{closest(unknown[0], own.names)}",
            columns=unknown,
        )
    names = own.names if asked is None else [n for n in own.names if E.find_name(n, asked, exact)]
    return frozenset({*own.primaryKey, *(n for n in names if E.find_name(n, left, exact) is None)})


def _watermarks(own: TableDefinition) -> dict[str, Sql]:
    """Return the values of the watermark columns: the sequence, or the time of the commit and the sequence."""
    kinds = tuple(str(own.field(name).type) for name in own.watermarkKey)
    values = {("string",): ("seq",), ("timestamp", "string"): ("at", "seq")}.get(kinds)
    if values is None:
        got = ", ".join(own.field(n).text for n in own.watermarkKey) or "none"
        raise InvalidMergeError(
            f"{CALL} needs a table whose watermark is one column of type STRING, for the position in the source's log, or two of "
            f"type TIMESTAMP and STRING, for the time of the commit and the position. The table has: {got}. "
            'Create it with watermarkKey="_seq".'
        )
    return {name: Sql(value) for name, value in zip(own.watermarkKey, values, strict=True)}


def is_of(source: str) -> Sql:
    """Return SQL that is true if a message is of a table, given as ``table``, ``schema.table`` or ``database.schema.table``."""
    given = E.text_literal(source)
    return Sql(f"(source = {given} OR endswith(source, concat('.', {given})))")


def _with_names(frame: DataFrame, source: str | None, options: FeedOptions, exact: bool) -> DataFrame:
    """Return the messages with names as the table has them; those of other tables are skipped."""
    names = [E.text_literal(n if exact else n.lower()) for pair in options.rename.items() for n in pair]

    def name(of: Sql) -> Sql:
        same = of if exact else Sql(f"lower({of})")
        return E.or_else(Sql(f"map({', '.join(names)})[{same}]"), same) if names else same

    is_other, has_no_name = E.FALSE, E.FALSE
    if source is not None:  # an unreadable message names no table, and may be of this one
        is_other = E.all_of([E.or_else(E.not_(is_of(source)), E.FALSE), E.is_null(Sql("skipped"))])
        has_no_name = E.all_of([IS_EVENT, E.is_null(Sql("source"))])
    shown: dict[str, Sql] = {
        "op": E.case([(E.not_(E.any_of([is_other, has_no_name])), Sql("op"))]),
        "rejected": E.case([(has_no_name, E.text_literal("no-table")), (E.not_(is_other), Sql("rejected"))]),
        "skipped": E.case([(is_other, E.text_literal(OTHER_TABLE))], Sql("skipped")),
    }
    is_kept = E.TRUE
    if names or not exact:
        # Names in lower case are what the table's are compared with; to go through a map takes longer than to look.
        is_same = E.FALSE if names else E.TRUE

        def is_lower(names: Sql) -> Sql:
            return E.all_of([is_same, E.equals(names, Sql(f"lower({names})"))])

        for c in ("row", "key", "old_key", "meanings", "types"):
            as_it_is = is_lower(Sql(f"array_join(map_keys({c}), ' ')"))
            shown[c] = E.case([(as_it_is, Sql(c))], renamed(Sql(c), name(Sql("k"))))
            is_kept = E.or_else(as_it_is, E.FALSE) if c == "row" else is_kept
        unset = Sql(f"transform(unset, n -> {name(Sql('n'))})")
        shown["unset"] = E.case([(is_lower(Sql("array_join(unset, ' ')")), Sql("unset"))], unset)
    doubled = E.case([(is_kept, has_doubled_names(Sql("row")))], has_doubled_names(Sql("row"), name(Sql("k"))))
    is_doubled = E.all_of([IS_EVENT, E.not_(is_other), doubled])
    shown["op"] = E.case([(is_doubled, Sql("CAST(NULL AS STRING)"))], shown["op"])
    shown["rejected"] = E.case([(is_doubled, E.text_literal("doubled-name"))], shown["rejected"])
    if source is not None:
        shown["row"] = E.case([(E.not_(is_other), shown.get("row", Sql("row")))])
    return select_exprs(frame, [f"{shown.get(c, E.quote(c))} AS {E.quote(c)}" for c in frame.columns])
