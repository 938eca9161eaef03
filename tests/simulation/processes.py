"""Code that runs one call at a time: it stops whenever it asks the disk, and goes on with whatever answer it is given.

Owns: :class:`Process`, what one runs; :class:`Moment`, where it stands: all the answers it has got. A process is nothing but its
code and these answers, for its identifiers, its clock and its chance come from here too. So a process is brought to a moment by
running it from the start with the answers of before, and processes that have got the same answers are the same.
"""

from __future__ import annotations

import itertools
import random
import secrets
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import SimpleNamespace
from typing import Any
from unittest import mock

import attrs

from simulation.disk import Call, Failure, parent
from trinitymerge.fs.base import FileSystem, Infos


class Suspended(BaseException):
    """A process has asked for something that nobody has answered yet. No ``except Exception`` may stop it."""


@attrs.frozen(eq=False)
class Process:
    """What a process does.

    Attributes:
        name: two letters; what it makes is called after it.
        doing: for people.
        code: run with its :class:`Machine`; what it returns is its result.
    """

    name: str
    doing: str
    code: Callable[[Machine], Any]


@attrs.frozen
class Ended:
    """How a process ended.

    Attributes:
        result: what its code returned.
        error: what it raised.
    """

    result: Any = None
    error: Exception | None = None


@attrs.define(eq=False)
class Moment:
    """Where a process stands.

    Attributes:
        before: the moment before its last answer; None at the start.
        answer: that answer.
        call: what it asks now; None once it has ended.
        ended: how.
        then: the moments after each answer, as far as they are known.
    """

    before: Moment | None = None
    answer: Any = None
    call: Call | None = None
    ended: Ended | None = None
    then: dict[Any, Moment] = attrs.field(factory=dict)

    def answers(self) -> list[Any]:
        """All it has got, the first one first."""
        found, moment = [], self
        while moment.before is not None:
            found.append(moment.answer)
            moment = moment.before
        return found[::-1]


Quiet = Callable[[Call], Any]
"""Answers a call at once if it makes no difference when it is answered; else :data:`LOUD`."""

LOUD = object()


class Machine(FileSystem):
    """What a process runs on: a disk that somebody else moves, and names and numbers that are the same in every run."""

    def __init__(self, process: Process, moment: Moment, quiet: Quiet, is_local: bool, is_synced_later: bool) -> None:
        self.process, self.is_local, self.is_synced_later = process, is_local, is_synced_later
        self.reads_at_once = 1  # the scheduler runs one call at a time
        self._answers, self._moment, self._quiet = moment.answers(), moment, quiet
        self._position, self._is_suspended = 0, False
        self._numbers = itertools.count()

    # The disk -------------------------------------------------------------------------------------------------------

    def qualify(self, path: str) -> str:
        return path

    def create_exclusive(self, path: str, data: bytes) -> None:
        if self.is_synced_later:
            self.ask(Call("sync_entries", parent(path)))
        self.ask(Call("create", path, data))
        if self.is_synced_later:
            self.ask(Call("sync_entries", parent(path)))

    def replace(self, path: str, data: bytes) -> None:
        self.ask(Call("replace", path, data))

    def write(self, path: str, data: bytes) -> None:
        """As Spark does."""
        self.ask(Call("write", path, data))

    def read(self, path: str) -> bytes:
        return self.ask(Call("read", path))

    def exists(self, path: str) -> bool:
        return self.ask(Call("exists", path))

    def list(self, path: str) -> Infos:
        return list(self.ask(Call("list", path)))

    def delete(self, path: str) -> None:
        """File by file: others may look in between, and a process may die there."""
        with suppress(FileNotFoundError):
            for file in [info.path for info in self.walk(path)]:
                self.ask(Call("delete", file))
        self.ask(Call("delete", path))

    def move(self, path: str, target: str) -> None:
        self.ask(Call("move", path, target=target))

    def copy(self, path: str, target: str) -> None:
        self.ask(Call("write", target, self.ask(Call("read", path))))

    def remove_empty(self, path: str) -> None:
        self.ask(Call("remove_empty", path))

    def mkdirs(self, path: str) -> None:
        self.ask(Call("mkdirs", path))

    def sync_dir(self, path: str) -> None:
        self.ask(Call("sync_dir", path))

    # Running --------------------------------------------------------------------------------------------------------

    def ask(self, call: Call) -> Any:
        """The answer to a call; the process stops here if there is none yet."""
        if self._is_suspended:  # what is left to be done on the way out is not done by who is gone
            raise Suspended
        if self._position < len(self._answers):
            answer = self._answers[self._position]
            self._position += 1
        else:
            self._moment.call = call
            answer = self._quiet(call)
            if answer is LOUD:
                self._is_suspended = True
                raise Suspended
            self._moment = after(self._moment, answer)
        if isinstance(answer, Failure):
            raise answer.kind(*answer.args)
        return answer

    def now_ms(self) -> int:
        return int(self.ask(Call("now")))

    def run(self) -> Moment:
        """Runs the process up to the next call that is not answered at once."""
        with _in_its_world(self):
            try:
                result = self.process.code(self)
                self._moment.ended = Ended(result)
            except Suspended:
                pass
            except Exception as error:  # noqa: BLE001 - it is how the process ends
                error.__traceback__ = None
                self._moment.ended = Ended(error=error)
        return self._moment

    def next_name(self) -> str:
        return f"{self.process.name}{next(self._numbers):02d}"


def after(moment: Moment, answer: Any) -> Moment:
    """The moment after an answer; one that nobody has been at before says nothing yet."""
    if answer not in moment.then:
        moment.then[answer] = Moment(moment, answer)
    return moment.then[answer]


def start(process: Process, quiet: Quiet, **facts: bool) -> Moment:
    """The moment at which a process first asks for something."""
    return Machine(process, Moment(), quiet, **facts).run()


def advance(process: Process, moment: Moment, answer: Any, quiet: Quiet, **facts: bool) -> Moment:
    """The moment at which a process next asks for something, once it is given an answer."""
    moment = after(moment, answer)
    while True:
        if moment.ended is not None:
            return moment
        if moment.call is None:
            return Machine(process, moment, quiet, **facts).run()
        found = quiet(moment.call)
        if found is LOUD:
            return moment
        moment = after(moment, found)


class Running:
    """A process that goes on in a thread of its own, for schedules that nobody goes back in: nothing is run twice.

    Attributes:
        call: what it asks now; None once it has ended.
        ended: how.
    """

    def __init__(self, process: Process, quiet: Quiet, **facts: bool) -> None:
        self.call: Call | None = None
        self.ended: Ended | None = None
        self._answer: Any = None
        self._mine, self._others = threading.Semaphore(0), threading.Semaphore(0)
        self._machine = Machine(process, Moment(), self._ask, **facts)
        self._quiet, self._is_gone = quiet, False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        self._others.acquire()

    def go_on(self, answer: Any, quiet: Quiet) -> None:
        """Until it asks for something else."""
        self._answer, self._quiet = answer, quiet
        self._mine.release()
        self._others.acquire()

    def die(self) -> None:
        """It never goes on."""
        if self.ended is None and not self._is_gone:
            self._is_gone = True
            self._mine.release()
            self._thread.join()

    def _ask(self, call: Call) -> Any:
        found = self._quiet(call)
        if found is not LOUD:
            return found
        self.call = call
        self._others.release()
        self._mine.acquire()
        return LOUD if self._is_gone else self._answer

    def _run(self) -> None:
        self.ended = self._machine.run().ended
        self.call = None
        self._others.release()


# A world of their own ------------------------------------------------------------------------------------------------

_here = threading.local()
"""Its ``machine`` is that of the process which runs in this thread."""


@contextmanager
def _in_its_world(machine: Machine) -> Iterator[None]:
    """While a process runs, whatever would differ from run to run comes from its machine."""
    outside = getattr(_here, "machine", None)
    _here.machine = machine
    try:
        yield
    finally:
        _here.machine = outside


def machine_here() -> Machine:
    """The machine of the process that runs here."""
    found: Machine = _here.machine
    return found


@contextmanager
def same_every_time() -> Iterator[None]:
    """While this lasts, processes get identifiers, times and chance from their machines; everybody else as ever."""
    with ExitStack() as stack:
        for owner, name, simulated in _DIFFERENT:
            stack.enter_context(mock.patch.object(owner, name, _either(getattr(owner, name), simulated)))
        yield


def _either(real: Callable[..., Any], simulated: Callable[..., Any]) -> Callable[..., Any]:
    def chosen(*args: Any) -> Any:
        machine = getattr(_here, "machine", None)
        return real(*args) if machine is None else simulated(machine, *args)

    return chosen


_DIFFERENT: tuple[tuple[Any, str, Callable[..., Any]], ...] = (
    (uuid, "uuid4", lambda machine: SimpleNamespace(hex=machine.next_name())),
    (secrets, "token_hex", lambda machine, count: "5a17"),
    (random, "uniform", lambda machine, low, high: low),
    (time, "sleep", lambda machine, seconds: None),
    (time, "perf_counter", lambda machine: 0.0),
    (time, "time_ns", lambda machine: machine.now_ms() * 1_000_000),
)
"""What differs from run to run."""
