"""What kind of Spark session one is given: classic, or Spark Connect's.

On Spark Connect a DataFrame is a plan that the server analyses anew whenever it is used: names are looked up and files are
listed then, not when it is made, and there is no JVM to ask. Where that changes what has to be done, code asks here; the
rest of the library is written for both.
"""

from __future__ import annotations

from typing import Any, TypeGuard

import pyspark
from pyspark.sql import DataFrame


def is_connect(spark: Any) -> bool:
    """True if a session (or a DataFrame) is one of Spark Connect."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def analysed(df: DataFrame) -> DataFrame:
    """The same DataFrame, whose analysis errors are raised here: a classic one is analysed already."""
    if is_connect(df):
        df.schema  # noqa: B018 - asks the server
    return df


def share_frames(one: Any, other: Any) -> bool:
    """True if DataFrames of two sessions can be used in one query: a Connect server keeps its sessions apart."""
    return not (is_connect(one) and is_connect(other)) or one.session_id == other.session_id


def can_write(spark: Any) -> bool:
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
