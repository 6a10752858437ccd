"""What is deleted of a store in an object store, and when; and processes that have slept through it."""

import itertools
import json

import pytest
import zstandard
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pyspark_log import Store
from pyspark_log.errors import (
    LogDamagedError,
    ObjectStoreError,
    OutcomeUnknownError,
    PublisherFencedError,
    StagedOutputError,
)
from pyspark_log.storage.fs.clock import since_boot
from pyspark_log.storage.maintenance.verify.store import verify
from pyspark_log.storage.objects import Objects
from pyspark_log.storage.objects.observer import set_observer
from pyspark_log.storage.publish_log import checkpoint, floors, naming, proposals
from pyspark_log.storage.publish_log.entries import sums
from pyspark_log.storage.publish_log.entries.changes import Addition, Region
from pyspark_log.storage.publish_log.entries.entry import encode, name_of
from pyspark_log.storage.publish_log.log import PublishLog
from pyspark_log.storage.publish_log.maintenance import merge, merging
from pyspark_log.storage.publish_log.maintenance.cleaning import clean
from pyspark_log.storage.publish_log.parts import staging
from pyspark_log.storage.publish_log.serving.documents import Documents
from pyspark_log.types import TopicPartition
from tests.store_tools import Stopped, observed_requests, rows, values

DAY = 24 * 60 * 60 * 1000
BEGIN = 1_800_000_000_000
EVERY = 32
_places = itertools.count()


class Clock:
    """The time of all processes here."""

    def __init__(self):
        self.now = BEGIN

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    """The time, which the test moves; a checkpoint comes after each 32 decisions."""
    found = Clock()
    monkeypatch.setattr("pyspark_log.storage.object_store.now_ms", found)
    monkeypatch.setattr(checkpoint, "EVERY", EVERY)
    # Only the test merges.
    monkeypatch.setattr(merging, "_RECENT_PIECES", 1_000_000)
    return found


@pytest.fixture
def store(object_url, clock):
    store = Store.create(object_url)
    store.create_topic("t", 1, {"retention.ms": "-1"})
    return store


def fill(store, count=EVERY):
    """Appends values, each by a decision."""
    for _ in range(count):
        store.append("t", rows(b"%d" % store.latest_offset("t", 0)))


def cleaned(store, clock):
    return clean(store.log, store.configs, clock)


def names(store, prefix=""):
    return {one.key for one in store.log.objects.list(prefix)}


def all_of(store):
    return values(Store.open(store.path))


def numbers(end):
    return [b"%d" % number for number in range(end)]


# ---- staged output


def staged(store, value, size=400_000):
    writer = store.publishes.writer(store.publishes.plan(["t"]))
    writer.append("t", rows(value * size))
    return writer.finish()


def test_staged_output_that_is_not_published(store, clock):
    old, forgotten = staged(store, b"a"), staged(store, b"a")
    clock.now += 6 * DAY
    young = staged(store, b"b")
    assert cleaned(store, clock) == (0, 0, 0)
    clock.now += DAY + 1
    # It is void from now on, and stays for a day.
    assert cleaned(store, clock) == (0, 0, 2)
    with pytest.raises(StagedOutputError, match=r"staged\.output\.expiration\.ms"):
        store.publishes.publish("p", 0, old)
    store.publishes.publish("p", 0, young)
    # What is refused is deleted at once.
    assert names(store, "data") == {forgotten[0].file, young[0].file}
    clock.now += DAY - 1
    assert cleaned(store, clock) == (0, 0, 2)
    clock.now += 1
    assert cleaned(store, clock) == (0, 2, 0)
    assert names(store, "data") == {young[0].file}
    # What is published is never deleted.
    clock.now += 30 * DAY
    cleaned(store, clock)
    clock.now += 30 * DAY
    cleaned(store, clock)
    assert all_of(store) == [b"b" * 400_000]


def test_a_document_that_no_decision_names(store, clock, monkeypatch):
    """Its writer was killed before it decided."""
    monkeypatch.setattr("pyspark_log.storage.publish_log.serving.documents.now_ms", clock)
    documents, forgotten = Documents(store.log), naming.new(naming.DOCUMENTS, BEGIN)
    store.log.objects.put(forgotten, b"forgotten")
    documents.change("users.json", lambda _: b"users")
    for _ in range(2):
        clock.now += 8 * DAY
        cleaned(store, clock)
    assert forgotten not in names(store, "access")
    documents.look()
    assert documents.current("users.json")[1] == b"users"
    # None is named that may be deleted by now.
    clock.now = BEGIN
    with pytest.raises(StagedOutputError):
        documents.change("users.json", lambda _: b"late")


def test_what_was_merged_or_deleted_is_deleted(store, clock):
    store.create_topic("u", 1)
    fill(store, 5)
    before = staged(store, b"a")
    store.publishes.publish("p", 0, before)
    for _ in range(5):
        store.append("u", rows(b"x" * 1000))
    merge(store.log, store.configs, clock)
    store.delete_topic("u")
    [merged] = names(store, "segments")
    clock.now += 8 * DAY
    # The merged object has records of both topics.
    assert cleaned(store, clock).unused == 1
    clock.now += DAY
    assert cleaned(store, clock).deleted == 1
    assert names(store, "data") == set()
    assert names(store, "segments") == {merged}
    assert all_of(store)[:5] == numbers(5)
    store.delete_topic("t")
    cleaned(store, clock)
    clock.now += DAY
    cleaned(store, clock)
    assert names(store, "segments") == set()


def test_a_cleaner_that_sleeps_before_it_lists(store, clock):
    """What it lists then stays for a day from then on, not from its start."""
    assert staged(store, b"a")[0].file
    clock.now += 8 * DAY
    objects = store.log.objects
    real = objects.list

    def late(prefix=""):
        clock.now += DAY if prefix == naming.STAGED else 0
        return real(prefix)

    objects.list = late
    assert cleaned(store, clock).unused == 1
    objects.list = real
    assert cleaned(Store.open(store.path), clock) == (0, 0, 1)
    assert len(names(store, "data")) == 1


_TIMED = f"{BEGIN - 2 * DAY}-{'0' * 24}"
_OWN = [
    *(f"{kind}/{number:020}" for kind in ("log", "sum", "checkpoint", "floor") for number in (0, EVERY - 1, 10**12)),
    *(f"{kind}/{_TIMED}" for kind in ("data", "segments", "unused", "access")), f"segments/t-0/{0:020}-{_TIMED}.log",
]  # fmt: skip
_CHANGES = {
    "below a folder": lambda name, at: f"{name.partition('/')[0]}/inner/{name}"[: 30 + at] + name[len(name) // 2 :],
    "of a store within": lambda name, _: f"{name.partition('/')[0]}/{name}",
    "of a store in a store": lambda name, _: f"x/{name}",
    "longer": lambda name, at: f"{name}{at % 10}",
    "shorter": lambda name, _: name[:-1],
    "other digits": lambda name, at: name[:-1] + "\u0663" if name[-1].isdigit() else name + "\u0663" * (at + 1),
    "upper case": lambda name, _: name[0].upper() + name[1:],
    # No letter: with one more a segment's topic is another topic.
    "a sign": lambda name, at: name[: at % len(name)] + "!" + name[at % len(name) :],
}


@given(strangers=st.sets(st.builds(lambda name, change, at: _CHANGES[change](name, at), st.sampled_from(_OWN),
                                   st.sampled_from(sorted(_CHANGES)), st.integers(0, 60)), min_size=1))  # fmt: skip
@settings(max_examples=min(settings().max_examples, 25), suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_only_what_is_its_own_to_the_letter_is_deleted(object_url, clock, strangers):
    clock.now = BEGIN
    store = Store.create(f"{object_url}/{next(_places)}")
    store.create_topic("t", 1, {"retention.ms": "-1"})
    objects = store.log.objects
    for name in strangers:
        objects.put(name, b"7")
    # Not even if a list names them.
    listed = zstandard.ZstdCompressor().compress(json.dumps(sorted(strangers)).encode())
    objects.put(naming.new(naming.UNUSED, BEGIN - 2 * DAY), listed)
    fill(store, 2 * EVERY)
    for _ in range(3):
        clock.now += 9 * DAY
        cleaned(store, clock)
    assert strangers <= names(store)
    assert store.log.follow().floor == 2 * EVERY - 1
    noted = {finding.file for finding in verify(store.path).findings if finding.what == "not an object of the engine"}
    assert noted == strangers


def test_a_list_that_is_none(store, clock):
    store.log.objects.put(naming.new(naming.UNUSED, BEGIN - 2 * DAY), b"no list")
    with pytest.raises(LogDamagedError, match="no list of objects"):
        cleaned(store, clock)


# ---- old entries


def test_old_entries_are_deleted_and_nothing_is_lost(store, clock):
    fill(store, 3 * EVERY)
    clock.now += 8 * DAY
    fill(store, EVERY)
    assert store.log.follow().floor == -1
    first = cleaned(store, clock)
    state = store.log.follow()
    assert (state.floor, state.floors) == (3 * EVERY - 1, 1)
    assert names(store, "floor") == {floors.name_of(1)}
    # All of them but the first have records.
    assert first.unused == 3 * EVERY // sums.BLOCK + 2 + 1
    merge(store.log, store.configs, clock)
    cleaned(store, clock)
    clock.now += DAY
    assert cleaned(store, clock).deleted == 3 * EVERY + 3 * EVERY // sums.BLOCK + 2
    assert min(names(store, "log")) == name_of(3 * EVERY)
    assert min(names(store, "checkpoint") - {"checkpoint/last"}) == checkpoint.name_of(3 * EVERY - 1)
    assert all_of(store) == numbers(4 * EVERY)
    # The next floor, by another process.
    clock.now += 8 * DAY
    other = Store.open(store.path)
    fill(other, 2 * EVERY)
    clock.now += 8 * DAY
    fill(other, 1)
    cleaned(other, clock)
    assert other.log.follow().floors == 2
    assert names(store, "floor") == {floors.name_of(1), floors.name_of(2)}
    assert all_of(store) == numbers(6 * EVERY + 1)


def sleep_through(store, clock):
    """Deletes all entries that a process knows which has followed just before; what the store has then."""
    other = Store.open(store.path)
    known = other.log.follow().number
    fill(other, 3 * EVERY)
    merge(other.log, other.configs, clock)
    for _ in range(3):
        clock.now += 8 * DAY
        fill(other, EVERY)
        merge(other.log, other.configs, clock)
        cleaned(other, clock)
    assert name_of(known + 1) not in names(other, "log")
    return all_of(other)


def test_a_reader_that_has_slept_sees_what_is_there(store, clock):
    fill(store, 3)
    expected = sleep_through(store, clock)
    assert len(expected) == 3 + 6 * EVERY
    assert values(store) == expected


AT = TopicPartition("t", 0)


def at_next(store, kind, action, *, after=False):
    """Does something before or after the next request of a kind, as if the process slept meanwhile."""
    objects = store.log.objects
    real = getattr(objects, kind)

    def late(*args):
        setattr(objects, kind, real)
        if not after:
            action()
        found = real(*args)
        if after:
            action()
        return found

    setattr(objects, kind, late)


def test_a_writer_that_has_slept_publishes_once(store, clock):
    fill(store, 3)
    parts = staged(store, b"x", 10)
    expected = [*sleep_through(store, clock), b"x" * 10]
    for _ in range(2):
        store.publishes.publish("p", 0, parts)
        assert all_of(store) == values(store) == expected


def test_a_writer_that_sleeps_before_it_creates(store, clock):
    """It makes an entry whose number was given and deleted, which counts for no process; the same call again does."""
    fill(store, 3)
    parts, number = staged(store, b"x", 10), store.log.follow().number
    at_next(store, "create", lambda: sleep_through(store, clock))
    with pytest.raises(OutcomeUnknownError, match="stopped for so long"):
        store.publishes.publish("p", 0, parts)
    assert name_of(number + 1) in names(store, "log")
    expected = all_of(store)
    assert len(expected) == 3 + 6 * EVERY
    for _ in range(2):
        store.publishes.publish("p", 0, parts)
        assert all_of(store) == values(store) == [*expected, b"x" * 10]
    # The stray entry is deleted like others.
    for _ in range(2):
        clock.now += DAY
        cleaned(store, clock)
    assert name_of(number + 1) not in names(store, "log")
    assert all_of(store) == [*expected, b"x" * 10]


def test_a_writer_that_sleeps_after_it_has_created(store, clock):
    """Its entry counts. That was deleted since, so it cannot know; the same call again finds it."""
    fill(store, 3)
    parts = staged(store, b"x", 10)
    at_next(store, "create", lambda: sleep_through(store, clock), after=True)
    with pytest.raises(OutcomeUnknownError, match="stopped for so long"):
        store.publishes.publish("p", 0, parts)
    store.publishes.publish("p", 0, parts)
    assert all_of(store).count(b"x" * 10) == 1
    assert values(store) == all_of(store)


def test_an_entry_after_the_last_floor_counts(store, clock):
    """Also if its writer has slept, and another floor was set meanwhile."""
    fill(store, 3 * EVERY)
    other = Store.open(store.path)

    def sleep():
        clock.now += 8 * DAY
        cleaned(other, clock)
        assert other.log.follow().floor == 3 * EVERY - 1

    at_next(store, "create", sleep, after=True)
    store.append("t", rows(b"x"))
    assert values(store) == all_of(store) == [*numbers(3 * EVERY), b"x"]


def without_the_first(store, clock):
    """Deletes the entry 1, which has no records; those after it have some, and stay."""
    store.groups["a"].commit({AT: 1})
    fill(store, 3 * EVERY)
    for days in (8, 1):
        clock.now += days * DAY
        cleaned(store, clock)
    assert min(names(store, "log")) == name_of(2)


def stray(store, proposal):
    """Makes the entry that a process makes which knows nothing newer than the first one."""
    log = store.log
    assert log.objects.create(name_of(1), encode(log._entry(proposal, "0" * 32)))


def test_a_stray_entry_that_fits_is_not_taken_in(store, clock):
    sleeper = Store.open(store.path)
    state = sleeper.log.follow()
    without_the_first(store, clock)
    stray(sleeper, proposals.commit(state, "b", {AT: 1}))
    assert list(sleeper.groups) == ["a"]
    assert sleeper.log.follow() == Store.open(store.path).log.follow()


def test_a_stray_entry_that_contradicts_others_is_no_damage(store, clock):
    sleeper = Store.open(store.path)
    sleeper.topics()
    without_the_first(store, clock)
    addition = Addition(store.describe_topic("t").topic_id, 0, 0, (Region("data/x", 0, 10, 1, 0, 0),))
    stray(sleeper, proposals.Proposal(additions=(addition,)))
    assert values(sleeper) == numbers(3 * EVERY)


def test_a_task_that_reads_a_stray_entry_as_its_piece(store):
    """It was planned before the records went elsewhere; then another process made an entry of that number."""
    fill(store, 4)
    planned, objects, name = store.read("t", 0), store.log.objects, name_of(2)
    objects.put(name, bytes(objects.get(name_of(4)).data))
    with pytest.raises(LogDamagedError, match=f"{name} has other records"):
        list(planned)


def test_floors_are_written_one_after_the_other(store, clock):
    """The cleaner that has decided the first one is killed before it writes it."""
    sleeper = Store.open(store.path)
    sleeper.topics()
    fill(store, EVERY)
    store.log.decide(lambda state: proposals.set_floor(state, -1, EVERY - 1))
    fill(store, EVERY)
    clock.now += 8 * DAY
    fill(store, 1)
    merge(store.log, store.configs, clock)
    for _ in range(2):
        cleaned(store, clock)
        clock.now += DAY
    assert names(store, "floor") == {floors.name_of(1), floors.name_of(2)}
    assert name_of(1) not in names(store, "log")
    assert values(sleeper) == all_of(store) == numbers(2 * EVERY + 1)


def test_a_checkpoint_that_is_deleted_for_a_later_floor(store, clock):
    """While a process reads which floor there is."""
    sleeper = Store.open(store.path)
    sleeper.topics()
    expected = sleep_through(store, clock)
    objects, last = store.log.objects, store.log.follow().floors
    assert last > 1
    later = {name: bytes(objects.get(name).data) for name in map(floors.name_of, range(2, last + 1))}
    objects.delete(list(later))
    objects.put("checkpoint/last", b"0")

    def observe(request):
        if request.key == "checkpoint/last":
            set_observer(None)
            for name, data in later.items():
                objects.put(name, data)

    with observed_requests(observe):
        assert values(sleeper) == expected


def test_a_fenced_writer_that_has_slept_publishes_nothing(store, clock):
    store.publishes.claim("p", "old")
    parts = staged(store, b"x", 10)
    Store.open(store.path).publishes.claim("p", "new")
    # The last thing that it knows is its own claim.
    late = store.publishes
    expected = sleep_through(store, clock)
    with pytest.raises(PublisherFencedError):
        late.publish("p", 0, parts, run="old", claimed=True)
    assert all_of(store) == expected


def test_when_it_cannot_be_known_whether_an_entry_counts(store, clock):
    fill(store, 3)
    parts = staged(store, b"x", 10)

    def observe(request):
        if request.kind == "create" and not request.is_done:
            clock.now += 15 * 60 * 1000
        if request.key.startswith("floor/"):
            raise ObjectStoreError("not now", retriable=True)

    with observed_requests(observe), pytest.raises(OutcomeUnknownError, match="counts"):
        store.publishes.publish("p", 0, parts)
    store.publishes.publish("p", 0, parts)
    assert values(store) == [*numbers(3), b"x" * 10]


@pytest.mark.parametrize("moved", ["clock", "boot"])
def test_either_clock_shows_that_a_process_has_slept(store, clock, moved, monkeypatch):
    fill(store, 1)

    def looks():
        seen = []
        with observed_requests(lambda request: seen.append(request.key) if request.key.startswith("floor/") else None):
            store.topics()
            store.append("t", rows(b"x"))
        return len(seen)

    assert looks() == 0
    if moved == "clock":
        clock.now -= 11 * 60 * 1000
    else:
        monkeypatch.setattr(floors, "since_boot", lambda: since_boot() + 11 * 60)
    assert looks() == 2  # before its request and after
    assert looks() == 0


def test_a_hint_that_went_back_to_a_deleted_checkpoint(store, clock):
    expected = sleep_through(store, clock)
    objects = store.log.objects
    for hint in (b"31", b"nonsense", b"7"):
        objects.put("checkpoint/last", hint)
        assert all_of(store) == expected
    objects.delete(["checkpoint/last"])
    assert all_of(store) == expected
    late = checkpoint.name_of(store.log.follow().floor)
    data = objects.get(late).data
    objects.delete([late])
    with pytest.raises(LogDamagedError, match=f"{late} is missing"):
        all_of(store)
    objects.put(late, data)
    # A slow process has written an old checkpoint once more: it is true, and old.
    objects.put(checkpoint.name_of(31), checkpoint.encode(store.log.follow()))
    assert all_of(store) == expected


def test_a_cleaner_that_is_killed_between_the_decision_and_its_floor(store, clock):
    fill(store, 3 * EVERY)
    clock.now += 8 * DAY
    fill(store, 1)

    def observe(request):
        if request.key.startswith("floor/"):
            raise Stopped

    with observed_requests(observe), pytest.raises(Stopped):
        cleaned(store, clock)
    other = Store.open(store.path)
    assert (other.log.follow().floors, names(store, "floor"), names(store, "unused")) == (1, set(), set())
    assert cleaned(other, clock).unused
    assert bytes(store.log.objects.get(floors.name_of(1)).data) == b"%d" % (3 * EVERY - 1)


def test_two_cleaners_set_one_floor(store, clock):
    fill(store, 3 * EVERY)
    clock.now += 8 * DAY
    fill(store, 1)
    other = PublishLog(Objects(store.path), clock)
    other.follow()
    log = store.log
    assert log.decide(lambda state: proposals.set_floor(state, -1, 31)) is not None
    assert other.decide(lambda state: proposals.set_floor(state, -1, 63)) is None
    assert other.follow().floor == 31
    assert log.decide(lambda state: proposals.set_horizon(state, BEGIN)) is not None
    assert other.decide(lambda state: proposals.set_horizon(state, BEGIN - 1)) is None


def test_staged_output_stays_inline_however_old_it_is(store, clock):
    """Only objects can have been deleted."""
    parts = staged(store, b"x", 10)
    assert not parts[0].file
    clock.now += 30 * DAY
    cleaned(store, clock)
    store.publishes.publish("p", 0, parts)
    assert all_of(store) == [b"x" * 10]
    assert staging.INLINE_LIMIT > 10
