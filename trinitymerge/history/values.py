"""Stored rows as structs, in SQL: their fields, their watermark, and what makes two values equal (S3, S41).

Owns: these expressions. Knows nothing of versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from trinitymerge.definition import TableDefinition
from trinitymerge.errors import InvalidDefinitionError
from trinitymerge.expressions import case, is_not_null, quote
from trinitymerge.sqltext import Sql


def require_free(definition: TableDefinition, added: Sequence[str], call: str) -> None:
    """Checks that no column of a table is called as one that a call adds.

    Raises:
        InvalidDefinitionError: naming the first that is.
    """
    taken = [n for n in definition.names if n.lower() in added]
    if taken:
        raise InvalidDefinitionError(
            f"The table has a column '{taken[0]}', and {call} adds one of that name (it adds {', '.join(added)}). Call the "
            "table's column something else.",
            column=taken[0],
        )


def field_of(row: Sql, name: str) -> Sql:
    """A field of a struct."""
    return Sql(f"{row}.{quote(name)}")


def whole_number(value: int | None) -> Sql:
    """A number as a ``BIGINT``, or null."""
    return Sql("CAST(NULL AS BIGINT)" if value is None else f"{value}L")


def meaning(meanings: Mapping[int, int | None], value: Sql) -> Sql:
    """What a number stands for, as SQL; null if nothing."""
    pairs = ", ".join(f"{whole_number(k)}, {whole_number(v)}" for k, v in meanings.items())
    return Sql(f"try_element_at(map({pairs}), {value})") if pairs else whole_number(None)


def moment(milliseconds: Sql) -> Sql:
    """A time of the log as a timestamp."""
    return Sql(f"timestamp_millis({milliseconds})")


def watermark(definition: TableDefinition, row: Sql | None = None) -> Sql:
    """The declared watermark of a row: the column itself, or a struct of several; a null number if none is declared.

    Args:
        definition: of the table.
        row: a struct of its columns, as SQL; None where they are columns themselves.
    """
    names = definition.watermarkKey
    values = [quote(n) if row is None else field_of(row, n) for n in names]
    if len(names) < 2:
        return values[0] if names else whole_number(None)
    struct = Sql(f"struct({', '.join(f'{v} AS {quote(n)}' for n, v in zip(names, values, strict=True))})")
    return struct if row is None else case([(is_not_null(row), struct)])


def equatable(value: Sql, kind: DataType, depth: int = 0) -> Sql:
    """The value as something Spark can compare, and that is equal where it is: maps by their entries, variants by their text."""
    if _is_plain(kind):
        return value
    each = Sql(f"x{depth}")
    if isinstance(kind, StructType):
        fields = (f"{equatable(field_of(value, f.name), f.dataType, depth)} AS {quote(f.name)}" for f in kind.fields)
        return case([(is_not_null(value), Sql(f"struct({', '.join(fields)})"))])
    if isinstance(kind, ArrayType):
        return Sql(f"transform({value}, {each} -> {equatable(each, kind.elementType, depth + 1)})")
    if isinstance(kind, MapType):
        value_of = equatable(field_of(each, "value"), kind.valueType, depth + 1)
        entry = f"named_struct('k', {field_of(each, 'key')}, 'v', {value_of})"
        return Sql(f"array_sort(transform(map_entries({value}), {each} -> {entry}))")
    return Sql(f"to_json(named_struct('v', {value}))")


def _is_plain(kind: DataType) -> bool:
    if isinstance(kind, StructType):
        return all(_is_plain(f.dataType) for f in kind.fields)
    if isinstance(kind, ArrayType):
        return _is_plain(kind.elementType)
    return not isinstance(kind, MapType) and kind.typeName() != "variant"
