"""Files and folders of a store can be written by the users that the umask permits: executors may run as others."""

import os
import stat

import pyarrow as pa
import pytest

from pyspark_log.storage.maintenance import janitor
from pyspark_log.storage.publish.staging.staged_writer import INLINE_LIMIT
from pyspark_log.storage.store import Store
from tests.store_tools import publish, rows, stage


def work(path):
    """Makes files of each kind."""
    with Store.create(path) as store:
        store.create_topic("t", 2, {"segment.bytes": "2000"})
        store.create_topic("gone", 1)
        for topic in ("t", "gone"):
            store.append(topic, pa.record_batch({"value": [b"." * 100] * 10}), partition=0)
            store.append(topic, pa.record_batch({"value": [b"." * 1000] * 2}), partition=0)
        store.delete_topic("gone")
        store.delete_records("t", 0, 10)
        staged = stage(store, rows(*(os.urandom(1000) for _ in range(INLINE_LIMIT // 1000 + 10))))
        publish(store.decisions, "q", 0, [])
        janitor.clean(store)
        return staged


@pytest.mark.parametrize(("umask", "allowed"), [(0o002, 0o775), (0o022, 0o755), (0o077, 0o700)])
def test_everything_is_made_with_what_the_umask_leaves(clock, tmp_path, umask, allowed):
    before = os.umask(umask)
    try:
        assert work(tmp_path / "store")
    finally:
        os.umask(before)
    made = [tmp_path / "store", *(tmp_path / "store").rglob("*")]
    kinds = {path.suffix for path in made if path.is_file()}
    assert {".json", ".log", ".index", ".timeindex", ".turn", ".lock", ".deleted", ".staged", ".metadata"} <= kinds
    for path in made:
        mode = stat.S_IMODE(path.stat().st_mode)
        assert oct(mode) == oct(allowed if path.is_dir() else allowed & 0o666), path
