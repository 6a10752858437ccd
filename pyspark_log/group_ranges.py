"""Kafka's rule of the `range` assignors, that of the server and that of the clients."""

from __future__ import annotations

from itertools import accumulate, pairwise


def dealing_order(member_id: str, instance_id: str | None) -> tuple[bool, str]:
    """The key by which members are sorted. Static members are first, so that theirs stay when others change."""
    return instance_id is None, instance_id or member_id


def ranges(partitions: int, readers: int) -> list[range]:
    """The partitions of a topic of each of its readers, in their order: the first readers have one more.

    Args:
        partitions: how many the topic has.
        readers: how many read it, at least one.
    """
    least, more = divmod(partitions, readers)
    ends = accumulate((least + (at < more) for at in range(readers)), initial=0)
    return [range(begin, end) for begin, end in pairwise(ends)]
