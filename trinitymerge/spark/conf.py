"""Session settings that a call changes while it runs, and restores."""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager

import attrs
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from trinitymerge.spark.session import is_connect, session_key, version_of

EXACT_IDENTIFIERS = {"spark.sql.parser.quotedRegexColumnNames": "false"}
"""While the library's SQL text is parsed: `` `v.` `` is the column of that name, not a pattern that ``va`` matches, too."""

_PLANS_MADE_ANEW = {"spark.connect.session.planCache.enabled": "false"}
_PLANS_KEEP_OBSERVATIONS = (4, 1)


@attrs.define
class _ConfOverride:
    """A setting that somebody holds: what it was, if it had to be changed, and how many hold it."""

    value: str
    changed: bool
    before: str | None
    holders: int = 0


_lock = threading.Lock()
_holds: dict[tuple[Hashable, str], _ConfOverride] = {}


@contextmanager
def session_conf(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Holds settings of a session at some values; other threads may hold the same ones at the same time.

    The first to come changes them, the last to leave changes them back. So no thread can put back what another one still
    needs, or take another's value for the user's own.

    Args:
        spark: the session.
        settings: names and values; all callers must hold a name at the same value. Names that this Spark does not know
            are left alone.
    """
    session, taken = session_key(spark), list[str]()
    try:
        for name, value in settings.items():
            with _lock:
                hold = _holds.get((session, name)) or _begin(spark, name, value)
                if hold is not None:
                    _holds[session, name] = hold
                    hold.holders += 1
                    taken.append(name)
        yield
    finally:
        for name in reversed(taken):
            with _lock:
                hold = _holds[session, name]
                hold.holders -= 1
                if not hold.holders:
                    del _holds[session, name]
                    _end(spark, name, hold)


@contextmanager
def capture_observations(spark: SparkSession) -> Iterator[None]:
    """While rows that are observed are written: Spark hands over what was observed.

    A Connect server of Spark 4.0 runs the plan that it kept when it was asked for the schema, and has observed that already.
    """
    if is_connect(spark) and version_of(spark) < _PLANS_KEEP_OBSERVATIONS:
        with session_conf(spark, _PLANS_MADE_ANEW):
            yield
    else:
        yield


def _begin(spark: SparkSession, name: str, value: str) -> _ConfOverride | None:
    found = _current(spark, name)
    if found is None:
        return None
    if found.lower() == value.lower():
        return _ConfOverride(value, False, None)
    hold = _ConfOverride(value, True, spark.conf.get(name, None))  # None: not set, found is Spark's default
    spark.conf.set(name, value)
    return hold


def _end(spark: SparkSession, name: str, hold: _ConfOverride) -> None:
    if not hold.changed or _current(spark, name) != hold.value:  # the user has set it meanwhile
        return
    if hold.before is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, hold.before)


def _current(spark: SparkSession, name: str) -> str | None:
    try:
        return spark.conf.get(name)
    except Exception as error:
        if isinstance(error, PySparkException) or type(error).__name__ == "Py4JJavaError":
            return None  # PySpark 3.5 hands on the JVM's own error
        raise
