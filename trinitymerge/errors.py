"""Every error a user of trinitymerge can see.

Owns: the exception classes and the wording helpers they share. Knows nothing of Spark or of tables. A message says what
was wrong, where, a few offending values, and what to do about it; the same facts are attributes of the exception.
Each leaf also inherits the nearest builtin, so that ``except FileNotFoundError`` works where a user would expect it to.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from typing import Any


class TrinityMergeError(Exception):
    """Base of all errors raised by trinitymerge.

    Args:
        message: the sentence(s) a user reads.
        **facts: the same facts as data; they become attributes (``error.keys``, ``error.version``, ...).
    """

    def __init__(self, message: str, **facts: Any) -> None:
        super().__init__(message)
        self.facts = facts
        for name, value in facts.items():
            setattr(self, name, value)

    def __str__(self) -> str:
        # KeyError and friends would print the repr of the message.
        return str(self.args[0])


class InvalidDefinitionError(TrinityMergeError, ValueError):
    """The keys, schema or properties of a table cannot work together (S1-S5, S7)."""


class InvalidMergeError(TrinityMergeError, ValueError):
    """A merge that means nothing: clause order, names, conditions, or values that cannot be computed (S21-S23, S28-S30)."""


class SqlError(InvalidMergeError):
    """A SQL statement that cannot be read, or asks for what tables cannot do; has ``line`` and ``column``, counted from 1."""


class SchemaMismatchError(TrinityMergeError, TypeError):
    """A value does not fit its column, by type or when the merge ran (S29, S34)."""


class ConstraintError(TrinityMergeError, ValueError):
    """Rows break a constraint of the table: a ``CHECK``, or ``NOT NULL`` where it is to be set (S45)."""


class NullKeyError(TrinityMergeError, ValueError):
    """A row to be written has a null in a primary-key column (S2, S34)."""


class DuplicateKeyError(TrinityMergeError, ValueError):
    """A row would be written under a key that is live and that the merge does not free (S25)."""


class AmbiguousMergeError(TrinityMergeError, ValueError):
    """Two different rows for one key with equal watermarks in one batch (S12)."""


class StaleRowsError(TrinityMergeError, ValueError):
    """Rows older than what they would replace, under ``onStale("error")`` (S11)."""


class TooManyDeletesError(TrinityMergeError, ValueError):
    """A merge would delete more than ``maxDeleteFraction`` allows (S37)."""


class ConcurrentCommitError(TrinityMergeError, RuntimeError):
    """Another writer committed what this one depended on (S35)."""


class FilesVacuumedError(TrinityMergeError, RuntimeError):
    """A vacuum whose retention is shorter than a call took has removed files that it read, or was about to commit (S39)."""

    @classmethod
    def of(cls, table: str, directory: str) -> FilesVacuumedError:
        """For a table, and where the files of the batch were."""
        return cls(
            f"A vacuum() of {table} has removed files that were read or about to be committed ({directory}): its retention is "
            "shorter than the write took, or the read. Nothing was committed; run it again, and vacuum with a longer "
            "retentionHours.",
            path=directory,
        )


class TableNotFoundError(TrinityMergeError, FileNotFoundError):
    """There is no trinitymerge table, or no such version of it, at the path."""


class TableExistsError(TrinityMergeError, FileExistsError):
    """The path already holds a table, or something else."""


class ReadOnlyTableError(TrinityMergeError, PermissionError):
    """A write to an external table or to a past version (S16)."""


class CorruptTableError(TrinityMergeError, OSError):
    """A file of the table is missing, cut short or foreign; the message names the file."""


class PendingHistoryInsertsError(TrinityMergeError, RuntimeError):
    """Rows that a merge owes to another table cannot be written there: until they are, nothing else is (S27)."""


class StorageError(TrinityMergeError, OSError):
    """A file could not be read or written: a full disk, a missing permission, a file that is gone or rotten (S34)."""


class JobFailedError(TrinityMergeError, RuntimeError):
    """A Spark job did not finish: too little memory, lost executors, or it was cancelled (S34). The call was in order."""


class UnsupportedStorageError(TrinityMergeError, NotImplementedError):
    """The storage cannot give a guarantee the table needs, or do what a call asks of it; the message names the remedy (S33)."""


class MissingPackageError(TrinityMergeError, ImportError):
    """A call needs a package that is not installed; the message says which extra brings it."""


def counted(count: int, noun: str = "row", plural: str = "") -> str:
    """A number of things, in words.

    Example:
        >>> counted(1), counted(2500), counted(0, "batch", "batches")
        ('1 row', '2,500 rows', '0 batches')
    """
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def in_columns(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Texts in rows, one below the other.

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
    """A number of bytes, in words.

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
    """What a value is, with its package: two libraries' DataFrames must not read alike.

    Example:
        >>> kind_of(1), kind_of(difflib.SequenceMatcher())
        ('int', 'difflib.SequenceMatcher')
    """
    kind = type(value)
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__.split('.')[0]}.{kind.__name__}"


def is_foreign_frame(value: Any) -> bool:
    """True if it is a table of another library, which Python would take for its column names."""
    module, name = type(value).__module__, type(value).__name__
    package = module.split(".")[0]
    return (
        (package in ("pandas", "polars") and name.endswith("Frame"))
        or package == "pyarrow"
        or module.startswith("pyspark.pandas.")
    )


def how_to_convert(value: Any) -> str:
    """How to make a Spark DataFrame of something, as a sentence that starts with a blank; nothing where nobody knows."""
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
    """A sentence that says which columns something lacks, and what it has.

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
    """A sentence suggesting the nearest known name, or listing what exists.

    Args:
        name: what the user wrote.
        known: the names that exist.

    Returns:
        A sentence that starts with a blank, ready to be appended to a message.

    Example:
        >>> did_you_mean("amuont", ["id", "amount"])
        " Did you mean 'amount'? Known: id, amount."
    """
    known = list(known)
    listed = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "")
    return f"{closest(name, known)} Known: {listed}." if known else ""


def closest(name: str, known: Iterable[str]) -> str:
    """The same without the list.

    Example:
        >>> closest("amuont", ["id", "amount"]), closest("x", ["id"])
        (" Did you mean 'amount'?", '')
    """
    known = list(known)
    close = difflib.get_close_matches(name.lower(), [k.lower() for k in known], n=1)
    return next((f" Did you mean '{k}'?" for k in known if close and k.lower() == close[0]), "")
