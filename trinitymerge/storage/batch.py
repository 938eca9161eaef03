"""A batch as the log of a table says it (S33, S38, H6).

Owns: :class:`Batch`, frozen data that checks itself, and its JSON. Knows nothing of files, of Spark, or of the commits that add
and remove batches.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from trinitymerge.storage.fields import (
    check_batch_id,
    check_count,
    check_scalars,
    count_field,
    from_json_object,
    is_a,
    json_names,
    to_json_object,
    tuple_or_none,
)

LOOSE, SETTLED = "loose", "settled"
"""The two kinds of archives, see :attr:`Batch.archive`."""


@attrs.frozen(kw_only=True)
class Batch:
    """One append batch, with what readers need to know without opening it.

    Attributes:
        id: the name of its directory: unguessable, letters, digits, ``_`` and ``-``.
        rows: rows it holds, tombstones included.
        tombstones: how many of them are tombstones.
        files: data files.
        bytes: their size.
        watermark_min: the smallest declared watermark, in a JSON form its writer chooses; None when unknown.
        watermark_max: likewise the largest.
        unique_keys: no two rows have the same primary key.
        base: resolved and unique, and nothing older of its keys is left beside it: the first load, or the result of a compaction or
            of a fold of all.
        version: the commit version its rows count as (S6). None in a commit means: that commit's own version.
            A compaction sets the version it has read, so that later commits win; a fold that of the newest batch it
            replaces; a restore keeps the old one.
        merges: how many merges its rows come from, for a batch that others were folded into (S38a). What a compaction leaves
            counts as one.
        tiling: the name of the base that it is a segment of (S38b). It has no key of another one, nor of any batch not newer.
        tombstones_since: when its first tombstone was committed, ms since the epoch; of an archive, its first version ended.
        archive: what its rows are to a table with history (H6): None, rows to resolve; ``"loose"``, versions that a newer row of a
            pending batch has replaced; ``"settled"``, versions that end where they say. No archive is read for live rows.
        layout: of the table when its files were written: which forms of columns they have (S43).
        foreign: others wrote its rows, into a table of another format: nothing says in which order (S15).
        extra: fields of newer libraries, kept as they are.
    """

    id: str = attrs.field(validator=check_batch_id)
    rows: int = count_field()
    tombstones: int = count_field()
    files: int = count_field()
    bytes: int = count_field()
    watermark_min: tuple[Any, ...] | None = attrs.field(default=None, converter=tuple_or_none, validator=check_scalars)
    watermark_max: tuple[Any, ...] | None = attrs.field(default=None, converter=tuple_or_none, validator=check_scalars)
    unique_keys: bool = attrs.field(default=False, validator=is_a(bool))
    base: bool = attrs.field(default=False, validator=is_a(bool))
    version: int | None = attrs.field(default=None, validator=attrs.validators.optional(check_count))
    merges: int = attrs.field(default=1, validator=check_count)
    tiling: str | None = attrs.field(default=None, validator=attrs.validators.optional(check_batch_id))
    tombstones_since: int | None = attrs.field(default=None, validator=attrs.validators.optional(check_count))
    archive: str | None = attrs.field(default=None, validator=attrs.validators.in_((None, LOOSE, SETTLED)))
    layout: int = attrs.field(default=0, validator=check_count)
    foreign: bool = attrs.field(default=False, validator=is_a(bool))
    extra: Mapping[str, Any] = attrs.field(factory=dict, eq=repr, repr=False)

    def to_json(self) -> dict[str, Any]:
        """The batch as an entry holds it."""
        return to_json_object(self, _BATCH_FIELDS)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Batch:
        """The inverse of :meth:`to_json`.

        Raises:
            ValueError: a field is missing or means nothing.
        """
        return cls(**from_json_object(data, _BATCH_FIELDS))


_BATCH_FIELDS = json_names(Batch)
