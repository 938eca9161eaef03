"""What a table object is made of, and what may be asked of it.

Owns: what it works on, whether it may write, its alias in expressions; and that whoever writes rows pays first what merges have
left to be done. The classes with the calls inherit from here, :mod:`trinitymerge.upkeep` first.
"""

from __future__ import annotations

import attrs

from trinitymerge import paying
from trinitymerge.errors import ReadOnlyTableError
from trinitymerge.sessions import can_write
from trinitymerge.storage.backend import Backend, Maintained, TimeTravel
from trinitymerge.storage.entries import Snapshot
from trinitymerge.storage.stores import maintained, time_travel

DEFAULT_ALIAS = "target"


@attrs.frozen(eq=False, repr=False)
class OpenedTable:
    """A stored table, at its newest version or pinned to an old one, which is read only."""

    _backend: Backend
    _pinned: int | None = None
    _alias: str = DEFAULT_ALIAS

    @property
    def path(self) -> str:
        """Where the table is, with scheme."""
        return self._backend.path

    def _snapshot(self) -> Snapshot:
        return self._backend.snapshot() if self._pinned is None else self._past().snapshot_at(self._pinned)

    def _past(self) -> TimeTravel:
        return time_travel(self._backend, f"Reading version {self._pinned}")

    def _maintained(self, call: str) -> Maintained:
        return maintained(self._writable(), call)

    def _writable(self) -> Backend:
        if self._pinned is not None:
            raise ReadOnlyTableError(
                f"{self.path} was opened at version {self._pinned}, and past versions are read only. Open it without "
                "versionAsOf or timestampAsOf to write.",
                path=self.path,
            )
        if not can_write(self._backend.spark):
            raise ReadOnlyTableError(
                f"{self.path} can only be read in this session: Spark Connect of PySpark 3.5 cannot evaluate a source once "
                "and hand over what a write observes. Use PySpark 4.0 or newer, or a classic session, to write.",
                path=self.path,
            )
        return self._backend

    def _finished(self, call: str, patience_ms: int | None = None) -> Maintained:
        """The store, once what merges have left to be done is done (S27)."""
        store = self._maintained(call)
        paying.pay(store, patience_ms)
        return store
