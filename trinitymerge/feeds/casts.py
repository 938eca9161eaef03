"""Source values as the table stores them."""

from __future__ import annotations

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType

from trinitymerge.errors import SchemaMismatchError
from trinitymerge.merge.analysis.analyze import can_be_completed, completed, missing_fields
from trinitymerge.merge.execute.validate import MISFIT
from trinitymerge.schema.field import Field
from trinitymerge.schema.types import Path
from trinitymerge.spark import expressions as E
from trinitymerge.spark.casts import CastPolicy, cast_policy, cast_to_column, key_policy
from trinitymerge.spark.sql_text import Sql


def lacks_fields(kind: DataType, field: Field, follows: bool) -> bool:
    """Return True if a type fits a column but for optional struct fields (S22): all if it ``follows`` (S44), or later ones."""
    grown = {tuple(name.casefold() for name in path) for path in field.added_fields}
    if not (grown or follows) or cast_policy(kind, field) is not CastPolicy.REFUSED:
        return False
    wanted = E.physical_type(field)
    return can_be_completed(kind, wanted, lambda path: follows or tuple(n.casefold() for n in path) in grown)


def lacking_fields(kind: DataType, field: Field, follows: bool) -> tuple[Path, ...]:
    """Return the optional struct fields that a type lacks (:func:`lacks_fields`), except in arrays and maps."""
    return tuple(missing_fields(kind, E.physical_type(field))) if lacks_fields(kind, field, follows) else ()


def may_misfit(source: DataFrame, column: str, field: Field, is_key: bool, follows: bool = False) -> bool:
    """Return True if a source column may have a value that does not fit: :func:`cast_to_stored` makes it null, or fails."""
    kind = source.schema[column].dataType
    way = key_policy(kind, field) if is_key else cast_policy(kind, field)
    return way.may_fail and not lacks_fields(kind, field, follows)


def cast_to_stored(
    source: DataFrame,
    column: str,
    field: Field,
    call: str,
    is_key: bool = False,
    fails: bool = True,
    follows: bool = False,
    value: Sql | None = None,
) -> Sql:
    """Cast a source column to the table's type. Optional struct fields that it lacks (:func:`lacks_fields`) are null.

    A value that does not fit is an error if ``fails`` is true; otherwise it is null, and the merge reports it. ``value`` is where
    the column is now, by default under its name.
    """
    kind, value = source.schema[column].dataType, E.quote(column) if value is None else value
    way = key_policy(kind, field) if is_key else cast_policy(kind, field)
    if lacks_fields(kind, field, follows):
        return completed(value, kind, E.physical_type(field))
    if way is CastPolicy.REFUSED:
        raise SchemaMismatchError(
            f"{call}: column '{field.name}' is {field.text}, and a value of type {kind.simpleString()} cannot be stored in it. "
            "Cast it explicitly.",
            column=field.name,
        )
    fits = cast_to_column(value, way, field, is_key, kind)
    if not way.may_fail or not fails:
        return fits
    told = E.text_literal(f"{MISFIT} '{field.name}' ({field.text}): ")
    wrong = Sql(f"raise_error(concat({told}, substring(CAST({value} AS STRING), 1, 200)))")
    return E.case([(E.all_of([E.is_not_null(value), E.is_null(fits)]), wrong)], fits)
