"""A merge as the caller asks for it: what the user set, and what a feed knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import attrs
from pyspark.sql import DataFrame

from trinitymerge.log.actions import TruncateTable
from trinitymerge.log.commit import MicroBatch
from trinitymerge.log.model import Snapshot
from trinitymerge.log.reporting import Listener
from trinitymerge.merge.analysis.outbox import OutboxTarget
from trinitymerge.merge.compile.strategies import MergeStrategy
from trinitymerge.merge.model.clauses import Clause, OtherTable
from trinitymerge.merge.model.feed_counts import FeedCounts
from trinitymerge.merge.model.result import MergeResult
from trinitymerge.rows.watermarks import Watermark
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.stores.base import TableStore

PreAttemptHook: TypeAlias = Callable[[TableStore], Snapshot]
"""Does what earlier merges have left to be done (S27), and gives the version that an attempt is made on."""

PostCommitHook: TypeAlias = Callable[[MergeResult, "Snapshot | None"], MergeResult]
"""From the result of a merge, and the table with its rows (None if it wrote none), to the result that users get."""


@attrs.frozen
class Transaction:
    """The mark that makes a merge happen once (S36).

    Attributes:
        source: the id of the table whose versions ``number`` counts, or None (S41).
        stream: the micro-batch that the transaction is, or None (S36a).
    """

    application: str
    number: int
    source: str | None = None
    stream: MicroBatch | None = None

    @property
    def counted_by(self) -> str | None:
        """The id of the query or the table that counts the numbers, or None."""
        return self.source if self.stream is None else self.stream.query_id


@attrs.frozen
class Quarantine:
    """Where a merge puts the rows that it cannot write (S47).

    Attributes:
        max_fraction: the share of the source's rows that may go there, or None for any.
        target: the table as it was when the merge was planned.
    """

    table: OtherTable
    max_fraction: float | None = None
    target: OutboxTarget | None = None


@attrs.frozen
class Settings:
    """The settings of the user.

    Attributes:
        on_stale: ``"skip"``, ``"error"`` or ``"force"`` (S11).
        expired_transactions: applications to forget in the same commit.
        at: the watermark of rows without another one, column by column (H2a); empty if the replaced row decides.
        schema_evolution: the table gets what columns the source has and it has not (S44).
        max_delete_fraction: share of live rows, or None (S37).
        quarantine: where rows go that would refuse the merge (S47), or None.
        counts: every count of the result is to be known (S30b).
        comment: for ``history()`` (S36b).
        strategy: a sound strategy to take instead of the cheapest, or None.
    """

    on_stale: str = "skip"
    transaction: Transaction | None = None
    expired_transactions: tuple[str, ...] = ()
    at: tuple[Any, ...] = ()
    schema_evolution: bool = False
    max_delete_fraction: float | None = None
    quarantine: Quarantine | None = None
    counts: bool = False
    comment: str = ""
    listeners: tuple[Listener, ...] = ()
    strategy: MergeStrategy | None = None


@attrs.frozen
class Truncate:
    """A truncate of the whole table.

    Attributes:
        action: for the log.
        removed: the ids of batches that have no fresher row, and cease to be part of the table. The merge deletes other rows that
            are not fresher.
    """

    action: TruncateTable
    removed: tuple[str, ...] = ()


@attrs.frozen(eq=False)
class Extract:
    """A full extract that the merge compares the table with (H11).

    Attributes:
        moment: in the form of the log.
        held: the rows that hold at the moment of a late extract, which ``max_delete_fraction`` counts (S37); else None.
    """

    moment: Watermark
    held: DataFrame | None = None


@attrs.frozen(eq=False)
class StoredRows:
    """The rows of the table that a feed has read to make its source.

    Attributes:
        snapshot: the version that they are of.
        read_by: how the table was read, as a strategy would; None if it was not.
        column: the source column with the stored row that each row replaces; empty if there is none.
        unset: what a row may leave unset (U2), as ``Batch.unset`` names it; None if the column says nothing of it.
        are_all: the column shows all rows that the merge replaces or deletes.
    """

    snapshot: Snapshot
    read_by: MergeStrategy | None = None
    column: str = ""
    unset: tuple[str, ...] | None = None
    are_all: bool = True


@attrs.frozen(eq=False)
class Rejected:
    """The messages and events that a feed rejects before the merge, for its quarantine.

    Attributes:
        messages: those that cannot be read, with ``id``, ``reason`` and ``row``; or None.
        events: those that break a rule, with ``reason``, ``source`` (as ``carried``) and the key; or None.
        carried: the column of the source with the user's row, or with ``position`` and ``raw`` of the message; or empty.
        number: the column of the source with the number of the event that a row comes from; or empty.
        are_all: every event that would refuse the merge is among these.
    """

    messages: DataFrame | None = None
    events: DataFrame | None = None
    carried: str = ""
    number: str = ""
    are_all: bool = False


@attrs.frozen(eq=False)
class FeedContext:
    """Facts of the call that makes a merge, or of the feed that makes its source.

    Attributes:
        call: that stands for the clauses in ``history()``; empty where they stand for themselves.
        is_sequenced: each written row must have a watermark.
        ambiguous: what to do about rows that contradict each other (S12), if the call knows better than the merge.
        rows_left_out: which rows of the source have been, in words; empty if none (S12a).
        counts: the messages of a feed, counted (F4), or None.
        ignored: columns that a source had that this one was computed from, and that the table does not have (S22a).
        source_rows: the rows of the user's source, where the merge's has others; else None.
        truncate: the truncate that the merge commits (T1), or None.
        stored: what was read of the table for the source; None if nothing was, and the merge is not bound to a version.
    """

    call: str = ""
    is_sequenced: bool = False
    ambiguous: str = ""
    rows_left_out: str = ""
    counts: FeedCounts | None = None
    ignored: tuple[str, ...] = ()
    source_rows: int | None = None
    truncate: Truncate | None = None
    extract: Extract | None = None
    stored: StoredRows | None = None
    rejected: Rejected = attrs.field(factory=Rejected)

    @property
    def read_by(self) -> MergeStrategy | None:
        """How the table was read for the source; None if it was not."""
        return None if self.stored is None else self.stored.read_by

    @property
    def stored_column(self) -> str:
        """The column with the stored row that each row replaces; empty if there is none."""
        return "" if self.stored is None else self.stored.column

    @property
    def unset(self) -> tuple[str, ...] | None:
        """The parts that a row may leave unset; None if that is not known."""
        return None if self.stored is None else self.stored.unset


@attrs.frozen(eq=False)
class MergeSpec:
    """A merge as the caller asks for it, before it is planned on a version of the table.

    Attributes:
        source: the caller's DataFrame; None for merges without one, and until ``derive`` makes it.
        condition: the merge condition; None for equality on the primary key, by name.
        pre_attempt_hook, post_commit_hook: given by the call that begins the chain (``table.py``). The first runs before each
            attempt, the second once, after the attempt that succeeds.
        derive: for a feed: from the spec and a version of the table to the spec with its source, clauses and context.
        definition: the table's, with the columns that the merge adds (S44), if the source was made for it.
    """

    store: TableStore
    alias: str
    source: DataFrame | None
    condition: Any = None
    clauses: tuple[Clause, ...] = ()
    settings: Settings = attrs.field(factory=Settings)
    feed: FeedContext = attrs.field(factory=FeedContext)
    pre_attempt_hook: PreAttemptHook = lambda store: store.snapshot()
    post_commit_hook: PostCommitHook = lambda result, _: result
    derive: Callable[[MergeSpec, Snapshot], MergeSpec] | None = None
    definition: TableDefinition | None = None

    def with_settings(self, **changed: Any) -> MergeSpec:
        return attrs.evolve(self, settings=attrs.evolve(self.settings, **changed))

    def with_feed(self, **changed: Any) -> MergeSpec:
        return attrs.evolve(self, feed=attrs.evolve(self.feed, **changed))
