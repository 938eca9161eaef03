"""Names in SQL text: the parts of a condition, the text of a Column. Guesses, verified by Spark's analyzer."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import pyspark
from pyspark.sql import Column

_TOKEN = re.compile(
    r"""(?P<space>\s+)|(?P<comment>--[^\r\n]*|/\*.*?\*/)|(?P<quoted>'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`)|(?P<word>[\w.]+)|(?P<other>.)""",
    re.DOTALL,
)
_BEFORE_STAR, _AFTER_STAR = ("", "(", ","), ("", ")", ",", "EXCEPT", "REPLACE")
_BEGIN_QUERIES = ("SELECT", "WITH", "FROM")
_PLAIN_EQUALITY = re.compile(r"\s*[A-Za-z_][\w.]*\s*=\s*[A-Za-z_][\w.]*\s*\Z", re.ASCII)
_FUNCTION = re.compile(r"^(and|or|==?|<=>|<=|>=|<>|!=|<|>)\((.*)\)$", re.DOTALL)


def with_stars(text: str, star: str) -> str:
    """Replace each ``*`` without an alias that means columns in SQL text. One in a subquery means the columns of that.

    Example:
        >>> with_stars("hash(*, A.*, 2 * 3, '(*)') > (SELECT count(*) FROM t)", "A.*, B.*")
        "hash(A.*, B.*, A.*, 2 * 3, '(*)') > (SELECT count(*) FROM t)"
    """
    tokens = list(_TOKEN.finditer(text))
    words = _without_space(tokens)
    queried = _in_subqueries(words)
    around = zip(["", *(t[0] for t in words)], words, [*(t[0] for t in words[1:]), ""], strict=False)
    bare = {
        t.start()
        for before, t, after in around
        if t[0] == "*" and before in _BEFORE_STAR and after.upper() in _AFTER_STAR and t.start() not in queried
    }
    return "".join(star if t.start() in bare else t[0] for t in tokens)


def with_qualified_stars(text: str, columns_of: Callable[[str], str | None]) -> str:
    """Return SQL text with the columns of each ``x.*``. Subqueries stay: they have aliases that are their own.

    ``columns_of`` returns what to write for ``x.*``, given ``x.``; None leaves the star.

    Example:
        >>> with_qualified_stars("hash(A.*, `B`.*, 2.*3, '(A.*)')", lambda qualifier: f"{qualifier}id, {qualifier}v")
        "hash(A.id, A.v, `B`.id, `B`.v, 2.*3, '(A.*)')"
    """
    tokens = list(_TOKEN.finditer(text)) if ".*" in text else []
    words = _without_space(tokens)
    if not words:
        return text
    found, done, queried = "", 0, _in_subqueries(words)
    for i, star in enumerate(words):
        start = i
        while start and words[start - 1].end() == words[start].start() and _is_name(words[start - 1]):
            start -= 1
        qualifier = text[words[start].start() : star.start()]
        before, after = (words[start - 1][0] if start else ""), (words[i + 1][0] if i + 1 < len(words) else "")
        if star[0] != "*" or not qualifier.endswith(".") or before not in _BEFORE_STAR or after not in ("", ")", ","):
            continue
        columns = None if star.start() in queried else columns_of(qualifier)
        if columns is not None:
            found, done = f"{found}{text[done : words[start].start()]}{columns}", star.end()
    return found + text[done:]


def _in_subqueries(words: list[re.Match[str]]) -> set[int]:
    """Return where the tokens of subqueries begin."""
    found: set[int] = set()
    opened: list[bool] = []
    for token, following in zip(words, [*(t[0].upper() for t in words[1:]), ""], strict=False):
        if any(opened):
            found.add(token.start())
        if token[0] == "(":
            opened.append(following in _BEGIN_QUERIES)
        elif token[0] == ")" and opened:
            opened.pop()
    return found


def _is_name(token: re.Match[str]) -> bool:
    return token.lastgroup == "word" or token[0].startswith("`")


def _without_space(tokens: Iterable[re.Match[str]]) -> list[re.Match[str]]:
    return [t for t in tokens if t.lastgroup not in ("space", "comment")]


def has_bare_star(text: str) -> bool:
    """Return True if SQL text, or Spark's text of a Column, has a ``*`` without an alias that means columns."""
    return "*" in text and with_stars(text, "") != text


def has_star(text: str) -> bool:
    """Return True if SQL text has a ``*`` that means columns, with an alias or without."""
    return has_bare_star(text) or with_qualified_stars(text, lambda _: "") != text


def column_text(value: Column) -> str:
    """Return the text Spark prints for a Column: SQL, or ``function(arguments)`` form on Spark 4."""
    shown = repr(value)
    if "unresolvedstar()" in shown and hasattr(value, "_jc"):  # Spark 3.5 prints no alias there
        return str(getattr(value, "_jc").expr().toString())  # noqa: B009 - a Column has any attribute: its fields
    return shown[len("Column<'") : -len("'>")] if shown.startswith("Column<'") else shown


_NAME = r"((?:`(?:[^`]|``)*`|\w+)(?:\.(?:`(?:[^`]|``)*`|\w+))*)"
_IS_NULL = re.compile(rf"{_NAME}\s+IS\s+(NOT\s+)?NULL\b|\b(isnull|isnotnull)\s*\(\s*{_NAME}\s*\)", re.IGNORECASE)
_MAY_PRECEDE = re.compile(r"(?:^|[(,]|\b(?:AND|OR|NOT|WHEN|THEN|ELSE))\s*\Z", re.IGNORECASE)
_MAY_FOLLOW = re.compile(r"\s*(?:\Z|[),]|(?:AND|OR|WHEN|THEN|ELSE|END)\b)", re.IGNORECASE)


def with_known_nulls(text: str, is_null: Callable[[str], bool]) -> str:
    """Return SQL text with ``true`` for each ``name IS NULL`` whose name is known to be null, and ``false`` for ``IS NOT NULL``.

    Subqueries stay: they have aliases that are their own.

    Example:
        >>> with_known_nulls("A.id IS NULL AND B.id IS NOT NULL AND x = ' A.id IS NULL'", lambda name: name == "A.id")
        "TRUE AND B.id IS NOT NULL AND x = ' A.id IS NULL'"
    """
    tokens = list(_TOKEN.finditer(text))
    quoted = [t.span() for t in tokens if t.lastgroup in ("comment", "quoted") and t[0][0] != "`"]
    queried = _in_subqueries(_without_space(tokens))

    def known(found: re.Match[str]) -> str:
        is_call = found[3] is not None
        before, after = text[: found.start()], text[found.end() :]
        stands_alone = is_call or (_MAY_PRECEDE.search(before) and _MAY_FOLLOW.match(after))
        is_text = found.start() in queried or any(a <= found.start() < b for a, b in quoted)
        if is_text or not stands_alone or not is_null(found[4] or found[1]):
            return found[0]
        return "FALSE" if found[2] or (is_call and found[3].lower() == "isnotnull") else "TRUE"

    return _IS_NULL.sub(known, text)


def column_sql(value: Column) -> str:
    """Return a Column as SQL text: a guess, for the analyzer to verify."""
    if pyspark.__version__ < "4" and hasattr(value, "_jc"):
        return str(getattr(value, "_jc").expr().sql())  # noqa: B009 - a Column has any attribute: its fields
    return _infix(column_text(value))


def name_parts(text: str) -> tuple[str, ...]:
    """Return the parts of a dotted name, backticks removed.

    Example:
        >>> name_parts("A.`x.y`.z")
        ('A', 'x.y', 'z')
    """
    parts = re.findall(r"`((?:[^`]|``)*)`|([^.`]+)", text.strip())
    return tuple(quoted.replace("``", "`") if quoted else plain.strip() for quoted, plain in parts)


def key_text(key: Any) -> str:
    return column_text(key) if isinstance(key, Column) else str(key)


def conjuncts(condition: str | Column) -> list[str]:
    """Return the top-level AND parts of a condition, as SQL text.

    Example:
        >>> conjuncts("A.id = B.id AND (A.x > 1 OR B.y BETWEEN 1 AND 2)")
        ['A.id = B.id', 'A.x > 1 OR B.y BETWEEN 1 AND 2']
    """
    text = condition if isinstance(condition, str) else _infix(column_text(condition))
    parts = _split(_unwrapped(text), lambda depth, word: depth == 0 and word == "AND", lambda word: word == "BETWEEN")
    if len(parts) == 1:
        return [parts[0].strip()]
    return [c for part in parts for c in conjuncts(part)]


def mentions_alias(text: str, alias: str) -> bool:
    """Return whether a text certainly names a column of an alias; False if Spark must decide.

    Example:
        >>> mentions_alias("A.x + B.x", "a"), mentions_alias("concat(B.x, 'A.x')", "A")
        (True, False)
    """
    if "->" in text:  # a lambda's variable may be called so
        return False
    return any(token.lower().startswith(f"{alias.lower()}.") for token in _tokens(text))


def names_alias(text: str, alias: str) -> bool:
    """Return True if a text may name something of an alias, which is not the field of something else.

    Example:
        >>> names_alias("`source` .id > 1", "source"), names_alias("A.source.id = 'source.id'", "source")
        (True, False)
    """
    words, name = ["", *(t[0] for t in _without_space(list(_TOKEN.finditer(text))))], alias.lower()
    around = zip(words, words[1:], [*words[2:], ""], strict=False)
    return any(
        word.lower().startswith(f"{name}.") or (word.strip("`").lower() == name and after.startswith("."))
        for before, word, after in around
        if not before.endswith(".")
    )


def without_texts(text: str) -> str:
    """Return SQL text without comments, and without texts in single quotes.

    Example:
        >>> without_texts("kind <> 'discount' -- or discount")
        "kind <> ''  "
    """
    shown = (" " if t.lastgroup == "comment" else "''" if t[0][0] == "'" else t[0] for t in _TOKEN.finditer(text))
    return "".join(shown)


def sides(conjunct: str) -> tuple[str, str] | None:
    """Return the two sides of an equality, without parentheses around them, or None.

    ``<=>`` is one too, for a key is never null: a null on the source's side equals none, as with ``=`` (S20).

    Example:
        >>> sides("A.id = upper(B.id)")
        ('A.id', 'upper(B.id)')
    """
    found = _equality(conjunct)
    return None if found is None else (found[0], found[2])


def in_parentheses(conjunct: str) -> str:
    """Put each side of an equality in parentheses; the meaning is the same if :func:`sides` has split it as Spark does.

    Example:
        >>> in_parentheses("A.flag = B.flag OR B.x")
        '(A.flag) = (B.flag OR B.x)'
    """
    found = _equality(conjunct)
    return conjunct if found is None else f"({found[0]}) {found[1]} ({found[2]})"


def _equality(conjunct: str) -> tuple[str, str, str] | None:
    text = _unwrapped(conjunct)
    parts = _split(text, lambda depth, word: depth == 0 and word in ("=", "==", "<=>"), lambda word: False)
    if len(parts) != 2:
        return None
    left, right = parts
    return _unwrapped(left), text[len(left) : len(text) - len(right)], _unwrapped(right)


def is_plain_equality(condition: str | Column) -> bool:
    """Return True if a condition is one equality of two bare names.

    Example:
        >>> is_plain_equality("A.id = B.id"), is_plain_equality("A.flag = B.flag OR B.x")
        (True, False)
    """
    return isinstance(condition, str) and _PLAIN_EQUALITY.match(condition) is not None


def _split(text: str, separates: Any, skips_next: Any) -> list[str]:
    """Split at separators outside parentheses, quotes and CASE ... END."""
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
    """Return tokens of SQL text, comments left out; operators stay whole, so that ``<=`` is not an equality."""
    merged: list[str] = []
    for token in (" " if m.lastgroup == "comment" else m.group(0) for m in _TOKEN.finditer(text)):
        if merged and token in "=>" and merged[-1] in ("<", ">", "!", "=", "<="):
            merged[-1] += token
        else:
            merged.append(token)
    return merged


def _unwrapped(text: str) -> str:
    """Remove parentheses that enclose the whole text."""
    text = "".join(_tokens(text)).strip()
    while text.startswith("(") and text.endswith(")"):
        depth, tokens = 0, _tokens(text)
        for i, token in enumerate(tokens):
            depth += {"(": 1, ")": -1}.get(token, 0)
            if depth == 0 and i < len(tokens) - 1:
                return text
        text = text[1:-1].strip()
    return text


def _infix(text: str) -> str:
    """Spark 4's ``and(=(A.id, B.id), ...)`` as SQL; anything else as it is."""
    text = text.strip()
    if text.startswith("!(") and text.endswith(")"):
        return f"(NOT {_infix(text[2:-1])})"
    match = _FUNCTION.match(text)
    if match is None:
        return text
    arguments = _split(match.group(2), lambda depth, word: depth == 0 and word == ",", lambda word: False)
    if len(arguments) != 2:
        return text
    return f"({_infix(arguments[0])} {match.group(1).upper()} {_infix(arguments[1])})"
