"""Constraints and defaults that an alteration adds: what Spark says of them, and of the rows that are there (S45, S46).

Owns: :func:`check_of`, :func:`default_of` and :func:`require_fulfilled`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from trinitymerge import reader
from trinitymerge.assignment import Storing, misfit, stored, storing
from trinitymerge.columns import NOTHING
from trinitymerge.conditions import checked_condition, holds_query, is_deterministic
from trinitymerge.constraints import Check
from trinitymerge.definition import Field, TableDefinition
from trinitymerge.enforcing import forbidden_nulls, holds_null, violation
from trinitymerge.errors import ConstraintError, InvalidDefinitionError, InvalidMergeError, counted
from trinitymerge.expressions import count_where, empty_frame, quote
from trinitymerge.nullability import dotted, never_null
from trinitymerge.observation import Gathering
from trinitymerge.sessions import is_connect
from trinitymerge.spark_errors import analysis_errors, failure_of, is_sparks, spark_text
from trinitymerge.sqltext import Sql, as_sql, bare
from trinitymerge.storage.backend import Backend, Batches

_WORD = re.compile(
    r"(?<![\w.])(current_(?:date|timestamp|time|user)|localtimestamp|session_user|user)\b(?!\s*\()", re.IGNORECASE
)
"""What Spark takes for a call where no column is called so."""

_STAR = re.compile(r"[(,]\s*\*")

_SHOWN = 5


@contextmanager
def _refused(**facts: Any) -> Iterator[None]:
    try:
        yield
    except InvalidMergeError as error:
        raise InvalidDefinitionError(str(error), **facts) from None


# Checks ---------------------------------------------------------------------------------------------------------------


def check_of(spark: SparkSession, definition: TableDefinition, name: str, condition: str) -> Check:
    """A check that a table can have; asks Spark's analyzer, runs no job.

    Raises:
        InvalidDefinitionError: the condition is none, or is not about the rows of the table alone.
    """
    where = f"The condition of constraint '{name}'"
    nothing = empty_frame(spark, definition.fields)
    with _refused(constraint=name), analysis_errors(where):
        has_query = holds_query(nothing, F.expr(as_sql(condition)))
    if has_query:
        raise InvalidDefinitionError(
            f"{where} has a query in it, and what that finds would change while the rows stay. Use the row's own columns.",
            constraint=name,
        )
    if _STAR.search(bare(condition)):
        raise InvalidDefinitionError(
            f"{where} has a * in it, which columns that come later would change.", constraint=name
        )
    _refuse_words(condition, where, definition.names)
    with _refused(constraint=name), analysis_errors(where):
        checked_condition(nothing, F.expr(as_sql(condition)), where)
    _require_known_elsewhere(spark, definition.fields, condition, where)
    return Check(name, condition, [n for n in definition.names if _reads(spark, definition, condition, n, where)])


def _reads(spark: SparkSession, definition: TableDefinition, condition: str, column: str, where: str) -> bool:
    """True if a condition is about a column: it means nothing without it."""
    word = rf"(?<!\w){re.escape(column.replace('`', '``'))}(?!\w)"
    if re.search(word, condition, re.IGNORECASE) is None:
        return False
    if _WORD.fullmatch(column):
        return True  # without the column it would mean something else, and no error tells
    others = [f for f in definition.fields if f.name != column]
    try:
        with analysis_errors(where):  # not filter(): that finds columns below the ones that are there
            empty_frame(spark, others).select(F.expr(as_sql(condition))).schema  # noqa: B018
    except InvalidMergeError:
        if re.search(word, condition) is None:
            raise InvalidDefinitionError(
                f"{where} does not spell column '{column}' as the table does. Sessions may tell case apart: write {quote(column)}.",
                column=column,
            ) from None
        return True
    return False


# Defaults -------------------------------------------------------------------------------------------------------------


def default_of(spark: SparkSession, field: Field, default: str) -> str:
    """A default that a column can have; computes it once.

    Args:
        spark: the session.
        field: the column.
        default: SQL of no column: a constant, or what is one for all that a statement writes, as ``current_timestamp()``.

    Raises:
        InvalidDefinitionError: it is none, or does not fit the column.
    """
    where = f"The default of column '{field.name}'"
    if not default:
        raise InvalidDefinitionError(f"{where} is missing: a value follows the word DEFAULT.", column=field.name)
    one = spark.sql(f"SELECT 0 AS {NOTHING} FROM VALUES (0)")  # computed while the query is planned: no job runs
    with _refused(column=field.name), analysis_errors(where):
        value = F.expr(as_sql(default))
        has_query = holds_query(one, value)
    if has_query:
        raise InvalidDefinitionError(f"{where} has a query in it. Give a value, or a call such as current_date().")
    with _refused(column=field.name), analysis_errors(where):
        kind = one.select(value.alias("value")).schema.fields[0].dataType
        one.filter(value.isNull()).schema  # noqa: B018 - neither an aggregate nor a window function
    _require_constant(one, default, field, where)
    way = storing(kind, field)
    if way is Storing.REFUSED:
        raise InvalidDefinitionError(
            f"{where} is a value of type {kind.simpleString()}, and the column is {field.text}. Cast it explicitly.",
            column=field.name,
        )
    found = _value(one, default, field, way, where)
    if found["misfit"] is not None:
        raise InvalidDefinitionError(
            f"{where} does not fit: the column is {field.text}, and the value {found['misfit'].split(chr(9), 1)[1]!r}.",
            column=field.name,
        )
    if found["holds_null"]:
        what = (
            "is null, and the column must not be null"
            if not never_null(field.type)
            else "has a null where none is allowed"
        )
        raise InvalidDefinitionError(f"{where} {what}.", column=field.name)
    return default


def _require_constant(one: DataFrame, default: str, field: Field, where: str) -> None:
    """A default means the same whatever columns a merge has, and for all rows that it writes."""
    if not is_deterministic(one, F.expr(as_sql(default))):
        raise InvalidDefinitionError(
            f"{where} is not deterministic, and a default is the same for all rows. Assign such a value in the merge.",
            column=field.name,
        )
    _refuse_words(default, where, ())
    _require_known_elsewhere(one.sparkSession, (), default, where)


def _require_known_elsewhere(spark: SparkSession, fields: Iterable[Field], text: str, where: str) -> None:
    """Refuses what only this session knows, as variables and temporary functions are: others could not write any more.

    On Spark Connect a client has just the session that it is given, and this cannot be told.
    """
    if is_connect(spark):
        return
    other = spark.newSession()
    for setting in ("spark.sql.ansi.enabled", "spark.sql.caseSensitive"):
        other.conf.set(setting, str(spark.conf.get(setting)))
    try:
        with analysis_errors(where):
            empty_frame(other, [*fields, Field(NOTHING, "integer")]).selectExpr(as_sql(text)).schema  # noqa: B018
    except InvalidMergeError as error:
        raise InvalidDefinitionError(
            f"{error} This session knows more than others do (a variable, or a temporary function), and they could not "
            "write to the table. Use what all of them know."
        ) from None


def _refuse_words(text: str, where: str, columns: Iterable[str]) -> None:
    """Refuses words that are calls as long as no column is called so: a column may come, and sources have others."""
    known = {name.casefold() for name in columns}
    for word in _WORD.findall(bare(text)):
        if word.casefold() not in known:
            raise InvalidDefinitionError(
                f"{where} has a word in it that a column might be called. Write it as a call: {word}()."
            )


def _value(one: DataFrame, default: str, field: Field, way: Storing, where: str) -> dict[str, Any]:
    try:
        unfit = misfit(Sql("value"), way, field) or Sql("CAST(NULL AS STRING)")
        row = one.selectExpr(f"{as_sql(default)} AS value").selectExpr(
            "CAST(value AS STRING)",  # else Spark would not compute what is never null
            f"{holds_null(field, stored(Sql('value'), way, field))} AS holds_null",
            f"{unfit} AS misfit",
        )
        return row.collect()[0].asDict()
    except Exception as error:
        if not is_sparks(error):
            raise
        failed = failure_of(error) or InvalidDefinitionError
        raise failed(f"{where} cannot be computed: {spark_text(error)}", column=field.name) from None


# Rows that are there --------------------------------------------------------------------------------------------------


def is_stricter(before: TableDefinition, after: TableDefinition) -> bool:
    """True if rows that were allowed may not be any more."""
    return bool(_new_checks(before, after) or _no_longer_null(before, after))


def require_fulfilled(backend: Backend, batches: Batches, before: TableDefinition) -> None:
    """Refuses what the live rows do not fulfil, in one job; a second one finds rows to name.

    Args:
        backend: where the table is.
        batches: what is live, with the definition to be.
        before: the definition that it has.

    Raises:
        ConstraintError: naming the rows of the first rule that is broken.
        InvalidDefinitionError: a condition cannot be computed for some row.
    """
    after = batches.definition
    broken = {f"CHECK {c.name} ({c.condition})": violation(after, c) for c in _new_checks(before, after)}
    broken |= {f"NOT NULL of column '{name}'": wrong for name, wrong in _no_longer_null(before, after).items()}
    rows = reader.live(backend, batches, with_hidden=True)
    try:
        counts = Gathering({f"c{i}": count_where(sql) for i, sql in enumerate(broken.values())}).of(rows)
    except Exception as error:
        if not is_sparks(error):
            raise
        raise (failure_of(error) or InvalidDefinitionError)(
            f"{', '.join(broken)} cannot be computed for the rows of {backend.path}: {spark_text(error)} Nothing was altered."
        ) from None
    for i, (rule, sql) in enumerate(broken.items()):
        if counts[f"c{i}"]:
            raise _broken(backend.path, rule, int(counts[f"c{i}"]), rows.filter(sql), after)


def _broken(path: str, rule: str, count: int, rows: DataFrame, own: TableDefinition) -> ConstraintError:
    names = [quote(n) for n in own.names[:6]]
    found = rows.orderBy(*[F.col(quote(k)) for k in own.primaryKey]).limit(_SHOWN).selectExpr(*names).collect()
    shown = "; ".join("(" + ", ".join(f"{n}={r[n]!r}" for n in own.names[:6]) + ")" for r in found)
    return ConstraintError(
        f"{counted(count)} of {path} {'breaks' if count == 1 else 'break'} {rule}: {shown}. Nothing was altered. Correct "
        "them first, for instance with updateWhere().",
        constraint=rule,
        rows=count,
    )


def _new_checks(before: TableDefinition, after: TableDefinition) -> list[Check]:
    was = [_meaning(check, before) for check in before.checks]
    return [check for check in after.checks if _meaning(check, after) not in was]


def _meaning(check: Check, definition: TableDefinition) -> tuple[Any, ...]:
    """A check, and the columns it is about: those of today may have other names tomorrow, and others theirs."""
    about = [definition.field(name) for name in check.columns]
    return check.condition, [(f.name, f.first_stored_as, repr(f.type)) for f in about]


def _no_longer_null(before: TableDefinition, after: TableDefinition) -> dict[str, Sql]:
    """The columns, and places inside of them, that may not hold nulls any more; with SQL that is true where they do."""
    was = {f.first_stored_as: forbidden_nulls(f) for f in before.fields}
    return {
        dotted(field, path): wrong
        for field in after.fields
        for path, wrong in forbidden_nulls(field).items()
        if path not in was.get(field.first_stored_as, {})
    }
