"""What a fetch of many partitions costs the server, with a fetch session (KIP-227) and without.

`python benchmarks/fetch_sessions.py [--partitions 100,1000,5000] [--fetches 200]`: a topic with a record in each
partition. Before each fetch one partition gets another record. Milliseconds of processor time of the server for a
fetch, and kilobytes of a request and its response.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

import pyarrow as pa

from pyspark_log import Store
from pyspark_log.kafka import messages as m
from pyspark_log.kafka.frames import encode_request, encode_response

sys.path.insert(0, str(Path(__file__).parents[1]))
from tests.server_tools import NewServer, Peer, running

TOPIC, VERSION = "t", 12


def seconds_of(process: int) -> float:
    """Of processors, that a process has used."""
    return sum(int(file.read_text().split()[0]) for file in Path(f"/proc/{process}/task").glob("*/schedstat")) / 1e9


def request_of(offsets: dict[int, int], epoch: int, session_id: int) -> m.FetchRequest:
    parts = [m.FetchRequest.FetchPartition(number, -1, offset, -1, -1, 1 << 20) for number, offset in offsets.items()]
    topics = [m.FetchRequest.FetchTopic(TOPIC, bytes(16), parts)] if parts else []
    return m.FetchRequest(
        max_wait_ms=500, min_bytes=1, max_bytes=50 << 20, session_id=session_id, session_epoch=epoch, topics=topics
    )


def size_of(chunks: object) -> int:
    return sum(map(len, chunks))  # type: ignore[arg-type]


def measure(partitions: int, fetches: int, *, session: bool) -> tuple[float, float]:
    """Milliseconds and kilobytes of a fetch."""
    with tempfile.TemporaryDirectory() as folder, Store.create(f"{folder}/store") as store:
        store.create_topic(TOPIC, partitions)
        numbers = pa.array(range(partitions), pa.int32())
        store.append(TOPIC, pa.record_batch({"value": [b"v"] * partitions, "partition": numbers}))
        with running(NewServer(f"{folder}/store", folder)) as server, Peer(server) as peer:
            at = dict.fromkeys(range(partitions), 1)
            answer = peer.ask(request_of(at, 0 if session else -1, 0), VERSION)
            changed, size, used = dict[int, int](), 0, 0.0
            for step in range(1, fetches + 1):
                store.append(TOPIC, [{"value": b"v"}], partition=step % partitions)
                asked = request_of(changed, step, answer.session_id) if session else request_of(at, -1, 0)
                before = seconds_of(server.process.pid)
                found = peer.ask(asked, VERSION)
                used += seconds_of(server.process.pid) - before
                size += size_of(encode_request(asked, VERSION, 1, "c")) + size_of(encode_response(found, VERSION, 1))
                changed = {
                    part.partition_index: part.high_watermark
                    for topic in found.responses
                    for part in topic.partitions
                    if len(part.records or b"")
                }
                at |= changed
                assert len(changed) == 1
    return used / fetches * 1000, size / fetches / 1000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", default="100,1000,5000")
    parser.add_argument("--fetches", type=int, default=200)
    options = parser.parse_args()
    print("partitions  session  without  (ms)   session  without  (kB)")
    for partitions in map(int, options.partitions.split(",")):
        (ms, kilobytes), (all_ms, all_kilobytes) = (
            measure(partitions, options.fetches, session=session) for session in (True, False)
        )
        print(f"{partitions:10}{ms:9.2f}{all_ms:9.2f}{kilobytes:17.2f}{all_kilobytes:9.2f}", flush=True)


if __name__ == "__main__":
    main()
