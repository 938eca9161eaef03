"""Target and source as DataFrames, with their aliases and hidden columns (S19)."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any

import attrs
from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame, SparkSession, functions as F
from pyspark.sql.types import AtomicType, DataType, StructType

from trinitymerge.errors import InvalidMergeError
from trinitymerge.merge.model.names import has_bare_star, names_alias
from trinitymerge.schema.definition import HIDDEN_PREFIX, TableDefinition
from trinitymerge.spark import expressions as E, system_columns as C
from trinitymerge.spark.errors import analysis_errors, suppress_error_logs
from trinitymerge.spark.session import force_analysis, may_have_alias, select_exprs
from trinitymerge.spark.sql_text import Sql, as_sql

DEFAULT_SOURCE_ALIAS = "source"

_SUGGESTED = re.compile(r"`((?:[^`]|``)+)`\.`(?:[^`]|``)+`")


def expression(value: Any) -> str | Column:
    """Return a user's expression: text stays SQL, Columns stay, plain Python values become literals."""
    return value if isinstance(value, (str, Column)) else F.lit(value)


def as_column(value: str | Column) -> Column:
    return F.expr(as_sql(value)) if isinstance(value, str) else value


def choose(branches: Sequence[tuple[str | Column, Sql | Column]], otherwise: Sql | Column) -> Sql | Column:
    """Return the value of the first branch whose condition, of the user's, is true; null is not true, later ones are not evaluated.

    SQL text where all parts are text, which spares many calls to the JVM.
    """
    texts = [(as_sql(c), v) for c, v in branches if isinstance(c, str) and isinstance(v, str)]
    if isinstance(otherwise, str) and len(texts) == len(branches):
        return E.case(texts, otherwise)
    otherwise = as_column(otherwise)
    for condition, value in reversed(branches):
        otherwise = F.when(as_column(condition), as_column(value)).otherwise(otherwise)
    return otherwise


def with_columns(rows: DataFrame, added: Mapping[str, str | Column]) -> DataFrame:
    if all(isinstance(value, str) for value in added.values()):
        return select_exprs(rows, ["*", *[f"{as_sql(str(value))} AS {E.quote(name)}" for name, value in added.items()]])
    return rows.select("*", *[as_column(value).alias(name) for name, value in added.items()])


@attrs.frozen(eq=False, slots=False)
class Target:
    spark: SparkSession
    definition: TableDefinition
    alias: str

    def column(self, name: str) -> Sql:
        """Return a target column as SQL, also if another column has its name."""
        is_hidden = self.definition.tombstoneKey is None and name == self.definition.tombstone_column
        return E.quote(name) if is_hidden else Sql(f"{E.quote(self.alias)}.{E.quote(name)}")

    def has_fields(self, name: str, case_sensitive: bool) -> bool:
        """Return True if ``name.x`` could mean a part of a column, as of a :class:`Source`."""
        nested = [f.name for f in self.definition.fields if not isinstance(E.physical_type(f), AtomicType)]
        return E.find_name(name, nested, case_sensitive) is not None

    @property
    def columns(self) -> list[Sql]:
        """All columns of the side, the internal ones among them, as SQL."""
        return [*(self.column(f.name) for f in self.definition.fields), *self._internal]

    @property
    def _internal(self) -> dict[Sql, Sql]:
        """The internal columns of the side and what they are, as SQL over stored rows."""
        own = self.definition
        hidden = [E.quote(f.name) for f in own.stored_fields[len(own.fields) :]]
        watermarks: dict[Sql, Sql] = {C.BEFORE(i): E.quote(n) for i, n in enumerate(own.watermarkKey)}
        keys: dict[Sql, Sql] = {C.KEY_COPY(i): E.quote(n) for i, n in enumerate(own.primaryKey)}
        return {**{n: n for n in hidden}, C.LIVE: E.TRUE, **watermarks, **keys}

    @cached_property
    def nothing(self) -> DataFrame:
        """The user's columns without rows: what expressions see of the side."""
        return _nothing(self.spark, json.dumps(self.definition.to_json()), self.alias)

    @cached_property
    def empty(self) -> DataFrame:
        return _empty_side(self.spark, json.dumps(self.definition.to_json()), self.alias)

    def frame(self, rows: DataFrame, live: Sql) -> DataFrame:
        """Return the latest rows, of stored columns, as the target side of a join.

        Columns of tombstones show as null to the user's expressions: such keys are not matched (S18, S30). Their
        keys and watermarks stay visible to the compiler (S26). ``live`` is SQL that says whether a row is live; tombstones may
        only be included on paths that pair rows by key.
        """
        internal = self._internal
        if live != E.TRUE:
            stored = [E.quote(f.name) for f in self.definition.stored_fields]
            shown = {n: E.opaque(E.case([(live, n)])) for n in stored}
            rows = select_exprs(rows, [f"{value} AS {n}" for n, value in {**internal, C.LIVE: live, **shown}.items()])
            internal = {n: n for n in internal}
        rows = E.with_metadata(rows, self.definition, has_comments=False)
        # A column that is named here is under no alias, even if its name is the same.
        shown_fields = [self.column(f.name) for f in self.definition.fields]
        shown_internal = [f"{value} AS {n}" for n, value in internal.items()]
        return select_exprs(rows.alias(self.alias), [*shown_fields, *shown_internal])


@lru_cache(maxsize=32)
def _nothing(spark: SparkSession, definition: str, alias: str) -> DataFrame:
    own = TableDefinition.from_json(json.loads(definition))
    return E.with_metadata(E.empty_frame(spark, own.fields), own, has_comments=False).alias(alias)


@lru_cache(maxsize=32)
def _empty_side(spark: SparkSession, definition: str, alias: str) -> DataFrame:
    """Return an empty frame of a side, cached because making it takes much of a small merge."""
    target = Target(spark, TableDefinition.from_json(json.loads(definition)), alias)
    return target.frame(E.empty_frame(spark, target.definition.stored_fields), E.TRUE)


def whole_row(columns: Sequence[str]) -> Sql:
    """Return a struct of the columns, without those that share a name: what a quarantine keeps of a source row."""
    names = Counter(name.lower() for name in columns)
    return Sql(f"struct({', '.join(E.quote(name) for name in columns if names[name.lower()] == 1)})")


@attrs.frozen(eq=False)
class Source:
    """The source side: the user's DataFrame, its alias kept, with the internal columns beside it.

    Attributes:
        frame: the user's columns, ``_tm_source`` and the ``_tm_s<i>`` copies.
        schema: of the user's columns.
        df: the user's columns; after the evaluation also ``SOURCE_ROW`` and ``KEY_TO_FIND``.
        copies: names the compiler may ask for.
        is_kept: the rows have all columns as one more, for a quarantine.
    """

    frame: DataFrame
    schema: StructType
    case_sensitive: bool
    df: DataFrame
    copies: tuple[str, ...]
    is_kept: bool = False
    _same: dict[tuple[Any, ...], bool] = attrs.field(factory=dict, init=False, repr=False)
    _identities: dict[int, list[Sequence[str | Column]]] = attrs.field(factory=dict, init=False, repr=False)
    _identity_of: dict[tuple[Any, ...], Hashable] = attrs.field(factory=dict, init=False, repr=False)
    _selected: dict[tuple[Any, ...], DataFrame] = attrs.field(factory=dict, init=False, repr=False)

    @classmethod
    def of(
        cls, df: DataFrame, texts: Sequence[str], spark: SparkSession, copies: Sequence[str], is_kept: bool = False
    ) -> Source:
        """Prepare the source: the user's DataFrame, under its own alias or none.

        Where expressions of the merge (``texts``) say ``source.`` and the DataFrame has no such alias, it is given that one.
        """
        reserved = [n for n in df.columns if n.lower().startswith(HIDDEN_PREFIX)]
        if reserved:
            raise InvalidMergeError(
                f"The source has columns that start with '{HIDDEN_PREFIX}' ({', '.join(reserved)}), which are reserved. "
                "Drop or rename them before the merge."
            )
        case_sensitive = E.is_case_sensitive(spark)
        counts = Counter(n if case_sensitive else n.lower() for n in df.columns)
        doubled = [n for n in copies if counts[n if case_sensitive else n.lower()] > 1]
        if doubled:
            raise InvalidMergeError(
                f"The source has several columns called {', '.join(map(repr, doubled))}, so it is not known which one the merge "
                "means. Rename or drop all but one, for instance with df.toDF(*names) or a select. Nothing was written.",
                columns=doubled,
            )
        is_mentioned = any(names_alias(text, DEFAULT_SOURCE_ALIAS) for text in texts) and not (
            may_have_alias(df, DEFAULT_SOURCE_ALIAS) and _resolves(lambda: df.select(f"{DEFAULT_SOURCE_ALIAS}.*"))
        )
        if is_mentioned or (any(map(has_bare_star, texts)) and alias_of(df) is None):
            df = df.alias(DEFAULT_SOURCE_ALIAS)
        return cls(df, df.schema, case_sensitive, df, tuple(copies), is_kept).over(df)

    def over(self, df: DataFrame) -> Source:
        """Return the same source with its rows taken from another DataFrame of the same columns and aliases."""
        found = (self.index(name) for name in dict.fromkeys(self.copies))
        copies = [f"{E.opaque(self.plain(i))} AS {C.SOURCE_COPY(i)}" for i in found if i is not None]
        if self.is_kept:
            copies.append(f"{whole_row(self.schema.names)} AS {C.SOURCE_COLUMNS}")
        with analysis_errors("The source"):
            frame = force_analysis(select_exprs(df, ["*", f"true AS {C.IN_SOURCE}", *copies]))
            return attrs.evolve(self, frame=frame, df=df)

    def index(self, name: str) -> int | None:
        """Return the position of the column that ``name`` means, or None (S30)."""
        found = E.find_name(name, self.schema.names, self.case_sensitive)
        return None if found is None else self.schema.names.index(found)

    @property
    def star(self) -> Sql:
        """All columns as SQL, also beside other columns (S30)."""
        alias = alias_of(self.df)
        star = None if alias is None else Sql(f"{E.quote(alias)}.*")
        if star is None or self.df.selectExpr(star).columns != self.df.columns:
            raise InvalidMergeError(
                "A * without an alias means all columns of the source, and these do not all go by one alias. Give the source one: "
                "df.alias('B')."
            )
        return star

    def has_fields(self, name: str) -> bool:
        """Return True if ``name.x`` could mean a part of a column: of a struct, a map, or another nested type."""
        nested = [field.name for field in self.schema.fields if not isinstance(field.dataType, AtomicType)]
        return any(E.find_name(name, [own], self.case_sensitive) is not None for own in nested)

    def is_column(self, value: str | Column) -> bool:
        """Return True if an expression is one of the columns as it is, so that it gives the same whenever it is evaluated."""
        names = re.fullmatch(r"\s*(?:(\w+)\s*\.\s*)?`?(\w+)`?\s*", value) if isinstance(value, str) else None
        if names is None or self.index(names[2]) is None:
            return False
        return names[1] is None or self.index(names[1]) is None

    def plain(self, i: int) -> Sql:
        """Return the i-th column as SQL over the source alone; collated text as plain text, for a table compares exactly (S2)."""
        name, kind = E.quote(self.schema.names[i]), self.schema.fields[i].dataType
        return name if kind == self.plain_type(i) else E.cast(name, self.plain_type(i))

    def plain_type(self, i: int) -> DataType:
        return E.without_collations(self.schema.fields[i].dataType)

    def resolves(self, *expressions: str | Column) -> bool:
        """Return True if the expressions can be computed from the source alone."""
        return _resolves(lambda: self.selected(expressions))

    def selected(self, expressions: Sequence[str | Column]) -> DataFrame:
        """Return :func:`selected` of the user's columns; asked again for the same text, the same DataFrame."""
        if not all(isinstance(e, str) for e in expressions):
            return selected(self.df, expressions)
        text = tuple(expressions)
        if text not in self._selected:
            self._selected[text] = selected(self.df, text)
        return self._selected[text]

    def same(self, left: Sequence[str | Column], right: Sequence[str | Column]) -> bool:
        """Return True if expressions over the source alone mean the same, pair by pair.

        Equal text is: both are resolved against the same columns. Otherwise Spark's analyzer decides.
        """
        if len(left) != len(right):
            return False
        if all(isinstance(a, str) and isinstance(b, str) and a == b for a, b in zip(left, right, strict=True)):
            return True
        if not all(isinstance(c, str) for c in (*left, *right)):  # Columns have no equality
            return self._asked_same(left, right)
        question = (tuple(left), tuple(right))
        if question not in self._same:
            self._same[question] = self._asked_same(left, right)
        return self._same[question]

    def identity(self, expressions: Sequence[str | Column]) -> Hashable:
        """Return a value that is equal for expressions with equal meaning, position by position (:meth:`same`)."""
        known = self._identities
        text = tuple(expressions) if all(isinstance(e, str) for e in expressions) else None
        if text is not None and text in self._identity_of:
            return self._identity_of[text]
        hashed = self.selected(expressions).semanticHash()
        alike = known.setdefault(hashed, [])
        found = next((i for i, other in enumerate(alike) if self.same(expressions, other)), len(alike))
        if found == len(alike):
            alike.append(expressions)
        if text is not None:
            self._identity_of[text] = (hashed, found)
        return hashed, found

    def _asked_same(self, left: Sequence[str | Column], right: Sequence[str | Column]) -> bool:
        return bool(self.selected(left).sameSemantics(self.selected(right)))


def alias_of(df: DataFrame) -> str | None:
    """Return the alias of a DataFrame, as the analyzer names it when it suggests columns instead of one that does not exist."""
    try:
        with suppress_error_logs():
            df.select(f"`{C.NO_COLUMN}`.`{C.NO_COLUMN}`").schema  # noqa: B018
    except AnalysisException as error:
        aliases: Sequence[str] = _SUGGESTED.findall(str(error).split("Did you mean")[-1])
        return next((a.replace("``", "`") for a in aliases if a != C.NO_COLUMN), None)
    return None


def selected(frame: DataFrame, expressions: Sequence[str | Column]) -> DataFrame:
    """Evaluate expressions into columns with names that none of them can mean."""
    names = [C.ASKED_FOR(i) for i in range(len(expressions))]
    if all(isinstance(e, str) for e in expressions):
        return select_exprs(frame, [f"{as_sql(str(e))} AS {n}" for e, n in zip(expressions, names, strict=True)])
    return frame.select(*[as_column(e).alias(n) for e, n in zip(expressions, names, strict=True)])


def _resolves(made: Callable[[], DataFrame]) -> bool:
    try:
        with suppress_error_logs():
            made().schema  # noqa: B018 - Spark Connect analyses only when the schema is asked for
    except (AnalysisException, ParseException):
        return False
    return True
