"""The settings of a merge that are not clauses, as calls of the chain.

Owns: :class:`ConfiguredMerge`, which the builder inherits. What a setting does is the business of :mod:`trinitymerge.merge.run`.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import attrs

from trinitymerge.errors import InvalidMergeError
from trinitymerge.merge.arguments import watermark_of
from trinitymerge.merge.run.plan import Options

_Merge = TypeVar("_Merge")


@attrs.frozen(eq=False, repr=False)
class ConfiguredMerge(Generic[_Merge]):
    """A merge with settings; each call returns a new one."""

    _options: Options = attrs.field(factory=Options, kw_only=True)

    def _with(self, **options: Any) -> _Merge:
        """The merge with some of :class:`~trinitymerge.merge.run.plan.Options` changed."""
        raise NotImplementedError

    def withTransaction(self, appId: str, version: int) -> _Merge:
        """Makes the merge happen once: it does nothing if the table has committed this version for ``appId`` (S36).

        Args:
            appId: the writer's stable name.
            version: grows with every merge of that writer, for instance the micro-batch id.
        """
        if isinstance(version, bool) or not isinstance(version, int) or not isinstance(appId, str) or not appId:
            raise InvalidMergeError(f"withTransaction takes a name and a whole number, got {appId!r} and {version!r}.")
        return self._with(transaction=(appId, version), stream=None)

    def onStale(self, policy: str) -> _Merge:
        """What to do with rows older than what they would replace (S11).

        Args:
            policy: ``"skip"`` (the default) lets them lose, ``"error"`` refuses the merge, ``"force"`` lets them win.
        """
        if policy not in ("skip", "error", "force"):
            raise InvalidMergeError(f"onStale takes 'skip', 'error' or 'force', got {policy!r}.")
        return self._with(on_stale=policy)

    def at(self, *watermark: Any) -> _Merge:
        """The watermark of rows to which neither a map nor the source gives one: when the change took place (S10, H2a).

        Args:
            watermark: a value for each watermark column (SQL text, a Column, or a plain Python literal), or a tuple of them.

        Example:
            >>> orders.deleteWhere("amount > 9").at("timestamp'2024-05-01'").execute().rowsDeleted
            1
        """
        return self._with(at=watermark_of("at", watermark, self._options.call))

    def withSchemaEvolution(self) -> _Merge:
        """Makes room in the table for what the source brings, in the merge's own commit (S44).

        Columns that ``updateAll`` and ``insertAll`` would leave out (S22a), and those of the source that a map assigns, are added
        at the end; fields of structs likewise; types become wider where no value changes, those of keys apart. Nothing is narrowed,
        renamed or dropped. A column that the source lacks keeps its value on update, and is null on insert. A merge that appends
        nothing alters nothing.

        Feeds follow their source, too: ``applyChanges`` adds what it would leave out with a warning, so nothing that
        ``exceptColumns`` names or a condition mentions, and what ``columns`` names; ``snapshot`` adds every column of the extract.

        Example:
            >>> source = spark.sql("SELECT '3' AS order_id, 1.0 AS amount, timestamp'2024-01-02' AS ts, 'web' AS channel")
            >>> result = (orders.merge(source).whenMatched().updateAll().whenNotMatched().insertAll()
            ...     .withSchemaEvolution().execute())
            >>> result.columnsAdded
            ('column channel string is added',)
            >>> orders.toDF().filter("order_id = '3'").select("amount", "channel").collect()
            [Row(amount=Decimal('1.00'), channel='web')]
        """
        return self._with(follows_source=True)

    def maxDeleteFraction(self, fraction: float) -> _Merge:
        """Refuses the merge if it would delete more than a share of the live rows (S37).

        Args:
            fraction: from 0 to 1.
        """
        if isinstance(fraction, bool) or not isinstance(fraction, (int, float)) or not 0 <= fraction <= 1:
            raise InvalidMergeError(f"maxDeleteFraction takes a number from 0 to 1, got {fraction!r}.")
        return self._with(max_delete_fraction=float(fraction))

    def withCounts(self) -> _Merge:
        """Has all counts of the result known (S30b): a merge that could be appended blindly looks up the keys it writes.

        Feeds that read what their keys hold count without it: ``snapshot``, and ``applyChanges`` with ``ignoreNullUpdates``.

        Example:
            >>> orders.upsert(orders.toDF()).execute().rowsUpdated is None
            True
            >>> orders.upsert(orders.toDF()).withCounts().execute().rowsUpdated
            2
        """
        return self._with(counts=True)

    def withComment(self, text: str) -> _Merge:
        """A note that stands in the parameters of the merge in ``history()`` (S36b).

        It is part of the log for good, whatever is purged: name no people in it.

        Args:
            text: why the merge is made, or by which run of which job.

        Example:
            >>> _ = orders.deleteWhere("amount < 6").withComment("ticket 17").execute()
            >>> orders.history().selectExpr("get_json_object(parameters, '$.comment') AS comment").first()
            Row(comment='ticket 17')
        """
        if not isinstance(text, str) or not text:
            raise InvalidMergeError(f"withComment takes text, got {text!r}.")
        return self._with(comment=text)
