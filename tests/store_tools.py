"""What most tests do with a store: write values, stage some, read them back, verify."""

import contextlib
import errno
import os
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_log.errors import PublishPendingError
from pyspark_log.storage.fs import files
from pyspark_log.storage.log.appending.replica import truncate
from pyspark_log.storage.maintenance.verify.findings import Severity
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.objects.observer import set_observer
from pyspark_log.storage.publish import applier, publishing
from pyspark_log.storage.seam import NewPublish
from pyspark_log.storage.store import Store
from pyspark_log.types import EARLIEST


class Stopped(BaseException):
    """A program has stopped here, as good as killed: no handler of the engine catches it."""


@contextlib.contextmanager
def observed(observer):
    """Inside, an observer sees each change to files before it is made."""
    files.set_observer(observer)
    try:
        yield
    finally:
        files.set_observer(None)


@contextlib.contextmanager
def observed_requests(observer):
    """Inside, an observer sees each request to an object store, before it is made and after its answer."""
    set_observer(observer)
    try:
        yield
    finally:
        set_observer(None)


def new_store(folder, configs=None, *, partitions=1, settings=None):
    """A store in a folder, with a topic `t`."""
    store = Store.create(folder / "store", settings)
    store.create_topic("t", partitions, configs)
    return store


def store_with(configs=None, **how):
    """The same as a fixture."""

    @pytest.fixture
    def store(tmp_path):
        return new_store(tmp_path, configs, **how)

    return store


def rows(*values):
    """Records with these values."""
    return pa.record_batch({"value": list(values)})


def in_partitions(data, partitions):
    """These records in each of the partitions."""
    columns = [pa.array([partition] * data.num_rows, pa.int32()) for partition in partitions]
    return pa.concat_batches([data.append_column("partition", column) for column in columns])


def stage(store, data, topic="t", *, plan=None):
    """Records of a topic, a batch or a list of batches, as a task stages them; what a publish is given."""
    writer = store.publishes.writer(plan or store.publishes.plan([topic]))
    for batch in data if isinstance(data, list) else [data]:
        writer.append(topic, batch)
    return writer.finish()


def publish(decisions, publisher, number, parts, *, participants=(), **how):
    """Publishes with any participants; `how`: as the arguments of `store.publishes.publish`."""
    return publishing.publish(decisions, NewPublish(publisher, number, parts, **how), participants)


def values(store, partition=0, topic="t", start=EARLIEST, end=None, **how):
    """The values of a partition, in order."""
    return [value for part in store.read(topic, partition, start, end, **how) for value in part["value"].to_pylist()]


def visible_values(store, partition=0, topic="t"):
    """The values that readers see by now: to read without an end would first apply what was decided."""
    return values(store, partition, topic, end=store.logs.reader(topic, partition).state().high_watermark)


def all_values(store, topic="t"):
    """The values of a topic, one partition after the other."""
    partitions = range(store.describe_topic(topic).partitions)
    return [value for partition in partitions for value in values(store, partition, topic)]


def faults(path):
    """What `verify` finds, but for notes."""
    return [finding for finding in verify(path).findings if finding.severity is not Severity.NOTE]


def damages(path):
    """What `verify` finds that is damage."""
    return [finding for finding in verify(path).findings if finding.severity is Severity.DAMAGE]


def open_files(path):
    """How many of the files of a store this process has open; other threads open what is none of a test's business."""
    prefix, found = os.path.realpath(path) + "/", 0
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(FileNotFoundError):  # that of the list itself, or it was closed just now
            found += os.readlink(f"/proc/self/fd/{number}").startswith(prefix)
    return found


@contextlib.contextmanager
def decided_only():
    """A publish inside is decided, and cannot be applied."""

    def fail(*_, **__):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(applier, "apply", fail)
        with pytest.raises(PublishPendingError, match="No space"):
            yield


def cut_log(store, offset, topic="t", partition=0):
    """Truncates a log; where it then ends."""
    with store.logs.writer(topic, partition).hold() as held:
        return truncate(held.log, offset)


def roll_log(store, topic="t", partition=0):
    """Begins a segment."""
    with store.logs.writer(topic, partition).hold() as held:
        held.log.roll()


def overwrite(path, at, data):
    """Puts other bytes into a file, at a place or at a distance from its end."""
    with open(path, "r+b") as file:
        file.seek(at, os.SEEK_END if at < 0 else os.SEEK_SET)
        file.write(data)


def flip(path, at, bits=0x04):
    """Changes some bits of a byte; a second time they are as they were."""
    data = bytearray(Path(path).read_bytes())
    data[at] ^= bits
    overwrite(path, at, bytes([data[at]]))
