"""Structs with some of their fields replaced (S22), or with fields that a source lacks (S44).

Owns: the expressions. Which fields a merge changes, and whether the values fit, is judged in
:mod:`trinitymerge.merge.analysis.resolution`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType

from trinitymerge.assignment import widens, widens_exactly
from trinitymerge.expressions import NULL, case, cast, find_name, is_not_null, quote, sql_type, text_literal
from trinitymerge.sqltext import Sql
from trinitymerge.widening import Path


def with_field(struct: Column, kind: DataType, path: tuple[str, ...], value: Column, case_sensitive: bool) -> Column:
    """A struct with the field at a path replaced; structs on the way that are null become structs of nulls first."""
    assert isinstance(kind, StructType)
    name = find_name(path[0], kind.names, case_sensitive) or path[0]
    whole = F.coalesce(struct, F.expr(_null_struct(kind)))
    if len(path) > 1:
        value = with_field(whole.getField(name), kind[name].dataType, path[1:], value, case_sensitive)
    return whole.withField(quote(name), value)


def _null_struct(kind: StructType) -> str:
    fields = (f"{text_literal(f.name)}, CAST(NULL AS {sql_type(f.dataType)})" for f in kind.fields)
    return f"named_struct({', '.join(fields)})"


# Fields that a source lacks -------------------------------------------------------------------------------------------


def can_be_completed(kind: DataType, wanted: DataType, may_lack: Callable[[Path], bool], at: Path = ()) -> bool:
    """True if values of a type are those of another one but for fields of structs that they may lack.

    Args:
        kind: what there is.
        wanted: what is needed.
        may_lack: whether a field may be missing, by its path.
        at: where that is.
    """
    if isinstance(kind, StructType) and isinstance(wanted, StructType):
        theirs = {f.name.casefold(): f.dataType for f in kind.fields}
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


def missing(kind: DataType, wanted: DataType, at: Path = ()) -> Iterator[Path]:
    """The fields of structs in structs that a type lacks."""
    if not isinstance(kind, StructType) or not isinstance(wanted, StructType):
        return
    theirs = {f.name.casefold(): f.dataType for f in kind.fields}
    for field in wanted.fields:
        same = theirs.get(field.name.casefold())
        yield from [(*at, field.name)] if same is None else missing(same, field.dataType, (*at, field.name))


def completed(value: Sql, kind: DataType, wanted: DataType, other: Sql | None = None, depth: int = 0) -> Sql:
    """A value with the fields that it lacks; a null stays null.

    Args:
        value: as SQL.
        kind: its type.
        wanted: another, for which :func:`can_be_completed`.
        other: a value of that type, whose fields are taken for those that are missing; without it they are null.
        depth: how many arrays and maps this is in.
    """
    if kind == wanted:
        return value
    if isinstance(kind, StructType) and isinstance(wanted, StructType):
        theirs = {f.name.casefold(): f for f in kind.fields}
        fields = []
        for field in wanted.fields:
            same, kept = theirs.get(field.name.casefold()), None if other is None else _field(other, field.name)
            if same is None:
                inside = cast(NULL, field.dataType) if kept is None else kept
            else:
                inside = completed(_field(value, same.name), same.dataType, field.dataType, kept, depth)
            fields.append(f"{text_literal(field.name)}, {inside}")
        return cast(case([(is_not_null(value), Sql(f"named_struct({', '.join(fields)})"))]), wanted)
    each = Sql(f"`each{depth}`")
    if isinstance(kind, ArrayType) and isinstance(wanted, ArrayType):
        inside = completed(each, kind.elementType, wanted.elementType, None, depth + 1)
        return cast(Sql(f"transform({value}, {each} -> {inside})"), wanted)
    if isinstance(kind, MapType) and isinstance(wanted, MapType):
        inside = completed(each, kind.valueType, wanted.valueType, None, depth + 1)
        return cast(Sql(f"transform_values({value}, (`key{depth}`, {each}) -> {inside})"), wanted)
    return cast(value, wanted)


def part_of(wanted: DataType, kind: DataType) -> DataType:
    """A type with those fields of structs only that another type has, as it would be if that had been :func:`completed`."""
    if not isinstance(kind, StructType) or not isinstance(wanted, StructType):
        return wanted
    theirs = {f.name.casefold(): f.dataType for f in kind.fields}
    here = [(f, theirs[f.name.casefold()]) for f in wanted.fields if f.name.casefold() in theirs]
    return StructType([StructField(f.name, part_of(f.dataType, k)) for f, k in here])


def _field(struct: Sql, name: str) -> Sql:
    return Sql(f"{struct}.{quote(name)}")
