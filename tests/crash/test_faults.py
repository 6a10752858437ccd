"""The disk fails at each change to files, and each opening of one, and the same process goes on.

An append that raises OSError has added nothing; one whose outcome is unknown says so; a publish that is called
again ends up there once, and so does a batch of a producer that numbers its records. Whatever was acknowledged stays,
and in the end everything can be written and read.
"""

import errno
import os
import tempfile
from pathlib import Path

import pyarrow as pa
import pytest
from numbered import abort_transaction, batch, check_index
from sampling import TIMEOUT, sample

from pyspark_log.storage import files
from pyspark_log.storage.errors import OutcomeUnknownError
from pyspark_log.storage.publish import publish
from pyspark_log.storage.staging import StagedWriter, StagingPlan
from pyspark_log.storage.store import Store

pytestmark = [pytest.mark.usefixtures("little_sizes"), pytest.mark.timeout(TIMEOUT)]

TOPIC = "t"
ATTEMPTS = 10
# Records of a publish: little is copied, more becomes segments.
COUNTS = (12, 40)


class Fault:
    """Fails some operations in a row, from one of them on."""

    def __init__(self, first, times, error, short=False):
        self.first, self.times, self.error, self.short = first, times, error, short
        self.seen = 0
        self.failed = []

    def due(self, what):
        self.seen += 1
        if self.first < self.seen <= self.first + self.times:
            self.failed.append(what)
            return True
        return False

    def change(self, change):
        """An observer of changes to files."""
        if self.due(f"{change.kind} {os.path.basename(change.path)}"):
            if self.short and change.kind == "write":
                with open(change.path, "r+b") as file:
                    os.pwrite(file.fileno(), change.data[: len(change.data) // 2], change.position)
            raise OSError(self.error, os.strerror(self.error), change.path)

    def opening(self, real, root):
        """In place of os.open."""

        def opened(path, *args, **kwargs):
            if str(path).startswith(root) and self.due(f"open {os.path.basename(path)}"):
                raise OSError(self.error, os.strerror(self.error), path)
            return real(path, *args, **kwargs)

        return opened


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
        again_until_done(lambda: abort_transaction(self.store, TOPIC, 0, 7))
        self.expected.append(f"n{number}")

    def publish(self, number):
        name = f"p{number}"

        def stage_and_publish():
            writer = StagedWriter(self.store, StagingPlan.make(self.store, [TOPIC]))
            writer.append(TOPIC, rows(name, COUNTS[number]))
            publish(self.store, "q", number, writer.finish())

        again_until_done(stage_and_publish)
        self.expected += [f"{name}/{row}" for row in range(COUNTS[number])]


def again_until_done(action):
    """Does what may be done again until it succeeds."""
    for _ in range(ATTEMPTS):
        try:
            action()
        except (OSError, OutcomeUnknownError):
            continue
        return
    raise AssertionError("never succeeded")


class _Calm:
    """Looks at the store without faults."""

    def __init__(self, install):
        self.install = install

    def __call__(self):
        return self

    def __enter__(self):
        self.install(None)

    def __exit__(self, *_):
        self.install(self.fault)


@pytest.fixture
def place(monkeypatch):
    """A folder in memory, and a way to run work with a fault in it."""
    memory = Path("/dev/shm")
    real = os.open
    with tempfile.TemporaryDirectory(dir=memory if os.access(memory, os.W_OK) else None) as folder:

        def run(name, fault, at_opens):
            path = f"{folder}/{name}"
            work = Work(path)

            def install(one):
                if at_opens:
                    monkeypatch.setattr(os, "open", real if one is None else one.opening(real, path))
                else:
                    files.set_observer(None if one is None else one.change)

            calm = _Calm(install)
            calm.fault = fault
            install(fault)
            try:
                work.run(calm)
            finally:
                install(None)
            tail = [f"{who}/{row}" for who in ("same process", "another") for row in range(3)]
            assert content(path) == work.expected + tail

        yield run


FAULTS = {
    "full disk": (errno.ENOSPC, 1, False, False),
    "full disk, three times": (errno.ENOSPC, 3, False, False),
    "half a write": (errno.ENOSPC, 1, True, False),
    "input/output error": (errno.EIO, 1, False, False),
    "no more open files": (errno.EMFILE, 1, False, True),
}


@pytest.mark.parametrize("kind", FAULTS)
def test_faults(place, kind, capsys):
    error, times, short, at_opens = FAULTS[kind]
    count = Fault(10**9, 0, error)
    place("count", count, at_opens)
    chosen = sample(range(count.seen), 60)
    for first in chosen:
        fault = Fault(first, times, error, short)
        try:
            place(str(first), fault, at_opens)
        except Exception as failure:
            raise AssertionError(f"{kind} at operation {first}: {fault.failed}") from failure
    with capsys.disabled():
        print(f"\n{kind}: {len(chosen)} of {count.seen} operations tried")
    assert count.seen > 300
