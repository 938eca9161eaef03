"""Where the value of one column of a written row comes from: a closed union (S9, S10, S22, S23).

Owns: :data:`Value`. What a value is as SQL, on a path, is the compiler's business.
"""

from __future__ import annotations

from typing import TypeAlias

import attrs
from pyspark.sql import Column
from pyspark.sql.types import DataType

from trinitymerge.assignment import Storing


@attrs.frozen(eq=False)
class Given:
    """An expression over the joined sides, with its type and how it is stored (S29).

    Attributes:
        value: over the joined sides, text as the user wrote it (to be guarded by ``as_sql``) or a Column.
        alone: the same over the source alone; None if it reads the target.
        type: of the value.
        way: how it is stored.
        or_kept: where it is null, the target row's own value is kept; such a value is not told from the source alone.
    """

    value: str | Column
    alone: str | Column | None
    type: DataType
    way: Storing
    or_kept: bool = False

    @property
    def reads_target(self) -> bool:
        """True if the value depends on the target row."""
        return self.alone is None


@attrs.frozen
class Carried:
    """The target row's own value (S22)."""

    reads_target = True


@attrs.frozen
class Replaced:
    """The watermark of what the row replaces (S10.3)."""

    reads_target = True


@attrs.frozen
class Null:
    """Null; in a tombstone, the zero value of a column that cannot be null (S9)."""

    reads_target = False


@attrs.frozen
class Alive:
    """The tombstone column's value on a row that is not deleted."""

    reads_target = False


@attrs.frozen
class Dead:
    """The tombstone column's value on a deleted row (S9)."""

    reads_target = False


Value: TypeAlias = Given | Carried | Replaced | Null | Alive | Dead
