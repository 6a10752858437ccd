"""What a client repeats is a line a minute in the server's log."""

import logging
import struct

from server_requests import batch, produce

from pyspark_log import Store
from pyspark_log.repeated_lines import OncePerMinute
from pyspark_log.storage.fs.clock import format_time
from tests.server_tools import Peer, Server


def test_lines_that_differ_in_ports_and_times_alone_are_one_in_a_minute(caplog):
    now = [0.0]
    only, log = OncePerMinute(clock=lambda: now[0]), logging.getLogger("pyspark_log.test")
    caplog.set_level(logging.INFO)
    caplog.handler.addFilter(only)
    try:
        for number in range(1234):
            log.warning("%s:%d: records of %s", "::1", 40_000 + number, format_time(number))
        log.warning("::2:1: records of 1970-01-01T00:00:00.000Z")
        log.info("what is no warning")
        log.info("what is no warning")
        now[0] = 60.0
        log.warning("::1:1: records of 2026-11-28T00:00:00.000Z")
        now[0] = 120.0
        log.warning("::1:2: records of 2026-11-28T00:00:00.000Z")
    finally:
        caplog.handler.removeFilter(only)
    assert caplog.messages == [
        "::1:40000: records of 1970-01-01T00:00:00.000Z",
        "::2:1: records of 1970-01-01T00:00:00.000Z",
        "what is no warning",
        "what is no warning",
        "::1:1: records of 2026-11-28T00:00:00.000Z (and 1,233 like it since the last such line)",
        "::1:2: records of 2026-11-28T00:00:00.000Z",
    ]


def test_of_a_client_that_connects_again_and_again_and_of_old_records(tmp_path):
    with Store.create(tmp_path / "store") as store:
        store.create_topic("t")
    server = Server(tmp_path / "store", tmp_path).start()
    header = struct.pack(">hhih", 1, 99, 1, -1)
    for _ in range(20):
        with Peer(server) as peer:
            peer.socket.sendall(struct.pack(">i", len(header)) + header)
            assert peer.is_closed_by_server()
    with Peer(server) as peer:
        for number in range(20):
            assert produce(peer, "t", batch(b"v", timestamp=1_000_000 + number)).error_code == 0
    server.stop()
    said = server.output()
    assert said.count("sends what is not served: Fetch in version 99; versions 4 to 18 are served") == 1
    assert said.count("are past the topic's retention.ms") == 1
