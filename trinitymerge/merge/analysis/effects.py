"""What a written row means to readers, if it is its key's freshest in the batch (S30a).

Owns: :class:`Effect` and all there are. Their texts are stored with the rows of a batch, so that keys with several rows can
be counted after the batch has been written.
"""

from __future__ import annotations

import attrs


@attrs.frozen
class Effect:
    """One effect.

    Attributes:
        text: as it is stored.
        inserted, updated, deleted: what a key counts for whose freshest row has it.
        is_move: the row has come from another key; where another row is fresher, it is deleted.
        replaces: a row that has a pre-image takes its place, and history inserts are made of that (S27).
        is_stale: the row is older than what it would replace (S11).
    """

    text: str
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    is_move: bool = False
    replaces: bool = False
    is_stale: bool = False

    def __str__(self) -> str:
        return self.text


INSERTED = Effect("insert", inserted=1)
UPDATED = Effect("update", updated=1, replaces=True)
DELETED = Effect("delete", deleted=1, replaces=True)
MOVED = Effect("move", updated=1, is_move=True, replaces=True)
MOVED_OVER_DELETED = Effect("move+delete", updated=1, deleted=1, is_move=True, replaces=True)
NOTHING = Effect("none", replaces=True)
"""Of a row that shows readers nothing else than before: a recorded delete, a tombstone over nothing; and a move that comes once
more, or as a tombstone, which replaces its pre-image all the same."""

STALE = Effect("stale", is_stale=True)
STALE_MOVE = Effect("stale move", is_stale=True)
WITHHELD = Effect("withheld")
"""Of an insert that is not written, because the update or delete beside it is stale (S21a)."""

UNCHANGED = Effect("unchanged")
"""Of an update that is not written, because it would change nothing (S22b)."""

DUPLICATE = Effect("duplicate")
"""Of a row that arrives at a live key which the merge does not free: the merge is refused (S25)."""

TORN = Effect("torn")
"""Of a row that moves and is changed otherwise, or moves to two places: the merge is refused (S24)."""

EFFECTS = (
    INSERTED,
    UPDATED,
    DELETED,
    MOVED,
    MOVED_OVER_DELETED,
    NOTHING,
    STALE,
    STALE_MOVE,
    WITHHELD,
    UNCHANGED,
    DUPLICATE,
    TORN,
)
"""All of them."""

COUNTS = ("inserted", "updated", "deleted")
"""What is counted: attributes of :class:`Effect`."""
