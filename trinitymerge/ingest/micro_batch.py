"""One micro-batch of messages: decoded once, and merged into the table of each source table."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from functools import reduce
from typing import Any

import attrs
from pyspark.sql import DataFrame, SparkSession, functions as F

from trinitymerge.errors import InvalidMergeError, RejectedRowsError, TrinityMergeError, counted
from trinitymerge.feeds.feed import Feed
from trinitymerge.feeds.wire import PLACE, place_in_words
from trinitymerge.feeds.wire_rows import OTHER_TABLE
from trinitymerge.ingest.config import Config, ConfigError, TableRule, milliseconds
from trinitymerge.ingest.report import BatchReport, TableReport
from trinitymerge.ingest.sources import feed_of
from trinitymerge.merge.builder import MergeBuilder
from trinitymerge.merge.execute.quarantine import numbered
from trinitymerge.merge.model.result import MergeResult
from trinitymerge.spark import expressions as E
from trinitymerge.spark.errors import clean_message, is_spark_error
from trinitymerge.spark.session import in_thread
from trinitymerge.table import TrinityTable

_SHOWN = 5
_KEY_NAMES = "key_names"
_NO_TABLE = "no-table"
"""Why an event is rejected that names no source table, where there are several."""


class IngestError(TrinityMergeError, RuntimeError):
    """Merges have failed, or messages cannot be read (``is_rejected``, if it is only that); the stream has stopped."""

    is_rejected: bool


@attrs.frozen
class Found:
    """The messages of a source table in a micro-batch.

    Attributes:
        source: the source table; None for messages that name none.
        rejected: how many cannot be read, by reason.
        skipped: how many are neither, by kind.
        newest: the newest time of a commit at the source.
    """

    source: str | None
    events: int
    rejected: Mapping[str, int]
    skipped: Mapping[str, int]
    newest: datetime | None

    @property
    def read(self) -> int:
        return self.events + sum(self.rejected.values()) + sum(self.skipped.values())


class Names:
    """The names of primary keys and columns in the messages of a micro-batch.

    All messages are decoded once more for them. So that is done once, and only if a table is to be created that does not know them.
    """

    def __init__(self, feed: Feed) -> None:
        self._messages, self._lock, self._rows = feed.decoded(), threading.Lock(), list[Any]()

    def of(self, sources: Iterable[str] | None) -> tuple[Sequence[str], Sequence[str]]:
        """Return the names of the primary key and of the columns in the newest message that says them; ``sources`` None is all.

        It may run a job.
        """
        asked = None if sources is None else {*sources}
        with self._lock:
            if not self._rows:
                keys = f"max(CASE WHEN size({_KEY_NAMES}) > 0 THEN struct(seq, {_KEY_NAMES} AS names) END) AS keys"
                columns = "max(CASE WHEN op = 'upsert' THEN struct(seq, map_keys(row) AS names) END) AS columns"
                self._rows = self._messages.groupBy("source").agg(F.expr(keys), F.expr(columns)).collect()
        rows = [row for row in self._rows if asked is None or (row["source"] or "") in asked]

        def newest(column: str) -> Sequence[str]:
            said = [row[column] for row in rows if row[column] is not None]
            return max(said, key=lambda one: str(one["seq"]))["names"] if said else ()

        return newest("keys"), newest("columns")


@attrs.frozen(eq=False)
class Part:
    """The messages of a micro-batch that go into one table.

    Attributes:
        sources: the source tables of its messages; None for all, empty for those that name none.
        names: those of columns in the messages of the micro-batch.
        error: why there can be no such table, or None.
    """

    found: Found
    rule: TableRule
    path: str
    feed: Feed
    sources: tuple[str, ...] | None
    names: Names
    error: ConfigError | None = None


@attrs.frozen
class Routed:
    """The messages of a micro-batch by table.

    Attributes:
        lost: those without an event among them, with the target that the quarantine shows. They need no table.
        skipped: how many of the latter are skipped, by kind.
        rejected: how many of the latter are rejected, by reason.
    """

    parts: tuple[Part, ...]
    lost: tuple[tuple[str, DataFrame], ...] = ()
    skipped: Mapping[str, int] = attrs.field(factory=dict)
    rejected: Mapping[str, int] = attrs.field(factory=dict)


def decoded_once(feed: Feed) -> DataFrame:
    """Return the messages of a feed, decoded and persisted, without the names of their primary key."""
    return feed.decoded().drop(_KEY_NAMES).persist()


def as_it_is(frame: DataFrame, _: object) -> DataFrame:
    return frame


def found_in(decoded: DataFrame) -> list[Found]:
    """Return the messages by source table. It runs a job."""
    counts = F.expr("count(1) AS n"), F.expr("unix_micros(max(at)) AS newest")
    of_source: dict[str | None, list[Any]] = {}
    for row in decoded.groupBy("source", "op", "skipped", "rejected").agg(*counts).collect():
        of_source.setdefault(row["source"] or None, []).append(row)
    return [_found(source, of_source[source]) for source in sorted(of_source, key=lambda s: (s is None, s))]


def _found(source: str | None, rows: Sequence[Any]) -> Found:
    def by(column: str) -> dict[str, int]:
        totals = Counter[str]()
        for row in rows:
            if row["op"] is None and row[column] is not None:
                totals[row[column]] += row["n"]
        return dict(sorted(totals.items()))

    events = [row for row in rows if row["op"] is not None]
    times = [row["newest"] for row in events if row["newest"] is not None]
    newest = datetime.fromtimestamp(max(times) / 1e6, timezone.utc) if times else None
    return Found(source, sum(row["n"] for row in events), by("rejected"), by("skipped"), newest)


# Merging --------------------------------------------------------------------------------------------------------------


class Merger:
    """The function that a stream calls with each micro-batch; ``error`` is why the stream has failed.

    ``on_progress`` is called with the counts of a micro-batch before its tables are merged, and then with the report of each table.
    """

    def __init__(
        self,
        config: Config,
        on_report: Callable[[BatchReport], object],
        on_progress: Callable[[BatchReport | TableReport], object] = lambda _: None,
    ) -> None:
        self.error: BaseException | None = None
        self._config, self._on_report, self._on_progress = config, on_report, on_progress
        self._lock, self._is_ending = threading.Lock(), False
        self._compacted: dict[str, float] = {}

    def end(self) -> None:
        """Return when no micro-batch is being merged, and let none begin."""
        self._is_ending = True
        with self._lock:
            pass

    def __call__(self, batch: DataFrame, number: int) -> None:
        with self._lock:
            if self._is_ending:
                raise _Ended
            try:
                self._merge(batch, number)
            except BaseException as error:
                self.error = error
                raise

    def _merge(self, batch: DataFrame, number: int) -> None:
        began = time.monotonic()
        feed = feed_of(self._config, batch)
        decoded = decoded_once(feed)
        try:
            found = found_in(decoded)
            routed = routed_by(self._config, feed, decoded, found)
            read = sum(f.read for f in found)
            told = BatchReport(number, read, routed.skipped, routed.rejected)
            self._on_progress(told)
            outcomes = self._in_parallel(routed.parts, number)
            failed = {part: e for part, (_, e) in zip(routed.parts, outcomes, strict=True) if e is not None}
            unreadable = _unreadable(routed, read, self._config)
            self._keep([] if unreadable else routed.lost, failed)
            uncompacted = self._compact([part for part in routed.parts if part not in failed], decoded.sparkSession)
        finally:
            decoded.unpersist()
        reports = tuple(report for report, _ in outcomes)
        self._on_report(attrs.evolve(told, seconds=time.monotonic() - began, tables=reports))
        errors: list[tuple[str, Exception]] = [("", unreadable)] if unreadable else []
        if self._config.run.onTableError == "stop":
            errors += [(part.found.source or part.path, error) for part, error in failed.items()]
        errors += uncompacted
        if errors:
            raise _failure(errors, number) from errors[0][1]

    def _in_parallel(self, parts: Sequence[Part], number: int) -> list[tuple[TableReport, Exception | None]]:
        def merged(part: Part) -> tuple[TableReport, Exception | None]:
            report, failure = self._tried(part, number)
            self._on_progress(report)
            return report, failure

        if len(parts) <= 1 or self._config.run.threads == 1:
            return [merged(part) for part in parts]
        spark = parts[0].feed.frame.sparkSession
        with ThreadPoolExecutor(self._config.run.threads) as pool:
            running = [pool.submit(in_thread(spark, merged), part) for part in parts]
            return [future.result() for future in running]

    def _tried(self, part: Part, number: int) -> tuple[TableReport, Exception | None]:
        """Return the report of a table, and why its merge failed: the other tables go on."""
        found = part.found
        try:
            if part.error is not None:
                raise part.error
            return self._merged(part, number), None
        except Exception as error:  # noqa: BLE001 - the other tables go on
            told = TableReport(found.source or "", part.path, found.read, error=_text(error))
            if self._config.run.onTableError == "quarantine":
                lost = {_why(error): found.events + sum(found.rejected.values())}
                told = attrs.evolve(told, skipped=sum(found.skipped.values()), rejected=lost)
            return told, error

    def _merged(self, part: Part, number: int) -> TableReport:
        began = time.monotonic()
        spark = part.feed.frame.sparkSession
        config, rule = self._config, part.rule
        table = self._opened(spark, part)
        quarantine = TrinityTable.createQuarantine(spark, config.quarantine) if config.quarantine else None

        def merge(target: TrinityTable, _: DataFrame) -> MergeBuilder:
            chain = target.applyChanges(part.feed, columns=rule.columns or None, exceptColumns=rule.exceptColumns)
            if quarantine is not None:
                chain = chain.quarantine(quarantine, config.run.maxRejected)
            return chain.withSchemaEvolution() if config.target.onNewColumn == "add" else chain

        results: list[MergeResult] = []
        app = f"{config.run.app}: {part.found.source}" if part.found.source else config.run.app
        _check_source(table, config.run.app, app)
        table.foreachBatch(merge, app, results.append)(part.feed.frame, number)
        return _report(part, results[0], time.monotonic() - began)

    def _opened(self, spark: SparkSession, part: Part) -> TrinityTable:
        source = part.found.source or ""
        if TrinityTable.isTrinityTable(spark, part.path):
            return TrinityTable.forPath(spark, part.path)
        if not self._config.target.create:
            raise IngestError(f"There is no table at {part.path}, and [target] create is false.", is_rejected=False)
        columns, keys, watermark, history = definition_of(self._config, part)
        return TrinityTable.createIfNotExists(
            spark,
            part.path,
            columns,
            primaryKey=keys,
            watermarkKey=watermark,
            history=history,
            comment=source or None,
            clusterBy=part.rule.clusterBy,
        )

    def _compact(self, parts: Sequence[Part], spark: SparkSession) -> list[tuple[str, Exception]]:
        """Compact the tables that are due, each one also if another fails. Return the errors by table."""
        every, errors = milliseconds(self._config.run.compactEvery), list[tuple[str, Exception]]()
        if every is None:
            return errors
        for part in parts:
            last = self._compacted.setdefault(part.path, time.monotonic())
            if time.monotonic() - last >= every / 1000:
                try:
                    TrinityTable.forPath(spark, part.path).compact()
                    self._compacted[part.path] = time.monotonic()
                except Exception as error:  # noqa: BLE001 - of any kind
                    errors.append((part.path, error))
        return errors

    def _keep(self, lost: Sequence[tuple[str, DataFrame]], failed: Mapping[Part, Exception]) -> None:
        """Put messages without a table into the quarantine, and those of tables whose merge failed, if that is asked for."""
        config = self._config
        frames = [_kept(messages, target, f"coalesce(rejected, '{_NO_TABLE}')") for target, messages in lost]
        if config.run.onTableError == "quarantine":
            for part, error in failed.items():
                frames.append(_kept(part.feed.frame, part.path or config.run.app, E.text_literal(_why(error))))
        if frames:
            rows = numbered(reduce(DataFrame.unionByName, frames), "id")
            # No transaction: a repeated micro-batch may have other such messages, and replaces those that are there.
            TrinityTable.createQuarantine(rows.sparkSession, config.quarantine).upsert(rows).execute()


def _check_source(table: TrinityTable, app: str, own: str) -> None:
    """Raise if the table has events of another source table from this stream: their positions cannot be compared."""
    others = [name for name in table._store.snapshot().transactions if name.startswith(f"{app}: ") and name != own]
    if others:
        other, source = (name.removeprefix(f"{app}: ") for name in (others[0], own))
        raise IngestError(
            f"{table.path} has the events of {other} from this stream, so it does not get those of {source}: their positions "
            "cannot be compared. Give a path in a [[table]], or skip = true. If the source table was renamed, give another [run] "
            "app.",
            is_rejected=False,
        )


class _Ended(Exception):  # noqa: N818 - the stream is to stop; nothing has failed
    """The ingestion is ending, so that a micro-batch does not begin."""


def _why(error: Exception) -> str:
    return f"table:{type(error).__name__}"


_IS_MESSAGE = "(op IS NOT NULL OR rejected IS NOT NULL)"


def _kept(messages: DataFrame, target: str, reason: str) -> DataFrame:
    columns = [f"{E.text_literal(target)} AS target", f"{PLACE} AS id", f"{reason} AS reason"]
    columns += ["CAST(NULL AS INT) AS clause", "value AS row", "CAST(NULL AS BIGINT) AS version"]
    columns += ["current_timestamp() AS at"]
    return messages.where(_IS_MESSAGE).selectExpr(*columns)


def routed_by(config: Config, feed: Feed, decoded: DataFrame, found: Sequence[Found]) -> Routed:
    only = config.only_table
    parts, lost = list[Part](), list[tuple[str, DataFrame]]()
    skipped, rejected, sources = Counter[str](), Counter[str](), dict[str, str]()
    names = Names(feed)
    for one, rule, of_sources in _by_rule(config, found):
        own = decoded if of_sources is None else decoded.where(_is_of(of_sources))
        if rule.partitions:
            own = own.withColumn("source", F.lit(rule.source))
        if rule.skip and one.source:
            skipped[OTHER_TABLE] += one.read
            continue
        if one.events and (one.source or only):
            path, error = _path(config, one, rule, sources)
            options = attrs.evolve(feed.options, rename={**feed.options.rename, **rule.rename})
            messages = attrs.evolve(feed, options=options, frame=own, decode=as_it_is)
            part = Part(one, rule, path, messages, of_sources, names, error)
            sources.setdefault(part.path, one.source or "")
            parts.append(part)
            continue
        skipped.update(one.skipped)
        reasons = {**one.rejected, _NO_TABLE: one.events} if one.events else one.rejected
        rejected.update(reasons)
        if reasons:
            lost.append((config.run.app, own))
    return Routed(tuple(parts), tuple(lost), dict(skipped), dict(rejected))


def _is_of(sources: Sequence[str]) -> str:
    """Return SQL that is true of the messages of some source tables; of an empty name, of those that name none."""
    named = f"source IN ({', '.join(map(E.text_literal, sources))})"
    return f"({named} OR source IS NULL)" if "" in sources else named


def _by_rule(config: Config, found: Sequence[Found]) -> Iterator[tuple[Found, TableRule, tuple[str, ...] | None]]:
    """Yield what goes into one table: messages, their rule, and their source tables; None for all."""
    only, of_partitions = config.only_table, dict[str, list[Found]]()
    if only is not None:
        yield from [(_together(found, None), only, None)] if found else []
        return
    for one in found:
        rule = config.rule_of(one.source or "")
        if rule.partitions and one.source:
            of_partitions.setdefault(rule.source, []).append(one)
        else:
            yield one, rule, (one.source or "",)
    for source, ones in of_partitions.items():
        yield _together(ones, source), config.rule_of(ones[0].source or ""), tuple(one.source or "" for one in ones)


def _path(config: Config, found: Found, rule: TableRule, sources: Mapping[str, str]) -> tuple[str, ConfigError | None]:
    """Return the path of a source table's table, and why it is not possible: it needs a name, or another source table has it."""
    try:
        path = config.path_of(found.source or "", rule)
    except ConfigError as error:
        return "", error
    other = sources.get(path)
    if other is None:
        return path, None
    return path, ConfigError(
        f"{other} and {found.source} would go into one table, {path}. Positions of different tables cannot be compared. "
        "Give a path in a [[table]], or skip = true."
    )


def definition_of(config: Config, part: Part) -> tuple[str, Sequence[str], Sequence[str], bool]:
    """Return the columns, the primary key, the watermark of a new table, and whether it has history."""
    source, rule = part.found.source or "", part.rule
    name = f'source = "{source}"' if source else "the path"
    names = {old.casefold(): new for old, new in part.feed.options.rename.items()}
    keys = rule.keys or tuple(names.get(key.casefold(), key) for key in part.names.of(part.sources)[0])
    if not keys:
        raise IngestError(
            f"The primary key of {source or part.path} is not known: its messages do not say it. Give keys = [...] in a [[table]] "
            f"with {name}, or skip = true.",
            is_rejected=False,
        )
    history = config.has_history(source, rule)
    watermark = ["_ts", "_seq"] if history else ["_seq"]
    try:
        said = f"{rule.schema}, _seq STRING" if rule.schema else part.feed.schema()
    except InvalidMergeError as error:
        _, columns = part.names.of(part.sources)
        raise IngestError(
            f"The types of {source or part.path} are not known: its messages do not say them. Give schema = "
            f'"{", ".join(f"{column} ..." for column in columns)}" in a [[table]] with {name}, or create the table.',
            is_rejected=False,
            keys=tuple(keys),
        ) from error
    return (f"_ts TIMESTAMP_LTZ, {said}" if history else said), keys, watermark, history


def _together(found: Sequence[Found], source: str | None) -> Found:
    def added(counts: Iterable[Mapping[str, int]]) -> dict[str, int]:
        totals = Counter[str]()
        for one in counts:
            totals.update(one)
        return dict(totals)

    events, newest = sum(f.events for f in found), max((f.newest for f in found if f.newest), default=None)
    return Found(source, events, added(f.rejected for f in found), added(f.skipped for f in found), newest)


def _report(part: Part, result: MergeResult, seconds: float) -> TableReport:
    counts, newest = result.feed, part.found.newest
    told = TableReport(part.found.source or "", part.path, part.found.read, seconds=seconds, version=result.version)
    if counts is None:
        return attrs.evolve(told, repeated=True)
    return attrs.evolve(
        told,
        upserts=counts.upserts,
        deletes=counts.deletes,
        truncates=counts.truncates,
        skipped=sum(counts.skipped.values()),
        rejected=result.quarantined,
        appended=result.rowsAppended,
        lag=None if newest is None else max(0.0, time.time() - newest.timestamp()),
    )


def _unreadable(routed: Routed, read: int, config: Config) -> IngestError | None:
    """Return an error if messages without a table are rejected, and cannot go into the quarantine."""
    total = sum(routed.rejected.values())
    if not total or (config.quarantine and total / read <= config.run.maxRejected):
        return None
    frames = [messages.where(_IS_MESSAGE) for _, messages in routed.lost]
    columns = [f"coalesce(rejected, '{_NO_TABLE}') AS why", f"{PLACE} AS id", "value"]
    some = reduce(DataFrame.unionByName, frames).selectExpr(*columns).orderBy("id").limit(_SHOWN).collect()
    reasons = ", ".join(f"{reason} ({number:,})" for reason, number in routed.rejected.items())
    shown = "; ".join(f"{place_in_words(row['id'], row['value'])}: {row['why']}" for row in some)
    too_many = f"more than [run] maxRejected, {config.run.maxRejected:.2%}"
    allowed = too_many if config.quarantine else "and there is no quarantine"
    return IngestError(
        f"{counted(total, 'message')} cannot be read, {allowed}: {reasons}. The first: {shown}. "
        'Give [target] quarantine = "a path" to go on without them.',
        is_rejected=True,
        reasons=dict(routed.rejected),
    )


def _failure(errors: Sequence[tuple[str, Exception]], number: int) -> IngestError:
    texts = [text if name in (text := _text(error)) else f"{name}: {text}" for name, error in errors[:_SHOWN]]
    told = " ".join(text if text.endswith(".") else f"{text}." for text in texts)
    more = f" And {len(errors) - _SHOWN} more." if len(errors) > _SHOWN else ""
    return IngestError(
        f"Micro-batch {number} stopped the stream. {told}{more} Start the same command again once this is mended: tables that have "
        "the micro-batch skip it.",
        is_rejected=all(getattr(e, "is_rejected", isinstance(e, RejectedRowsError)) for _, e in errors),
    )


def _text(error: Exception) -> str:
    return clean_message(error) if is_spark_error(error) else str(error)
