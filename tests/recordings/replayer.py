"""Sends what a recording holds to a server of this package, and compares the answers with Kafka's.

Requests are sent in the recorded order, on as many connections. Only those that append to one partition, and were under
way at the same time, are sent in the order in which Kafka appended. The answer to a request that never waits is read
before anything else is sent. One to a request that may wait (for other members of a group, or for records) is read
where it comes in the recording; so others on other connections are answered in between.

What an answer holds beside ids depends on time in one case only, that of a fetch: a log may grow while it is under way,
and each side chooses how many batches make an answer. So

- batches are compared by their offsets. Where Kafka gave more than this server, the replayer fetches on until it has as
  much. Where this server gave more, the batches that Kafka gave must be the first ones.
- a fetch to which Kafka gave records waits for records as long as it takes; another one does not wait at all.
- the ends of the log are compared if no request to produce was under way at the same time.
"""

from __future__ import annotations

from collections import defaultdict, deque
from typing import NamedTuple

from pyspark_log.kafka import UnsupportedVersionError, decode_request, decode_response, encode_request
from pyspark_log.kafka import messages as m
from pyspark_log.kafka.schemas import api
from pyspark_log.storage.record import layout
from tests.recordings.comparing import Difference, Ids, batches, compare
from tests.recordings.events import Kind
from tests.server_tools import PATIENCE, Peer

_PRODUCE, _FETCH, _JOIN, _SYNC, _API_VERSIONS = 0, 1, 11, 14, 18
_PATIENCE_MS = PATIENCE * 1000
_UNSUPPORTED_VERSION = 35


class _Exchange(NamedTuple):
    """A request of a recording, and its answer.

    Attributes:
        begin, end: their numbers among the events; the end of all, if it was not answered.
        request: None: its version is one that is not known.
        response: None: it was not answered.
    """

    connection: int
    begin: int
    end: int
    key: int
    version: int
    correlation_id: int
    client_id: str | None
    request: object
    frame: bytes
    response: object

    @property
    def name(self):
        return api(self.key)[0].name.removesuffix("Request")

    @property
    def has_answer(self):
        """Whether a server answers it at all."""
        return self.key != _PRODUCE or self.request.acks != 0

    @property
    def fetched(self):
        """Whether it is a fetch to which Kafka gave records."""
        return (
            self.key == _FETCH
            and self.response is not None
            and any(part.records for topic in self.response.responses for part in topic.partitions)
        )

    @property
    def waits(self):
        """Whether its answer may have to wait for what other connections send."""
        return self.response is not None and (self.key in (_JOIN, _SYNC) or self.fetched)


def exchanges(events):
    """The requests of a recording by the numbers of their events, and again by those of their answers."""
    begun, ended, open_ones = {}, {}, {}
    for number, event in enumerate(events):
        if event.kind == Kind.REQUEST:
            begun[number] = _asked(event, number, len(events))
            open_ones[event.connection, begun[number].correlation_id] = number
        elif event.kind == Kind.RESPONSE:
            begin = open_ones.pop((event.connection, int.from_bytes(event.frame[:4], "big")))
            one = begun[begin]
            response = _decoded(one.key, one.version, event.frame)
            begun[begin] = ended[number] = one._replace(end=number, response=response)
    return begun, ended


def _asked(event, number, end):
    """A request that is not answered yet."""
    try:
        header, request = decode_request(event.frame)
        start = (header.request_api_key, header.request_api_version, header.correlation_id, header.client_id)
    except UnsupportedVersionError as error:
        request, start = None, (error.api_key, error.api_version, error.correlation_id, None)
    return _Exchange(event.connection, number, end, *start, request, event.frame, None)


def in_order_of_appends(events, begun):
    """The numbers of the events in the order in which they are repeated."""
    order = list(range(len(events)))
    produced = [one for one in begun.values() if one.key == _PRODUCE and one.response is not None]
    # A later one is moved first, so that those which are moved to the same place keep their order.
    for one in reversed(produced):
        earlier = [
            other
            for other in produced
            if one.begin < other.begin < one.end
            and one.connection != other.connection
            and any(_offsets(other).get(place, offset) < offset for place, offset in _offsets(one).items())
        ]
        if earlier:
            begin, end = order.index(one.begin), max(order.index(other.begin) for other in earlier)
            # What the client sent on the same connection afterwards stays after it.
            moved = [
                number
                for number in order[begin : end + 1]
                if events[number].connection == one.connection and events[number].kind == Kind.REQUEST
            ]
            left = [number for number in order[begin : end + 1] if number not in moved]
            order[begin : end + 1] = left + moved
    return order


def _offsets(produced):
    """The first offset that each partition's records got."""
    return {
        (topic.name, topic.topic_id, part.index): part.base_offset
        for topic in produced.response.responses
        for part in topic.partition_responses
        if part.error_code == 0
    }


def _decoded(key, version, frame):
    if key == _API_VERSIONS and int.from_bytes(frame[4:6], "big") == _UNSUPPORTED_VERSION:
        version = 0
    return decode_response(key, version, frame)[1]


class Replay:
    """A recording at a server.

    Attributes:
        names: of the APIs that are asked.
    """

    def __init__(self, recording, server, change=lambda one: one):
        """`change` makes another answer of one of Kafka's, which is then to be found."""
        self._events, self._server, self._change = recording.events, server, change
        self._begun, self._ended = exchanges(self._events)
        self.names = {one.name for one in self._begun.values()}
        self._ids = Ids()
        self._peers, self._waiting = {}, defaultdict(deque)
        self._differences = []

    def run(self):
        """The differences, in order. ConnectionError, TimeoutError: the server does not answer."""
        with Peer(self._server) as self._side:
            try:
                for number in in_order_of_appends(self._events, self._begun):
                    self._step(number, self._events[number])
            finally:
                for peer in self._peers.values():
                    peer.close()
        return self._differences

    def _step(self, number, event):
        connection = event.connection
        if event.kind == Kind.OPEN:
            self._peers[connection] = Peer(self._server)
        elif event.kind == Kind.REQUEST:
            self._send(self._begun[number])
        elif event.kind == Kind.RESPONSE:
            one = self._ended[number]
            while one in self._waiting[connection]:
                self._receive(connection)
        else:
            self._peers.pop(connection).close()
            self._waiting.pop(connection, None)

    def _send(self, one):
        request = self._ids.request(one.request)
        if one.key == _FETCH:
            request = request._replace(max_wait_ms=_PATIENCE_MS if one.fetched else 0, min_bytes=1)
        frame = one.frame
        if request != one.request:
            chunks = encode_request(request, one.version, one.correlation_id, one.client_id)
            frame = b"".join(map(bytes, chunks))[4:]
        peer = self._peers[one.connection]
        peer.socket.sendall(len(frame).to_bytes(4, "big") + frame)
        if not one.has_answer:
            return
        waiting = self._waiting[one.connection]
        waiting.append(one)
        if one.waits:
            # Once this is answered, the server has begun with the request.
            self._side.ask(m.ApiVersionsRequest(), 0)
        elif len(waiting) == 1:
            self._receive(one.connection)

    def _receive(self, connection):
        one, peer = self._waiting[connection].popleft(), self._peers[connection]
        try:
            frame = peer.receive(int.from_bytes(peer.receive(4), "big"))
        except (ConnectionError, TimeoutError) as error:
            raise type(error)(f"event {one.begin}, {one.request}: {error}") from error
        assert frame[:4] == one.correlation_id.to_bytes(4, "big")
        ours = _decoded(one.key, one.version, frame)
        if one.response is not None:
            self._compare(one, ours)

    def _compare(self, one, ours):
        where, kafka = f"{one.name} {one.version}", self._change(one.response)
        if one.key == _API_VERSIONS:
            kafka, ours = (_served(answer, kafka) for answer in (kafka, ours))
        elif one.key == _FETCH:
            self._compare_batches(one, kafka, ours)
            masked = {"records": None}
            if self._is_disturbed(one):
                masked |= {"high_watermark": 0, "last_stable_offset": 0}
            kafka, ours = (_masked(answer, masked) for answer in (kafka, ours))
        self._differences += compare(kafka, ours, self._ids, where)

    # ---- fetches

    def _is_disturbed(self, fetch):
        """Whether a request to produce was under way at the same time."""
        return any(
            one.key == _PRODUCE and one.begin < fetch.end and fetch.begin < one.end for one in self._begun.values()
        )

    def _compare_batches(self, one, kafka, ours):
        kafkas, found = _batches(kafka, self._ids), _batches(ours, None)
        for place, wanted in kafkas.items():
            given = found.get(place, {})
            while wanted and (not given or max(given) < max(wanted)):
                more = self._fetch_on(one, place, given)
                if not more:
                    break
                given |= more
            first, last = min(wanted, default=0), max(wanted, default=-1)
            given = {at: self._ids.kafkas_batch(batch) for at, batch in given.items() if first <= at <= last}
            for at in sorted(wanted.keys() | given.keys()):
                if wanted.get(at) != given.get(at):
                    where = f"{one.name} {one.version} batch at {at} of {place}"
                    self._differences.append(Difference(where, wanted.get(at), given.get(at)))

    def _fetch_on(self, one, place, given):
        """The batches that follow those which were given."""
        request = self._ids.request(one.request)
        [(topic, part)] = [
            (topic, part)
            for topic in request.topics
            for part in topic.partitions
            if (topic.topic, topic.topic_id, part.partition) == place
        ]
        if given:
            part = part._replace(fetch_offset=_end(given[max(given)]))
        request = request._replace(
            max_wait_ms=0, session_id=0, session_epoch=-1, topics=[topic._replace(partitions=[part])]
        )
        return _batches(self._side.ask(request, one.version), None).get(place, {})


def _batches(response, ids):
    """The batches of a fetch by topic, its id here, partition, and then offset. `ids` for an answer of Kafka's."""
    found = {}
    for topic in response.responses:
        topic_id = topic.topic_id if ids is None else ids.ours("topic_id", topic.topic_id)
        for part in topic.partitions:
            place = topic.topic, topic_id, part.partition_index
            found[place] = {int.from_bytes(batch[:8], "big"): batch for batch in batches(part.records or b"")}
    return found


def _end(batch):
    """The offset after a batch."""
    at = layout.LAST_OFFSET_DELTA_AT
    return int.from_bytes(batch[:8], "big") + int.from_bytes(batch[at : at + 4], "big") + 1


def _masked(response, fields):
    topics = [
        topic._replace(partitions=[part._replace(**fields) for part in topic.partitions])
        for topic in response.responses
    ]
    return response._replace(responses=topics)


def _served(answer, kafka):
    """An answer with those of its APIs and their versions that the recorded client saw, which saw no features."""
    seen = {one.api_key: one for one in kafka.api_keys}
    keys = [
        one._replace(
            min_version=max(one.min_version, seen[one.api_key].min_version),
            max_version=min(one.max_version, seen[one.api_key].max_version),
        )
        for one in answer.api_keys
        if one.api_key in seen
    ]
    return type(answer)(answer.error_code, keys)
