"""Why a batch is refused, with the rows to name; Spark's errors in words of merges (S12, S34)."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.errors import PythonException
from pyspark.sql import Column, DataFrame, Row, functions as F

from trinitymerge import errors
from trinitymerge.errors import counted
from trinitymerge.log.model import Snapshot
from trinitymerge.merge.analysis.row_kinds import CONFLICTING_MOVE, DUPLICATE, HAS_STALE_EFFECT, STALE_MOVE
from trinitymerge.merge.execute.metrics import Observed, StagedRows, any_null
from trinitymerge.merge.model.clauses import Clause, describe_all
from trinitymerge.merge.model.names import key_text, name_parts
from trinitymerge.rows.tie_breaking import orderable
from trinitymerge.rows.watermarks import Watermark, literal_sql, raised_to
from trinitymerge.schema.constraints import Check
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.schema.field import Field
from trinitymerge.schema.nullability import dotted, never_null
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.errors import classify_failure, clean_message, is_spark_error, unreadable_file
from trinitymerge.spark.predicates import forbidden_nulls, holds_null, violation
from trinitymerge.spark.session import rows_to_show
from trinitymerge.stores.base import TableStore
from trinitymerge.stores.removed_files import naming_vacuums

_logger = logging.getLogger(__name__)
_warned: set[str] = set()

UNKNOWN_COLUMNS = "applyChanges() cannot leave these columns unchanged"
"""Begins the message of Spark's error for events that name other columns (U2)."""

MISFIT = "A value does not fit into column"
"""What begins the errors that a feed raises within Spark (S29)."""

_FAILED: dict[type[errors.TrinityMergeError], tuple[str, str]] = {
    errors.StorageError: (
        "A file could not be read or written in a merge into {path}",
        "Free disk space, grant the missing permission, or see health(), and run it again.",
    ),
    errors.JobFailedError: (
        "A Spark job of a merge into {path} did not finish",
        "Run it again; if memory was short, with more of it, or with fewer rows at a time.",
    ),
}
"""The failure and the remedy."""


@contextmanager
def merge_errors(store: TableStore, checks: Iterable[Check] = ()) -> Iterator[None]:
    """Raise Spark's errors about a user's expression, or about ``checks`` that the job evaluates too, as errors of the merge."""
    path = store.path
    try:
        with naming_vacuums(store):
            yield
    except Exception as error:
        if not is_spark_error(error):
            raise
        # Where a Python function failed, its traceback is the news; all others are the JVM's.
        cause = error if isinstance(error, PythonException) else None
        text, failed = clean_message(error), classify_failure(error)
        if failed is not None:
            what, remedy = _FAILED[failed]
            text += unreadable_file(error)
            raise failed(f"{what.format(path=path)}: {text} Nothing was written. {remedy}", path=path) from None
        if UNKNOWN_COLUMNS in text:
            told = text[text.index(UNKNOWN_COLUMNS) :].rstrip(".")
            raise errors.InvalidMergeError(
                f"{told}. Name columns of the table that are not keys or watermarks. Nothing was written."
            ) from None
        if MISFIT in text:
            raise errors.SchemaMismatchError(f"{text[text.index(MISFIT) :]} Nothing was written.") from None
        listed = "; ".join(map(str, checks))
        why = f" The cause may be a constraint of the table that cannot be evaluated: {listed}." if listed else ""
        raise errors.InvalidMergeError(f"The merge could not be evaluated: {text} Nothing was written.{why}") from cause


_SHOWN = 5


def check_observed(
    definition: TableDefinition, observed: Observed, staged: StagedRows, clauses: tuple[Clause, ...]
) -> None:
    """Raise for null keys, values that do not fit, nulls in NOT NULL columns, and broken constraints (S2, S29, S34, S45)."""
    if observed["null_keys"]:
        _raise_null_key(definition, observed["null_keys"], staged(), clauses)
    if observed["misfits"]:
        _raise_misfit(definition, observed)
    for i, field in enumerate(definition.fields):
        if observed[f"null_{i}"]:
            if field.name in definition.watermarkKey and field.nullable:
                shown = _shown(staged().filter(E.is_null(E.quote(field.name))), definition)
                raise errors.NullKeyError(
                    f"{counted(observed[f'null_{i}'], 'event')} of the merge have no place in the sequence, for '{field.name}' is "
                    f"null: {shown}. Nothing was written. Filter them out, or give them one.",
                    columns=[field.name],
                    rows=observed[f"null_{i}"],
                )
            _raise_null(definition, field, observed[f"null_{i}"], staged(), clauses)
    for i, check in enumerate(definition.checks):
        if observed[f"check_{i}"]:
            _raise_broken(definition, check, observed[f"check_{i}"], staged(), clauses)


def _raise_null(
    definition: TableDefinition, field: Field, count: int, staged: DataFrame, clauses: tuple[Clause, ...]
) -> None:
    rows, name = staged.filter(holds_null(field)), where_null(staged, field)
    where, is_mended = _origins(rows, clauses)
    is_inside = name != field.name
    allow = f", or allow nulls there: alter().setNullable('{name}')" if is_inside else ""
    remedies = [f"Give the column a value in {where}{allow}."] if where else []
    remedies += ["A stored row would take the null from a late one: filter that one out."] if is_mended else []
    raise errors.SchemaMismatchError(
        f"Column '{name}' must not be null, but is in {counted(count)} of the merge: "
        f"{_shown(rows, definition, [field.name] if is_inside else ())}. Nothing was written. {' '.join(remedies)}",
        column=name,
    )


def where_null(rows: DataFrame, field: Field) -> str:
    """Return the first NOT NULL column or field that holds a null in some row."""
    places = forbidden_nulls(field)
    if not never_null(field.type):
        return dotted(field)
    counts = [f"{E.count_where(wrong)} AS n{i}" for i, wrong in enumerate(places.values())]
    found = rows.selectExpr(*counts).collect()[0]
    return dotted(field, next((path for path, count in zip(places, found, strict=True) if count), ()))


def _raise_broken(
    definition: TableDefinition, check: Check, count: int, staged: DataFrame, clauses: tuple[Clause, ...]
) -> None:
    rows = staged.filter(violation(definition, check))
    keys, (where, is_mended) = _keys(rows, definition), _origins(rows, clauses)
    where = " and ".join(filter(None, [where, "stored rows that take values from late ones" if is_mended else ""]))
    raise errors.ConstraintError(
        f"{counted(count)} of the merge {'breaks' if count == 1 else 'break'} the constraint '{check.name}' ({check.condition}): "
        f"{_shown(rows, definition, check.columns)}, from {where}. Nothing was written. Correct the rows, or "
        "filter them out; dropCheck() takes the constraint away.",
        constraint=check.name,
        rows=count,
        keys=keys,
    )


def _raise_null_key(definition: TableDefinition, count: int, staged: DataFrame, clauses: tuple[Clause, ...]) -> None:
    rows = staged.filter(any_null(definition.primaryKey))
    nulls = [k for k in definition.primaryKey if rows.filter(f"{E.quote(k)} IS NULL").limit(1).collect()]
    raise errors.NullKeyError(
        f"There is a null in primary-key column {_listed(nulls)} of {counted(count)} to be written, from "
        f"{_clauses_of(rows, clauses) or 'the source'}: {_shown(rows, definition)}. Nothing was written. Filter such rows out "
        "of the source, or add a clause condition that leaves them out.",
        columns=nulls,
        rows=count,
    )


def _raise_misfit(definition: TableDefinition, observed: Observed) -> None:
    examples = [observed.values["misfit_min"], observed.values["misfit_max"]]
    name = examples[0].split("\t", 1)[0]
    found = [e.split("\t", 1)[1].partition("\0") for e in examples if e.startswith(name + "\t")]
    values = {value: f"{value!r}{f' ({kind})' if kind else ''}" for value, _, kind in found}
    field = definition.field(name)
    must = f" A key must be the same after a cast to {field.text} and back." if any(kind for *_, kind in found) else ""
    raise errors.SchemaMismatchError(
        f"Column '{name}' is {field.text}, and values of {counted(observed['misfits'])} of the merge do not fit, e.g. "
        f"{', '.join(values.values())}.{must} Nothing was written. Correct the values, cast them explicitly, or filter "
        "the rows out.",
        column=name,
        values=tuple(values),
    )


def check_unambiguous(
    definition: TableDefinition, staged: DataFrame, clauses: tuple[Clause, ...], advice: str = ""
) -> None:
    """Raise for different rows of one key with equal watermarks (S12). Called only if a key has several rows."""

    def first(*more: str) -> list[Row]:
        bad = contradicting(definition, staged, *more)
        return rows_to_show(bad.orderBy(*_columns(definition.primaryKey)).limit(_SHOWN))

    if not first():
        return
    # Only the message needs the clauses of a group: Spark collects them more slowly than it counts and compares.
    found = first(f"sort_array(collect_set({C.CLAUSE})) AS {C.CLAUSE}")
    keys = [tuple(r[k] for k in definition.primaryKey) for r in found]
    where = describe_all(clauses, sorted({p - 1 for r in found for p in r[C.CLAUSE]}))
    rows = zip(keys, found, strict=True)
    listed = "; ".join(f"{_key_text(definition, k)} ({counted(r[C.KEY_ROWS])})" for k, r in rows)
    same = f"with equal {_listed(definition.watermarkKey)}" if definition.watermarkKey else "and no watermark"
    raise errors.AmbiguousMergeError(
        f"The merge has several different rows for the same primary key ({', '.join(definition.primaryKey)}) {same}: "
        f"{listed}{', ...' if len(found) == _SHOWN else ''}, from {where}. Nothing was written. "
        f"{advice or _history_advice(definition, clauses) or _ONE_ROW_EACH}",
        keys=keys,
        columns=definition.primaryKey,
    )


def contradicting(definition: TableDefinition, rows: DataFrame, *more: str) -> DataFrame:
    """Return the keys and watermarks with different rows that are not all deletes (S12), and ``more`` aggregates, as SQL."""
    own = [*definition.primaryKey, *definition.watermarkKey]
    content = ", ".join(orderable(f.name, E.physical_type(f)) for f in definition.stored_fields)
    written = rows.filter(f"NOT coalesce({C.EFFECT} = '{STALE_MOVE}', false)")
    counts = (
        f"count(1) AS {C.KEY_ROWS}",
        f"count_if({E.is_tombstone(definition)}) AS {C.DEAD_ROWS}",
        f"min(struct({content})) <> max(struct({content})) AS {C.DIFFERENT}",
    )
    groups = written.groupBy(*_columns(own)).agg(*map(F.expr, (*counts, *more)))
    return groups.filter(f"{C.KEY_ROWS} > {C.DEAD_ROWS} AND {C.DIFFERENT}")


_UPDATE_INSTEAD = "Update such rows instead, or match on the whole primary key."
_ONE_ROW_EACH = "Keep one row per key in the source, or give the table a watermark key that orders the rows."


def raise_conflicting_moves(definition: TableDefinition, staged: DataFrame, clauses: tuple[Clause, ...]) -> None:
    """Raise the error for rows that are moved and changed otherwise, or moved to two places (S24)."""
    rows = staged.filter(f"{C.EFFECT} = '{CONFLICTING_MOVE}'")
    keys = _keys(rows, definition)
    raise errors.AmbiguousMergeError(
        f"The merge moves rows to other primary keys ({', '.join(definition.primaryKey)}) and also changes them otherwise, or "
        f"moves them to several: written would be {'; '.join(_key_text(definition, k) for k in keys)}, from "
        f"{_clauses_of(rows, clauses)}. Nothing was written, for such a row would live on twice. Keep one source row for each "
        "row that moves.",
        keys=keys,
        columns=definition.primaryKey,
    )


def raise_duplicates(definition: TableDefinition, staged: DataFrame, clauses: tuple[Clause, ...], count: int) -> None:
    """Raise the error for rows that come to a live key which the merge does not free (S25)."""
    rows = staged.filter(f"{C.EFFECT} = '{DUPLICATE}'")
    keys = _keys(rows, definition)
    raise errors.DuplicateKeyError(
        f"{counted(count)} would be written under primary keys that are live in the table and that this merge neither deletes "
        f"nor moves away: {'; '.join(_key_text(definition, k) for k in keys)}, from {_clauses_of(rows, clauses)}. "
        f"Nothing was written. {_history_advice(definition, clauses) or _UPDATE_INSTEAD}",
        keys=keys,
    )


def raise_stale(
    definition: TableDefinition,
    staged: DataFrame,
    latest: DataFrame,
    observed: Observed,
    truncated_at: Watermark | None,
) -> None:
    """Raise the error for stale rows under ``onStale("error")`` (S11), with both watermarks."""
    count, suppressed = observed["stale"], observed["suppressed"]
    beside = f" The inserts beside them ({counted(suppressed)}) would not be written either." if suppressed else ""
    names = definition.watermarkKey
    theirs = latest.selectExpr(
        *[f"{E.quote(k)} AS {C.REPLACED_KEY(i)}" for i, k in enumerate(definition.primaryKey)],
        *[f"{E.quote(w)} AS {C.REPLACED_WATERMARK(i)}" for i, w in enumerate(names)],
    )
    same = E.all_of(E.equals(E.quote(k), C.REPLACED_KEY(i)) for i, k in enumerate(definition.primaryKey))
    stale = staged.filter(HAS_STALE_EFFECT).join(theirs, F.expr(same), "left")
    if truncated_at is not None:
        found_at = [C.REPLACED_WATERMARK(i) for i in range(len(names))]
        raised = raised_to(found_at, truncated_at, definition)
        stale = stale.withColumns({n: F.expr(v) for n, v in zip(found_at, raised, strict=True)})
    found = rows_to_show(stale.orderBy(*_columns(definition.primaryKey)).limit(_SHOWN))
    listed = [
        f"{_key_text(definition, tuple(r[k] for k in definition.primaryKey))}: {', '.join(str(r[n]) for n in names)} is "
        f"older than {', '.join(str(r[C.REPLACED_WATERMARK(i)]) for i in range(len(names)))}"
        for r in found
    ]
    raise errors.StaleRowsError(
        f"The merge has {counted(count)} older than what they would replace ({', '.join(names)}): {'; '.join(listed)}.{beside} "
        'Nothing was written. Leave late rows out, or choose onStale("skip") to let them lose or onStale("force") to '
        "let them win.",
        keys=[tuple(r[k] for k in definition.primaryKey) for r in found],
        rows=count,
    )


def check_deleted(deleted: int, live: DataFrame, allowed: float) -> None:
    """Raise if a merge deletes more than a share of the live rows (S37)."""
    rows = live.count()
    if deleted / rows > allowed:  # a product may be a little less: 0.29 * 100 < 29
        raise _too_many(f"The merge would delete {deleted:,} of {counted(rows, 'live row')}", deleted, rows, allowed)


def warn_of_deletes(path: str, deleted: int, before: Snapshot) -> None:
    """Log a warning if an extract is known to lack more than half of the live rows. No job counts them: the log has a bound."""
    most = sum(b.rows - b.tombstones for b in before.live_batches)
    if deleted * 2 > most:
        _logger.warning(
            "%s: the extract lacks %s, of %s at most: they are deleted. If it is not complete, restore(%d) brings them back. "
            "maxDeleteFraction(0.5) refuses such an extract.",
            path,
            counted(deleted, "live row"),
            f"{most:,}",
            before.version,
        )


def check_lacking(
    definition: TableDefinition, staged: DataFrame, moment: Watermark, held: DataFrame, allowed: float
) -> None:
    """Raise if a late extract ends more than a share of the rows that hold at its moment (S37)."""
    (name,) = definition.watermarkKey
    at = literal_sql(moment[0], E.physical_type(definition.field(name)))
    ended = staged.filter(f"{E.is_tombstone(definition)} AND {E.quote(name)} = {at}").count()
    rows = held.count() if ended else 0
    if rows and ended / rows > allowed:
        problem = f"The extract lacks {ended:,} of the {counted(rows)} that hold at its moment"
        raise _too_many(problem, ended, rows, allowed)


def _too_many(problem: str, deletes: int, live: int, allowed: float) -> errors.TooManyDeletesError:
    return errors.TooManyDeletesError(
        f"{problem}, more than the allowed share of {allowed}. Nothing was written. Check the source, or raise "
        "maxDeleteFraction.",
        deletes=deletes,
        live=live,
    )


def _columns(names: Iterable[str]) -> list[Column]:
    return [F.col(E.quote(n)) for n in names]


def _keys(rows: DataFrame, definition: TableDefinition) -> list[tuple[Any, ...]]:
    names = _columns(definition.primaryKey)
    return [tuple(r) for r in rows_to_show(rows.select(*names).distinct().orderBy(*names).limit(_SHOWN))]


def _key_text(definition: TableDefinition, key: tuple[Any, ...]) -> str:
    pairs = zip(definition.primaryKey, key, strict=True)
    return ", ".join(f"{n}={v!r}" if isinstance(v, str) else f"{n}={v}" for n, v in pairs)


def _shown(rows: DataFrame, definition: TableDefinition, about: Iterable[str] = ()) -> str:
    """Some rows: the columns that they are refused for, and as many others as are easily read."""
    first = tuple(dict.fromkeys([*definition.primaryKey, *about]))
    names = first if about else definition.names[:6]
    found = rows_to_show(rows.select(*_columns(names)).limit(3))
    return "; ".join("(" + ", ".join(f"{n}={r[n]!r}" for n in names) + ")" for r in found)


def _clauses_of(rows: DataFrame, clauses: tuple[Clause, ...]) -> str:
    """Return the clauses of some rows in words; empty where no row has one."""
    return _origins(rows, clauses)[0]


def _origins(rows: DataFrame, clauses: tuple[Clause, ...]) -> tuple[str, bool]:
    """Return the clauses of some rows in words, and whether there are rows of none.

    These are stored rows that late ones mend (U4), or have a null key.
    """
    positions = {r[0] for r in rows.select(C.CLAUSE).distinct().collect()}
    return describe_all(clauses, sorted(p - 1 for p in positions if p is not None)), None in positions


def _history_advice(definition: TableDefinition, clauses: tuple[Clause, ...]) -> str:
    """Return the remedy if a merge closes rows by changing their key: a type 2 dimension with a flag in its key."""
    actions = (action for clause in clauses for action in clause.actions if action.replaces_target)
    assigned = [(name_parts(key_text(key)) or ("",))[-1].lower() for a in actions for key, _ in a.assignments]
    changed = [k for k in definition.primaryKey if k.lower() in assigned]
    return (
        f"The merge changes {_listed(changed)}, a part of the primary key, and two rows come to share one. In a table that keeps "
        "the history of its rows, a flag must not be part of the key, because all closed rows of one entity share it. Use a "
        "column in which they differ, such as the date from which a row holds (valid_from)."
        if changed
        else ""
    )


def _listed(names: Any) -> str:
    return ", ".join(f"'{n}'" for n in names)


def warn_unknown(path: str, count: int) -> None:
    """Log a warning, once per process and table, if rows leave columns unchanged that no row has set."""
    if not count or path in _warned:
        return
    _warned.add(path)
    _logger.warning(
        "%s: events leave %d values unchanged that no event has set: they are null, or have their default, until an event arrives "
        "that sets them. If none will (a feed that began in the middle, or a row whose key was changed), send the whole rows: an "
        "incremental snapshot, or REPLICA IDENTITY FULL in PostgreSQL.",
        path,
        count,
    )
