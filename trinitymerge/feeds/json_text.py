"""JSON messages: each value as a text that says whether it was a string, or a number or boolean (F3).

Spark reads JSON into text without the kind of a value, and a fraction by way of a double. So numbers and booleans are marked first:
``1.50`` becomes the string ``"1.50"`` with :data:`TAG` before its digits, also within objects and arrays.
"""

from __future__ import annotations

from pyspark.sql import DataFrame

from trinitymerge.spark import expressions as E
from trinitymerge.spark.session import select_exprs, version_of
from trinitymerge.spark.sql_text import Sql

TEXTS = "MAP<STRING, STRING>"

TAG = "\ufdd0"
"""A code point that is no character: Unicode keeps it for use within programs. Messages that have it are not read."""

_TAG = E.text_literal(TAG)
_STRING = r'"[^"\\]*+(?:\\.[^"\\]*+)*+"'
_BARE = r"(?:-?(?:0|[1-9][0-9]*+)(?:[.][0-9]++)?+(?:[eE][-+]?+[0-9]++)?+|true|false)(?![-+.0-9A-Za-z])"
_BEFORE = rf'\G((?:[^"\-0-9tf]++|{_STRING}|(?!{_BARE})[^"])*+)'
"""What stands before a number or boolean. Repetitions are possessive: others need stack, and a long text would end the process."""

_SCHEMA_FIRST, _PAYLOAD = E.text_literal('{"schema":'), E.text_literal('"payload":')
_LONE = (
    r"(?<!\\)(?:\\\\)*+\\u[dD](?:[89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD])[c-fC-F])"
)
"""Half of a surrogate pair. It is not a character, and Spark would store a question mark."""

_UNMARKED, _MARK = E.text_literal(f"{_BEFORE}({_BARE})"), E.text_literal(f'$1"{TAG}$2"')
_MARKED, _WITH_TAG = E.text_literal(f'"{TAG}([^"]*+)"'), E.text_literal(f"(?s)^.*{TAG}.*$")


def marked(text: Sql) -> Sql:
    """Return JSON whose numbers and booleans are strings with :data:`TAG`. JSON that has been marked stays as it is."""
    return Sql(f"regexp_replace({text}, {_UNMARKED}, {_MARK})")


def has_tag(text: Sql) -> Sql:
    return Sql(f"contains({text}, {_TAG})")


def is_bare(value: Sql) -> Sql:
    """Return SQL that is true if a value was a number or a boolean."""
    return Sql(f"startswith({value}, {_TAG})")


def scalar(value: Sql) -> Sql:
    """Return the text of a value that is not an object or an array."""
    return Sql(f"ltrim({_TAG}, {value})")


def text_of(value: Sql) -> Sql:
    """Return the text of a value: of an object or array its JSON."""
    nested = Sql(f"regexp_replace({value}, {_MARKED}, '$1')")
    return E.case([(is_bare(value), scalar(value)), (has_tag(value), nested)], value)


def entries_of(text: Sql) -> Sql:
    """Return the values of a JSON object, as a map. Names may come twice. Null for other JSON, and for one with :data:`TAG`."""
    return _from_json(text, Sql(TEXTS))


def elements_of(text: Sql) -> Sql:
    """Return the values of a JSON array. Null for other JSON, and for one with :data:`TAG`."""
    return _from_json(text, Sql("ARRAY<STRING>"))


def _from_json(text: Sql, kind: Sql) -> Sql:
    without = Sql(f"regexp_replace({text}, {_WITH_TAG}, {E.text_literal('')})")
    return Sql(f"from_json({marked(without)}, '{kind}')")


_STRICT = "map('columnNameOfCorruptRecord', '_corrupt', 'allowNonNumericNumbers', 'false')"
"""A bare NaN or Infinity is not JSON."""


def parsed_json(messages: DataFrame, shape: str, text: Sql | None = None) -> DataFrame:
    """Return the messages with their JSON as the columns ``m``, a struct, and ``is_corrupt``, and the marked JSON as ``json``.

    It is ``text``, by default ``value``, and is read within an array with something behind it. So text after the message is not
    passed over. Values are marked.
    """
    text = Sql("value") if text is None else text
    # A schema has no values of rows, and is the longest part of a message.
    payload = Sql(f"instr({text}, {_PAYLOAD})")
    later = Sql(f"concat(left({text}, {payload} - 1), {marked(Sql(f'substr({text}, {payload})'))})")
    told = E.case([(Sql(f"startswith({text}, {_SCHEMA_FIRST}) AND {payload} > 0"), later)], marked(text))
    kind = f"STRUCT<m: ARRAY<STRUCT<{shape}>>, `end`: STRING, `_corrupt`: STRING>"
    whole = 'concat(\'{"m":[\', json, \'],"end":""}\')'
    read = Sql(f"from_json({whole}, '{kind}', {_STRICT})")
    wrong = ("whole._corrupt IS NOT NULL", "whole.`end` IS NULL", "size(whole.m) <> 1", _is_not_text(messages))
    is_wrong = E.any_of(map(Sql, wrong))
    marked_json = select_exprs(messages, ["*", f"{E.opaque(told)} AS json"])
    held = select_exprs(marked_json, ["*", f"{E.opaque(read)} AS whole"])
    is_corrupt = E.opaque(Sql(f"value IS NOT NULL AND ({is_wrong})"))
    kept = map(E.quote, messages.columns)
    return select_exprs(held, [*kept, "json", f"{is_corrupt} AS is_corrupt", "get(whole.m, 0) AS m"])


def _is_not_text(messages: DataFrame) -> Sql:
    is_text = Sql("is_valid_utf8(value)")
    if version_of(messages.sparkSession) < (4, 0):
        is_text = Sql("encode(value, 'UTF-8') = CAST(value AS BINARY)")
    escapes = [_has_escape("d", _LONE), _has_escape("f", r"\\u[fF][dD][dD]0")]
    return E.any_of([E.not_(is_text), has_tag(Sql("value")), *escapes])


def _has_escape(digit: str, pattern: str) -> Sql:
    """Return SQL that is true for a message with such an escape, which begins with a digit."""
    # To search the text takes less time than a pattern.
    begins = E.any_of(Sql(f"contains(value, {E.text_literal(chr(92) + 'u' + d)})") for d in (digit, digit.upper()))
    return Sql(f"(({begins}) AND value RLIKE {E.text_literal(pattern)})")
