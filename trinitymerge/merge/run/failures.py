"""What Spark says against a merge while it runs, in the words of merges (S29, S34).

Owns: telling a storage or a job that fails from a value that cannot be computed, and from one that does not fit.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from pyspark.errors import PythonException

from trinitymerge.constraints import Check
from trinitymerge.errors import InvalidMergeError, JobFailedError, SchemaMismatchError, StorageError, TrinityMergeError
from trinitymerge.spark_errors import failure_of, is_sparks, spark_text
from trinitymerge.storage.backend import Backend
from trinitymerge.storage.vanished import naming_vacuums

MISFIT = "A value does not fit into column"
"""What begins the errors that a feed raises within Spark (S29)."""

_FAILED: dict[type[TrinityMergeError], tuple[str, str]] = {
    StorageError: (
        "A file could not be read or written in a merge into {path}",
        "Free disk space, grant the missing permission, or see health(), and run it again.",
    ),
    JobFailedError: (
        "A Spark job of a merge into {path} did not finish",
        "Run it again; if memory was short, with more of it, or with fewer rows at a time.",
    ),
}
"""What has happened, and what to do."""


@contextmanager
def merge_errors(backend: Backend, checks: Iterable[Check] = ()) -> Iterator[None]:
    """Spark's errors about a user's expression become errors of the merge, with Spark's text.

    Args:
        backend: where the table is.
        checks: of the table, where they are computed as well.
    """
    path = backend.path
    try:
        with naming_vacuums(backend):
            yield
    except Exception as error:
        if not is_sparks(error):
            raise
        # Where a Python function failed, its traceback is the news; all others are the JVM's.
        cause = error if isinstance(error, PythonException) else None
        text, failed = spark_text(error), failure_of(error)
        if failed is not None:
            what, remedy = _FAILED[failed]
            raise failed(f"{what.format(path=path)}: {text} Nothing was written. {remedy}", path=path) from None
        if MISFIT in text:
            raise SchemaMismatchError(f"{text[text.index(MISFIT) :]} Nothing was written.") from None
        listed = "; ".join(map(str, checks))
        besides = f" The cause may be a constraint of the table that cannot be evaluated: {listed}." if listed else ""
        raise InvalidMergeError(f"The merge could not be evaluated: {text} Nothing was written.{besides}") from cause
