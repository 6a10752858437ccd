"""Fetch sessions (KIP-227): a consumer says what changes, and gets what has changed. Kafka's own answers to like
requests are in tests/kafka/test_fetch_sessions_beside_kafka.py."""

import random
import threading

import pytest
from server_requests import FETCH_BY_ID, batch, id_of, produce, values

from pyspark_log import Store
from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.server.answers.refusal import RefusedError
from pyspark_log.server.security.acls import Rules
from pyspark_log.server.state.appends import Appends, PartitionKey
from pyspark_log.server.state.fetch_sessions import FetchSessions, Reader
from tests.server_tools import Peer, served

_LONG = 60_000
_ANY = Reader("User:a", "127.0.0.1", None)


def request_of(topic, offsets, epoch=-1, session_id=0, *, wait=0, gone=()):
    """`offsets`: by partition; `gone`: the partitions that it asks for no more."""
    parts = [m.FetchRequest.FetchPartition(number, -1, offset, -1, -1, 1 << 20) for number, offset in offsets.items()]
    return m.FetchRequest(
        max_wait_ms=wait, min_bytes=1, max_bytes=1 << 20, session_id=session_id, session_epoch=epoch,
        topics=[m.FetchRequest.FetchTopic(topic, topic_id=bytes(16), partitions=parts)] if parts else [],
        forgotten_topics_data=[m.FetchRequest.ForgottenTopic(topic, bytes(16), list(gone))] if gone else [],
    )  # fmt: skip


class Consumer:
    """A client with a session."""

    def __init__(self, peer, topic, offsets):
        self._peer, self._topic, self._epoch = peer, topic, 0
        answer = peer.ask(request_of(topic, offsets, 0), 12)
        self.session_id, self.first = answer.session_id, self._parts(answer)

    def send(self, offsets=None, **how):
        self._epoch += 1
        self._peer.send(request_of(self._topic, offsets or {}, self._epoch, self.session_id, **how), 12)

    def answer(self):
        """The partitions that are answered."""
        answer = self._peer.response()
        assert (answer.error_code, answer.session_id) == (0, self.session_id)
        return self._parts(answer)

    def fetch(self, offsets=None, **how):
        self.send(offsets, **how)
        return self.answer()

    def _parts(self, answer):
        return {part.partition_index: part for topic in answer.responses for part in topic.partitions}


def append(store, topic, partition, *found):
    store.append(topic, [{"value": value} for value in found], partition=partition)


@pytest.fixture
def wide(store, topic):
    """A topic of five partitions."""
    store.add_partitions(topic, 5)
    return topic


def test_only_what_has_changed_is_answered(peer, store, wide):
    append(store, wide, 1, b"a")
    consumer = Consumer(peer, wide, dict.fromkeys(range(5), 0))
    assert list(consumer.first) == [0, 1, 2, 3, 4]
    assert values(consumer.first[1]) == {0: b"a"}
    assert consumer.fetch({1: 1}) == {}
    append(store, wide, 3, b"b")
    [(number, part)] = consumer.fetch().items()
    assert (number, values(part)) == (3, {0: b"b"})
    # It was not taken: the position is the same.
    assert list(consumer.fetch()) == [3]
    assert consumer.fetch({3: 1}) == {}
    store.delete_records(wide, 3, 1)
    assert [part.log_start_offset for part in consumer.fetch().values()] == [1]
    append(store, wide, 2, b"c")
    assert consumer.fetch(gone=[2]) == {}
    assert values(consumer.fetch({2: 0})[2]) == {0: b"c"}


def test_a_partition_that_the_request_does_not_name_ends_the_wait(peer, store, wide):
    """In the process of the server, or in another one."""
    consumer = Consumer(peer, wide, dict.fromkeys(range(5), 0))
    for number in (4, 0, 2):
        consumer.send(wait=_LONG)
        threading.Timer(0.01, append, (store, wide, number, b"a")).start()
        assert [*consumer.answer()] == [number]
        consumer.fetch({number: 1})


def test_what_the_server_appends_and_what_others_do_end_the_wait(server, peer, store, topic):
    """One after the other, and at once. A report that is lost would be a wait of a minute that ends with nothing."""
    draw, end, there = random.Random(11), 0, 0
    consumer = Consumer(peer, topic, {0: 0})
    with Peer(server) as producer:

        def write(count, *, ours):
            for _ in range(count):
                if ours:
                    assert produce(producer, topic, batch(b"a")).error_code == ErrorCode.NONE
                else:
                    append(store, topic, 0, b"b")

        for number in range(120):
            consumer.send({0: end}, wait=_LONG)
            if number % 4:
                counts = draw.choice([(0, 1), (1, 0), (1, 1), (2, 1)])
                for count, ours in draw.sample(list(zip(counts, (True, False), strict=True)), 2):
                    write(count, ours=ours)
            else:
                counts = 5, 5
                other = threading.Thread(target=write, args=(5,), kwargs={"ours": False})
                other.start()
                write(5, ours=True)
                other.join()
            there += sum(counts)
            answer = consumer.answer()
            while True:
                found = values(answer[0])
                assert list(found) == list(range(end, end + len(found)))
                end += len(found)
                if end == there:
                    break
                answer = consumer.fetch({0: end}, wait=_LONG)


def test_a_log_that_has_changed_while_another_batch_waits_is_not_answered_as_it_was_left(server, peer, store, wide):
    """A consumer that has read what came meanwhile would be ahead of it, and begin again elsewhere."""
    consumer = Consumer(peer, wide, {0: 0})
    with Peer(server) as producer:
        # What the server has left itself is appended to at once.
        assert produce(producer, wide, batch(b"a")).error_code == ErrorCode.NONE
        with store.logs.writer(wide, 1).hold():
            parts = [m.ProduceRequest.PartitionProduceData(number, batch(b"b")) for number in (0, 1)]
            topics = [m.ProduceRequest.TopicProduceData(wide, bytes(16), parts)]
            producer.send(m.ProduceRequest(None, -1, 30_000, topics), 9)
            end = 0
            while end < 2:
                end += len(values(consumer.fetch({0: end}, wait=_LONG)[0]))
            append(store, wide, 0, b"c")
            assert values(consumer.fetch({0: 2}, wait=_LONG)[0]) == {2: b"c"}
        [topic] = producer.response().responses
    assert [part.error_code for part in topic.partition_responses] == [ErrorCode.NONE] * 2
    assert [part.error_code for part in consumer.fetch({0: 3}).values()] in ([], [ErrorCode.NONE])


def test_any_sequence_of_requests_gets_all(peer, store, wide):
    """What a session is answered has records exactly where a fetch of all partitions has."""
    draw = random.Random(5)
    at = dict.fromkeys(range(5), 0)
    consumer = Consumer(peer, wide, at)
    for _ in range(300):
        for number in draw.sample(range(5), draw.choice([0, 0, 1, 2])):
            append(store, wide, number, b"v")
        moved = {number: offset for number, offset in at.items() if draw.random() < 0.3}
        with_records = {number for number, part in consumer.fetch(moved).items() if len(part.records)}
        everything = peer.ask(request_of(wide, at), 12)
        there = {part.partition_index for part in everything.responses[0].partitions if len(part.records)}
        assert with_records == there
        for number in there:
            if draw.random() < 0.5:
                at[number] = store.latest_offset(wide, number)
                assert consumer.fetch({number: at[number]}).get(number) is None or number in there


def test_an_error_is_answered_until_it_is_gone(peer, store, wide):
    consumer = Consumer(peer, wide, {0: 0, 9: 0})
    for _ in range(2):
        assert {number: part.error_code for number, part in consumer.fetch().items()} == {9: 3}
    store.add_partitions(wide, 10)
    assert {number: part.error_code for number, part in consumer.fetch().items()} == {9: 0}
    assert consumer.fetch() == {}
    append(store, wide, 0, b"a")
    consumer.fetch({0: 1})
    store.delete_topic(wide)
    assert {part.error_code for part in consumer.fetch(wait=_LONG).values()} == {3}


def test_an_id_means_its_topic_also_where_another_has_the_name(peer, store, topic):
    append(store, topic, 0, b"a")
    asked = request_of("", {0: 0}, 0)
    asked = asked._replace(topics=[asked.topics[0]._replace(topic_id=id_of(store, topic))])
    session_id = peer.ask(asked, FETCH_BY_ID).session_id
    store.delete_topic(topic)
    store.create_topic(topic, 1)
    append(store, topic, 0, b"b")
    for epoch in (1, 2):
        [[part]] = [one.partitions for one in peer.ask(request_of("", {}, epoch, session_id), FETCH_BY_ID).responses]
        assert (part.error_code, bytes(part.records)) == (ErrorCode.UNKNOWN_TOPIC_ID, b"")


def test_a_session_is_for_the_names_or_the_ids_of_topics(peer, wide):
    consumer = Consumer(peer, wide, {0: 0})
    answer = peer.ask(request_of("", {}, 1, consumer.session_id), 13)
    assert answer.error_code == ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_there_are_as_many_as_the_store_says(tmp_path):
    with Store.create(tmp_path / "store", {"max.incremental.fetch.session.cache.slots": "1"}) as store:
        store.create_topic("t", 1)
    with served(tmp_path / "store", tmp_path) as server, Peer(server) as peer:
        first, second = Consumer(peer, "t", {0: 0}), Consumer(peer, "t", {0: 0})
        assert first.session_id
        assert second.session_id == 0
        # Its place is free when it has ended.
        peer.ask(request_of("t", {}, -1, first.session_id), 12)
        assert Consumer(peer, "t", {0: 0}).session_id


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


def test_the_one_that_was_not_used_for_longest_makes_room(loop):
    clock = Clock()
    sessions = FetchSessions(Appends(loop, None), clock, 2)
    first, second = (sessions.of(request_of("t", {0: 0}, 0), by_id=False) for _ in range(2))
    clock.now = 119
    sessions.of(request_of("t", {}, 1, first.session_id), by_id=False)
    assert sessions.of(request_of("t", {0: 0}, 0), by_id=False) is None
    clock.now = 120
    third = sessions.of(request_of("t", {0: 0}, 0), by_id=False)
    assert [*sessions] == [first, third]
    with pytest.raises(RefusedError):
        sessions.of(request_of("t", {}, 1, second.session_id), by_id=False)


def test_all_are_due_where_the_system_reports_no_changes(loop):
    session = FetchSessions(Appends(loop, None), Clock(), 2).of(request_of("t", {0: 0, 1: 0}, 0), by_id=False)
    for _ in range(2):
        [entry, _] = session.due(_ANY)
        entry.is_due = False


def test_all_are_due_now_and_then_and_for_another_reader(loop, tmp_path):
    clock = Clock()
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 1)
        append(store, "t", 0, b"a")
        appends = Appends(loop, store.partitions.events())
        sessions = FetchSessions(appends, clock, 2)
        session = sessions.of(request_of("t", {0: 0, 1: 0}, 0), by_id=False)

        def due(reader, epoch):
            sessions.of(request_of("t", {}, epoch, session.session_id), by_id=False)
            found = session.due(reader)
            for entry in found:
                entry.is_due = False
            return len(found)

        # Rules may refuse what others allowed.
        for epoch, (now, reader, count) in enumerate(
            [(0, _ANY, 2), (4.9, _ANY, 0), (5, _ANY, 2), (6, _ANY, 0), (6, _ANY._replace(rules=Rules((), ())), 2)], 1
        ):
            clock.now = now
            assert due(reader, epoch) == count
        # What a quota holds back is looked at again, and answered.
        sessions.take_back(session.session_id)
        assert due(reader, 6) == 2
        appends.close()


def test_a_look_at_all_takes_no_log_as_it_was_before_the_request(loop, tmp_path):
    with Store.create(tmp_path / "store") as store:
        key = PartitionKey(store.create_topic("t", 1).topic_id, 0)
        appends = Appends(loop, store.partitions.events())
        session = FetchSessions(appends, Clock(), 2).of(request_of("t", {0: 0}, 0), by_id=False)
        [entry] = session.due(_ANY)
        session.watch(entry, key)
        appends.keep(key, object())
        append(store, "t", 0, b"a")
        session.due(_ANY._replace(host="127.0.0.2"))
        assert appends.kept(key) is None
        appends.close()
