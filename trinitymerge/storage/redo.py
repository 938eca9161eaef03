"""Rows that a merge owes to another table (S27): what the log says of them until they are there.

Owns: :class:`Redo` and its JSON, and which ones are still owed after a commit. Plain data; who pays them stands in
:mod:`trinitymerge.paying`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from trinitymerge.definition import Field
from trinitymerge.storage.fields import (
    as_tuple,
    check_batch_id,
    check_count,
    check_scalars,
    count_field,
    from_json_object,
    is_a_or_none,
    json_names,
    to_json_object,
)

REDO, ABANDON = "REDO", "ABANDON"
"""The operations that end what is owed: the rows are in the other table, or were given up."""

_MARKER = "trinity-redo-"
_MARKERS_KEPT = 1000

PROTOCOL_OF_REDO = 4
"""What a writer must understand to go on after a merge that owes rows."""


@attrs.frozen(kw_only=True)
class Redo:
    """The rows that one merge has for one other table, staged beside its own.

    Attributes:
        id: the name of their directory, and by which the other table knows them again.
        rows: how many there are.
        files: data files.
        bytes: their size.
        path: of the other table, if it is one of this library's.
        name: else its name in Spark's catalog.
        fields: the columns of the rows.
        keys: its primary key when they were made.
        watermarks: likewise its watermark key.
        since_ms: when they were committed, ms since the epoch; set where the commit is applied.
        extra: fields of newer libraries, kept as they are.
    """

    id: str = attrs.field(validator=check_batch_id)
    rows: int = count_field()
    files: int = count_field()
    bytes: int = count_field()
    path: str | None = attrs.field(default=None, validator=is_a_or_none(str))
    name: str | None = attrs.field(default=None, validator=is_a_or_none(str))
    fields: tuple[Field, ...] = attrs.field(default=(), converter=as_tuple)
    keys: tuple[str, ...] = attrs.field(default=(), converter=as_tuple, validator=check_scalars)
    watermarks: tuple[str, ...] = attrs.field(default=(), converter=as_tuple, validator=check_scalars)
    since_ms: int = attrs.field(default=0, validator=check_count)
    extra: Mapping[str, Any] = attrs.field(factory=dict, eq=repr, repr=False)

    def __attrs_post_init__(self) -> None:
        if (self.path is None) == (self.name is None):
            raise ValueError(
                f"rows for another table are for one at a path or of a name, not {self.path!r}, {self.name!r}"
            )

    @property
    def table(self) -> str:
        """The other table, as messages call it."""
        return f"{self.path or self.name}"

    @property
    def marker(self) -> str:
        """By what the other table says, in its own log, that it has the rows (S36)."""
        return f"{_MARKER}{self.id}"

    def to_json(self) -> dict[str, Any]:
        """As entries and checkpoints hold it."""
        return {**to_json_object(self, _FIELDS), "fields": [f.to_json() for f in self.fields]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Redo:
        """The inverse of :meth:`to_json`.

        Raises:
            ValueError: a field is missing or means nothing.
        """
        values = from_json_object(data, _FIELDS)
        values["fields"] = tuple(Field.from_json(f) for f in values.get("fields") or ())
        return cls(**values)


_FIELDS = json_names(Redo)


def redo_of(data: Mapping[str, Any]) -> tuple[Redo, ...]:
    """What an entry or checkpoint says is owed."""
    return tuple(Redo.from_json(r) for r in data.get("redo") or ())


def owed_after(
    owed: Iterable[Redo], more: Iterable[Redo], redone: Iterable[str], timestamp_ms: int
) -> tuple[Redo, ...]:
    """What is owed after a commit, in the order of commits.

    Args:
        owed: before it.
        more: what it owes.
        redone: ids of what is not owed any more; several writers may say so of the same.
        timestamp_ms: of the commit.
    """
    done = set(redone)
    kept = [r for r in owed if r.id not in done]
    return (*kept, *(attrs.evolve(r, since_ms=timestamp_ms) for r in more))


def without_old_markers(transactions: Mapping[str, int]) -> Mapping[str, int]:
    """The markers of transactions without those of rows that came long ago, by when they were first owed.

    Each merge leaves one, and they would fill the log. Nobody asks for one again but who has died between the other table's commit
    and its own; whoever writes to that table first asks then. Should it be after a thousand others have written to this one, the
    same rows are merged once more, which changes none of them.
    """
    markers = sorted((since, name) for name, since in transactions.items() if name.startswith(_MARKER))
    old = {name for _, name in markers[:-_MARKERS_KEPT]}
    return {name: version for name, version in transactions.items() if name not in old} if old else transactions
