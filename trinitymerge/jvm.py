"""What only Spark's JVM can tell about a DataFrame: None where there is none to ask (Spark Connect).

Every caller must be right without an answer, and may only be faster with one.
"""

from __future__ import annotations

import re
from typing import Any

import attrs
from pyspark.sql import DataFrame


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


def count_input_files(df: DataFrame) -> int:
    """How many files a DataFrame reads, without fetching their names where that can be spared."""
    frame: Any = getattr(df, "_jdf", None)
    return len(df.inputFiles() if frame is None else frame.inputFiles())
