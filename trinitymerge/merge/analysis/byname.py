"""What a source gives to the columns of a table by their names (S10, S22, S23, S44).

Owns: :class:`ByName`: which column of the source goes into one of the table, what the source may lack, and what is said of all
that does not fit, at once. Whatever a map says is the business of :mod:`trinitymerge.merge.analysis.resolution`.
"""

from __future__ import annotations

from collections.abc import Sequence

import attrs
from pyspark.sql.types import DataType, StructType

from trinitymerge.assignment import Storing, storing
from trinitymerge.columns import SOURCE_COPY
from trinitymerge.constraints import about
from trinitymerge.definition import Field, TableDefinition
from trinitymerge.errors import (
    InvalidMergeError,
    SchemaMismatchError,
    TrinityMergeError,
    did_you_mean,
    in_columns,
    missing,
)
from trinitymerge.expressions import find_name, not_made, physical_type
from trinitymerge.merge.analysis.frames import Source, Target
from trinitymerge.merge.analysis.structs import can_be_completed, completed
from trinitymerge.merge.analysis.values import Given
from trinitymerge.merge.clauses import Clause, describe
from trinitymerge.widening import Path


@attrs.frozen
class BlamedClause:
    """A clause, for errors.

    Attributes:
        clauses: all of the merge.
        position: of this one, from 0.
        where: the clause and its action, as a message begins.
        action: its name.
    """

    clauses: tuple[Clause, ...]
    position: int
    where: str
    action: str


@attrs.frozen(eq=False)
class ByName:
    """A source beside a target.

    Attributes:
        target, source: the sides.
        follows_source: the source may lack any column but those of the primary key (S44).
    """

    target: Target
    source: Source
    follows_source: bool = False

    @property
    def definition(self) -> TableDefinition:
        """The target's."""
        return self.target.definition

    def value(self, field: Field, keeps: bool = False) -> Given | None:
        """The source's column of a name, and how it is stored, refused or not; None if there is none.

        Args:
            field: the table's column.
            keeps: fields of a struct that the source may lack keep the target's values, instead of being null.
        """
        i = self.source.index(field.name)
        if i is None:
            return None
        kind = self.source.plain_type(i)
        way = storing(kind, field)
        if way is Storing.REFUSED and self._can_be_completed(kind, field):
            return self._completed(i, kind, field, keeps)
        return Given(SOURCE_COPY(i), self.source.plain(i), kind, way)

    def _can_be_completed(self, kind: DataType, field: Field) -> bool:
        grown = {tuple(name.casefold() for name in path) for path in field.grown}

        def may_lack(path: Path) -> bool:
            return self.follows_source or tuple(name.casefold() for name in path) in grown

        return can_be_completed(kind, physical_type(field), may_lack)

    def _completed(self, i: int, kind: DataType, field: Field, keeps: bool) -> Given:
        wanted = physical_type(field)
        if keeps and isinstance(wanted, StructType):
            kept = self.target.column(field.name)
            return Given(completed(SOURCE_COPY(i), kind, wanted, kept), None, wanted, Storing.AS_IS)
        alone = completed(self.source.plain(i), kind, wanted)
        return Given(completed(SOURCE_COPY(i), kind, wanted), alone, wanted, Storing.AS_IS)

    def values(self, fields: Sequence[Field], clause: BlamedClause, keeps: bool) -> dict[str, Given]:
        """What the source gives to some columns; none for those that it may lack.

        Args:
            fields: of the table.
            clause: what asks.
            keeps: see :meth:`value`.

        Raises:
            SchemaMismatchError: columns that cannot be stored, all at once.
            InvalidMergeError: columns that the source lacks, and may not.
        """
        optional = {*self.definition.watermarkKey, self.definition.tombstoneKey}
        found = {f.name: self.value(f, keeps) for f in fields}
        given = {name: value for name, value in found.items() if value is not None}
        lacking = [f for f in fields if f.name not in given and f.name not in optional and not self._may_lack(f)]
        unfit = [f for f in fields if f.name in given and given[f.name].way is Storing.REFUSED]
        if unfit and len(unfit) + len(lacking) > 1:
            raise self._differences(unfit, lacking, clause)
        if unfit:
            raise unstorable(clause.clauses, clause.position, unfit[0], given[unfit[0].name], self._held(unfit[0]))
        if lacking:
            raise self._lacks([f.name for f in lacking], clause)
        return given

    def _held(self, field: Field) -> str:
        """Why a column that follows the source does not become wider, as a sentence; empty if nothing holds it (S44, S45)."""
        check = about(self.definition.checks, field.name) if self.follows_source else None
        return "" if check is None else f" It keeps its type, for the constraint '{check.name}' is about it."

    def _may_lack(self, field: Field) -> bool:
        return field.may_be_left_out or (self.follows_source and field.name not in self.definition.primaryKey)

    def _lacks(self, names: Sequence[str], clause: BlamedClause) -> TrinityMergeError:
        them = "it" if len(names) == 1 else "them"
        remedy = (
            f"Add {them}, or use merge() with {clause.action}All(exceptColumns=[...])."
            if clause.clauses[clause.position].call
            else f"Add {them}, name {them} in exceptColumns, or use {clause.action}Expr."
        )
        return InvalidMergeError(
            f"{clause.where} takes every column from the source. "
            f"{missing(names, 'the source', not_made(self.source.schema))} {remedy}",
            clause=clause.position + 1,
            columns=list(names),
        )

    def _differences(self, unfit: Sequence[Field], lacking: Sequence[Field], clause: BlamedClause) -> TrinityMergeError:
        unused = [n for n in self.source.schema.names if find_name(n, self.definition.names, False) is None]
        rows = [(f.name, f.text, self._type_of(f), "cannot be stored: cast it explicitly") for f in unfit]
        rows += [(f.name, f.text, "", f"is missing.{did_you_mean(f.name, unused)}") for f in lacking]
        table = in_columns(("column", "in the table", "in the source", ""), rows)
        return SchemaMismatchError(
            f"{clause.where} takes every column from the source, and {len(rows)} do not fit:\n{table}",
            clause=clause.position + 1,
            columns=[row[0] for row in rows],
        )

    def _type_of(self, field: Field) -> str:
        i = self.source.index(field.name)
        return "" if i is None else self.source.plain_type(i).simpleString()


def unstorable(
    clauses: tuple[Clause, ...], position: int, field: Field, given: Given, why: str = ""
) -> SchemaMismatchError:
    """The error about a value that no column of this type takes (S29); ``why`` may say more, as a sentence."""
    return SchemaMismatchError(
        f"{describe(clauses, position)}: column '{field.name}' is {field.text}, and a value of type "
        f"{given.type.simpleString()} cannot be stored in it.{why} Cast the value explicitly.",
        clause=position + 1,
        column=field.name,
    )
