"""Classic sessions and Spark Connect: their differences, and access to the JVM."""

from __future__ import annotations

import re
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeGuard, TypeVar
from weakref import WeakKeyDictionary

import attrs
import pyspark
from pyspark import SparkContext
from pyspark.sql import DataFrame, DataFrameReader, Observation, Row, SparkSession, functions as F
from pyspark.sql.types import StructType

_A = TypeVar("_A")
_R = TypeVar("_R")


@attrs.frozen
class Estimate:
    """The optimizer's statistics of a DataFrame.

    Attributes:
        size_bytes: usually an upper bound; huge if Spark knows nothing.
        runs_python: the plan runs Python code, which may be slow even for a single row.
    """

    size_bytes: int
    runs_python: bool


def estimate(df: DataFrame) -> Estimate | None:
    """Return Spark's estimate of a DataFrame, without a job; None on Spark Connect."""
    frame: Any = getattr(df, "_jdf", None)
    if frame is None:
        return None
    plan = frame.queryExecution().optimizedPlan()
    runs_python = re.search("Python|Pandas|Arrow", plan.toString()) is not None
    return Estimate(int(str(plan.stats().sizeInBytes())), runs_python)


_SEPARATOR = "\x1f"


@attrs.frozen(eq=False)
class _Jvm:
    """Objects of a JVM. PySpark searches all jars for them at each use."""

    separator: Any
    functions: Any

    def array(self, joined: str) -> Any:
        return self.separator.split(joined)


_KNOWN: WeakKeyDictionary[Any, _Jvm] = WeakKeyDictionary()


def _jvm_of(spark: SparkSession) -> _Jvm:
    jvm: Any = spark._jvm
    if jvm not in _KNOWN:
        pattern = getattr(jvm, "java.util.regex.Pattern")
        _KNOWN[jvm] = _Jvm(pattern.compile(_SEPARATOR), getattr(jvm, "org.apache.spark.sql.functions"))
    return _KNOWN[jvm]


def _is_classic(df: DataFrame) -> bool:
    return hasattr(df, "_jdf") and type(df).__module__.startswith("pyspark.")


def rows_to_show(rows: DataFrame) -> list[Row]:
    """Collect a few rows for a message: as texts if Python has no value for one, such as a moment after the year 9999."""
    try:
        return rows.collect()
    except (ValueError, OverflowError):
        kinds = {f"`{f.name.replace('`', '``')}`": f.dataType.simpleString() for f in rows.schema.fields}
        texts = {n: "date" in kind or "timestamp" in kind for n, kind in kinds.items()}
        return rows.selectExpr(
            *[f"CAST({n} AS STRING) AS {n}" if is_cast else n for n, is_cast in texts.items()]
        ).collect()


def select_exprs(df: DataFrame, texts: Sequence[str]) -> DataFrame:
    """Return ``df.selectExpr(*texts)`` with two calls to the JVM; PySpark makes one per text."""
    joined = _SEPARATOR.join(texts)
    if not _is_classic(df) or joined.count(_SEPARATOR) != len(texts) - 1:
        return df.selectExpr(*texts)
    frame: Any = df._jdf
    return type(df)(frame.selectExpr(_jvm_of(df.sparkSession).array(joined)), df.sparkSession)


def join(left: DataFrame, right: DataFrame, condition: str, how: str, is_small: bool = False) -> DataFrame:
    """Return ``left.join(right, F.expr(condition), how)`` with three calls to the JVM; a right side that is small is broadcast."""
    if not _is_classic(left) or not _is_classic(right):
        return left.join(F.broadcast(right) if is_small else right, F.expr(condition), how)
    functions, frames = _jvm_of(left.sparkSession).functions, (left._jdf, right._jdf)
    other = functions.broadcast(frames[1]) if is_small else frames[1]
    return type(left)(frames[0].join(other, functions.expr(condition), how), left.sparkSession)


def load(spark: SparkSession, reader: DataFrameReader, schema: StructType | None, paths: Sequence[str]) -> DataFrame:
    """Return ``reader.schema(schema).load(paths)`` with four calls to the JVM; PySpark makes two per path."""
    java, joined = getattr(reader, "_jreader", None), _SEPARATOR.join(paths)
    if java is None or joined.count(_SEPARATOR) != len(paths) - 1:
        return (reader if schema is None else reader.schema(schema)).load([*paths])
    typed = java if schema is None else java.schema(spark._jsparkSession.parseDataType(schema.json()))
    return reader._df(typed.load(_jvm_of(spark).array(joined)))


_TRUNCATED = "Truncated plan|more characters"
"""How Spark ends the text of a plan that is longer than ``spark.sql.maxPlanStringLength``."""


def may_have_alias(df: DataFrame, alias: str) -> bool:
    """Return False if a DataFrame's whole plan does not mention an alias; True on Spark Connect.

    To try an alias that is missing raises an exception in Spark, which takes thirty calls to the JVM.
    """
    frame: Any = getattr(df, "_jdf", None)
    if frame is None:
        return True
    plan = str(frame.queryExecution().analyzed().toString())
    return re.search(rf"\b{re.escape(alias)}\b|{_TRUNCATED}", plan, re.IGNORECASE) is not None


def running_tasks() -> tuple[int, int] | None:
    """Return how many tasks of all running stages are done, and how many there are; None without a classic session."""
    context: Any = getattr(SparkContext, "_active_spark_context", None)
    if context is None:
        return None
    tracker = context.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    found = [stage for stage in stages if stage is not None]
    return sum(s.numCompletedTasks for s in found), sum(s.numTasks for s in found)


def cores(spark: SparkSession) -> int:
    """Return how many tasks Spark runs in parallel; 1 on Spark Connect."""
    context: Any = getattr(spark, "_sc", None)
    return 1 if context is None else max(1, int(context.defaultParallelism))


def session_key(spark: SparkSession) -> Hashable:
    """Return the identity of a session, which several Python objects may share."""
    java: Any = getattr(spark, "_jsparkSession", None)
    if java is not None:
        return int(java.hashCode())
    return getattr(spark, "session_id", None) or id(spark)


def count_input_files(df: DataFrame) -> int:
    frame: Any = getattr(df, "_jdf", None)
    return len(df.inputFiles() if frame is None else frame.inputFiles())


def has_subquery(df: DataFrame) -> bool | None:
    """Return True if a DataFrame has subqueries; None on Spark Connect."""
    frame: Any = getattr(df, "_jdf", None)
    return None if frame is None else bool(frame.queryExecution().analyzed().subqueries().nonEmpty())


def streaming_query_id(spark: SparkSession) -> str | None:
    """Return the id of the streaming query whose micro-batch this thread runs; the checkpoint keeps it."""
    context: Any = getattr(spark, "_sc", None)
    return None if context is None else context.getLocalProperty("sql.streaming.queryId")


def in_thread(spark: SparkSession, call: Callable[[_A], _R]) -> Callable[[_A], _R]:
    """Return a function for another thread, which gets the properties of this one: the streaming query, the pool, the job group."""
    wrap = pyspark.inheritable_thread_target
    found: Callable[[_A], _R] = wrap(call) if int(pyspark.__version__.split(".")[0]) < 4 else wrap(spark)(call)
    return found


def observed(observation: Observation, name: str) -> Any:
    """Return an observed metric, None if the job returned none. PySpark's own way takes about 80 JVM calls on 3.5."""
    java: Any = getattr(observation, "_jo", None)
    return observation.get.get(name) if java is None else java.getAsJava().get(name)


def is_connect(spark: Any) -> bool:
    """Return True if a session, or a DataFrame, belongs to Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def force_analysis(df: DataFrame) -> DataFrame:
    """Return the DataFrame after raising its analysis errors, which Spark Connect defers."""
    if is_connect(df):
        df.schema  # noqa: B018 - asks the server
    return df


def can_join(one: Any, other: Any) -> bool:
    """Return True if a query can use DataFrames of both sessions: a Connect server isolates its sessions."""
    return not (is_connect(one) and is_connect(other)) or one.session_id == other.session_id


def supports_writes(spark: Any) -> bool:
    """Return True if the session can materialize rows and return observed metrics; Spark Connect can since 4.0."""
    return not is_connect(spark) or int(pyspark.__version__.split(".")[0]) >= 4


def version_of(spark: Any) -> tuple[int, ...]:
    """Return major and minor version of Spark; on Spark Connect, of the server."""
    return tuple(int(part) for part in spark.version.split(".")[:2])


def is_dataframe(value: object) -> TypeGuard[DataFrame]:
    """Return True if a value is a DataFrame, of PySpark 3.5's Spark Connect too, which has another base class.

    Looks at the class: a Column, and on Spark Connect a DataFrame, has an attribute of any name.
    """
    return isinstance(value, DataFrame) or hasattr(type(value), "sameSemantics")
