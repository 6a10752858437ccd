"""What the files of all replicas must have: the same bytes, and each acknowledged record at its offset."""

from __future__ import annotations

import hashlib
import time
from typing import NamedTuple

from pyspark_log.errors import CorruptRecordError
from pyspark_log.kafka.errors import ClusterError
from pyspark_log.storage.record import headers_in, scan
from pyspark_log.storage.record.decoding.decoder import decode
from tests.campaigns.cluster.exact import NAME as EXACT
from tests.campaigns.cluster.load import IDEMPOTENT, PLAIN
from tests.campaigns.cluster.topics import ALL
from tests.campaigns.members import segments_of

_MOST_SHOWN = 5
# How long each partition is waited for, in seconds, also if another one has taken all the time.
_AT_LEAST = 3


class _Checked(NamedTuple):
    """How far a partition was compared: bytes, their hash, and the offset after them."""

    size: int
    sha256: bytes
    end: int


class Replicas:
    """Compares the replicas of all partitions, again and again, with what producers and readers know.

    Attributes:
        late: how often a replica in sync had to be looked at again, as it had not all that was committed.
    """

    def __init__(self, cluster, acknowledged, readers, tend):
        """`tend` is called before each look."""
        self._cluster, self._noted, self._readers, self._tend = cluster, acknowledged, readers, tend
        self._checked = dict.fromkeys(ALL, _Checked(0, hashlib.sha256().digest(), 0))
        self._values = {at: [] for at in ALL}
        # The producer's id and epoch of each value; and how many there are of producers that never give up.
        self._seen, self._exact = {at: {} for at in ALL}, dict.fromkeys(ALL, 0)
        # What is not compared yet.
        self._acknowledged = {at: [] for at in ALL}
        self._read = {(reader.number, at): [] for reader in readers for at in ALL}
        self.late = 0

    @property
    def ends(self):
        """The offset after the compared records of each partition."""
        return {at: one.end for at, one in self._checked.items()}

    def check(self, seconds):
        """Waits until all members are in sync; gives what is wrong. What is acknowledged by now must be there."""
        deadline = time.monotonic() + seconds
        return [fault for at in ALL for fault in self._partition(at, max(deadline, time.monotonic() + _AT_LEAST))]

    def _partition(self, at, deadline):
        self._acknowledged[at] += self._noted.take(at)
        reason = "the time is over"
        while time.monotonic() < deadline:
            self._tend()
            try:
                reason, data = self._committed(at)
            except (OSError, ClusterError) as error:
                reason, data = f"no answer: {error}", None
            if data is not None:
                return [*self._differences(at, data)] or [*self._contents(at, data)]
            time.sleep(0.1)
        return [f"{at}: {reason}"]

    def _committed(self, at):
        """Why the replicas cannot be compared yet; or the committed bytes of each."""
        cluster = self._cluster
        view = cluster.agreed().get(at)
        if view is None or view.isr != set(cluster.members) or view.leader not in cluster.members:
            known = {number: cluster.views(number).get(at) for number in cluster.members}
            return f"not all members are in sync: {known}", None
        high_watermark = cluster.end_of(at, view)
        wanted = max((offset for offset, _ in self._acknowledged[at] if offset is not None), default=-1)
        if high_watermark <= wanted:
            return f"offset {wanted} is acknowledged, and the high watermark is {high_watermark}", None
        found = {number: one.folder_of(at) for number, one in cluster.members.items()}
        found = {number: _bytes_below(high_watermark, folder) for number, folder in found.items()}
        if cluster.agreed().get(at) != view:
            return "the leader or the members in sync change", None
        short = [f"member {number} ends at {end}" for number, (end, _) in found.items() if end < high_watermark]
        if short:
            self.late += 1
            return f"{'; '.join(short)}, the high watermark is {high_watermark}", None
        return "", {number: data for number, (_, data) in found.items()}

    def _differences(self, at, data):
        """Where replicas differ."""
        (first, expected), *others = data.items()
        for number, found in others:
            if found != expected:
                yield f"{at}: members {first} and {number} differ: {_first_difference(expected, found)}"
        before = self._checked[at]
        if hashlib.sha256(expected[: before.size]).digest() != before.sha256:
            yield f"{at}: what was committed before offset {before.end} has changed"

    def _contents(self, at, data):
        """What is wrong with the records, which are those of each replica."""
        data, before = next(iter(data.values())), self._checked[at]
        try:
            chunk = decode(
                data, before.size, len(data), from_offset=before.end, until_offset=2**62, max_bytes=2**40, keys=False
            )
        except CorruptRecordError as error:
            yield f"{at}: all replicas have damaged records: {error}"
            return
        offsets, values = chunk.columns["offset"].to_pylist(), chunk.columns["value"].to_pylist()
        end = before.end + len(offsets)
        if offsets != [*range(before.end, end)]:
            yield f"{at}: the offsets from {before.end} on have gaps"
            return
        self._checked[at] = _Checked(len(data), hashlib.sha256(data).digest(), end)
        self._values[at] += values
        yield from self._doubled(at, values, data, before)
        yield from self._missing(at, "acknowledged", self._acknowledged[at])
        self._acknowledged[at] = []
        for reader in self._readers:
            read = self._read[reader.number, at] + reader.take(at)
            yield from self._missing(at, f"read from member {reader.number}", [one for one in read if one[0] < end])
            self._read[reader.number, at] = [one for one in read if one[0] >= end]

    def _missing(self, at, how, records):
        """Of these offsets and values what is not there."""
        values, seen = self._values[at], self._seen[at]
        # A producer whose answer was lost may be answered that the record is there, without where.
        lost = [value for offset, value in records if offset is None and value not in seen]
        for value in lost[:_MOST_SHOWN]:
            yield f"{at}: {value[:30]} was {how}, and is lost ({len(lost)} such records)"
        wrong = [
            (offset, value)
            for offset, value in records
            if offset is not None and (offset >= len(values) or values[offset] != value)
        ]
        for offset, value in wrong[:_MOST_SHOWN]:
            there = values[offset][:30] if offset < len(values) else "nothing"
            yield f"{at}, offset {offset}: {value[:30]} was {how}, and {there} is there ({len(wrong)} such records)"

    def _doubled(self, at, values, data, before):
        """Values that are there twice, though their producer is idempotent.

        One of librdkafka that has given up a record begins a new epoch, and sends again in that what has no answer
        yet, which may be there: so it says no more than that a value is there once in each epoch. The others say that
        each value is there once, in order.
        """
        seen = self._seen[at]
        for header in scan(data, before.size, len(data)):
            producer = header.producer_id, header.producer_epoch
            for value in values[header.base_offset - before.end : header.next_offset - before.end]:
                name = value.partition(b":")[0].decode()
                if name == f"{EXACT}-{at}":
                    number = int(value.split(b":")[1])
                    if number != self._exact[at]:
                        yield f"{at}: {value[:30]} is there in the place of number {self._exact[at]}"
                    self._exact[at] = number + 1
                elif name not in (IDEMPOTENT, PLAIN):
                    yield f"{at}: {value[:30]} was not sent there"
                elif name == IDEMPOTENT and seen.get(value) == producer:
                    yield f"{at}: {value[:30]} is there twice in the epoch {producer} of its producer"
                seen[value] = producer


def _bytes_below(offset, folder):
    """The batches of a replica before an offset: the offset after them, and their bytes."""
    data = b"".join(path.read_bytes() for path in segments_of(folder))
    headers = headers_in(data, 0, len(data))
    last = next((one for one in reversed(headers) if one.next_offset <= offset), None)
    return (0, b"") if last is None else (last.next_offset, data[: last.end])


def _first_difference(expected, found):
    mine, theirs = headers_in(expected, 0, len(expected)), headers_in(found, 0, len(found))
    for one, other in zip(mine, theirs, strict=False):
        if expected[one.position : one.end] != found[other.position : other.end]:
            return f"{one} is {other}"
    return f"{len(mine)} batches are {len(theirs)}"
