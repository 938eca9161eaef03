"""What a reader or writer of a table must understand, as a number (S7).

Owns: the protocols there are. Imports no Spark.
"""

from __future__ import annotations

from trinitymerge.definition import TableDefinition

PROTOCOL = 6
"""The newest reader and writer protocol this library understands."""

FIRST = 1
"""What tables need that use nothing newer."""


def protocol_of(definition: TableDefinition) -> int:
    """What a reader must understand.

    Since protocol 2, statistics of ``timestamp_ntz`` watermarks are text: a reader of protocol 1 would compare that letter by
    letter, and take an older row for the fresher one. Since protocol 3 there are archives: an older reader would take a row that
    was replaced for one that holds. Since protocol 4 files may hold a column under another name or type than it has (S43): an older
    reader would find nulls, or the values of another column. Since protocol 5 there are checks and defaults (S45, S46): an older
    writer would write rows that are refused, or nulls. Since protocol 6 files may hold a field of a struct under another name.
    """
    if any(f.within for f in definition.fields):
        return 6
    if definition.has_rules:
        return 5
    if definition.is_rearranged:
        return 4
    if definition.history:
        return 3
    return 2 if any(definition.field(n).type == "timestamp_ntz" for n in definition.watermarkKey) else FIRST
