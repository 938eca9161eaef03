"""The versions of keys in the order of their time, and which row ends which (H2-H5).

Owns: what stands beside the rows of an archive, when rows were committed, and the one window that finds the ends. A *version* here
is any row of a key, tombstones included; whoever shows versions leaves tombstones out. Everything is lazy.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from trinitymerge import reader
from trinitymerge.columns import CLOSED, ENDED, NEXT, SINCE, UNTIL, VERSION
from trinitymerge.definition import Field, TableDefinition
from trinitymerge.errors import InvalidDefinitionError
from trinitymerge.expressions import (
    FALSE,
    all_of,
    any_of,
    case,
    equals,
    is_not_null,
    is_null,
    is_older,
    not_,
    or_else,
    over,
    quote,
    same,
)
from trinitymerge.history.values import field_of, meaning
from trinitymerge.sqltext import Sql
from trinitymerge.statistics import Watermark, is_above
from trinitymerge.storage.backend import Batches, TimeTravel
from trinitymerge.storage.entries import Batch


def require_history(definition: TableDefinition, call: str, path: str) -> None:
    """Checks that a table keeps its versions (H8).

    Raises:
        InvalidDefinitionError: it does not.
    """
    if not definition.history:
        raise InvalidDefinitionError(
            f"{call} needs a table that keeps its versions, and {path} keeps the latest rows only. Create one with "
            "TrinityTable.create(..., history=True), or switch it on for what comes: table.alter().setHistory().execute(). What "
            "changed between two versions of this one, changes() tells."
        )


# What stands beside the rows of an archive ----------------------------------------------------------------------------


def until_field(definition: TableDefinition) -> Field:
    """Where a version ends: the first watermark column of the next, or the time of its commit in milliseconds."""
    kind = definition.field(definition.watermarkKey[0]).type if definition.watermarkKey else "long"
    return Field(str(UNTIL), kind)


def archive_fields(definition: TableDefinition) -> tuple[Field, ...]:
    """What the files of archives hold beside the stored columns."""
    return Field(str(SINCE), "long"), until_field(definition), Field(str(ENDED), "long")


def begin(definition: TableDefinition) -> Sql:
    """Where a version begins: its first watermark column, or the time of its commit in milliseconds (H5)."""
    return quote(definition.watermarkKey[0]) if definition.watermarkKey else SINCE


def time_order(definition: TableDefinition) -> Sql:
    """The order of the rows of a key, the earliest first: by watermark, then by commit (S6).

    By the time of the commit, which each row keeps: archives hold rows of many versions.
    """
    return Sql(", ".join([*(f"{quote(w)} ASC NULLS FIRST" for w in definition.watermarkKey), f"{SINCE} ASC"]))


def come_after(
    definition: TableDefinition, pending: Sequence[Batch], base: Sequence[Batch], horizon: Watermark | None
) -> bool:
    """True if no pending row lies before a settled version begins or ends, by what the log knows of batches.

    Whatever has ended was ended by what is current now, or by a tombstone that has been forgotten.

    Args:
        definition: of the table.
        pending: batches of rows, and loose archives.
        base: the batches of what is current now.
        horizon: the largest watermark of forgotten tombstones; None if there are none.
    """
    if (
        not definition.watermarkKey
    ):  # the order is that of commits; a fold of all leaves replaced rows beside a newer base
        return all(b.archive is None for b in pending)
    ends = [b.watermark_max for b in base] + ([] if horizon is None else [horizon])
    lowest = [b.watermark_min for b in pending if b.rows]
    return bool(base) and all(end is not None and is_above(definition, low, end) for low in lowest for end in ends)


# Reading --------------------------------------------------------------------------------------------------------------


@attrs.frozen(eq=False)
class Timeline:
    """The rows of a table's batches with the times of their commits.

    Attributes:
        backend: where the batches are.
        definition: of the table.
    """

    backend: TimeTravel
    definition: TableDefinition

    def scan(self, batches: Sequence[Batch]) -> DataFrame:
        """The stored columns of batches, :data:`VERSION`, and what :func:`archive_fields` names.

        Where a row ends is null but in archives; in loose ones an older row may end it earlier.
        """
        rows = self.backend.scan(Batches(self.definition, tuple(batches)), extra=archive_fields(self.definition))
        since = self.since(batches)
        return rows.selectExpr(*[f"{since} AS {SINCE}" if n == SINCE else quote(n) for n in rows.columns])

    def since(self, batches: Sequence[Batch]) -> Sql:
        """When a row was committed: rewritten batches keep it, others are of one commit."""
        versions = sorted({b.version for b in batches if b.version is not None and b.archive is None})
        return or_else(SINCE, meaning({v: self.backend.committed_at(v) for v in versions}, VERSION))

    def followed(self, rows: DataFrame) -> DataFrame:
        """Rows of whole keys, as :meth:`scan` gives them, and as :data:`NEXT` the watermark and commit of the next of the key."""
        own = self.definition
        following = over(Sql(f"lead(struct({', '.join(self._marks())}))"), map(quote, own.primaryKey), time_order(own))
        return rows.selectExpr("*", f"{following} AS {NEXT}")

    def _marks(self) -> list[str]:
        """What :data:`NEXT` tells of a row: its watermark, then its commit, so that of two the smaller one is the earlier (S6)."""
        return [*(f"{quote(w)} AS w{i}" for i, w in enumerate(self.definition.watermarkKey)), f"{SINCE} AS since"]

    def is_corrected(self) -> Sql:
        """True if the next row of the key stands for the same moment: it was committed later, and holds (H2)."""
        if not self.definition.watermarkKey:
            return or_else(equals(SINCE, field_of(NEXT, "since")), FALSE)
        pairs = enumerate(self.definition.watermarkKey)
        return all_of([is_not_null(NEXT), *(same(quote(w), field_of(NEXT, f"w{i}")) for i, w in pairs)])

    def is_ended_anew(self) -> Sql:
        """True if the next row ends this one earlier than it says, or for the first time.

        What a settled archive says may know more: of a tombstone that has been forgotten since.
        """
        ends = is_older([field_of(NEXT, "w0" if self.definition.watermarkKey else "since")], [UNTIL])
        return all_of([is_not_null(NEXT), any_of([is_null(ENDED), ends])])

    def in_order(self, rows: DataFrame) -> DataFrame:
        """Rows of whole keys with their ends found anew; of several with equal watermarks the last committed (H2).

        Returns:
            The columns of :meth:`scan`, and :data:`CLOSED`: false on rows that nothing ends.
        """
        return self._ended(self.followed(rows))

    def before(self, rows: DataFrame, later: DataFrame) -> DataFrame:
        """Rows that end where they say, unless the first of some later ones ends them earlier, or corrects them.

        Nothing is shuffled but the later rows. What comes first of them stands for the next row of every one of its key: to rows
        that another one has ended before, that makes no difference.

        Args:
            rows: of :meth:`scan`, settled.
            later: likewise, pending; of each key all, and none of them before one of ``rows``, see :func:`come_after`.

        Returns:
            As :meth:`in_order`, without the later ones.
        """
        own = self.definition
        keys = reader.keys_to_find(own)
        marked = later.selectExpr(*keys, f"struct({', '.join(self._marks())}) AS {NEXT}")
        first = marked.groupBy(*marked.columns[:-1]).agg(F.expr(f"min({NEXT}) AS {NEXT}"))
        return self._ended(reader.beside_keys(rows, own, F.broadcast(first)))

    def _ended(self, rows: DataFrame) -> DataFrame:
        """Rows with :data:`NEXT`, which ends them or does not; without those that it corrects."""
        anew, until = self.is_ended_anew(), field_of(NEXT, "w0" if self.definition.watermarkKey else "since")
        found: dict[str, Sql] = {
            UNTIL: case([(anew, until)], UNTIL),
            ENDED: case([(anew, field_of(NEXT, "since"))], ENDED),
        }
        return rows.filter(not_(self.is_corrected())).selectExpr(
            *[f"{found[n]} AS {n}" if n in found else quote(n) for n in rows.columns if n != NEXT],
            f"{any_of([is_not_null(NEXT), is_not_null(ENDED)])} AS {CLOSED}",
        )

    def as_stored(self, rows: DataFrame) -> DataFrame:
        """Rows of :meth:`scan` that end where they say, if anywhere: those of a base and of settled archives."""
        return rows.selectExpr("*", f"{is_not_null(ENDED)} AS {CLOSED}")
