"""Clients that use more than their quota, at a server: what they learn of it, and how long they then wait."""

import contextlib
import itertools
import time

import pytest
from server_requests import batch, fetch_request, id_of, produce, produce_request, values

from pyspark_log import Store
from pyspark_log.kafka import decode_response, encode_response
from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from pyspark_log.kafka.schemas import api
from pyspark_log.server.handlers import APIS
from pyspark_log.server.handlers.limited import Work
from pyspark_log.server.network import Loop, Wait, Workers
from pyspark_log.server.quotas import ClientQuotas, Entity, throttles
from tests import requests as r
from tests.documents import documents_at
from tests.scrapes import MeasuredServer
from tests.security_tools import TlsPeer, add_users, log_in, name, tls_options
from tests.server_tools import Peer, served, served_anew

#: The user without authentication.
ANONYMOUS = Entity("ANONYMOUS")
_names = (f"client{number}" for number in itertools.count())
_ASK = m.ApiVersionsRequest("tests", "1.0")
#: More than quotas of a byte a second let through at once, though they let ten through.
_LARGE = batch(b"x" * 1000)


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served_anew(tmp_path_factory.mktemp("server"), kind=MeasuredServer) as running:
        yield running


@pytest.fixture
def me(monkeypatch):
    """The clients of a test, which have used nothing yet: all peers that are made from then on."""
    monkeypatch.setattr(Peer, "client_id", next(_names))
    return Entity(client_id=Peer.client_id)


@pytest.fixture
def quotas(server):
    """Sets quotas, by the API: they count with the next request. At the end there are none."""
    with Peer(server) as administrator:
        yield lambda entity, **values: put(administrator, entity, **values)
    ClientQuotas(documents_at(server.path)).change(lambda _: {})
    # The administrator's own request does not count, as there are no quotas now.
    with Peer(server) as administrator:
        put(administrator, Entity("nobody"), producer_byte_rate=None)


def put(peer, entity, **values):
    request = m.AlterClientQuotasRequest
    parts = [request.EntityData(kind, name or None) for kind, name in entity.parts()]
    changes = [request.OpData(one, value or 0, value is None) for one, value in values.items()]
    [result] = peer.ask(request([request.EntryData(parts, changes)], False), 1).entries
    assert result.error_code == 0, result.error_message


class Stopwatch:
    """How long something has taken, at least as long as a pause of the server."""

    def __init__(self):
        self._began = time.monotonic()

    def has_waited(self, pause_ms):
        assert pause_ms > 0
        # The server's clock has begun a moment later, and ends a millisecond earlier by rounding.
        return (time.monotonic() - self._began) * 1000 >= pause_ms - 1


def test_without_quotas_there_is_no_pause(peer, topic):
    assert peer.ask(produce_request(topic, _LARGE), 9).throttle_time_ms == 0


def test_others_are_served_meanwhile(me, server, peer, topic, quotas):
    quotas(me, producer_byte_rate=1)
    assert peer.ask(produce_request(topic, _LARGE), 9).throttle_time_ms > 60_000
    peer.send(_ASK, 3)
    with Peer(server) as other:
        # The same client id, but no produce request.
        assert other.ask(_ASK, 3).throttle_time_ms == 0
        quotas(me, producer_byte_rate=None)
        assert other.ask(produce_request(topic, _LARGE), 9).throttle_time_ms == 0


@pytest.mark.parametrize("version", [3, 5, 9, 13])
def test_the_answer_comes_first_and_then_a_pause(me, server, store, peer, topic, quotas, version):
    quotas(me, producer_byte_rate=1000)
    watch = Stopwatch()
    answer = peer.ask(produce_request(topic, batch(b"x" * 10_200), topic_id=id_of(store, topic)), version)
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert 200 < answer.throttle_time_ms < 400
    peer.ask(_ASK, 3)
    assert watch.has_waited(answer.throttle_time_ms)


def test_requests_without_an_answer_pause(me, server, store, peer, topic, quotas):
    quotas(me, producer_byte_rate=1000, request_percentage=0.000001)
    watch = Stopwatch()
    peer.send(produce_request(topic, batch(b"x" * 10_200), acks=0), 9)
    answer = peer.ask(_ASK, 3)
    assert watch.has_waited(200)
    assert answer.throttle_time_ms == 1000
    assert store.latest_offset(topic, 0) == 1


def test_requests_that_come_together_pause_one_by_one(me, peer, store, topic, quotas):
    """Also if one of them is so large that it has a buffer of its own."""
    quotas(me, producer_byte_rate=100_000)
    sizes = [1_005_000, 5_000, 70_000, 5_000]
    sent = [peer.encoded(produce_request(topic, batch(b"x" * size)), 9) for size in sizes]
    watch = Stopwatch()
    peer.socket.sendall(b"".join(sent))
    pauses = [peer.response().throttle_time_ms for _ in sent]
    assert pauses[0]
    assert watch.has_waited(sum(pauses[:-1]))
    assert store.latest_offset(topic, 0) == 4


def test_a_fetch_that_is_too_much_is_empty(me, server, store, peer, topic, quotas):
    """And what was found for it does not count as sent."""
    for _ in range(3):
        store.append(topic, [{"value": b"x" * 4000}])
    quotas(me, consumer_byte_rate=1000)
    found = [peer.ask(fetch_request(topic, offset, max_bytes=4000), 12) for offset in range(2)]
    assert [one.throttle_time_ms for one in found] == [0, 0]
    watch = Stopwatch()
    empty = peer.ask(fetch_request(topic, 2, max_bytes=4000), 12)
    assert (empty.error_code, empty.responses) == (0, ())
    assert peer.ask(_ASK, 3).error_code == 0
    assert watch.has_waited(empty.throttle_time_ms)
    quotas(me, consumer_byte_rate=None)
    found.append(peer.ask(fetch_request(topic, 2, max_bytes=4000), 12))
    parts = [one.responses[0].partitions[0] for one in found]
    assert [list(values(part)) for part in parts] == [[0], [1], [2]]
    assert _bytes_out(server, topic) == sum(len(part.records) for part in parts)


def _bytes_out(server, topic):
    return server.scrape().value("kafka_server_brokertopicmetrics_bytesout_total", topic=topic) or 0


@pytest.mark.parametrize("version", [12, 13])
def test_a_fetch_gets_at_most_what_the_quota_can_allow(me, server, store, peer, topic, quotas, version):
    for _ in range(4):
        store.append(topic, [{"value": b"x" * 3000}])
    quotas(me, consumer_byte_rate=700)
    answer = peer.ask(fetch_request(topic, 0, topic_id=id_of(store, topic), least=1 << 20, wait=600_000), version)
    assert answer.throttle_time_ms == 0
    [[part]] = [one.partitions for one in answer.responses]
    assert 0 < len(values(part)) < 4


@pytest.mark.parametrize(("entity", "is_limited"), [
    (ANONYMOUS, True), (Entity("", ""), True), (Entity("", "other"), False), (Entity("anna"), False),
])  # fmt: skip
def test_time(peer, quotas, entity, is_limited):
    quotas(entity, request_percentage=0.000001)
    peer.ask(_ASK, 3)
    assert (peer.ask(_ASK, 3).throttle_time_ms > 0) == is_limited


def test_time_of_other_threads_counts():
    """And that of waiting for records or other members of a group does not."""
    loop = Loop()
    workers, patience = Workers(loop, 1), Wait()

    def work():
        until = time.monotonic() + 0.05
        while time.monotonic() < until:
            pass

    async def handled():
        await workers.run(work)
        loop.call_later(0.2, patience.finish, None)
        await patience
        return "done"

    measured, began = Work(handled(), loop.time), loop.time()

    async def awaited():
        assert await measured == "done"
        loop.stop()

    loop.start(awaited())
    loop.run()
    workers.close()
    loop.close()
    assert 0.04 < measured.seconds < loop.time() - began - 0.15


def test_metrics(me, server, peer, topic, quotas):
    quotas(Entity("", ""), producer_byte_rate=1000, request_percentage=0.000001, controller_mutation_rate=1)
    pause = peer.ask(produce_request(topic, batch(b"x" * 11_200)), 9).throttle_time_ms
    peer.ask(r.create_topic(f"{topic}-more", 20), 5)
    found, whose = server.scrape(), {"user": "ANONYMOUS", "clientId": me.client_id}
    assert found.value("kafka_server_quota_throttle_time", resource="Produce", **whose) == pause
    assert found.value("pylog_quota_throttled_requests_total", resource="Produce", **whose) == 1
    assert 900 < found.value("kafka_server_quota_byte_rate", resource="Produce", **whose) < 1200
    assert found.value("kafka_server_quota_request_time", resource="Request", **whose) > 0
    assert found.value("kafka_server_quota_mutation_rate", resource="ControllerMutation", **whose) > 1
    assert found.value("pylog_quota_throttled_requests_total", resource="ControllerMutation", **whose) == 1


# ---- partitions


def _create(peer, topic, version, partitions=6, **fields):
    answer = peer.ask(r.create_topic(topic, partitions, **fields), version)
    return answer.topics[0].error_code, answer.throttle_time_ms


def _grow(peer, topic, version, count=8):
    answer = peer.ask(r.create_partitions(topic, count), version)
    return answer.results[0].error_code, answer.throttle_time_ms


def _delete(peer, topic, version):
    answer = peer.ask(m.DeleteTopicsRequest(topic_names=[topic], timeout_ms=10_000), version)
    return answer.responses[0].error_code, answer.throttle_time_ms


@pytest.mark.parametrize(("do", "strict"), [(_create, 6), (_grow, 3), (_delete, 5)])
def test_partitions_that_are_made_and_deleted(me, server, store, topic, quotas, do, strict):
    """Newer versions are refused, and older ones followed by a pause."""
    store.create_topic(f"{topic}-b", 1)
    quotas(me, controller_mutation_rate=0.1)
    of = (lambda number: f"{topic}-new{number}") if do is _create else (lambda number: (topic, f"{topic}-b")[number])
    with Peer(server) as peer:
        assert _create(peer, f"{topic}-many", 7, partitions=30) == (0, 0)
    with Peer(server) as peer:
        code, pause = do(peer, of(0), strict)
        assert code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert pause > 60_000
    with Peer(server) as peer:
        code, pause = do(peer, of(1), strict - 1)
        assert code == 0
        assert pause > 60_000


def test_topics_that_clients_want_are_made_when_the_quota_allows_it(me, server, peer, store, topic, quotas):
    quotas(me, controller_mutation_rate=0.1)
    assert _create(peer, f"{topic}-many", 7, partitions=60) == (0, 0)
    metadata = r.metadata(f"{topic}-auto", create=True)
    found = peer.ask(metadata, 9)
    assert found.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert found.throttle_time_ms > 60_000
    quotas(me, controller_mutation_rate=None)
    with Peer(server) as other:
        assert other.ask(metadata, 9).topics[0].error_code == 0


# ---- addresses


def test_connections_of_an_address(server, quotas):
    quotas(Entity(ip=""), connection_creation_rate=1)
    refused = 0
    with contextlib.ExitStack() as stack:
        for _ in range(14):
            peer = stack.enter_context(Peer(server))
            try:
                peer.ask(_ASK, 3)
            except ConnectionError:
                refused += 1
    assert 1 <= refused <= 5
    server.wait_for("as many as connection_creation_rate allows")


# ---- changes, and other processes


def test_a_restart_keeps_quotas_and_forgets_what_was_used(tmp_path):
    with served_anew(tmp_path) as server, Peer(server) as peer:
        put(peer, ANONYMOUS, producer_byte_rate=1000)
        assert produce(peer, "t", _LARGE).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        pause = peer.ask(produce_request("t", batch(b"x" * 100_000)), 9).throttle_time_ms
        assert pause > 60_000
        peer.send(_ASK, 3)
        assert server.stop() == 0  # also in the middle of a pause
        server.start()
        with Peer(server) as again:
            assert again.ask(produce_request("t", _LARGE), 9).throttle_time_ms == 0
            assert again.ask(produce_request("t", batch(b"x" * 100_000)), 9).throttle_time_ms == pytest.approx(
                pause, abs=1100
            )


def test_a_client_that_leaves_in_a_pause(me, server, topic, quotas):
    quotas(me, producer_byte_rate=1)
    for _ in range(20):
        with Peer(server) as peer:
            assert peer.ask(produce_request(topic, _LARGE), 9).throttle_time_ms
            peer.send(_ASK, 3)


# ---- users


def test_users_over_tls(tmp_path, authority):
    """A quota is the user's; until it has logged in, nothing is counted."""
    Store.create(tmp_path / "store").close()
    users = add_users(tmp_path / "store")
    assert set(users.all()) == {"anna", "bert"}
    ClientQuotas(documents_at(tmp_path / "store")).change(lambda _: {
        Entity("anna"): {"producer_byte_rate": 1000.0, "request_percentage": 0.000001},
        ANONYMOUS: {"request_percentage": 0.000001},
    })  # fmt: skip
    certificate = authority.issue("quotas", name(CN="localhost"))
    options = (*tls_options(*certificate), "--sasl-mechanisms", "PLAIN")
    with served(tmp_path / "store", tmp_path, *options) as server:
        for user, is_limited in (("anna", True), ("bert", False)):
            with TlsPeer(server, authority.context()) as peer:
                watch = Stopwatch()
                assert peer.ask(_ASK, 3).throttle_time_ms == 0
                log_in(peer, user, {"anna": "correct horse battery", "bert": "zażółć, gęślą=jaźń"}[user])
                sent = [peer.encoded(produce_request("t", batch(b"x" * size)), 9) for size in (10_200, 40_000, 200)]
                peer.socket.sendall(b"".join(sent))
                pauses = [peer.response().throttle_time_ms for _ in sent[:2]]
                assert [pause > 0 for pause in pauses] == [is_limited] * 2
                assert not is_limited or watch.has_waited(pauses[0])


# ---- the protocol


@pytest.mark.parametrize("key", APIS)
def test_each_api_can_say_how_long_a_pause_is(key):
    response = api(key)[1]
    if "throttle_time_ms" not in response.struct._fields:
        assert key in (17, 27, 36)  # SaslHandshake, WriteTxnMarkers, SaslAuthenticate
        return
    for version in set(APIS[key].versions) & set(response.versions):
        sent = b"".join(map(bytes, encode_response(response.struct()._replace(throttle_time_ms=7), version, 1)))
        assert decode_response(key, version, sent[4:])[1].throttle_time_ms in (0, 7)
    assert decode_response(key, version, sent[4:])[1].throttle_time_ms == 7


def test_what_comes_with_an_error_counts_too(server, me, quotas):
    """Without acknowledgements an error closes the connection, after what it is not about was appended."""
    quotas(me, producer_byte_rate=1000)
    large = m.ProduceRequest.TopicProduceData(
        "t-closing", bytes(16), [m.ProduceRequest.PartitionProduceData(0, _LARGE)]
    )
    with Store.open(server.path) as store:
        store.create_topic("t-closing", 1)
    missing = large._replace(name="missing")
    for _ in range(20):
        with Peer(server) as peer:
            peer.send(m.ProduceRequest(None, 0, 1000, [large, missing]), 9)
            assert peer.is_closed_by_server()
    with Peer(server) as peer:
        assert peer.ask(m.ProduceRequest(None, 1, 1000, [large]), 9).throttle_time_ms > 0


def test_permits_are_kept_for_no_more_clients_than_rates(monkeypatch, tmp_path):
    monkeypatch.setattr(throttles, "_MOST_COUNTED", 3)
    Store.create(tmp_path / "store").close()
    file = ClientQuotas(documents_at(tmp_path / "store"))
    file.change(lambda _: {Entity(client_id=""): {"controller_mutation_rate": 1.0}})
    made = throttles.Throttles(file, lambda: 1.0)
    waits = []
    for number in range(5):
        throttle = made.of("", f"c{number}")
        throttle.mutate(100, strict=False)
        waits.append(throttle.pause_ms)
    # The last two share what there is.
    assert waits[:4] == [waits[0]] * 4
    assert waits[4] > waits[0]
