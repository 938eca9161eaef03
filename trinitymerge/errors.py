"""The errors of trinitymerge, and helpers for their messages.

Each error also inherits the nearest builtin exception, such as ``FileNotFoundError``.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any


class TrinityMergeError(Exception):
    """Base of all errors of trinitymerge.

    Args:
        message: for the user.
        **facts: the facts in the message; they become attributes (``error.keys``, ``error.version``, ...).
    """

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts: dict[str, Any] = {}
        self.add_facts(**facts)

    def add_facts(self, **facts: Any) -> None:
        """Add facts as attributes."""
        self.facts.update(facts)
        vars(self).update(facts)

    def __str__(self) -> str:
        # KeyError would print the repr of the message.
        return str(self.args[0])


@contextmanager
def add_missing_facts(**facts: Any) -> Iterator[None]:
    """Add facts to errors that do not have them."""
    try:
        yield
    except TrinityMergeError as error:
        error.add_facts(**{name: value for name, value in facts.items() if name not in error.facts})
        raise


class Advice(str):
    """A remedy as calls of the chain, with the same remedy in SQL; errors carry it as the fact ``advice``.

    Attributes:
        sql: the remedy in SQL.

    Example:
        >>> advice = Advice("table.alias('A') renames it.", sql="AS A renames it.")
        >>> advice, advice.sql
        ("table.alias('A') renames it.", 'AS A renames it.')
    """

    sql: str

    def __new__(cls, calls: str, *, sql: str) -> Advice:
        advice = super().__new__(cls, calls)
        advice.sql = sql
        return advice


class InvalidDefinitionError(TrinityMergeError, ValueError):
    """The keys, schema or properties of a table are invalid together (S1-S5, S7)."""


class InvalidMergeError(TrinityMergeError, ValueError):
    """A merge is invalid: its clause order, names, conditions, or values that cannot be computed (S21-S23, S28-S30)."""


class SqlError(InvalidMergeError):
    """A SQL statement cannot be parsed or is not supported; has ``line`` and ``column``, counted from 1."""


class SchemaMismatchError(TrinityMergeError, TypeError):
    """A value does not fit its column, by type or when the merge ran (S29, S34)."""


class ConstraintError(TrinityMergeError, ValueError):
    """Rows violate a ``CHECK`` or a new ``NOT NULL`` constraint (S45)."""


class NullKeyError(TrinityMergeError, ValueError):
    """A row to be written has a null in a primary-key column (S2, S34)."""


class DuplicateKeyError(TrinityMergeError, ValueError):
    """An insert or move has a key that is live and that the merge does not free (S25)."""


class AmbiguousMergeError(TrinityMergeError, ValueError):
    """A batch has two different rows with equal key and watermark (S12)."""


class RejectedRowsError(TrinityMergeError, ValueError):
    """Messages of a feed cannot be read or applied; has ``reasons`` and ``positions`` (F3)."""


class StaleRowsError(TrinityMergeError, ValueError):
    """Rows are older than the rows that they would replace, with ``onStale("error")`` (S11)."""


class TooManyDeletesError(TrinityMergeError, ValueError):
    """A merge would delete more rows than ``maxDeleteFraction`` allows (S37)."""


class ConcurrentCommitError(TrinityMergeError, RuntimeError):
    """Another writer committed a conflicting change (S35)."""


class FilesVacuumedError(TrinityMergeError, RuntimeError):
    """A vacuum with a short retention has removed files that a call read or was about to commit (S39)."""

    @classmethod
    def of(cls, table: str, directory: str) -> FilesVacuumedError:
        return cls(
            f"A vacuum() of {table} has removed files that this call read or was about to commit ({directory}): its retention is "
            "shorter than the call took. Run the call again, and vacuum with a longer retentionHours. Nothing was committed.",
            path=directory,
        )


class TableNotFoundError(TrinityMergeError, FileNotFoundError):
    """No trinitymerge table, or no such version, exists at the path."""


class TableExistsError(TrinityMergeError, FileExistsError):
    """The path already holds a table, or something else."""


class ReadOnlyTableError(TrinityMergeError, PermissionError):
    """A write to an external table or to a past version (S16)."""


class CorruptTableError(TrinityMergeError, OSError):
    """A file of the table is missing, cut short or foreign; the message names the file."""


class PendingHistoryInsertsError(TrinityMergeError, RuntimeError):
    """Pending history inserts cannot be written to their table; until then, writes to this table fail (S27)."""


class StorageError(TrinityMergeError, OSError):
    """A file cannot be read or written: a full disk, a missing permission, a missing or corrupt file (S34)."""


class JobFailedError(TrinityMergeError, RuntimeError):
    """A Spark job failed or was cancelled: too little memory or lost executors (S34). The call is valid."""


class UnsupportedStorageError(TrinityMergeError, NotImplementedError):
    """The storage lacks a guarantee that the table needs, or does not support a call; the message names a remedy (S33)."""


class MissingPackageError(TrinityMergeError, ImportError):
    """A call needs a package that is not installed; the message names the extra."""


def invalid_column(name: str, text: str) -> InvalidDefinitionError:
    """Return an error about a column: ``text`` follows its name."""
    return InvalidDefinitionError(f"Column '{name}' {text}", column=name)


def counted(count: int, noun: str = "row", plural: str = "") -> str:
    """Return a count in words.

    Example:
        >>> counted(1), counted(2500), counted(0, "batch", "batches")
        ('1 row', '2,500 rows', '0 batches')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def in_columns(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return rows of text, aligned in columns.

    Example:
        >>> print(in_columns(("column", "type"), [("amount", "int"), ("at", "date")]))
          column  type
          amount  int
          at      date
    """
    lines = [tuple(head), *map(tuple, rows)]
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    padded = ("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)) for line in lines)
    return "\n".join(f"  {line}".rstrip() for line in padded)


def sized(size_bytes: int) -> str:
    """Return a number of bytes in words.

    Example:
        >>> sized(999), sized(12_400_000), sized(3_000_000_000_000)
        ('999 bytes', '12.4 MB', '3.0 TB')
    """
    size = float(size_bytes)
    for unit in ("bytes", "KB", "MB", "GB"):
        if size < 1000:
            return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
        size /= 1000
    return f"{size:,.1f} TB"


def kind_of(value: Any) -> str:
    """Return the type of a value with its package, because several libraries have a ``DataFrame``.

    Example:
        >>> kind_of(1), kind_of(difflib.SequenceMatcher())
        ('int', 'difflib.SequenceMatcher')
    """
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__.split('.')[0]}.{kind.__name__}"


def is_foreign_frame(value: Any) -> bool:
    """Return True if the value is a table of another library, which Python iterates over by column names."""
    module, name = type(value).__module__, type(value).__name__
    package = module.split(".")[0]
    return (
        (package in ("pandas", "polars") and name.endswith("Frame"))
        or package == "pyarrow"
        or module.startswith("pyspark.pandas.")
    )


def how_to_convert(value: Any) -> str:
    """Return a sentence, after a blank, on how to convert a value to a Spark DataFrame; empty if unknown."""
    if is_foreign_frame(value):
        package = type(value).__module__.split(".")[0]
        if package == "pyspark":
            return " Convert it first: df.to_spark()."
        lazy = "collect()." if type(value).__name__ == "LazyFrame" else ""
        return f" Convert it first: spark.createDataFrame({'df' if package == 'pandas' else f'df.{lazy}to_pandas()'})."
    if isinstance(value, str):
        return " Read it first: spark.table(name) or spark.read.parquet(path)."
    return (
        " Make one of the rows first: spark.createDataFrame(rows, schema)." if isinstance(value, (list, tuple)) else ""
    )


def missing(names: Sequence[str], where: str, there: Iterable[str]) -> str:
    """Return a sentence with the missing and the known columns.

    Example:
        >>> missing(["value"], "the source", ["key", "val"])
        "Column 'value' is missing in the source; it has 'key', 'val'."
        >>> missing(["a", "b"], "the source", [])
        "Columns 'a', 'b' are missing in the source; it has none."
    """
    lacking, known = ", ".join(f"'{n}'" for n in names), list(there)
    has = ", ".join(f"'{n}'" for n in known[:20]) + (", ..." if len(known) > 20 else "")
    what = f"Column {lacking} is" if len(names) == 1 else f"Columns {lacking} are"
    return f"{what} missing in {where}; it has {has or 'none'}."


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return a sentence, after a blank, with the closest known name and the list of all.

    Example:
        >>> did_you_mean("amuont", ["id", "amount"])
        " Did you mean 'amount'? Known: id, amount."
    """
    known = list(known)
    listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    return f"{closest(name, known)} Known: {listed}." if known else ""


def closest(name: str, known: Iterable[str]) -> str:
    """Return a sentence, after a blank, with the closest known name.

    Example:
        >>> closest("amuont", ["id", "amount"]), closest("x", ["id"])
        (" Did you mean 'amount'?", '')
    """
    known = list(known)
    close = difflib.get_close_matches(name.lower(), [k.lower() for k in known], n=1)
    return next((f" Did you mean '{k}'?" for k in known if close and k.lower() == close[0]), "")
