"""What Spark says against a merge while it runs, in the words of merges (S29, S34).

Owns: telling a storage that fails from a value that cannot be computed, and from one that does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pyspark.errors import PythonException

from trinitymerge.constraints import Check
from trinitymerge.errors import InvalidMergeError, SchemaMismatchError, StorageError
from trinitymerge.spark_errors import is_sparks, spark_text, storage_failed

MISFIT = "A value does not fit into column"
"""What begins the errors that a feed raises within Spark (S29)."""


@contextmanager
def merge_errors(path: str, checks: Iterable[Check] = ()) -> Iterator[None]:
    """Spark's errors about a user's expression become errors of the merge, with Spark's text.

    Args:
        path: of the table.
        checks: of the table, where they are computed as well.
    """
    try:
        yield
    except Exception as error:
        if not is_sparks(error):
            raise
        # Where a Python function failed, its traceback is the news; all others are the JVM's.
        cause = error if isinstance(error, PythonException) else None
        if storage_failed(error):
            raise StorageError(
                f"A file could not be read or written in a merge into {path}: {spark_text(error)} "
                "Nothing was written. Make room, give the permission that is missing, or see health(), and run it again.",
                path=path,
            ) from None
        text = spark_text(error)
        if MISFIT in text:
            raise SchemaMismatchError(f"{text[text.index(MISFIT) :]} Nothing was written.") from None
        listed = "; ".join(map(str, checks))
        besides = f" It may be a constraint of the table that cannot be: {listed}." if listed else ""
        raise InvalidMergeError(f"The merge could not be evaluated: {text} Nothing was written.{besides}") from cause
