"""Answers of Kafka and of this server, field by field; and the ids of the one as those of the other."""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

from pyspark_log.storage.record import layout
from tests.unit.record_tools import patched

NO_ID = bytes(16)
_ABSENT = "absent"
# What is another one on each side.
_MASKED = frozenset({
    "throttle_time_ms", "cluster_id", "host", "port", "node_endpoints", "total_bytes", "usable_bytes",
})  # fmt: skip
# What these say is another thing on each side, if they say anything.
_WORDING = frozenset({"error_message", "batch_index_error_message"})
_SAYS_NOTHING = frozenset({None, "", "NONE"})
# Ids that a server chooses, by the name of their field.
_IDS = {"topic_id": "topic", "member_id": "member", "leader": "member", "producer_id": "producer"}
_NO_IDS = frozenset({NO_ID, "", -1, None})
# Structs in a list are found by the first of these that they have, as each side has an order of its own.
_NAMES = (
    "name", "topic", "topic_name", "group_id", "resource_name", "key", "member_id", "topic_id", "partition_index",
    "partition", "index", "node_id", "broker_id", "api_key",
)  # fmt: skip


class Difference(NamedTuple):
    """A field that differs.

    Attributes:
        where: the API, then the way to the field: `Metadata topics[t].partitions[0].isr_nodes`.
        kafka, ours: its values.
    """

    where: str
    kafka: object
    ours: object

    def __str__(self):
        return f"{self.where}: {self.kafka!r}, here {self.ours!r}"


class Ids:
    """Kafka's ids, and those of this server in their place."""

    def __init__(self):
        self._ours, self._kafkas = {}, {}

    def learn(self, field, kafka, ours):
        """Whether the two are the same id; two that were not seen before are, from now on."""
        kind = _IDS[field]
        if kafka in _NO_IDS or ours in _NO_IDS:
            return kafka == ours
        if (kind, kafka) not in self._ours and (kind, ours) not in self._kafkas:
            self._ours[kind, kafka], self._kafkas[kind, ours] = ours, kafka
        return self._ours.get((kind, kafka)) == ours

    def ours(self, field, kafka):
        """This server's id for one of Kafka's; itself, if it came from the client."""
        return self._ours.get((_IDS[field], kafka), kafka)

    def request(self, value, field=""):
        """A request, or a part of one, with the ids of this server."""
        if hasattr(value, "_fields"):
            return value._replace(**{name: self.request(one, name) for name, one in value._asdict().items()})
        if isinstance(value, (list, tuple)):
            return type(value)(self.request(one) for one in value)
        if field in _IDS:
            return self.ours(field, value)
        if field == "records" and value is not None:
            return b"".join(self._renumbered(one, self._ours) for one in batches(value))
        return value

    def kafkas_batch(self, batch):
        """A batch of this server with Kafka's producer id."""
        return self._renumbered(batch, self._kafkas)

    def _renumbered(self, batch, known):
        at = layout.PRODUCER_ID_AT
        producer = int.from_bytes(batch[at : at + 8], "big", signed=True)
        other = known.get(("producer", producer), producer)
        return batch if other == producer else patched(batch, at, 8, other)


def batches(records):
    """The whole batches in records; what is left of the last one is no part."""
    found, position, data = [], 0, bytes(records)
    while position + layout.LENGTH_PREFIX <= len(data):
        at = position + layout.LENGTH_AT
        end = position + layout.LENGTH_PREFIX + int.from_bytes(data[at : at + 4], "big")
        if end > len(data):
            break
        found.append(data[position:end])
        position = end
    return found


def compare(kafka, ours, ids, where):
    """The fields of two answers that differ. Ids that come in pairs are learned."""
    return list(_compared(kafka, ours, ids, where, ""))


def _compared(kafka, ours, ids, where, field):
    if field in _MASKED:
        return
    if field in _WORDING:
        kafka, ours = (one if one in _SAYS_NOTHING else "a text" for one in (kafka, ours))
    if isinstance(kafka, memoryview):
        kafka = bytes(kafka)
    if isinstance(ours, memoryview):
        ours = bytes(ours)
    if hasattr(kafka, "_fields") and type(kafka) is type(ours):
        for name in kafka._fields:
            yield from _compared(getattr(kafka, name), getattr(ours, name), ids, f"{where}.{name}", name)
    elif isinstance(kafka, (list, tuple)) and isinstance(ours, (list, tuple)):
        yield from _compared_lists(kafka, ours, ids, where)
    elif not (ids.learn(field, kafka, ours) if field in _IDS else kafka == ours):
        yield Difference(where, kafka, ours)


def _compared_lists(kafka, ours, ids, where):
    kafkas, found = _by_name(kafka, ids, kafkas=True), _by_name(ours, ids, kafkas=False)
    for key in (*kafkas, *(key for key in found if key not in kafkas)):
        one, other = kafkas.get(key, _ABSENT), found.get(key, _ABSENT)
        yield from _compared(one, other, ids, f"{where}[{key[0]}]" if key[1] == 0 else f"{where}[{key[0]}, again]", "")


def _by_name(values, ids, *, kafkas):
    """The entries of a list by what names them, and how many have that name before; else by their number."""
    found, seen = {}, Counter()
    for number, value in enumerate(values):
        fields = getattr(value, "_fields", ())
        names = ((field, getattr(value, field)) for field in _NAMES if field in fields)
        field, name = next(((field, one) for field, one in names if one not in _NO_IDS), ("", number))
        if field in _IDS and kafkas:
            name = ids.ours(field, name)
        found[name, seen[name]] = value
        seen[name] += 1
    return found
