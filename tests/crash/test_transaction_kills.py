"""A program that reads, transforms and writes in transactions is killed at random moments, and started again.

Sometimes the next one is started before the one at work is killed, so that two of them run at once.
"""

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_log import OffsetsLog, Store
from pyspark_log.storage.maintenance.verify.store import verify
from tests.seeds import new_seed

KILLS = 20
# How many records at least are to be done when a worker starts.
AHEAD = 1000
# How long a worker may take for its first transaction, in seconds.
PATIENCE = 240
WORKER = Path(__file__).parent / "worker_to_kill.py"


class Worker:
    def __init__(self, store):
        give_work(store)
        self.process = subprocess.Popen(
            [sys.executable, str(WORKER), store.path], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout.readline() == "started\n"

    def end(self, kill):
        """Whether it was done by then."""
        if kill:
            self.process.send_signal(signal.SIGKILL)
        rest = self.process.stdout.read()
        self.process.stdout.close()
        self.process.wait()
        return rest == "finished\n"


def make_store(path):
    store = Store.create(path, {"offsets.topic.num.partitions": "2"})
    store.create_topic("words", 2)
    store.create_topic("loud", 2, {"segment.bytes": "20000"})
    return store


def given(store):
    return sum(store.latest_offset("words", partition) for partition in range(2))


def give_work(store):
    """Appends until there is enough to do; a worker has what there is when it starts."""
    first, done = given(store), committed_offset(OffsetsLog(store))
    for number in range(first, done + AHEAD, 4):
        words = [b"word %d" % word for word in range(number, number + 4)]
        store.append("words", pa.record_batch({"key": words, "value": words}))


def values(store, topic):
    store = Store.open(store.path)
    return [[v for batch in store.read(topic, p) for v in batch["value"].to_pylist()] for p in range(2)]


def committed_offset(committed):
    return sum(kept.offset for kept in committed.fetch("shouters").values())


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.timeout(1200)
def test_the_sink_has_the_source_once_and_whole(tmp_path, capsys):
    store = make_store(tmp_path / "store")
    seed = new_seed()
    moments = random.Random(seed)
    committed, progress, struck = OffsetsLog(store), [], 0
    worker = Worker(store)
    for kill in range(KILLS):
        # Every other one gets somewhere first.
        deadline = time.monotonic() + PATIENCE
        while kill % 2 and committed_offset(committed) == (progress or [0])[-1]:
            assert time.monotonic() < deadline, f"no record is done after {progress}, seed {seed}"
            time.sleep(0.001)
        time.sleep(moments.uniform(0, 0.1))
        if moments.random() < 0.3:
            following = Worker(store)  # It fences the one at work, which may be anywhere in a transaction.
            struck += not worker.end(kill=moments.random() < 0.5)
        else:
            struck += not worker.end(kill=True)
            following = Worker(store)
        worker = following
        progress.append(committed_offset(committed))
    assert worker.end(kill=False), f"seed {seed}"
    with capsys.disabled():
        print(f"\n{struck} of {KILLS} kills (seed {seed}) at work, after {progress} of {given(store)} records")
    assert struck > KILLS / 2, "most workers were done before they were killed: they need more input"
    # The partitioner is the same, so partitions correspond; and order is kept.
    assert values(store, "loud") == [[v.upper() for v in part] for part in values(store, "words")], f"seed {seed}"
    assert committed_offset(committed) == given(store)
    assert not verify(store.path).damaged
