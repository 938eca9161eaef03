"""trinitymerge: keep tables up to date with Spark, by merging instead of rewriting.

A merge compiles its clauses into one append batch of whole rows, each with a watermark and a tombstone; a reader resolves,
per primary key, the freshest row. Start at :class:`TrinityTable`.

Importing the package does not import Spark; asking for a name that needs it does. So the interpreter in
:mod:`trinitymerge.testing` runs without Spark.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from trinitymerge._package import __version__ as __version__
from trinitymerge.errors import (
    AmbiguousMergeError,
    ConcurrentCommitError,
    ConstraintError,
    CorruptTableError,
    DuplicateKeyError,
    FilesVacuumedError,
    InvalidDefinitionError,
    InvalidMergeError,
    JobFailedError,
    MissingPackageError,
    NullKeyError,
    PendingHistoryInsertsError,
    ReadOnlyTableError,
    RejectedRowsError,
    SchemaMismatchError,
    SqlError,
    StaleRowsError,
    StorageError,
    TableExistsError,
    TableNotFoundError,
    TooManyDeletesError,
    TrinityMergeError,
    UnsupportedStorageError,
)
from trinitymerge.log.reporting import Progress
from trinitymerge.merge.model.result import MergeResult
from trinitymerge.schema.constraints import Check
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field

if TYPE_CHECKING:
    from trinitymerge._progress import progress
    from trinitymerge.merge.builder import MergeBuilder
    from trinitymerge.merge.execute.plan import MergePlan
    from trinitymerge.statements.api import sql
    from trinitymerge.table import TrinityTable


__all__ = [
    "AmbiguousMergeError",
    "Check",
    "ConcurrentCommitError",
    "ConstraintError",
    "CorruptTableError",
    "DuplicateKeyError",
    "Field",
    "FilesVacuumedError",
    "InvalidDefinitionError",
    "InvalidMergeError",
    "JobFailedError",
    "MergeBuilder",
    "MergePlan",
    "MergeResult",
    "MissingPackageError",
    "NullKeyError",
    "PendingHistoryInsertsError",
    "Progress",
    "ReadOnlyTableError",
    "RejectedRowsError",
    "SchemaMismatchError",
    "SqlError",
    "StaleRowsError",
    "StorageError",
    "TableDefinition",
    "TableExistsError",
    "TableNotFoundError",
    "TooManyDeletesError",
    "TrinityMergeError",
    "TrinityTable",
    "UnsupportedStorageError",
    "progress",
    "sql",
]

_NEED_SPARK = {
    "MergeBuilder": "trinitymerge.merge.builder",
    "MergePlan": "trinitymerge.merge.execute.plan",
    "TrinityTable": "trinitymerge.table",
    "progress": "trinitymerge._progress",
    "sql": "trinitymerge.statements.api",
}

if not TYPE_CHECKING:  # to a type checker every name would exist

    def __getattr__(name: str) -> Any:
        if name not in _NEED_SPARK:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(_NEED_SPARK[name]), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
