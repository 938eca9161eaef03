"""What tests of feeds share: tables for captured streams, and the database's rows at their end."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

from tables import new_table

from trinitymerge import TrinityTable

NOTES = (
    "id BIGINT, lang STRING, state STRING, title STRING, body STRING, tags ARRAY<STRING>, price DECIMAL(12,4), ratio DOUBLE, "
    "seen TIMESTAMP, day DATE, at_time BIGINT, raw BINARY, doc STRING, uid STRING, flag BOOLEAN, changed TIMESTAMP_NTZ"
)
TABLES = {
    "notes": (NOTES, ["id", "lang"]),
    "notes_full": (NOTES, ["id", "lang"]),
    "accounts": ("aid INT, bid INT, abalance BIGINT, filler STRING", ["aid"]),
    "basket": ("bid INT, line INT, sku STRING, pieces INT", ["bid", "line"]),
    "tellers": ("tid INT, bid INT, tbalance BIGINT", ["tid"]),
    "branches": ("bid INT, bbalance BIGINT, filler STRING", ["bid"]),
}


def table_of(spark, directory: Path, columns: str, key: str | list[str] = "id", **more: Any) -> TrinityTable:
    return new_table(
        spark, directory, f"{columns}, _seq STRING", primaryKey=key, watermarkKey="_seq", tombstoneKey=None, **more
    )


def rows_of(table: TrinityTable) -> list[tuple[Any, ...]]:
    return sorted(tuple(row) for row in table.toDF().drop("_seq").collect())


READ = {
    "int": int,
    "bigint": int,
    "double": float,
    "decimal(12,4)": Decimal,
    "boolean": lambda v: v == "t",
    "date": date.fromisoformat,
    "timestamp_ntz": datetime.fromisoformat,
    "timestamp": lambda v: (
        datetime.fromisoformat(v + ":00" if v[-3] in "+-" else v).astimezone(timezone.utc).replace(tzinfo=None)
    ),
    "binary": lambda v: bytearray.fromhex(v.removeprefix("\\x")),
    "array<string>": lambda v: (
        [
            None if x == "NULL" else x
            for x in next(
                csv.reader(
                    [v[1:-1].replace('\\"', '""')],
                ),
                [],
            )
        ]
        if v != "{}"
        else []
    ),
}
"""From the database's text to values."""


def of_database(path: Path, table: TrinityTable, nulls: Mapping[str, str]) -> list[tuple[Any, ...]]:
    """The database's rows at the end of a captured stream, from a CSV file.

    Args:
        path: of the file.
        table: has the columns and types.
        nulls: by column, a text that the stream writes as null.
    """
    kinds = {f.name: f.dataType.simpleString() for f in table.toDF().schema.fields if f.name != "_seq"}

    def value(column: str, v: str) -> Any:
        if v in (r"\N", nulls.get(column)):
            return None
        if column == "at_time" and kinds[column] == "bigint":
            moment = datetime.strptime(v, "%H:%M:%S.%f" if "." in v else "%H:%M:%S")
            return (moment.hour * 3600 + moment.minute * 60 + moment.second) * 1_000_000 + moment.microsecond
        return READ.get(kinds[column], str)(v)

    with path.open(newline="") as lines:
        return [tuple(value(c, row[c]) for c in kinds) for row in csv.DictReader(lines)]
