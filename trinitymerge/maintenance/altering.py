"""Changing what a table is: its columns (S43), constraints (S45), defaults (S46), properties, and whether it keeps versions (H1).

Owns: :class:`TableAlteration`, and switching history on. Each alteration is one commit. What a change makes of a definition
stands in :mod:`trinitymerge.evolving`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import attrs
from pyspark.sql.types import DataType

from trinitymerge.ddl import column_of
from trinitymerge.definition import TableDefinition
from trinitymerge.errors import ConcurrentCommitError, FilesVacuumedError, InvalidDefinitionError
from trinitymerge.evolving import (
    differences_of_checks,
    differences_of_columns,
    find,
    renamed,
    widened,
    with_check,
    with_column,
    with_comment,
    with_default,
    with_nulls,
    without_check,
    without_column,
    without_nulls,
)
from trinitymerge.maintenance.compaction import compact
from trinitymerge.maintenance.constraining import check_of, default_of, is_stricter, require_fulfilled
from trinitymerge.properties import check_properties
from trinitymerge.settings import LITERAL_NAMES, held
from trinitymerge.storage import faults
from trinitymerge.storage.attempts import Attempts
from trinitymerge.storage.backend import Batches, Maintained
from trinitymerge.storage.entries import Snapshot, current_user
from trinitymerge.storage.publish import NothingLanded, Requirement, SameDefinition, publish
from trinitymerge.storage.storable import check_storable
from trinitymerge.storage.vanished import naming_vacuums

Step: TypeAlias = Callable[[TableDefinition], TableDefinition]
"""One change of a definition."""

FAULT_POINTS = ("alter.prepared", "alter.committed")
"""Where this module may be killed, see ``storage/faults.py``."""


@attrs.frozen
class AlterResult:
    """What an alteration did.

    Attributes:
        version: the table's version afterwards.
        changes: what was altered, in words; nothing if all was so already.
    """

    version: int
    changes: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"version {self.version}: {'; '.join(self.changes) or 'nothing altered, all is so already'}"


@attrs.frozen(eq=False, repr=False)
class TableAlteration:
    """Changes of a table's definition, made by ``TrinityTable.alter()``; nothing happens before :meth:`execute`.

    No file is written anew: a column keeps its name in files, so that a renamed one keeps its values, and one that is dropped and
    added again starts empty. Past versions keep the columns they had. A merge that was built before an alteration is planned again
    if it still means the same, and refused otherwise.

    Example:
        >>> result = orders.alter().addColumn("channel", "STRING").setComment("all of them").execute()
        >>> print(result)
        version 2: column channel string is added; the comment is 'all of them'
    """

    _backend: Maintained
    _steps: tuple[Step, ...] = ()
    _history: bool = False

    # Columns --------------------------------------------------------------------------------------------------------

    def addColumn(self, name: str, type: str | DataType, comment: str | None = None) -> TableAlteration:
        """Adds a column at the end; rows that are there have null in it (S43).

        Merges that were written before it go on working: on update it keeps its value, on insert it is null (S22, S23).

        Args:
            name: of the column.
            type: as in DDL text, such as ``"DECIMAL(10,2)"`` or ``"INT DEFAULT 0"``, or one of Spark's types.
            comment: for people.

        Raises:
            InvalidDefinitionError: the type cannot be stored or is ``NOT NULL``; :meth:`execute`: there is such a column.

        Example:
            >>> orders.alter().addColumn("channel", "STRING", comment="web or shop").execute().changes
            ('column channel string is added',)
        """
        field = column_of(name, type)
        if comment is not None:
            field = attrs.evolve(field, metadata={**field.metadata, "comment": str(comment)})
        added = self._then(lambda own: with_column(own, attrs.evolve(field, default=None)))
        return added if field.default is None else added.setDefault(name, field.default)

    def renameColumn(self, old: str, new: str) -> TableAlteration:
        """Renames a column, keys included; its values stay (S43).

        Raises:
            InvalidDefinitionError: from :meth:`execute`: there is no such column, or there is one of the new name.

        Example:
            >>> table = orders.alter().renameColumn("amount", "total").execute()
            >>> orders.toDF().columns[:2]
            ['order_id', 'total']
        """
        if not isinstance(new, str) or not new:
            raise InvalidDefinitionError(f"A column needs a name, got {new!r}.")
        return self._then(lambda own: renamed(own, old, new))

    def dropColumn(self, name: str) -> TableAlteration:
        """Drops a column (S43). Its values stay in files for past versions, until these are rewritten and vacuumed.

        Raises:
            InvalidDefinitionError: from :meth:`execute`: there is no such column, it is a key, or it is the last one.
        """
        return self._then(lambda own: without_column(own, name))

    def widenColumn(self, name: str, type: str | DataType) -> TableAlteration:
        """Gives a column a type that holds every value it can have now, and keeps them apart (S43).

        ``TINYINT`` to ``SMALLINT``, ``INT``, ``BIGINT``; whole numbers to ``DECIMAL`` with as many digits, up to ``INT`` to
        ``DOUBLE``; ``FLOAT`` to ``DOUBLE``; ``DECIMAL`` to more digits on either side; ``DATE`` to ``TIMESTAMP_NTZ``;
        ``VARCHAR(n)`` to longer ones and ``STRING``. The same inside of arrays, map values and structs, which may get more
        fields. Of keys only whole numbers and text.

        Raises:
            InvalidDefinitionError: the type cannot be parsed; :meth:`execute`: there is no such column, or the type is not wider.

        Example:
            >>> orders.alter().widenColumn("amount", "DECIMAL(12,2)").execute().changes
            ('column amount is decimal(12,2), not decimal(10,2)',)
        """
        kind = column_of(str(name), type).type
        return self._then(lambda own: widened(own, name, kind))

    def setNullable(self, name: str) -> TableAlteration:
        """Lets a column hold nulls, or a value inside of it (S45).

        Args:
            name: of the column, or of a place inside of it: ``"address.city"``, ``"tags.element"``, ``"prices.value"``.

        Raises:
            InvalidDefinitionError: from :meth:`execute`: there is no such column, or it is part of the primary key.
        """
        return self._then(lambda own: with_nulls(own, name))

    def setNotNull(self, name: str) -> TableAlteration:
        """Lets a column, or a value inside of it, hold no nulls any more: neither in live rows nor in those that are written (S45).

        Args:
            name: of the column, or of a place inside of it, as for :meth:`setNullable`.

        Raises:
            InvalidDefinitionError: from :meth:`execute`: there is no such column, or null is how its rows are told from tombstones.
            ConstraintError: from :meth:`execute`: live rows have nulls there; names some.

        Example:
            >>> orders.alter().setNotNull("amount").execute().changes
            ('column amount must not be null',)
        """
        return self._then(lambda own: without_nulls(own, name))

    def setDefault(self, name: str, default: str) -> TableAlteration:
        """Sets what inserts put into a column that they say nothing of, instead of null (S46).

        Rows that are there stay as they are, and so do those that are updated.

        Args:
            name: of a column that is no key.
            default: SQL text without columns, such as ``"0"``, ``"'new'"`` or ``"current_date()"``, which is computed when a row
                is inserted.

        Raises:
            InvalidDefinitionError: the default is no text; :meth:`execute`: there is no such column, it is a key, or the default
                does not fit it, or is another one each time.

        Example:
            >>> orders.alter().setDefault("amount", "0").execute().changes
            ('the default of column amount is 0',)
        """
        if not isinstance(default, str) or not default.strip():
            raise InvalidDefinitionError(
                f"The default of column '{name}' must be SQL text, such as '0' or \"'new'\", got {default!r}.",
                column=name,
            )
        return self._then(
            lambda own: with_default(own, name, default_of(self._backend.spark, find(own, name), default.strip()))
        )

    def dropDefault(self, name: str) -> TableAlteration:
        """Takes the default of a column away: inserts that say nothing of it put null there (S46).

        Raises:
            InvalidDefinitionError: from :meth:`execute`: there is no such column.
        """
        return self._then(lambda own: with_default(own, name, None))

    def addCheck(self, name: str, condition: str) -> TableAlteration:
        """Adds a condition that all rows fulfil: those that are live, and those that are written from now on (S45).

        A row for which it is false is refused, with the whole merge; null passes. Tombstones, past versions and versions of rows
        are not judged. All live rows are looked at once, and again if others write meanwhile.

        Args:
            name: of the constraint, for errors and :meth:`dropCheck`.
            condition: SQL text over the columns of one row.

        Raises:
            InvalidDefinitionError: name or condition is no text; :meth:`execute`: there is such a constraint, or the condition is
                not boolean, not deterministic, or about more than one row.
            ConstraintError: from :meth:`execute`: live rows break it; names some.

        Example:
            >>> orders.alter().addCheck("positive", "amount > 0").execute().changes
            ('CHECK positive (amount > 0) is a constraint',)
        """
        if not isinstance(name, str) or not name.strip():
            raise InvalidDefinitionError(f"A constraint needs a name, got {name!r}.")
        if not isinstance(condition, str) or not condition.strip():
            raise InvalidDefinitionError(f"The condition of constraint '{name}' must be SQL text, got {condition!r}.")
        return self._then(
            lambda own: with_check(own, check_of(self._backend.spark, own, name.strip(), condition.strip()))
        )

    def dropCheck(self, name: str) -> TableAlteration:
        """Drops a constraint (S45).

        Raises:
            InvalidDefinitionError: from :meth:`execute`: there is none of that name.
        """
        return self._then(lambda own: without_check(own, name))

    def setColumnComment(self, name: str, comment: str | None) -> TableAlteration:
        """Sets the comment of a column, or takes it away.

        Raises:
            InvalidDefinitionError: from :meth:`execute`: there is no such column.
        """
        return self._then(lambda own: with_comment(own, name, comment))

    # Table ----------------------------------------------------------------------------------------------------------

    def setProperty(self, name: str, value: str) -> TableAlteration:
        """Sets a property.

        Raises:
            InvalidDefinitionError: it is one of the library's, and there is none of this name, or the value means nothing.
        """
        check_properties({name: str(value)})
        return self._then(lambda own: attrs.evolve(own, properties={**own.properties, name: str(value)}))

    def unsetProperty(self, name: str) -> TableAlteration:
        """Takes a property away: what is the default holds again."""
        return self._then(
            lambda own: attrs.evolve(own, properties={n: v for n, v in own.properties.items() if n != name})
        )

    def setComment(self, comment: str | None) -> TableAlteration:
        """Sets the comment, or takes it away."""
        return self._then(lambda own: attrs.evolve(own, comment=comment))

    def _then(self, step: Step) -> TableAlteration:
        return attrs.evolve(self, steps=(*self._steps, step))

    def setHistory(self) -> TableAlteration:
        """Keeps versions from now on (H1). The latest rows become the first versions; nothing turns it off again.

        What is pending is compacted first, so that older rows in files are no versions. Without a declared watermark all begin
        at the switch.
        """
        return attrs.evolve(self, history=True)

    def execute(self) -> AlterResult:
        """Commits the changes, as one version.

        Raises:
            ConcurrentCommitError: others committed first, each time; nothing was changed.
            InvalidDefinitionError: the changes contradict the definition.
            ConstraintError: live rows break a new constraint.
        """
        with held(self._backend.spark, LITERAL_NAMES):
            return self._executed()

    def _executed(self) -> AlterResult:
        attempts = Attempts()
        while True:
            snapshot = self._prepared()
            definition = self._altered(snapshot.definition)
            changes = tuple(_differences(snapshot.definition, definition))
            if not changes:
                return AlterResult(snapshot.version)
            if is_stricter(snapshot.definition, definition):
                looked_at = Batches.of(attrs.evolve(snapshot, definition=definition))
                try:
                    with naming_vacuums(self._backend):
                        require_fulfilled(self._backend, looked_at, snapshot.definition)
                except FilesVacuumedError as error:
                    attempts.give_way(error, snapshot)
                    continue
            faults.fault("alter.prepared")
            try:
                done = self._commit(snapshot, definition, changes)
            except ConcurrentCommitError as error:
                attempts.give_way(error, snapshot)
                continue
            faults.fault("alter.committed")
            return AlterResult(done.version, changes)

    def _prepared(self) -> Snapshot:
        """The newest version; without older rows beside the latest if history is to be switched on."""
        snapshot = self._backend.snapshot()
        if not self._history or snapshot.definition.history or Batches.of(snapshot).are_resolved:
            return snapshot
        compact(self._backend)
        snapshot = self._backend.snapshot()
        if not Batches.of(snapshot).are_resolved:  # few changes, which a compaction leaves beside the segments
            compact(self._backend, full=True)
        return self._backend.snapshot()

    def _altered(self, own: TableDefinition) -> TableDefinition:
        definition = own
        for step in self._steps:
            definition = step(definition)
        definition = attrs.evolve(definition, history=own.history or self._history)
        if (definition.fields, definition.checks) != (own.fields, own.checks):
            definition = TableDefinition.from_json(definition.to_json())  # checked again, as if it were created so
            check_storable(definition)
        return definition

    def _commit(self, snapshot: Snapshot, definition: TableDefinition, changes: tuple[str, ...]) -> Snapshot:
        begins = definition.history and not snapshot.definition.history
        if begins and not Batches.of(snapshot).are_resolved:
            raise ConcurrentCommitError(
                f"Others have merged into {self._backend.path} faster than it could be compacted for history. Nothing was "
                "changed; run it again.",
                path=self._backend.path,
                version=snapshot.version,
                requirement=NothingLanded(),
            )
        restarted = snapshot.batches if begins and not definition.watermarkKey else ()
        commit = snapshot.next_commit(
            "ALTER",
            parameters={"changes": list(changes)},
            definition=definition,
            added=[attrs.evolve(b, version=None) for b in restarted],
            removed=[b.id for b in restarted],
            user=current_user(),
        )
        looked = begins or is_stricter(snapshot.definition, definition)
        requirement: Requirement = NothingLanded() if looked else SameDefinition()
        return publish(self._backend, commit, snapshot, (requirement,))


def _differences(before: TableDefinition, after: TableDefinition) -> list[str]:
    found = [*differences_of_columns(before, after), *differences_of_checks(before, after)]
    found += [
        f"{n} is {after.properties[n]}" if n in after.properties else f"{n} is unset"
        for n in sorted({*before.properties, *after.properties})
        if before.properties.get(n) != after.properties.get(n)
    ]
    if before.comment != after.comment:
        found.append("there is no comment" if after.comment is None else f"the comment is {after.comment!r}")
    return found + (["versions are kept"] if before.history != after.history else [])
