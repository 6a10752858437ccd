"""Ctrl-C at each moment of a call, in a process that keeps using the same store, as a notebook does.

Whatever was acknowledged stays; what was interrupted is there once or not at all; and the next call works, as no lock
stays held and nothing that is cached contradicts the files.
"""

import contextlib
import os

import pyarrow as pa
import pytest
from numbered import batch, end_transaction
from sampling import SAMPLED, sample

import pyspark_log
from pyspark_log.storage.maintenance.verify import verify
from pyspark_log.storage.store import Store
from pyspark_log.types import TopicPartition
from tests.interrupts import Interrupt
from tests.store_tools import publish, stage

# A generator that is dropped half-way is closed. That looks like a call of it, although Python runs no handlers there;
# it reports what is raised then, and continues.
_ENDED = pytest.mark.filterwarnings("ignore:Exception ignored in. <generator:pytest.PytestUnraisableExceptionWarning")
# A file of /proc that was just opened is dropped, which closes it; Python warns of that. Those of a store warn of
# nothing.
_DROPPED = pytest.mark.filterwarnings(
    "ignore:Exception ignored in. <_io.FileIO name='/proc/:pytest.PytestUnraisableExceptionWarning"
)
pytestmark = [pytest.mark.usefixtures("little_logs"), _ENDED, _DROPPED, *SAMPLED]

TOPIC, GROUP = "t", "g"
_ENGINE = os.path.join(os.path.dirname(pyspark_log.__file__), "storage", "")


def in_engine(frame, _event):
    of = frame.f_back if frame.f_code.co_filename == contextlib.__file__ else frame
    return of if of is not None and of.f_code.co_filename.startswith(_ENGINE) else None


def rows(name, count):
    return pa.record_batch({"value": [f"{name}/{row}".encode() + b"." * 150 for row in range(count)]})


def names(name, count):
    return [f"{name}/{row}" for row in range(count)]


def content(store):
    return [v.rstrip(b".").decode() for batch in store.read(TOPIC, 0) for v in batch["value"].to_pylist()]


class Work:
    """Calls to one store, and what they must leave."""

    def __init__(self, path, moment):
        self.path = path
        self.store = Store.create(path, {"offsets.topic.num.partitions": "1"})
        # One append in two rolls.
        self.store.create_topic(TOPIC, 1, {"segment.bytes": "1500", "index.interval.bytes": "200"})
        self.interrupt = Interrupt(moment, in_engine)
        self.expected = []

    def run(self):
        for step in range(6):
            self.append(f"a{step}", sync=step % 2 == 1)
            self.do_twice(self.append_numbered, step)
            self.expected.append(f"n{step}")
            if step % 3 == 2:
                number, count = step // 3, 12 if step == 2 else 40
                self.do_twice(self.publish, number, count)
                self.expected += names(f"p{number}", count)
            self.do_twice(self.commit, step)
            assert self.store.groups[GROUP].committed()[TopicPartition(TOPIC, 0)].offset == step
            with self.interrupt.armed():
                content(self.store)
            assert content(self.store) == self.expected
        assert content(Store.open(self.path)) == self.expected
        report = verify(self.path)
        assert not report.damaged, [str(finding) for finding in report.findings]

    def append(self, name, *, sync):
        with self.interrupt.armed():
            self.store.append(TOPIC, rows(name, 3), sync=sync)
            self.expected += names(name, 3)
            return
        found = content(self.store)
        if found != self.expected:  # It was interrupted after the log end had moved.
            self.expected += names(name, 3)

    def do_twice(self, action, *arguments):
        """Makes a call that may be repeated; a second time if it was interrupted."""
        before = self.interrupt.at
        with self.interrupt.armed():
            action(*arguments)
        if self.interrupt.at != before:
            action(*arguments)

    def append_numbered(self, number):
        self.store.append_batch(TOPIC, 0, batch(number, [b"n%d" % number], 7, transactional=True))
        end_transaction(self.store, TOPIC, 0, 7)

    def publish(self, number, count):
        publish(self.store.decisions, "q", number, stage(self.store, rows(f"p{number}", count), TOPIC))

    def commit(self, offset):
        self.store.groups[GROUP].commit({TopicPartition(TOPIC, 0): offset})


def test_an_interrupt_at_each_moment(memory_path, capsys):
    whole = Work(f"{memory_path}/whole", 0)
    whole.run()
    tried = sample(range(1, whole.interrupt.seen + 1), 200)
    for moment in tried:
        work = Work(f"{memory_path}/{moment}", moment)
        try:
            work.run()
        except BaseException as error:
            raise AssertionError(f"interrupted at {work.interrupt.at} (CRASH_AT={moment})") from error
    with capsys.disabled():
        print(f"\ninterrupts: {len(tried)} of {whole.interrupt.seen} moments tried")
    assert whole.interrupt.seen > 3000
