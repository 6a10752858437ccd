"""The metrics of a server that runs: they are what its clients did, and asking for them disturbs no client."""

import contextlib
import json
import shutil
import socket
import threading
import time

import pytest
from cli_tools import output
from confluent_kafka import Consumer, Producer
from server_requests import batch, fetch, fetch_request, produce, produce_request

from pyspark_log import Store, TopicPartition
from pyspark_log.kafka import messages as m
from pyspark_log.kafka.error_codes import ErrorCode
from tests.forked import pylog_in_another_process
from tests.ports import HOST
from tests.processes import held_by_another
from tests.scrapes import MeasuredServer, Scrape, get
from tests.server_tools import PATIENCE, Peer, served, served_anew
from tests.waiting import wait_until

TOPIC = "kafka_server_brokertopicmetrics"
REQUEST = "kafka_network_requestmetrics"
CLIENTS = "kafka_server_socket_server_metrics"
WAITING = "kafka_server_delayedoperationpurgatory_purgatorysize"
TIMES = ("totaltimems", "requestqueuetimems", "localtimems", "remotetimems", "responsesendtimems")


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    with served_anew(tmp_path_factory.mktemp("server"), kind=MeasuredServer) as running:
        yield running


def until(found):
    return wait_until(found, "the metrics say so")


def test_records_and_bytes(server, topic):
    with Peer(server) as peer:
        batches = [batch(*[b"v%d" % number] * number) for number in range(1, 5)]
        for one in batches:
            assert produce(peer, topic, one).error_code == 0
        assert produce(peer, topic, batch(b"x")[:-1] + b"?").error_code != 0
        fetched = [len(fetch(peer, topic, offset).records) for offset in (0, 0, 3)]
    found = server.scrape()
    assert found.value(f"{TOPIC}_messagesin_total", topic=topic) == 1 + 2 + 3 + 4
    assert found.value(f"{TOPIC}_bytesin_total", topic=topic) == sum(map(len, batches))
    assert found.value(f"{TOPIC}_bytesout_total", topic=topic) == sum(fetched) > 0


def test_a_batch_that_is_sent_again_counts_once(server, topic):
    again = batch(b"a", b"b", producer_id=4000, producer_epoch=0, base_sequence=0)
    with Peer(server) as peer:
        assert [produce(peer, topic, again).base_offset for _ in range(3)] == [0, 0, 0]
    assert server.scrape().value(f"{TOPIC}_messagesin_total", topic=topic) == 2


def test_a_topic_that_is_deleted_has_no_counts(server, store, topic):
    with Peer(server) as peer:
        assert produce(peer, topic, batch(b"a")).error_code == 0
        assert server.scrape().value(f"{TOPIC}_messagesin_total", topic=topic) == 1
        store.delete_topic(topic)
        assert server.scrape().value(f"{TOPIC}_messagesin_total", topic=topic) is None
        store.create_topic(topic, 1)
        assert produce(peer, topic, batch(b"a")).error_code == 0
        assert server.scrape().value(f"{TOPIC}_messagesin_total", topic=topic) == 1


def test_requests_errors_and_times(server, topic):
    before = server.scrape()
    with Peer(server) as peer:
        for _ in range(3):
            produce(peer, topic, batch(b"a"), version=8)
        assert produce(peer, "there-is-none", batch(b"a"), version=8).error_code == 3
        peer.ask(produce_request(topic, batch(b"a")[:20], batch(b"a")), 8)
        fetch(peer, topic, 99, version=11)
        peer.ask(fetch_request(topic, 0), 11)
        peer.ask(fetch_request(topic, 0, session_id=5, session_epoch=5), 11)
        peer.ask(m.HeartbeatRequest("no-group", 1, "nobody"), 4)
    with Peer(server) as peer:
        peer.send(produce_request("there-is-none", batch(b"a"), acks=0), 8)
        assert peer.is_closed_by_server()
    after = server.scrape()

    def grown(name, **labels):
        return after.value(f"{REQUEST}_{name}", **labels) - (before.value(f"{REQUEST}_{name}", **labels) or 0)

    assert grown("requests_total", request="Produce", version=8) == 6
    assert grown("requests_total", request="Fetch", version=11) == 3
    assert grown("errors_total", request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION") == 3
    assert grown("errors_total", request="Fetch", error="FETCH_SESSION_ID_NOT_FOUND") == 1
    assert grown("errors_total", request="Heartbeat", error="UNKNOWN_MEMBER_ID") == 1
    assert grown("errors_total", request="Produce", error="INVALID_RECORD") == 1
    assert grown("errors_total", request="Fetch", error="OFFSET_OUT_OF_RANGE") == 1
    assert after.value(f"{REQUEST}_errors_total", request="Fetch", error="NONE") is None
    for name in TIMES:
        assert grown(f"{name}_count", request="Produce") == 5
        assert grown(f"{name}_bucket", request="Produce", le="+Inf") == 5
    assert grown("totaltimems_sum", request="Produce") >= grown("localtimems_sum", request="Produce") > 0


def test_where_the_time_goes(server, topic):
    """A fetch waits for its records, and a request that came with it waits for its answer."""
    before = server.scrape()
    with Peer(server) as peer:
        wait = peer.encoded(fetch_request(topic, 0, wait=600_000), 12)
        peer.socket.sendall(wait + peer.encoded(m.ListGroupsRequest(), 4))
        until(lambda: server.scrape().value(WAITING, delayedOperation="Fetch"))
        time.sleep(1)
        with Peer(server) as other:
            produce(other, topic, batch(b"a"))
        peer.response(), peer.response()
    after = server.scrape()

    def grown(part, request):
        name = f"{REQUEST}_{part}_sum"
        return after.value(name, request=request) - (before.value(name, request=request) or 0)

    assert grown("remotetimems", "Fetch") >= 200
    assert grown("localtimems", "Fetch") < grown("remotetimems", "Fetch")
    assert grown("totaltimems", "Fetch") >= grown("remotetimems", "Fetch")
    assert grown("totaltimems", "ListGroups") >= grown("requestqueuetimems", "ListGroups") >= 200
    assert after.value(WAITING, delayedOperation="Fetch") == 0


def test_connections(server):
    before = server.scrape()
    with contextlib.ExitStack() as stack:
        for name, version, count in (("lib-a", "1.0", 2), ("lib-b", "2.0-x", 1)):
            for _ in range(count):
                stack.enter_context(Peer(server)).ask(m.ApiVersionsRequest(name, version), 3)
        stack.enter_context(Peer(server)).ask(m.ApiVersionsRequest(), 0)
        found = server.scrape()

        def software(name, version):
            labels = {"clientSoftwareName": name, "clientSoftwareVersion": version, "listener": "PLAINTEXT"}
            return found.value(f"{CLIENTS}_connections_software", **labels)

        assert (software("lib-a", "1.0"), software("lib-b", "2.0-x")) == (2, 1)
        assert software("unknown", "unknown") == 1
        assert found.value(f"{CLIENTS}_connection_count", listener="PLAINTEXT") == 4
        name = f"{CLIENTS}_connection_creation_total"
        assert found.value(name, listener="PLAINTEXT") - before.value(name, listener="PLAINTEXT") == 4
    until(lambda: server.scrape().value(f"{CLIENTS}_connection_count", listener="PLAINTEXT") == 0)


def test_names_that_clients_make_up(server):
    with contextlib.ExitStack() as stack:
        for number in range(150):
            request = m.ApiVersionsRequest(f"made-up{number}" + 300 * "x", 300 * "1")
            assert stack.enter_context(Peer(server)).ask(request, 3).error_code == 0
        series = server.scrape().by_labels(f"{CLIENTS}_connections_software")
        assert len(series) == 101
        assert sum(value for _, value in series) == 150
        assert max(len(text) for labels, _ in series for text in labels.values()) == 64


def test_requests_of_apis_that_there_are_not(server):
    def shown():
        found = server.scrape()
        return [
            labels
            for name in ("requests_total", "totaltimems_count")
            for labels, _ in found.by_labels(f"{REQUEST}_{name}")
        ]

    before = shown()
    for start in (b"\x00\x63", b"\x01\x00", b"\xff\xff", b"\x00\x03\x7f\xff"):
        with Peer(server) as peer:
            peer.socket.sendall(b"\x00\x00\x00\x0c" + start + bytes(12 - len(start)))
            assert peer.is_closed_by_server()
    assert shown() == before


def test_groups_of_clients(server, topic, store):
    producer = Producer({"bootstrap.servers": server.bootstrap})
    for number in range(100):
        producer.produce(topic, value=b"%d" % number)
    assert producer.flush(PATIENCE) == 0
    group = f"group-of-{topic}"
    consumer = Consumer({
        "bootstrap.servers": server.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
        "enable.auto.commit": False,
    })  # fmt: skip
    consumer.subscribe([topic])
    got = consumer.consume(60, PATIENCE)
    consumer.commit(message=got[39], asynchronous=False)

    def lag(found):
        return found.value("kafka_consumergroup_lag", consumergroup=group, topic=topic, partition=0)

    found = until(lambda: (found := server.scrape()) and lag(found) is not None and found)
    [row] = json.loads(output(store, "groups", "describe", group, "--json"))
    assert lag(found) == row["lag"] == 60
    assert found.value("kafka_consumergroup_current_offset", consumergroup=group, topic=topic, partition=0) == 40
    assert found.value("kafka_consumergroup_state", consumergroup=group, state="Stable") == 1
    assert found.value("kafka_consumergroup_members", consumergroup=group) == 1
    assert found.value("kafka_consumergroup_rebalances_total", consumergroup=group) == 1
    consumer.close()
    found = until(lambda: (s := server.scrape()).value("kafka_consumergroup_members", consumergroup=group) == 0 and s)
    assert found.value("kafka_consumergroup_state", consumergroup=group, state="Empty") == 1
    assert lag(Scrape(output(store, "metrics"))) == 60


def test_scrapes_under_load(server, topic):
    """Counts only grow, and are what was acknowledged in the end."""
    stopped, acknowledged = threading.Event(), 0
    one = batch(*[b"x" * 100] * 10)

    def write():
        nonlocal acknowledged
        with Peer(server) as peer:
            while not stopped.is_set():
                assert produce(peer, topic, one).error_code == 0
                acknowledged += 1

    thread = threading.Thread(target=write)
    thread.start()
    try:
        seen = [server.scrape().value(f"{TOPIC}_messagesin_total", topic=topic) or 0 for _ in range(30)]
    finally:
        stopped.set()
        thread.join()
    assert seen == sorted(seen)
    assert 0 < seen[-1] <= 10 * acknowledged
    last = server.scrape()
    assert last.value(f"{TOPIC}_messagesin_total", topic=topic) == 10 * acknowledged
    assert last.value(f"{TOPIC}_bytesin_total", topic=topic) == len(one) * acknowledged


def test_syncs_and_waits_for_locks(tmp_path):
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 1)
    with served(store.path, tmp_path, "--sync-acks-all", kind=MeasuredServer) as server, Peer(server) as peer:
        assert produce(peer, "t", batch(b"a")).error_code == 0
        before = server.scrape()
        for _ in range(5):
            assert produce(peer, "t", batch(b"a")).error_code == 0
        after = server.scrape()
        name = "kafka_log_logflushstats_logflushrateandtimems"
        assert after.value(f"{name}_count") - before.value(f"{name}_count") >= 5
        assert after.value(f"{name}_sum") > before.value(f"{name}_sum")
        with held_by_another(store, "t"):
            peer.send(produce_request("t", batch(b"a")), 9)
            until(lambda: server.scrape().value(WAITING, delayedOperation="Produce") == 1)
            time.sleep(0.5)
        peer.response()
        assert server.scrape().value("pylog_lock_wait_seconds_sum") >= 0.2


# ---- health


STARTS_LATE = """
import sys, time, os
from pyspark_log.server.groups.groups import Groups
load, wait = Groups.load, sys.argv.pop(1)
def late(self):
    while not os.path.exists(wait):
        time.sleep(0.01)
    load(self)
Groups.load = late
from pyspark_log.cli.start import main
main()
"""


def test_ready_when_clients_can_be_served(tmp_path):
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 1)
    server = MeasuredServer(tmp_path / "store", tmp_path)
    server.program = ("-c", STARTS_LATE, tmp_path / "go", "serve")
    starting = threading.Thread(target=server.start)
    starting.start()
    try:
        until(lambda: "metrics on" in server.output())
        assert get(server.metrics_port, "/ready") == (503, "the server is starting\n")
        assert get(server.metrics_port, "/metrics") == (503, "the server is starting\n")
        assert get(server.metrics_port, "/health") == (200, "the process serves\n")
        (tmp_path / "go").touch()
        starting.join(PATIENCE)
        assert get(server.metrics_port, "/ready") == (200, "clients are served\n")
        assert get(server.metrics_port, "/health")[0] == 200
        with Peer(server) as peer:
            assert produce(peer, "t", batch(b"a")).error_code == 0
        shutil.move(server.path, tmp_path / "aside")
        assert server.scrape().value(f"{TOPIC}_messagesin_total", topic="t") == 1
        status, why = get(server.metrics_port, "/ready")
        assert (status, why.endswith(" is missing\n")) == (503, True)
        assert get(server.metrics_port, "/health")[0] == 200
        shutil.move(tmp_path / "aside", server.path)
        assert get(server.metrics_port, "/ready")[0] == 200
        assert server.stop() == 0
        with pytest.raises(ConnectionRefusedError):
            get(server.metrics_port, "/ready")
    finally:
        server.kill()
        starting.join()


def test_a_server_that_hangs(tmp_path):
    """A loop that does not run is not healthy; the process is stopped, and so can answer nothing at all itself."""
    code = f"""
import os, sys, time
from pyspark_log.server import session
from pyspark_log.server.pages import loop_calls
loop_calls._PATIENCE = 0.3
answer = session.ClientSession.answer
async def hang(self, frame):
    while not os.path.exists({str(tmp_path / "go")!r}):
        time.sleep(0.01)
    return await answer(self, frame)
session.ClientSession.answer = hang
from pyspark_log.cli.start import main
main()
"""
    Store.create(tmp_path / "store").close()
    server = MeasuredServer(tmp_path / "store", tmp_path)
    server.program = ("-c", code, "serve")
    server.start()
    try:
        until(lambda: get(server.metrics_port, "/health")[0] == 200)
        with Peer(server) as peer:
            peer.send(m.ApiVersionsRequest(), 0)
            until(lambda: get(server.metrics_port, "/health") == (503, "the server has not answered for 0.3 s\n"))
            (tmp_path / "go").touch()
            peer.response()
        until(lambda: get(server.metrics_port, "/health")[0] == 200)
        assert server.stop() == 0
    finally:
        server.kill()


def test_a_brokers_folder_is_ready_for_reading(root, tmp_path):
    with served(root, tmp_path, kind=MeasuredServer) as server:
        assert get(server.metrics_port, "/ready") == (200, "clients are served, for reading\n")
        assert server.scrape().value("kafka_log_log_numlogsegments", topic="t", partition=0) == 3


# ---- disturbances


def test_hostile_clients_of_http_disturb_no_client(server, topic):
    hostile = [socket.create_connection((HOST, server.metrics_port), timeout=PATIENCE) for _ in range(60)]
    try:
        for number, client in enumerate(hostile):
            with contextlib.suppress(ConnectionError):
                client.sendall((b"", b"GET /met", b"\x00" * 9000, b"GET /metrics HTTP/1.1\r\n\r\n")[number % 4])
        with Peer(server) as peer:
            for _ in range(50):
                assert produce(peer, topic, batch(b"a")).error_code == 0
    finally:
        for client in hostile:
            client.close()
    assert server.scrape().value(f"{TOPIC}_messagesin_total", topic=topic) == 50
    with Peer(server) as peer:
        assert peer.ask(m.ApiVersionsRequest(), 0).error_code == ErrorCode.NONE


def test_a_scrape_that_lasts_does_not_delay_the_end(tmp_path):
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t", 500)
        store.append("t", [{"value": b"v", "partition": number} for number in range(500)])
        store.groups["g"].commit({TopicPartition("t", number): 0 for number in range(500)})
    server = MeasuredServer(tmp_path / "store", tmp_path).start()
    try:
        with contextlib.ExitStack() as stack:
            for _ in range(8):
                client = socket.create_connection((HOST, server.metrics_port), timeout=PATIENCE)
                stack.enter_context(client).sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            assert server.stop() == 0, server.output()
        assert "Traceback" not in server.output()
    finally:
        server.kill()


def test_an_address_for_metrics_that_is_taken(tmp_path):
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        where = "--listen", f"{HOST}:0", "--metrics-listen", f"{HOST}:{port}"
        done = pylog_in_another_process("serve", "--store", tmp_path / "store", *where)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        f"Error: cannot listen on {HOST}:{port}: Address already in use",
    )
