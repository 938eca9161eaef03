"""What Spark's analyzer says of a merge's expressions: their types, and which side they read (S20, S30).

Owns: :class:`Inspector`. Asking the analyzer takes milliseconds each time, so texts are asked all at once; only where that
fails are they asked one by one, to find out which clause to blame.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TypeAlias

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType, DataType, NullType

from trinitymerge.columns import ASKED
from trinitymerge.errors import InvalidMergeError
from trinitymerge.merge.analysis.frames import Source, Target, as_column, selected
from trinitymerge.merge.analysis.hints import hint
from trinitymerge.merge.analysis.names import mentions_alias
from trinitymerge.spark_errors import analysis_errors, quiet
from trinitymerge.sqltext import as_sql

Expression: TypeAlias = "str | Column"


class Inspector:
    """Answers about expressions over the joined sides; runs no job.

    Args:
        target, source, joined: the sides, without the target's rows.
        expressions: all those of the merge; what is not text is asked when needed.
    """

    def __init__(
        self, target: Target, source: Source | None, joined: DataFrame, expressions: Iterable[Expression]
    ) -> None:
        self._target, self._source, self._joined = target, source, joined
        texts = list(dict.fromkeys(e for e in expressions if isinstance(e, str)))
        self._types = self._types_of_all(texts)
        alias = re.compile(rf"\b{re.escape(target.alias)}\b", re.IGNORECASE)
        likely = [t for t in self._types if not alias.search(t)]
        self._reads = dict.fromkeys(likely, False) if likely and self._only_source(likely) else {}
        # What names the target's columns reads it; for the analyzer to refuse them on the source one by one takes long.
        self._reads |= {t: True for t in self._types if t not in self._reads and mentions_alias(t, target.alias)}

    @contextmanager
    def errors(self, where: str, value: Expression | None = None) -> Iterator[None]:
        """Spark's analysis errors as ours, with what may have been meant (see :mod:`trinitymerge.merge.analysis.hints`).

        Args:
            where: how the message begins.
            value: what was to be assigned; None where it is a condition.
        """
        with analysis_errors(where, lambda error: hint(error, value, self._target, self._source)):
            yield

    def _types_of_all(self, texts: Sequence[str]) -> dict[str, DataType]:
        """The types of texts that can all be used; nothing where one cannot."""
        if not texts:
            return {}
        try:
            with quiet():
                types = [f.dataType for f in selected(self._joined, texts).schema.fields]
                if len(types) != len(texts):
                    return {}
                calls = [t for t in texts if _may_call(t)]
                if calls:
                    nulls = ", ".join(f"isnull({as_sql(t)})" for t in calls)
                    self._joined.filter(f"array({nulls})[0]").schema  # noqa: B018
        except (AnalysisException, ParseException):
            return {}
        return dict(zip(texts, types, strict=True))

    def check_boolean(self, where: str, condition: Expression) -> None:
        """Refuses a condition that is not boolean, or that no filter takes: an aggregate, a window function, a generator.

        Raises:
            InvalidMergeError: beginning with ``where``.
        """
        with self.errors(where):
            kind = self._known(condition)
            if kind is None:
                kind = self._joined.select(as_column(condition).alias("c")).schema.fields[0].dataType
            if not isinstance(kind, (BooleanType, NullType)):
                raise InvalidMergeError(
                    f'{where} is {kind.simpleString()}, not boolean. Compare it with something, e.g. "... = 1".'
                )
            if self._known(condition) is None:
                self._joined.filter(as_column(condition)).schema  # noqa: B018

    def check_deterministic(self, expressions: Sequence[tuple[str, Expression]]) -> None:
        """Refuses conditions and keys that may differ each time they are computed, as ``rand()`` and ``uuid()`` do (S32).

        They are computed more than once: by several steps of a merge, and again by a task that is repeated.

        Args:
            expressions: what each is, as the message begins, and the expression.

        Raises:
            InvalidMergeError: naming the first.
        """
        if not expressions or self._is_deterministic([e for _, e in expressions]):
            return
        for where, expression in expressions:
            if not self._is_deterministic([expression]):
                raise InvalidMergeError(
                    f"{where} is not deterministic: it may be another one each time it is computed, so rows could be paired "
                    "or written by one value and counted by another. Write the source to a file or a table with a column "
                    "for it first, and use that column."
                )

    def _is_deterministic(self, expressions: Sequence[Expression]) -> bool:
        """The conditions of joins, unlike those of filters, must be: the analyzer says so, without naming functions here."""
        expressions = [e for e in expressions if not isinstance(e, str) or _may_call(e)]
        if not expressions:
            return True
        nothing = self._joined.sparkSession.range(0).selectExpr(f"id AS {ASKED}")
        texts = [f"isnull({as_sql(e)})" for e in expressions if isinstance(e, str)]
        columns = [e.isNull() for e in expressions if not isinstance(e, str)]  # one by one: each is calls to the JVM
        all_texts = [F.expr(f"array({', '.join(texts)})[0]")] if texts else []
        try:
            with quiet():
                self._joined.join(nothing, F.array(*all_texts, *columns)[0]).schema  # noqa: B018
        except AnalysisException as error:
            # What a join's condition cannot be for another reason (a subquery, say) has been accepted where it will stand.
            return "NON_DETERMINISTIC" not in str(error).upper()
        return True

    def types(self, where: str, values: Mapping[str, Expression]) -> list[DataType]:
        """The types of the values of some columns.

        Raises:
            InvalidMergeError: beginning with ``where`` and naming the column.
        """
        known = [self._known(v) for v in values.values()]
        if None not in known:
            return [kind for kind in known if kind is not None]
        try:
            with analysis_errors(where):
                given = list(values.values())
                types = [c.dataType for c in selected(self._joined, given).schema.fields]
                self._joined.filter(F.array(*[as_column(v).isNull() for v in given])[0]).schema  # noqa: B018
                return types
        except InvalidMergeError:
            for name, value in values.items():  # find the culprit
                with self.errors(f"{where}, column '{name}'", value):
                    self._joined.select(as_column(value)).schema  # noqa: B018
                    self._joined.filter(as_column(value).isNull()).schema  # noqa: B018
            raise

    def _known(self, value: Expression) -> DataType | None:
        return self._types.get(value) if isinstance(value, str) else None

    def reads_target(self, *values: Expression) -> bool:
        """True if any of the values needs the target; false if all can be computed from the source alone."""
        if not values or self._source is None:
            return bool(values)
        known = [self._reads.get(v) if isinstance(v, str) else None for v in values]
        if None not in known:
            return any(known)
        reads = not self._only_source(values)
        if len(values) == 1 and isinstance(values[0], str):
            self._reads[values[0]] = reads
        return reads

    def _only_source(self, values: Sequence[Expression]) -> bool:
        if self._source is None or self._source.has_fields(self._target.alias):
            return False  # "A.x" could be read as field x of the source's column A
        return self._source.resolves(*values)


def _may_call(text: str) -> bool:
    """False of a text without parentheses, and so without functions, but for those that are constants: no filter could refuse it.

    That spares asking Spark's analyzer about the simplest merges, which are the smallest.
    """
    return "(" in text
