"""A step of the compiled merge: SELECTs over the rows, and what they do in one sentence."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from textwrap import indent
from typing import Generic, TypeAlias, TypeVar

import attrs
from pyspark.sql import Column, DataFrame, SparkSession, functions as F

from trinitymerge.merge.model.names import column_text
from trinitymerge.spark import expressions as E
from trinitymerge.spark.session import join, select_exprs
from trinitymerge.spark.sql_text import Sql, as_sql


@attrs.frozen(eq=False)
class LeftJoin:
    """A relation that a SELECT joins its rows with; if it is small, each task gets all of it. The name is for SQL to be read."""

    name: str
    rows: Callable[[SparkSession], DataFrame]
    on: Sql
    is_small: bool = True


@attrs.frozen(eq=False)
class Select:
    """One SELECT.

    Attributes:
        items: the columns that come out: values, which are SQL or a user's Columns, and their names.
        keeps_all: everything that goes in comes out, too.
        without: what does not come out of what goes in: names, each of all columns that are called so, or one column as SQL.
        alias: the columns it names go by it, others by none; or None.
    """

    items: tuple[tuple[Sql | Column, str], ...]
    keeps_all: bool = True
    where: Sql | None = None
    without: tuple[str, ...] = ()
    alias: str | None = None
    join: LeftJoin | None = None

    @classmethod
    def adding(cls, values: Mapping[str, Sql | Column], where: Sql | None = None) -> Select:
        """Return what goes in, and more columns beside it."""
        return cls(tuple((value, name) for name, value in values.items()), where=where)

    @classmethod
    def setting(cls, present: Sequence[str], values: Mapping[str, Sql | Column]) -> Select:
        """Return the columns that are present, some with new values, which are computed from the old ones.

        All are named only where some are: each name is a call to the JVM.
        """
        if not set(values).intersection(present):
            return cls.adding(values)
        kept = [(E.quote(n), n) for n in present if n not in values]
        return cls((*kept, *((value, name) for name, value in values.items())), keeps_all=False)

    @classmethod
    def only(cls, values: Mapping[str, Sql | Column]) -> Select:
        return cls(tuple((value, name) for name, value in values.items()), keeps_all=False)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(name for _, name in self.items)

    def and_then(self, other: Select) -> Select | None:
        """Merge this SELECT and one over it; return None if that one reads computed columns, or one of them filters."""
        mine = {name: value for value, name in self.items}
        computed = [name for value, name in self.items if not _is_passed_on(value, name)]
        theirs = [value for value, name in other.items if not _is_passed_on(value, name)]
        again = other.keeps_all and not set(mine).isdisjoint(other.names)
        apart = any(s.where or s.without or s.alias or s.join for s in (self, other))
        if again or apart or any(_reads(value, name) for value in theirs for name in computed):
            return None
        items = [(mine.get(n, v) if _is_passed_on(v, n) else v, n) for v, n in other.items]
        return Select((*self.items, *items) if other.keeps_all else tuple(items), self.keeps_all and other.keeps_all)

    def over(self, rows: DataFrame) -> DataFrame:
        """Return the SELECT over a DataFrame: one call to Spark where all values are text."""
        if self.join is not None:
            rows = join(rows, self.join.rows(rows.sparkSession), self.join.on, "left", self.join.is_small)
        star = ["*"] if self.keeps_all else []
        if all(isinstance(value, str) for value, _ in self.items):
            found = select_exprs(rows, [*star, *[_item(str(value), name) for value, name in self.items]])
        else:
            columns = [F.expr(v) if isinstance(v, str) else v for v, _ in self.items]
            found = rows.select(*star, *[c.alias(name) for c, name in zip(columns, self.names, strict=True)])
        found = found.drop(*[F.col(c) if isinstance(c, Sql) else c for c in self.without]) if self.without else found
        found = found if self.alias is None else _under(self.alias, found, self.names)
        return found if self.where is None else found.filter(self.where)

    def text(self, source: str) -> str:
        """Return the SELECT over a query's text. A Column is shown as Spark shows it, which is not always SQL."""
        items = [_item(v if isinstance(v, str) else f"/* Column */ {column_text(v)}", n) for v, n in self.items]
        listed = indent(",\n".join(["*", *items] if self.keeps_all else items), "  ")
        joined = "" if self.join is None else f"\nLEFT JOIN {self.join.name} ON {self.join.on}"
        query = f"SELECT\n{listed}\nFROM (\n{indent(source, '  ')}\n){joined}"
        if self.without:
            query = f"SELECT * EXCEPT ({', '.join(self.without)}) FROM (\n{indent(query, '  ')}\n)"
        query = query if self.alias is None else f"SELECT * FROM (\n{indent(query, '  ')}\n) AS {E.quote(self.alias)}"
        return query if self.where is None else f"SELECT * FROM (\n{indent(query, '  ')}\n)\nWHERE {self.where}"


def _under(alias: str, rows: DataFrame, names: Sequence[str]) -> DataFrame:
    others = [E.quote(n) for n in rows.columns if n not in names]
    shown = [f"{E.quote(alias)}.{E.quote(n)}" for n in names]
    return select_exprs(rows.alias(alias), [*shown, *[f"{n} AS {n}" for n in others]])


def _item(value: str, name: str) -> str:
    return value if _is_passed_on(value, name) else f"{as_sql(value)} AS {E.quote(name)}"


def _is_passed_on(value: str | Column, name: str) -> bool:
    return isinstance(value, str) and value in (name, E.quote(name))


def _reads(value: str | Column, name: str) -> bool:
    """Return True if a value may read a column: what is not our own text may read anything."""
    return (
        not isinstance(value, str) or E.quote(name) in value or re.search(rf"\b{re.escape(name)}\b", value) is not None
    )


P = TypeVar("P")
"""The subject of a step: a program, or the rows to leave out of all programs."""

Selects: TypeAlias = Callable[[P, Sequence[str]], tuple["Select", ...]]
"""The SELECTs of a step, one over the other, given the columns that are present."""


@attrs.frozen(eq=False)
class Step(Generic[P]):
    """One step, in a word, in a sentence, and as SELECTs; none where a program has no use for it.

    Before the ``project`` step the user's columns are also present, and may have any name; copies of the source's
    (:data:`trinitymerge.spark.system_columns.SOURCE_COPY`) count as theirs.

    The docstring of a step's function says which columns come in and go out, by their names in ``system_columns.py``.
    """

    name: str
    does: str
    selects: Selects[P]


def run(
    steps: Iterable[Step[P]], rows: DataFrame, program: P, present: Sequence[str], fused: bool = False
) -> tuple[DataFrame, tuple[str, ...]]:
    """Take steps over rows. Return these, and which of the library's and the stored columns they have, as ``present`` before.

    ``fused``: SELECTs that do not read what the one before computes become one with it: Spark analyzes the plan again for
    each. Not for steps that multiply rows or number them by where they are.
    """
    selects, present = selects_of(steps, program, present)
    for select in fewer(selects) if fused else selects:
        rows = select.over(rows)
    return rows, present


def selects_of(
    steps: Iterable[Step[P]], program: P, present: Sequence[str]
) -> tuple[tuple[Select, ...], tuple[str, ...]]:
    selects: list[Select] = []
    for step in steps:
        for select in step.selects(program, present):
            selects.append(select)
            present = present_after(select, present)
    return tuple(selects), tuple(present)


def fewer(selects: Iterable[Select]) -> tuple[Select, ...]:
    """Return the same SELECTs, those together that may be."""
    found: list[Select] = []
    for select in selects:
        together = found[-1].and_then(select) if found else None
        found[-1:] = [together] if together else [*found[-1:], select]
    return tuple(found)


def text(steps: Iterable[Step[P]], source: str, program: P, present: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the same as SQL to be read, and the columns present after it."""
    for step in steps:
        for n, select in enumerate(step.selects(program, present)):
            source = select.text(source)
            source = source if n else f"-- {step.name}: {step.does}\n{source}"
            present = present_after(select, present)
    return source, tuple(present)


def present_after(select: Select, present: Sequence[str]) -> tuple[str, ...]:
    return (*present, *select.names) if select.keeps_all else select.names
