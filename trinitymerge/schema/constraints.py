"""CHECK constraints: conditions that every live row fulfils (S45)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import attrs

from trinitymerge.errors import InvalidDefinitionError


def _names(values: Iterable[str]) -> tuple[str, ...]:
    return tuple(values)


@attrs.frozen
class Check:
    """A condition that every live row fulfils (S45).

    Attributes:
        name: of the constraint; compared ignoring case.
        condition: SQL over the table's columns. A row for which it is false is refused; null passes.
        columns: the columns that the condition uses.

    Example:
        >>> str(Check("positive", "amount > 0", ["amount"]))
        'CHECK positive (amount > 0)'
    """

    name: str
    condition: str
    columns: tuple[str, ...] = attrs.field(converter=_names)

    def __str__(self) -> str:
        return f"CHECK {self.name} ({self.condition})"

    def to_json(self) -> dict[str, Any]:
        """Return the check as the log stores it."""
        return {"name": self.name, "condition": self.condition, "columns": list(self.columns)}


def checks_of(values: Iterable[Check | Mapping[str, Any]]) -> tuple[Check, ...]:
    """Return checks, read from the log's form where needed."""
    return tuple(v if isinstance(v, Check) else Check(v["name"], v["condition"], v["columns"]) for v in values)


def about(checks: Iterable[Check], column: str) -> Check | None:
    return next((check for check in checks if column in check.columns), None)


def require_unchecked(checks: Iterable[Check], column: str, change: str) -> None:
    """Raise if a check uses a column that is about to change; ``change`` is a participle, such as "renamed"."""
    check = about(checks, column)
    if check is not None:
        raise InvalidDefinitionError(
            f"Column '{column}' cannot be {change}: constraint '{check.name}' ({check.condition}) uses it. Drop the constraint "
            "with dropCheck() first, and add it again afterwards.",
            column=column,
            constraint=check.name,
        )
