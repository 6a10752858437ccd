"""Which run of a publisher may publish, and which numbers are taken for replays."""

import os
import shutil
import socket
from pathlib import Path

import pyarrow as pa
import pytest

from pyspark_log.clients.transactions import Transactions
from pyspark_log.errors import (
    OffsetConflictError,
    PublisherFencedError,
    PublishFailedError,
    PublishNumberError,
    PublishPendingError,
)
from pyspark_log.storage.groups.committed_offsets import OffsetMoves
from pyspark_log.storage.publish import claims, publishing
from pyspark_log.storage.publish.claims import claim, last_number
from pyspark_log.storage.publish.decision import NO_NUMBER
from pyspark_log.storage.store import Store
from pyspark_log.types import OffsetStep, TopicPartition
from tests import moved_time
from tests.store_tools import publish, stage, store_with, values, visible_values

store = store_with()


def put(store, number, value, **options):
    return publish(store.decisions, "q", number, stage(store, pa.record_batch({"value": [value]})), **options)


def test_a_run_that_claims_fences_the_one_that_is_about_to_decide(store):
    claim(store.decisions, "q", "older", 0)
    claim(store.decisions, "q", "newer", 0)
    with pytest.raises(PublisherFencedError, match=r"run older was replaced by run newer \(process \d+ on "):
        put(store, 0, b"x", run="older", claimed=True)
    put(store, 0, b"a", run="newer", claimed=True)
    with pytest.raises(PublisherFencedError):
        claim(store.decisions, "q", "older", 0)
    assert values(store) == [b"a"]


def test_a_run_with_a_refused_number_fences_no_other_run(store):
    put(store, 4, b"a", run="r1")
    for number in (3, 6):
        with pytest.raises(PublishNumberError, match=rf"number {number} after 4 \(process \d+ on .*, \d{{4}}-"):
            claim(store.decisions, "q", "r2", number)
    assert claim(store.decisions, "q", "r1", 5) == 4
    put(store, 5, b"b", run="r1", claimed=True)
    assert values(store) == [b"a", b"b"]


def test_a_publisher_that_comes_new_may_claim_any_number(store):
    claim(store.decisions, "q", "r1", 57)
    assert last_number(store.decisions, "q") is None
    put(store, 57, b"a", run="r1", claimed=True)
    assert last_number(store.decisions, "q") == 57


def test_a_run_that_has_the_publisher_claims_it_without_a_lock(store):
    claim(store.decisions, "q", "r1", 0)
    put(store, 0, b"a", run="r1", claimed=True)
    with store.decisions.hold():
        assert claim(store.decisions, "q", "r1", 1) == 0


@pytest.mark.parametrize(("host", "process", "may_be_alive"), [
    (None, 1, True), (None, 4_194_305, False), (None, None, False), ("elsewhere", 4_194_305, True),
])  # fmt: skip
def test_what_is_advised_if_another_run_may_be_alive(store, monkeypatch, host, process, may_be_alive):
    """To take a new checkpoint beside it would write everything twice. `process`: None: it is this one."""
    process = process or os.getpid()
    with monkeypatch.context() as patched:
        patched.setattr(os, "getpid", lambda: process)
        if host is not None:
            patched.setattr(socket, "gethostname", lambda: host)
        for number in range(3):
            put(store, number, b"%d" % number, plan="one")
    for number, plan in ((1, "one"), (2, "two")):
        with pytest.raises(PublishNumberError, match=f"process {process} on ") as caught:
            put(store, number, b"x", plan=plan)
        assert ("then stop it, and start this one again with the same checkpoint" in str(caught.value)) == may_be_alive
        assert "Continue with a new checkpoint or publisher id" in str(caught.value)


def test_the_last_number_with_another_plan_is_no_replay(store):
    put(store, 0, b"a", plan="one")
    with pytest.raises(PublishNumberError, match="number 0 was published with other input"):
        put(store, 0, b"b", plan="two")
    for plan in ("one", ""):
        assert put(store, 0, b"a", plan=plan).replayed
    put(store, 1, b"b", plan="two")
    assert values(store) == [b"a", b"b"]


def test_an_id_of_another_checkpoint_is_refused_until_it_is_taken_over(store):
    claim(store.decisions, "q", "r1", 0, location="one")
    put(store, 6, b"a", run="r1", claimed=True, location="one")
    with pytest.raises(PublisherFencedError, match=r"belongs to the checkpoint one .* last number: 6, of \d{4}-.*Z?\)"):
        claim(store.decisions, "q", "r2", 0, location="two")
    assert claim(store.decisions, "q", "r2", 0, location="two", take_over=True) == NO_NUMBER
    put(store, 0, b"b", run="r2", claimed=True, location="two")
    # The first one is fenced while it runs, and when it is started again.
    with pytest.raises(PublisherFencedError, match="run r1 was replaced by run r2"):
        put(store, 7, b"x", run="r1", claimed=True, location="one")
    with pytest.raises(PublisherFencedError, match="belongs to the checkpoint two"):
        claim(store.decisions, "q", "r3", 7, location="one")
    # The option may stay: what is one's own is not taken over.
    assert claim(store.decisions, "q", "r4", 1, location="two", take_over=True) == 0
    put(store, 1, b"c", run="r4", claimed=True, location="two")
    assert values(store) == values(Store.open(store.path)) == [b"a", b"b", b"c"]


def test_an_id_that_was_claimed_and_never_used_belongs_to_its_checkpoint(store):
    claim(store.decisions, "q", "r1", 0, location="one")
    with pytest.raises(PublisherFencedError, match=r"belongs to the checkpoint one .* last number: none yet"):
        claim(store.decisions, "q", "r2", 0, location="two")


def test_what_was_decided_is_applied_before_an_id_is_taken_over(store, monkeypatch):
    claim(store.decisions, "q", "r1", 0, location="one")
    with monkeypatch.context() as patched:
        for module in (publishing, claims):
            patched.setattr(module, "apply_decision", _killed)
        with pytest.raises(PublishPendingError):
            put(store, 0, b"a", run="r1", claimed=True, location="one")
        other = Store.open(store.path)
        with pytest.raises(PublishFailedError):
            claim(other.decisions, "q", "r2", 0, location="two", take_over=True)
    assert visible_values(store) == []
    other = Store.open(store.path)
    claim(other.decisions, "q", "r2", 0, location="two", take_over=True)
    assert values(Store.open(store.path)) == [b"a"]
    put(other, 0, b"b", run="r2", claimed=True, location="two")
    assert Store.open(store.path).decisions.follow() is None
    assert values(Store.open(store.path)) == [b"a", b"b"]


def _killed(*_):
    raise OSError("no space left")


# ---- an older copy of the store takes its place while a process has it open


def copied(store):
    return shutil.copytree(store.path, f"{store.path}-copy")


def replace(store, copy):
    os.rename(store.path, f"{store.path}-lost")
    os.rename(copy, store.path)


def test_numbers_count_as_they_are_in_an_older_copy(store):
    put(store, 0, b"0")
    copy = copied(store)
    for number in range(1, 4):
        put(store, number, b"%d" % number)
    replace(store, copy)
    with pytest.raises(PublishNumberError, match="number 4 after 0"):
        put(store, 4, b"4")
    assert last_number(store.decisions, "q") == 0
    put(store, 1, b"one")
    assert values(store) == [b"0", b"one"]


def test_committed_offsets_count_as_they_are_in_an_older_copy(store):
    at = TopicPartition("t", 0)
    put(store, 0, b"0", participants=[OffsetMoves(store.committed_offsets, [OffsetStep("g", at, None, 5)])])
    copy = copied(store)
    put(store, 1, b"1", participants=[OffsetMoves(store.committed_offsets, [OffsetStep("g", at, 5, 9)])])
    replace(store, copy)
    with pytest.raises(OffsetConflictError, match="9"):
        put(store, 1, b"1", participants=[OffsetMoves(store.committed_offsets, [OffsetStep("g", at, 9, 10)])])
    put(store, 1, b"1", participants=[OffsetMoves(store.committed_offsets, [OffsetStep("g", at, 5, 9)])])


def test_an_instance_that_an_older_copy_does_not_know_must_start_over(store):
    copy = copied(store)
    transactions = Transactions(store, "id")
    with transactions.begin() as transaction:
        transaction.append("t", pa.record_batch({"value": [b"0"]}))
    replace(store, copy)
    with pytest.raises(PublisherFencedError, match="begin again"):
        transactions.begin()


@pytest.mark.skipif(moved_time.KIND == "still", reason="the system's clock for files is what it is about")
def test_a_store_that_is_copied_back_with_its_times_is_another_one(store):
    file = f"{store.path}/store.json"
    before, shared = os.stat(file), Store.shared(store.path)
    content = Path(file).read_bytes()
    # Until the system's clock for files has moved.
    while os.stat(file).st_ctime_ns == before.st_ctime_ns:
        Path(file).write_bytes(content)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert Store.shared(store.path) is not shared
