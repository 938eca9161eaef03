"""Trying again after others were faster (S35): how often, and after which pause, as a table's properties say.

Owns: :class:`Attempts`. Knows nothing of what is tried.
"""

from __future__ import annotations

import random
import time
from typing import TypeAlias

import attrs

from trinitymerge.errors import ConcurrentCommitError, FilesVacuumedError
from trinitymerge.properties import commit_backoff_seconds, max_commit_attempts
from trinitymerge.storage.entries import Snapshot

_LONGEST_PAUSE_SECONDS = 2.0

Setback: TypeAlias = ConcurrentCommitError | FilesVacuumedError
"""What a new attempt may get over."""


@attrs.define
class Attempts:
    """The attempts at one commit.

    Attributes:
        failures: how many of them others were faster than.
    """

    failures: int = 0

    def give_way(self, error: Setback, snapshot: Snapshot) -> None:
        """Waits for a random time that doubles with each failure, so that one of those who collide gets through.

        Args:
            error: of the attempt that failed.
            snapshot: the one it was made on.

        Raises:
            ConcurrentCommitError, FilesVacuumedError: the error, if it was the last attempt.
        """
        self.failures += 1
        if self.failures >= max_commit_attempts(snapshot.properties):
            raise error
        longest = commit_backoff_seconds(snapshot.properties) * 2 ** (self.failures - 1)
        time.sleep(random.uniform(0, min(_LONGEST_PAUSE_SECONDS, longest)))
