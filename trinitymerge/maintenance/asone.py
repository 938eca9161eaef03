"""Compaction of tables whose files another format looks after: all rows as one base, in one commit.

Owns: trying again after others were faster, which here means computing it again (S16, S38). How rows are resolved
and which tombstones are forgotten stands in ``rewriting.py``; what the old files are good for until they
expire is the format's business.
"""

from __future__ import annotations

import time

import attrs

from trinitymerge.errors import ConcurrentCommitError
from trinitymerge.expressions import any_of
from trinitymerge.maintenance.compaction import CompactionResult, horizon_after
from trinitymerge.maintenance.rewriting import Forget, dated, rewrite
from trinitymerge.settings import LITERAL_NAMES, held
from trinitymerge.staging import discarded_on_failure
from trinitymerge.storage import telling
from trinitymerge.storage.backend import Batches, Replacing
from trinitymerge.storage.entries import COMPACT, Snapshot, current_user
from trinitymerge.storage.publish import NothingLanded, publish
from trinitymerge.tombstones import holds_more

TRIES = 3
"""So often it is computed, if others commit meanwhile."""


def compact_as_one(store: Replacing, full: bool = False) -> CompactionResult:
    """Writes the resolved rows of all batches as one base.

    Args:
        store: where the table is.
        full: even if there is one base and nothing else.
    """
    start = time.perf_counter()
    with held(store.spark, LITERAL_NAMES), telling.if_slow(store.path, "a compaction writes all rows anew"):
        for _ in range(TRIES):
            snapshot = store.snapshot()
            forget = Forget.of(snapshot.definition)
            why_not = "" if full else _why_not(store, snapshot, forget)
            if why_not or not snapshot.batches:
                return CompactionResult(version=snapshot.version, skipped=why_not or "the table has no rows")
            try:
                return _compact(store, snapshot, forget, start)
            except ConcurrentCommitError:
                continue
    skipped = f"others have committed meanwhile, {TRIES} times; here a compaction can go on top of nothing else"
    return CompactionResult(version=store.snapshot().version, skipped=skipped)


def _why_not(store: Replacing, snapshot: Snapshot, forget: Forget) -> str:
    """Why it would not pay, in words; an empty string if it might."""
    batches = Batches.of(snapshot)
    if not batches.are_resolved:
        return ""
    if any(b.tombstones for b in snapshot.batches):
        rows = dated(store, batches)
        if not rows.filter(any_of([forget.condition(snapshot.definition), holds_more(snapshot.definition)])).isEmpty():
            return ""
    return "there is one base and nothing else"


def _compact(store: Replacing, snapshot: Snapshot, forget: Forget, start: float) -> CompactionResult:
    definition = snapshot.definition
    with discarded_on_failure(store) as staged:
        written = rewrite(store, definition, snapshot.batches, forget)
        staged.append(written.staged)
        found = written.observed
        counts = {n: found[n] for n in ("rows", "tombstones", "forgotten")}
        batch = attrs.evolve(written.batch(snapshot.version, base=True), version=None)
        commit = snapshot.next_commit(
            COMPACT,
            added=[batch] if counts["rows"] else [],
            removed=[b.id for b in snapshot.batches],
            horizon=horizon_after(definition, snapshot.horizon, found),
            metrics=counts,
            user=current_user(),
            duration_ms=int((time.perf_counter() - start) * 1000),
        )
        done = publish(store, commit, snapshot, (NothingLanded(),))
    if not counts["rows"]:
        store.discard(written.staged)
    return CompactionResult(
        version=done.version,
        batches=len(commit.removed),
        rows=counts["rows"],
        rowsRemoved=sum(b.rows for b in snapshot.batches) - counts["rows"],
        tombstones=counts["tombstones"],
        tombstonesForgotten=counts["forgotten"],
        bytes=sum(b.bytes for b in commit.added),
        seconds=time.perf_counter() - start,
    )
