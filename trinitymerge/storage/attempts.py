"""Trying again after others were faster (S35): how often, and after which pause, as a table's properties say.

Owns: :class:`Attempts`. Knows nothing of what is tried.
"""

from __future__ import annotations

import random
import time

import attrs

from trinitymerge.errors import ConcurrentCommitError
from trinitymerge.properties import commit_backoff_seconds, max_commit_attempts
from trinitymerge.storage.log import Snapshot

_LONGEST_PAUSE_SECONDS = 2.0


@attrs.define
class Attempts:
    """The attempts at one commit.

    Attributes:
        failures: how many of them others were faster than.
    """

    failures: int = 0

    def give_way(self, error: ConcurrentCommitError, snapshot: Snapshot) -> None:
        """Waits for a random time that doubles with each failure, so that one of those who collide gets through.

        Args:
            error: of the attempt that failed.
            snapshot: the one it was made on.

        Raises:
            ConcurrentCommitError: the error, if it was the last attempt.
        """
        self.failures += 1
        if self.failures >= max_commit_attempts(snapshot.properties):
            raise error
        longest = commit_backoff_seconds(snapshot.properties) * 2 ** (self.failures - 1)
        time.sleep(random.uniform(0, min(_LONGEST_PAUSE_SECONDS, longest)))
