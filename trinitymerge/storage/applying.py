"""What a commit must fulfil to be applied to a snapshot (S33).

Owns: :class:`InapplicableCommit` and the checks. What comes of applying one stands in ``entries.py``.
"""

from __future__ import annotations

from typing import Any


class InapplicableCommit(ValueError):  # noqa: N818 - its writer may compute it again
    """A commit that does not fit the snapshot it is applied to: it removes a batch that is gone, say."""


def check_applies(commit: Any, snapshot: Any) -> None:
    """Refuses a commit that cannot come right after a snapshot; both as ``entries.py`` has them.

    Raises:
        InapplicableCommit: saying what was expected and what was found.
    """
    if commit.version != snapshot.version + 1:
        raise InapplicableCommit(f"expected version {snapshot.version + 1}, found {commit.version}")
    if commit.timestamp_ms <= snapshot.timestamp_ms:
        raise InapplicableCommit(
            f"expected a timestamp after {snapshot.timestamp_ms}, found {commit.timestamp_ms} (milliseconds)"
        )
    here = {b.id for b in snapshot.batches}
    gone = [i for i in commit.removed if i not in here]
    if gone:
        raise InapplicableCommit(f"removes batch '{gone[0]}', which version {snapshot.version} does not have")
    added = [b.id for b in commit.added]
    twice = (here - set(commit.removed)).intersection(added) or {i for i in added if added.count(i) > 1}
    if twice:
        raise InapplicableCommit(f"adds batch '{min(twice)}', which is part of the table already")
    future = [b for b in commit.added if b.version is not None and b.version > commit.version]
    if future:
        raise InapplicableCommit(f"batch '{future[0].id}' is from version {future[0].version}, after its commit")
