"""The differences between SQL engines: quoting, types, file references."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar

import attrs

from trinitymerge.errors import UnsupportedStorageError
from trinitymerge.fs.base import escape_glob, split_scheme
from trinitymerge.spark import system_columns as C
from trinitymerge.spark.sql_text import Sql

NOTHING = Sql("(SELECT 1 AS one) AS nothing")
"""A relation with one row."""

_DECIMAL = re.compile(r"decimal\(\d+,\d+\)\Z")
_TEXT = re.compile(r"(char|varchar)\(\d+\)\Z")
_SHAPE = re.compile(r"(geometry|geography)\((?:OGC:CRS84|(?:EPSG|SRID):(\d+))(?:, SPHERICAL)?\)\Z")
_PLAIN_TEXT = re.compile(r"[\w .,:;/+-]*\Z", re.ASCII)
_NAME_PART = re.compile(r'(?:"((?:[^"]|"")+)"|([^".\s]+))(?:\.(?=.)|\Z)')


@attrs.frozen
class ScanGroup:
    """Batches that one scan reads: they count as one version, and their files hold columns under the same names.

    Attributes:
        directories: of the batches, as Spark paths.
        files: all data files in them, as Spark paths.
        columns: the names of the columns to read, as in the files.
        optional: names and types of the columns that files may lack; these are read as null.
    """

    ids: tuple[str, ...]
    directories: tuple[str, ...]
    files: tuple[str, ...]
    format: str
    columns: tuple[str, ...]
    optional: Mapping[str, Any]


class Dialect:
    """The SQL of one engine.

    Attributes:
        reads: the file formats that the engine can read.
        unites_files: one scan can read files with different columns.
        fills_fields: the engine reads a field that files lack within a column as null.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    reads: ClassVar[tuple[str, ...]] = ("parquet",)
    unites_files: ClassVar[bool] = False
    fills_fields: ClassVar[bool] = True
    mark: ClassVar[str] = '"'
    types: ClassVar[Mapping[str, str]]
    array: ClassVar[str]
    map: ClassVar[str] = "MAP({}, {})"
    struct: ClassVar[str]
    of_field: ClassVar[str] = "{} {}"

    def quoted(self, name: str) -> Sql:
        return Sql(self.mark + name.replace(self.mark, self.mark * 2) + self.mark)

    def text(self, value: str) -> Sql:
        return Sql("'" + value.replace("'", "''") + "'")

    def type_of(self, kind: Any) -> Sql | None:
        """Return the engine's name of a Spark type in its JSON form; None if the engine reads it wrongly."""
        if isinstance(kind, str):
            return self._atomic(kind)
        if kind["type"] == "struct":
            of = [(f["name"], self.type_of(f["type"])) for f in kind["fields"]]
            fields = ", ".join(self.of_field.format(self.quoted(name), t) for name, t in of)
            return None if any(t is None for _, t in of) else Sql(self.struct.format(fields))
        parts = [self.type_of(kind[p]) for p in ("elementType", "keyType", "valueType") if p in kind]
        form = self.array if kind["type"] == "array" else self.map
        return None if None in parts else Sql(form.format(*parts))

    def _atomic(self, kind: str) -> Sql | None:
        if _DECIMAL.match(kind):
            return Sql(kind.upper())
        found = self.types.get("string" if _TEXT.match(kind) else kind)
        return None if found is None else Sql(found)

    def cast(self, value: Sql, kind: Any) -> Sql:
        """Cast a value to a type for which :meth:`type_of` has a name."""
        return Sql(f"CAST({value} AS {self.type_of(kind)})")

    def refuse_name(self, name: str) -> str:
        """Return why the engine rejects a column name, as the rest of a sentence; empty if it accepts it."""
        return ""

    def place(self, path: str) -> str:
        """Return a Spark path as the engine reads it, with pattern characters escaped."""
        return path

    def select(self, items: Sql, rows: ScanGroup) -> Sql:
        """Return a query of a select list over the columns of the files of some batches."""
        raise NotImplementedError


_NAMES_OF_TYPES = {
    "boolean": "BOOLEAN",
    "byte": "TINYINT",
    "short": "SMALLINT",
    "integer": "INTEGER",
    "long": "BIGINT",
    "float": "REAL",
    "double": "DOUBLE",
    "string": "VARCHAR",
    "date": "DATE",
    "timestamp": "TIMESTAMP WITH TIME ZONE",
    "timestamp_ntz": "TIMESTAMP",
}


class _WithPathsAsText(Dialect):
    """Engines that read files by ``read_parquet``, which treats a path as a pattern."""

    option: ClassVar[str]

    def place(self, path: str) -> str:
        scheme, rest = split_scheme(path)
        if scheme in ("hdfs", "webhdfs", "swebhdfs", "viewfs"):
            raise UnsupportedStorageError(
                f"{self.title} does not read {path}: the scheme '{scheme}' is unknown. Call export() with a path that it reads.",
                path=path,
                dialect=self.name,
            )
        known = {None: "", "file": "", "s3a": "s3:"}.get(scheme, f"{scheme}:")
        return known + "".join(f"[{c}]" if c in "*?[" else c for c in rest)

    def select(self, items: Sql, rows: ScanGroup) -> Sql:
        files = ", ".join(self.text(self.place(f)) for f in rows.files)
        read = f"read_parquet([{files}], {self.option})"
        if not rows.optional:
            return Sql(f"SELECT {items} FROM {read} AS files")
        nulls = ", ".join(f"{self.cast(Sql('NULL'), kind)} AS {self.quoted(n)}" for n, kind in rows.optional.items())
        none = f"SELECT {nulls} FROM {NOTHING} WHERE false"
        return Sql(f"SELECT {items} FROM ({none} UNION ALL BY NAME SELECT * FROM {read}) AS files")


class DuckDB(_WithPathsAsText):
    name = "duckdb"
    title = "DuckDB"
    unites_files = True
    # Directories such as `_tm_batch=...` in a path are not columns.
    option = "union_by_name = true, hive_partitioning = false"
    types: ClassVar[Mapping[str, str]] = {**_NAMES_OF_TYPES, "binary": "BLOB"}
    array = "{}[]"
    struct = "STRUCT({})"

    def place(self, path: str) -> str:
        """Refuse a path with a backslash if it is a pattern: there a backslash would separate directories."""
        if "\\" in path and re.search(r"[*?\[]", path):
            raise UnsupportedStorageError(
                f"DuckDB does not read {path}: it treats the path as a pattern, and the backslash as a slash. Call export() with "
                "a path without these characters.",
                path=path,
                dialect=self.name,
            )
        return super().place(path)


class Polars(_WithPathsAsText):
    name = "polars"
    title = "Polars"
    option = "hive_partitioning => false"
    types: ClassVar[Mapping[str, str]] = {**_NAMES_OF_TYPES, "binary": "BYTEA"}
    array = "ARRAY<{}>"
    struct = "STRUCT<{}>"

    def refuse_name(self, name: str) -> str:
        is_pattern = name == "*" or (name.startswith("^") and name.endswith("$"))
        return "is called what Polars takes for a pattern of names, even quoted" if is_pattern else ""


class Spark(Dialect):
    """Spark without this library."""

    name = "spark"
    title = "Spark"
    reads = ("parquet", "orc")
    fills_fields = False
    mark = "`"
    types: ClassVar[Mapping[str, str]] = {
        **_NAMES_OF_TYPES,
        "string": "STRING",
        "binary": "BINARY",
        "timestamp": "TIMESTAMP_LTZ",
        "timestamp_ntz": "TIMESTAMP_NTZ",
    }
    array = "ARRAY<{}>"
    map = "MAP<{}, {}>"
    struct = "STRUCT<{}>"
    of_field = "{}: {}"

    def _atomic(self, kind: str) -> Sql | None:
        shape = _SHAPE.match(kind)
        if shape:  # in JSON by the name of its reference system, in SQL by the number
            return Sql(f"{shape[1].upper()}({shape[2] or 4326})")
        own = kind.upper() if kind == "variant" or kind.startswith("interval ") else None
        return super()._atomic(kind) or (None if own is None else Sql(own))

    def text(self, value: str) -> Sql:
        """Return a string literal for any escaping rules of the session."""
        return Sql(f"'{value}'" if _PLAIN_TEXT.match(value) else f"decode(X'{value.encode().hex()}', 'UTF-8')")

    def place(self, path: str) -> str:
        return escape_glob(path)

    def select(self, items: Sql, rows: ScanGroup) -> Sql:
        """In the inner query a name that files do not know means the column of that name outside: a null."""
        start = rows.directories[0].removesuffix(rows.ids[0])
        # Ids are made of letters, digits, _ and -.
        ids = rows.ids[0] if len(rows.ids) == 1 else f"{{{','.join(rows.ids)}}}"
        read = f"{rows.format}.{self.quoted(self.place(start) + ids)}"
        if not rows.optional:
            return Sql(f"SELECT {items} FROM {read} AS files")
        columns = ", ".join(map(self.quoted, rows.columns))
        # Nulls of no type: those of a map or variant must not be used from inside.
        nulls = ", ".join(f"NULL AS {self.quoted(name)}" for name in rows.optional)
        files = f"LATERAL (SELECT {columns} FROM {read}) AS files"
        return Sql(f"SELECT {items} FROM (SELECT files.* FROM (SELECT {nulls}) AS lacking, {files}) AS files")


@attrs.frozen
class Trino(Dialect):
    """Trino, over a Hive table (``files``) whose partitions are the batches, and which declares the columns."""

    name = "trino"
    title = "Trino"
    reads = ("parquet", "orc")
    unites_files = True
    types: ClassVar[Mapping[str, str]] = {
        **_NAMES_OF_TYPES,
        "binary": "VARBINARY",
        "timestamp": "TIMESTAMP(6)",
        "timestamp_ntz": "TIMESTAMP(6)",
    }
    array = "ARRAY({})"
    struct = "ROW({})"

    files: Sql

    @classmethod
    def over(cls, files: str | None) -> Trino:
        """Return the dialect over a table, whose name has one to three parts, each quoted or not.

        Example:
            >>> Trino.over('hive."my files".orders').files
            '"hive"."my files"."orders"'
        """
        found = list(_NAME_PART.finditer(files)) if isinstance(files, str) else []
        if not 1 <= len(found) <= 3 or "".join(m[0] for m in found) != files:
            raise ValueError(
                "Trino reads a table's files through a table of the Hive connector: give its name, as in "
                f"sqlFor('trino', files='hive.default.orders_files'), got {files!r}."
            )
        parts = [m[2] if m[1] is None else m[1].replace('""', '"') for m in found]
        return cls(Sql(".".join('"' + p.replace('"', '""') + '"' for p in parts)))

    def select(self, items: Sql, rows: ScanGroup) -> Sql:
        ids = ", ".join(self.text(i) for i in rows.ids)
        return Sql(f"SELECT {items} FROM {self.files} AS files WHERE {self.quoted(C.BATCH)} IN ({ids})")


ENGINES: Mapping[str, type[Dialect]] = {d.name: d for d in (DuckDB, Spark, Polars, Trino)}
