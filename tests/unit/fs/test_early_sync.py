"""While a large file is written, the disk's cache is emptied now and then, so that the sync has little left to do."""

import os
import sys
import time

import pytest

from pyspark_log.storage.fs import files
from tests.processes import forked
from tests.store_tools import observed

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux can be asked to begin with a sync")

MIB = 1024 * 1024
# After how many bytes a sync is due.
DUE = 16 * MIB
PATIENCE = 120


@pytest.fixture
def file(tmp_path):
    with files.create(str(tmp_path / "large")) as created:
        yield created


def begin_when_idle(file):
    """Says that much was written, until a sync begins: one may be at work."""
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        if file.begin_sync(0, DUE):
            return True
        time.sleep(0.001)
    return False


def test_a_sync_begins_each_time_much_was_written(file):
    assert begin_when_idle(file)
    assert not file.begin_sync(0, MIB)
    assert begin_when_idle(file)


def test_what_was_written_to_all_files_counts(file, tmp_path):
    assert begin_when_idle(file)
    with files.create(str(tmp_path / "other")) as other:
        others = [one.begin_sync(0, DUE // 2 - MIB) for one in (file, other)]
        assert others == [False, False]
        assert begin_when_idle(other)


def test_a_file_that_was_renamed_meanwhile_does_no_harm(file):
    os.rename(file.path, file.path + ".renamed")
    assert begin_when_idle(file)
    assert begin_when_idle(file)
    file.sync()


def test_a_forked_child_does_not_wait_for_its_parents_thread(file):
    for _ in range(20):
        # Mostly the child is forked while the thread is at work.
        file.pwrite(os.urandom(MIB), 0)
        assert begin_when_idle(file)
        with forked(lambda: file.begin_sync(0, DUE) or pytest.fail("it has to wait")):
            pass


def test_it_changes_nothing_that_is_observed(file):
    changes = []
    with observed(changes.append):
        assert begin_when_idle(file)
    assert not changes
