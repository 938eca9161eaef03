"""What only Spark's JVM can tell, or tells faster; without one (Spark Connect) the answer is None or takes the public way.

Every caller must be right whatever the answer: with it, it may only be faster, or notice a mistake of the user's earlier.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

import attrs
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
