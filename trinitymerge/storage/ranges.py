"""Where the range of a batch's keys is kept: in the batch's own directory, so that it goes when the rows go (S39).

Owns: that file, one a batch. It holds values of keys, which a purge must be able to forget; so it is no part of the log. It is
only ever a help: without it nothing is known, nothing is skipped, and of a base of segments all is compacted anew.
"""

from __future__ import annotations

import contextlib

import attrs

from trinitymerge.keyrange import KeyRange
from trinitymerge.storage.envelope import seal, unseal
from trinitymerge.storage.files import FileSystem
from trinitymerge.storage.logfiles import UNREADABLE

_FILE = "_key_range.json"
"""Spark passes over files that begin so."""


@attrs.frozen(eq=False)
class KeptRanges:
    """The ranges of the batches of a table, read once each."""

    files: FileSystem
    _known: dict[str, KeyRange | None] = attrs.field(factory=dict, init=False)

    def note(self, directory: str, keys: KeyRange) -> None:
        """Keeps the range of the batch in a directory, if the storage lets it."""
        with contextlib.suppress(OSError):
            if not self.files.exists(directory):  # a purge was faster; to bring it back would keep what it has taken
                return
            self.files.replace(f"{directory}/{_FILE}", seal(keys.to_json())[0])
        self._known[directory] = keys

    def of(self, directory: str) -> KeyRange | None:
        """The range of the batch in a directory; None where it was never kept, or is lost or damaged."""
        if directory not in self._known:
            self._known[directory] = self._read(f"{directory}/{_FILE}")
        return self._known[directory]

    def _read(self, path: str) -> KeyRange | None:
        with contextlib.suppress(*UNREADABLE, OSError):
            return KeyRange.from_json(unseal(self.files.read(path))[0])
        return None
