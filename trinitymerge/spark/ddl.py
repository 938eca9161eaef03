"""Columns and types from DDL text or Spark's types (S7a)."""

from __future__ import annotations

import re
from typing import Any, cast

import attrs
from pyspark.sql import types
from pyspark.sql.types import DataType, StructType

from trinitymerge.errors import InvalidDefinitionError
from trinitymerge.schema.field import Field
from trinitymerge.spark import expressions as E
from trinitymerge.spark.errors import clean_message, is_spark_error
from trinitymerge.spark.sql_text import COMMENT, QUOTED, bare

# PySpark 3.5 has the parser of DDL text under its private name only.
_parse_ddl = getattr(StructType, "fromDDL", None) or types._parse_datatype_string

_COLLATED_CHAR = re.compile(r"char\s*\(\s*\d+\s*\)\s+collate\s+(?!utf8_binary\b)\w+", re.IGNORECASE)
"""Spark's parser silently drops these collations."""

_COMPUTED = re.compile(
    r"\bgenerated\s+(?:always|by\s+default)\s+as(?:\s+identity)?\b|(?<=[\w)>])\s+(?:identity|auto_?increment)\b",
    re.IGNORECASE,
)
"""Columns that other systems compute on write."""


def fields_of(schema: str | StructType) -> list[Field]:
    """Return the columns of a schema: DDL text such as ``"id BIGINT, name STRING DEFAULT 'new'"``, or a ``StructType``."""
    defaults: dict[int, str] = {}
    if isinstance(schema, str):
        computed = _COMPUTED.search(bare(schema))
        if computed:
            raise _computed_column(computed.group().strip())
        schema, defaults = _without_defaults(schema)
        schema = _parsed(schema)
    if not isinstance(schema, StructType):
        raise InvalidDefinitionError(f"schema takes DDL text or a StructType, got {type(schema).__name__}.")
    fields = [_of_catalog(Field.from_json(f)) for f in schema.jsonValue()["fields"]]
    return [attrs.evolve(f, default=defaults.get(i, f.default)) for i, f in enumerate(fields)]


def column_of(name: Any, kind: str | DataType) -> Field:
    """Return a column of any name and of a type, which may be DDL text; nullable unless it says NOT NULL."""
    if not isinstance(name, str) or not name:
        raise InvalidDefinitionError(f"A column needs a name, got {name!r}.")
    if isinstance(kind, DataType):
        return fields_of(StructType().add(name, kind))[0]
    if not isinstance(kind, str) or not kind.strip():
        raise InvalidDefinitionError(
            f"The type of column '{name}' must be text such as 'BIGINT' or one of Spark's types, got {kind!r}.",
            column=name,
        )
    found = fields_of(f"{E.quote(name)} {kind}")
    if len(found) != 1:
        raise InvalidDefinitionError(f"Column '{name}': {kind!r} is more than one type.", column=name)
    return found[0]


def _of_catalog(field: Field) -> Field:
    """Move a default of Spark's tables out of the metadata, where readers of files would apply it."""
    default = field.metadata.get("CURRENT_DEFAULT")
    kept = {n: v for n, v in field.metadata.items() if n not in ("CURRENT_DEFAULT", "EXISTS_DEFAULT")}
    return attrs.evolve(field, metadata=kept, default=field.default if default is None else str(default))


# DEFAULT, which Spark's DDL parser does not know ------------------------------------------------------------------------

_TOKEN = re.compile(rf"{COMMENT}|{QUOTED}|\w+|\s+|.", re.DOTALL)


def _without_defaults(schema: str) -> tuple[str, dict[int, str]]:
    """Split the ``DEFAULT`` clauses, by position of their columns, from DDL text."""
    kept, defaults, column, depth = "", dict[int, str](), 0, 0
    tokens = [" " if token.startswith(("--", "/*")) else token for token in _TOKEN.findall(schema)]
    first, inside = True, False
    for i, token in enumerate(tokens):
        word = token.upper()
        # Inside a default, "<" compares.
        depth += (token in "(" or (token == "<" and not inside)) - (token in ")" or (token == ">" and not inside))
        if depth <= 0 and token == ",":
            column, first, inside = column + 1, True, False
        elif depth <= 0 and word == "DEFAULT" and not first and column not in defaults:
            inside, defaults[column] = True, ""
            continue
        elif inside and depth <= 0 and _ends_default(tokens, i):
            inside = False
        if inside:
            defaults[column] += token
        else:
            kept += token
            first = first and (token.isspace() or token == ",")
    return kept, {place: text.strip() for place, text in defaults.items()}


def _ends_default(tokens: list[str], place: int) -> bool:
    words = [t.upper() for t in tokens[place:] if not t.isspace()][:2]
    before = [t.upper() for t in tokens[:place] if not t.isspace()][-1]
    return before not in ("DEFAULT", "IS") and bool(words) and (words[0] == "COMMENT" or words == ["NOT", "NULL"])


def _parsed(schema: str) -> StructType:
    collated = _COLLATED_CHAR.search(bare(schema))
    if collated:
        raise InvalidDefinitionError(
            f"The schema declares a collated column ({collated.group()}), and tables compare text exactly. Leave the collation "
            "out, and query lower(column) or column COLLATE ... instead."
        )
    try:
        return cast(StructType, _parse_ddl(schema))
    except AssertionError:  # early releases of PySpark 3.5: a type of the JVM without a Python class
        raise _unknown_type() from None
    except Exception as error:
        if not is_spark_error(error):
            raise
        if "[CANNOT_PARSE_DATATYPE]" in str(error):  # later releases
            raise _unknown_type() from None
        raise InvalidDefinitionError(f"The schema cannot be parsed: {clean_message(error)}") from None


def _unknown_type() -> InvalidDefinitionError:
    return InvalidDefinitionError(
        "The schema cannot be parsed: it has a type that PySpark does not support, such as a calendar INTERVAL. Use "
        "INTERVAL DAY TO SECOND, INTERVAL YEAR TO MONTH, or a string."
    )


def _computed_column(words: str) -> InvalidDefinitionError:
    if "ident" in words.lower() or "increment" in words.lower():
        return InvalidDefinitionError(
            f"The schema declares an identity column ({words}), and a merge that appends without reading the table cannot know "
            "which numbers are taken. Take the key from the source: a business key, uuid(), or a hash such as xxhash64(...)."
        )
    return InvalidDefinitionError(
        f"The schema declares a computed column ({words}), and a table stores only what a merge assigns. "
        "Assign the value in the merge or in its source, or compute it in a view."
    )
