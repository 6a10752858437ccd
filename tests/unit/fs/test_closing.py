"""Files that are closed while a signal arrives: Linux says EINTR then, and has closed the file."""

import errno
import gc
import os

import pyarrow as pa
import pytest

from pyspark_log.storage.fs import files
from tests.store_tools import new_store


@pytest.fixture
def closed(monkeypatch):
    """Interrupts each close; gives the numbers of the files that were closed."""
    gc.collect()  # Else files that earlier tests have left may be closed meanwhile.
    numbers, close = [], os.close

    def interrupted(fd):
        close(fd)
        numbers.append(fd)
        raise InterruptedError(errno.EINTR, os.strerror(errno.EINTR))

    monkeypatch.setattr(os, "close", interrupted)
    return numbers


def test_a_file_is_closed_once(tmp_path, closed):
    file = files.create(str(tmp_path / "file"))
    number = file.fd
    file.close()
    file.close()
    assert closed == [number]
    assert file.fd == -1


def test_no_append_fails(tmp_path, closed):
    store = new_store(tmp_path, {"segment.bytes": "1500"})
    for number in range(20):
        store.append("t", pa.record_batch({"value": [b"%d" % number * 200]}), sync=number % 3 == 0)
    assert sum(batch.num_rows for batch in store.read("t", 0)) == 20
    assert closed
