"""trinitymerge: keep tables up to date with Spark, by merging instead of rewriting.

A merge compiles its clauses into one append batch of whole rows, each with a watermark and a tombstone; a reader resolves,
per primary key, the freshest row. Start at :class:`TrinityTable`.
"""

from trinitymerge.definition import Field, TableDefinition
from trinitymerge.errors import (
    AmbiguousMergeError,
    ConcurrentCommitError,
    CorruptTableError,
    DuplicateKeyError,
    InvalidDefinitionError,
    InvalidMergeError,
    NullKeyError,
    ReadOnlyTableError,
    SchemaMismatchError,
    StaleRowsError,
    TableExistsError,
    TableNotFoundError,
    TooManyDeletesError,
    TrinityMergeError,
    UnsupportedStorageError,
)
from trinitymerge.merge.builder import MergeBuilder
from trinitymerge.merge.plan import MergePlan
from trinitymerge.merge.result import MergeResult
from trinitymerge.table import TrinityTable

__version__ = "0.1.0"

__all__ = [
    "AmbiguousMergeError",
    "ConcurrentCommitError",
    "CorruptTableError",
    "DuplicateKeyError",
    "Field",
    "InvalidDefinitionError",
    "InvalidMergeError",
    "MergeBuilder",
    "MergePlan",
    "MergeResult",
    "NullKeyError",
    "ReadOnlyTableError",
    "SchemaMismatchError",
    "StaleRowsError",
    "TableDefinition",
    "TableExistsError",
    "TableNotFoundError",
    "TooManyDeletesError",
    "TrinityMergeError",
    "TrinityTable",
    "UnsupportedStorageError",
]
