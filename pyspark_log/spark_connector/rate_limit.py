"""`maxOffsetsPerTrigger`: how a limit for a micro-batch is shared among partitions."""

from __future__ import annotations

import math
from collections.abc import Mapping

from pyspark_log.spark_connector.offsets import Offsets
from pyspark_log.types import TopicPartition

_LONG_MAX = 2**63 - 1


def limit_ends(
    limit: int, starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> Offsets:
    """The ends of a batch of about `limit` offsets, shared in proportion to what each partition has.

    The arithmetic is that of the Kafka connector (KafkaMicroBatchStream.rateLimit): a share below 1 is rounded
    up, so that a small partition is never starved, and any other down. So a batch can be a little larger or
    smaller than the limit. It works in doubles, as there, to cut batches at the same offsets.

    Args:
        limit: offsets for all partitions together.
        starts: where each partition of `ends` begins.
        ends: how far there is anything to read. A partition whose end is not above its start keeps it.
    """
    sizes = {at: end - starts[at] for at, end in ends.items() if end > starts[at]}
    total = float(sum(sizes.values()))
    limited = dict(ends)
    for at, size in sizes.items():
        share = limit * (size / total)
        whole = min(math.ceil(share) if share < 1 else math.floor(share), _LONG_MAX)
        limited[at] = min(ends[at], starts[at] + whole)
    return limited
