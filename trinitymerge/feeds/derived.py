"""Merges whose source is computed from the table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NoReturn, TypeAlias

import attrs
from pyspark.sql import DataFrame

from trinitymerge.errors import ConcurrentCommitError, FilesVacuumedError, InvalidMergeError
from trinitymerge.log.commit import RetryPolicy
from trinitymerge.log.model import Snapshot
from trinitymerge.merge.builder import MergeBuilder
from trinitymerge.merge.execute.conflicts import RowsUnchanged
from trinitymerge.merge.execute.executor import already_done
from trinitymerge.merge.execute.plan import MergePlan, Options
from trinitymerge.merge.execute.planner import Upon, plan_of
from trinitymerge.merge.execute.validate import merge_errors
from trinitymerge.merge.model.clauses import Clause
from trinitymerge.merge.model.result import MergeResult
from trinitymerge.schema.definition import TableDefinition
from trinitymerge.spark.conf import with_session_settings


@attrs.frozen(eq=False)
class MergeFactory:
    """A merge by primary key.

    Attributes:
        source: its source.
        clauses: in order.
        definition: the table's, with what the merge adds to it (S44).
        options: settings of the merge that come with them.
    """

    source: DataFrame
    clauses: tuple[Clause, ...]
    definition: TableDefinition
    options: Mapping[str, Any] = attrs.field(factory=dict)


SourceFactory: TypeAlias = Callable[[Snapshot, Options], MergeFactory]
"""From a version of the table, and what the user has set, to what is merged into it."""


@attrs.frozen(eq=False, repr=False, kw_only=True)
class DerivedMerge(MergeBuilder):
    """A merge that knows the table before it knows its source; used like any other, but for clauses: it has its own."""

    _derive: SourceFactory

    def _begun(self, *_condition: Any) -> NoReturn:
        raise InvalidMergeError(f"{self._options.call} has clauses of its own, and takes no others.")

    whenMatched = whenNotMatched = _begun  # type: ignore[assignment]
    whenNotMatchedAndExistsOnlyOnTarget = whenNotMatchedBySource = _begun  # type: ignore[assignment]

    def __repr__(self) -> str:
        """The call, and that nothing has happened yet."""
        return f"{self._options.call} on {self._backend.path} that has not been executed: call execute(), or build() to look closer"

    @with_session_settings
    def build(self) -> MergePlan:
        """Makes the source for the table's newest version, lazily, and finds out what the merge means."""
        snapshot, b = self._backend.snapshot(), self
        with merge_errors(self._backend):
            found = self._derive(snapshot, self._options)
        options, upon = attrs.evolve(self._options, **found.options), Upon(snapshot, found.definition)
        return plan_of(b._backend, b._alias, found.source, None, found.clauses, options, b._afterwards, upon)

    def execute(self) -> MergeResult:
        """Runs the merge as one atomic append; from the beginning if others have changed the table meanwhile (S35)."""
        attempts, backend = RetryPolicy(), self._backend
        while True:
            done = already_done(self._options, backend.snapshot(), backend.path)
            if done is not None:
                return done
            try:
                return self.build().execute()
            except ConcurrentCommitError as error:
                if not isinstance(error.facts.get("requirement"), RowsUnchanged):
                    raise
                attempts.backoff(error, backend.snapshot())
            except FilesVacuumedError as error:
                attempts.backoff(error, backend.snapshot())

    def _with(self, **options: Any) -> MergeBuilder:
        return attrs.evolve(self, options=attrs.evolve(self._options, **options))
