"""The result of a merge: version, counts, times, hints (S30a, S30b)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import attrs

from trinitymerge import _format
from trinitymerge.errors import counted
from trinitymerge.merge.model.feed_counts import FeedCounts
from trinitymerge.reporting.charts import Bar, strip
from trinitymerge.reporting.merge import MergeFacts, merge_report


def _mapping(value: Mapping[str, float]) -> dict[str, float]:
    return dict(value)


def _numbers(value: Mapping[str, int]) -> dict[str, int]:
    return dict(value)


def _names(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


def _counts(values: Iterable[int | None]) -> tuple[int | None, ...]:
    return tuple(values)


_FOR_GOOD = "purge() is for good, but a new table takes such keys: TrinityTable.convert(spark, table.toDF(), path, primaryKey=...)"


@attrs.frozen
class MergeResult(_format.Result):
    """The result of a merge (S30a). Counts that need a read of the target are None if the strategy does not read it (S31).

    Attributes:
        version: the version of the merge; the newest one if it committed nothing. Automatic maintenance after it
            makes another.
        rowsInserted: keys that became live.
        rowsUpdated: live keys whose row was replaced; a moved key is one update.
        rowsDeleted: keys that ceased to be live.
        rowsStale: rows that are older than what they would replace (S11), and the inserts left out with them (S21a).
        rowsAppended: rows of the appended batch, tombstones included.
        rowsSource: rows of the source; None for merges without one, and for ``snapshot``, which does not count its extract.
        perClause: for each clause in order, the number of rows to which it applied; empty for feeds.
        strategy: ``"blind append"``, ``"keyed lookup"``, ``"full scan"``, or ``"none"`` when
            nothing had to run. Of a feed, how the table was read in all: ``snapshot`` is a full scan.
        rowsBelowHorizon: live rows that are older than tombstones the table has forgotten (S38): one of them may have
            brought a deleted key back. None if this is unknown.
        rowsTruncated: rows left out because they are older than the last truncate of the table (T1).
        rowsMended: stored partial rows that are written again, because late rows set what they leave unset (U4).
        columnsUnknown: values that rows leave unchanged and that no row has set (U2). They have their default, or are null.
        rowsPurged: rows left out because their key was purged. A purge is for good: a new table made of this one takes such keys.
        rowsUnchanged: updates left out because they would have changed nothing (``onlyIfChanged``, S22b).
        rowsQuarantined: source rows, or messages of a feed, that went into the quarantine (S47).
        quarantined: the same by reason.
        rowsHistory: rows for other tables (S27): they are there when ``execute()`` returns, unless ``hint`` says otherwise.
        columnsIgnored: source columns that ``updateAll`` and ``insertAll`` had no place for and that nothing in the merge
            mentions (S22a).
        columnsAdded: what ``withSchemaEvolution()`` has changed of the table's columns, in words (S44).
        feed: the messages of a feed, counted; None for other merges.
        skipped: why no row was committed, or an empty string.
        kept: what a version without rows keeps of the merge: the number of a transaction (S36), the moment of an extract (H11);
            otherwise empty.
        hint: maintenance that was done or left, and advice to call ``compact()``, once per process, table and base; usually empty.
        seconds: time per phase.
        batches: batches a reader now resolves.
        table: the path of the target; empty if nothing was committed, as are the next three.
        clauses: the clauses, with ``?`` for the literals of their conditions; empty for feeds.
        explanation: what ``explain()`` said of the merge.
        sql: what ``MergePlan.sql()`` said of it.

    Example:
        >>> print(MergeResult(version=3, rowsInserted=1, rowsUpdated=2, rowsDeleted=0, rowsStale=0, rowsAppended=3,
        ...                   rowsSource=3, perClause=(2, 1), strategy="keyed lookup"))
        version 3: 1 inserted, 2 updated, 0 deleted, 0 stale (3 rows appended from 3 source rows; keyed lookup)
    """

    version: int
    rowsInserted: int | None = 0
    rowsUpdated: int | None = 0
    rowsDeleted: int | None = 0
    rowsStale: int | None = 0
    rowsAppended: int = 0
    rowsSource: int | None = 0
    perClause: tuple[int | None, ...] = attrs.field(default=(), converter=_counts)
    strategy: str = "none"
    rowsBelowHorizon: int | None = 0
    rowsPurged: int = 0
    rowsTruncated: int = 0
    rowsMended: int = 0
    columnsUnknown: int = 0
    rowsUnchanged: int = 0
    rowsHistory: int = 0
    rowsQuarantined: int = 0
    quarantined: Mapping[str, int] = attrs.field(factory=dict, converter=_numbers)
    columnsIgnored: tuple[str, ...] = attrs.field(default=(), converter=_names)
    columnsAdded: tuple[str, ...] = attrs.field(default=(), converter=_names)
    feed: FeedCounts | None = None
    skipped: str = ""
    kept: str = ""
    hint: str = attrs.field(default="", eq=False)
    seconds: Mapping[str, float] = attrs.field(factory=dict, converter=_mapping, eq=False)
    batches: int = attrs.field(default=0, eq=False)
    table: str = attrs.field(default="", eq=False, repr=False)
    clauses: tuple[str, ...] = attrs.field(default=(), converter=_names, eq=False, repr=False)
    explanation: str = attrs.field(default="", eq=False, repr=False)
    sql: str = attrs.field(default="", eq=False, repr=False)

    def __str__(self) -> str:
        ignored = f"source columns left out: {', '.join(self.columnsIgnored)}" if self.columnsIgnored else ""
        purged = f"{counted(self.rowsPurged)} of purged keys left out; {_FOR_GOOD}" if self.rowsPurged else ""
        truncated = f"{counted(self.rowsTruncated)} older than the last truncate left out" if self.rowsTruncated else ""
        reasons = ", ".join(f"{reason} ({number:,})" for reason, number in self.quarantined.items())
        quarantined = f"{counted(self.rowsQuarantined)} into the quarantine: {reasons}" if self.rowsQuarantined else ""
        if self.skipped:
            what = f"nothing committed, {self.skipped}"
            if self.kept:
                what = f"no row was written, {self.skipped}; the version keeps {self.kept}"
            lines = (f"version {self.version}: {what}", purged, truncated, quarantined, ignored)
            return "\n  ".join(filter(None, lines))
        counts = (self.rowsInserted, self.rowsUpdated, self.rowsDeleted, self.rowsStale)
        words = ("inserted", "updated", "deleted", "stale")
        known = [f"{count:,} {word}" for count, word in zip(counts, words, strict=True) if count is not None]
        source = "" if self.rowsSource is None else f" from {counted(self.rowsSource, 'source row')}"
        appended = f"{counted(self.rowsAppended)} appended{source}"
        time = f"; {sum(self.seconds.values()):.1f} s" if self.seconds else ""
        how = f"{self.strategy}{time}"
        head = f"{', '.join(known)} ({appended}; {how})" if known else f"{appended} ({how})"
        notes = [
            "; ".join(self.columnsAdded),
            f"{counted(self.rowsBelowHorizon)} older than tombstones that are forgotten"
            if self.rowsBelowHorizon
            else "",
            purged,
            truncated,
            f"{counted(self.rowsMended)} mended by late rows" if self.rowsMended else "",
            f"{counted(self.columnsUnknown, 'unchanged value')} that no row has set" if self.columnsUnknown else "",
            f"{counted(self.rowsUnchanged)} unchanged" if self.rowsUnchanged else "",
            f"{counted(self.rowsHistory)} for other tables" if self.rowsHistory else "",
            quarantined,
            ignored,
            str(self.feed) if self.feed is not None else "",
            self.hint,
        ]
        return "\n  ".join([f"version {self.version}: {head}", *(n for n in notes if n)])

    def report(self, path: str) -> str:
        """Write a report of the merge as one HTML page; no job runs.

        The page shows the counts, the clauses and the rows to which each applied, the time per phase, what was read and why,
        and the merge as SQL. It loads no other file. Conditions and values of the merge are shown as they were given.

        Args:
            path: of the page, on this machine; an existing file is replaced.

        Returns:
            The path.

        Raises:
            OSError: the file cannot be written.

        Example:
            >>> from pathlib import Path
            >>> page = orders.delete(spark.sql("SELECT '1' AS order_id")).execute().report(f"{tmp_path}/merge.html")
            >>> "whenMatched()" in Path(page).read_text()
            True
        """
        Path(path).write_text(merge_report(self._facts()), "utf-8")
        return path

    def _facts(self) -> MergeFacts:
        name = self.table.rstrip("/").rsplit("/", 1)[-1]
        summary, *notes = str(self).split("\n  ")
        applied = self.perClause if len(self.perClause) == len(self.clauses) else (None,) * len(self.clauses)
        return MergeFacts(
            title=f"Merge into {name}, version {self.version}" if name else f"Merge, version {self.version}",
            summary=summary,
            counts=self.toDict(),
            clauses=list(zip(self.clauses, applied, strict=True)),
            seconds=self.seconds,
            explanation=self.explanation,
            sql=self.sql,
            notes=notes,
        )

    def _repr_html_(self) -> str:
        shown: dict[str, object] = self.toDict()
        shown["seconds"] = ", ".join(f"{k} {v:.2f}" for k, v in self.seconds.items())
        shown["columnsIgnored"] = ", ".join(self.columnsIgnored)
        shown["columnsAdded"] = "; ".join(self.columnsAdded)
        shown["quarantined"] = ", ".join(f"{reason} {n:,}" for reason, n in self.quarantined.items())
        shown["perClause"] = ", ".join("unknown" if n is None else f"{n:,}" for n in self.perClause)
        phases = [Bar(phase, s, f"{phase} {s:.2f} s") for phase, s in self.seconds.items() if s]
        return _format.pairs((name, value) for name, value in shown.items() if value != "") + strip(phases)
