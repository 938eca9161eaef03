"""How rows are joined by key where one side is all of a table: as cheaply as each of its rows allows (S13).

Owns: the conditions of such joins. Spark looks a single long value up two to three times as fast as text or several columns, so
keys meet by their hash, and are compared where hashes are equal. No key is a floating-point number (S2): equal keys have equal
bytes, and so equal hashes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from pyspark.sql.types import DataType, IntegralType

from trinitymerge.expressions import all_of, equals
from trinitymerge.sqltext import Sql


def same_key(keys: Sequence[Sql], others: Sequence[Sql], kinds: Sequence[DataType]) -> Sql:
    """True if two keys are equal, as SQL.

    Args:
        keys: the columns of one.
        others: those of the other, in the same order and of the same types.
        kinds: their types.
    """
    if not _by_hash(kinds):
        return all_of(map(equals, keys, others))
    # Of an equality Spark would make one more column to look up by.
    return all_of(
        [_same_hash(keys, others), *(Sql(f"{k} >= {o} AND {k} <= {o}") for k, o in zip(keys, others, strict=True))]
    )


def may_be_same_key(keys: Sequence[Sql], others: Sequence[Sql], kinds: Sequence[DataType]) -> Sql:
    """True if two keys are equal; in very rare cases also if they are not. As :func:`same_key`, for who compares them again."""
    return _same_hash(keys, others) if _by_hash(kinds) else all_of(map(equals, keys, others))


def _by_hash(kinds: Sequence[DataType]) -> bool:
    return len(kinds) > 1 or not isinstance(kinds[0], IntegralType)


def _same_hash(keys: Iterable[Sql], others: Iterable[Sql]) -> Sql:
    return Sql(f"xxhash64({', '.join(keys)}) = xxhash64({', '.join(others)})")
