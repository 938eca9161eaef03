"""What Spark's own catalog is asked and told about a table of Parquet or ORC files (S16).

Owns: which of its tables can be merged into, where their rows are, and partitions, as Spark's SQL. What a table of this library
makes of it stands in ``plain.py``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from urllib.parse import unquote

import attrs
from pyspark.sql import DataFrame

from trinitymerge.errors import UnsupportedStorageError
from trinitymerge.expressions import quote, text_literal
from trinitymerge.storage.catalogs import SPARKS_OWN, CatalogTable, literal
from trinitymerge.storage.filesystem import FileSystem, filesystem_for
from trinitymerge.storage.formats import table_of

FORMATS = ("parquet", "orc")

_NULL = "__HIVE_DEFAULT_PARTITION__"
"""What Spark calls the directory of rows with a null in the partition's column."""

_AT_ONCE = 100
"""Partitions that one statement adds."""


@attrs.frozen
class Facts:
    """What the catalog says of a table.

    Attributes:
        file_format: of its files.
        files: the storage they are on.
        path: their directory.
        partitions: the columns that it is partitioned by.
        lists_partitions: the catalog knows the partitions; of other tables Spark finds them by their directories.
    """

    file_format: str
    files: FileSystem
    path: str
    partitions: tuple[str, ...]
    lists_partitions: bool


class PlainTable(CatalogTable):
    """A table of Spark's own catalog."""

    def facts(self) -> Facts:
        """What the catalog says of a table that there is.

        Raises:
            UnsupportedStorageError: merges into such a table are not possible.
        """
        told = self.described()
        why = why_not(self.parts, told)
        if why:
            path = ".".join(self.parts)
            raise UnsupportedStorageError(
                f"{path} cannot be merged into: {why}", path=path, format=told.get("Provider")
            )
        columns = [r["col_name"] for r in self.sql(f"DESCRIBE TABLE {self.name}").collect()]
        start = columns.index("# col_name") + 1 if "# col_name" in columns else len(columns)
        files = filesystem_for(self.spark, told["Location"])
        places = [files.qualify(p) for p in _places(told["Location"])]
        path = next(filter(files.exists, places), places[0])
        partitions, lists = tuple(n for n in columns[start:] if n), told.get("Partition Provider") == "Catalog"
        return Facts(told["Provider"].lower(), files, path, partitions, lists)

    def rows(self) -> DataFrame:
        """All rows, whoever has written them; what others have put there until now included."""
        self.refresh()
        return table_of(self.spark, self.name)

    def add_partitions(self, facts: Facts, directories: Iterable[str]) -> None:
        """Makes partitions known to the catalog; those it knows already are no error.

        Args:
            facts: of the table.
            directories: of the partitions, such as ``day=2024-01-01/shop=a%2Fb``.

        Raises:
            UnsupportedStorageError: the rows of a partition are elsewhere than in its directory.
        """
        found = {d: _spec(_values(d)) for d in directories}
        if not facts.lists_partitions or not found:
            return
        listed = self.sql(f"SHOW PARTITIONS {self.name}")
        wanted = ", ".join(map(text_literal, found))
        known = {r[0] for r in listed.filter(f"{quote(listed.columns[0])} IN ({wanted})").collect()}
        for directory in known:
            self._require_at_home(facts, directory, found[directory])
        new = [spec for directory, spec in found.items() if directory not in known]
        for start in range(0, len(new), _AT_ONCE):  # a catalog in memory would forget where one is that it has already
            self.sql(f"ALTER TABLE {self.name} ADD IF NOT EXISTS {' '.join(new[start : start + _AT_ONCE])}")

    def _require_at_home(self, facts: Facts, directory: str, spec: str) -> None:
        rows = self.sql(f"DESCRIBE TABLE EXTENDED {self.name} {spec}").collect()
        told = next(r["data_type"] for r in rows if r["col_name"] == "Location")
        if f"{facts.path}/{directory}" not in map(facts.files.qualify, _places(told)):
            raise UnsupportedStorageError(
                f"The partition {directory} of {'.'.join(self.parts)} is kept at {told}, not in the table's own directory, "
                "which is where merges write. Nothing was committed. Move it there with ALTER TABLE ... SET LOCATION.",
                path=told,
            )


def why_not(parts: Sequence[str], told: dict[str, str]) -> str:
    """Why a table cannot be merged into, and what to do; an empty string if it can."""
    kind, provider = told.get("Type", ""), told.get("Provider", "unknown").lower()
    if kind == "VIEW" or "View Text" in told:
        return "it is a view. Name the table that it reads."
    if provider == "hive":
        return (
            "it is a table of Hive's serde, whose files Spark treats otherwise. Make one with USING parquet or USING orc of it, or "
            "a managed table with TrinityTable.convert."
        )
    if parts[0] != SPARKS_OWN or provider not in FORMATS:
        return (
            f"it is a table of the format '{provider}' in the catalog {parts[0]}. Of tables in catalogs, those of Iceberg can be, "
            f"and those of Parquet and ORC files in {SPARKS_OWN}. Read this one with TrinityTable.external, or make a managed "
            "table of it with TrinityTable.convert."
        )
    if told.get("Num Buckets", "0") not in ("0", "-1"):
        return (
            f"it is bucketed by {told.get('Bucket Columns', 'some columns')}, and what merges write is not. Copy it to a table "
            "without CLUSTERED BY."
        )
    return ""


def _places(told: str) -> list[str]:
    """A location as it is told, and as it may be meant: Spark 3.5 tells it encoded."""
    return [told, unquote(told)]


def _values(directory: str) -> dict[str, str]:
    """The values of a partition by the name of its directory, where Spark has escaped special characters."""
    pairs = (part.partition("=") for part in directory.split("/"))
    return {unquote(name): value if value == _NULL else unquote(value) for name, _, value in pairs}


def _spec(values: dict[str, str]) -> str:
    told = (f"{quote(name)} = {'null' if value == _NULL else literal(value)}" for name, value in values.items())
    return f"PARTITION ({', '.join(told)})"
