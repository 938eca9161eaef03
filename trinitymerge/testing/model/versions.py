"""Row versions of each key (H2-H5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import attrs

from trinitymerge.errors import InvalidDefinitionError, did_you_mean
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.testing.model.expressions import Row
from trinitymerge.testing.model.outcomes import Key
from trinitymerge.testing.model.rows import RowRules
from trinitymerge.testing.model.values import order_key, order_keys, store


@attrs.frozen
class Stored:
    """What holds of a key from a moment on: a row, or a tombstone (H2).

    Attributes:
        row: as it is stored.
        begins: the first column of its declared watermark, or the time of its commit.
    """

    row: Row
    begins: Any


@attrs.frozen
class Version:
    """A row and the time in which it holds (H5).

    Attributes:
        row: as it is stored; never a tombstone.
        begins: inclusive; None is from the beginning.
        ends: exclusive; None while it is open, and where what follows holds from the beginning, too.
        isOpen: nothing follows it.
    """

    row: Row
    begins: Any
    ends: Any
    isOpen: bool

    @property
    def isEmpty(self) -> bool:
        """True if it ends where it begins."""
        return not self.isOpen and order_key(self.begins) == order_key(self.ends)

    def holds(self, moment: Any) -> bool:
        """True at the moments of its interval; null is before all others."""
        begun = order_key(self.begins) <= order_key(moment)
        return begun and (self.isOpen or order_key(moment) < order_key(self.ends))


@attrs.frozen
class Shown:
    """How versions are shown: the arguments of ``versions()`` of these names."""

    validFrom: str = "validFrom"
    validTo: str = "validTo"
    current: str = "isCurrent"
    openEnd: Any = None


# From stored rows to versions (H2-H5) -----------------------------------------------------------------------


def chains(
    definition: TableDefinition, batches: Iterable[tuple[Row, ...]], time: Callable[[int], Any]
) -> dict[Key, list[Stored]]:
    """For each key, in key order, what holds one after the other, tombstones among it (H2).

    Args:
        definition: of the rows.
        batches: one for each version of the table.
        time: when a version of the table was committed.

    Returns:
        One row for each declared watermark, the last committed one; without a declared watermark, one for each commit.
    """
    rules = RowRules(definition)
    found: dict[Key, dict[Any, tuple[Any, Stored]]] = {}
    for version, batch in enumerate(batches, start=1):
        for row in batch:
            declared = list(rules.watermark(row).values())
            place = rules.watermark_order(row) if declared else (version,)
            rank = version, rules.is_tombstone(row), order_keys(row.values())  # S6, S15
            entry = rank, Stored(row, declared[0] if declared else time(version))
            of_key = found.setdefault(rules.key(row), {})
            of_key[place] = max(of_key.get(place, entry), entry, key=lambda e: e[0])
    return {key: [found[key][place][1] for place in sorted(found[key])] for key in sorted(found, key=order_keys)}


def intervals(definition: TableDefinition, chain: Sequence[Stored]) -> list[Version]:
    """The versions of one key, in the order of their watermarks: each ends where what follows it begins (H3-H5)."""
    rules = RowRules(definition)
    return [
        Version(stored.row, stored.begins, following.begins if following else None, isOpen=following is None)
        for stored, following in zip_longest(chain, chain[1:])
        if not rules.is_tombstone(stored.row)
    ]


def merged(versions: Iterable[Version], tracked: Iterable[str]) -> list[Version]:
    """Consecutive versions of one key that agree in the tracked columns as one.

    It begins with the first and shows the other columns as the last has them. Two versions are consecutive where one ends
    as the other begins, so never across a gap.
    """
    columns, found = tuple(tracked), list[Version]()
    for version in versions:
        before = found[-1] if found else None
        if before and _adjacent(before, version) and _values(before, columns) == _values(version, columns):
            found[-1] = attrs.evolve(version, begins=before.begins)
        else:
            found.append(version)
    return found


def _adjacent(before: Version, after: Version) -> bool:
    return not before.isOpen and order_key(before.ends) == order_key(after.begins)


def _values(version: Version, columns: Iterable[str]) -> tuple[Any, ...]:
    return order_keys(version.row[name] for name in columns)


# What users ask for -----------------------------------------------------------------------------------------


def check_history(definition: TableDefinition, call: str) -> None:
    """Refuses what only tables with history can tell (H8).

    Raises:
        InvalidDefinitionError: the table keeps no history.
    """
    if not definition.history:
        raise InvalidDefinitionError(
            f"{call} needs a table with history, and this one keeps current rows only. "
            "Create it with history=True, or switch it on by alter().setHistory()."
        )


def tracked_columns(
    definition: TableDefinition, track: str | Iterable[str] | None, exceptColumns: str | Iterable[str]
) -> tuple[str, ...] | None:
    """The columns that decide whether consecutive versions are one; None if each is shown.

    Raises:
        ValueError: both are given, a column is unknown, or a watermark column is to be tracked.
    """
    excepted = _columns(definition, "exceptColumns", exceptColumns)
    if track is None:
        watermarks = definition.watermarkKey
        return tuple(n for n in definition.names if n not in (*excepted, *watermarks)) if excepted else None
    if excepted:
        raise ValueError("versions takes either track or exceptColumns, got both.")
    if track in ("*", ["*"], ("*",)):
        return tuple(n for n in definition.names if n not in definition.watermarkKey)
    found = _columns(definition, "track", track)
    moving = [name for name in found if name in definition.watermarkKey]
    if moving:
        raise ValueError(f"'{moving[0]}' is a watermark column, which differs in every version; leave it out of track.")
    return found


def _columns(definition: TableDefinition, argument: str, given: str | Iterable[str]) -> tuple[str, ...]:
    names = (given,) if isinstance(given, str) else tuple(given)
    spelled = {name.lower(): name for name in definition.names}
    unknown = [name for name in names if name.lower() not in spelled]
    if unknown:
        raise ValueError(
            f"{argument}: '{unknown[0]}' is not a column of the table." + did_you_mean(unknown[0], definition.names)
        )
    return tuple(spelled[name.lower()] for name in names)


def columns_beside(definition: TableDefinition, shown: Shown) -> tuple[str, ...]:
    """The user's columns that versions show beside the interval.

    The first watermark column is the interval's start; where ``validFrom`` is its name it is shown once, as that.

    Raises:
        InvalidDefinitionError: a column of the interval has the name of another column.
    """
    first = [name for name in definition.watermarkKey[:1] if name.lower() == shown.validFrom.lower()]
    beside = tuple(name for name in definition.names if name not in first)
    taken = [name.lower() for name in beside]
    for name in (shown.validFrom, shown.validTo, shown.current):
        if name.lower() in taken:
            raise InvalidDefinitionError(
                f"versions would show two columns '{name}': choose another name by validFrom=, validTo= or current=.",
                column=name,
            )
        taken.append(name.lower())
    return beside


def rows_shown(definition: TableDefinition, versions: Iterable[Version], shown: Shown) -> list[Row]:
    """Versions as rows: the user's columns and the interval (H5)."""
    beside = columns_beside(definition, shown)
    return [
        {
            **{name: version.row[name] for name in beside},
            shown.validFrom: version.begins,
            shown.validTo: shown.openEnd if version.isOpen else version.ends,
            shown.current: version.isOpen,
        }
        for version in versions
    ]


def rows_at(definition: TableDefinition, of_keys: Mapping[Key, Sequence[Stored]], moment: Any) -> dict[Key, Row]:
    """The stored rows that hold at a moment of the data's time, by key.

    Raises:
        ValueError: the moment is null.
        SchemaMismatchError: it is no value of the watermark's type.
    """
    if moment is None:
        raise ValueError("asOf takes a moment, got None.")
    if definition.watermarkKey:
        moment = store(definition.field(definition.watermarkKey[0]), moment)
    found = {key: [v.row for v in intervals(definition, chain) if v.holds(moment)] for key, chain in of_keys.items()}
    return {key: rows[0] for key, rows in found.items() if rows}
