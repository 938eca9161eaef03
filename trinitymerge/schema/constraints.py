"""CHECK constraints: conditions that every row of a table fulfils (S45)."""

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
        name: of the constraint; compared without case.
        condition: SQL over the table's columns. A row for which it is false is refused; null passes.
        columns: those that it is about.

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
        """The check as the log stores it."""
        return {"name": self.name, "condition": self.condition, "columns": list(self.columns)}


def checks_of(values: Iterable[Check | Mapping[str, Any]]) -> tuple[Check, ...]:
    """Checks, as they are or as :meth:`Check.to_json` wrote them."""
    return tuple(v if isinstance(v, Check) else Check(**v) for v in values)


def about(checks: Iterable[Check], column: str) -> Check | None:
    """The first check that is about a column; None if there is none."""
    return next((check for check in checks if column in check.columns), None)


def require_unchecked(checks: Iterable[Check], column: str, to_be: str) -> None:
    """Refuses what would change what a check means.

    Args:
        checks: of the table.
        column: that changes.
        to_be: what becomes of it, as in "cannot be ...".

    Raises:
        InvalidDefinitionError: naming the check.
    """
    check = about(checks, column)
    if check is not None:
        raise InvalidDefinitionError(
            f"Column '{column}' cannot be {to_be}: the constraint '{check.name}' ({check.condition}) is about it. Drop the "
            "constraint first, with dropCheck(), and add it again afterwards.",
            column=column,
            constraint=check.name,
        )
