"""Names and text in merge expressions.

Owns: reading a column path out of a map key, the text of a ``Column``, and splitting a condition into its top-level
conjuncts. What is found here is only ever a guess that the caller verifies with Spark's analyzer; a condition that is not
understood is simply one conjunct.
"""

from __future__ import annotations

import re
from typing import Any

from pyspark.sql import Column

_TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<quoted>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`)|(?P<word>[\w.]+)|(?P<other>.)""",
    re.DOTALL,
)
_FUNCTION = re.compile(r"^(and|==?|<=>|<=|>=|<>|!=|<|>)\((.*)\)$", re.DOTALL)


def column_text(value: Column) -> str:
    """The text Spark prints for a Column: SQL, or ``function(arguments)`` form on Spark 4."""
    shown = repr(value)
    return shown[len("Column<'") : -len("'>")] if shown.startswith("Column<'") else shown


def name_parts(text: str) -> tuple[str, ...]:
    """The parts of a dotted name, backticks removed.

    Example:
        >>> name_parts("A.`x.y`.z")
        ('A', 'x.y', 'z')
    """
    parts = re.findall(r"`((?:[^`]|``)*)`|([^.`]+)", text.strip())
    return tuple(quoted.replace("``", "`") if quoted else plain.strip() for quoted, plain in parts)


def key_text(key: Any) -> str:
    """The text of a map key, which may be a name or a Column."""
    return column_text(key) if isinstance(key, Column) else str(key)


def conjuncts(condition: str | Column) -> list[str]:
    """The top-level AND parts of a condition, as SQL text.

    Example:
        >>> conjuncts("A.id = B.id AND (A.x > 1 OR B.y BETWEEN 1 AND 2)")
        ['A.id = B.id', 'A.x > 1 OR B.y BETWEEN 1 AND 2']
    """
    text = condition if isinstance(condition, str) else _infix(column_text(condition))
    parts = _split(_unwrapped(text), lambda depth, word: depth == 0 and word == "AND", _skips_and)
    if len(parts) == 1:
        return [parts[0].strip()]
    return [c for part in parts for c in conjuncts(part)]


def sides(conjunct: str) -> tuple[str, str] | None:
    """The two sides of an equality, or None.

    Example:
        >>> sides("A.id = upper(B.id)")
        ('A.id', 'upper(B.id)')
    """
    parts = _split(_unwrapped(conjunct), lambda depth, word: depth == 0 and word in ("=", "=="), lambda word: False)
    return (parts[0].strip(), parts[1].strip()) if len(parts) == 2 else None


def _skips_and(word: str) -> bool:
    return word == "BETWEEN"


def _split(text: str, separates: Any, skips_next: Any) -> list[str]:
    """Splits at separators outside parentheses, quotes and CASE ... END."""
    parts, current, depth, skip = [], "", 0, 0
    for token in _tokens(text):
        word = token.upper()
        depth += {"(": 1, "CASE": 1, ")": -1, "END": -1}.get(word, 0)
        skip += skips_next(word) and depth == 0
        if separates(depth, word) and skip == 0:
            parts.append(current)
            current = ""
            continue
        skip -= skip > 0 and word == "AND" and depth == 0
        current += token
    return [*parts, current]


def _tokens(text: str) -> list[str]:
    """Tokens of SQL text; operators of two characters stay whole, so that ``<=`` is not an equality."""
    text_tokens = [m.group(0) for m in _TOKEN.finditer(text)]
    merged: list[str] = []
    for token in text_tokens:
        if merged and token in "=>" and merged[-1] in ("<", ">", "!", "=", "<="):
            merged[-1] += token
        else:
            merged.append(token)
    return merged


def _unwrapped(text: str) -> str:
    """The text without parentheses that enclose all of it."""
    text = text.strip()
    while text.startswith("(") and text.endswith(")"):
        depth = 0
        tokens = _tokens(text)
        for i, token in enumerate(tokens):
            depth += {"(": 1, ")": -1}.get(token, 0)
            if depth == 0 and i < len(tokens) - 1:
                return text
        text = text[1:-1].strip()
    return text


def _infix(text: str) -> str:
    """Spark 4's ``and(=(A.id, B.id), ...)`` as SQL; anything else as it is."""
    match = _FUNCTION.match(text.strip())
    if match is None:
        return text
    arguments = _split(match.group(2), lambda depth, word: depth == 0 and word == ",", lambda word: False)
    if len(arguments) != 2:
        return text
    return f"({_infix(arguments[0])} {match.group(1).upper()} {_infix(arguments[1])})"
