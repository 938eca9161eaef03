"""Classic sessions and Spark Connect: what a session can do, and what only the JVM knows."""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any, TypeGuard

import attrs
import pyspark
from pyspark.sql import DataFrame, Observation, SparkSession


@attrs.frozen
class Estimate:
    """What Spark's optimizer thinks of a DataFrame.

    Attributes:
        size_bytes: an upper bound as a rule; huge where Spark knows nothing.
        runs_python: Python code is part of it, which may take long for a single row.
    """

    size_bytes: int
    runs_python: bool


def estimate(df: DataFrame) -> Estimate | None:
    """Spark's estimate of a DataFrame; runs no job."""
    frame: Any = getattr(df, "_jdf", None)
    if frame is None:
        return None
    plan = frame.queryExecution().optimizedPlan()
    runs_python = re.search("Python|Pandas|Arrow", plan.toString()) is not None
    return Estimate(int(str(plan.stats().sizeInBytes())), runs_python)


def cores(spark: SparkSession) -> int:
    """How many tasks Spark runs at once, as far as it tells; 1 where it does not."""
    context: Any = getattr(spark, "_sc", None)
    return 1 if context is None else max(1, int(context.defaultParallelism))


def session_key(spark: SparkSession) -> Hashable:
    """What tells sessions apart: there may be several Python objects for one."""
    java: Any = getattr(spark, "_jsparkSession", None)
    if java is not None:
        return int(java.hashCode())
    return getattr(spark, "session_id", None) or id(spark)


def count_input_files(df: DataFrame) -> int:
    """How many files a DataFrame reads, without fetching their names where that can be spared."""
    frame: Any = getattr(df, "_jdf", None)
    return len(df.inputFiles() if frame is None else frame.inputFiles())


def has_subquery(df: DataFrame) -> bool | None:
    """True if expressions of a DataFrame hold queries; None where there is no JVM to ask."""
    frame: Any = getattr(df, "_jdf", None)
    return None if frame is None else bool(frame.queryExecution().analyzed().subqueries().nonEmpty())


def streaming_query_id(spark: SparkSession) -> str | None:
    """The id of the streaming query whose micro-batch this thread works on: its checkpoint directory's own, for good."""
    context: Any = getattr(spark, "_sc", None)
    return None if context is None else context.getLocalProperty("sql.streaming.queryId")


def observed(observation: Observation, name: str) -> Any:
    """An observed metric, None if the job brought none; on PySpark 3.5 the public way takes some eighty calls to the JVM."""
    java: Any = getattr(observation, "_jo", None)
    return observation.get.get(name) if java is None else java.getAsJava().get(name)


def is_connect(spark: Any) -> bool:
    """True if a session (or a DataFrame) is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def force_analysis(df: DataFrame) -> DataFrame:
    """The same DataFrame, whose analysis errors are raised here: a classic one is analysed already."""
    if is_connect(df):
        df.schema  # noqa: B018 - asks the server
    return df


def can_join(one: Any, other: Any) -> bool:
    """True if DataFrames of two sessions can be used in one query: a Connect server keeps its sessions apart."""
    return not (is_connect(one) and is_connect(other)) or one.session_id == other.session_id


def supports_writes(spark: Any) -> bool:
    """True if the session can evaluate rows once and hand over what a job observes; Connect can since PySpark 4.0."""
    return not is_connect(spark) or int(pyspark.__version__.split(".")[0]) >= 4


def version_of(spark: Any) -> tuple[int, ...]:
    """The first two numbers of the version of Spark that runs what a session asks for: on Connect, the server's."""
    return tuple(int(part) for part in spark.version.split(".")[:2])


def is_dataframe(value: object) -> TypeGuard[DataFrame]:
    """True if something is a DataFrame; those of PySpark 3.5's Connect share no base class with the others.

    Asks the class: a Column, and on Connect a DataFrame, answers to any name with a column.
    """
    return isinstance(value, DataFrame) or hasattr(type(value), "sameSemantics")
