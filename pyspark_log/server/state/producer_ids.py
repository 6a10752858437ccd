"""Ids for idempotent producers (KIP-98): each is given once."""

from __future__ import annotations

import secrets

# An id has 63 bits; the lower ones count the ids of a block.
_BITS, _COUNTER_BITS = 63, 20


class ProducerIds:
    """Gives ids in blocks, whose upper bits are random.

    Kafka's controller counts blocks, and so needs a record that no restart, copy or restored backup of a store may
    lose: an id that is given twice makes the log mistake new records for repeated ones. A random block needs none. A
    partition remembers a producer for a day (producer.id.expiration.ms); with a thousand servers that start in that
    time, the probability that two share a block is below one in ten millions.
    """

    def __init__(self) -> None:
        """The first block begins with the first id."""
        self._next = self._end = 0

    def next(self) -> int:
        """A new id."""
        if self._next == self._end:
            self._next = secrets.randbits(_BITS - _COUNTER_BITS) << _COUNTER_BITS
            self._end = self._next + (1 << _COUNTER_BITS)
        self._next += 1
        return self._next - 1
