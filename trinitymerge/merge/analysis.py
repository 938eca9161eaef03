"""Names, types and references of a merge, resolved against target and source (S10, S22, S23, S28-S30).

Owns: turning clauses into :class:`Template` objects, one per kind of row a merge can write, each saying for every stored
column where its value comes from. Runs no Spark job: it only asks Spark's analyzer. Which path is sound is decided in
:mod:`trinitymerge.merge.paths`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias

import attrs
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DecimalType, NumericType, StructType

from trinitymerge.definition import Field, TableDefinition, TombstoneForm
from trinitymerge.errors import InvalidMergeError, SchemaMismatchError, did_you_mean
from trinitymerge.expressions import (
    all_of,
    declared_length,
    find_name,
    fitting,
    null_of,
    physical_type,
    quote,
    sql_type,
    text_literal,
    tombstone_value,
)
from trinitymerge.merge.assignment import Storing, storing, zero
from trinitymerge.merge.clauses import (
    All,
    Assignments,
    Clause,
    Delete,
    Insert,
    Update,
    WhenOnlyOnTarget,
    describe,
)
from trinitymerge.merge.frames import Source, Target, analysis_errors, as_column, expression, source_copy
from trinitymerge.merge.inspection import Inspector
from trinitymerge.merge.names import key_text, name_parts

# Where the value of one column of a written row comes from: a closed union -------------------------------------------


@attrs.frozen(eq=False)
class Given:
    """An expression over the joined sides, with its type and how it is stored (S29).

    Attributes:
        value: over the joined sides, SQL text or a Column.
        alone: the same over the source alone; None if it reads the target.
        type: of the value.
        way: how it is stored.
    """

    value: str | Column
    alone: str | Column | None
    type: DataType
    way: Storing

    @property
    def reads_target(self) -> bool:
        """Does the value depend on the target row."""
        return self.alone is None


@attrs.frozen
class Carried:
    """The target row's own value (S22)."""


@attrs.frozen
class Replaced:
    """The watermark of what the row replaces (S10.3)."""


@attrs.frozen
class Null:
    """Null; in a tombstone without pre-image, the zero value of a column that cannot be null (S9)."""


@attrs.frozen
class Alive:
    """The tombstone column's value on a row that is not deleted."""


@attrs.frozen
class Dead:
    """The tombstone column's value on a deleted row (S9)."""


Value: TypeAlias = Given | Carried | Replaced | Null | Alive | Dead


@attrs.frozen(eq=False)
class Template:
    """One kind of row that the merge can write.

    Attributes:
        clause: position of the clause, from 0.
        action: ``"update"``, ``"delete"`` or ``"insert"``.
        values: for every stored column.
        moves: an update that assigns the primary key, so that it may change it (S24).
    """

    clause: int
    action: str
    values: Mapping[str, Value]
    moves: bool = False

    @property
    def reads_target(self) -> bool:
        """Does any value depend on the target row."""
        return any(
            isinstance(v, (Carried, Replaced)) or (isinstance(v, Given) and v.reads_target)
            for v in self.values.values()
        )


@attrs.frozen(eq=False)
class ClausePlan:
    """A clause with its condition analysed and its rows described."""

    clause: Clause
    condition: str | Column | None
    reads_target: bool
    templates: tuple[Template, ...]


@attrs.frozen(eq=False)
class Analysis:
    """All that is known about a merge before anything runs.

    Attributes:
        target, source: the sides; no source for ``updateWhere`` and ``deleteWhere``.
        joined: both sides without the target's rows, for analysis.
        condition: of the merge; never None where there is a source.
        by_name: the condition is equality on the primary key by name, not given by the user.
        clauses: in order.
    """

    target: Target
    source: Source | None
    joined: DataFrame
    condition: str | Column | None
    by_name: bool
    clauses: tuple[ClausePlan, ...]

    @property
    def definition(self) -> TableDefinition:
        """The target's definition."""
        return self.target.definition

    def of_kind(self, kind: type) -> list[tuple[int, ClausePlan]]:
        """The clauses of one kind with their positions."""
        return [(i, c) for i, c in enumerate(self.clauses) if isinstance(c.clause, kind)]


def analyse(target: Target, source: Source | None, condition: Any, clauses: tuple[Clause, ...]) -> Analysis:
    """Resolves a merge against its two sides.

    Args:
        target: the target side.
        source: the source side; None for merges without one (``updateWhere``, ``deleteWhere``).
        condition: SQL text, a Column, or None for equality on the primary key by name.
        clauses: already checked for order (S28).

    Returns:
        The analysis.

    Raises:
        InvalidMergeError: an unknown or ambiguous name, a condition that is not boolean, a missing assignment.
        SchemaMismatchError: a value whose type cannot be stored in its column.
    """
    joined = target.empty if source is None else target.empty.crossJoin(source.frame)
    by_name = source is not None and condition is None
    inspector = Inspector(target, source, joined, _expressions(condition, clauses))
    if source is not None and by_name:
        condition = primary_key_equality(target, source)
    elif source is not None:
        inspector.check_boolean("The merge condition", condition)
    resolver = _Resolver(target, source, joined, clauses, inspector)
    plans = tuple(map(resolver.clause, range(len(clauses))))
    return Analysis(target, source, joined, condition, by_name, plans)


def _expressions(condition: Any, clauses: tuple[Clause, ...]) -> Iterator[str | Column]:
    """The conditions and values that the user gave."""
    yield from [c for c in (condition, *(clause.condition for clause in clauses)) if c is not None]
    for values in (getattr(action, "values", None) for clause in clauses for action in clause.actions):
        if isinstance(values, Assignments):
            yield from (expression(value) for _, value in values.items)


def primary_key_equality(target: Target, source: Source) -> str:
    """The condition of a merge that was given none (S30).

    Raises:
        InvalidMergeError: the source lacks a primary-key column.
    """
    pairs = []
    for key in target.definition.primaryKey:
        i = source.index(key)
        if i is None:
            raise InvalidMergeError(
                f"The merge has no condition, so it pairs rows by the primary key, but the source has no column '{key}'."
                f"{did_you_mean(key, source.schema.names)} Rename the source's column or pass a condition."
            )
        pairs.append(f"{target.column(key)} = {_as_char(source_copy(i), target.definition.field(key))}")
    return all_of(pairs)


class _Resolver:
    """Analyses the expressions of one merge; every method only asks Spark's analyzer."""

    def __init__(
        self,
        target: Target,
        source: Source | None,
        joined: DataFrame,
        clauses: tuple[Clause, ...],
        inspector: Inspector,
    ) -> None:
        self.target, self.source, self.joined, self.clauses = target, source, joined, clauses
        self.definition = target.definition
        self.inspector = inspector

    def clause(self, position: int) -> ClausePlan:
        clause = self.clauses[position]
        if clause.condition is not None:
            self.inspector.check_boolean(f"The condition of {describe(self.clauses, position)}", clause.condition)
        templates = tuple(self._template(position, action) for action in clause.actions)
        reads_target = clause.condition is not None and self.inspector.reads_target(clause.condition)
        return ClausePlan(clause, clause.condition, reads_target, templates)

    # Templates ------------------------------------------------------------------------------------------------------

    def _template(self, position: int, action: Update | Delete | Insert) -> Template:
        if isinstance(action, Delete):
            return self._delete(position)
        assigned = self._assigned(position, action)
        values: dict[str, Value] = {}
        missing: dict[str, Value] = {}
        for field in self.definition.stored_fields:
            if field.name in assigned:
                values[field.name] = assigned[field.name]
            elif field.name in self.definition.watermarkKey:
                values[field.name] = self._watermark(position, field)
            else:
                values[field.name] = missing[field.name] = self._unassigned(action, field)
        if isinstance(action, Insert):
            self._check_complete(position, action, missing)
        moves = isinstance(action, Update) and any(k in assigned for k in self.definition.primaryKey)
        return Template(position, action.name, values, moves)

    def _delete(self, position: int) -> Template:
        values: dict[str, Value] = {f.name: Carried() for f in self.definition.stored_fields}
        for name in self.definition.watermarkKey:
            values[name] = self._watermark(position, self.definition.field(name))
        values[self.definition.tombstone_column] = Dead()
        return Template(position, "delete", values)

    def _unassigned(self, action: Update | Insert, field: Field) -> Value:
        if field.name == self.definition.tombstone_column:
            if self.definition.tombstoneKey is None:
                return Alive()
            if isinstance(action.values, All) and field.name not in action.values.exceptColumns:
                return Alive()
        return Carried() if isinstance(action, Update) else Null()

    def _watermark(self, position: int, field: Field) -> Value:
        """A watermark column that no map assigns: the source's, else that of what the row replaces (S10.2, S10.3)."""
        if self.source is None or isinstance(self.clauses[position], WhenOnlyOnTarget):
            return Replaced()
        return self._from_source(position, field) or Replaced()

    def _from_source(self, position: int, field: Field) -> Given | None:
        i = None if self.source is None else self.source.index(field.name)
        if i is None or self.source is None:
            return None
        kind = self.source.schema.fields[i].dataType
        alone = quote(self.source.schema.names[i])
        return Given(source_copy(i), alone, kind, self._storing(position, kind, field))

    def _assigned(self, position: int, action: Update | Insert) -> dict[str, Given]:
        if isinstance(action.values, All):
            return self._all(position, action, action.values)
        return self._explicit(position, action, action.values)

    def _all(self, position: int, action: Update | Insert, values: All) -> dict[str, Given]:
        excepted = {self._column_name(position, action, n) for n in values.exceptColumns}
        optional = {*self.definition.watermarkKey, self.definition.tombstoneKey}
        assigned, lacking = {}, []
        for field in self.definition.fields:
            if field.name in excepted:
                continue
            given = self._from_source(position, field)
            if given is not None:
                assigned[field.name] = given
            elif field.name not in optional:
                lacking.append(field.name)
        if lacking:
            known = () if self.source is None else self.source.schema.names
            raise InvalidMergeError(
                f"{describe(self.clauses, position)}: {action.name}All takes every column from the source, which has no "
                f"{', '.join(lacking)}. Source columns: {', '.join(known)}. Add them, name them in exceptColumns, or use "
                f"{action.name}Expr.",
                clause=position + 1,
                columns=lacking,
            )
        return assigned

    def _explicit(self, position: int, action: Update | Insert, values: Assignments) -> dict[str, Given]:
        whole: dict[str, Any] = {}
        nested: dict[str, dict[tuple[str, ...], Any]] = {}
        for key, value in values.items:
            name, path = self._column_path(position, action, key_text(key))
            path = path if self._case_sensitive else tuple(part.lower() for part in path)
            earlier = [*((n, ()) for n in whole), *((n, p) for n, paths in nested.items() for p in paths)]
            if any(n == name and (p[: len(path)] == path or path[: len(p)] == p) for n, p in earlier):
                raise InvalidMergeError(
                    f"{describe(self.clauses, position)}: {action.name}Expr assigns '{'.'.join((name, *path))}' twice. "
                    "Keep one of them.",
                    clause=position + 1,
                    column=name,
                )
            if path:
                nested.setdefault(name, {})[path] = expression(value)
            else:
                whole[name] = expression(value)
        if nested and isinstance(action, Insert):
            name = next(iter(nested))
            raise InvalidMergeError(
                f"{describe(self.clauses, position)}: insertExpr assigns a field of '{name}', but a new row has no struct "
                f"to change. Assign the whole column, e.g. named_struct(...).",
                clause=position + 1,
                column=name,
            )
        for name, fields in nested.items():
            whole[name] = self._changed_struct(position, name, fields)
        return self._typed(position, action, whole)

    def _typed(self, position: int, action: Update | Insert, values: Mapping[str, str | Column]) -> dict[str, Given]:
        if not values:
            return {}
        types = self.inspector.types(f"{describe(self.clauses, position)}, {action.name}Expr", values)
        only_source = not self.inspector.reads_target(*values.values())
        given = {}
        for (name, value), kind in zip(values.items(), types, strict=True):
            alone = value if only_source or not self.inspector.reads_target(value) else None
            given[name] = Given(value, alone, kind, self._storing(position, kind, self._stored_field(name)))
        return given

    def _storing(self, position: int, kind: DataType, field: Field) -> Storing:
        way = storing(kind, field)
        if way is Storing.REFUSED:
            raise SchemaMismatchError(
                f"{describe(self.clauses, position)}: column '{field.name}' is {field.text}, and a value of type "
                f"{kind.simpleString()} cannot be stored in it. Cast the value explicitly.",
                clause=position + 1,
                column=field.name,
            )
        return way

    def _changed_struct(self, position: int, name: str, fields: Mapping[tuple[str, ...], str | Column]) -> Column:
        """The target's struct with some of its fields replaced (S22)."""
        kind = physical_type(self.definition.field(name))
        struct = F.expr(self.target.column(name))
        for path, value in fields.items():
            field_type = self._field_type(position, name, kind, path)
            where = f"{describe(self.clauses, position)}, updateExpr, column '{'.'.join((name, *path))}'"
            with analysis_errors(where):
                value_type = self.joined.select(as_column(value)).schema.fields[0].dataType
            way = storing(value_type, Field(".".join((name, *path)), field_type.jsonValue()))
            if way not in (Storing.AS_IS, Storing.WIDENED):
                raise SchemaMismatchError(
                    f"{where} is {field_type.simpleString()} and the value {value_type.simpleString()}. "
                    "Cast the value explicitly.",
                    clause=position + 1,
                    column=name,
                )
            struct = _with_field(struct, kind, path, as_column(value).cast(field_type), self._case_sensitive)
        return struct

    def _field_type(self, position: int, name: str, kind: DataType, path: tuple[str, ...]) -> DataType:
        for part in path:
            names = kind.names if isinstance(kind, StructType) else []
            found = find_name(part, names, self._case_sensitive)
            if found is None:
                raise InvalidMergeError(
                    f"{describe(self.clauses, position)}: column '{name}' has no field '{'.'.join(path)}'."
                    + did_you_mean(part, names),
                    clause=position + 1,
                )
            kind = kind[found].dataType  # type: ignore[index]
        return kind

    # Names ----------------------------------------------------------------------------------------------------------

    @property
    def _case_sensitive(self) -> bool:
        return self.source.case_sensitive if self.source is not None else False

    def _stored_field(self, name: str) -> Field:
        return self.definition.field(name)

    def _column_name(self, position: int, action: Update | Insert, text: str) -> str:
        name, path = self._column_path(position, action, text)
        if path:
            raise InvalidMergeError(
                f"{describe(self.clauses, position)}, {_method(action)}: exceptColumns takes whole columns, and '{text}' is a "
                f"field of '{name}'. Use {action.name}Expr for single fields.",
                clause=position + 1,
            )
        return name

    def _column_path(self, position: int, action: Update | Insert, text: str) -> tuple[str, tuple[str, ...]]:
        """The target column a map key names, and the struct fields below it (S22)."""
        names = self.definition.names
        whole = find_name(text, names, self._case_sensitive)
        if whole is not None:
            return whole, ()
        parts = name_parts(text)
        found = find_name(parts[0], names, self._case_sensitive) if parts else None
        if len(parts) > 1 and parts[0].lower() == self.target.alias.lower():
            below_alias = find_name(parts[1], names, self._case_sensitive)
            if below_alias is not None:
                return below_alias, parts[2:]
        if found is None or (
            len(parts) > 1 and not isinstance(physical_type(self.definition.field(found)), StructType)
        ):
            wanted = parts[1] if len(parts) > 1 and parts[0].lower() == self.target.alias.lower() else text
            raise InvalidMergeError(
                f"{describe(self.clauses, position)}, {_method(action)}: the table has no column '{wanted}'."
                + did_you_mean(wanted, names),
                clause=position + 1,
                column=wanted,
            )
        return found, parts[1:]

    def _check_complete(self, position: int, action: Insert, missing: Mapping[str, Value]) -> None:
        """A new row needs its key and every column that cannot be null (S23)."""
        lacking = [
            n
            for n, v in missing.items()
            if isinstance(v, Null) and n in self.definition.names and not self.definition.field(n).nullable
        ]
        if lacking:
            kinds = "primary key" if set(lacking) & set(self.definition.primaryKey) else "not nullable"
            raise InvalidMergeError(
                f"{describe(self.clauses, position)}: the insert does not assign {', '.join(lacking)} ({kinds}). "
                "Add it to the map.",
                clause=position + 1,
                columns=lacking,
            )


def _as_char(value: str, field: Field) -> str:
    """A value as a char column would hold it, as SQL; text that is too long stays, and equals nothing."""
    kind, n = declared_length(field) or ("", 0)
    if kind != "char":
        return value
    text = f"CAST({value} AS STRING)"
    return f"CASE WHEN length(rtrim({text})) <= {n} THEN rpad(rtrim({text}), {n}, ' ') ELSE {text} END"


def _method(action: Update | Insert) -> str:
    """The call that added an action, as its user wrote it."""
    return action.name + ("All" if isinstance(action.values, All) else "Expr")


def _with_field(struct: Column, kind: DataType, path: tuple[str, ...], value: Column, case_sensitive: bool) -> Column:
    """A struct with the field at a path replaced; structs on the way that are null become structs of nulls first."""
    assert isinstance(kind, StructType)
    name = find_name(path[0], kind.names, case_sensitive) or path[0]
    whole = F.coalesce(struct, F.expr(_null_struct(kind)))
    if len(path) > 1:
        value = _with_field(whole.getField(name), kind[name].dataType, path[1:], value, case_sensitive)
    return whole.withField(quote(name), value)


def _null_struct(kind: StructType) -> str:
    fields = (f"{text_literal(f.name)}, CAST(NULL AS {sql_type(f.dataType)})" for f in kind.fields)
    return f"named_struct({', '.join(fields)})"


def alive(definition: TableDefinition) -> str:
    """The tombstone column's value on a live row that nobody assigns, as SQL: false, else null (S4)."""
    if definition.tombstone_form is TombstoneForm.BOOLEAN:
        return "false"
    field = definition.field(definition.tombstone_column)
    return null_of(field) if field.nullable else zero(field)


def dead(definition: TableDefinition) -> str:
    """The tombstone column's value on a deleted row, as SQL (S9)."""
    if definition.tombstone_form is TombstoneForm.BOOLEAN:
        return "true"
    field = definition.field(definition.tombstone_column)
    kind = physical_type(field)
    if definition.tombstone_form is TombstoneForm.STRING_VALUE:
        return text_literal(tombstone_value(definition))
    if kind.typeName() in ("date", "timestamp", "timestamp_ntz"):
        return f"CAST(now() AS {sql_type(kind)})"  # current_timestamp may be a reserved word
    if field.is_string:
        return text_literal(fitting("true", field))
    if isinstance(kind, NumericType):
        return f"CAST({int(not isinstance(kind, DecimalType) or kind.precision > kind.scale)} AS {sql_type(kind)})"
    return zero(field)
