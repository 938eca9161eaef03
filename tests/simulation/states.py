"""What is explored, where all stand, and what may happen next: plain data.

Owns: :class:`Scenario`, :class:`State`, :class:`Action`; and what an exploration has come to, :class:`Found` or :class:`Failed`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import attrs

from simulation.disk import LOCAL, Call, Disk, Profile
from simulation.processes import Moment, Running
from simulation.programs import Acting

HOUR_MS = 3_600_000
START_MS = 1_700_000_000_000


@attrs.frozen(eq=False)
class Scenario:
    """Who takes part, and what may go wrong.

    Attributes:
        name: of the scenario.
        before: run one after another, to make the table.
        acting: run beside each other.
        profile: the storage.
        kills: how many processes may die.
        cuts: how often the power may go.
        faults: how many calls may fail, or succeed and seem to fail.
        ticks: how many hours may pass while the processes run.
        later: run after those, an hour before the others.
        hours: that have passed since the table was made.
        clocks: how many hours the clock of each is ahead of the storage's, or behind.
    """

    name: str
    before: tuple[Acting, ...]
    acting: tuple[Acting, ...]
    profile: Profile = LOCAL
    kills: int = 0
    cuts: int = 0
    faults: int = 0
    ticks: int = 0
    later: tuple[Acting, ...] = ()
    hours: int = 0
    clocks: tuple[int, ...] = ()

    def skew_ms(self, place: int) -> int:
        """How far the clock of a process is ahead."""
        return self.clocks[place] * HOUR_MS if self.clocks else 0


@attrs.frozen
class Action:
    """What happens next.

    Attributes:
        what: ``step``, ``kill``, ``cut``, ``tick``, ``land``, or how a call goes wrong: ``fail``, ``lose``, ``late``, ``tear``.
        which: the process; the disk that a cut leaves; the request that lands.
    """

    what: str
    which: int = 0


@attrs.frozen(eq=False)
class State:
    """Where all stand.

    Attributes:
        disk: what there is.
        moments: per process; None if it is dead.
        hours: that have passed.
        left: how many kills, cuts, faults and ticks may still be.
        late: requests that may still be carried out, though their process was told that they failed.
    """

    disk: Disk
    moments: tuple[Moment | Running | None, ...]
    hours: int
    left: tuple[int, int, int, int]
    late: tuple[Call, ...] = ()

    @property
    def key(self) -> Any:
        """Equal for states that are the same."""
        return self.disk.key, tuple(map(id, self.moments)), self.hours, self.left, self.late

    @property
    def now_ms(self) -> int:
        return START_MS + self.hours * HOUR_MS


@attrs.frozen
class Found:
    """What an exploration has seen.

    Attributes:
        states, steps: how many.
        schedules: how many ways there are from the start to an end.
        is_complete: every one was explored, up to the scenario's bounds.
        seconds: how long it took.
    """

    states: int
    steps: int
    schedules: int
    is_complete: bool
    seconds: float


class Failed(AssertionError):  # noqa: N818 - a finding
    """A schedule that breaks a promise.

    Attributes:
        promise: which.
        actions: the schedule.
    """

    def __init__(self, promise: str, actions: Sequence[Action], text: str) -> None:
        super().__init__(text)
        self.promise, self.actions = promise, tuple(actions)
