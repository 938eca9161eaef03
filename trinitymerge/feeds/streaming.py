"""Micro-batches of a stream, merged exactly once (S36, S36a)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import attrs
from pyspark.sql import DataFrame, SparkSession

from trinitymerge.errors import InvalidMergeError
from trinitymerge.log import reporting
from trinitymerge.log.commit import MicroBatch
from trinitymerge.spark.session import session_key, streaming_query_id


class Merge(Protocol):
    """The methods of a merge builder that streams call."""

    def _of_stream(self, batch: MicroBatch) -> Merge: ...

    def execute(self) -> Any: ...


@attrs.define(eq=False)
class TableOpener:
    """Opens a table once for all micro-batches of a session, so that each one reads only the newest entries of the log."""

    open: Callable[[SparkSession], Any]
    _opened: tuple[SparkSession, Any] | None = attrs.field(default=None, init=False)

    def __call__(self, spark: SparkSession) -> Any:
        if self._opened is None or session_key(self._opened[0]) != session_key(spark):
            self._opened = spark, self.open(spark)
        return self._opened[1]

    def __reduce__(self) -> tuple[type[TableOpener], tuple[Callable[[SparkSession], Any]]]:
        """Pickle without the session: Spark Connect sends this object to another process."""
        return TableOpener, (self.open,)


def batch_function(
    table_in: Callable[[SparkSession], Any],
    merge_function: Callable[[Any, DataFrame], Any],
    app_id: str,
    on_result: Callable[[Any], object] | None,
) -> Callable[[DataFrame, int], None]:
    """Return a function for ``foreachBatch``, which runs in a separate session, and pickled in another process on Spark Connect."""
    if not callable(merge_function):
        raise InvalidMergeError(f"foreachBatch takes a function, got {type(merge_function).__name__}.")
    if not isinstance(app_id, str) or not app_id:
        raise InvalidMergeError(f"appId must be the stream's stable name, got {app_id!r}.")
    if on_result is not None and not callable(on_result):
        raise InvalidMergeError(f"onResult takes a function of one MergeResult, got {type(on_result).__name__}.")

    def run(batch: DataFrame, batch_id: int) -> None:
        merge = merge_function(table_in(batch.sparkSession), batch)
        if not hasattr(type(merge), "_of_stream"):  # of itself a Connect DataFrame has anything, as a column
            raise InvalidMergeError(
                f"The merge function of stream '{app_id}' must return a merge builder that has not been executed, got "
                f"{type(merge).__name__}."
            )
        result = merge._of_stream(MicroBatch(app_id, int(batch_id), streaming_query_id(batch.sparkSession))).execute()
        said = "; ".join(map(str.strip, str(result).splitlines()))
        reporting.done(result.table, f"micro-batch {batch_id} of stream '{app_id}': {said}")
        if on_result is not None:
            on_result(result)

    return run
