"""Spark's errors, translated into errors of this library."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException, ParseException, PySparkException

from trinitymerge.errors import InvalidMergeError, JobFailedError, StorageError, closest
from trinitymerge.schema.definition import HIDDEN_PREFIX

try:  # a plain logger of that name would break PySpark 4 whenever it logs an error later
    from pyspark.logger import PySparkLogger

    _logger_named: Callable[[str], logging.Logger] = PySparkLogger.getLogger
except ImportError:  # PySpark 3.5 prints no such traces
    _logger_named = logging.getLogger


@contextmanager
def suppress_error_logs() -> Iterator[None]:
    """Keeps PySpark 4 from printing the JVM's stack trace of an analysis error that is handled here."""
    loggers = [_logger_named(f"{kind}QueryContextLogger") for kind in ("SQL", "DataFrame")]
    before = [logger.disabled for logger in loggers]
    for logger in loggers:
        logger.disabled = True
    try:
        yield
    finally:
        for logger, disabled in zip(loggers, before, strict=True):
            logger.disabled = disabled


@contextmanager
def analysis_errors(
    where: str,
    hint: Callable[[BaseException], str] = lambda error: "",
    instead: Callable[[BaseException], str] = lambda error: "",
) -> Iterator[None]:
    """Re-raises Spark's analysis errors as :class:`InvalidMergeError`.

    Args:
        where: how the message begins.
        hint: how it may end.
        instead: what may be said instead of Spark's words and of the hint; empty where those are right.
    """
    try:
        with suppress_error_logs():
            yield
    except (AnalysisException, ParseException) as error:
        said = instead(error) or f"{clean_message(error)}{_advice(error)}{hint(error)}"
        raise InvalidMergeError(f"{where}: {said}") from None


_CAUSE = re.compile(
    r"(?:Caused by: |\(TID \d+\) \([^)]*\): |^: )[\w.$]+: (.*?)(?=\n\s*at |\nCaused by|\Z)", re.DOTALL | re.MULTILINE
)
"""In the text of a failed job: what each exception of the chain says."""


_FAILED_CLASS = re.compile(r"(?:Caused by: |\(TID \d+\) \([^)]*\): |^: )([\w.$]+)", re.MULTILINE)
"""In the text of a failed job: the class of each exception of the chain."""

_STORAGE = re.compile(
    r"java\.io\.(?!EOF|NotSerializable|Serial)\w*Exception|java\.nio\.file\.|\.AccessControlException|FSError"
    r"|\.SparkFileNotFoundException|^org\.apache\.orc\."
)

_UNREADABLE = re.compile(
    r"FAILED_READ_FILE|ExitCodeException exitCode=\d+: chmod: |SparkException: Encountered error while reading file |"
    r"RuntimeException: \S+ is not a Parquet file\. Expected magic number"
)
"""What Spark 4 says of a file that it cannot read; and Spark 3.5, which hands on what it meets before the first row as it is. And
what Hadoop says of a directory that is gone while files are put into it."""


_UNFINISHED = re.compile(
    r"ExecutorLostFailure \(|\(java\.lang\.OutOfMemoryError\)|\[(?:SPARK_JOB_CANCELLED|OPERATION_CANCELED)\]|\bJob \d+ cancelled "
    r"|SparkContext was shut down|is bigger than spark\.driver\.maxResultSize"
    r"|\[NOT_ENOUGH_MEMORY_TO_BUILD_BROADCAST_TABLE\]|\[UNABLE_TO_ACQUIRE_MEMORY\]"
)
"""What Spark says of jobs that it gave up, whatever they computed."""

_CALL_LOST = re.compile(r"RPC that terminated with:.*?details = \"(.*?)\"\n", re.DOTALL)
"""What Spark Connect says if its server could not even say what failed."""


def is_spark_error(error: BaseException) -> bool:
    """True if Spark raised it. PySpark 3.5 hands some on as py4j's, which Spark Connect does not have."""
    return isinstance(error, PySparkException) or type(error).__name__ == "Py4JJavaError"


def classify_failure(error: BaseException) -> type[StorageError] | type[JobFailedError] | None:
    """What failed where the call is not at fault: a file, or a job. None where something could not be computed."""
    if storage_failed(error):
        return StorageError
    return JobFailedError if _job_failed(str(error)) else None


def _job_failed(text: str) -> bool:
    causes = _FAILED_CLASS.findall(text)
    return bool(
        (causes and causes[-1].endswith("OutOfMemoryError")) or _UNFINISHED.search(text) or _CALL_LOST.search(text)
    )


def storage_failed(error: BaseException) -> bool:
    """True if what failed in the end was reading or writing a file: a full disk, a missing permission, a file that is gone."""
    return _is_of_storage(str(error)) or bool(_UNREADABLE.search(str(error)))


def _is_of_storage(text: str) -> bool:
    causes = _FAILED_CLASS.findall(text)
    return bool(causes and _STORAGE.search(causes[-1]))


def clean_message(error: BaseException) -> str:
    """What Spark says, without the plan, the SQLSTATE, the stack trace and what is ours or Spark's own in names."""
    lost = _CALL_LOST.search(str(error))
    whole = lost[1] if lost else str(error)
    text = whole.split("JVM stacktrace")[0].strip()
    # Spark Connect says what went wrong with a file in the stack trace alone.
    text = ([text, *_CAUSE.findall(whole if _is_of_storage(whole) else text)][-1]).strip()
    if "Traceback (most recent call last)" in text:
        text = re.sub(r"\s+SQLSTATE: \w+\s*\Z", "", text).splitlines()[-1]
    first = re.split(r"\n|;\s*line \d| SQLSTATE:", text)[0].strip()
    first = re.sub(rf"(?:, |(?<=\[))[`\"]{HIDDEN_PREFIX}\w+[`\"]", "", first)  # suggestions of hidden columns
    first = re.sub(r"\[, ", "[", first)
    first = re.sub(r"#\d+L?\b", "", first)
    first = re.sub(r" missing from \".*", " is no column of the merge", first)
    return _of_unknown_column(first) or first.rstrip(".;") + "."


_UNKNOWN_COLUMN = re.compile(r"\[UNRESOLVED_COLUMN\.\w+\].*? with name (.+?) cannot be resolved\.(.*)", re.DOTALL)
_QUALIFIED_NAME = re.compile(r"(?:`(?:[^`]|``)*`\.?)+")
_NAME_PART = re.compile(r"`((?:[^`]|``)*)`")


def _of_unknown_column(message: str) -> str:
    """What is true of a column that Spark does not find, without Spark's words; empty if that is not what the message says.

    Example:
        >>> _of_unknown_column("[UNRESOLVED_COLUMN.X] A column with name `a`.`amuont` cannot be resolved. "
        ...     "Did you mean one of the following? [`a`.`id`, `a`.`amount`].")
        "Column 'a.amuont' not found. Did you mean 'a.amount'?"
    """
    found = _UNKNOWN_COLUMN.search(message)
    if found is None:
        return ""
    name, *_ = map(_plain_name, _QUALIFIED_NAME.findall(found[1]))
    known = [n for n in map(_plain_name, _QUALIFIED_NAME.findall(found[2])) if HIDDEN_PREFIX not in n]
    listed = f" There is {', '.join(map(repr, known))}." if known else ""
    return f"Column {name!r} not found.{closest(name, known) or listed}"


def _plain_name(quoted: str) -> str:
    return ".".join(part.replace("``", "`") for part in _NAME_PART.findall(quoted))


_NOT_ONE_ROW = (
    "INVALID_WHERE_CONDITION",
    "WINDOW_FUNCTION",
    "window function",
    "UNSUPPORTED_GENERATOR",
    "MISSING_GROUP_BY",
    "MISSING_AGGREGATION",
)


def _advice(error: BaseException) -> str:
    text = str(error)
    if "AMBIGUOUS_REFERENCE" in text:
        could_be = set(re.findall(r"`[^\]]+?`(?=, |\])", text.partition("could be: [")[2].partition("]")[0] + "]"))
        if len(could_be) == 1 and "`.`" in could_be.pop():
            return " Target and source go by the same alias; give one of them another with alias(...)."
        return " Qualify the name with the target's or the source's alias."
    if any(c in text for c in _NOT_ONE_ROW):
        return (
            " Conditions and values are computed for one pair of rows at a time: aggregates, window functions and "
            "generators cannot be used; compute them in the source."
        )
    if "COLLATION" in text:
        return (
            " Their collations differ: compare plain text, e.g. CAST(B.name AS STRING), or name one collation for both."
        )
    if "MISSING_ATTRIBUTES" in text or "CANNOT_RESOLVE_DATAFRAME_COLUMN" in text:
        return (
            " A Column taken from a DataFrame (df.x or df['x']) is bound to that DataFrame; "
            "name the column through an alias instead: F.col('B.x')."
        )
    return ""
