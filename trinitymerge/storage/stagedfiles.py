"""Batches that have been written and not been committed, beside the files of a plain table (S16, S33).

Owns: a directory for each below ``_trinity_staged``, which Spark passes over; moving their files to where the table's are, with a
note of which, by which they are found again if the writer dies in between; and removing what dead writers have left. What the
files hold, and which batches are committed, is unknown here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Container, Iterable
from typing import Any

import attrs

from trinitymerge.storage.clock import now_ms
from trinitymerge.storage.directories import is_hidden, move_file
from trinitymerge.storage.files import FileInfo, FileSystem

DIRECTORY = "_trinity_staged"
KEPT_MS = 7 * 24 * 3600 * 1000
"""What has been staged for longer belongs to a writer that is dead."""

_NOTE = "_moved.json"


@attrs.frozen
class StagedFiles:
    """What is staged for one table.

    Attributes:
        files: the storage.
        path: the table's directory.
    """

    files: FileSystem
    path: str

    def directory(self, batch_id: str) -> str:
        """Where a batch's files are until they are moved."""
        return f"{self.path}/{DIRECTORY}/{batch_id}"

    def waiting(self, batch_id: str) -> dict[str, FileInfo]:
        """The data files that are still there, by their paths relative to the directory."""
        root = self.directory(batch_id)
        try:
            found = [f for f in self.files.walk(root) if not is_hidden(f, root)]
        except FileNotFoundError:
            return {}
        return {f.path.removeprefix(f"{root}/"): f for f in found}

    def moved(self, batch_id: str) -> list[str]:
        """The data files that are among the table's, or were about to be, by the same paths."""
        try:
            names = json.loads(self.files.read(f"{self.directory(batch_id)}/{_NOTE}"))
        except (OSError, ValueError, RecursionError):
            return []
        return [name for name in names if self._is_below(name)] if isinstance(names, list) else []

    def _is_below(self, name: Any) -> bool:
        """True if a name that was noted is one of a file that Spark reads as the table's, and no link leads from there."""
        if not isinstance(name, str) or any(part[:1] in ("", ".", "_") for part in name.split("/")):
            return False
        return self.files.link_below(self.path, name) is None

    def count(self, batch_id: str) -> int:
        """How many data files of a batch there are, wherever."""
        waiting = self.waiting(batch_id)
        gone = (name for name in self.moved(batch_id) if name not in waiting)
        return len(waiting) + sum(self.files.exists(f"{self.path}/{name}") for name in gone)

    def move(self, batch_id: str) -> None:
        """Moves what is still there to where the table's files are; that is noted before.

        Raises:
            FileNotFoundError: a file has been removed meanwhile.
        """
        names = sorted(self.waiting(batch_id))
        if not names:
            return
        note = json.dumps(sorted({*self.moved(batch_id), *names})).encode()
        self.files.replace(f"{self.directory(batch_id)}/{_NOTE}", note)
        for name in names:
            self.files.mkdirs(self._home(name))
            move_file(self.files, f"{self.directory(batch_id)}/{name}", self._home(name))
        for home in sorted(self._homes(names), reverse=True):  # the entry of a new partition is in the directory above
            self.files.sync_entries(home)

    def _homes(self, names: Iterable[str]) -> set[str]:
        """The directories that files are moved to, and those above them down from the table's."""
        homes = {self.path}
        for name in names:
            parts = name.split("/")[:-1]
            homes |= {"/".join([self.path, *parts[: depth + 1]]) for depth in range(len(parts))}
        return homes

    def _home(self, name: str) -> str:
        return f"{self.path}/{name}".rpartition("/")[0]

    def remove(self, batch_id: str) -> None:
        """Removes the files of a batch, wherever they are."""
        for name in self.moved(batch_id):
            file = f"{self.path}/{name}"
            self.files.delete(file)
            if self.files.is_local:
                self.files.delete(f"{self._home(name)}/.{name.rpartition('/')[2]}.crc")
        self.forget(batch_id)

    def forget(self, batch_id: str) -> None:
        """Removes what was kept of a batch here; files that have been moved are the table's."""
        self.files.delete(self.directory(batch_id))

    def tidy(self, committed: Callable[[], Container[str]]) -> list[str]:
        """Removes what dead writers have left.

        Args:
            committed: tells the ids of all batches of the table; asked only if something is left.

        Returns:
            The ids of the batches that are gone.
        """
        dead = [i.name for i in self._all() if i.is_dir and i.modified_ms < now_ms() - KEPT_MS]
        known = committed() if dead else ()
        for batch_id in dead:
            (self.forget if batch_id in known else self.remove)(batch_id)
        return dead

    def _all(self) -> Iterable[FileInfo]:
        try:
            return self.files.list(f"{self.path}/{DIRECTORY}")
        except FileNotFoundError:
            return []
