"""The calls of ``ModelTable`` that look back (S41, H2-H5).

Owns: :class:`LookingBack`, which the table inherits. What a change or a version is stands in ``netchanges.py`` and
``versions.py``.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

from trinitymerge.definition import TableDefinition
from trinitymerge.testing.changes import Key
from trinitymerge.testing.expressions import Row
from trinitymerge.testing.netchanges import Latest, latest_rows, net_changes
from trinitymerge.testing.versions import (
    Shown,
    Stored,
    Version,
    chains,
    check_history,
    intervals,
    merged,
    rows_at,
    rows_shown,
    tracked_columns,
)


class LookingBack:
    """What was, as far as the stored rows tell."""

    __slots__ = ()

    definition: TableDefinition
    batches: list[tuple[Row, ...]]

    @property
    def version(self) -> int:
        """The number of commits."""
        return len(self.batches)

    def time(self, version: int) -> dt.datetime:
        """When a version was committed."""
        raise NotImplementedError

    def state(self, of: Key | None = None) -> dict[Key, Latest]:
        """The latest row of every key, live or a tombstone, with its version; or of one key."""
        return latest_rows(self.definition, self.batches, of)

    def changes(self, fromVersion: int, toVersion: int | None = None, net: bool = True) -> list[Row]:
        """What happened to the live rows after one version, up to another (S41).

        Args:
            fromVersion: exclusive.
            toVersion: by default the table's.
            net: compare the two states; otherwise each version with the one before.

        Returns:
            The user's columns, ``_change_type``, ``_commit_version`` and ``_watermark``, in key order.

        Example:
            >>> from trinitymerge.definition import Field, TableDefinition
            >>> from trinitymerge.testing import ModelTable
            >>> table = ModelTable(TableDefinition.of([Field("id", "long"), Field("v", "string")], primaryKey="id"))
            >>> table.commit([{"id": 1, "v": "a"}]), table.commit([{"id": 1, "v": "b"}])
            (1, 2)
            >>> [(row["v"], row["_change_type"]) for row in table.changes(1)]
            [('a', 'update_preimage'), ('b', 'update_postimage')]
        """
        last = self.version if toVersion is None else toVersion
        ends = [fromVersion, last] if net else list(range(fromVersion, last + 1))
        states = [latest_rows(self.definition, self.batches[:version]) for version in ends]
        steps = pairwise(states)
        return [row for before, after in steps for row in net_changes(self.definition, before, after)]

    def versions(
        self,
        track: str | Iterable[str] | None = None,
        exceptColumns: str | Iterable[str] = (),
        validFrom: str = "validFrom",
        validTo: str = "validTo",
        current: str = "isCurrent",
        openEnd: Any = None,
        emptyIntervals: bool = False,
    ) -> list[Row]:
        """Every version of every key, with the time in which it holds (H2-H5).

        Args:
            track: consecutive versions that agree in these columns are one.
            exceptColumns: or in all but these and the watermark.
            validFrom: the name of the column that says when a version begins.
            validTo: of the one that says when it ends.
            current: of the one that says whether it is open.
            openEnd: what ``validTo`` is in open versions.
            emptyIntervals: show versions that end where they begin, too.

        Returns:
            The user's columns and the interval, ordered by key and time.

        Raises:
            InvalidDefinitionError: the table keeps no history (H8), or has a column of one of these names.
            ValueError: a column cannot be tracked.

        Example:
            >>> from trinitymerge.definition import Field, TableDefinition
            >>> from trinitymerge.testing import ModelTable
            >>> columns = [Field("id", "long"), Field("ts", "long")]
            >>> table = ModelTable(TableDefinition.of(columns, primaryKey="id", watermarkKey="ts", history=True))
            >>> table.commit([{"id": 1, "ts": 100}, {"id": 1, "ts": 200}])
            1
            >>> [(row["validFrom"], row["validTo"], row["isCurrent"]) for row in table.versions()]
            [(100, 200, False), (200, None, True)]
        """
        check_history(self.definition, "versions()")
        tracked, shown = (
            tracked_columns(self.definition, track, exceptColumns),
            Shown(validFrom, validTo, current, openEnd),
        )
        found: list[Version] = []
        for chain in self.chains().values():
            seen = [v for v in intervals(self.definition, chain) if emptyIntervals or not v.isEmpty]
            found += seen if tracked is None else merged(seen, tracked)
        return rows_shown(self.definition, found, shown)

    def asOf(self, moment: Any) -> list[Row]:
        """The rows that hold at a moment of the data's time, in key order (H5).

        Args:
            moment: a value of the first watermark column; a time of commit, if the table declares no watermark.

        Raises:
            InvalidDefinitionError: the table keeps no history (H8).
            ValueError: the moment is null.
        """
        check_history(self.definition, "asOf()")
        rows = rows_at(self.definition, self.chains(), moment).values()
        return [{name: row[name] for name in self.definition.names} for row in rows]

    def chains(self) -> dict[Key, list[Stored]]:
        """For each key what holds one after the other, rows and tombstones (H2)."""
        return chains(self.definition, self.batches, self.time)
