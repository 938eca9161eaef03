"""Which events a merge with a quarantine takes: they are judged before they fill, mend or move anything (S47)."""

from __future__ import annotations

import logging
from collections.abc import Collection

import attrs
from pyspark.sql import DataFrame, functions as F

from trinitymerge.feeds.casts import cast_to_stored, may_misfit
from trinitymerge.feeds.events import CALL, ChangeEvents, ChangeFeed, free_name
from trinitymerge.feeds.fill import Filling
from trinitymerge.log.model import Snapshot
from trinitymerge.merge.compile.join import materialize
from trinitymerge.merge.execute.metrics import Rule, broken_rules
from trinitymerge.merge.execute.quarantine import cause_sql, causes_of
from trinitymerge.merge.execute.request import MergeSpec, Rejected
from trinitymerge.rows.registers import parts_of
from trinitymerge.rows.resolution import is_older
from trinitymerge.rows.tie_breaking import orderable
from trinitymerge.rows.watermarks import watermark_sql
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.sql_text import Sql

_logger = logging.getLogger(__name__)

_SHOWN = 5
_NO_REASON = Sql("CAST(NULL AS STRING)")


@attrs.frozen(eq=False)
class Judge:
    """Judges the events of a merge with a quarantine.

    Attributes:
        rejected: the events that are.
        rejects_stale: late events are rejected, too (S11).
        truncated_at: the watermark of a truncate before which no row is written, as SQL; empty if there is none.
    """

    definition: TableDefinition
    feed: ChangeFeed
    rejected: Rejected
    rejects_stale: bool
    truncated_at: tuple[Sql, ...] = ()

    @classmethod
    def of(cls, snapshot: Snapshot, feed: ChangeFeed, spec: MergeSpec) -> Judge | None:
        """Return the judge of a merge; None if events write only their own rows, which the merge judges."""
        if spec.settings.quarantine is None or not (
            feed.may_leave_unset or feed.truncates is not None or feed.moved_from is not None
        ):
            return None
        own, last = snapshot.definition, snapshot.truncate
        at = () if last is None or own.history else watermark_sql(last.watermark, own) or ()
        return cls(own, feed, spec.feed.rejected, spec.settings.on_stale == "error", tuple(at))

    @property
    def _key(self) -> list[Sql]:
        return [C.JUDGED_KEY(i) for i in range(len(self.definition.primaryKey))]

    @property
    def _watermark(self) -> list[Sql]:
        return [C.JUDGED_WATERMARK(n) for n in range(len(self.definition.watermarkKey))]

    @property
    def _place(self) -> str:
        """The place of an event or a row, its key and watermark, as a struct like those of ``KeyTimeline.fillers``."""
        keys = [f"{name} AS k{i}" for i, name in enumerate(self._key)]
        return f"struct({', '.join([*keys, *(f'{name} AS w{n}' for n, name in enumerate(self._watermark))])})"

    def _places(self) -> list[str]:
        own = self.definition
        named = zip((*own.primaryKey, *own.watermarkKey), (*self._key, *self._watermark), strict=True)
        return [f"{E.quote(column)} AS {name}" for column, name in named]

    def _with(self, rejected: DataFrame) -> Judge:
        """Return the judge with more rejected events: rows with a typed key, the carried column and a reason."""
        names = zip(self._key, self.definition.primaryKey, strict=True)
        keys = ", ".join(f"{name} AS {E.quote(k)}" for name, k in names)
        carried = f"{E.quote(self.rejected.carried)} AS source"
        found = rejected.selectExpr(f"{C.REASON} AS reason", carried, f"struct({keys}) AS keys")
        known = self.rejected.events
        events = found if known is None else known.unionByName(found)
        return attrs.evolve(self, rejected=attrs.evolve(self.rejected, events=events))

    def one_by_one(self, events: ChangeEvents, snapshot: Snapshot) -> tuple[ChangeEvents, Judge, int]:
        """Evaluate the events, and reject those that break a rule by what they say themselves.

        The result is the other events, each with a number; the judge with the rejected ones, and with what the others leave unset;
        and how many events there were.
        """
        own = self.definition
        columns, taken = events.rows.columns, [*events.rows.columns, *own.names]
        number, whole = free_name("event_number", taken), free_name("event", taken)
        filling = attrs.evolve(Filling.of(snapshot, events, self.feed), fails=False)
        facts = _Facts.of(events, filling)
        fitting = {c: f"CASE WHEN NOT {flag} THEN {whole}.{E.quote(c)} END" for c, flag in facts.misfits.items()}
        kept = [f"{fitting.get(c) or f'{whole}.{E.quote(c)}'} AS {E.quote(c)}" for c in columns]
        judged = events.rows.selectExpr(f"struct(*) AS {whole}", *facts.shown)
        judged = judged.selectExpr("*", f"{facts.reason} AS {C.REASON}")
        if facts.old_key:
            arrives = f"CASE WHEN {C.REASON} IS NULL THEN {facts.old_key} END"
            place = ", ".join(map(E.quote, (*own.primaryKey, *own.watermarkKey)))
            several = f"size(collect_set({arrives}) OVER (PARTITION BY {place})) > 1 AND {facts.old_key} IS NOT NULL"
            reason = f"CASE WHEN {several} THEN coalesce({C.REASON}, 'ambiguous') ELSE {C.REASON} END"
            judged = judged.withColumn(C.REASON, F.expr(reason))
        new = f"monotonically_increasing_id() AS {E.quote(number)}"
        numbered = judged.selectExpr(*kept, *self._places(), C.REASON, new)
        once = materialize(numbered, {"rejected": f"count({C.REASON})", **filling.unset_metrics})
        accepted = once.frame.where(E.is_null(C.REASON)).select(*map(F.col, map(E.quote, (*columns, number))))
        done = attrs.evolve(events, rows=accepted, number=number, mentioned=(*events.mentioned, number))
        judge = self._with(once.frame.where(E.is_not_null(C.REASON))) if once.observed["rejected"] else self
        return done, attrs.evolve(judge, feed=filling.with_unset_columns(once.observed)), once.rows

    def filled(
        self, events: ChangeEvents, done: ChangeEvents, holds: str, round: int
    ) -> tuple[ChangeEvents, ChangeEvents | None, Judge]:
        """Evaluate the filled events and the mended rows, and reject events by the values that fill them.

        An event is judged after the events that fill it. So an event whose filler is rejected waits for the next round. Different
        events of one place come next, and last the events from which a stored row would take values that break a rule.

        Returns:
            The filled events; the accepted events, to be filled again, or None if none was rejected; the judge with the rejected.
        """
        rows = self._beside_rules(done, holds)
        broken = Sql(f"{C.REASON} IS NOT NULL")
        written, mended = E.all_of([broken, E.not_(C.JUDGED_MENDED)]), E.all_of([broken, C.JUDGED_MENDED])
        counted = {"events": written, "ambiguous": C.JUDGED_AMBIGUOUS, "mended": mended}
        once = materialize(rows, {name: f"count_if({condition})" for name, condition in counted.items()})
        filled = attrs.evolve(done, rows=once.frame.select(*[F.col(E.quote(c)) for c in done.rows.columns]))
        wrong = once.frame.where(broken)
        if once.observed["events"]:
            rejected = self._without_waiting(once.frame, wrong.where(E.not_(C.JUDGED_MENDED)), done.number)
        elif once.observed["ambiguous"]:
            rejected = once.frame.where(C.JUDGED_AMBIGUOUS).withColumn(C.REASON, F.lit("ambiguous"))
        elif once.observed["mended"]:
            rejected = self._causes(once.frame, wrong.where(C.JUDGED_MENDED), done.number, round)
            self._warn(wrong.where(C.JUDGED_MENDED))
        else:
            return filled, None, self
        number = E.quote(done.number)
        columns = [number, C.REASON, E.quote(self.rejected.carried), *self._key]
        found = materialize(rejected.where(E.is_not_null(number)).selectExpr(*columns).dropDuplicates([done.number]))
        if not found.rows:  # a truncate is the cause: the merge is refused
            return filled, None, self
        left = events.rows.join(found.frame.selectExpr(number), done.number, "left_anti")
        return filled, attrs.evolve(events, rows=left), self._with(found.frame)

    def _without_waiting(self, rows: DataFrame, broken: DataFrame, number: str) -> DataFrame:
        """Return the events that break a rule, without those that a row of another one of them fills."""
        of_broken = rows.join(broken.selectExpr(E.quote(number)).distinct(), number, "left_semi")
        places = of_broken.selectExpr(f"{self._place} AS place").distinct()
        fillers = broken.selectExpr(E.quote(number), f"explode({C.JUDGED_FILLERS}) AS filler")
        waiting = fillers.join(places, F.expr("filler = place"), "left_semi").select(number).distinct()
        return broken.join(waiting, number, "left_anti")

    def _causes(self, rows: DataFrame, broken: DataFrame, number: str, round: int) -> DataFrame:
        """Return the events from which mended rows would take values that break a rule (``broken``)."""
        mended = broken.withColumn(C.REASON, F.expr(f"concat('mended:', {C.REASON})"))
        events = rows.where(E.all_of([E.not_(C.JUDGED_MENDED), E.is_not_null(E.quote(number))])).drop(C.REASON)
        is_cause = cause_sql(Sql(self._place), len(self.definition.primaryKey), round)
        joined = events.join(causes_of(mended, C.JUDGED_FILLERS, C.REASON, self.definition, round), F.expr(is_cause))
        return joined.withColumnRenamed(C.REJECTED_FOR, C.REASON)

    def _warn(self, broken: DataFrame) -> None:
        own, columns = self.definition, [*self._key, *self._watermark]
        named = dict(zip(columns, (*own.primaryKey, *own.watermarkKey), strict=True))
        some = broken.selectExpr(*columns, C.REASON).limit(_SHOWN).collect()
        rows = [f"({', '.join(f'{named[c]}={row[c]}' for c in columns)}): {row[C.REASON]}" for row in some]
        told = "%s: late events go into the quarantine, because stored rows would take values from them and break a rule: %s."
        _logger.warning(told, CALL, "; ".join(rows))

    def _beside_rules(self, done: ChangeEvents, holds: str) -> DataFrame:
        """Return filled events and mended rows with their places, reasons, and what decides between them."""
        own, rows = self.definition, done.rows
        whole = free_name("event", [*rows.columns, *own.names])
        dies = E.or_else(Sql(f"{whole}.{E.quote(done.is_delete)}"), E.FALSE)
        values = {own.tombstone_column: E.quote(done.is_delete)} if not own.tombstoneKey else {}
        for field in own.fields:
            column = E.find_name(field.name, rows.columns, E.is_case_sensitive(rows.sparkSession))
            value = E.null_of(field)
            if column is not None:
                is_key, follows = field.name in own.primaryKey, self.feed.follows
                value = cast_to_stored(rows, column, field, CALL, is_key, fails=False, follows=follows)
            values[field.name] = value
        shown = [f"{value} AS {E.quote(name)}" for name, value in values.items()]
        beside = Sql(f"{whole}.{E.quote(holds)}")
        latest = [Sql(f"{beside}.w{n}") for n in range(len(own.watermarkKey))]
        is_mended, is_dead = Sql(f"{beside}.{C.MENDED}"), E.any_of([dies, E.is_tombstone(own)])
        marks = [E.quote(w) for w in own.watermarkKey]
        is_older_than_latest = E.all_of([E.is_not_null(Sql(f"{beside}.live")), is_older(marks, latest)])
        is_truncated = is_older(marks, self.truncated_at) if self.truncated_at else E.FALSE
        is_late = E.all_of([E.not_(is_mended), E.any_of([is_older_than_latest, is_truncated])])
        # A late row cannot be filled: without history, only the latest row of its key is stored.
        is_partial = E.all_of([E.is_not_null(Sql(f"{beside}.{C.UNSET}")), is_late])
        is_whole = E.not_(E.FALSE if own.history else is_partial)
        applies = E.all_of([E.not_(is_dead), is_whole])
        rules = [(E.all_of([applies, rule.is_broken]), E.text_literal(rule.reason)) for rule in _rules(own, own.names)]
        stale = [(is_late, E.text_literal("stale"))] if self.rejects_stale else []
        content = ", ".join(orderable(f.name, E.physical_type(f)) for f in own.fields)
        event = f"CASE WHEN NOT {is_mended} THEN struct({is_dead} AS dead, {content}) END"
        place = f"OVER (PARTITION BY {', '.join(map(E.quote, (*own.primaryKey, *own.watermarkKey)))})"
        differ = f"min({event}) {place} <> max({event}) {place} AND count_if(NOT {is_mended} AND NOT ({is_dead})) {place} > 0"
        return rows.selectExpr(f"struct(*) AS {whole}", *shown).selectExpr(
            f"{whole}.*",
            *self._places(),
            f"{E.case([*rules, *stale], _NO_REASON)} AS {C.REASON}",
            f"coalesce(NOT {is_mended} AND {differ}, false) AS {C.JUDGED_AMBIGUOUS}",
            f"{is_mended} AS {C.JUDGED_MENDED}",
            f"{beside}.fillers AS {C.JUDGED_FILLERS}",
        )


def _rules(own: TableDefinition, known: Collection[str]) -> list[Rule]:
    """Return the rules over columns that are known, but for nulls in the key."""
    rules = broken_rules(own, own.watermarkKey)
    return [rule for rule in rules if rule.columns != own.primaryKey and {*rule.columns} <= {*known}]


@attrs.frozen(eq=False)
class _Facts:
    """The facts that events state by themselves, as SQL.

    Attributes:
        shown: select items over the events: the columns of the table in their types, and flags.
        reason: over these, why an event is rejected; null if it is not.
        misfits: columns of events with values that may not fit, and the flags that say so.
        old_key: over these, the old key of an event whose key has changed, a struct; empty without old keys.
    """

    shown: list[str]
    reason: Sql
    misfits: dict[str, Sql]
    old_key: str

    @classmethod
    def of(cls, events: ChangeEvents, filling: Filling) -> _Facts:
        """Gather them; the filling takes a value that does not fit for null."""
        own = filling.registers.definition
        is_truncate = E.quote(events.is_truncate) if events.is_truncate != events.is_delete else E.FALSE
        shown = [f"{filling.dies} AS {C.JUDGED_DIES}", f"{is_truncate} AS {C.JUDGED_TRUNCATE}"]
        shown += [] if own.tombstoneKey else [f"{E.FALSE} AS {E.quote(own.tombstone_column)}"]
        misfits, wrong = dict[str, Sql](), list[tuple[Sql, Sql]]()
        of_keys, lives = E.not_(C.JUDGED_TRUNCATE), E.all_of([E.not_(C.JUDGED_TRUNCATE), E.not_(C.JUDGED_DIES)])

        def judge_type(column: str, value: Sql, field: Field, applies: Sql) -> None:
            flag = misfits[column] = C.JUDGED_MISFIT(len(misfits))
            shown.append(f"{E.all_of([E.is_not_null(E.quote(column)), E.is_null(value)])} AS {flag}")
            wrong.append((E.all_of([applies, flag]), E.text_literal(f"type:{field.name}")))

        parts, sets = {part.path[0]: part for part in parts_of(own)}, dict[str, Sql]()
        for i, field in enumerate(own.fields):
            column, value = filling.column(field.name), filling.value(field.name)
            shown.append(f"{value} AS {E.quote(field.name)}")
            if column is None:
                continue
            applies = sets[field.name] = E.not_(E.FALSE)
            applies = applies if field.name in own.watermarkKey else of_keys
            if field.name in parts:
                shown.append(f"{E.any_of(map(filling.unset, parts[field.name].all()))} AS {C.JUDGED_UNSET(i)}")
                shown.append(f"{E.any_of(map(filling.leaves, parts[field.name].all()))} AS {C.JUDGED_LEFT(i)}")
                applies, sets[field.name] = E.all_of([lives, E.not_(C.JUDGED_LEFT(i))]), E.not_(C.JUDGED_UNSET(i))
            is_key = field.name in own.primaryKey
            if may_misfit(events.rows, column, field, is_key, filling.feed.follows):
                judge_type(column, value, field, applies)
        old_key = ""
        if events.old_key:
            before = [C.JUDGED_OLD_KEY(i) for i in range(len(own.primaryKey))]
            for name, column, key in zip(before, events.old_key, own.primaryKey, strict=True):
                value = cast_to_stored(events.rows, column, own.field(key), CALL, is_key=True, fails=False)
                shown.append(f"{value} AS {name}")
                if may_misfit(events.rows, column, own.field(key), is_key=True):
                    judge_type(column, value, own.field(key), of_keys)
            is_partial = E.all_of([E.any_of(map(E.is_null, before)), E.any_of(map(E.is_not_null, before))])
            wrong.append((is_partial, E.text_literal("null-key")))
            moves = E.not_(E.all_of(E.same(old, E.quote(k)) for old, k in zip(before, own.primaryKey, strict=True)))
            old_key = f"CASE WHEN {E.is_not_null(before[0])} AND {moves} THEN struct({', '.join(before)}) END"
        null_key = E.any_of(E.is_null(E.quote(k)) for k in own.primaryKey)
        wrong.append((E.all_of([lives, null_key]), E.text_literal("null-key")))
        for rule in _rules(own, sets):
            is_sequence = {*rule.columns} <= {*own.watermarkKey} and rule.name.startswith("null")
            applies = E.not_(E.FALSE) if is_sequence else E.all_of([lives, *(sets[n] for n in rule.columns)])
            wrong.append((E.all_of([applies, rule.is_broken]), E.text_literal(rule.reason)))
        return cls(shown, E.case(wrong, _NO_REASON), misfits, old_key)
