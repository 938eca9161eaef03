"""Spark's analyzer on expressions, and hints for its errors (S20, S30)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, functions as F
from pyspark.sql.types import AtomicType, DataType

from trinitymerge.errors import Advice, InvalidMergeError
from trinitymerge.merge.analysis.relations import Source, Target, alias_of, as_column, selected
from trinitymerge.merge.analysis.scope import Sees
from trinitymerge.merge.model.names import column_text, has_star, mentions_alias, name_parts
from trinitymerge.spark import system_columns as C
from trinitymerge.spark.errors import analysis_errors, suppress_error_logs
from trinitymerge.spark.predicates import boolean
from trinitymerge.spark.sql_text import as_sql

_UNRESOLVED = re.compile(r"with name ((?:`(?:[^`]|``)*`\.?)+) cannot be resolved")
_AMBIGUOUS = re.compile(r"Reference ((?:`(?:[^`]|``)*`\.?)+) is ambiguous")
_BARE = re.compile(r"[^\W\d]\w*(?:[ -]\w+)*")
_GROUP = re.compile(r"\b(?:NOT|AND|OR)\s*\((?!\s*(?:SELECT|WITH|FROM|VALUES|TABLE|MAP|REDUCE)\b)", re.IGNORECASE)
"""A parenthesis that calls nothing, and is not a subquery's."""


def hint(error: BaseException, value: object, target: Target, source: Source | None) -> str:
    """Return a sentence that starts with a blank, or nothing. ``value`` was to be assigned; None where a condition was refused."""
    text, parts = str(error), _unresolved(error)
    if "INVALID_USAGE_OF_STAR" in text:
        return " Spark 3.5 takes no * of a Column here. Give the expression as SQL text, or name the columns."
    if len(parts) > 1:
        return _about_alias(parts[0], target, source)
    syntax = "PARSE_SYNTAX_ERROR" in text or "Syntax error" in text
    if isinstance(value, str) and _BARE.fullmatch(value.strip()) and (parts or (syntax and " " in value.strip())):
        return f" In SQL, the text {value.strip()} has quotes: '{value.strip()}'."
    return ""


def unseen(error: BaseException, target: Target, source: Source | None, sees: Sees) -> str:
    """Return a better reason than Spark's for a refused name: it belongs to the other side, or is not an alias (S30)."""
    if source is None:
        return ""
    ambiguous = _AMBIGUOUS.search(str(error))
    if ambiguous and len(name_parts(ambiguous[1])) > 1:
        name = name_parts(ambiguous[1])[0]
        return (
            f"'{name}' is a column of both sides, not an alias. Give the source an alias that is not a column, as in "
            f"df.alias('B'), and name its columns by it."
            if name.lower() in {n.lower() for n in _names(source)} & {n.lower() for n in _names(target)}
            else ""
        )
    parts = _unresolved(error)
    if not parts or sees is Sees.BOTH:
        return ""
    seen, other = ("source", "target") if sees is Sees.SOURCE else ("target", "source")
    theirs, known = (source, target) if sees is Sees.SOURCE else (target, source)
    alias = target.alias if known is target else alias_of(source.df)
    if parts[0].lower() not in (n.lower() for n in (*_names(known), *((alias,) if alias and len(parts) > 1 else ()))):
        return ""
    return (
        f"Column '{'.'.join(parts)}' is the {other}'s, and the clause is for {seen} rows that have no {other} row. "
        f"Columns of the {other} can only be asked for nulls: in a condition, IS NULL is true and IS NOT NULL is false. "
        f"The {seen} has {', '.join(repr(n) for n in _names(theirs))}."
    )


def _names(side: Target | Source) -> Sequence[str]:
    return side.definition.names if isinstance(side, Target) else side.schema.names


def _unresolved(error: BaseException) -> tuple[str, ...]:
    """Return the parts of the name that Spark does not find, if that is what is wrong."""
    found = _UNRESOLVED.search(str(error))
    return name_parts(found[1]) if found else ()


def _about_alias(name: str, target: Target, source: Source | None) -> str:
    """Return which aliases there are, if the name is neither one of them nor a column."""
    theirs = None if source is None else alias_of(source.df)
    known = [target.alias, *target.definition.names, *((theirs,) if theirs else ())]
    known += [] if source is None else source.schema.names
    if name.lower() in (n.lower() for n in known):
        return ""
    if source is None:
        there = f" There is no alias '{name}': the target's is '{target.alias}'"
        return Advice(f"{there}; table.alias('{name}') gives it another.", sql=f"{there}; AS {name} gives it another.")
    side = f"the source's is '{theirs}'" if theirs else "the source has none (source.x is understood all the same)"
    there = f" There is no alias '{name}': the target's is '{target.alias}', and {side}."
    return Advice(
        f"{there} table.alias('{name}') and df.alias('{name}') give a side another.",
        sql=f"{there} AS {name} gives a side another.",
    )


Expression: TypeAlias = "str | Column"


class Inspector:
    """Answers about expressions over the sides that they see; runs no job.

    Args:
        frames: what expressions see, without the target's rows.
        given: all expressions of the merge, and what they see; Columns and texts with a star are asked when needed.
    """

    def __init__(
        self,
        target: Target,
        source: Source | None,
        frames: Mapping[Sees, DataFrame],
        given: Iterable[tuple[Sees, Expression]],
    ) -> None:
        self._target, self._source, self._frames = target, source, frames
        texts: dict[Sees, dict[str, None]] = {sees: {} for sees in Sees}
        for sees, value in given:
            if isinstance(value, str) and not has_star(value):
                texts[sees][value] = None
        everything = list(dict.fromkeys(t for some in texts.values() for t in some))
        self._beside = self._types_of_all(everything, Sees.BOTH)
        """The types of all texts beside both sides; nothing where one is refused there."""
        both = self._beside or self._types_of_all(list(texts[Sees.BOTH]), Sees.BOTH)
        self._types = {(Sees.BOTH, t): both[t] for t in texts[Sees.BOTH] if t in both}
        self._reads = self._ask_source(list(texts[Sees.BOTH]), list(texts[Sees.SOURCE]))
        self._learn(Sees.TARGET, list(texts[Sees.TARGET]))

    def _ask_source(self, of_both: Sequence[str], of_source: Sequence[str]) -> dict[str, bool]:
        """Return which texts over both sides read the target, as far as is known; learns of those over the source on the way."""
        alias = re.compile(rf"\b{re.escape(self._target.alias)}\b", re.IGNORECASE)
        known = [t for t in of_both if (Sees.BOTH, t) in self._types]
        likely = [t for t in known if not alias.search(t)] if self._can_be_only_source else []
        asked, reads = list(dict.fromkeys([*likely, *of_source])), dict[str, bool]()
        resolves = bool(asked) and self._source is not None and self._source.resolves(*asked)
        self._learn(Sees.SOURCE, of_source, resolves)
        if resolves:
            reads = dict.fromkeys(likely, False)
        # A text that names the target's columns reads it. It would take long to let the analyzer refuse each on the source.
        return reads | {t: True for t in known if t not in reads and mentions_alias(t, self._target.alias)}

    def _learn(self, sees: Sees, texts: Sequence[str], resolves: bool = False) -> None:
        """Return the types of texts over one side: those beside both, if it is known that the side has them all."""
        if not texts:
            return
        is_known = self._beside and (resolves or self._frames[sees] is self._frames[Sees.BOTH])
        types = self._beside if is_known else self._types_of_all(texts, sees)
        self._types |= {(sees, t): types[t] for t in texts if t in types}

    @contextmanager
    def errors(self, where: str, value: Expression | None = None, sees: Sees = Sees.BOTH) -> Iterator[None]:
        """Translate Spark's analysis errors, with hints. ``where`` begins the message; ``value`` is None for a condition."""
        target, source = self._target, self._source
        with analysis_errors(
            where, lambda error: hint(error, value, target, source), lambda error: unseen(error, target, source, sees)
        ):
            yield

    def _types_of_all(self, texts: Sequence[str], sees: Sees) -> dict[str, DataType]:
        """Return the types of texts that can all be used; nothing where one cannot."""
        if not texts:
            return {}
        try:
            with suppress_error_logs():
                types = [f.dataType for f in selected(self._frames[sees], texts).schema.fields]
                if len(types) != len(texts):
                    return {}
                calls = [t for t in texts if _may_call(t)]
                if calls:
                    nulls = ", ".join(f"isnull({as_sql(t)})" for t in calls)
                    self._frames[sees].filter(f"array({nulls})[0]").schema  # noqa: B018
        except (AnalysisException, ParseException):
            return {}
        return dict(zip(texts, types, strict=True))

    def kind(self, where: str, value: Expression, sees: Sees, is_condition: bool = False) -> DataType:
        known = self._known(value, sees)
        if known is not None:
            return known
        with self.errors(where, None if is_condition else value, sees):
            return selected(self._frames[sees], [value]).schema.fields[0].dataType

    def condition(self, where: str, condition: Expression, sees: Sees) -> Expression:
        """Return a condition as joins and filters take it. An aggregate, a window function or a generator is none."""
        found = boolean(condition, self.kind(where, condition, sees, is_condition=True), where)
        if self._known(condition, sees) is None:
            with self.errors(where, None, sees):
                self._frames[sees].filter(as_column(found)).schema  # noqa: B018
        return found

    def keeps_its_meaning(self, value: Expression, sees: Sees) -> bool:
        """Return True if an expression means the same beside the other side as alone."""
        if sees is Sees.BOTH or self._source is None:
            return True
        if self._may_mean_a_field(value, sees):
            return False
        if isinstance(value, str) and value in self._beside:
            return True
        try:
            with suppress_error_logs():
                selected(self._frames[Sees.BOTH], [value]).schema  # noqa: B018
        except (AnalysisException, ParseException):
            return False
        return True

    def _may_mean_a_field(self, value: Expression, sees: Sees) -> bool:
        """Return True if what it says of a column with fields could be about a side that is called like the column."""
        text = column_text(value) if isinstance(value, Column) else value
        own = self._target.nothing.schema if sees is Sees.TARGET else self._frames[sees].schema
        names = [f.name for f in own.fields if not isinstance(f.dataType, AtomicType)]
        return any(re.search(rf"(?<!\w){re.escape(name)}`?\s*\.", text, re.IGNORECASE) for name in names)

    def check_deterministic(self, expressions: Sequence[tuple[str, Expression, Sees, int | None]]) -> None:
        """Refuse conditions and keys that may differ each time they are computed, as ``rand()`` and ``uuid()`` do (S32).

        They are computed more than once: by several steps of a merge, and again by a task that is repeated. Each comes with the
        start of the message, what it sees, and the number of its clause.
        """
        by_frame: dict[Sees, list[tuple[str, Expression, int | None]]] = {}
        for where, expression, sees, clause in expressions:
            shown = Sees.BOTH if isinstance(expression, str) and expression in self._beside else sees
            by_frame.setdefault(shown, []).append((where, expression, clause))
        for sees, some in by_frame.items():
            self._check_deterministic(some, sees)

    def _check_deterministic(self, expressions: Sequence[tuple[str, Expression, int | None]], sees: Sees) -> None:
        if self._is_deterministic([e for _, e, _ in expressions], sees):
            return
        for where, expression, clause in expressions:
            if not self._is_deterministic([expression], sees):
                raise InvalidMergeError(
                    f"{where} is not deterministic: it may be another one each time it is computed, so rows could be paired "
                    "or written by one value and counted by another. Write the source to a file or a table with a column "
                    "for it first, and use that column.",
                    **({} if clause is None else {"clause": clause}),
                )

    def _is_deterministic(self, expressions: Sequence[Expression], sees: Sees) -> bool:
        """Return True if an expression is deterministic: Spark's analyzer takes it as a join condition."""
        expressions = [e for e in expressions if not isinstance(e, str) or _may_call(e)]
        if not expressions:
            return True
        nothing = self._target.spark.range(0).selectExpr(f"id AS {C.DUMMY}")
        texts = [f"isnull({as_sql(e)})" for e in expressions if isinstance(e, str)]
        columns = [e.isNull() for e in expressions if not isinstance(e, str)]  # one by one: each is calls to the JVM
        all_texts = [F.expr(f"array({', '.join(texts)})[0]")] if texts else []
        try:
            with suppress_error_logs():
                self._frames[sees].join(nothing, F.array(*all_texts, *columns)[0]).schema  # noqa: B018
        except AnalysisException as error:
            # Another reason against a join condition, such as a subquery, was accepted where the condition will stand.
            return "NON_DETERMINISTIC" not in str(error).upper()
        return True

    def types(self, where: str, values: Mapping[str, Expression], sees: Sees = Sees.BOTH) -> list[DataType]:
        frame, given = self._frames[sees], list(values.values())
        known = [kind for kind in (self._known(v, sees) for v in given) if kind is not None]
        if len(known) == len(given):
            return known
        try:
            with analysis_errors(where):
                types = [c.dataType for c in selected(frame, given).schema.fields]
                frame.filter(F.array(*[as_column(v).isNull() for v in given])[0]).schema  # noqa: B018
                return types
        except InvalidMergeError:
            for name, value in values.items():  # find the culprit
                with self.errors(f"{where}, column '{name}'", value, sees):
                    frame.select(as_column(value)).schema  # noqa: B018
                    frame.filter(as_column(value).isNull()).schema  # noqa: B018
            raise

    def _known(self, value: Expression, sees: Sees) -> DataType | None:
        return self._types.get((sees, value)) if isinstance(value, str) else None

    def reads_target(self, *values: Expression, sees: Sees = Sees.BOTH) -> bool:
        """Return True if any of the values needs the target; false if all can be computed from the source alone."""
        if not values or self._source is None or sees is not Sees.BOTH:
            return bool(values) and sees is not Sees.SOURCE
        known = [self._reads.get(v) if isinstance(v, str) else None for v in values]
        if None not in known:
            return any(known)
        reads = not (self._can_be_only_source and self._source.resolves(*values))
        if len(values) == 1 and isinstance(values[0], str):
            self._reads[values[0]] = reads
        return reads

    @property
    def _can_be_only_source(self) -> bool:
        """False where "A.x" could be read as field x of the source's column A."""
        return self._source is not None and not self._source.has_fields(self._target.alias)


def _may_call(text: str) -> bool:
    """Return False for a text without other parentheses: it calls no function but constants, so every filter takes it.

    So the simplest merges, which are the smallest, need no analysis for it.
    """
    return "(" in _GROUP.sub("", text)
