"""Merges whose source is computed from the table itself: what was there before decides what is written.

Owns: :class:`DerivedMerge`. The source is computed from the newest version whenever the merge is built, and the merge is committed
only if nothing has changed the table's rows since; otherwise all of it is done again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

import attrs
from pyspark.sql import DataFrame

from trinitymerge.errors import ConcurrentCommitError, InvalidMergeError
from trinitymerge.merge.builder import MergeBuilder
from trinitymerge.merge.clauses import Clause
from trinitymerge.merge.result import MergeResult
from trinitymerge.merge.run.attempt import already_done
from trinitymerge.merge.run.conflicts import Unchanged
from trinitymerge.merge.run.plan import MergePlan
from trinitymerge.settings import LITERAL_NAMES, held
from trinitymerge.storage.attempts import Attempts
from trinitymerge.storage.entries import Snapshot


@attrs.frozen(eq=False)
class Derived:
    """A merge by primary key.

    Attributes:
        source: its source.
        clauses: in order.
        options: settings of the merge that come with them.
    """

    source: DataFrame
    clauses: tuple[Clause, ...]
    options: Mapping[str, Any] = attrs.field(factory=dict)


Derive: TypeAlias = Callable[[Snapshot], Derived]
"""From a version of the table to what is merged into it."""


@attrs.frozen(eq=False, repr=False, kw_only=True)
class DerivedMerge(MergeBuilder):
    """A merge that reads its table to know what to write; used like any other, but for clauses: it has its own."""

    _derive: Derive

    def _begun(self, *_condition: Any) -> NoReturn:
        raise InvalidMergeError(f"{self._options.call} has clauses of its own, and takes no others.")

    whenMatched = whenNotMatched = _begun  # type: ignore[assignment]
    whenNotMatchedAndExistsOnlyOnTarget = whenNotMatchedBySource = _begun  # type: ignore[assignment]

    def __repr__(self) -> str:
        """The call, and that nothing has happened yet."""
        return f"{self._options.call} on {self._backend.path} that has not been executed: call execute(), or build() to look closer"

    def build(self) -> MergePlan:
        """Computes the source from the table's newest version, lazily, and finds out what the merge means."""
        snapshot = self._backend.snapshot()
        with held(self._backend.spark, LITERAL_NAMES):
            found = self._derive(snapshot)
        options = attrs.evolve(self._options, based_on=snapshot, **found.options)
        merge = self._as(MergeBuilder, source=found.source, condition=None, clauses=found.clauses, options=options)
        return merge.build()

    def execute(self) -> MergeResult:
        """Runs the merge as one atomic append; from the beginning if others have changed rows meanwhile (S35)."""
        attempts, backend = Attempts(), self._backend
        while True:
            done = already_done(self._options, backend.snapshot(), backend.path)
            if done is not None:
                return done
            plan = self.build()
            try:
                return plan.execute()
            except ConcurrentCommitError as error:
                if not isinstance(error.facts.get("requirement"), Unchanged):
                    raise
                attempts.give_way(error, backend.snapshot())

    def _with(self, **options: Any) -> MergeBuilder:
        return attrs.evolve(self, options=attrs.evolve(self._options, **options))
