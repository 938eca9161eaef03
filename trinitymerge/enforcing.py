"""Constraints as SQL over rows that are written, or are there (S45).

Owns: :func:`violation`. What is said of rows that break one is the business of whoever finds them.
"""

from __future__ import annotations

from trinitymerge.constraints import Check
from trinitymerge.definition import TableDefinition
from trinitymerge.expressions import FALSE, case, is_tombstone, not_
from trinitymerge.sqltext import Sql, as_sql


def violation(definition: TableDefinition, check: Check, is_never_dead: bool = False) -> Sql:
    """SQL that is true of a row that breaks a check; tombstones break none.

    Args:
        definition: of the table.
        check: one of its checks.
        is_never_dead: the rows have no tombstone column, and are none.

    Example:
        >>> from trinitymerge.definition import Field
        >>> definition = TableDefinition.of([Field("id", "long")], primaryKey="id")
        >>> violation(definition, Check("small", "id < 9", ["id"]))
        'CASE WHEN NOT (coalesce(`_tm_deleted`, false)) THEN NOT ((id < 9)) END'
    """
    dead = FALSE if is_never_dead else is_tombstone(definition)
    return case([(not_(dead), not_(as_sql(check.condition)))])
