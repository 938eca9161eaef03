"""How the columns of a table stand in its files, and how to get from the one to the other (S43).

Owns: the names and types that files have, which differ from the declared ones where a column was renamed or its type became
wider. Of such a column a file has one form: its values are in the first form that is there. Knows nothing of batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from trinitymerge.definition import Field
from trinitymerge.expressions import cast, physical_schema, physical_type, quote


def in_files(fields: Iterable[Field], oldest: int) -> StructType:
    """The columns to read from files.

    Args:
        fields: what is wanted.
        oldest: the smallest layout of these files.
    """
    forms = (form for field in fields for form in _forms(field, oldest))
    return physical_schema(forms)


def as_declared(rows: DataFrame, fields: Sequence[Field], oldest: int, *more: str) -> DataFrame:
    """Rows of files with the columns of a table.

    Args:
        rows: read with :func:`in_files`.
        fields: what to make of them.
        oldest: as given there.
        *more: SQL of columns beside them, over the rows.
    """
    columns = [_declared(field, oldest) for field in fields]
    is_same = not more and rows.columns == [f.name for f in fields] == [f.stored_as for f in fields]
    return rows if is_same and not any(f.earlier for f in fields) else rows.selectExpr(*columns, *more)


def as_stored(rows: DataFrame, fields: Iterable[Field]) -> DataFrame:
    """Rows of a table with the names that files have; columns that are not of the table stay as they are."""
    names = {f.name: f.stored_as for f in fields}
    if all(name == stored for name, stored in names.items()):
        return rows
    return rows.selectExpr(*[_renamed(n, names.get(n, n)) for n in rows.columns])


def _forms(field: Field, oldest: int) -> list[Field]:
    """The columns that files may hold a column as, the newest first."""
    earlier = [Field(e.name, e.type) for e in reversed(field.earlier) if e.until > oldest]
    return [Field(field.stored_as, field.type, metadata=field.metadata), *earlier]


def _declared(field: Field, oldest: int) -> str:
    newest, *earlier = _forms(field, oldest)
    if not earlier:
        return _renamed(newest.name, field.name)
    wider = physical_type(field)
    forms = ", ".join([quote(newest.name), *(cast(quote(e.name), wider) for e in earlier)])
    return f"coalesce({forms}) AS {quote(field.name)}"


def _renamed(found: str, wanted: str) -> str:
    return quote(wanted) if found == wanted else f"{quote(found)} AS {quote(wanted)}"
