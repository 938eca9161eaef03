"""History inserts: which rows go into other tables, and what names mean in their maps (S27)."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

import attrs
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame

from trinitymerge.errors import InvalidMergeError, SchemaMismatchError, did_you_mean
from trinitymerge.merge.analysis.inspector import Inspector
from trinitymerge.merge.analysis.relations import Source, Target, expression
from trinitymerge.merge.analysis.row_kinds import Expression, LiveMarker, Null, Value
from trinitymerge.merge.analysis.scope import Sees, with_columns_for_qualified_stars
from trinitymerge.merge.model.clauses import Clause, InsertHistory, OtherTable, describe, is_default
from trinitymerge.merge.model.names import column_text, key_text, name_parts
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.casts import CastPolicy, cast_policy
from trinitymerge.spark.errors import analysis_errors, suppress_error_logs
from trinitymerge.spark.sql_text import Sql

_QUALIFIER = re.compile(r"(`(?:[^`]|``)+`|\w+)\s*\.")
_TARGET = Sql("t")


@attrs.frozen
class OutboxTarget:
    """Another table that rows are for, as it was when the merge was built."""

    table: OtherTable
    definition: TableDefinition

    @property
    def fields(self) -> tuple[Field, ...]:
        return self.definition.fields

    @property
    def keys(self) -> tuple[str, ...]:
        return self.definition.primaryKey


@attrs.frozen(eq=False)
class Scope:
    """The meaning of names in the maps.

    Attributes:
        target: the target side, whose columns need no alias.
        aliases: that the maps use, with the columns of the source below each; None for the target's own.
    """

    target: Target
    aliases: Mapping[str, tuple[str, ...] | None]

    @property
    def sides(self) -> Sql:
        """The joined sides that are kept beside a row, as SQL over them: a struct of structs."""
        own = _struct((self.target.column(n), n) for n in self.target.definition.names)
        places = [(own, _TARGET)]
        for place, (alias, columns) in zip(self._places, self.aliases.items(), strict=True):
            if columns is not None:
                places.append((_struct((Sql(f"{E.quote(alias)}.{E.quote(c)}"), c) for c in columns), place))
        return _struct(places)

    def over(self, sides: Sql) -> list[Sql]:
        """Return the columns that the maps see, as SQL over what was kept."""
        own = [Sql(f"{sides}.{_TARGET}.{E.quote(n)} AS {E.quote(n)}") for n in self.target.definition.names]
        for place, (alias, columns) in zip(self._places, self.aliases.items(), strict=True):
            own.append(Sql(f"{sides}.{_TARGET if columns is None else place} AS {E.quote(alias)}"))
        return own

    def key(self, sides: Sql) -> Sql:
        return _struct((Sql(f"{sides}.{_TARGET}.{E.quote(k)}"), k) for k in self.target.definition.primaryKey)

    @property
    def _places(self) -> list[Sql]:
        return [Sql(f"s{i}") for i in range(len(self.aliases))]


def _struct(values: Iterable[tuple[Sql, str]]) -> Sql:
    return Sql(f"struct({', '.join(f'{value} AS {E.quote(name)}' for value, name in values)})")


@attrs.frozen(eq=False)
class OutboxRow:
    """A row, by its number, for another table, for each target row that one clause replaces; values are over the :class:`Scope`."""

    number: int
    clause: int
    destination: OutboxTarget
    values: Mapping[str, Value]


@attrs.frozen(eq=False)
class OutboxPlan:
    """The rows that a merge writes into other tables: one for each history insert."""

    scope: Scope
    rows: tuple[OutboxRow, ...]

    @property
    def clauses(self) -> frozenset[int]:
        return frozenset(row.clause for row in self.rows)

    @property
    def by_destination(self) -> list[tuple[OutboxTarget, list[OutboxRow]]]:
        found: dict[OtherTable, list[OutboxRow]] = {}
        for row in self.rows:
            found.setdefault(row.destination.table, []).append(row)
        return [(rows[0].destination, rows) for rows in found.values()]


def plan_outbox(
    target: Target,
    source: Source | None,
    joined: DataFrame,
    clauses: tuple[Clause, ...],
    opened: Callable[[OtherTable, str], OutboxTarget],
) -> OutboxPlan | None:
    """Resolve the history inserts of a merge; None if it has none. ``opened`` also takes how a message names the insert."""
    inserts = [(position, insert) for position, clause in enumerate(clauses) for insert in clause.histories]
    if not inserts:
        return None
    given = [expression(value) for _, insert in inserts for _, value in insert.values.items]
    where = [f"{describe(clauses, position)}, {insert.method} into {insert.table}" for position, insert in inserts]
    tables = {insert.table: opened(insert.table, w) for w, (_, insert) in zip(where, inserts, strict=True)}
    scope = Scope(target, _aliases(target, source, given, where[0]))
    with analysis_errors(where[0]):
        seen = joined.selectExpr(f"{scope.sides} AS {C.JOINED_ROWS}").selectExpr(*scope.over(C.JOINED_ROWS))
        seen.schema  # noqa: B018 - Spark Connect analyses only when the schema is asked for
    of_source = [a for a, columns in scope.aliases.items() if columns is not None]
    frames = {Sees.BOTH: seen, Sees.TARGET: seen.drop(*of_source)}
    sights = [Sees.BOTH if source is None else Sees.of(clauses[position]) for position, _ in inserts]
    asked = [(sees, expression(v)) for sees, (_, i) in zip(sights, inserts, strict=True) for _, v in i.values.items]
    inspector, rows = Inspector(target, source, frames, asked), list[OutboxRow]()
    for n, (position, insert) in enumerate(inserts):
        table, sees = tables[insert.table], sights[n]
        values = _values(inspector, where[n], insert, table, target, sees, frames[sees])
        rows.append(OutboxRow(n, position, table, values))
    return OutboxPlan(scope, tuple(rows))


def _aliases(
    target: Target, source: Source | None, given: Iterable[str | Column], where: str
) -> dict[str, tuple[str, ...] | None]:
    texts = [column_text(e) if isinstance(e, Column) else e for e in given]
    case_sensitive, found = E.is_case_sensitive(target.spark), dict[str, tuple[str, ...] | None]()
    for text in texts:
        for match in _QUALIFIER.findall(text):
            name = name_parts(match)[0]
            if E.find_name(name, found, case_sensitive) is not None:
                continue
            is_target = E.find_name(name, [target.alias], case_sensitive) is not None
            columns = None if is_target or source is None else _columns_below(name, source)
            if not is_target and columns is None:
                continue  # a struct's name, a lambda's variable, or something that Spark will complain about
            if E.find_name(name, target.definition.names, case_sensitive) is not None:
                raise InvalidMergeError(
                    f"{where}: '{name}' is an alias and a column of the table, and there a column needs no alias. Give the "
                    "side another alias."
                )
            found[name] = columns
    return found


def _columns_below(alias: str, source: Source) -> tuple[str, ...] | None:
    if source.has_fields(alias):
        return None  # they look the same
    try:
        with suppress_error_logs():
            return tuple(source.df.selectExpr(f"{E.quote(alias)}.*").columns)
    except (AnalysisException, ParseException):
        return None


def _values(
    inspector: Inspector,
    where: str,
    insert: InsertHistory,
    destination: OutboxTarget,
    target: Target,
    sees: Sees,
    frame: DataFrame,
) -> dict[str, Value]:
    given = _assigned(where, insert, destination, E.is_case_sensitive(target.spark))
    said = {f.name: f.default or "NULL" for f in destination.fields}
    given = {n: said[n] if is_default(v) else with_columns_for_qualified_stars(v, frame) for n, v in given.items()}
    given |= {f.name: f.default for f in destination.fields if f.default is not None and f.name not in given}  # S46
    _check_complete(where, given, destination)
    types = inspector.types(f"{where} (a name without an alias is the table's)", given, sees)
    values: dict[str, Value] = {f.name: Null() for f in destination.fields}
    if destination.definition.tombstoneKey is not None:
        values[destination.definition.tombstoneKey] = LiveMarker()
    fields = {f.name: f for f in destination.fields}
    for (name, value), kind in zip(given.items(), types, strict=True):
        way = cast_policy(kind, fields[name])
        if way is CastPolicy.REFUSED:
            raise SchemaMismatchError(
                f"{where}: column '{name}' is {fields[name].text}, and a value of type {kind.simpleString()} cannot be "
                "stored in it. Cast the value explicitly.",
                column=name,
            )
        values[name] = Expression(value, None, kind, way)
    return values


def _assigned(
    where: str, insert: InsertHistory, destination: OutboxTarget, case_sensitive: bool
) -> dict[str, str | Column]:
    names, found = [f.name for f in destination.fields], dict[str, str | Column]()
    for key, value in insert.values.items:
        text = key_text(key)
        parts = name_parts(text)
        name = E.find_name(text, names, case_sensitive) or (
            E.find_name(parts[0], names, case_sensitive) if len(parts) == 1 else None
        )
        if name is None:
            raise InvalidMergeError(f"{where}: it has no column '{text}'." + did_you_mean(text, names), column=text)
        if name in found:
            raise InvalidMergeError(f"{where}: assigns '{name}' twice. Keep one of them.", column=name)
        found[name] = expression(value)
    return found


def _check_complete(where: str, given: Mapping[str, str | Column], destination: OutboxTarget) -> None:
    """Raise unless a row has its key, its watermark, and every NOT NULL column."""
    own = destination.definition
    roles = dict.fromkeys(own.watermarkKey, "watermark") | dict.fromkeys(own.primaryKey, "primary key")
    needed = [f.name for f in destination.fields if f.name in roles or (not f.nullable and f.name != own.tombstoneKey)]
    lacking = [n for n in needed if n not in given]
    if lacking:
        listed = ", ".join(f"{n} ({roles.get(n, 'not nullable')})" for n in lacking)
        raise InvalidMergeError(f"{where}: the map does not assign {listed}. Add it to the map.", columns=lacking)
