"""Rows that a merge cannot write go into a quarantine table instead (S47)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import reduce
from typing import TypeAlias

import attrs
from pyspark.sql import DataFrame, functions as F

from trinitymerge.errors import InvalidMergeError, RejectedRowsError, counted
from trinitymerge.fs import faults
from trinitymerge.merge.analysis.key_match import uncastable_keys
from trinitymerge.merge.analysis.result import Analysis
from trinitymerge.merge.analysis.row_kinds import HAS_STALE_EFFECT
from trinitymerge.merge.compile import join
from trinitymerge.merge.compile.outbox_rows import with_outbox_columns
from trinitymerge.merge.compile.strategies import Compiled
from trinitymerge.merge.execute import outbox, validate
from trinitymerge.merge.execute.metrics import Observed, broken_rules, is_judged
from trinitymerge.merge.execute.outbox import StagedOutbox
from trinitymerge.merge.execute.plan import MergePlan
from trinitymerge.merge.execute.request import MergeSpec, Quarantine, Rejected
from trinitymerge.schema.definition import HIDDEN_PREFIX, TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.sql_text import Sql
from trinitymerge.stores.base import TableStore, require_managed

FAULT_POINTS = ("quarantine.staged",)
"""Where this module may be killed, see ``fs/faults.py``."""

CALL = "quarantine()"
COLUMNS = "target STRING NOT NULL, id STRING NOT NULL, reason STRING, clause INT, row STRING, version BIGINT, at TIMESTAMP_LTZ"
PRIMARY_KEY, WATERMARK = ("target", "id"), "at"
"""The definition of a quarantine table. ``version`` and ``at`` are those of the commit, so they are filled in on delivery."""

NO_REASON = Sql("CAST(NULL AS STRING)")

_SHOWN = 5


def opened(store: TableStore, definition: TableDefinition, given: Quarantine) -> Quarantine:
    """Return the quarantine of a merge, with its table as it is now."""
    found = outbox.opened(store, definition, given.table, CALL)
    own = found.definition
    columns = ", ".join(f"{f.name} {f.text}" for f in own.fields)
    names = tuple(column.split()[0] for column in COLUMNS.split(", "))
    if (own.primaryKey, own.watermarkKey) != (PRIMARY_KEY, (WATERMARK,)) or own.names != names:
        raise InvalidMergeError(
            f"{CALL} takes a quarantine table, and {given.table} has other columns or keys: {columns}. Create one with "
            "TrinityTable.createQuarantine(spark, path)."
        )
    return attrs.evolve(given, target=found)


def without_uncastable_keys(spec: MergeSpec, analysis: Analysis) -> MergeSpec | None:
    """Evaluate the source once, without rows whose text Spark cannot cast to compare it with a key (S17a).

    Return None if the condition equates no key with text, or without ANSI mode, where Spark's cast gives null instead of an error.
    """
    source = analysis.source
    if spec.settings.quarantine is None or source is None:
        return None
    wrong = uncastable_keys(analysis)
    if not wrong or str(spec.store.spark.conf.get("spark.sql.ansi.enabled")).lower() != "true":
        return None
    own, columns = analysis.definition, source.frame.columns[len(source.df.columns) :]
    reasons = [(fails, E.text_literal(f"type:{key}")) for key, fails in wrong.items()]
    reason = E.case(reasons, NO_REASON)
    once = join.materialize(source.frame.selectExpr("*", f"{reason} AS {C.REASON}"), {"rejected": f"count({C.REASON})"})
    keys = ", ".join(f"{E.null_of(own.field(k))} AS {E.quote(k)}" for k in own.primaryKey)
    shown = [f"{C.REASON} AS reason", f"{C.SOURCE_COLUMNS} AS source", f"struct({keys}) AS keys"]
    events = once.frame.where(E.is_not_null(C.REASON)).selectExpr(*shown) if once.observed["rejected"] else None
    rest = once.frame.where(E.is_null(C.REASON)).drop(C.REASON, *columns)
    rejected = attrs.evolve(spec.feed.rejected, events=events)
    return attrs.evolve(spec, source=rest).with_feed(rejected=rejected, source_rows=once.rows)


Reevaluate: TypeAlias = Callable[..., Compiled]
"""Evaluates the merge again; takes ``known_source`` and ``rejected_rows``, see :meth:`MergePlan.rows_on`."""


ROWS_OF_ONE_TASK = 20_000
"""Up to so many rows a single task is no slower than several and their shuffle."""


def read_several_times(plan: MergePlan, compiled: Compiled, again: Reevaluate) -> Compiled:
    """Return the rows of a merge, with their reasons and their rows for other tables (S27, S47).

    If there may be either, the rows are evaluated once (S32). Those with a reason are not kept. If another row's reason may decide
    whether a row has any for other tables, these are computed afterwards, and the rows evaluated twice.
    """
    if compiled.source_rows == 0:
        return compiled
    compiled, program, outbox_plan = _with_reasons(plan, compiled), compiled.program, plan.analysis.outbox_plan
    has_reasons = C.REASON in compiled.rows.columns
    if not has_reasons and outbox_plan is None:
        return compiled
    others_decide = program.multiplies or program.match is None or program.depends_on_others
    is_apart = has_reasons and outbox_plan is not None and others_decide
    compiled, rejected = _evaluated(compiled if is_apart else _with_outbox_columns(plan, compiled), has_reasons)
    compiled = _without_rejected(plan, compiled, again) if rejected else compiled
    return _evaluated(_with_outbox_columns(plan, compiled))[0] if is_apart else compiled


def _evaluated(compiled: Compiled, has_reasons: bool = False) -> tuple[Compiled, int]:
    """Evaluate rows, and count those with a reason."""
    once = join.materialize(compiled.rows, {"rejected": f"count({C.REASON})"} if has_reasons else None)
    is_small = once.rows <= ROWS_OF_ONE_TASK
    evaluated = attrs.evolve(compiled, rows=once.frame, in_one_task=is_small, is_evaluated=True)
    return evaluated, once.observed.get("rejected", 0)


def _with_reasons(plan: MergePlan, compiled: Compiled) -> Compiled:
    """Add :data:`C.REASON` to rows with :data:`C.SOURCE_COLUMNS`.

    A merge that changes primary keys is left as it is: a row that does not leave its key is in the way of another.
    """
    if C.SOURCE_COLUMNS not in compiled.rows.columns:
        return compiled
    if plan.spec.feed.rejected.are_all or compiled.program.moves:
        return attrs.evolve(compiled, rows=compiled.rows.drop(C.SOURCE_COLUMNS, C.SOURCE_ROW))
    rows = compiled.rows.selectExpr("*", f"{E.opaque(_reason(plan, compiled))} AS {C.REASON}")
    return attrs.evolve(compiled, rows=rows)


def _with_outbox_columns(plan: MergePlan, compiled: Compiled) -> Compiled:
    outbox_plan = plan.analysis.outbox_plan
    if outbox_plan is None:
        return compiled
    return attrs.evolve(compiled, rows=with_outbox_columns(compiled.rows, outbox_plan))


def _without_rejected(plan: MergePlan, compiled: Compiled, again: Reevaluate) -> Compiled:
    """Do not keep rows with a reason, nor others of their source rows.

    Where other rows decide whether a row is written, the rest is evaluated again: a rejected row frees and takes no key (S25), and
    changes nothing (S22b).
    """
    marked = _mark_rejected(plan.spec.feed.rejected, compiled.rows)
    if compiled.program.depends_on_others:
        rejected = marked.where(E.is_not_null(C.REASON))
        numbers = rejected.selectExpr(f"{C.SOURCE_ROW} AS {C.REJECTED_ROW}").distinct()
        rest = again(known_source=compiled.evaluated, rejected_rows=numbers)
        if C.JOINED_ROWS not in marked.columns:  # its rows for other tables are computed
            rest = _with_outbox_columns(plan, rest)
        known = rest.rows.selectExpr("*", f"CAST(NULL AS STRING) AS {C.REASON}")
        marked = join.materialize(known.unionByName(rejected)).frame
    return attrs.evolve(compiled, rows=marked, all_have_keys=False)


def _reason(plan: MergePlan, compiled: Compiled) -> Sql:
    """Return why a row alone would refuse the merge (S2, S11, S29, S45); null if it would not."""
    feed, settings, own = plan.spec.feed, plan.spec.settings, plan.definition
    branches: list[tuple[Sql, Sql]] = []
    if compiled.is_checked:
        column = Sql(f"substring_index({C.MISFIT}, '\t', 1)")
        branches.append((E.is_not_null(C.MISFIT), Sql(f"concat('type:', {column})")))
    required = own.watermarkKey if feed.is_sequenced else ()
    # Events are rejected in any order: also those older than a truncate, which are not written (T1).
    is_event = feed.rejected.carried and C.TRUNCATED in compiled.rows.columns
    kept = E.any_of([C.KEEP, C.TRUNCATED]) if is_event else C.KEEP
    judged = is_judged(compiled, own, kept)
    for rule in broken_rules(own, required):
        branches.append((E.all_of([judged, rule.is_broken]), E.text_literal(rule.reason)))
    if settings.on_stale == "error":
        branches.append((E.or_else(HAS_STALE_EFFECT, Sql("false")), E.text_literal("stale")))
    found, has_source = E.case(branches, NO_REASON), [E.is_not_null(C.SOURCE_COLUMNS)]
    if feed.extract is not None:  # keys that it lacks have rows, too (H11)
        has_source.append(E.is_not_null(E.field_of(C.SOURCE_COLUMNS, feed.rejected.carried)))
    return E.case([(E.all_of([kept, *has_source]), found)], NO_REASON)


def _source_row(feed: Rejected) -> Sql:
    """Return the number of the source row, or of the event, that a row comes from."""
    return Sql(f"{C.SOURCE_COLUMNS}.{E.quote(feed.number)}") if feed.number else C.SOURCE_ROW


def _mark_rejected(feed: Rejected, rows: DataFrame) -> DataFrame:
    """Return rows with reasons: those of the same source row have the same, and none of them is written."""
    number = _source_row(feed)
    rejected = rows.where(f"{C.REASON} IS NOT NULL AND {number} IS NOT NULL")
    of_row = rejected.groupBy(F.expr(f"{number} AS {C.REJECTED_ROW}"))
    worst = of_row.agg(F.expr(f"max({C.REASON}) AS {C.REJECTED_FOR}"))
    joined = rows.join(F.broadcast(worst), F.expr(f"{number} = {C.REJECTED_ROW}"), "left")
    reason = E.or_else(C.REASON, C.REJECTED_FOR)
    shown: dict[str, Sql] = {
        C.REASON: reason,
        C.KEEP: E.all_of([C.KEEP, E.is_null(reason)]),
        C.EFFECT: E.case([(E.is_null(reason), C.EFFECT)]),
        C.MISFIT: E.case([(E.is_null(reason), C.MISFIT)], NO_REASON),
        C.TRUNCATED: E.all_of([C.TRUNCATED, E.is_null(reason)]),
        **{c: E.case([(E.is_null(reason), Sql(c))]) for c in rows.columns if c.startswith(C.OUTBOX_VALUE)},
    }
    return joined.selectExpr(*[f"{shown[c]} AS {c}" if c in shown else E.quote(c) for c in rows.columns])


def without_refusing(
    plan: MergePlan,
    compiled: Compiled,
    observed: Observed,
    again: Reevaluate,
    mended: Callable[[], DataFrame],
    rounds: Iterator[int],
) -> Compiled | None:
    """Do not keep the rows that refuse the merge beside others, as the write job has observed (S12, U4).

    ``mended`` gives the stored rows that the merge mends, with their fillers. Return None if no row of the source is to blame.
    """
    if plan.spec.settings.quarantine is None or C.REASON not in compiled.rows.columns:
        return None
    marked = _with_ambiguous(plan, compiled.rows) if observed["contested"] else None
    if marked is None and observed["broken_mended"]:
        marked = _with_causes(plan, compiled.rows, mended(), next(rounds))
    return None if marked is None else _without_rejected(plan, attrs.evolve(compiled, rows=marked), again)


def _with_ambiguous(plan: MergePlan, rows: DataFrame) -> DataFrame | None:
    """Give a reason to different rows of one key and watermark (S12)."""
    own, names = plan.definition, [*plan.definition.primaryKey, *plan.definition.watermarkKey]
    keys = [f"{E.quote(n)} AS {C.CONTESTED(i)}" for i, n in enumerate(names)]
    found = validate.contradicting(own, rows.where(C.KEEP)).selectExpr(*keys, f"'ambiguous' AS {C.REJECTED_FOR}")
    return _marked(rows, found, E.all_of(E.same(E.quote(n), C.CONTESTED(i)) for i, n in enumerate(names)))


def _with_causes(plan: MergePlan, rows: DataFrame, mended: DataFrame, round: int) -> DataFrame | None:
    """Give a reason to the rows from which a stored row would take a value that breaks a rule (U4)."""
    own = plan.definition
    rules = [(rule.is_broken, E.text_literal(f"mended:{rule.reason}")) for rule in broken_rules(own, ())]
    broken = mended.selectExpr("*", f"{E.case(rules, NO_REASON)} AS {C.REJECTED_FOR}")
    causes = causes_of(broken.where(E.is_not_null(C.REJECTED_FOR)), C.FILLERS, C.REJECTED_FOR, own, round)
    causes = join.materialize(causes).frame
    place = {**E.numbered("k", map(E.quote, own.primaryKey)), **E.numbered("w", map(E.quote, own.watermarkKey))}
    return _marked(rows, causes, cause_sql(E.struct(place), len(own.primaryKey), round))


def _marked(rows: DataFrame, causes: DataFrame, is_cause: Sql) -> DataFrame | None:
    """Return the rows, evaluated, with the reasons of their causes; None if no kept row of the source has any.

    Rows of target-only clauses have no source row: they still refuse the merge.
    """
    on = E.all_of([C.KEEP, E.is_not_null(C.SOURCE_COLUMNS), is_cause])
    joined = rows.join(F.broadcast(causes), F.expr(on), "left")
    reason = f"coalesce({C.REASON}, {C.REJECTED_FOR}) AS {C.REASON}"
    if joined.where(E.is_not_null(C.REJECTED_FOR)).isEmpty():
        return None
    return join.materialize(joined.selectExpr(*[reason if c == C.REASON else E.quote(c) for c in rows.columns])).frame


PRECISE_ROUNDS = 5
"""So often only the rows that a stored row takes its values from are rejected; then also the older rows of their keys."""


def causes_of(broken: DataFrame, fillers: str, why: str, own: TableDefinition, round: int) -> DataFrame:
    """Return the places of rows from which ``broken`` stored rows would take values that break a rule, each with one reason.

    They are ``FILLER``, a struct of key and watermark, and ``REJECTED_FOR``; after the precise rounds the greatest of each key.
    """
    found = broken.selectExpr(f"explode({fillers}) AS {C.FILLER}", why)
    if round < PRECISE_ROUNDS:
        return found.groupBy(C.FILLER).agg(F.min(why).alias(C.REJECTED_FOR))
    keys = [F.expr(f"{C.FILLER}.k{i}") for i in range(len(own.primaryKey))]
    greatest, reason = F.max(C.FILLER).alias(C.FILLER), F.min(why).alias(C.REJECTED_FOR)
    return found.groupBy(*keys).agg(greatest, reason).select(C.FILLER, C.REJECTED_FOR)


def cause_sql(place: Sql, keys: int, round: int) -> Sql:
    """Return SQL that is true if a row at a place, a struct like ``FILLER``, is rejected for one; ``round`` is from 0."""
    if round < PRECISE_ROUNDS:
        return Sql(f"{place} = {C.FILLER}")
    return E.all_of([*(Sql(f"{place}.k{i} = {C.FILLER}.k{i}") for i in range(keys)), Sql(f"{place} <= {C.FILLER}")])


@attrs.frozen
class StagedQuarantine(StagedOutbox):
    """Rows for the quarantine, and how many there are, by reason."""

    reasons: Mapping[str, int] = attrs.field(factory=dict)


def stage_quarantine(plan: MergePlan, compiled: Compiled, source_rows: int | None) -> StagedQuarantine | None:
    """Stage the rows for the quarantine beside those of the merge; None if there are none."""
    quarantine, feed = plan.spec.settings.quarantine, plan.spec.feed.rejected
    if quarantine is None:
        return None
    parts = [_of_rows(plan, compiled)] if C.REASON in compiled.rows.columns else []
    parts += [_of_messages(plan, feed.messages)] if feed.messages is not None else []
    if feed.events is not None:
        events = feed.events.selectExpr("*", "CAST(NULL AS INT) AS clause")
        parts.append(_described(plan, events, Sql("source")))
    if not parts:
        return None
    store = require_managed(plan.spec.store, CALL)
    rows = _shaped(plan, numbered(reduce(DataFrame.unionByName, parts), "place"))
    staged = store.stage_outbox(rows.coalesce(1), plan.definition)
    faults.fault("quarantine.staged")
    try:
        written = store.read_staged(staged).selectExpr(f"{C.OUTBOX_ROW}.*")
        counts = written.groupBy("reason").count().orderBy("reason").collect()
        reasons = {row["reason"]: row["count"] for row in counts}
        total = sum(reasons.values())
        if total:
            _check(plan, quarantine, written, reasons, source_rows)
            assert quarantine.target is not None
            entry = attrs.evolve(outbox.entry_of(staged, total, quarantine.target), is_quarantine=True)
            return StagedQuarantine(staged, entry, reasons)
    except BaseException:
        store.discard(staged)
        raise
    store.discard(staged)
    return None


def _of_rows(plan: MergePlan, compiled: Compiled) -> DataFrame:
    """Return one row for each source row that is not written."""
    feed, rejected = plan.spec.feed.rejected, compiled.rows.where(f"{C.REASON} IS NOT NULL")
    alone = f"coalesce(CAST({_source_row(feed)} AS STRING), concat('-', monotonically_increasing_id()))"
    keys = f"first(struct({', '.join(map(E.quote, plan.definition.primaryKey))})) AS keys"
    columns = [f"max({C.REASON}) AS reason", f"min({C.CLAUSE}) AS clause", f"first({C.SOURCE_COLUMNS}) AS source", keys]
    grouped = rejected.groupBy(F.expr(f"{alone} AS number")).agg(*map(F.expr, columns))
    source = f"source.{E.quote(feed.carried)}" if feed.carried else "source"
    return _described(plan, grouped, Sql(source))


def _described(plan: MergePlan, rows: DataFrame, source: Sql) -> DataFrame:
    """Return what the quarantine keeps of rows with a source row or message, and a ``place``, by which equal ones are numbered."""
    if plan.spec.feed.rejected.messages is not None:  # a message may have several events, each with a text
        once = rows.selectExpr("*", f"{source}.raw AS row", f"{source}.position AS place").dropDuplicates(
            ["place", "row"]
        )
        return once.select(*_KEPT)
    fields = rows.selectExpr(f"{source}.*").columns
    shown = [n for n in fields if not n.startswith(HIDDEN_PREFIX) and n != plan.spec.feed.stored_column]
    columns_of = ", ".join(f"{source}.{E.quote(n)} AS {E.quote(n)}" for n in shown)
    told = rows.selectExpr("*", f"to_json(struct({columns_of}), {E.ALL_AS_JSON}) AS row")
    return told.selectExpr("*", "sha2(row, 256) AS place").select(*_KEPT)


def _of_messages(plan: MergePlan, messages: DataFrame) -> DataFrame:
    nulls = ", ".join(f"{E.null_of(plan.definition.field(k))} AS {E.quote(k)}" for k in plan.definition.primaryKey)
    clause = "CAST(NULL AS INT) AS clause"
    return messages.selectExpr("id AS place", "reason", "row", f"struct({nulls}) AS keys", clause).select(*_KEPT)


def numbered(rows: DataFrame, column: str) -> DataFrame:
    """Return the rows with a column made unique: equal values get a number, by their ``row``."""
    number = f"row_number() OVER (PARTITION BY {column} ORDER BY row)"
    told = rows.selectExpr("*", f"{number} AS nth")
    unique = f"CASE WHEN nth = 1 THEN {column} ELSE concat({column}, '#', nth) END"
    return told.selectExpr(*[E.quote(c) for c in rows.columns if c != column], f"{unique} AS {column}")


_KEPT = ("place", "reason", "row", "keys", "clause")


def _shaped(plan: MergePlan, rows: DataFrame) -> DataFrame:
    values = {
        "target": E.text_literal(plan.spec.store.path),
        "id": "place",
        "reason": "reason",
        "clause": "clause",
        "row": "row",
        "version": "CAST(NULL AS BIGINT)",
        "at": "CAST(NULL AS TIMESTAMP_LTZ)",
    }
    whole = ", ".join(f"{value} AS {name}" for name, value in values.items())
    keys = [f"keys.{E.quote(k)} AS {E.quote(k)}" for k in plan.definition.primaryKey]
    return rows.selectExpr(*keys, f"struct({whole}) AS {C.OUTBOX_ROW}", f"clause AS {C.CLAUSE}")


def _check(
    plan: MergePlan, quarantine: Quarantine, rows: DataFrame, reasons: Mapping[str, int], source_rows: int | None
) -> None:
    """Raise if too many rows are rejected."""
    total, feed = sum(reasons.values()), plan.spec.feed
    read = feed.counts.read if feed.counts is not None else feed.source_rows or source_rows
    if quarantine.max_fraction is None or not read or total / read <= quarantine.max_fraction:
        return
    some = [(row["id"], row["reason"]) for row in rows.orderBy("id").limit(_SHOWN).collect()]
    listed = ", ".join(f"{reason} ({number:,})" for reason, number in reasons.items())
    raise RejectedRowsError(
        f"{counted(total)} of {read:,} would go into the quarantine, more than the {quarantine.max_fraction:.2%} allowed by "
        f"maxFraction: {listed}. The first: {'; '.join(f'{place}: {why}' for place, why in some)}. Nothing was written.",
        reasons=dict(reasons),
        rows=total,
        positions=[place for place, _ in some],
    )
