"""The read set of a merge, and the concurrent commits that conflict with it (S35)."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import attrs

from trinitymerge import reader
from trinitymerge.errors import ConcurrentCommitError, CorruptTableError, FilesVacuumedError
from trinitymerge.log.actions import AddExtract, Batch, RestoreVersion, TruncateTable
from trinitymerge.log.batches import Batches
from trinitymerge.log.commit import (
    ConcurrentCommits,
    Predicate,
    PurgeUnchanged,
    Requirement,
    SameDefinition,
    TransactionNotCommitted,
)
from trinitymerge.log.model import Commit
from trinitymerge.merge.compile.strategies import Reads
from trinitymerge.merge.execute.request import FeedContext, Transaction
from trinitymerge.rows.watermarks import Watermark, is_above
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.stores.base import Staged, TableStore
from trinitymerge.stores.removed_files import naming_vacuums


def requirements(
    transaction: Transaction | None, feed: FeedContext, dependence: ReadSet | None
) -> tuple[Requirement, ...]:
    """Return what the concurrent commits of a merge must fulfil (S36, S36a); without source rows it has no ``dependence``."""
    asked: list[Requirement] = [SameDefinition()]
    if feed.stored is not None:
        asked.append(RowsUnchanged(or_batches=feed.truncate is not None))
    if transaction is not None:
        query = None if transaction.stream is None else transaction.stream.query_id
        asked.append(TransactionNotCommitted(transaction.application, transaction.number, query))
    if dependence is not None:
        asked += [PurgeUnchanged(), Predicate(dependence.is_truncated), Predicate(dependence.mends)]
        if not dependence.reads.nothing:
            asked.append(Predicate(dependence.conflict))
    return tuple(asked)


@attrs.frozen
class RowsUnchanged:
    """No row was added or taken away, nor (``or_batches``) a batch replaced: the source was computed from the table."""

    or_batches: bool = False

    def violation(self, landed: ConcurrentCommits) -> str | None:
        for commit in landed.commits:
            is_other = commit.changes_data or commit.last(AddExtract) or commit.last(RestoreVersion)
            if is_other or commit.last(TruncateTable) or (self.or_batches and commit.removed):
                return f"version {commit.version} ({commit.operation}) has changed what the merge was computed from"
        return None


def require_unchanged(store: TableStore, feed: FeedContext) -> None:
    """Check, before anything is read, that a table still has the rows that a merge's source was computed from."""
    if feed.stored is None:
        return
    based_on, requirement = feed.stored.snapshot, RowsUnchanged(or_batches=feed.truncate is not None)
    landed = ConcurrentCommits.after(store, based_on)
    why = requirement.violation(landed)
    if why is not None:
        raise ConcurrentCommitError(
            f"The merge into {store.path} was built on version {based_on.version}, and {why}. Nothing was written; build it "
            "again.",
            path=store.path,
            version=landed.now.version,
            requirement=requirement,
        )


@attrs.frozen(eq=False)
class ReadSet:
    """The rows that a merge's batch was computed from.

    Attributes:
        only_keys: nothing was read but the keys in ``reads`` and those of the batch: no key moves, and nothing depends on the
            number of rows.
        batch: what is to be committed, if anything.
        may_mend: whether a row of the batch may change a row that one of some batches leaves unset in part (U3).
    """

    store: TableStore
    reads: Reads
    only_keys: bool
    batch: Batch | None
    staged: Staged
    may_mend: Callable[[Iterable[Batch]], bool] = lambda _: False

    def mends(self, landed: ConcurrentCommits) -> str | None:
        """Return why a row of the merge might change a concurrent row (U4); None if it cannot."""
        commits = [commit for commit in landed.commits if commit.changes_data]
        if self.may_mend(b for commit in commits for b in commit.added):
            return "rows have landed that leave columns unchanged, and rows of the merge may be older"
        if any(commit.removed for commit in commits) and self.may_mend(landed.now.batches):
            return "rows have been taken back, and rows of the merge may be older than earlier ones that leave columns unchanged"
        return None

    def conflict(self, landed: ConcurrentCommits) -> str | None:
        """Return why the merge might have another result on the newest version; None if it has the same."""
        definition = landed.now.definition
        for commit in landed.commits:
            if commit.removed and not self._is_harmless_removal(definition, commit):
                return f"version {commit.version} ({commit.operation}) has replaced rows that were read"
        appended = landed.appended_batches
        if not appended:
            return None
        if not self.only_keys:
            return "rows have landed in a table that was read as a whole"
        try:
            with naming_vacuums(self.store):
                meets = self._meets(Batches(definition, appended))
                return "rows have landed under keys that were read" if meets else None
        except (CorruptTableError, FilesVacuumedError):
            return "rows have landed that are gone again, or a vacuum has removed those of the merge"

    def is_truncated(self, landed: ConcurrentCommits) -> str | None:
        """Return why a truncate that has landed might leave out rows of the merge, or one that is gone has (T1); None if not."""
        was, now = landed.since.truncate, landed.now.truncate
        if was == now or (was is None and now is not None and self._is_fresher(landed.now.definition, now.watermark)):
            return None
        return "the table has been truncated, or a truncate has been taken back"

    def _is_fresher(self, definition: TableDefinition, watermark: Watermark) -> bool:
        return self.batch is None or is_above(definition, self.batch.watermark_min, watermark)

    def _is_harmless_removal(self, definition: TableDefinition, commit: Commit) -> bool:
        """Return True for a minor compaction, or a compaction that dropped no tombstone as fresh as a row of this merge."""
        if commit.changes_data:
            return False
        if commit.horizon is None or self.batch is None:
            return True
        return is_above(definition, self.batch.watermark_min, commit.horizon)

    def _meets(self, landed: Batches) -> bool:
        """Return True if the concurrent batches contain a key that this merge read or wrote."""
        definition = landed.definition
        names = reader.keys_to_find(definition)
        mine = [self.store.read_staged(self.staged).selectExpr(*names)] if self.batch is not None else []
        mine += [self.reads.keys] if self.reads.keys is not None else []
        theirs = self.store.scan(landed)
        return any(not reader.semi_join(theirs, definition, keys).isEmpty() for keys in mine)
