"""Session settings that a call changes while it runs, and restores."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import Any, ParamSpec, TypeVar

import attrs
from pyspark.sql import SparkSession

from trinitymerge.spark.errors import is_spark_error
from trinitymerge.spark.session import is_connect, session_key, version_of

EXACT_IDENTIFIERS = {"spark.sql.parser.quotedRegexColumnNames": "false"}
"""While the library's SQL is parsed, `` `v.` `` is the column of that name, not a pattern that matches ``va`` too."""

_NO_PLAN_CACHE = {"spark.connect.session.planCache.enabled": "false"}

_P = ParamSpec("_P")
_R = TypeVar("_R")


@attrs.define
class _ConfOverride:
    value: str
    is_changed: bool
    before: str | None
    holders: int = 0


_lock = threading.Lock()
_overrides: dict[tuple[Hashable, str], _ConfOverride] = {}


@contextmanager
def session_conf(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Override settings of a session; several threads may override the same setting at the same time, with the same value.

    The first thread sets the value, and the last thread restores it. Names that this Spark does not know are skipped.
    """
    session, taken = session_key(spark), list[str]()
    try:
        for name, value in settings.items():
            with _lock:
                override = _overrides.get((session, name)) or _set(spark, name, value)
                if override is not None:
                    _overrides[session, name] = override
                    override.holders += 1
                    taken.append(name)
        yield
    finally:
        for name in reversed(taken):
            with _lock:
                override = _overrides[session, name]
                override.holders -= 1
                if not override.holders:
                    del _overrides[session, name]
                    _restore(spark, name, override)


def with_session_settings(call: Callable[_P, _R]) -> Callable[_P, _R]:
    """Run a call under :data:`EXACT_IDENTIFIERS`: its first argument is a store, or has one."""

    @functools.wraps(call)
    def within(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        store: Any = args[0]
        for name in ("_spec", "spec", "_store", "store", "store"):
            store = getattr(store, name, store)
        with session_conf(store.spark, EXACT_IDENTIFIERS):
            return call(*args, **kwargs)

    return within


@contextmanager
def capture_observations(spark: SparkSession) -> Iterator[None]:
    """Let Spark return the metrics that it observes during a write.

    A Connect server of Spark 4.0 reuses the plan of an earlier schema request, which has spent its observation.
    """
    is_affected = is_connect(spark) and version_of(spark) < (4, 1)
    with session_conf(spark, _NO_PLAN_CACHE) if is_affected else nullcontext():
        yield


def _set(spark: SparkSession, name: str, value: str) -> _ConfOverride | None:
    found = _current(spark, name)
    if found is None:
        return None
    if found.lower() == value.lower():
        return _ConfOverride(value, False, None)
    override = _ConfOverride(value, True, spark.conf.get(name, None))  # None: unset, and found is Spark's default
    spark.conf.set(name, value)
    return override


def _restore(spark: SparkSession, name: str, override: _ConfOverride) -> None:
    if not override.is_changed or _current(spark, name) != override.value:  # the user has set it since
        return
    if override.before is None:
        spark.conf.unset(name)
    else:
        spark.conf.set(name, override.before)


def _current(spark: SparkSession, name: str) -> str | None:
    try:
        return spark.conf.get(name)
    except Exception as error:
        if is_spark_error(error):
            return None
        raise
