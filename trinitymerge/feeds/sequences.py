"""The sequence of a feed's events: their position in the source's log, as one text that sorts."""

from __future__ import annotations

from collections.abc import Iterable

from trinitymerge.spark import expressions as E
from trinitymerge.spark.sql_text import Sql

ZERO = E.text_literal("0" * 16)


def number_part(value: Sql) -> Sql:
    """Return a part of a sequence: 16 hexadecimal digits of a number that is not negative, else null."""
    not_negative = f"try_cast(translate({value}, '-', '?') AS BIGINT)"
    return Sql(f"lpad(lower(hex({not_negative})), 16, '0')")


def number_or_zero(value: Sql) -> Sql:
    """Return the same, and zero for null; null for what is not a number."""
    return number_part(E.or_else(value, Sql("'0'")))


def lsn_part(value: Sql) -> Sql:
    """Return a part of a sequence: PostgreSQL's position `0/19A1F40`."""
    high, low = (Sql(f"substring_index({value}, '/', {side})") for side in (1, -1))
    padded = Sql(f"concat(lpad(lower({high}), 8, '0'), lpad(lower({low}), 8, '0'))")
    return Sql(f"CASE WHEN {value} RLIKE '^[0-9A-Fa-f]{{1,8}}/[0-9A-Fa-f]{{1,8}}$' THEN {padded} END")


SEQUENCE = "_seq"
"""The field with the sequence of a rejected event, in the message that a quarantine keeps of it alone."""


def stated_sequence(value: Sql) -> Sql:
    """Return the value of the field :data:`SEQUENCE` if it is a sequence, else null."""
    return Sql(f"CASE WHEN {value} RLIKE '^[0-9]{{4}}(/[0-9a-f]{{16}})+$' THEN {value} END")


def sequence_of(epoch: int, parts: Iterable[Sql]) -> Sql:
    """Return `epoch/part/part`; null if a part is.

    Example:
        >>> sequence_of(1, [Sql("a"), Sql("b")])
        "concat('0001', '/', a, '/', b)"
    """
    joined = "".join(f", '/', {part}" for part in parts)
    return Sql(f"concat({E.text_literal(f'{epoch:04}')}{joined})")
