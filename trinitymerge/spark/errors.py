"""Spark's errors, translated into the errors of the library."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from pyspark.errors import AnalysisException, ParseException, PySparkException

from trinitymerge.errors import Advice, InvalidMergeError, JobFailedError, StorageError, closest
from trinitymerge.schema.definition import HIDDEN_PREFIX

try:  # a plain logger of that name breaks later logging in PySpark 4
    from pyspark.logger import PySparkLogger

    _logger_named: Callable[[str], logging.Logger] = PySparkLogger.getLogger
except ImportError:  # PySpark 3.5 prints no traces
    _logger_named = logging.getLogger


@contextmanager
def suppress_error_logs() -> Iterator[None]:
    """Stop PySpark 4 from printing the JVM's stack trace of an analysis error that the caller handles."""
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
    """Re-raise Spark's analysis errors as :class:`InvalidMergeError`, whose messages begin with ``where``, and end with a hint.

    ``instead`` returns a replacement for Spark's words and the hint; empty to keep them.
    """
    try:
        with suppress_error_logs():
            yield
    except (AnalysisException, ParseException) as error:
        advice = hint(error)
        said = instead(error) or f"{clean_message(error)}{_advice(error)}{advice}"
        facts = {"column": refused_name(error), "advice": advice if isinstance(advice, Advice) else None}
        known = {name: fact for name, fact in facts.items() if fact is not None}
        raise InvalidMergeError(
            f"{where}: {said}", is_syntax_error=isinstance(error, ParseException), **known
        ) from None


def refused_name(error: AnalysisException | ParseException) -> str | None:
    """Return the column, relation or function, as SQL, that Spark does not know or finds ambiguous; None for others."""
    facts = error.getMessageParameters() or {}
    return next((facts[n] for n in ("objectName", "relationName", "routineName", "name") if n in facts), None)


_START = r"(?:Caused by: |\(TID \d+\) \([^)]*\): |^: )"
_CAUSE = re.compile(_START + r"[\w.$]+: (.*?)(?=\n\s*at |\nCaused by|\Z)", re.DOTALL | re.MULTILINE)
"""The message of each exception of the chain, in the text of a failed job."""

_FAILED_CLASS = re.compile(_START + r"([\w.$]+)", re.MULTILINE)
"""The class of each exception of the chain."""

_STORAGE = re.compile(
    r"java\.io\.(?!EOF|NotSerializable|Serial)\w*Exception|java\.nio\.file\.|\.AccessControlException|FSError"
    r"|\.SparkFileNotFoundException|^org\.apache\.orc\."
)

_UNREADABLE = re.compile(
    r"FAILED_READ_FILE|ExitCodeException exitCode=\d+: chmod: |SparkException: Encountered error while reading file |"
    r"RuntimeException: \S+ is not a Parquet file\. Expected magic number"
)
"""Spark 4 on a file that it cannot read; Spark 3.5, which passes on other errors; and Hadoop on a directory that is gone."""

_UNFINISHED = re.compile(
    r"ExecutorLostFailure \(|\(java\.lang\.OutOfMemoryError\)|\[(?:SPARK_JOB_CANCELLED|OPERATION_CANCELED)\]|\bJob \d+ cancelled "
    r"|SparkContext was shut down|is bigger than spark\.driver\.maxResultSize"
    r"|\[NOT_ENOUGH_MEMORY_TO_BUILD_BROADCAST_TABLE\]|\[UNABLE_TO_ACQUIRE_MEMORY\]"
)
"""Spark on jobs that it gave up."""

_CALL_LOST = re.compile(r"RPC that terminated with:.*?details = \"(.*?)\"\n", re.DOTALL)
"""Spark Connect, if the server could not report what failed."""


def is_spark_error(error: BaseException) -> bool:
    """Return True if Spark raised the error; PySpark 3.5 passes some of py4j on."""
    return isinstance(error, PySparkException) or type(error).__name__ == "Py4JJavaError"


def classify_failure(error: BaseException) -> type[StorageError] | type[JobFailedError] | None:
    """Return what failed: a file, or a job; None if neither, as if a value cannot be computed."""
    if storage_failed(error):
        return StorageError
    text = str(error)
    causes = _FAILED_CLASS.findall(text)
    is_out_of_memory = bool(causes) and causes[-1].endswith("OutOfMemoryError")
    return JobFailedError if is_out_of_memory or _UNFINISHED.search(text) or _CALL_LOST.search(text) else None


def storage_failed(error: BaseException) -> bool:
    """Return True if the root cause is a failed read or write of a file: a full disk, a missing permission, a missing file."""
    return _is_of_storage(str(error)) or bool(_UNREADABLE.search(str(error)))


def _is_of_storage(text: str) -> bool:
    causes = _FAILED_CLASS.findall(text)
    return bool(causes and _STORAGE.search(causes[-1]))


_READ_FILE = re.compile(r"reading file:? (\S+\.(?:parquet|orc))")


def unreadable_file(error: BaseException) -> str:
    """Return a sentence about the data file that Spark could not read, with the remedy; empty if it names none."""
    found = _READ_FILE.search(str(error))
    remedy = "If it is damaged, restore it from a backup, or restore() a version that does not need it."
    return f" The file is {found[1]}. {remedy}" if found else ""


def clean_message(error: BaseException) -> str:
    """Return Spark's message without plan, SQLSTATE, stack trace, system columns and expression ids."""
    lost = _CALL_LOST.search(str(error))
    whole = lost[1] if lost else str(error)
    text = whole.split("JVM stacktrace")[0].strip()
    # Spark Connect reports file errors in the stack trace only.
    text = ([text, *_CAUSE.findall(whole if _is_of_storage(whole) else text)][-1]).strip()
    if "Traceback (most recent call last)" in text:
        text = re.sub(r"\s+SQLSTATE: \w+\s*\Z", "", text).splitlines()[-1]
    first = re.split(r"\n|;\s*line \d| SQLSTATE:", text)[0].strip()
    first = re.sub(rf"(?:, |(?<=\[))[`\"]{HIDDEN_PREFIX}\w+[`\"]", "", first)  # suggestions of hidden columns
    first = re.sub(r"\[, ", "[", first)
    first = re.sub(r"#\d+L?\b", "", first)
    first = re.sub(r" missing from \".*", " is not a column of the merge", first)
    return _of_unknown_column(first) or first.rstrip(".;") + "."


_UNKNOWN_COLUMN = re.compile(r"\[UNRESOLVED_COLUMN\.\w+\].*? with name (.+?) cannot be resolved\.(.*)", re.DOTALL)
_QUALIFIED_NAME = re.compile(r"(?:`(?:[^`]|``)*`\.?)+")
_NAME_PART = re.compile(r"`((?:[^`]|``)*)`")


def _of_unknown_column(message: str) -> str:
    """Return a message for a column that Spark does not find; empty for other messages.

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
    *("INVALID_WHERE_CONDITION", "WINDOW_FUNCTION", "window function"),
    *("UNSUPPORTED_GENERATOR", "MISSING_GROUP_BY", "MISSING_AGGREGATION"),
)


def _advice(error: BaseException) -> str:
    text = str(error)
    if "AMBIGUOUS_REFERENCE" in text:
        could_be = set(re.findall(r"`[^\]]+?`(?=, |\])", text.partition("could be: [")[2].partition("]")[0] + "]"))
        if len(could_be) == 1 and "`.`" in could_be.pop():
            return " Target and source have the same alias; give one of them another alias."
        return " Qualify the name with the target's or the source's alias."
    if any(c in text for c in _NOT_ONE_ROW):
        return (
            " Conditions and values see one pair of rows at a time: compute aggregates, window functions and generators in the "
            "source."
        )
    if "COLLATION" in text:
        return (
            " Their collations differ: compare plain text, e.g. CAST(B.name AS STRING), or use one collation for both."
        )
    if "MISSING_ATTRIBUTES" in text or "CANNOT_RESOLVE_DATAFRAME_COLUMN" in text:
        return (
            " A Column taken from a DataFrame (df.x or df['x']) is bound to that DataFrame; "
            "name the column with an alias instead: F.col('B.x')."
        )
    return ""
