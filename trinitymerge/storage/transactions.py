"""What has been delivered before: micro-batches of streams, and those that may not be taken for replays (S36a).

Owns: :class:`MicroBatch` and :func:`check_continues`. The markers themselves are part of each commit. Plain data: no Spark.
"""

from __future__ import annotations

import attrs

from trinitymerge.errors import InvalidMergeError
from trinitymerge.storage.entries import Snapshot


@attrs.frozen
class MicroBatch:
    """Which part of which stream a merge is.

    Attributes:
        app_id: the stream's stable name.
        number: of the micro-batch, counted by the stream's checkpoint directory.
        query_id: that directory's own id; None where Spark does not tell.
    """

    app_id: str
    number: int
    query_id: str | None = None


def check_continues(batch: MicroBatch, snapshot: Snapshot, table: str) -> None:
    """Refuses a micro-batch of a stream that has started over: as a replay it would be dropped, rows and all (S36a).

    Raises:
        InvalidMergeError: another streaming query has written under this name, or this one had come further.
    """
    last = snapshot.transactions.get(batch.app_id)
    writer = snapshot.streams.get(batch.app_id)
    if writer is not None and batch.query_id is not None and writer != batch.query_id:
        what = (
            f"Micro-batch {batch.number} of stream '{batch.app_id}' comes from another streaming query (id "
            f"{batch.query_id}) than those that {table} has committed under this appId so far (id {writer}, last number "
            f"{last})"
        )
    elif last is not None and batch.number < last:
        what = f"Micro-batch {batch.number} of stream '{batch.app_id}' came after {table} had committed number {last}"
    else:
        return
    raise InvalidMergeError(
        f"{what}: the stream has started over, for instance with a new checkpoint directory, and counts from 0 again, so its "
        "batches cannot be told from replays. Nothing was written. Give the stream a new appId, and what it delivers will be "
        "merged; or start it with the checkpoint directory it had.",
        appId=batch.app_id,
        batchId=batch.number,
        last=last,
    )
