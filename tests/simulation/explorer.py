"""Who goes next, who dies, when the power goes: every way there is up to a bound, or a random one beyond it.

Owns: :class:`Explorer`, which goes through the states of a scenario, and makes a failing schedule short and readable.

States that are equal are explored once: the same disk, the same answers to each process, the same that may still go wrong. A call
whose answer does not depend on when it is asked, and that changes nothing others can see, is answered at once: a log entry that
exists is never changed, and what a process writes for itself is found only by who lists directories.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any

import attrs

from simulation.disk import LOST, Call, Disk, Failure
from simulation.processes import LOUD, Moment, Running, advance, start
from simulation.promises import Broken, Promises, at_once, require
from simulation.states import HOUR_MS, START_MS, Action, Failed, Found, Scenario, State

_ENTRY = re.compile(r"/_trinity_log/\d{20}\.json$")
_BATCH = "/_tm_batch="
_MOST_CUTS = 12
_MOST_STEPS = 3_000
"""No process takes so many calls unless it waits for something."""


class Explorer:
    """Explores one scenario."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.promises = Promises((*scenario.before, *scenario.later, *scenario.acting))
        self._lists = any(a.lists for a in scenario.acting)
        self._facts = {"is_local": scenario.profile.is_local, "is_synced_later": scenario.profile.is_synced_later}
        self._cuts: dict[int, list[Disk]] = {}
        self._ends: set[tuple[int, int]] = set()

    def begin(self, for_good: bool = False) -> State:
        """The state in which the table is made and nobody has begun.

        Args:
            for_good: nobody goes back to it: processes run in threads.
        """
        disk, then_ms = Disk.empty(), START_MS + (self.scenario.hours - 1) * HOUR_MS
        made = [(a, START_MS) for a in self.scenario.before] + [(a, then_ms) for a in self.scenario.later]
        for acting, now_ms in made:
            ended, disk = at_once(disk, acting, now_ms, is_local=self._facts["is_local"])
            require(ended.error is None, "the table is made", repr(ended.error))
            self.promises.check_table(disk)
        disk = attrs.evolve(disk, safe=disk.seen)
        s, holder = self.scenario, [disk]
        begun: Any = Running if for_good else start
        now_ms = [START_MS + s.hours * HOUR_MS + s.skew_ms(i) for i in range(len(s.acting))]
        moments = tuple(
            begun(a.process, self._quiet(holder, ms), **self._facts) for a, ms in zip(s.acting, now_ms, strict=True)
        )
        return State(holder[0], moments, s.hours, (s.kills, s.cuts, s.faults, s.ticks))

    # Stepping -------------------------------------------------------------------------------------------------------

    def actions(self, state: State) -> list[Action]:
        """What may happen next."""
        kills, cuts, faults, ticks = state.left
        running = [i for i, m in enumerate(state.moments) if m is not None and m.ended is None]
        found = [Action("step", i) for i in running]
        if not running:
            return []
        found += [Action("kill", i) for i in running if kills]
        found += [Action("cut", n) for n in range(state.disk.cuts(_MOST_CUTS))] if cuts else []
        found += [Action("tick")] if ticks else []
        found += [Action("land", n) for n in range(len(state.late))]
        if faults:
            found += [Action(what, i) for i in running for what in self._faults(state.moments[i])]
        return found

    def _faults(self, moment: Moment | Running | None) -> list[str]:
        assert moment is not None
        call, profile = moment.call, self.scenario.profile
        assert call is not None
        if call.what in ("now", "sync_entries"):
            return []
        if call.what == "create" and profile.may_lose_answers:
            return ["fail", "lose", *(["late"] if profile.may_answer_late else [])]
        if call.path.endswith("_last.json") and call.what == "read" and profile.may_tear_hints:
            return ["fail", "tear"]
        return ["fail"]

    def _after_cuts(self, disk: Disk) -> list[Disk]:
        if disk.key not in self._cuts:
            self._cuts[disk.key] = list(disk.after_cuts(_MOST_CUTS))
        return self._cuts[disk.key]

    def step(self, state: State, action: Action) -> State:
        """The state after something has happened, checked."""
        running = [m is not None and m.ended is None for m in state.moments]
        after = self._happened(state, action)
        self.promises.check_table(after.disk)
        for acting, was_running, moment in zip(self.scenario.acting, running, after.moments, strict=True):
            if moment is not None and was_running and moment.ended is not None:
                self.promises.check_ended(after.disk, acting, moment.ended, lambda what: self._may(after, what))
        return after

    def _may(self, state: State, what: str) -> bool:
        """True if something has happened that excuses an error."""
        if what == "purge":
            return any(a.purges for a in self.scenario.acting)
        if what == "vacuum":
            return self._lists
        s = self.scenario
        if what == "tick" and s.clocks:
            return True
        spent = {"kill": s.kills, "cut": s.cuts, "fault": s.faults, "tick": s.ticks}
        return spent[what] > state.left[list(spent).index(what)]

    def _happened(self, state: State, action: Action) -> State:
        kills, cuts, faults, ticks = state.left
        if action.what == "kill":
            _end(state.moments[action.which])
            return attrs.evolve(
                state, moments=_with(state.moments, action.which, None), left=(kills - 1, cuts, faults, ticks)
            )
        if action.what == "cut":
            disk = self._after_cuts(state.disk)[action.which]
            for moment in state.moments:
                _end(moment)
            gone = tuple(m if m is not None and m.ended is not None else None for m in state.moments)
            return attrs.evolve(state, disk=disk, moments=gone, left=(kills, cuts - 1, faults, ticks), late=())
        if action.what == "tick":
            return attrs.evolve(state, hours=state.hours + 1, left=(kills, cuts, faults, ticks - 1))
        if action.what == "land":
            _, disk = state.disk.answer(state.late[action.which], state.now_ms)
            return attrs.evolve(state, disk=disk, late=_without(state.late, action.which))
        moment = state.moments[action.which]
        assert moment is not None
        assert moment.call is not None
        answer, disk, late = self._answered(state, moment.call, action)
        if action.what != "step":
            faults -= 1
        holder = [disk]
        process = self.scenario.acting[action.which].process
        quiet = self._quiet(holder, state.now_ms + self.scenario.skew_ms(action.which))
        if isinstance(moment, Running):
            moment.go_on(answer, quiet)
            moved: Moment | Running = moment
        else:
            moved = advance(process, moment, answer, quiet, **self._facts)
        moments = _with(state.moments, action.which, moved)
        return attrs.evolve(state, disk=holder[0], moments=moments, left=(kills, cuts, faults, ticks), late=late)

    def _answered(self, state: State, call: Call, action: Action) -> tuple[Any, Disk, tuple[Call, ...]]:
        how = action.what
        if how == "fail":
            return LOST, state.disk, state.late
        if how == "late":
            return LOST, state.disk, (*state.late, call)
        if call.what == "now":
            return state.now_ms + self.scenario.skew_ms(action.which), state.disk, state.late
        answer, disk = state.disk.answer(call, state.now_ms)
        if how == "lose":
            return (answer if isinstance(answer, Failure) else LOST), disk, state.late
        if how == "tear" and isinstance(answer, bytes):
            answer = answer[: len(answer) // 2]
        return answer, disk, state.late

    def _quiet(self, holder: list[Disk], now_ms: int) -> Callable[[Call], Any]:
        """Answers calls that make no difference when they are answered."""

        def answer(call: Call) -> Any:
            disk = holder[0]
            if call.what == "now":
                return now_ms if not self.scenario.ticks else LOUD
            if self.scenario.faults and call.what == "create":
                return LOUD
            is_entry = call.what in ("read", "exists") and _ENTRY.search(call.path) and call.path in disk.seen
            is_own = not self._lists and _BATCH in call.path and not self.scenario.faults
            is_there = call.what == "mkdirs" and call.path in disk.seen
            is_synced = call.what == "sync_entries" and not self.scenario.cuts
            if not (is_entry or is_own or is_there or is_synced):
                return LOUD
            found, holder[0] = disk.answer(call, now_ms)
            return found

        return answer

    # Exploring ------------------------------------------------------------------------------------------------------

    def explore(self, most_states: int = 1_000_000, seconds: float = 3_600.0) -> Found:
        """Every schedule, depth first, up to a number of states or a time.

        Raises:
            Failed: with a schedule that breaks a promise.
        """
        began = time.perf_counter()
        first = self._checked_begin()
        came: dict[Any, tuple[Any, Action] | None] = {first.key: None}
        ways: dict[Any, int] = {}
        stack: list[tuple[State, Iterator[Action], list[Any]]] = [(first, iter(self.actions(first)), [])]
        steps, is_complete = 0, True
        while stack:
            state, actions, children = stack[-1]
            action = next(actions, None)
            if action is None:
                ways[state.key] = sum(ways.get(c, 0) for c in children) or 1
                if not children:
                    self._at_end(state, came)
                stack.pop()
                continue
            steps += 1
            try:
                after = self.step(state, action)
            except Broken as broken:
                raise self._failed(broken, [*_trail(came, state.key), action]) from None
            children.append(after.key)
            if after.key in came:
                continue
            if len(came) >= most_states or time.perf_counter() - began > seconds:
                is_complete = False
                continue
            came[after.key] = (state.key, action)
            stack.append((after, iter(self.actions(after)), []))
        return Found(len(came), steps, ways[first.key], is_complete, time.perf_counter() - began)

    def _checked_begin(self, for_good: bool = False) -> State:
        try:
            return self.begin(for_good)
        except Broken as broken:
            raise Failed(broken.promise, (), f"{broken}\nbefore anything ran beside it") from None

    def _at_end(self, state: State, came: Any) -> None:
        try:
            self._check_end(state)
        except Broken as broken:
            raise self._failed(broken, _trail(came, state.key)) from None

    def _check_end(self, state: State) -> None:
        key = (state.disk.seen_key, state.hours)
        if key not in self._ends:
            self._ends.add(key)
            self.promises.check_afterwards(state.disk, state.now_ms, self._facts["is_local"])

    def walk(self, seed: int) -> int:
        """One random schedule to its end.

        Returns:
            How many steps it had.

        Raises:
            Failed: it breaks a promise.
        """
        chance, actions = random.Random(seed), list[Action]()
        state = begun = self._checked_begin(for_good=True)
        try:
            last = 0
            while todo := self.actions(state):
                require(len(actions) < _MOST_STEPS, "nobody waits for ever")
                action = _chosen(chance, todo, last)
                last = action.which if action.what == "step" else last
                actions.append(action)
                state = self.step(state, action)
            self._check_end(state)
        except Broken as broken:
            raise self._failed(broken, actions) from None
        finally:
            for moment in begun.moments:
                _end(moment)
        return len(actions)

    # Failing schedules ----------------------------------------------------------------------------------------------

    def replay(self, actions: Sequence[Action]) -> tuple[Broken | None, list[Action]]:
        """What a schedule breaks, if anything, and as much of it as could happen; whoever is left ends one after another."""
        state, done = self.begin(), list[Action]()
        try:
            for action in actions:
                if action in self.actions(state):
                    done.append(action)
                    state = self.step(state, action)
            while todo := [a for a in self.actions(state) if a.what == "step"]:
                require(len(done) < _MOST_STEPS, "nobody waits for ever")
                done.append(todo[0])
                state = self.step(state, todo[0])
            self._ends.clear()
            self._check_end(state)
        except Broken as broken:
            return broken, done
        return None, done

    def _failed(self, broken: Broken, actions: Sequence[Action]) -> Failed:
        kept, shown = self._shrunk(broken.promise, actions)
        return Failed(broken.promise, kept, f"{self.scenario.name}: {shown}\n{self.told(kept)}")

    def _shrunk(self, promise: str, actions: Sequence[Action]) -> tuple[list[Action], Broken]:
        """A short schedule that breaks the same promise: with less that goes wrong, and fewer changes of who goes next."""
        found, best = self.replay(actions)
        if found is None or found.promise != promise:
            return list(actions), Broken(promise, "only in this very schedule")
        shown, size, tries = found, max(1, len(best) // 2), 0
        while size >= 1 and tries < 400:
            for at in range(0, len(best), size):
                tries += 1
                broken, done = self.replay([*best[:at], *best[at + size :]])
                if broken is not None and broken.promise == promise and _cost(done) < _cost(best):
                    best, shown = done, broken
                    break
            else:
                size //= 2
        return best, shown

    def told(self, actions: Sequence[Action]) -> str:
        """A schedule as people read it."""
        state, lines = self.begin(), []
        for action in actions:
            lines.append(f"  {self._line(state, action)}")
            try:
                state = self.step(state, action)
            except Broken as broken:
                lines.append(f"  -> {broken}")
                return "\n".join(lines)
        return "\n".join([*lines, "  -> and then all is at an end"])

    def _line(self, state: State, action: Action) -> str:
        if action.what in ("cut", "tick", "land"):
            return {
                "cut": f"the power goes (leaving disk {action.which})",
                "tick": "an hour passes",
                "land": "a late request is carried out",
            }[action.what]
        process, moment = self.scenario.acting[action.which].process, state.moments[action.which]
        if action.what == "kill":
            return f"{process.name} dies"
        assert moment is not None
        assert moment.call is not None
        answer, _, _ = self._answered(state, moment.call, action)
        what = "" if action.what == "step" else f" [{action.what}]"
        return f"{process.name} ({process.doing}): {moment.call}{what} -> {_brief(answer)}"


def _brief(answer: Any) -> str:
    if isinstance(answer, bytes):
        return f"{len(answer)} bytes"
    if isinstance(answer, tuple):
        return f"{len(answer)} names"
    return "done" if answer is None else str(answer)


def _cost(actions: Sequence[Action]) -> tuple[int, int, int]:
    """What goes wrong, how often another one goes on, and how long it is."""
    wrong = sum(a.what != "step" for a in actions)
    return wrong, sum(a != b for a, b in pairwise(actions)), len(actions)


def _chosen(chance: random.Random, todo: Sequence[Action], last: int) -> Action:
    """Mostly steps, mostly of whoever went last; now and then something that goes wrong."""
    steps = [a for a in todo if a.what == "step"]
    wrong = [a for a in todo if a.what != "step"]
    if wrong and chance.random() < 0.01:
        kind = chance.choice(sorted({a.what for a in wrong}))
        return chance.choice([a for a in wrong if a.what == kind])
    same = [a for a in steps if a.which == last]
    return same[0] if same and chance.random() < 0.6 else chance.choice(steps)


def _end(moment: Moment | Running | None) -> None:
    if isinstance(moment, Running):
        moment.die()


def _trail(came: dict[Any, tuple[Any, Action] | None], key: Any) -> list[Action]:
    found = []
    while (before := came[key]) is not None:
        key, action = before
        found.append(action)
    return found[::-1]


def _with(moments: tuple[Any, ...], place: int, moment: Any) -> tuple[Any, ...]:
    return (*moments[:place], moment, *moments[place + 1 :])


def _without(late: tuple[Call, ...], place: int) -> tuple[Call, ...]:
    return (*late[:place], *late[place + 1 :])
