"""The disk fails at each change to files, and each opening of one, and the same process continues.

An append that raises OSError has added nothing; one whose outcome is unknown says so; a publish that is called
again ends up there once, and so does a batch of a producer that numbers its records. Whatever was acknowledged stays,
and in the end everything can be written and read.
"""

import pyarrow as pa
import pytest
from faults import ATTEMPTS, FAULTS, again_until_done, try_faults
from numbered import batch, check_index, end_transaction
from sampling import SAMPLED

from pyspark_log.errors import OutcomeUnknownError
from pyspark_log.storage.store import Store
from tests.store_tools import publish, stage

pytestmark = [pytest.mark.usefixtures("little_sizes"), *SAMPLED]

TOPIC = "t"
# Records of a publish: little is copied, more becomes segments.
COUNTS = (12, 40)


def rows(name, count=3):
    return pa.record_batch({"value": [f"{name}/{row}".encode() + b"." * 150 for row in range(count)]})


def content(path):
    store = Store.open(path)
    return [v.rstrip(b".").decode() for batch in store.read(TOPIC, 0) for v in batch["value"].to_pylist()]


class Work:
    """Steps that are tried until they succeed, and what must be there after each."""

    def __init__(self, path):
        self.path = path
        self.store = Store.create(path)
        self.store.create_topic(TOPIC, 1, {"segment.bytes": "1500", "index.interval.bytes": "200"})
        self.expected = []

    def run(self, calm):
        for step in range(8):
            self.append(f"a{step}", step % 2 == 1, calm)
            self.append_numbered(step)
            if step % 3 == 2:
                self.publish(step // 3)
            with calm():
                assert content(self.path) == self.expected
        with calm():
            self.store.append(TOPIC, rows("same process"))
            Store.open(self.path).append(TOPIC, rows("another"))
            assert len(check_index(self.store, TOPIC, 0)) == 8

    def check_at_the_end(self):
        tail = [f"{process}/{row}" for process in ("same process", "another") for row in range(3)]
        assert content(self.path) == self.expected + tail

    def append(self, name, sync, calm):
        for _ in range(ATTEMPTS):
            with calm():
                before = content(self.path)
            try:
                self.store.append(TOPIC, rows(name), sync=sync)
            except OutcomeUnknownError:
                with calm():
                    if content(self.path) != before:
                        break
            except OSError:
                with calm():
                    assert content(self.path) == before, "an append that failed is visible"
            else:
                break
        else:
            raise AssertionError("never succeeded")
        self.expected += [f"{name}/{row}" for row in range(3)]

    def append_numbered(self, number):
        data = batch(number, [b"n%d" % number], 7, transactional=True)
        again_until_done(lambda: self.store.append_batch(TOPIC, 0, data))
        # A second marker ends nothing.
        again_until_done(lambda: end_transaction(self.store, TOPIC, 0, 7))
        self.expected.append(f"n{number}")

    def publish(self, number):
        name = f"p{number}"

        def stage_and_publish():
            publish(self.store.decisions, "q", number, stage(self.store, rows(name, COUNTS[number]), TOPIC))

        again_until_done(stage_and_publish)
        self.expected += [f"{name}/{row}" for row in range(COUNTS[number])]


@pytest.mark.parametrize("kind", FAULTS)
def test_faults(memory_path, kind, monkeypatch, capsys):
    try_faults(monkeypatch, capsys, Work, memory_path, kind, 60)
