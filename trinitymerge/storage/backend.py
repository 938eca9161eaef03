"""The small interface through which the rest of the library sees storage.

Owns: :class:`Backend`, and the frozen data that crosses it: :class:`Batches` (what a reader reads) and :class:`Staged`
(what a writer wrote but nobody can see yet). Knows nothing of merges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

import attrs
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from trinitymerge.definition import HIDDEN_PREFIX, TableDefinition
from trinitymerge.storage.log import Batch, Commit, Snapshot

VERSION = HIDDEN_PREFIX + "version"
"""The column :meth:`Backend.scan` adds: the commit version of each row (S6)."""


@attrs.frozen
class Batches:
    """Batches to read, with the definition to read them by.

    Attributes:
        definition: names, types and keys of the rows.
        batches: in commit order.
    """

    definition: TableDefinition
    batches: tuple[Batch, ...]

    @classmethod
    def of(cls, snapshot: Snapshot) -> Batches:
        """All batches of a snapshot."""
        return cls(snapshot.definition, snapshot.batches)


@attrs.frozen
class Staged:
    """A batch that has been written and that no reader can see.

    Attributes:
        id: the batch's name, unguessable.
        files: number of files.
        size_bytes: their size.
        schema: of the rows.
        file_format: ``"parquet"`` or ``"orc"``, or what else the storage writes.
    """

    id: str
    files: int
    size_bytes: int
    schema: StructType
    file_format: str


class Scanner(Protocol):
    """What reading takes."""

    def scan(self, batches: Batches) -> DataFrame:
        """The stored columns of the batches as one lazy relation, and the commit version as :data:`VERSION`.

        Raises:
            CorruptTableError: a file of a batch is gone.
        """


class Backend(Scanner, Protocol):
    """What a kind of table must be able to do. Every method may raise the storage's own ``OSError`` besides."""

    spark: SparkSession
    path: str

    def snapshot(self, version: int | None = None) -> Snapshot:
        """The newest snapshot, or that of a version.

        Raises:
            TableNotFoundError: no table here, or no such version.
            CorruptTableError: naming the file that is torn, foreign or missing.
        """

    def stage(self, rows: DataFrame, definition: TableDefinition) -> Staged:
        """Writes rows as a batch nobody can see, in one Spark job."""

    def require_still_whole(self, batches: Sequence[Batch]) -> None:
        """After a job has read batches: were all their files there, as far as that can have changed meanwhile.

        Raises:
            CorruptTableError: naming the first batch that has lost some.
        """

    def read_staged(self, staged: Staged) -> DataFrame:
        """A staged batch with all the columns it was written with."""

    def discard(self, staged: Staged) -> None:
        """Removes a staged batch; a batch already removed is no error."""

    def commit(self, commit: Commit, base: Snapshot) -> Snapshot:
        """Makes a commit on top of ``base`` visible, all at once, as ``commit.version`` (S33).

        Raises:
            ConcurrentCommitError: that version exists already; nothing was changed.
            OutcomeUnknown: the storage cannot say whether the commit took place; its batches must stay.
        """

    def commits(self, first: int, last: int) -> Iterator[Commit]:
        """The commits of versions ``first`` to ``last``, oldest first.

        Raises:
            CorruptTableError: naming the entry that is torn, foreign or missing.
        """

    def history(self) -> list[Commit]:
        """All commits that are still known, newest first."""
