"""What a log says of keys that were purged (S38): hashes, by which they are known should they come again.

Owns: :class:`Purged` and its JSON. The hashes are made in :mod:`trinitymerge.markers`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import attrs

from trinitymerge.storage.fields import as_tuple, check_hex


@attrs.frozen
class Purged:
    """Which primary keys must never come back: their salted hashes, not the keys themselves.

    Attributes:
        salt: the table's own, random.
        hashes: one per key, as :func:`trinitymerge.markers.hash_of_key` makes them.
    """

    salt: str = attrs.field(validator=check_hex)
    hashes: tuple[str, ...] = attrs.field(converter=as_tuple, validator=attrs.validators.deep_iterable(check_hex))

    def to_json(self) -> dict[str, Any]:
        """As entries and checkpoints hold it."""
        return {"salt": self.salt, "hashes": list(self.hashes)}

    @classmethod
    def from_json(cls, data: Mapping[str, Any] | None) -> Purged | None:
        """The inverse of :meth:`to_json`; None for None.

        Raises:
            ValueError: a field is missing or means nothing.
        """
        return cls(data["salt"], data["hashes"]) if data else None

    def plus(self, other: Purged | None) -> Purged:
        """These and others of the same table."""
        return self if other is None else Purged(self.salt, sorted({*self.hashes, *other.hashes}))
