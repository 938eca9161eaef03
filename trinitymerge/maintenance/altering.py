"""Changing what a table is: its properties, its comment, and whether it keeps its versions (H1).

Owns: :class:`TableAlteration`, and switching history on. Each alteration is one commit.
"""

from __future__ import annotations

from collections.abc import Mapping

import attrs

from trinitymerge.definition import TableDefinition
from trinitymerge.errors import ConcurrentCommitError
from trinitymerge.maintenance.compaction import compact
from trinitymerge.properties import check_properties
from trinitymerge.storage import faults
from trinitymerge.storage.attempts import Attempts
from trinitymerge.storage.backend import Batches, Maintained
from trinitymerge.storage.entries import Snapshot, current_user
from trinitymerge.storage.publish import NothingLanded, Requirement, SameDefinition, publish

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

    Merges that were built before an alteration are refused when they run: open the table again, and build them again.

    Example:
        >>> result = orders.alter().setProperty("trinitymerge.compactAfterBatches", "50").setComment("all of them").execute()
        >>> print(result)
        version 2: trinitymerge.compactAfterBatches is 50; the comment is 'all of them'
    """

    _backend: Maintained
    _properties: Mapping[str, str | None] = attrs.field(factory=dict)
    _comment: tuple[str | None, ...] = ()
    _history: bool = False

    def setProperty(self, name: str, value: str) -> TableAlteration:
        """Sets a property.

        Raises:
            InvalidDefinitionError: it is one of the library's, and there is none of this name, or the value means nothing.
        """
        check_properties({name: str(value)})
        return attrs.evolve(self, properties={**self._properties, name: str(value)})

    def unsetProperty(self, name: str) -> TableAlteration:
        """Takes a property away: what is the default holds again."""
        return attrs.evolve(self, properties={**self._properties, name: None})

    def setComment(self, comment: str | None) -> TableAlteration:
        """Sets the comment, or takes it away."""
        return attrs.evolve(self, comment=(comment,))

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
        """
        attempts = Attempts()
        while True:
            snapshot = self._prepared()
            definition = self._altered(snapshot.definition)
            changes = tuple(_differences(snapshot.definition, definition))
            if not changes:
                return AlterResult(snapshot.version)
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
        kept = {n: v for n, v in own.properties.items() if n not in self._properties}
        found = kept | {n: v for n, v in self._properties.items() if v is not None}
        comment = self._comment[0] if self._comment else own.comment
        return attrs.evolve(own, properties=found, comment=comment, history=own.history or self._history)

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
        requirement: Requirement = NothingLanded() if begins else SameDefinition()
        return publish(self._backend, commit, snapshot, (requirement,))


def _differences(before: TableDefinition, after: TableDefinition) -> list[str]:
    names = sorted({*before.properties, *after.properties})
    found = [
        f"{n} is {after.properties[n]}" if n in after.properties else f"{n} is unset"
        for n in names
        if before.properties.get(n) != after.properties.get(n)
    ]
    if before.comment != after.comment:
        found.append("there is no comment" if after.comment is None else f"the comment is {after.comment!r}")
    return found + (["versions are kept"] if before.history != after.history else [])
