"""Clauses resolved against target and source: a value for each column of each row (S10, S22, S23, S28-S30)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import attrs
from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from trinitymerge.errors import (
    Advice,
    InvalidMergeError,
    SchemaMismatchError,
    TrinityMergeError,
    add_missing_facts,
    did_you_mean,
    in_columns,
    missing,
)
from trinitymerge.merge.analysis import row_kinds
from trinitymerge.merge.analysis.ignored_columns import ignored_columns
from trinitymerge.merge.analysis.inspector import Inspector
from trinitymerge.merge.analysis.relations import Source, Target, as_column, expression
from trinitymerge.merge.analysis.result import Analysis, ClausePlan
from trinitymerge.merge.analysis.scope import Sees, frames_of, with_absent_side, with_columns_for_stars
from trinitymerge.merge.model.clauses import (
    All,
    Assignments,
    Clause,
    Delete,
    Insert,
    TableAction,
    Update,
    WhenOnlyOnTarget,
    describe,
    is_default,
)
from trinitymerge.merge.model.names import column_text, key_text, name_parts
from trinitymerge.schema.constraints import about
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.schema.types import Path
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.casts import CastPolicy, cast_policy, cast_to_column, key_policy, widens, widens_exactly
from trinitymerge.spark.sql_text import Sql, as_sql


def with_field(struct: Column, kind: DataType, path: tuple[str, ...], value: Column, case_sensitive: bool) -> Column:
    """Return a struct with the field at a path replaced; structs on the way that are null become structs of nulls first."""
    assert isinstance(kind, StructType)
    name = E.find_name(path[0], kind.names, case_sensitive) or path[0]
    nulls = ", ".join(f"{E.text_literal(f.name)}, CAST(NULL AS {E.sql_type(f.dataType)})" for f in kind.fields)
    whole = F.coalesce(struct, F.expr(f"named_struct({nulls})"))
    if len(path) > 1:
        value = with_field(whole.getField(name), kind[name].dataType, path[1:], value, case_sensitive)
    return whole.withField(E.quote(name), value)


def can_be_completed(kind: DataType, wanted: DataType, may_lack: Callable[[Path], bool], at: Path = ()) -> bool:
    """Return True if values of a type are those of another one but for fields of structs that they may lack, by their paths."""
    if isinstance(kind, StructType) and isinstance(wanted, StructType):
        theirs = {f.name.casefold(): f.dataType for f in kind.fields}
        if len(theirs) < len(kind.fields):
            return False  # names that differ by case alone: which field is meant is unknown
        fits = all(
            can_be_completed(theirs.pop(f.name.casefold()), f.dataType, may_lack, (*at, f.name))
            if f.name.casefold() in theirs
            else may_lack((*at, f.name))
            for f in wanted.fields
        )
        return fits and not theirs
    if isinstance(kind, ArrayType) and isinstance(wanted, ArrayType):
        return can_be_completed(kind.elementType, wanted.elementType, may_lack, (*at, "element"))
    if isinstance(kind, MapType) and isinstance(wanted, MapType):
        values = can_be_completed(kind.valueType, wanted.valueType, may_lack, (*at, "value"))
        return values and widens_exactly(kind.keyType, wanted.keyType)
    return widens(kind, wanted)


def missing_fields(kind: DataType, wanted: DataType, at: Path = ()) -> Iterator[Path]:
    """Return the fields of structs in structs that a type lacks."""
    if not isinstance(kind, StructType) or not isinstance(wanted, StructType):
        return
    theirs = {f.name.casefold(): f.dataType for f in kind.fields}
    for field in wanted.fields:
        same = theirs.get(field.name.casefold())
        yield from [(*at, field.name)] if same is None else missing_fields(same, field.dataType, (*at, field.name))


def completed(value: Sql, kind: DataType, wanted: DataType, other: Sql | None = None, depth: int = 0) -> Sql:
    """Return a value with the fields that it lacks, from another value of the wanted type or else null; a null stays null."""
    if kind == wanted:
        return value
    if isinstance(kind, StructType) and isinstance(wanted, StructType):
        theirs = {f.name.casefold(): f for f in kind.fields}
        fields = []
        for field in wanted.fields:
            same, kept = theirs.get(field.name.casefold()), None if other is None else _field(other, field.name)
            if same is None:
                inside = E.cast(E.NULL, field.dataType) if kept is None else kept
            else:
                inside = completed(_field(value, same.name), same.dataType, field.dataType, kept, depth)
            fields.append(f"{E.text_literal(field.name)}, {inside}")
        return E.cast(E.case([(E.is_not_null(value), Sql(f"named_struct({', '.join(fields)})"))]), wanted)
    each = Sql(f"`each{depth}`")
    if isinstance(kind, ArrayType) and isinstance(wanted, ArrayType):
        inside = completed(each, kind.elementType, wanted.elementType, None, depth + 1)
        return E.cast(Sql(f"transform({value}, {each} -> {inside})"), wanted)
    if isinstance(kind, MapType) and isinstance(wanted, MapType):
        inside = completed(each, kind.valueType, wanted.valueType, None, depth + 1)
        return E.cast(Sql(f"transform_values({value}, (`key{depth}`, {each}) -> {inside})"), wanted)
    return E.cast(value, wanted)


def part_of(wanted: DataType, kind: DataType) -> DataType:
    """Return a type with those fields of structs only that another type has, as it would be if that had been :func:`completed`."""
    if not isinstance(kind, StructType) or not isinstance(wanted, StructType):
        return wanted
    theirs = {f.name.casefold(): f.dataType for f in kind.fields}
    here = [(f, theirs[f.name.casefold()]) for f in wanted.fields if f.name.casefold() in theirs]
    return StructType([StructField(f.name, part_of(f.dataType, k)) for f, k in here])


def _field(struct: Sql, name: str) -> Sql:
    return Sql(f"{struct}.{E.quote(name)}")


def keys_by_name(target: Target, source: Source, call: str | None = None) -> dict[str, row_kinds.Expression]:
    """Return what the source has for each key column, for a merge without a condition (S17a, S30); ``call``: its shorthand."""
    sides, found = ByName(target, source, pairs=True), dict[str, row_kinds.Expression]()
    pairing = f"{call or 'The merge has no condition, so it'} pairs rows by the primary key."
    for key in target.definition.primaryKey:
        given, field = sides.value(target.definition.field(key)), target.definition.field(key)
        if given is None:
            raise InvalidMergeError(
                f"{pairing} {missing([key], 'the source', E.not_made(source.schema))} Rename the source's column, or pass a "
                f"condition{' to merge()' if call else ''}."
            )
        if given.way is CastPolicy.REFUSED:
            raise SchemaMismatchError(
                f"{pairing} Column '{key}' is {field.text} in the table and {given.type.simpleString()} in the source, and "
                f"no value of that type is a key. Cast the source's column to {field.text} explicitly. Nothing was written.",
                column=key,
            )
        found[key] = given
    return found


def primary_key_equality(target: Target, keys: Mapping[str, row_kinds.Expression]) -> Sql:
    """Return the condition of a merge without one: equality of primary keys, as the table stores them (S17a)."""
    return E.all_of(
        E.equals(
            target.column(name),
            cast_to_column(as_sql(str(key.value)), key.way, target.definition.field(name), True, key.type),
        )
        for name, key in keys.items()
    )


@attrs.frozen
class BlamedClause:
    """A clause, at a position from 0 among all of the merge, for errors; ``where`` begins a message with it and its action."""

    clauses: tuple[Clause, ...]
    position: int
    where: str
    action: str


@attrs.frozen(eq=False)
class ByName:
    """A source beside a target.

    Attributes:
        follows_source: the source may lack any column but those of the primary key (S44).
        pairs: the merge pairs rows by the primary key, by name: keys keep their values (S17a).
    """

    target: Target
    source: Source
    follows_source: bool = False
    pairs: bool = False

    @property
    def definition(self) -> TableDefinition:
        return self.target.definition

    def value(self, field: Field, keeps: bool = False) -> row_kinds.Expression | None:
        """Return the source's column of a name, and how it is stored, refused or not; None if there is none.

        ``keeps``: fields of a struct that the source may lack keep the target's values, instead of being null.
        """
        i = self.source.index(field.name)
        if i is None:
            return None
        kind = self.source.plain_type(i)
        is_key = self.pairs and field.name in self.definition.primaryKey
        way = key_policy(kind, field) if is_key else cast_policy(kind, field)
        if way is CastPolicy.REFUSED and self._can_be_completed(kind, field):
            return self._completed(i, kind, field, keeps)
        return row_kinds.Expression(C.SOURCE_COPY(i), self.source.plain(i), kind, way)

    def _can_be_completed(self, kind: DataType, field: Field) -> bool:
        grown = {tuple(name.casefold() for name in path) for path in field.added_fields}

        def may_lack(path: Path) -> bool:
            return self.follows_source or tuple(name.casefold() for name in path) in grown

        return can_be_completed(kind, E.physical_type(field), may_lack)

    def _completed(self, i: int, kind: DataType, field: Field, keeps: bool) -> row_kinds.Expression:
        wanted = E.physical_type(field)
        if keeps and isinstance(wanted, StructType):
            kept = self.target.column(field.name)
            return row_kinds.Expression(completed(C.SOURCE_COPY(i), kind, wanted, kept), None, wanted, CastPolicy.AS_IS)
        alone = completed(self.source.plain(i), kind, wanted)
        return row_kinds.Expression(completed(C.SOURCE_COPY(i), kind, wanted), alone, wanted, CastPolicy.AS_IS)

    def values(self, fields: Sequence[Field], clause: BlamedClause, keeps: bool) -> dict[str, row_kinds.Expression]:
        """Return the source's value for each column. Optional columns that the source lacks are left out."""
        optional = {*self.definition.watermarkKey, self.definition.tombstoneKey}
        found = {f.name: self.value(f, keeps) for f in fields}
        given = {name: value for name, value in found.items() if value is not None}
        lacking = [f for f in fields if f.name not in given and f.name not in optional and not self._may_lack(f)]
        unfit = [f for f in fields if f.name in given and given[f.name].way is CastPolicy.REFUSED]
        if unfit and len(unfit) + len(lacking) > 1:
            raise self._differences(unfit, lacking, clause)
        if unfit:
            raise unstorable(clause.clauses, clause.position, unfit[0], given[unfit[0].name], self._held(unfit[0]))
        if lacking:
            raise self._lacks([f.name for f in lacking], clause)
        return given

    def _held(self, field: Field) -> str:
        """Return why a column that follows the source is not widened, as a sentence, or an empty string (S44, S45)."""
        check = about(self.definition.checks, field.name) if self.follows_source else None
        return "" if check is None else f" It keeps its type, for the constraint '{check.name}' is about it."

    def _may_lack(self, field: Field) -> bool:
        return field.may_be_left_out or (self.follows_source and field.name not in self.definition.primaryKey)

    def _lacks(self, names: Sequence[str], clause: BlamedClause) -> TrinityMergeError:
        them = "it" if len(names) == 1 else "them"
        statement = "INSERT" if clause.action == "insert" else "UPDATE SET"
        advice = Advice(
            f"Add {them}, or use merge() with {clause.action}All(exceptColumns=[...])."
            if clause.clauses[clause.position].call
            else f"Add {them}, name {them} in exceptColumns, or use {clause.action}Expr.",
            sql=f"Add {them} to the source's query, or exclude {them}: {statement} * EXCEPT ({', '.join(names)}).",
        )
        return InvalidMergeError(
            f"{clause.where} takes every column from the source. "
            f"{missing(names, 'the source', E.not_made(self.source.schema))} {advice}",
            clause=clause.position + 1,
            columns=list(names),
            advice=advice,
        )

    def _differences(self, unfit: Sequence[Field], lacking: Sequence[Field], clause: BlamedClause) -> TrinityMergeError:
        unused = [n for n in self.source.schema.names if E.find_name(n, self.definition.names, False) is None]
        rows = [(f.name, f.text, self._type_of(f), "cannot be stored: cast it explicitly") for f in unfit]
        rows += [(f.name, f.text, "", f"is missing.{did_you_mean(f.name, unused)}") for f in lacking]
        table = in_columns(("column", "in the table", "in the source", ""), rows)
        return SchemaMismatchError(
            f"{clause.where} takes every column from the source, and {len(rows)} do not fit:\n{table}",
            clause=clause.position + 1,
            columns=[row[0] for row in rows],
        )

    def _type_of(self, field: Field) -> str:
        i = self.source.index(field.name)
        return "" if i is None else self.source.plain_type(i).simpleString()


def unstorable(
    clauses: tuple[Clause, ...], position: int, field: Field, given: row_kinds.Expression, why: str = ""
) -> SchemaMismatchError:
    """Return the error about a value that no column of this type takes (S29); ``why`` may say more, as a sentence."""
    return SchemaMismatchError(
        f"{describe(clauses, position)}: column '{field.name}' is {field.text}, and a value of type "
        f"{given.type.simpleString()} cannot be stored in it.{why} Cast the value explicitly.",
        clause=position + 1,
        column=field.name,
    )


def analyze(
    target: Target,
    source: Source | None,
    condition: Any,
    clauses: tuple[Clause, ...],
    at: tuple[Any, ...] = (),
    follows_source: bool = False,
) -> Analysis:
    """Resolve a merge against its two sides; ``updateWhere`` and ``deleteWhere`` have no source.

    The condition is SQL text, a Column, or None for equality on the primary key by name. The clauses have been checked for
    order (S28). ``at`` is the watermark of rows that get none from their clause, column by column; empty if S10.3 decides.
    If the merge follows its source, the source may lack any column (S44).
    """
    frames = frames_of(target, source)
    by_name = source is not None and condition is None
    inspector = Inspector(target, source, frames, _given(target, condition, clauses, at))
    by_merge = dict(zip(target.definition.watermarkKey, at, strict=False))
    resolver = _Resolver(target, source, frames, clauses, inspector, by_merge, follows_source, by_name)
    ignored, keys = tuple[str, ...](), dict[str, row_kinds.Expression]()
    if source is not None:
        names, case_sensitive = source.schema.names, source.case_sensitive
        ignored = ignored_columns(names, target.definition, texts_of(condition, clauses, at), clauses, case_sensitive)
        if by_name:
            keys = keys_by_name(target, source, clauses[0].call)
            condition = primary_key_equality(target, keys)
        else:
            condition = resolver.condition("The merge condition", condition, Sees.BOTH)
    plans = tuple(map(resolver.clause, range(len(clauses))))
    inspector.check_deterministic(resolver.stable)
    return Analysis(target, source, frames[Sees.BOTH], condition, keys, plans, ignored, one_by_one=resolver.one_by_one)


def texts_of(condition: Any, clauses: tuple[Clause, ...], at: tuple[Any, ...] = ()) -> list[str]:
    beside = (expression(value) for c in clauses for h in c.histories for _, value in h.assignments)
    asked = [] if condition is None else [condition]
    given = (*asked, *(e for c in clauses for e in _expressions_of(c)), *map(expression, at), *beside)
    return [column_text(e) if isinstance(e, Column) else e for e in given]


def _expressions_of(clause: Clause) -> Iterator[str | Column]:
    yield from [] if clause.condition is None else [clause.condition]
    for action in clause.changes:
        yield from (expression(value) for _, value in action.assignments)


def _given(
    target: Target, condition: Any, clauses: tuple[Clause, ...], at: tuple[Any, ...]
) -> Iterator[tuple[Sees, str | Column]]:
    """Return the expressions of a merge and what they see; what is not part of a clause, in each of them."""
    defaults = [f.default for f in target.definition.fields if f.default is not None]
    yield from [] if condition is None else [(Sees.BOTH, condition)]
    for clause in clauses:
        yield from ((Sees.of(clause), e) for e in (*_expressions_of(clause), *map(expression, at)))
    for sees in dict.fromkeys(map(Sees.of, clauses)):
        yield from ((sees, default) for default in defaults)


class _Resolver:
    """Analyses the expressions of one merge; every method only asks Spark's analyzer."""

    def __init__(
        self,
        target: Target,
        source: Source | None,
        frames: Mapping[Sees, DataFrame],
        clauses: tuple[Clause, ...],
        inspector: Inspector,
        at: Mapping[str, Any],
        follows_source: bool,
        by_name: bool,
    ) -> None:
        self.target, self.source, self.frames, self.clauses, self.at = target, source, frames, clauses, at
        self.by_name = None if source is None else ByName(target, source, follows_source, by_name)
        self.definition = target.definition
        self.inspector = inspector
        self.stable: list[tuple[str, str | Column, Sees, int | None]] = []
        """The expressions that must be deterministic: their names, what they see, and the numbers of their clauses."""
        self.one_by_one = False
        """Some expression over one side means nothing, or something else, where the other side is there too."""

    def clause(self, position: int) -> ClausePlan:
        clause = self.clauses[position]
        condition, reads_target, sees, number = None, False, Sees.of(clause), position + 1
        with add_missing_facts(clause=number):
            if clause.condition is not None:
                where = f"The condition of {describe(self.clauses, position)}"
                asked = with_absent_side(clause.condition, sees, self.target, self.source)
                condition = self.condition(where, asked, sees, number)
                reads_target = self.inspector.reads_target(condition, sees=sees)
            rows = tuple(self._row(position, action) for action in clause.changes)
        return ClausePlan(clause, condition, reads_target, rows)

    def condition(self, where: str, condition: str | Column, sees: Sees, clause: int | None = None) -> str | Column:
        """Return a condition as it can stand beside internal columns."""
        condition = with_columns_for_stars(condition, sees, self.target, self.source, where)
        found = self.inspector.condition(where, condition, sees)
        self.stable.append((where, condition, sees, clause))
        self._note(condition, sees)
        return found

    def _note(self, value: str | Column, sees: Sees) -> None:
        self.one_by_one = self.one_by_one or not self.inspector.keeps_its_meaning(value, sees)

    def _where(self, position: int, action: Update | Insert, between: str = ", ") -> str:
        """Return a clause and its action as errors name them; a shorthand has no separate action."""
        clause = describe(self.clauses, position)
        return clause if self.clauses[position].call else f"{clause}{between}{action.method}"

    # Rows -----------------------------------------------------------------------------------------------------------

    def _row(self, position: int, action: TableAction) -> row_kinds.RowKind:
        if isinstance(action, Delete):
            return self._delete(position)
        assigned = self._assigned(position, action)
        values: dict[str, row_kinds.Value] = {}
        missing: dict[str, row_kinds.Value] = {}
        for field in self.definition.stored_fields:
            if field.name in assigned:
                values[field.name] = assigned[field.name]
            elif field.name in self.definition.watermarkKey:
                values[field.name] = self._watermark(position, field)
            elif not action.keeps_the_rest and field.default is not None:
                where = f"The default of column '{field.name}'"  # S46
                values |= self._given(position, where, {field.name: str(field.default)})
            else:
                values[field.name] = missing[field.name] = self._unassigned(position, action, field)
        if isinstance(action, Update):
            moves = any(k in assigned for k in self.definition.primaryKey)
            return row_kinds.UpdatedRow(position, values, moves, action.onlyIfChanged)
        assert isinstance(action, Insert), f"no kind of row comes of {type(action).__name__}"
        self._check_complete(position, missing)
        return row_kinds.InsertedRow(position, values)

    def _delete(self, position: int) -> row_kinds.Tombstone:
        values: dict[str, row_kinds.Value] = {f.name: row_kinds.Null() for f in self.definition.stored_fields}
        values.update({name: row_kinds.FromTarget() for name in self.definition.primaryKey})
        for name in self.definition.watermarkKey:
            values[name] = self._watermark(position, self.definition.field(name))
        values[self.definition.tombstone_column] = row_kinds.TombstoneMarker()
        return row_kinds.Tombstone(position, values)

    def _unassigned(self, position: int, action: Update | Insert, field: Field) -> row_kinds.Value:
        if field.name == self.definition.tombstone_column:
            if self.definition.tombstoneKey is None:
                return row_kinds.LiveMarker()
            if isinstance(action.values, All) and field.name not in self._excepted(position, action, action.values):
                is_left = action.values.columns is not None and action.keeps_the_rest
                return row_kinds.FromTarget() if is_left else row_kinds.LiveMarker()
        return row_kinds.FromTarget() if action.keeps_the_rest else row_kinds.Null()

    def _watermark(self, position: int, field: Field) -> row_kinds.Value:
        """Return a watermark column that no map assigns: the source's, the merge's, or that of what the row replaces (S10, H2a)."""
        by_name = None if isinstance(self.clauses[position], WhenOnlyOnTarget) else self.by_name
        given = None if by_name is None else by_name.value(field)
        if given is not None:
            self._require_storable(position, field, given)
        elif field.name in self.at:
            given = self._given(position, "at()", {field.name: expression(self.at[field.name])})[field.name]
        return given or row_kinds.FromReplacedRow()

    def _assigned(self, position: int, action: Update | Insert) -> dict[str, row_kinds.Expression]:
        if isinstance(action.values, All):
            return self._all(position, action, action.values)
        return self._explicit(position, action, action.values)

    def _excepted(self, position: int, action: Update | Insert, values: All) -> set[str]:
        return {self._column_name(position, action, n) for n in values.exceptColumns if not self._only_source(n)}

    def _all(self, position: int, action: Update | Insert, values: All) -> dict[str, row_kinds.Expression]:
        assert self.by_name is not None
        excepted = self._excepted(position, action, values)
        wanted = [f for f in self.definition.fields if f.name not in excepted]
        if values.columns is not None:
            listed = {self._column_name(position, action, n, "columns") for n in values.columns}
            wanted = [f for f in wanted if f.name in {*listed, *self.definition.primaryKey}]
        clause = BlamedClause(self.clauses, position, self._where(position, action, ": "), action.name)
        given = self.by_name.values(wanted, clause, keeps=action.keeps_the_rest)
        if values.ignoreNulls and action.keeps_the_rest:
            kept = self._kept_where_null(position, action, values.ignoreNulls)
            given |= {n: attrs.evolve(v, alone=None, or_kept=True) for n, v in given.items() if n in kept}
        return given

    def _kept_where_null(self, position: int, action: Update | Insert, columns: bool | tuple[str, ...]) -> set[str]:
        own = self.definition
        roles = {*own.primaryKey, *own.watermarkKey, own.tombstoneKey}
        if isinstance(columns, bool):
            return {n for n in own.names if n not in roles}
        names = {self._column_name(position, action, n, "ignoreNulls") for n in columns}
        if names & roles:
            raise InvalidMergeError(
                f"{self._where(position, action)}: ignoreNulls names {min(names & roles)}, and a null in a key means what it says. "
                "Leave it out, or filter such source rows.",
                columns=sorted(names & roles),
            )
        return names

    def _explicit(self, position: int, action: Update | Insert, values: Assignments) -> dict[str, row_kinds.Expression]:
        whole: dict[str, Any] = {}
        nested: dict[str, dict[tuple[str, ...], Any]] = {}
        for key, value in values.items:
            name, path = self._column_path(position, action, key_text(key))
            path = path if self._case_sensitive else tuple(part.lower() for part in path)
            earlier = [*((n, ()) for n in whole), *((n, p) for n, paths in nested.items() for p in paths)]
            if any(n == name and (p[: len(path)] == path or path[: len(p)] == p) for n, p in earlier):
                raise InvalidMergeError(
                    f"{self._where(position, action, ': ')} assigns '{'.'.join((name, *path))}' twice. "
                    "Keep one of them.",
                    column=name,
                )
            if path:
                nested.setdefault(name, {})[path] = expression(value)
            else:
                whole[name] = self._or_default(name, expression(value), Sees.of(self.clauses[position]))
        if nested and not action.keeps_the_rest:
            name = next(iter(nested))
            raise InvalidMergeError(
                f"{describe(self.clauses, position)}: {action.method} assigns a field of '{name}', but a new row has no struct "
                f"to change. Assign the whole column, e.g. named_struct(...).",
                column=name,
            )
        for name, fields in nested.items():
            whole[name] = self._changed_struct(position, action, name, fields)
        return self._given(position, self._where(position, action), whole)

    def _or_default(self, name: str, value: str | Column, sees: Sees) -> str | Column:
        """Replace the word ``DEFAULT`` by the column's default, unless a column has that name (S46)."""
        if not is_default(value) or E.find_name("default", self.frames[sees].columns, case_sensitive=False) is not None:
            return value
        return self.definition.field(name).default or "NULL"

    def _given(self, position: int, where: str, values: Mapping[str, str | Column]) -> dict[str, row_kinds.Expression]:
        if not values:
            return {}
        sees = Sees.of(self.clauses[position])
        places = {name: f"{where}, column '{name}'" for name in values}
        values = {n: with_columns_for_stars(v, sees, self.target, self.source, places[n]) for n, v in values.items()}
        types = self.inspector.types(where, values, sees)
        keys = [name for name in values if name in self.definition.primaryKey]
        self.stable += [(places[k], values[k], sees, position + 1) for k in keys]
        only_source = not self.inspector.reads_target(*values.values(), sees=sees)
        given = {}
        for (name, value), kind in zip(values.items(), types, strict=True):
            self._note(value, sees)
            alone = value if only_source or not self.inspector.reads_target(value, sees=sees) else None
            field = self.definition.field(name)
            given[name] = row_kinds.Expression(value, alone, kind, cast_policy(kind, field))
            self._require_storable(position, field, given[name])
        return given

    def _require_storable(self, position: int, field: Field, given: row_kinds.Expression) -> None:
        if given.way is CastPolicy.REFUSED:
            raise unstorable(self.clauses, position, field, given)

    def _changed_struct(
        self, position: int, action: Update | Insert, name: str, fields: Mapping[tuple[str, ...], str | Column]
    ) -> Column:
        """Return the target's struct with some of its fields replaced (S22)."""
        kind = E.physical_type(self.definition.field(name))
        struct, sees = F.expr(self.target.column(name)), Sees.of(self.clauses[position])
        for path, value in fields.items():
            field_type = self._field_type(position, name, kind, path)
            where = f"{self._where(position, action)}, column '{'.'.join((name, *path))}'"
            value = with_columns_for_stars(value, sees, self.target, self.source, where)
            value_type = self.inspector.kind(where, value, sees)
            way = cast_policy(value_type, Field(".".join((name, *path)), field_type.jsonValue()))
            if way not in (CastPolicy.AS_IS, CastPolicy.WIDENED):
                raise SchemaMismatchError(
                    f"{where} is {field_type.simpleString()} and the value {value_type.simpleString()}. "
                    "Cast the value explicitly.",
                    column=name,
                )
            struct = with_field(struct, kind, path, as_column(value).cast(field_type), self._case_sensitive)
        return struct

    def _field_type(self, position: int, name: str, kind: DataType, path: tuple[str, ...]) -> DataType:
        for part in path:
            names = kind.names if isinstance(kind, StructType) else []
            found = E.find_name(part, names, self._case_sensitive)
            if found is None:
                raise InvalidMergeError(
                    f"{describe(self.clauses, position)}: column '{name}' has no field '{'.'.join(path)}'."
                    + did_you_mean(part, names)
                )
            kind = kind[found].dataType  # type: ignore[index]
        return kind

    # Names ----------------------------------------------------------------------------------------------------------

    def _only_source(self, name: str) -> bool:
        """Return True if it is a source column that the table does not have: one that is left out on purpose (S22a)."""
        in_table = E.find_name(name, self.definition.names, self._case_sensitive) is not None
        return not in_table and self.source is not None and self.source.index(name) is not None

    @property
    def _case_sensitive(self) -> bool:
        return self.source.case_sensitive if self.source is not None else False

    def _column_name(self, position: int, action: Update | Insert, text: str, argument: str = "exceptColumns") -> str:
        name, path = self._column_path(position, action, text)
        if path:
            raise InvalidMergeError(
                f"{self._where(position, action)}: {argument} takes whole columns, and '{text}' is a "
                f"field of '{name}'. Use {action.name}Expr for single fields.",
            )
        return name

    def _column_path(self, position: int, action: Update | Insert, text: str) -> tuple[str, tuple[str, ...]]:
        """Return the target column a map key names, and the struct fields below it (S22)."""
        names = self.definition.names
        whole = E.find_name(text, names, self._case_sensitive)
        if whole is not None:
            return whole, ()
        parts = name_parts(text)
        found = E.find_name(parts[0], names, self._case_sensitive) if parts else None
        if len(parts) > 1 and parts[0].lower() == self.target.alias.lower():
            below_alias = E.find_name(parts[1], names, self._case_sensitive)
            if below_alias is not None:
                return below_alias, parts[2:]
        if found is None or (
            len(parts) > 1 and not isinstance(E.physical_type(self.definition.field(found)), StructType)
        ):
            wanted = parts[1] if len(parts) > 1 and parts[0].lower() == self.target.alias.lower() else text
            raise InvalidMergeError(
                f"{self._where(position, action)}: the table has no column '{wanted}'." + did_you_mean(wanted, names),
                column=wanted,
            )
        return found, parts[1:]

    def _check_complete(self, position: int, missing: Mapping[str, row_kinds.Value]) -> None:
        """Raise unless a new row has its key and every NOT NULL column (S23)."""
        required = {f.name for f in self.definition.fields if not f.nullable}
        lacking = [n for n, v in missing.items() if isinstance(v, row_kinds.Null) and n in required]
        if lacking:
            kinds = "primary key" if set(lacking) & set(self.definition.primaryKey) else "not nullable"
            advice = Advice(
                "Add it to the map.", sql="Name it, and give it a value: INSERT (column, ...) VALUES (value, ...)."
            )
            raise InvalidMergeError(
                f"{describe(self.clauses, position)}: the insert does not assign {', '.join(lacking)} ({kinds}). {advice}",
                columns=lacking,
                advice=advice,
            )
