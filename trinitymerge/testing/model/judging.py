"""Which events of a feed with a quarantine are taken: each is judged before it fills, mends or moves anything (S47)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import attrs

from trinitymerge.errors import SchemaMismatchError
from trinitymerge.testing.model.feeds import SOURCE, Feed, beside_truncates, filled, is_dead, is_true, since_truncate
from trinitymerge.testing.model.registers import UNSET, mended_rows, parts_of, place_of, register_columns
from trinitymerge.testing.model.rows import RowRules
from trinitymerge.testing.model.values import Row, order_keys

if TYPE_CHECKING:
    from trinitymerge.testing.model.table import ModelTable

Check = Callable[[Row], "bool | None"]


@attrs.frozen
class Judge:
    """Judges the events of one batch, before which ``table`` is; ``rejects_stale`` late events, too (S11)."""

    table: ModelTable
    feed: Feed
    apply: Callable[[ModelTable, Sequence[Row]], Any]
    rejects_stale: bool = False

    def judge(self, source: Sequence[Row]) -> tuple[list[Row], list[tuple[Row, str]]]:
        """Return the rows that are merged, and those that are rejected with their reasons."""
        found = {i: reason for i, row in enumerate(source) if (reason := self._alone(row))}
        found |= dict.fromkeys(self._arrivals_that_contradict(source, found), "ambiguous")
        while more := self._together(source, found):
            found |= more
        taken = [row for i, row in enumerate(source) if i not in found]
        return taken, [(row, found[i]) for i, row in enumerate(source) if i in found]

    @property
    def _rules(self) -> RowRules:
        return RowRules(self.feed.names.definition)

    # By themselves

    def _alone(self, row: Row) -> str | None:
        """Return why an event is rejected by what it says itself."""
        own, feed = self.feed.names.definition, self.feed
        is_truncate, is_delete = is_true(feed.applyAsTruncates, row), is_true(feed.applyAsDeletes, row)
        values = {n: row[c] for n in feed.taken if (c := feed.names.source_column(n)) is not None}
        values |= dict(zip(own.watermarkKey, feed.sequence(row), strict=True))
        dies = is_delete or self._is_tombstone(values.get(own.tombstone_column))
        unset = frozenset[Any]() if dies or is_truncate else feed.unset(row, {**dict.fromkeys(own.names), **values})
        left = {f.name for f in register_columns(own) if any(path in unset for path in parts_of(f))}
        roles = {*own.primaryKey, own.tombstone_column}

        def is_judged(name: str) -> bool:
            if name in own.watermarkKey:
                return True
            return not is_truncate and (name in roles or not (dies or name in left))

        judged = [f for f in own.fields if f.name in values and is_judged(f.name)]
        old = [] if is_truncate else feed.old_values(row)
        pairs = [*((f.name, values[f.name]) for f in judged), *zip(own.primaryKey, old, strict=False)]
        for name, value in pairs:
            if value is not None and self._stored(name, value) is None:
                return f"type:{name}"
        if None in old and any(value is not None for value in old):
            return "null-key"
        if not is_truncate and not dies and None in [values[k] for k in own.primaryKey]:
            return "null-key"
        for field in judged:
            is_required = field.name in own.watermarkKey or not (field.nullable or field.name in roles)
            if is_required and values[field.name] is None:
                return f"null:{field.name}"
        if dies or is_truncate:
            return None
        stored = {f.name: None if values[f.name] is None else self._stored(f.name, values[f.name]) for f in judged}
        return self._broken({f.name: stored.get(f.name) for f in own.fields}, {*stored})

    def _stored(self, name: str, value: Any) -> Any:
        try:
            return self._rules.store(name, value)
        except SchemaMismatchError:
            return None

    def _is_tombstone(self, value: Any) -> bool:
        own = self.feed.names.definition
        fits = value is not None and self._stored(own.tombstone_column, value) is not None
        return fits and is_dead(self._rules, {own.tombstone_column: value})

    def _broken(self, row: Row, known: set[str]) -> str | None:
        """Return the constraint that a row breaks, of those over known columns."""
        for name, holds in self.table.checks.items():
            if known >= {*self.table.checkColumns.get(name, row)} and holds(row) is False:
                return f"check:{name}"
        return None

    def _arrivals_that_contradict(self, source: Sequence[Row], rejected: Mapping[int, str]) -> Iterator[int]:
        """Return the events that change the keys of different rows to one, at one place (U7)."""
        places: dict[Any, dict[int, Any]] = {}
        for i, row in enumerate(source):
            if i not in rejected and not is_true(self.feed.applyAsTruncates, row):
                place, old = self.feed.arrival(row)
                if old is not None:
                    places.setdefault(place, {})[i] = order_keys(old)
        for olds in places.values():
            if len({*olds.values()}) > 1:
                yield from olds

    # Beside other rows

    def _together(self, source: Sequence[Row], rejected: Mapping[int, str]) -> dict[int, str]:
        """Return more events that are rejected, for what fills them; or for what they mend, if no other is."""
        own, rules = self.feed.names.definition, self._rules
        taken = [i for i in range(len(source)) if i not in rejected]
        events, truncates = self.feed.read([source[i] for i in taken])
        events, ended_at = since_truncate(own, events, truncates)
        statements, version = self.table._statements_by_key(), self.table.version + 1
        accepted: list[Row] = []
        found: dict[int, str] = {}
        for moment in sorted({rules.watermark_order(event) for event in events}):
            group = [event for event in events if rules.watermark_order(event) == moment]
            done = filled(own, beside_truncates(own, [*accepted, *group], ended_at), statements, version)
            here = [event for event in done if SOURCE in event and rules.watermark_order(event) == moment]
            reasons = {event[SOURCE]: why for event in here if (why := self._reason(event))}
            found |= {taken[n]: why for n, why in reasons.items()}
            accepted += [event for event in group if event[SOURCE] not in reasons]
        if found or not accepted:
            return found
        done = filled(own, beside_truncates(own, accepted, ended_at), statements, version)
        found = {taken[n]: "ambiguous" for n in self._ambiguous([event for event in done if SOURCE in event])}
        return found or self._causes([source[i] for i in taken], taken, events)

    def _reason(self, event: Row) -> str | None:
        """Return why a filled event is rejected. A late one cannot be filled: only the latest row of its key is stored."""
        rules, own, key = self._rules, self.feed.names.definition, self._rules.key(event)
        if None in key:
            return None
        latest = [self.table.state()[key].row] if key in self.table.state() else []
        latest += [] if own.history else self.table.last_truncate()
        is_late = any(rules.older(event, row) for row in latest)
        if not is_dead(rules, event) and not (event[UNSET] and is_late and not own.history):
            why = self._broken_rule(event)
            if why:
                return why
        return "stale" if is_late and self.rejects_stale else None

    def _broken_rule(self, row: Row) -> str | None:
        own, roles = self.feed.names.definition, {*self.feed.names.definition.primaryKey}
        for field in own.fields:
            if not field.nullable and field.name not in roles and row[field.name] is None:
                return f"null:{field.name}"
        stored = {f.name: self._rules.store(f.name, row[f.name]) for f in own.fields if row[f.name] is not None}
        return self._broken({**dict.fromkeys(own.names), **stored}, {*own.names})

    def _ambiguous(self, events: Sequence[Row]) -> Iterator[int]:
        """Return the events that are different rows of one key at one place (S12)."""
        rules, places = self._rules, dict[Any, list[Row]]()
        for event in events:
            places.setdefault((order_keys(rules.key(event)), rules.watermark_order(event)), []).append(event)
        for group in places.values():
            contents = {(True,) if is_dead(rules, e) else (False, order_keys(_values(rules, e))) for e in group}
            if len(contents) > 1:
                yield from (event[SOURCE] for event in group)

    def _causes(self, source: Sequence[Row], numbers: Sequence[int], events: Sequence[Row]) -> dict[int, str]:
        """Return the events from which stored rows would take values that break a rule (U4)."""
        rules, after = self._rules, self.table.copy()
        self.apply(after, source)
        causes: dict[Any, str] = {}
        for key, was, now in mended_rows(self.table._rows_by_key(), after._rows_by_key(), rules):
            why = self._broken_rule(now.row)
            changed = [p for p, author in now.since.items() if was.since.get(p) != author or was.row != now.row]
            for path in changed if why else ():
                old, moment = place_of(now.since[path], key)
                causes.setdefault((order_keys(old), moment), f"mended:{why}")
        places = {(order_keys(rules.key(e)), rules.watermark_order(e)): numbers[e[SOURCE]] for e in events}
        return {number: causes[place] for place, number in places.items() if place in causes}


def _values(rules: RowRules, event: Row) -> list[Any]:
    names = [n for n in rules.definition.names if n in event]
    return [None if event[n] is None else rules.store(n, event[n]) for n in names]
