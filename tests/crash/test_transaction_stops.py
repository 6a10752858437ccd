"""A program that reads, transforms and writes in transactions is stopped before each of its changes to files.

Whichever process comes next, and whatever it does first: in the end each record of the source is in the sink once, in
order, and the group's committed offset is at the source's end. The process that was stopped may come back then, and
can change nothing.
"""

import contextlib
import shutil

from copying import GROUP, RECORDS, SOURCE, STEP, Worker, committed_offset, make_store, sink
from sampling import SAMPLED, sample
from stops import StopBefore, count_changes, run_until

from pyspark_log.errors import OffsetConflictError, OutcomeUnknownError, PublisherFencedError, TransactionStateError
from pyspark_log.storage.groups.offsets import OffsetsLog
from pyspark_log.storage.maintenance import janitor
from pyspark_log.storage.publish.pending import help_apply
from pyspark_log.storage.publish.recovery import set_aside, waiting
from pyspark_log.storage.store import Store

pytestmark = SAMPLED

# ---- the next process


def same_id(path, _zombie):
    Worker(path, "worker").run()


def another_id(path, _zombie):
    Worker(path, "another").run()


def reader(path, _zombie):
    help_apply(Store.open(path).decisions)
    seen = sink(path)
    assert seen[0] == seen[1] == list(range(len(seen[0])))
    assert len(seen[0]) % STEP == 0
    another_id(path, None)


def by_hand(path, _zombie):
    """Commits what it finds, and what is there of it already must stay so."""
    log = OffsetsLog(Store.open(path))
    found = log.fetch(GROUP)
    if found:
        log.commit(GROUP, {SOURCE: found[SOURCE].offset})
    help_apply(Store.open(path).decisions)
    assert log.fetch(GROUP).keys() == found.keys()
    assert all(log.fetch(GROUP)[at].offset == found[at].offset for at in found)
    same_id(path, None)


def cleaner(path, _zombie):
    janitor.clean(Store.open(path))
    another_id(path, None)


def gives_up(path, _zombie):
    """Sets aside what waits and no partition has anything of, also of what a killed one has begun."""
    store = Store.open(path)
    for one in waiting(store.decisions):
        if not any(has(store, place, one.decision) for place in one.decision.places):
            assert set_aside(store.decisions, one.decision.offset).is_revoked
    same_id(path, None)


def has(store, place, decision):
    with store.logs.writer(place.topic, place.partition).hold() as held:
        return held.state.applied >= decision.offset


def itself(path, zombie):
    """The commit was only slow: it is asked for again, by the very object."""
    if zombie is not None:
        try:
            zombie.commit()
        except TransactionStateError:
            assert zombie.ended
    same_id(path, None)


PATHS = [same_id, another_id, reader, by_hand, cleaner, gives_up, itself]


def _try_stop(fresh, path, changes, torn, comes_next):
    shutil.copytree(fresh, path)
    worker = Worker(path, "worker")
    stop = StopBefore(changes, torn)
    if not run_until(worker.run, stop):
        return False  # Threads that apply side by side do not always make the very same number of changes.
    if torn and stop.stopped_at != "write":
        return True  # Nothing is torn, so this is what was tried before.
    where = f"stopped before change {changes} ({stop.stopped_at}), then {comes_next.__name__}"
    try:
        comes_next(path, worker.transaction)
        _come_back(worker.transaction, where)
    except Exception as error:
        raise AssertionError(where) from error
    help_apply(Store.open(path).decisions)
    assert sink(path) == [list(range(RECORDS))] * 2, where
    assert committed_offset(path) == RECORDS, where
    return True


def _come_back(zombie, where):
    """It was only stopped, and continues where it was."""
    if zombie is None or zombie.ended:
        return
    with contextlib.suppress(PublisherFencedError, OffsetConflictError, TransactionStateError):
        try:
            assert zombie.commit().replayed, where
        except OutcomeUnknownError as error:
            # It was stopped in a commit, and cannot ask any more what became of that.
            assert isinstance(error.__cause__, PublisherFencedError), where  # noqa: PT017


def test_stops(memory_path, capsys):
    make_store(memory_path / "fresh")
    shutil.copytree(memory_path / "fresh", memory_path / "counted")
    changes = count_changes(Worker(memory_path / "counted", "worker").run)
    points = [(number, torn, way) for torn in (False, True) for number in range(changes) for way in PATHS]
    chosen, tried = sample(points, len(points)), 0
    for number, torn, way in chosen:
        tried += _try_stop(memory_path / "fresh", memory_path / "store", number, torn, way)
        shutil.rmtree(memory_path / "store")
    with capsys.disabled():
        print(f"\n{tried} stops tried, of {len(points)}, which are {changes} changes with {len(PATHS)} ways on")
    assert tried + 1 >= 0.9 * len(chosen)
